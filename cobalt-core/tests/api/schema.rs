//! The CRDs are the contract: compared with recorded definitions, field by field.

use cobalt_core::api::crd;
use cobalt_core::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

const HYPERVISOR: &str = include_str!("fixtures/crd-hypervisor.json");
const EVICTION: &str = include_str!("fixtures/crd-eviction.json");

/// What our definitions say otherwise than the recorded ones, as `path: theirs -> ours`. Descriptions do not count.
const INTENDED: [&str; 0] = [];

/// What a Hypervisor says in addition: optional, so that whoever does not know it loses nothing.
const ADDED: [&str; 1] = [concat!(
    ".spec.versions[0].schema.openAPIV3Schema.properties.status.properties.appliedTraits: ",
    r#"null -> {"items":{"type":"string"},"type":"array"}"#
)];

#[test]
fn the_hypervisor_crd_is_the_contract() {
    assert_eq!(differences("Hypervisor", HYPERVISOR), ADDED);
}

#[test]
fn the_eviction_crd_is_the_contract() {
    let (added, other): (Vec<String>, Vec<String>) = differences("Eviction", EVICTION)
        .into_iter()
        .partition(|one| one.contains(".status.properties.instances: null"));
    assert_eq!(other, INTENDED);
    assert_eq!(added.len(), 1, "the progress of each instance is ours, and optional");
}

fn differences(kind: &str, recorded: &str) -> Vec<String> {
    let recorded: CustomResourceDefinition = serde_json::from_str(recorded).unwrap();
    let mut found = Vec::new();
    compare("", &comparable(recorded), &comparable(ours(kind)), &mut found);
    found
}

fn ours(kind: &str) -> CustomResourceDefinition {
    crd::all().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap()
}

/// Both sides pass through the same type, so that only meaning is left: no descriptions, no order of `required`.
fn comparable(mut crd: CustomResourceDefinition) -> Value {
    for schema in schemas(&mut crd) {
        walk(schema, &mut |schema| {
            schema.description = None;
            schema.required.iter_mut().for_each(|names| names.sort());
        });
    }
    serde_json::to_value(crd).unwrap()
}

fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn walk(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    schema.properties.iter_mut().flatten().for_each(|(_, property)| walk(property, visit));
    if let Some(JSONSchemaPropsOrArray::Schema(item)) = &mut schema.items {
        walk(item, visit);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        walk(value, visit);
    }
}

fn compare(path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let mut keys: Vec<_> = theirs.keys().chain(ours.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let (theirs, ours) = (theirs.get(key).unwrap_or(&Value::Null), ours.get(key).unwrap_or(&Value::Null));
                compare(&format!("{path}.{key}"), theirs, ours, found);
            }
        }
        (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
            for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                compare(&format!("{path}[{index}]"), theirs, ours, found);
            }
        }
        _ if theirs == ours => {}
        _ => found.push(format!("{path}: {theirs} -> {ours}")),
    }
}

/// The rules of a structural schema that the API server enforces and a derived schema is likely to break.
#[test]
fn every_schema_is_structural() {
    for mut crd in crd::all() {
        let kind = crd.spec.names.kind.clone();
        for root in schemas(&mut crd) {
            assert_eq!(root.type_.as_deref(), Some("object"), "{kind}");
            walk(root, &mut |schema| {
                let int_or_string = schema.x_kubernetes_int_or_string == Some(true);
                assert!(schema.type_.is_some() != int_or_string, "{kind}: exactly one of type and int-or-string");
                assert_eq!(schema.any_of.is_some(), int_or_string, "{kind}: {:?}", schema.any_of);
                assert!(schema.all_of.is_none() && schema.one_of.is_none() && schema.not.is_none(), "{kind}");
                assert!(schema.ref_path.is_none() && schema.definitions.is_none(), "{kind}");
                assert!(schema.properties.is_none() || schema.additional_properties.is_none(), "{kind}");
                assert!(schema.nullable.is_none(), "{kind}: a null is to become the default");
                for name in schema.required.iter().flatten() {
                    assert!(schema.properties.as_ref().unwrap().contains_key(name), "{kind}: {name}");
                }
            });
        }
    }
}

