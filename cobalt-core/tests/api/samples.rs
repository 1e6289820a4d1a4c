//! One complete object of every kind, and a way to treat all kinds alike.

use std::fmt::Debug;

use cobalt_core::api::{Eviction, Hypervisor, Migration, OVSNode, crd};
use cobalt_core::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind as the tests see it: JSON goes in, JSON or an error comes out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    text: &'static str,
    round_trip: fn(Value) -> Result<Value, String>,
}

impl Kind {
    /// An object with every field of the kind.
    pub(crate) fn sample(&self) -> Value {
        serde_json::from_str(self.text).unwrap()
    }

    /// Reads an object and writes it again.
    pub(crate) fn round_trip(&self, object: Value) -> Result<Value, String> {
        (self.round_trip)(object)
    }

    pub(crate) fn crd(&self) -> CustomResourceDefinition {
        crd::all().into_iter().find(|crd| crd.spec.names.kind == self.name).unwrap()
    }
}

pub(crate) const KINDS: [Kind; 4] = [
    Kind { name: "Hypervisor", text: include_str!("fixtures/hypervisor.json"), round_trip: round_trip::<Hypervisor> },
    Kind { name: "Eviction", text: include_str!("fixtures/eviction.json"), round_trip: round_trip::<Eviction> },
    Kind { name: "Migration", text: include_str!("fixtures/migration.json"), round_trip: round_trip::<Migration> },
    Kind { name: "OVSNode", text: include_str!("fixtures/ovsnode.json"), round_trip: round_trip::<OVSNode> },
];

fn round_trip<K: DeserializeOwned + Serialize + Debug>(object: Value) -> Result<Value, String> {
    let read: K = serde_json::from_value(object).map_err(|error| error.to_string())?;
    Ok(serde_json::to_value(read).unwrap())
}

/// Where something is in a JSON document: a list of keys and indices.
pub(crate) type Path = Vec<String>;

/// The paths below `spec` and `status` to everything, inner nodes included.
pub(crate) fn paths(object: &Value) -> Vec<Path> {
    fn walk(value: &Value, path: &Path, found: &mut Vec<Path>) {
        let children: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(i, item)| (i.to_string(), item)).collect(),
            _ => Vec::new(),
        };
        for (key, child) in children {
            let path: Path = path.iter().cloned().chain([key]).collect();
            walk(child, &path, found);
            found.push(path);
        }
    }
    let mut found = Vec::new();
    for section in ["spec", "status"] {
        walk(&object[section], &vec![section.to_owned()], &mut found);
        found.push(vec![section.to_owned()]);
    }
    found
}

pub(crate) fn pointer(path: &Path) -> String {
    path.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect::<Vec<_>>().concat()
}

/// The samples are only worth something while they have every field.
#[test]
fn every_sample_has_every_field_of_its_schema() {
    fn complete(path: &str, schema: &JSONSchemaProps, values: &[&Value]) {
        for (name, property) in schema.properties.iter().flatten() {
            let here: Vec<_> = values.iter().filter_map(|value| value.get(name)).collect();
            assert!(!here.is_empty(), "{path}.{name} is in no sample");
            complete(&format!("{path}.{name}"), property, &here);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            let items: Vec<_> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
            complete(&format!("{path}[]"), item, &items);
        }
    }
    for kind in KINDS {
        let schema = kind.crd().spec.versions.remove(0).schema.unwrap().open_api_v3_schema.unwrap();
        complete(kind.name, &schema, &[&kind.sample()]);
    }
}
