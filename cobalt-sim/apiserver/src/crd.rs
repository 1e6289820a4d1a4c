//! Custom resource definitions: defaults, validation, and the resources they define.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds;
use crate::meta;
use crate::registry::{Custom, Resource};
use crate::schema::Schema;
use crate::status::StatusCause;
use crate::strategy;
use crate::table::Printer;
use crate::verbs::Scale;

/// Holds a terminating definition until its instances are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in what a definition may leave out.
pub(crate) fn prepare(definition: &mut Value) {
    let names = &mut definition["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].as_str().unwrap_or_default().is_empty() && !kind.is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().unwrap_or_default().is_empty() && !kind.is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    if !definition["spec"]["conversion"].is_object() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    let storage = versions(definition).find(|v| v["storage"] == true).map(|v| v["name"].clone());
    let status = &mut definition["status"];
    if status.get("acceptedNames").is_none() {
        status["acceptedNames"] = json!({"plural": "", "kind": ""});
    }
    if status.get("conditions").is_none() {
        status["conditions"] = Value::Null;
    }
    let stored = status["storedVersions"].as_array().cloned();
    let mut stored = stored.unwrap_or_default();
    if let Some(storage) = storage
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
    status["storedVersions"] = stored.into();
}

/// Begins a deletion: the instances go first.
pub(crate) fn hold(definition: &mut Value, now: &str) {
    let mut finalizers = meta::finalizers(definition);
    if !finalizers.iter().any(|f| f == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
    meta::set_finalizers(definition, &finalizers);
    let list = definition["status"]["conditions"].as_array().cloned();
    let mut conditions = list.unwrap_or_default();
    let condition = json!({"type": "Terminating", "status": "True", "reason": "InstanceDeletionPending", "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"});
    strategy::set_condition(&mut conditions, condition, now);
    definition["status"]["conditions"] = conditions.into();
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    let list = definition["spec"]["versions"].as_array();
    list.into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// What is wrong with a definition.
pub(crate) fn causes(definition: &Value, old: Option<&Value>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let spec = &definition["spec"];
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    let name = meta::text(definition, "name");
    if group.is_empty() {
        causes.push(StatusCause::required("spec.group", ""));
    }
    for field in ["plural", "kind"] {
        if text(&spec["names"], field).is_empty() {
            causes.push(StatusCause::required(format!("spec.names.{field}"), ""));
        }
    }
    if name != format!("{plural}.{group}") {
        causes.push(StatusCause::invalid("metadata.name", &json!(name), "must be spec.names.plural+\".\"+spec.group"));
    }
    if !matches!(text(spec, "scope"), "Cluster" | "Namespaced") {
        let scope = &spec["scope"];
        causes.push(match scope.as_str() {
            None | Some("") => StatusCause::required("spec.scope", ""),
            Some(_) => StatusCause::unsupported("spec.scope", scope, &["Cluster", "Namespaced"]),
        });
    }
    if spec["preserveUnknownFields"] == true {
        for text in [
            "must be false in order to use defaults in the schema",
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ] {
            let cause = StatusCause::invalid("spec.preserveUnknownFields", &json!(true), text);
            causes.push(cause);
        }
    }
    causes.extend(version_causes(definition));
    if let Some(old) = old {
        for (field, path) in [("group", "spec.group"), ("scope", "spec.scope")] {
            if old["spec"][field] != spec[field] {
                causes.push(strategy::immutable(path, &spec[field]));
            }
        }
    }
    causes
}

fn version_causes(definition: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let count = versions(definition).count();
    if count == 0 {
        causes.push(StatusCause::required("spec.versions", "must specify at least one version"));
        return causes;
    }
    let storage = versions(definition).filter(|v| v["storage"] == true).count();
    if storage != 1 {
        causes.push(StatusCause::invalid(
            "spec.versions",
            &definition["spec"]["versions"],
            "must have exactly one version marked as storage version",
        ));
    }
    for (index, version) in versions(definition).enumerate() {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
            causes.push(StatusCause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
            continue;
        };
        if let Err(errors) = Schema::compile(schema) {
            causes.extend(errors.iter().map(|error| {
                let mut cause = strategy::cause(error);
                // A single version is validated in the form it had when there could be only one.
                if count > 1 {
                    let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
                    cause.field = cause.field.replacen("spec.validation.openAPIV3Schema", &path, 1);
                }
                cause
            }));
        }
    }
    causes
}

/// Whether another definition already has one of the names. The answer is the reason and the message.
pub(crate) fn name_conflict(definition: &Value, others: &[&Value]) -> Option<(&'static str, String)> {
    let spec = &definition["spec"];
    let own = meta::text(definition, "name");
    let taken = |field: &str, name: &str| {
        others.iter().filter(|o| meta::text(o, "name") != own && o["spec"]["group"] == spec["group"]).any(|o| {
            let accepted = &o["status"]["acceptedNames"];
            accepted[field] == name
                || (field != "kind"
                    && field != "listKind"
                    && (accepted["plural"] == name || accepted["singular"] == name))
        })
    };
    for (field, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        let name = text(&spec["names"], field);
        if !name.is_empty() && taken(field, name) {
            return Some((reason, format!("{name:?} is already in use")));
        }
    }
    None
}

/// Names the state of a definition as far as its resources depend on it.
pub(crate) fn stamp(definition: &Value) -> String {
    let metadata = &definition["metadata"];
    let terminating = metadata.get("deletionTimestamp").is_some();
    format!("{} {} {terminating}", metadata["uid"], metadata["generation"])
}

/// The resources a definition serves, one per served version.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let list = |field: &str| -> Vec<String> {
        let list = names[field].as_array();
        let list = list.into_iter().flatten();
        list.filter_map(|n| n.as_str().map(str::to_owned)).collect()
    };
    let terminating = definition["metadata"].get("deletionTimestamp").is_some();
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    versions(definition)
        .filter(|v| v["served"] == true)
        .filter_map(|version| {
            let source = version.pointer("/schema/openAPIV3Schema")?;
            let schema = Schema::compile(source).ok()?;
            let subresources = &version["subresources"];
            Some(Resource {
                group: group.to_owned(),
                version: text(version, "name").to_owned(),
                plural: plural.to_owned(),
                singular: text(names, "singular").to_owned(),
                kind: text(names, "kind").to_owned(),
                list_kind: text(names, "listKind").to_owned(),
                namespaced: text(spec, "scope") == "Namespaced",
                short_names: list("shortNames"),
                categories: list("categories"),
                has_status: subresources.get("status").is_some(),
                counts_generation: true,
                unconditional_update: false,
                create_on_update: false,
                returns_deleted: false,
                field_labels: vec!["metadata.name", "metadata.namespace"],
                bucket: kinds::bucket(group, plural),
                custom: Some(Arc::new(Custom {
                    schema,
                    printer: Printer::new(version),
                    source: source.clone(),
                    scale: Scale::of_definition(&version["subresources"]["scale"]),
                    stamp: stamp(definition),
                    terminating,
                })),
            })
        })
        .collect()
}
