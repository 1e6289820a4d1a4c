//! Recorded writes of a real server, taken apart for the replays.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use regex::Regex;
use serde_json::{Value, json};

use crate::apply::WriteInfo;
use crate::schema::Schema;
use crate::types::{TypeNode, builtin};

pub(crate) const CRDS: &str = include_str!("../../../tests/wire/1-crd.jsonl");
pub(crate) const VALIDATION: &str = include_str!("../../../tests/wire/2-validation.jsonl");
pub(crate) const APPLY: &str = include_str!("../../../tests/wire/3-ssa.jsonl");
pub(crate) const PATCH: &str = include_str!("../../../tests/wire/4-patch.jsonl");

/// The schemas of the recorded server, by kind.
pub(crate) fn schemas() -> &'static BTreeMap<String, Schema> {
    static SCHEMAS: LazyLock<BTreeMap<String, Schema>> = LazyLock::new(read_schemas);
    &SCHEMAS
}

fn read_schemas() -> BTreeMap<String, Schema> {
    [
        include_str!("../../../tests/wire/crd-gadget.json"),
        include_str!("../../../tests/wire/crd-hypervisor.json"),
        include_str!("../../../tests/wire/crd-eviction.json"),
    ]
    .map(|text| {
        let crd: Value = serde_json::from_str(text).unwrap();
        (crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(), compiled(&crd))
    })
    .into()
}

/// The Hypervisor schema after its enum was narrowed, which happened between two records.
pub(crate) fn narrowed_schema() -> Schema {
    let mut crd: Value = serde_json::from_str(include_str!("../../../tests/wire/crd-hypervisor.json")).unwrap();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["maintenance"]["enum"] = json!(["", "manual", "ha", "termination"]);
    compiled(&crd)
}

fn compiled(crd: &Value) -> Schema {
    Schema::compile(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).unwrap()
}

/// The records of a file, times made real: the code under test reads them.
pub(crate) fn records(text: &str) -> Vec<Value> {
    let time = Regex::new("<time:([0-9]+)>").unwrap();
    let text = time.replace_all(text, |found: &regex::Captures<'_>| format!("2026-03-01T00:00:{:0>2}Z", &found[1]));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One write and what came of it.
pub(crate) struct Write<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
    pub(crate) media: &'a str,
    pub(crate) path: &'a str,
    pub(crate) kind: String,
    pub(crate) on_status: bool,
    pub(crate) force: bool,
    pub(crate) sent: Value,
    pub(crate) code: u64,
    pub(crate) answer: &'a Value,
    manager: &'a str,
    api_version: String,
    time: String,
}

impl<'a> Write<'a> {
    /// Takes a record apart; `None` for reads, sessions and writes to other subresources.
    pub(crate) fn of(record: &'a Value) -> Option<Self> {
        let (request, answer) = (&record["request"], &record["response"]["body"]);
        let (path, query) = request["path"].as_str()?.split_once('?').unwrap_or((request["path"].as_str()?, ""));
        let (path, on_status) = path.strip_suffix("/status").map_or((path, false), |path| (path, true));
        let query: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let sent = match &request["body"] {
            Value::String(text) => serde_json::from_str(text).ok()?,
            body => body.clone(),
        };
        let code = record["response"]["status"].as_u64()?;
        let object = if code < 300 { answer } else { &sent };
        let kind = match path.split('/').find(|step| ["hypervisors", "evictions", "gadgets"].contains(step)) {
            Some("hypervisors") => "Hypervisor",
            Some("evictions") => "Eviction",
            Some("gadgets") => "Gadget",
            _ => object["kind"].as_str()?,
        };
        let (kind, api_version) = (kind.to_owned(), object["apiVersion"].as_str().unwrap_or_default().to_owned());
        let entries = answer.pointer("/metadata/managedFields").and_then(Value::as_array);
        let newest = entries.into_iter().flatten().filter_map(|entry| entry["time"].as_str()).max();
        let skip =
            ["/scale", "/eviction", "/binding", "/token", "/log"].iter().any(|subresource| path.ends_with(subresource));
        let method = request["method"].as_str()?;
        (matches!(method, "POST" | "PUT" | "PATCH") && !skip && !query.contains_key("dryRun")).then(|| Self {
            id: record["id"].as_str().unwrap_or_default(),
            method,
            media: request["headers"]["Content-Type"].as_str().unwrap_or("application/json"),
            path,
            kind,
            on_status,
            force: query.get("force") == Some(&"true"),
            manager: query.get("fieldManager").copied().unwrap_or("rec"),
            api_version,
            time: newest.unwrap_or("2026-03-01T00:00:59Z").to_owned(),
            sent,
            code,
            answer,
        })
    }

    pub(crate) fn is_apply(&self) -> bool {
        self.media.contains("apply-patch")
    }

    pub(crate) fn info(&self) -> WriteInfo<'_> {
        WriteInfo {
            manager: self.manager,
            api_version: &self.api_version,
            subresource: self.on_status.then_some("status"),
            time: &self.time,
            reset: if self.on_status { &["spec"] } else { &["status"] },
        }
    }

    pub(crate) fn types(&self) -> Option<&'static TypeNode> {
        let group = self.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        schemas().get(&self.kind).map(Schema::types).or_else(|| builtin(group, &self.kind))
    }

    /// Where the object is found again.
    pub(crate) fn key(&self) -> String {
        match (self.method, self.answer["metadata"]["name"].as_str()) {
            ("POST", Some(name)) => format!("{}/{name}", self.path),
            _ => self.path.to_owned(),
        }
    }
}

