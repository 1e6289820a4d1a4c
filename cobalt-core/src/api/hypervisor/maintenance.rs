//! The maintenance modes.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Who took a host out of service, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Maintenance {
    /// In service. An empty word on the wire.
    #[default]
    Off,
    /// A person wants it.
    Manual,
    /// A program wants it, for instance because the host is about to reboot.
    Auto,
    /// The host failed; the owner of HA has taken over.
    Ha,
    /// The host leaves for good.
    Termination,
    /// A word of a later release. The host is out of service for a reason unknown here.
    Other(String),
}

impl Maintenance {
    /// Whether the host is in service.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }

    /// The word on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Off => "",
            Self::Manual => "manual",
            Self::Auto => "auto",
            Self::Ha => "ha",
            Self::Termination => "termination",
            Self::Other(word) => word,
        }
    }
}

impl From<&str> for Maintenance {
    fn from(word: &str) -> Self {
        match word {
            "" => Self::Off,
            "manual" => Self::Manual,
            "auto" => Self::Auto,
            "ha" => Self::Ha,
            "termination" => Self::Termination,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Maintenance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Maintenance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(Cow::<'de, str>::deserialize(deserializer)?.as_ref()))
    }
}

impl JsonSchema for Maintenance {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Maintenance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ["", "manual", "auto", "ha", "termination"] })
    }
}
