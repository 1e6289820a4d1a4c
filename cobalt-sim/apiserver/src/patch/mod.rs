//! The three patch formats that are not apply: JSON merge, JSON patch, strategic merge.

mod json;
mod strategic;

use serde_json::{Map, Value};

pub use self::json::json;
pub use self::strategic::strategic;

use crate::types::MAX_DEPTH;

/// Why a patch is refused. The text is the message of the Status the real server answers with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// 400: the patch is no patch.
    #[error("error decoding patch: {0}")]
    Decode(String),
    /// 413: more operations than the server is willing to run.
    #[error("The allowed maximum operations in a JSON patch is {limit}, got {got}")]
    TooMany {
        /// The limit.
        limit: usize,
        /// What came.
        got: usize,
    },
    /// 422: an operation cannot be done on this object, a failed `test` among them.
    #[error("the server rejected our request due to an error in our request")]
    Rejected,
    /// 500: a strategic merge patch contradicts the type.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// The HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::Decode(_) => 400,
            Self::TooMany { .. } => 413,
            Self::Rejected => 422,
            Self::Internal(_) => 500,
        }
    }

    /// A label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Decode(_) => "decode",
            Self::TooMany { .. } => "too-many",
            Self::Rejected => "rejected",
            Self::Internal(_) => "internal",
        }
    }

    /// Whether the same patch may succeed later: only one that the object's present content refuses.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Rejected)
    }
}

/// JSON merge patch (RFC 7386): maps merge, null removes, everything else replaces.
///
/// Below [`MAX_DEPTH`] levels a patch replaces instead of merging.
pub fn merge(target: &mut Value, patch: &Value) {
    merge_levels(target, patch, MAX_DEPTH);
}

fn merge_levels(target: &mut Value, patch: &Value, left: usize) {
    let (Value::Object(patch), 1..) = (patch, left) else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                merge_levels(target.entry(name.as_str()).or_insert(Value::Null), value, left - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
