//! One instance on its way from a host that is being drained.

use std::{borrow::Cow, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::tolerant::{self, FromWire};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
            /// A word of a later release.
            Other(String),
        }

        impl $name {
            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::from(Cow::<'de, str>::deserialize(deserializer)?.as_ref()))
            }
        }

        impl<'de> FromWire<'de> for $name {
            fn from_wire<D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
                Ok(Option::<String>::deserialize(deserializer)?.map(|word| Self::from(word.as_str())))
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            // Not an enumeration: an older CRD must not refuse the words of a newer operator.
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string"})
            }
        }
    };
}

words! {
    /// Where an instance is on its way. The drain's module draws how they follow each other.
    InstanceState {
        /// Can move, and waits for its turn.
        #[default]
        Pending = "Pending",
        /// Something else is being done with it that will end by itself.
        Waiting = "Waiting",
        /// The move was asked for and has not begun.
        Queued = "Queued",
        /// It moves.
        Migrating = "Migrating",
        /// It took too long and was asked to stop.
        Aborting = "Aborting",
        /// It takes too long and does not stop, or cannot be stopped. It is waited for, but not by the others.
        Overdue = "Overdue",
        /// It has moved while shut off, or was resized, and that is being confirmed.
        Confirming = "Confirming",
        /// A move failed; it is tried again soon.
        Failed = "Failed",
        /// It cannot move, or has failed too often; it is tried again, but seldom.
        Blocked = "Blocked",
        /// It is on another host.
        Moved = "Moved",
        /// It was deleted.
        Gone = "Gone",
    }
}

impl InstanceState {
    /// Whether a move of it has a place: such instances are what the limits count.
    pub fn is_in_flight(&self) -> bool {
        matches!(self, Self::Queued | Self::Migrating | Self::Aborting | Self::Confirming)
    }

    /// Whether a move of it is under way, with a place or without: such instances are what an Eviction waits for.
    pub fn is_under_way(&self) -> bool {
        self.is_in_flight() || *self == Self::Overdue
    }

    /// Whether it has left the host.
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Moved | Self::Gone)
    }
}

words! {
    /// How an instance moves.
    MoveKind {
        /// While it runs.
        #[default]
        Live = "live",
        /// While it is shut off.
        Cold = "cold",
        /// Not at all.
        None = "none",
    }
}

/// How far one instance is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct EvictedInstance {
    /// Its UUID.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub id: String,

    /// The name its owner gave it.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub name: String,

    /// Where it is: Pending, Waiting, Queued, Migrating, Aborting, Overdue, Confirming, Failed, Blocked, Moved, Gone.
    #[serde(deserialize_with = "tolerant::or_default")]
    pub state: InstanceState,

    /// How it moves: live, cold, none.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub how: Option<MoveKind>,

    /// How often a move was asked for.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend("default" = 0))]
    pub attempts: i32,

    /// The host it goes to or has gone to, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,

    /// Why it waits, cannot move, or did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,

    /// When the last move was asked for.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Time>,

    /// When the last move began. The time it may take counts from here, not from when it was asked for.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When the last move was first asked to stop, if it was.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub aborted_at: Option<Time>,

    /// When the last move ended, well or not.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// Not before this time it is tried again, or asked to stop again.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
}

tolerant::objects!(EvictedInstance);
