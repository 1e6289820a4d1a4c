//! Validation of values against the schema, without CEL.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::error::FieldError;
use super::format;
use super::node::{Kind, List, Node};
use super::shape::RESOURCE_FIELDS;
use crate::types::{golang, same};

/// Checks values below one field of an object. `prefix` is that field; messages name paths below it only.
pub(super) struct Check<'a> {
    pub(super) prefix: &'a str,
    pub(super) errors: Vec<FieldError>,
}

/// The name of a value's type in messages.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_whole(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn has_kind(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::Any => true,
        Kind::Object => value.is_object(),
        Kind::Array => value.is_array(),
        Kind::String => value.is_string(),
        Kind::Integer => value.is_number() && is_whole(value),
        Kind::Number => value.is_number(),
        Kind::Boolean => value.is_boolean(),
        Kind::IntOrString => value.is_string() || (value.is_number() && is_whole(value)),
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl Check<'_> {
    fn field(&self, name: &str) -> String {
        match (self.prefix, name) {
            (prefix, "") => prefix.to_owned(),
            ("", name) => name.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        }
    }

    fn invalid(&mut self, name: &str, value: &Value, detail: &str) {
        let field = self.field(name);
        self.errors.push(FieldError::invalid(&field, value, &format!("{name} in body {detail}")));
    }

    /// Checks one value. What equals its old self is tolerated: rules may have become stricter since it was stored.
    pub(super) fn value(&mut self, node: &Node, value: &Value, old: Option<&Value>, name: &str, resource: bool) {
        if old.is_some_and(|old| same(old, value)) || (value.is_null() && node.nullable) {
            return;
        }
        if !has_kind(node.kind, value) {
            let (got, want) = (type_name(value), node.kind.name());
            let detail = format!("{name} in body must be of type {want}: {got:?}");
            self.errors.push(FieldError::type_invalid(&self.field(name), got, &detail));
        }
        self.junctors(node, value, name);
        match value {
            Value::String(text) => self.string(node, text, name),
            Value::Number(_) => self.number(node, value, name),
            Value::Array(items) => self.array(node, items, old, name),
            Value::Object(map) => self.object(node, map, old, name, resource),
            _ => {}
        }
        if let Some(allowed) = &node.limits.allowed
            && !allowed.iter().any(|one| same(one, value))
        {
            self.errors.push(FieldError::not_supported(&self.field(name), value, allowed));
        }
    }

    /// The errors of a value against another schema.
    fn try_schema(&self, node: &Node, value: &Value, name: &str) -> Vec<FieldError> {
        let mut attempt = Check { prefix: self.prefix, errors: Vec::new() };
        attempt.value(node, value, None, name, false);
        attempt.errors
    }

    fn junctors(&mut self, node: &Node, value: &Value, name: &str) {
        let fail = |check: &mut Self, detail: String| {
            check.errors.push(FieldError::invalid(check.prefix, &json!(""), &format!("{name:?} {detail}")));
        };
        if !node.any_of.is_empty() {
            let mut attempts: Vec<_> = node.any_of.iter().map(|schema| self.try_schema(schema, value, name)).collect();
            if attempts.iter().all(|errors| !errors.is_empty()) {
                fail(self, "must validate at least one schema (anyOf)".to_owned());
                self.errors.append(&mut attempts[0]);
            }
        }
        if !node.one_of.is_empty() {
            let mut attempts: Vec<_> = node.one_of.iter().map(|schema| self.try_schema(schema, value, name)).collect();
            match attempts.iter().filter(|errors| errors.is_empty()).count() {
                1 => {}
                0 => {
                    fail(self, "must validate one and only one schema (oneOf). Found none valid".to_owned());
                    self.errors.append(&mut attempts[0]);
                }
                valid => fail(
                    self,
                    format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives"),
                ),
            }
        }
        let failing: Vec<_> = node.all_of.iter().flat_map(|schema| self.try_schema(schema, value, name)).collect();
        if !failing.is_empty() {
            fail(self, "must validate all the schemas (allOf)".to_owned());
            self.errors.extend(failing);
        }
        if let Some(not) = &node.not
            && self.try_schema(not, value, name).is_empty()
        {
            fail(self, "must not validate the schema (not)".to_owned());
        }
    }

    fn string(&mut self, node: &Node, text: &str, name: &str) {
        let limits = &node.limits;
        let length = count(text.chars().count());
        let value = json!(text);
        if let Some(most) = limits.max_length.filter(|most| length > *most) {
            self.errors.push(FieldError::too_long(&self.field(name), most));
        } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
            self.invalid(name, &value, &format!("should be at least {least} chars long"));
        } else if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.invalid(name, &value, &format!("should match '{pattern}'"));
        }
        if let Some(format) = limits.format.as_deref().filter(|format| !format::matches(format, text)) {
            let detail = format!("{name} in body must be of type {format}: {text:?}");
            self.errors.push(FieldError::type_invalid(&self.field(name), text, &detail));
        }
    }

    fn number(&mut self, node: &Node, value: &Value, name: &str) {
        let Some(number) = value.as_f64() else { return };
        let shown = |limit: f64| golang::plain(&json!(limit));
        if let Some(of) = node.limits.multiple_of
            && (number / of).fract() != 0.0
        {
            self.invalid(name, value, &format!("should be a multiple of {}", shown(of)));
        }
        if let Some((most, exclusive)) = node.limits.maximum
            && (number > most || (exclusive && number >= most))
        {
            let or_equal = if exclusive { "" } else { " or equal to" };
            self.invalid(name, value, &format!("should be less than{or_equal} {}", shown(most)));
        }
        if let Some((least, exclusive)) = node.limits.minimum
            && (number < least || (exclusive && number <= least))
        {
            let or_equal = if exclusive { "" } else { " or equal to" };
            self.invalid(name, value, &format!("should be greater than{or_equal} {}", shown(least)));
        }
    }

    fn array(&mut self, node: &Node, items: &[Value], old: Option<&Value>, name: &str) {
        if let Some(least) = node.limits.min_items.filter(|least| count(items.len()) < *least) {
            self.invalid(name, &json!(items.len()), &format!("should have at least {least} items"));
        }
        if let Some(most) = node.limits.max_items.filter(|most| count(items.len()) > *most) {
            self.errors.push(FieldError::too_many(&self.field(name), items.len(), most));
        }
        if node.limits.unique_items
            && items.iter().enumerate().any(|(at, item)| items[..at].iter().any(|other| same(item, other)))
        {
            self.invalid(name, &Value::Array(items.to_vec()), "shouldn't contain duplicates");
        }
        if let Some(inner) = &node.items {
            for (index, item) in items.iter().enumerate() {
                self.value(inner, item, node.old_item(old, item), &format!("{name}[{index}]"), inner.embedded);
            }
        }
    }

    fn object(&mut self, node: &Node, map: &Map<String, Value>, old: Option<&Value>, name: &str, resource: bool) {
        if let Some(least) = node.limits.min_properties.filter(|least| count(map.len()) < *least) {
            self.invalid(name, &json!(map.len()), &format!("should have at least {least} properties"));
        }
        if let Some(most) = node.limits.max_properties.filter(|most| count(map.len()) > *most) {
            self.errors.push(FieldError::too_many(&self.field(name), map.len(), most));
        }
        let dot = if name.is_empty() { "" } else { "." };
        for required in node.limits.required.iter().filter(|required| !map.contains_key(*required)) {
            let field = self.field(&format!("{name}{dot}{required}"));
            self.errors.push(FieldError::required(&field, ""));
        }
        for (key, value) in map {
            if resource && RESOURCE_FIELDS.contains(&key.as_str()) {
                continue;
            }
            if let Some(inner) = node.field(key) {
                let old = old.and_then(|old| old.get(key));
                self.value(inner, value, old, &format!("{name}{dot}{key}"), inner.embedded);
            }
        }
    }
}

/// Sets with equal items, map lists with equal keys.
pub(super) fn duplicates(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (name, field) in map {
                if let Some(inner) = node.field(name) {
                    duplicates(inner, field, &format!("{path}{dot}{name}"), errors);
                }
            }
        }
        Value::Array(items) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let identity = match &node.list {
                    List::Atomic => None,
                    List::Set => Some(item.clone()),
                    List::Map(keys) => item.as_object().map(|map| {
                        let keys = keys.iter().filter_map(|key| Some((key.clone(), map.get(key)?.clone())));
                        Value::Object(keys.collect())
                    }),
                };
                if let Some(identity) = identity
                    && !seen.insert(identity.to_string())
                {
                    errors.push(FieldError::duplicate(&format!("{path}[{index}]"), &identity));
                }
                if let Some(inner) = &node.items {
                    duplicates(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}
