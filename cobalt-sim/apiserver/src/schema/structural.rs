//! Which schemas the real server refuses, and why. Compiles the rest, CEL rules included.

use regex::Regex;
use serde_json::{Map, Value, json};

use super::error::FieldError;
use super::node::{Kind, List, MAX_SCHEMA_DEPTH, Node, flag, text};
use super::rules::{self, Costs};
use super::value::Check;

/// Where errors of a schema are reported when all versions share one.
pub(super) const ROOT: &str = "spec.validation.openAPIV3Schema";

/// Checks and compiles a schema.
pub(super) fn compile(schema: &Value) -> Result<Node, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut node = Node::read(schema, 0);
    match schema.as_object() {
        Some(schema) => {
            match text(schema, "type") {
                "object" => {}
                "" => errors.push(FieldError::required(&format!("{ROOT}.type"), "must not be empty at the root")),
                other => {
                    let detail = "must be object at the root";
                    errors.push(FieldError::invalid(&format!("{ROOT}.type"), &json!(other), detail));
                }
            }
            let place = Place { resource: true, correlated: true, depth: 0, cardinality: Some(1) };
            let mut costs = Costs::default();
            visit(schema, &mut node, ROOT, place, &mut costs, &mut errors);
            costs.report(ROOT, &mut errors);
        }
        None => errors.push(FieldError::required(ROOT, "")),
    }
    if errors.is_empty() { Ok(node) } else { Err(errors) }
}

/// Where a node is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// It is a whole object.
    pub(super) resource: bool,
    /// It can be found again in the old object.
    pub(super) correlated: bool,
    depth: usize,
    /// How many values there can be of it in one object; `None` if some list or map around it has no bound.
    pub(super) cardinality: Option<u64>,
}

fn visit(
    schema: &Map<String, Value>,
    node: &mut Node,
    path: &str,
    place: Place,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) {
    if place.depth > MAX_SCHEMA_DEPTH {
        errors.push(FieldError::forbidden(path, "the schema is nested too deeply"));
        return;
    }
    local(schema, node, path, errors);
    let below = |correlated: bool, embedded: bool, times: Option<u64>| Place {
        resource: embedded,
        correlated,
        depth: place.depth + 1,
        cardinality: place.cardinality.zip(times).map(|(outer, times)| outer.saturating_mul(times)),
    };
    for (name, value) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.properties[{name}]");
        let Some(inner) = node.properties.get_mut(name) else { continue };
        typed(inner, value, &path, "must not be empty for specified object fields", errors);
        if let Some(value) = value.as_object() {
            let embedded = inner.embedded;
            visit(value, inner, &path, below(place.correlated, embedded, Some(1)), costs, errors);
        }
    }
    let parts = [
        ("additionalProperties", "must not be empty for specified object fields"),
        ("items", "must not be empty for specified array items"),
    ];
    let keyed = matches!(node.list, List::Map(_));
    let most = (node.limits.max_items, node.limits.max_properties);
    for (name, complaint) in parts {
        let inner = if name == "items" { &mut node.items } else { &mut node.additional };
        if let (Some(value), Some(inner)) = (schema.get(name).filter(|value| value.is_object()), inner) {
            let path = format!("{path}.{name}");
            typed(inner, value, &path, complaint, errors);
            if let Some(value) = value.as_object() {
                let correlated = place.correlated && (name != "items" || keyed);
                let embedded = inner.embedded;
                let times = if name == "items" { most.0 } else { most.1 };
                visit(value, inner, &path, below(correlated, embedded, times), costs, errors);
            }
        }
    }
    list_keys(node, path, errors);
    if let Some(default) = &node.default {
        let mut filled = default.clone();
        super::shape::fill(node, &mut filled, false);
        let mut check = Check { prefix: &format!("{path}.default"), errors: Vec::new() };
        check.value(node, &filled, None, "", false);
        errors.append(&mut check.errors);
    }
    node.rules = rules::compile(schema, node, place, path, costs, errors);
}

fn typed(node: &Node, schema: &Value, path: &str, complaint: &str, errors: &mut Vec<FieldError>) {
    let stated = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    if node.kind == Kind::Any && !node.preserve_unknown && stated.is_empty() {
        errors.push(FieldError::required(&format!("{path}.type"), complaint));
    }
}

/// What can be said of a node without its children.
fn local(schema: &Map<String, Value>, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    let stated = text(schema, "type");
    let known = ["array", "boolean", "integer", "number", "object", "string"];
    if !stated.is_empty() && !known.contains(&stated) {
        let known: Vec<Value> = known.into_iter().map(Value::from).collect();
        errors.push(FieldError::not_supported(&format!("{path}.type"), &json!(stated), &known));
    }
    for name in ["$ref", "definitions", "dependencies", "patternProperties", "id", "additionalItems"] {
        if schema.contains_key(name) {
            errors.push(FieldError::forbidden(&format!("{path}.{name}"), &format!("{name} is not supported")));
        }
    }
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&format!("{path}.uniqueItems"), detail));
    }
    let additional = schema.get("additionalProperties");
    if additional == Some(&Value::Bool(false)) {
        let detail = "additionalProperties cannot be set to false";
        errors.push(FieldError::forbidden(&format!("{path}.additionalProperties"), detail));
    }
    if additional.is_some_and(|value| !value.is_boolean()) && !node.properties.is_empty() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&format!("{path}.additionalProperties"), detail));
    }
    let pattern = text(schema, "pattern");
    if let Err(why) = Regex::new(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(&format!("{path}.pattern"), &json!(pattern), &detail));
    }
    if node.kind == Kind::IntOrString && !stated.is_empty() {
        let detail = "must be empty if x-kubernetes-int-or-string is true";
        errors.push(FieldError::invalid(&format!("{path}.type"), &json!(stated), detail));
    }
    if node.preserve_unknown && !matches!(stated, "object" | "") {
        let detail = "must be object if x-kubernetes-preserve-unknown-fields is true";
        errors.push(FieldError::invalid(&format!("{path}.type"), &json!(stated), detail));
    }
    if stated == "array" && node.items.is_none() {
        let detail = "must be specified";
        errors.push(FieldError::required(&format!("{path}.items"), detail));
    }
}

fn list_keys(node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    if node.list != List::Atomic && node.kind != Kind::Array {
        let detail = "must be array if x-kubernetes-list-type is specified";
        errors.push(FieldError::invalid(&format!("{path}.type"), &json!(node.kind.name()), detail));
        return;
    }
    let List::Map(keys) = &node.list else { return };
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&format!("{path}.x-kubernetes-list-map-keys"), detail));
    }
    let Some(items) = &node.items else { return };
    if items.kind != Kind::Object {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&format!("{path}.items.type"), &json!(items.kind.name()), detail));
    }
    for key in keys {
        let path = format!("{path}.items.properties[{key}]");
        match items.properties.get(key) {
            None => {
                let names = json!(keys);
                let detail = "entries must all be names of item properties";
                let field = path.rsplit_once(".items").map_or(path.as_str(), |(list, _)| list);
                errors.push(FieldError::invalid(&format!("{field}.x-kubernetes-list-map-keys"), &names, detail));
            }
            Some(property) => {
                if matches!(property.kind, Kind::Object | Kind::Array) {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(&format!("{path}.type"), &json!(property.kind.name()), detail));
                }
                if property.default.is_none() && !items.limits.required.contains(key) {
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    errors.push(FieldError::required(&format!("{path}.default"), detail));
                }
            }
        }
    }
}
