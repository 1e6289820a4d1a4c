//! Whether a value fits its type, with the complaints of the real server.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::PathElement;
use crate::types::{Scalar, TypeNode, golang};

/// Whether two items of a map list or a set may be the same: not in what a client applies, but an object that
/// was stored before its schema said otherwise must stay usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duplicates {
    Allowed,
    Refused,
}

/// Why `value` does not fit `types`, as one text; `None` when it fits.
pub(super) fn check(types: &TypeNode, value: &Value, duplicates: Duplicates) -> Option<String> {
    let mut errors = Vec::new();
    Check { duplicates, errors: &mut errors }.value(types, value, "");
    match &errors[..] {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

struct Check<'a> {
    duplicates: Duplicates,
    errors: &'a mut Vec<String>,
}

impl Check<'_> {
    fn complain(&mut self, path: &str, message: &str) {
        let separator = if path.is_empty() { "" } else { ": " };
        self.errors.push(format!("{path}{separator}{message}"));
    }

    fn value(&mut self, types: &TypeNode, value: &Value, path: &str) {
        match (types, value) {
            (_, Value::Null) | (TypeNode::Deduced | TypeNode::Opaque, _) => {}
            (TypeNode::Scalar(scalar), value) => {
                if let Some(message) = misfit(*scalar, value) {
                    self.complain(path, &message);
                }
            }
            (TypeNode::List(list), Value::Array(items)) => {
                let mut seen = BTreeSet::new();
                for (index, item) in items.iter().enumerate() {
                    let element = match PathElement::of_item(&list.kind, index, item) {
                        Ok(element) => element,
                        Err(message) => return self.complain(path, &format!("element {index}: {message}")),
                    };
                    self.value(&list.items, item, &format!("{path}{element}"));
                    if seen.contains(&element) && self.duplicates == Duplicates::Refused {
                        self.complain(path, &format!("duplicate entries for key {element}"));
                    }
                    seen.insert(element);
                }
            }
            (TypeNode::Map(map), Value::Object(fields)) => {
                for (name, field) in fields {
                    let path = format!("{path}.{name}");
                    match map.field(name) {
                        Some(types) => self.value(types, field, &path),
                        None => self.complain(&path, "field not declared in schema"),
                    }
                }
            }
            (TypeNode::List(_), value) => {
                self.complain(path, &format!("expected list, got &{{{}}}", golang::plain(value)));
            }
            (TypeNode::Map(_), value) => {
                self.complain(path, &format!("expected map, got &{{{}}}", golang::plain(value)));
            }
        }
    }
}

fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    match scalar {
        Scalar::Number if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", golang::type_name(value)))
        }
        Scalar::String if !value.is_string() => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", golang::sharp(value)))
        }
        Scalar::Boolean if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", golang::plain(value))),
        Scalar::Any if value.is_array() || value.is_object() => {
            Some(format!("expected any scalar, got &{{{}}}", golang::plain(value)))
        }
        _ => None,
    }
}
