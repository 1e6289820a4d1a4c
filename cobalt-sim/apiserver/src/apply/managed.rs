//! `metadata.managedFields`: who owns which fields, since when.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::fieldset::FieldSet;

/// How a manager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else.
    Update,
}

/// Who owns an entry. An applier is the same whatever version it applies in, an updater is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager {
    /// The name the client gave.
    pub name: String,
    /// How it writes.
    pub operation: Operation,
    /// The version an updater wrote in; empty for appliers.
    pub api_version: String,
    /// The subresource it writes to, or empty.
    pub subresource: String,
}

impl Manager {
    pub(super) fn new(operation: Operation, name: &str, api_version: &str, subresource: Option<&str>) -> Self {
        let api_version = if operation == Operation::Apply { "" } else { api_version };
        Self {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    /// The manager as conflict messages name it.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text = format!("{text} using {}", self.api_version);
        }
        text
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) api_version: String,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

/// All entries of an object.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Managed(pub(super) BTreeMap<Manager, Entry>);

/// How many updaters an object remembers by name.
const MAX_UPDATERS: usize = 10;

impl Managed {
    /// The entries of an object; an error says what is malformed.
    pub(super) fn of(object: &Value) -> Result<Self, String> {
        Self::decode(object.pointer("/metadata/managedFields").unwrap_or(&Value::Null))
    }

    fn decode(entries: &Value) -> Result<Self, String> {
        let mut managed = BTreeMap::new();
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::from_fields_v1(fields)
                    .ok_or_else(|| format!("error decoding set from managed fields entry {index}"))?,
            };
            let subresource = Some(text("subresource")).filter(|name| !name.is_empty());
            let manager = Manager::new(operation, text("manager"), api_version, subresource);
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            managed.insert(manager, Entry { api_version: api_version.to_owned(), time, fields });
        }
        Ok(Self(managed))
    }

    /// Writes the entries into an object: appliers first, then by time and name.
    pub(super) fn write(&self, object: &mut Value) {
        let Some(metadata) = metadata_mut(object) else { return };
        if self.0.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut entries: Vec<(&Manager, &Entry)> = self.0.iter().collect();
        entries.sort_by_cached_key(|(manager, entry)| {
            let order = (manager.operation, seconds(entry.time.as_deref()));
            (order, manager.name.clone(), entry.api_version.clone(), manager.subresource.clone())
        });
        let entries = entries.into_iter().map(|(manager, entry)| encode(manager, entry)).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }

    /// Folds the oldest updaters into one entry per version when there are too many.
    pub(super) fn cap_updaters(&mut self) {
        let mut updaters: Vec<Manager> =
            self.0.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
        let mut excess = updaters.len().saturating_sub(MAX_UPDATERS);
        updaters.sort_by_cached_key(|manager| {
            (self.0.get(manager).and_then(|entry| seconds(entry.time.as_deref())), manager.clone())
        });
        let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in updaters {
            if excess == 0 {
                return;
            }
            let bucket = Manager::new(Operation::Update, "ancient-changes", &manager.api_version, None);
            let Some(first) = first_of_version.get(&manager.api_version) else {
                first_of_version.insert(manager.api_version.clone(), manager);
                continue;
            };
            if !self.0.contains_key(&bucket)
                && let Some(entry) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), entry);
            }
            if let Some(folded) = self.0.remove(&manager)
                && let Some(kept) = self.0.get_mut(&bucket)
            {
                kept.fields = kept.fields.union(&folded.fields);
                kept.time = folded.time;
            }
            excess -= 1;
        }
    }
}

fn encode(manager: &Manager, entry: &Entry) -> Value {
    let operation = match manager.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut encoded = json!({
        "apiVersion": entry.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": entry.fields.to_fields_v1(),
        "manager": manager.name,
        "operation": operation,
    });
    if !manager.subresource.is_empty() {
        encoded["subresource"] = Value::from(manager.subresource.as_str());
    }
    if let Some(time) = &entry.time {
        encoded["time"] = Value::from(time.as_str());
    }
    encoded
}

/// Times order entries; an entry without one, or with an unreadable one, comes first.
fn seconds(time: Option<&str>) -> Option<i64> {
    time.and_then(|time| time.parse::<Timestamp>().ok()).map(Timestamp::as_second)
}

fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}

/// Takes the entries out of an object.
pub(super) fn strip(object: &mut Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    metadata.and_then(|metadata| metadata.remove("managedFields")).unwrap_or(Value::Null)
}

/// Whether a client asked to forget all entries (`[{}]`).
pub(super) fn asks_for_reset(object: &Value) -> bool {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.is_some_and(|entries| {
        matches!(&entries[..], [Value::Object(only)] if only.values().all(|value| value.is_null() || value == ""))
    })
}
