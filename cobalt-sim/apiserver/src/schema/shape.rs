//! Pruning and defaulting.

use serde_json::{Map, Value};

use super::node::Node;

/// What every object has and no schema of a custom resource may change.
pub(super) const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes what the schema does not know; the paths go to `removed`.
pub(super) fn prune(node: &Node, value: &mut Value, resource: bool, path: &str, removed: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let keep = |name: &str| {
                node.preserve_unknown || node.field(name).is_some() || (resource && RESOURCE_FIELDS.contains(&name))
            };
            let dot = if path.is_empty() { "" } else { "." };
            removed.extend(map.keys().filter(|name| !keep(name)).map(|name| format!("{path}{dot}{name}")));
            map.retain(|name, _| keep(name));
            for (name, field) in map.iter_mut() {
                if resource && RESOURCE_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                if let Some(inner) = node.field(name) {
                    prune(inner, field, inner.embedded, &format!("{path}{dot}{name}"), removed);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter_mut().enumerate() {
                    prune(inner, item, inner.embedded, &format!("{path}[{index}]"), removed);
                }
            }
        }
        _ => {}
    }
}

fn misplaced_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable && !(node.preserve_unknown && node.kind == super::node::Kind::Any)
}

/// Drops nulls where none may be and no default will take their place.
pub(super) fn drop_nulls(node: &Node, value: &mut Value, resource: bool) {
    match value {
        Value::Object(map) => {
            map.retain(|name, field| {
                let skip = resource && RESOURCE_FIELDS.contains(&name.as_str());
                skip || node.field(name).is_none_or(|inner| inner.default.is_some() || !misplaced_null(field, inner))
            });
            for_each_field(node, map, resource, &mut drop_nulls);
        }
        Value::Array(items) => for_each_item(node, items, &mut drop_nulls),
        _ => {}
    }
}

/// Fills in defaults: for what is absent, and for nulls where none may be.
pub(super) fn fill(node: &Node, value: &mut Value, resource: bool) {
    match value {
        Value::Object(map) => {
            for (name, inner) in &node.properties {
                let Some(default) = &inner.default else { continue };
                let wanted = map.get(name).is_none_or(|field| misplaced_null(field, inner));
                if wanted && !(resource && RESOURCE_FIELDS.contains(&name.as_str())) {
                    map.insert(name.clone(), default.clone());
                }
            }
            if let Some(inner) = &node.additional
                && let Some(default) = &inner.default
            {
                for field in map.values_mut().filter(|field| misplaced_null(field, inner)) {
                    field.clone_from(default);
                }
            }
            for_each_field(node, map, resource, &mut fill);
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items
                && let Some(default) = &inner.default
            {
                for item in items.iter_mut().filter(|item| misplaced_null(item, inner)) {
                    item.clone_from(default);
                }
            }
            for_each_item(node, items, &mut fill);
        }
        _ => {}
    }
}

type Visit<'a> = &'a mut dyn FnMut(&Node, &mut Value, bool);

fn for_each_field(node: &Node, map: &mut Map<String, Value>, resource: bool, visit: Visit<'_>) {
    for (name, field) in map.iter_mut() {
        if let Some(inner) = node.field(name)
            && !(resource && RESOURCE_FIELDS.contains(&name.as_str()))
        {
            visit(inner, field, inner.embedded);
        }
    }
}

fn for_each_item(node: &Node, items: &mut [Value], visit: Visit<'_>) {
    if let Some(inner) = &node.items {
        for item in items {
            visit(inner, item, inner.embedded);
        }
    }
}
