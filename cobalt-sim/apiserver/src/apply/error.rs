//! Why an apply is refused.

use serde::Serialize;

use super::fieldset::FieldSet;
use super::managed::Manager;

/// One field that another manager owns with another value, as in `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConflictCause {
    /// Always `FieldManagerConflict`.
    pub reason: &'static str,
    /// Who owns the field.
    pub message: String,
    /// The field, such as `.spec.num`.
    pub field: String,
}

/// Why an apply is refused. The text is the message of the Status the real server answers with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// 409: other managers own fields with other values.
    #[error("{}", conflict_message(.0))]
    Conflict(Vec<ConflictCause>),
    /// 400: the applied object says something an apply may not say.
    #[error("{0}")]
    BadRequest(String),
    /// 500: the applied or the stored object does not fit its type.
    #[error("{0}")]
    Invalid(String),
}

impl ApplyError {
    /// The HTTP status.
    pub fn code(&self) -> u16 {
        match self {
            Self::Conflict(_) => 409,
            Self::BadRequest(_) => 400,
            Self::Invalid(_) => 500,
        }
    }

    /// A label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::BadRequest(_) => "bad-request",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Whether the same apply may succeed later: a conflict may go away, a malformed object stays malformed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }

    pub(super) fn conflict(conflicts: &[(&Manager, FieldSet)]) -> Self {
        let causes = conflicts.iter().flat_map(|(manager, fields)| {
            let message = format!("conflict with {}", manager.describe());
            fields.paths().into_iter().map(move |field| ConflictCause {
                reason: "FieldManagerConflict",
                message: message.clone(),
                field,
            })
        });
        Self::Conflict(causes.collect())
    }
}

/// One line for one conflict, a list grouped by owner for several.
fn conflict_message(causes: &[ConflictCause]) -> String {
    if let [only] = causes {
        return format!("Apply failed with 1 conflict: {}: {}", only.message, only.field);
    }
    let mut lines = Vec::new();
    let mut owner = "";
    for cause in causes {
        if cause.message != owner {
            owner = &cause.message;
            lines.push(format!("{}:", owner.replacen("conflict", "conflicts", 1)));
        }
        lines.push(format!("- {}", cause.field));
    }
    format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
}