/// The objects a replay knows: those of the latest records. Reads count too, they show what was done unrecorded.
#[derive(Default)]
pub(crate) struct Stored(BTreeMap<String, Value>);

impl Stored {
    pub(crate) fn get(&self, write: &Write<'_>) -> Option<&Value> {
        self.0.get(write.path)
    }

    pub(crate) fn note(&mut self, record: &Value) {
        let answer = &record["response"]["body"];
        let good = record["response"]["status"].as_u64().is_some_and(|code| code < 300);
        let path = record["request"]["path"].as_str().unwrap_or_default();
        if !good || path.contains("dryRun") || path.contains("/scale") || !answer["metadata"]["name"].is_string() {
            return;
        }
        let key = match Write::of(record) {
            Some(write) => write.key(),
            None => path.split('?').next().unwrap_or_default().trim_end_matches("/status").to_owned(),
        };
        self.0.insert(key, answer.clone());
    }
}

/// How many records a replay agreed with, and where it did not.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) matched: usize,
    pub(crate) wrong: Vec<String>,
}

impl Tally {
    pub(crate) fn note(&mut self, id: &str, agrees: bool, got: &impl std::fmt::Debug, want: &impl std::fmt::Debug) {
        if agrees {
            self.matched += 1;
        } else {
            self.wrong.push(format!("{id}\n   got {got:?}\n  want {want:?}"));
        }
    }

    pub(crate) fn expect(&self, name: &str, matched: usize) {
        eprintln!("{name}: {} matched, {} differ\n{}", self.matched, self.wrong.len(), self.wrong.join("\n"));
        assert!(self.wrong.is_empty(), "{name} differ");
        assert_eq!(self.matched, matched, "{name}");
    }
}

/// Any JSON value, with few enough names that values meet.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["", "a", "b", "2026-01-01T00:00:00Z", "1Gi"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from), map_of(inner)]
    })
}

/// Any JSON object.
pub(crate) fn any_json_object() -> impl Strategy<Value = Value> {
    map_of(any_json())
}

fn map_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "b", "spec", "status", "metadata", "name", "x/y"]);
    prop::collection::btree_map(name.prop_map(str::to_owned), inner, 0..5)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}
