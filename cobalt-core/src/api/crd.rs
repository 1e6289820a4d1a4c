//! The CustomResourceDefinitions, as the API server wants them.
//!
//! The fields, defaults and rules are written at the types; what no attribute can say is finished here, in one place.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{Eviction, Hypervisor, Migration, OVSNode};

/// All definitions, in the order in which a person would list them.
pub fn all() -> Vec<CustomResourceDefinition> {
    [Hypervisor::crd(), Eviction::crd(), Migration::crd(), OVSNode::crd()].map(finish).into()
}

/// The definitions as YAML documents, ready for `kubectl apply -f -`.
#[cfg(feature = "yaml")]
pub fn to_yaml() -> String {
    all().iter().flat_map(|crd| ["---\n".to_owned(), document(crd)]).collect()
}

/// One definition as YAML.
#[cfg(feature = "yaml")]
pub fn document(crd: &CustomResourceDefinition) -> String {
    serde_saphyr::to_string(crd).unwrap_or_else(|error| unreachable!("a definition is plain data: {error}"))
}

/// The name of the file a definition is kept in: `<group>_<plural>.yaml`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            finish_root(schema);
        }
    }
    crd
}

/// The root describes a whole object. Nothing at the root is required: status cannot be, because the API server drops
/// it on create, and a missing spec is one whose fields all have their defaults.
fn finish_root(root: &mut JSONSchemaProps) {
    root.title = None;
    root.required = None;
    let properties = root.properties.get_or_insert_default();
    for (name, type_) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        properties.insert(name.into(), typed(type_));
    }
    tidy(root);
}

/// Takes out what schemars derives from Rust and the contract does not have.
fn tidy(schema: &mut JSONSchemaProps) {
    // `Option` is "may be absent". Were it nullable too, an explicit null would be stored instead of the default.
    schema.nullable = None;
    if let Some(words) = &mut schema.enum_ {
        words.retain(|JSON(word)| !word.is_null());
    }
    // The widths of Rust's other numbers (`int32`, `double`) are no part of the contract.
    schema.format.take_if(|format| !matches!(format.as_str(), "int64" | "date-time"));
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.any_of = Some(vec![typed("integer"), typed("string")]);
    }

    schema.properties.iter_mut().flatten().for_each(|(_, property)| tidy(property));
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => tidy(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        tidy(value);
    }
}

fn typed(type_: &str) -> JSONSchemaProps {
    JSONSchemaProps { type_: Some(type_.into()), ..JSONSchemaProps::default() }
}