#[test]
fn every_field_is_described() {
    for mut crd in crd::all() {
        let kind = crd.spec.names.kind.clone();
        for root in schemas(&mut crd) {
            for section in ["spec", "status"] {
                walk(root.properties.as_mut().unwrap().get_mut(section).unwrap(), &mut |schema| {
                    for (name, property) in schema.properties.iter().flatten() {
                        assert!(property.description.is_some(), "{kind}: {name} has no description");
                    }
                });
            }
        }
    }
}

#[test]
fn a_migration_can_be_created_without_a_status() {
    let mut crd = ours("Migration");
    assert_eq!(crd.spec.scope, "Namespaced");
    assert_eq!(crd.spec.versions[0].name, "v1alpha1");
    assert!(crd.spec.names.short_names.is_none());
    for root in schemas(&mut crd) {
        assert_eq!(root.required, None);
        assert_eq!(root.properties.as_ref().unwrap()["status"].required, None);
    }
}

#[test]
fn a_migration_has_the_fields_of_the_contract() {
    let mut crd = ours("Migration");
    let root = schemas(&mut crd).next().unwrap();
    let fields = root.properties.as_ref().unwrap()["status"].properties.clone().unwrap();
    let of_type = |wanted: &str| {
        let mut names: Vec<_> =
            fields.iter().filter(|(_, f)| f.type_.as_deref() == Some(wanted)).map(|(n, _)| n.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(of_type("integer"), "memConstant memIteration memNormal memPostcopyRequests");
    assert_eq!(
        of_type("string"),
        "arrived autoConvergeThrottle dataProcessed dataRemaining dataTotal destination diskBps diskProcessed \
         diskRemaining diskTotal downtime ended errMsg memBps memDirtyRate memNormalBytes memPageSize memProcessed \
         memRemaining memTotal operation origin receivingSince setupTime started timeElapsed timeRemaining type"
    );
    for time in ["started", "receivingSince", "arrived", "ended"] {
        assert_eq!(fields[time].format.as_deref(), Some("date-time"), "{time}");
    }
    let figures = fields["progress"].properties.as_ref().unwrap();
    assert!(figures.values().all(|figure| figure.type_.as_deref() == Some("integer")), "{figures:?}");
    let columns: Vec<_> =
        crd.spec.versions[0].additional_printer_columns.iter().flatten().map(|column| column.name.as_str()).collect();
    assert_eq!(
        columns,
        [
            "Origin",
            "Destination",
            "Type",
            "Operation",
            "Started",
            "Elapsed",
            "Data Total",
            "Data Processed",
            "Data Remaining",
            "Memory TX",
            "Memory Dirty Rate",
            "Memory Iteration"
        ]
    );
}

#[test]
fn an_ovsnode_lives_in_a_namespace_and_its_conditions_are_keyed_by_type() {
    let mut crd = ours("OVSNode");
    assert_eq!((crd.spec.group.as_str(), crd.spec.scope.as_str()), ("ovs.c5c3.io", "Namespaced"));
    let root = schemas(&mut crd).next().unwrap();
    let conditions = &root.properties.as_ref().unwrap()["status"].properties.as_ref().unwrap()["conditions"];
    assert_eq!(conditions.x_kubernetes_list_type.as_deref(), Some("map"));
    assert_eq!(conditions.x_kubernetes_list_map_keys.as_deref(), Some(&["type".to_owned()][..]));
}

#[test]
fn every_kind_has_a_status_subresource_and_one_stored_version() {
    for crd in crd::all() {
        let [version] = crd.spec.versions.as_slice() else { panic!("{}", crd.spec.names.kind) };
        assert!(version.served && version.storage);
        assert!(version.subresources.as_ref().unwrap().status.is_some());
    }
}
