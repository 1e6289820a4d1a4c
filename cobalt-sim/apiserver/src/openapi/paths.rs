//! Operations: clients look here for what parameters a write takes.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Generation, schemas};
use crate::registry::Resource;

/// Method, action, whether it writes.
type Operation = (&'static str, &'static str, bool);

const COLLECTION: &[Operation] =
    &[("get", "list", false), ("post", "post", true), ("delete", "deletecollection", false)];
const OBJECT: &[Operation] =
    &[("get", "get", false), ("put", "put", true), ("patch", "patch", true), ("delete", "delete", false)];
const STATUS: &[Operation] = &[("get", "get", false), ("put", "put", true), ("patch", "patch", true)];

/// The operations of these resources by path.
pub(super) fn of(generation: Generation, resources: &[Arc<Resource>]) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in resources {
        let root = format!("/{}", super::path(&resource.group, &resource.version));
        let plural = &resource.plural;
        let base = if resource.namespaced {
            format!("{root}/namespaces/{{namespace}}/{plural}")
        } else {
            format!("{root}/{plural}")
        };
        if crate::kinds::is_review(plural) {
            paths.insert(base, item(generation, resource, &COLLECTION[1..2], ""));
            continue;
        }
        if resource.namespaced {
            paths.insert(format!("{root}/{plural}"), item(generation, resource, &COLLECTION[..1], ""));
        }
        paths.insert(format!("{base}/{{name}}"), item(generation, resource, OBJECT, ""));
        if resource.has_status {
            paths.insert(format!("{base}/{{name}}/status"), item(generation, resource, STATUS, "status"));
        }
        paths.insert(base, item(generation, resource, COLLECTION, ""));
    }
    paths
}

fn item(generation: Generation, resource: &Resource, operations: &[Operation], part: &str) -> Value {
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let described = operations.iter().map(|(method, action, writes)| {
        let mut operation = json!({
            "tags": [format!("{}_{}", small(&joined(&resource.group)), resource.version)],
            "description": description(action, part, &resource.kind),
            "operationId": operation_id(action, part, resource),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
            "responses": {"200": response(generation, resource, *action == "list"), "401": {"description": "Unauthorized"}},
        });
        if *writes {
            operation["parameters"] = parameters(generation, *method == "patch");
            if generation == Generation::V3 {
                operation["requestBody"] = body(resource, *method == "patch");
            }
        }
        ((*method).to_owned(), operation)
    });
    described.collect::<Map<_, _>>().into()
}

/// `kvm.cloud.sap` becomes `KvmCloudSap`.
fn joined(group: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    group.split('.').map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + chars.as_str())
}

fn small(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + chars.as_str())
}

fn description(action: &str, part: &str, kind: &str) -> String {
    let of = if part.is_empty() { String::new() } else { format!("{part} of ") };
    match action {
        "list" => format!("list objects of kind {kind}"),
        "post" => format!("create a {kind}"),
        "deletecollection" => format!("delete collection of {kind}"),
        "delete" => format!("delete a {kind}"),
        "get" => format!("read {of}the specified {kind}"),
        "put" => format!("replace {of}the specified {kind}"),
        _ => format!("partially update {of}the specified {kind}"),
    }
}

fn operation_id(action: &str, part: &str, resource: &Resource) -> String {
    let (verb, what) = match action {
        "get" => ("read", ""),
        "post" => ("create", ""),
        "put" => ("replace", ""),
        "deletecollection" => ("delete", "Collection"),
        action => (action, ""),
    };
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let version = capital(&resource.version);
    format!("{verb}{}{version}{what}{scope}{}{}", joined(&resource.group), resource.kind, capital(part))
}

fn parameters(generation: Generation, patch: bool) -> Value {
    let parameter = |(name, kind): (&str, &str)| match generation {
        Generation::V2 => json!({"name": name, "in": "query", "type": kind, "uniqueItems": true}),
        Generation::V3 => json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}),
    };
    let mut list = vec![("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
    if patch {
        list.push(("force", "boolean"));
    }
    list.into_iter().map(parameter).collect()
}

fn body(resource: &Resource, patch: bool) -> Value {
    if !patch {
        let own = json!({"schema": Generation::V3.reference(&schemas::name(resource))});
        return json!({"content": {"application/json": own, "application/yaml": own}, "required": true});
    }
    let schema = json!({"schema": Generation::V3.reference(&format!("{}.Patch", schemas::META))});
    let mut media = vec!["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    if !resource.is_custom() {
        media.push("application/strategic-merge-patch+json");
    }
    let content: Map<String, Value> = media.into_iter().map(|media| (media.to_owned(), schema.clone())).collect();
    json!({"content": content, "required": true})
}

fn response(generation: Generation, resource: &Resource, list: bool) -> Value {
    let name = format!("{}{}", schemas::name(resource), if list { "List" } else { "" });
    let schema = json!({"schema": generation.reference(&name)});
    match generation {
        Generation::V2 => json!({"description": "OK", "schema": schema["schema"]}),
        Generation::V3 => json!({
            "description": "OK",
            "content": {"application/json": schema, "application/yaml": schema},
        }),
    }
}
