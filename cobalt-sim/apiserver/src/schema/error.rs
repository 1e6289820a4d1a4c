//! What is wrong with a field, in the words of the real server.

use serde::Serialize;
use serde_json::Value;

use crate::types::golang;

/// The kind of a problem, as in `details.causes[].reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[non_exhaustive]
pub enum Cause {
    /// A value breaks a rule.
    #[serde(rename = "FieldValueInvalid")]
    Invalid,
    /// A value has the wrong type or format.
    #[serde(rename = "FieldValueTypeInvalid")]
    TypeInvalid,
    /// A value is missing.
    #[serde(rename = "FieldValueRequired")]
    Required,
    /// A value is none of the allowed ones.
    #[serde(rename = "FieldValueNotSupported")]
    NotSupported,
    /// A key or an item appears twice.
    #[serde(rename = "FieldValueDuplicate")]
    Duplicate,
    /// A text is too long.
    #[serde(rename = "FieldValueTooLong")]
    TooLong,
    /// A list or map has too many entries.
    #[serde(rename = "FieldValueTooMany")]
    TooMany,
    /// A value must not be there.
    #[serde(rename = "FieldValueForbidden")]
    Forbidden,
}

impl Cause {
    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Forbidden => "FieldValueForbidden",
        }
    }

    /// Whether a problem of this kind keeps CEL rules from being evaluated: they would not understand the object.
    pub fn blocks_rules(self) -> bool {
        matches!(self, Self::Required | Self::TypeInvalid | Self::NotSupported | Self::TooLong)
    }
}

/// One problem, exactly as in `details.causes[]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FieldError {
    /// The path, such as `spec.groups[0].name`; `<nil>` when it is the object itself.
    pub field: String,
    /// The kind of the problem.
    pub reason: Cause,
    /// The text.
    pub message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl FieldError {
    fn new(field: &str, reason: Cause, message: String) -> Self {
        let field = if field.is_empty() { "<nil>" } else { field };
        Self { field: field.to_owned(), reason, message }
    }

    /// `Invalid value: VALUE: DETAIL`.
    pub fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        Self::new(field, Cause::Invalid, format!("Invalid value: {}: {detail}", shown(value)))
    }

    /// `Invalid value: DETAIL`, for values too large to show.
    pub fn invalid_omitted(field: &str, detail: &str) -> Self {
        Self::new(field, Cause::Invalid, format!("Invalid value: {detail}"))
    }

    /// A wrong type or format.
    pub fn type_invalid(field: &str, value: &str, detail: &str) -> Self {
        Self::new(field, Cause::TypeInvalid, format!("Invalid value: {value:?}: {detail}"))
    }

    /// `Required value`, with a detail where there is more to say.
    pub fn required(field: &str, detail: &str) -> Self {
        let colon = if detail.is_empty() { "" } else { ": " };
        Self::new(field, Cause::Required, format!("Required value{colon}{detail}"))
    }

    /// `Forbidden: DETAIL`.
    pub fn forbidden(field: &str, detail: &str) -> Self {
        Self::new(field, Cause::Forbidden, format!("Forbidden: {detail}"))
    }

    /// `Duplicate value: VALUE`.
    pub fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(field, Cause::Duplicate, format!("Duplicate value: {}", shown(value)))
    }

    /// `Unsupported value: VALUE: supported values: …`.
    pub fn not_supported(field: &str, value: &Value, supported: &[Value]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{:?}", golang::plain(value))).collect();
        let message = format!("Unsupported value: {}: supported values: {}", shown(value), supported.join(", "));
        Self::new(field, Cause::NotSupported, message)
    }

    /// A text that is too long.
    pub fn too_long(field: &str, most: u64) -> Self {
        let plural = if most == 1 { "" } else { "s" };
        Self::new(field, Cause::TooLong, format!("Too long: may not be more than {most} byte{plural}"))
    }

    /// Too many items or properties.
    pub fn too_many(field: &str, got: usize, most: u64) -> Self {
        let plural = if most == 1 { "" } else { "s" };
        Self::new(field, Cause::TooMany, format!("Too many: {got}: must have at most {most} item{plural}"))
    }
}

/// A value as messages show it: JSON, numbers as Go writes them.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => golang::number(number),
        other => other.to_string(),
    }
}
