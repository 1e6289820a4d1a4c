//! Structural schemas of custom resources: pruning, defaulting, validation with CEL rules, and the types that
//! server-side apply works with.

mod cel;
mod error;
mod expression;
mod format;
mod node;
mod rules;
mod shape;
mod structural;
mod value;

use serde_json::Value;

pub use self::error::{Cause, FieldError};
pub(crate) use self::expression::{Expression, Variables};

use self::node::Node;
use self::value::Check;
use crate::types::{TypeNode, too_deep};

/// The compiled schema of one version of a custom resource.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    types: TypeNode,
}

/// What a write changes, and therefore what is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object, on the main endpoint.
    Whole,
    /// Its status, on `/status`: messages then name paths below `status`.
    Status,
}

impl Schema {
    /// Compiles `openAPIV3Schema`. Errors name fields below `spec.validation.openAPIV3Schema`, as the real server
    /// does when all versions share one schema.
    pub fn compile(open_api_v3_schema: &Value) -> Result<Schema, Vec<FieldError>> {
        if too_deep(open_api_v3_schema) {
            return Err(vec![FieldError::forbidden(structural::ROOT, "the schema is nested too deeply")]);
        }
        let root = structural::compile(open_api_v3_schema)?;
        let types = root.root_types();
        Ok(Schema { root, types })
    }

    /// Removes what the schema does not know and tells what it was, sorted: `spec.foo`, `spec.list[0].bar`.
    /// `apiVersion`, `kind` and `metadata` are left alone.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut removed = Vec::new();
        if !too_deep(object) {
            shape::prune(&self.root, object, true, "", &mut removed);
        }
        removed.sort();
        removed
    }

    /// Fills in defaults where a value is absent or is a null that may not be there; other such nulls are dropped.
    pub fn default(&self, object: &mut Value) {
        if !too_deep(object) {
            shape::drop_nulls(&self.root, object, true);
            shape::fill(&self.root, object, true);
        }
    }

    /// Fills in defaults after an apply: there, a null without a default stays and fails validation.
    pub fn default_applied(&self, object: &mut Value) {
        if !too_deep(object) {
            shape::fill(&self.root, object, true);
        }
    }

    /// Everything wrong with an object. With the `old` one, parts that did not change are tolerated and transition
    /// rules apply.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_part(Part::Whole, object, old, Vec::new())
    }

    /// The same for one part. `earlier` are problems found before, such as a missing name: they come first, and may
    /// keep CEL rules from being evaluated.
    pub fn validate_part(
        &self,
        part: Part,
        object: &Value,
        old: Option<&Value>,
        earlier: Vec<FieldError>,
    ) -> Vec<FieldError> {
        if too_deep(object) || old.is_some_and(too_deep) {
            return vec![FieldError::invalid_omitted("", "the object is nested too deeply")];
        }
        let mut errors = earlier;
        match part {
            Part::Whole => {
                let mut check = Check { prefix: "", errors: Vec::new() };
                check.value(&self.root, object, old, "", true);
                errors.append(&mut check.errors);
            }
            Part::Status => {
                if let (Some(node), Some(status)) = (self.root.field("status"), object.get("status")) {
                    let mut check = Check { prefix: "status", errors: Vec::new() };
                    check.value(node, status, old.and_then(|old| old.get("status")), "", false);
                    errors.append(&mut check.errors);
                }
            }
        }
        errors.extend(self.duplicates(object, old));
        if errors.iter().any(|error| error.reason.blocks_rules()) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid("", &Value::Null, detail));
        } else {
            let mut verdict = rules::Verdict { errors, budget: Some(rules::REQUEST_LIMIT) };
            rules::evaluate(&self.root, object, old, "", true, &mut verdict);
            errors = verdict.errors;
        }
        errors
    }

    /// Repeated items in sets and map lists, tolerated while the old object has some too.
    fn duplicates(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let found = |object: &Value| {
            let mut errors = Vec::new();
            value::duplicates(&self.root, object, "", &mut errors);
            errors
        };
        let errors = found(object);
        if !errors.is_empty() && old.is_some_and(|old| !found(old).is_empty()) {
            return Vec::new();
        }
        errors
    }

    /// What server-side apply must know.
    pub fn types(&self) -> &TypeNode {
        &self.types
    }
}

#[cfg(test)]
pub(crate) mod tests;
