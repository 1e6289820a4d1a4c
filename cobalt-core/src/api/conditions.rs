//! Conditions: what a controller or agent says about an object, in the form every Kubernetes tool understands.
//!
//! The functions keep the convention that `lastTransitionTime` is the time of the last change of *status*: a new reason
//! or message leaves it alone.
//!
//! ```
//! use cobalt_core::api::{Condition, ConditionStatus, condition_types, conditions};
//!
//! let now = "2026-03-01T12:00:00Z".parse()?;
//! let mut list = Vec::new();
//! let ready = Condition::new(condition_types::READY, ConditionStatus::True, "Ready", "Hypervisor is ready");
//!
//! assert!(conditions::set_condition(&mut list, ready.clone(), now));
//! assert!(!conditions::set_condition(&mut list, ready, now), "nothing new, nothing to write");
//! assert!(conditions::is_true(&list, condition_types::READY));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer};
use serde::{Deserialize as DeserializeDerive, Serialize};

use super::tolerant;

/// The longest message the API server takes, in characters.
pub const MAX_MESSAGE: usize = 32_768;

/// One observation about an object, equal on the wire to `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, DeserializeDerive, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Condition {
    /// What the observation is about, unique in its list.
    #[serde(rename = "type", deserialize_with = "tolerant::or_default")]
    #[schemars(extend(
        "maxLength" = 316,
        "pattern" = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    ))]
    pub type_: String,

    /// Whether it holds.
    pub status: ConditionStatus,

    /// The time of the last change of `status`.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub last_transition_time: Option<Time>,

    /// One word for programs.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend(
        "minLength" = 1,
        "maxLength" = 1024,
        "pattern" = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    ))]
    pub reason: String,

    /// A sentence for people.
    #[serde(deserialize_with = "tolerant::or_default")]
    #[schemars(extend("maxLength" = 32768))]
    pub message: String,

    /// The `metadata.generation` this was concluded from.
    #[serde(deserialize_with = "tolerant::option", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub observed_generation: Option<i64>,
}

tolerant::objects!(Condition);

impl Condition {
    /// A condition without times; [`set_condition`] puts them in. A message too long for the API server is cut.
    pub fn new(
        type_: impl Into<String>,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
            message.truncate(end);
        }
        Self { type_: type_.into(), status, reason: reason.into(), message, ..Self::default() }
    }

    /// The same condition, concluded from that `metadata.generation`.
    #[must_use]
    pub fn observed(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }

    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Whether the status is `False`.
    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can tell, or the word on the wire is none of the three.
    #[default]
    Unknown,
}

impl ConditionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl<'de> Deserialize<'de> for ConditionStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = Option::<tolerant::Scalar>::deserialize(deserializer)?;
        Ok(match word.map(|word| word.to_string()).as_deref() {
            Some("True") => Self::True,
            Some("False") => Self::False,
            _ => Self::Unknown,
        })
    }
}

impl JsonSchema for ConditionStatus {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ConditionStatus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": ["True", "False", "Unknown"] })
    }
}

/// Puts a condition into its list and tells whether the list is different now.
///
/// The transition time moves to `new.last_transition_time`, or to `now` where that is absent, only when the status
/// flips (or was never given a time). Times are cut to the second, which is what the wire can carry, so that a list
/// compares equal to itself after a round trip.
pub fn set_condition(conditions: &mut Vec<Condition>, mut new: Condition, now: Timestamp) -> bool {
    let moment = new.last_transition_time.take().unwrap_or_else(|| Time(to_the_second(now)));
    let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == new.type_) else {
        conditions.push(Condition { last_transition_time: Some(moment), ..new });
        return true;
    };
    let since = old.last_transition_time.clone().filter(|_| old.status == new.status);
    new.last_transition_time = since.or(Some(moment));
    let changed = *old != new;
    *old = new;
    changed
}

fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition is there and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(Condition::is_true)
}

/// Whether the condition is there and `False`; an absent condition is neither.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(Condition::is_false)
}

/// Takes the condition out of its list and tells whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}
