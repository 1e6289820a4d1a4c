//! Unknown fields of typed structures, and the fields such structures are born with.

use serde_json::Value;

use crate::registry::Resource;
use crate::types::{self, TypeNode, Zero};

/// Removes unknown fields of `metadata`.
pub(crate) fn prune_metadata(object: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        prune(metadata, types::object_meta(), "metadata", &mut removed);
    }
    removed
}

/// Removes fields a built-in kind does not have.
pub(crate) fn prune_builtin(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    let node = resource.types();
    if let (Value::Object(map), TypeNode::Map(_)) = (&mut *object, node) {
        map.retain(|key, _| {
            let known = node.field(key).is_some();
            if !known {
                removed.push(key.clone());
            }
            known
        });
        for (key, value) in map.iter_mut().filter(|(key, _)| *key != "metadata") {
            if let Some(node) = node.field(key) {
                prune(value, node, key, &mut removed);
            }
        }
    }
    removed
}

fn prune(value: &mut Value, node: &TypeNode, path: &str, removed: &mut Vec<String>) {
    match (value, node) {
        (Value::Object(map), TypeNode::Map(_)) => {
            map.retain(|key, _| {
                let known = node.field(key).is_some();
                if !known {
                    removed.push(format!("{path}.{key}"));
                }
                known
            });
            for (key, value) in map.iter_mut() {
                if let Some(node) = node.field(key) {
                    prune(value, node, &format!("{path}.{key}"), removed);
                }
            }
        }
        (Value::Array(items), TypeNode::List(_)) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, node.items(), &format!("{path}[{index}]"), removed);
            }
        }
        _ => {}
    }
}

/// Removes nulls and empty collections that a typed structure does not write.
pub(crate) fn omit_empty(value: &mut Value, node: &TypeNode) {
    match (value, node) {
        (Value::Object(map), TypeNode::Map(declared)) => {
            map.retain(|key, value| {
                let Some(field) = declared.fields.get(key) else {
                    return true;
                };
                if !matches!(field.zero, Zero::Absent) {
                    return true;
                }
                match (&*value, &field.node) {
                    (Value::Null, _) => false,
                    (Value::Array(items), TypeNode::List(_)) => !items.is_empty(),
                    // A plain map; an empty structure may mean something.
                    (Value::Object(entries), TypeNode::Map(inner)) => {
                        !(entries.is_empty() && inner.fields.is_empty() && inner.other.is_some())
                    }
                    _ => true,
                }
            });
            for (key, value) in map.iter_mut() {
                if let Some(node) = node.field(key) {
                    omit_empty(value, node);
                }
            }
        }
        (Value::Array(items), TypeNode::List(_)) => {
            for item in items {
                omit_empty(item, node.items());
            }
        }
        _ => {}
    }
}

/// Adds what `zero` has and `object` lacks, at every level.
pub(crate) fn fill(object: &mut Value, zero: &Value) {
    let (Some(object), Some(zero)) = (object.as_object_mut(), zero.as_object()) else {
        return;
    };
    for (key, value) in zero {
        match object.get_mut(key) {
            Some(present) if present.is_object() => fill(present, value),
            Some(Value::Null) | None => {
                object.insert(key.clone(), value.clone());
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn unknown_fields_of_typed_kinds_go_and_are_named() {
        let resource = Registry::new().find("", "v1", "configmaps").unwrap();
        let mut object = json!({"data": {"any": "v"}, "zz": 1, "metadata": {"name": "a"}});
        assert_eq!(prune_builtin(&resource, &mut object), ["zz"]);
        assert_eq!(object, json!({"data": {"any": "v"}, "metadata": {"name": "a"}}));
        let mut object = json!({"metadata": {"name": "a", "nope": 1}});
        assert_eq!(prune_metadata(&mut object), ["metadata.nope"]);
    }

    #[test]
    fn filling_keeps_what_is_there() {
        let mut object = json!({"spec": {"a": 1}});
        fill(&mut object, &json!({"spec": {"a": 0, "b": 0}, "status": {}}));
        assert_eq!(object, json!({"spec": {"a": 1, "b": 0}, "status": {}}));
    }
}
