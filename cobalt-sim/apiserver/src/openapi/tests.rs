//! The documents against the recorded ones.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Generation, paths, schemas};
use crate::crd;
use crate::registry::{Registry, Resource};

const RECORDS: &str = include_str!("../../tests/wire/7-discovery.jsonl");

fn body(id: &str) -> Value {
    let mut records = RECORDS.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.find(|r| r["id"] == id).unwrap_or_else(|| panic!("{id} is not recorded"))["response"]["body"].take()
}

fn recorded_resources() -> Vec<Arc<Resource>> {
    let definitions =
        [include_str!("../../tests/wire/crd-hypervisor.json"), include_str!("../../tests/wire/crd-eviction.json")];
    let definitions = definitions.map(|text| serde_json::from_str::<Value>(text).expect("a definition"));
    definitions.iter().flat_map(crd::resources).map(Arc::new).collect()
}

#[test]
fn the_schemas_of_custom_resources_are_the_recorded_ones() {
    for (id, pointer, generation) in [
        ("7.022-openapi-v3-kvm", "/components/schemas", Generation::V3),
        ("7.026-openapi-v2", "/definitions", Generation::V2),
    ] {
        let document = body(id);
        let recorded = document.pointer(pointer).and_then(Value::as_object).expect("schemas");
        let own = schemas::of(generation, &recorded_resources());
        assert_eq!(recorded.len(), 4);
        for (name, schema) in recorded {
            assert_eq!(own.get(name), Some(schema), "{name} in {id}");
        }
    }
}

#[test]
fn the_paths_of_custom_resources_are_the_recorded_ones() {
    let own = paths::of(Generation::V3, &recorded_resources());
    let document = body("7.022-openapi-v3-kvm");
    let recorded: Vec<&String> = document["paths"].as_object().expect("paths").keys().collect();
    assert_eq!(own.keys().collect::<Vec<_>>(), recorded);
    let path = "/apis/kvm.cloud.sap/v1/hypervisors/{name}/status";
    for method in ["get", "patch"] {
        for (field, value) in document["paths"][path][method].as_object().expect("an operation") {
            assert_eq!(own[path][method][field], *value, "{field} of {method}");
        }
    }
}

#[test]
fn every_write_tells_that_it_knows_field_validation() {
    let all = Registry::new().all();
    for (path, item) in paths::of(Generation::V3, &all) {
        let Some(patch) = item.get("patch") else { continue };
        let parameters = patch["parameters"].as_array().expect("parameters");
        assert!(parameters.iter().any(|p| p["name"] == "fieldValidation"), "{path}");
        assert!(patch["x-kubernetes-group-version-kind"]["kind"].is_string(), "{path}");
    }
}

#[test]
fn every_reference_leads_to_a_schema() {
    fn check(value: &Value, known: &dyn Fn(&str) -> bool) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    assert!(known(reference), "{reference} leads nowhere");
                }
                map.values().for_each(|value| check(value, known));
            }
            Value::Array(items) => items.iter().for_each(|value| check(value, known)),
            _ => {}
        }
    }
    let all = Registry::new().all();
    let own = schemas::of(Generation::V3, &all);
    let known =
        |reference: &str| reference.strip_prefix("#/components/schemas/").is_some_and(|name| own.contains_key(name));
    check(&json!({"paths": paths::of(Generation::V3, &all), "schemas": own}), &known);
}

#[test]
fn built_in_lists_tell_how_they_are_merged() {
    let pods: Vec<Arc<Resource>> = Registry::new().find("", "v1", "pods").into_iter().collect();
    let pod = &schemas::of(Generation::V3, &pods)["io.k8s.api.core.v1.Pod"];
    let containers = &pod["properties"]["spec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
}
