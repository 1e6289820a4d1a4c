//! Schemas of kinds and their lists.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Generation, kinds};
use crate::registry::Resource;
use crate::types::{self, ListKind, Merge, Scalar, TypeNode};

pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The name of the schema of a resource.
pub(super) fn name(resource: &Resource) -> String {
    kinds::name(&resource.group, &resource.version, &resource.kind, resource.is_custom())
}

/// The schemas of these resources, and those they refer to.
pub(super) fn of(generation: Generation, resources: &[Arc<Resource>]) -> Map<String, Value> {
    let mut schemas = Map::new();
    schemas.insert(format!("{META}.ObjectMeta"), plain(types::object_meta(), 0));
    schemas.insert(
        format!("{META}.ListMeta"),
        json!({"type": "object", "properties": {
            "continue": {"type": "string"},
            "remainingItemCount": {"type": "integer", "format": "int64"},
            "resourceVersion": {"type": "string"},
            "selfLink": {"type": "string"},
        }}),
    );
    schemas.insert(format!("{META}.Patch"), json!({"type": "object"}));
    for resource in resources {
        schemas.insert(name(resource), kind(generation, resource));
        if !crate::kinds::is_review(&resource.plural) {
            schemas.insert(format!("{}List", name(resource)), list(generation, resource));
        }
    }
    schemas
}

fn kind(generation: Generation, resource: &Resource) -> Value {
    let mut schema = match &resource.custom {
        Some(custom) if generation == Generation::V3 => custom.source.clone(),
        Some(custom) => older(&custom.source, 0),
        None => {
            let mut schema = plain(resource.types(), 0);
            if let Some(text) = kinds::description(&resource.kind) {
                schema["description"] = text.into();
            }
            schema
        }
    };
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    let preserves = schema["x-kubernetes-preserve-unknown-fields"] == true && generation == Generation::V2;
    if !preserves {
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        let properties = &mut schema["properties"];
        properties["apiVersion"] = json!({"description": API_VERSION, "type": "string"});
        properties["kind"] = json!({"description": KIND, "type": "string"});
        properties["metadata"] = generation.described(&format!("{META}.ObjectMeta"), METADATA);
    }
    schema["x-kubernetes-group-version-kind"] = identity(resource, &resource.kind);
    schema
}

fn list(generation: Generation, resource: &Resource) -> Value {
    let items = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        resource.plural
    );
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": API_VERSION, "type": "string"},
            "items": {"description": items, "type": "array", "items": generation.reference(&name(resource))},
            "kind": {"description": KIND, "type": "string"},
            "metadata": generation.described(&format!("{META}.ListMeta"), LIST_METADATA),
        },
        "x-kubernetes-group-version-kind": identity(resource, &resource.list_kind),
    })
}

fn identity(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "kind": kind, "version": resource.version}])
}

/// The schema of a built-in type.
fn plain(node: &TypeNode, depth: usize) -> Value {
    if depth > types::MAX_DEPTH {
        return json!({});
    }
    match node {
        TypeNode::Scalar(Scalar::String) => json!({"type": "string"}),
        TypeNode::Scalar(Scalar::Number) => json!({"type": "integer"}),
        TypeNode::Scalar(Scalar::Boolean) => json!({"type": "boolean"}),
        // Quantities, times, ports: clients that check take either.
        TypeNode::Scalar(Scalar::Any) => json!({"type": "string", "format": "int-or-string"}),
        TypeNode::Deduced | TypeNode::Opaque => json!({}),
        TypeNode::List(list) => {
            let mut schema = json!({"type": "array", "items": plain(&list.items, depth + 1)});
            match &list.kind {
                ListKind::Atomic => schema["x-kubernetes-list-type"] = "atomic".into(),
                ListKind::Set => schema["x-kubernetes-list-type"] = "set".into(),
                ListKind::Map(keys) => {
                    schema["x-kubernetes-list-type"] = "map".into();
                    let keys: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
                    schema["x-kubernetes-list-map-keys"] = json!(keys);
                }
            }
            match &list.merge {
                Merge::Replace => {}
                Merge::Values => schema["x-kubernetes-patch-strategy"] = "merge".into(),
                Merge::Key(key) => {
                    schema["x-kubernetes-patch-strategy"] = "merge".into();
                    schema["x-kubernetes-patch-merge-key"] = key.as_str().into();
                }
            }
            schema
        }
        TypeNode::Map(map) => {
            let mut schema = json!({"type": "object"});
            if !map.fields.is_empty() {
                let fields = map.fields.iter().map(|(name, field)| (name.clone(), plain(&field.node, depth + 1)));
                schema["properties"] = fields.collect::<Map<_, _>>().into();
            }
            if let Some(other) = &map.other {
                schema["additionalProperties"] = plain(other, depth + 1);
            }
            if map.atomic {
                schema["x-kubernetes-map-type"] = "atomic".into();
            }
            schema
        }
    }
}

/// A schema as the older generation can say it: no defaults, no alternatives, nothing nullable.
fn older(schema: &Value, depth: usize) -> Value {
    let Some(map) = schema.as_object().filter(|_| depth <= types::MAX_DEPTH) else {
        return schema.clone();
    };
    let nullable = map.get("nullable") == Some(&Value::Bool(true));
    let opaque = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let mut result = Map::new();
    for (key, value) in map {
        let value = match key.as_str() {
            "default" | "anyOf" | "oneOf" | "allOf" | "not" | "nullable" => continue,
            "type" | "items" | "properties" | "additionalProperties" if nullable => continue,
            "properties" | "items" if opaque => continue,
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                fields.map(|(name, field)| (name.clone(), older(field, depth + 1))).collect::<Map<_, _>>().into()
            }
            "items" | "additionalProperties" => older(value, depth + 1),
            _ => value.clone(),
        };
        result.insert(key.clone(), value);
    }
    result.into()
}
