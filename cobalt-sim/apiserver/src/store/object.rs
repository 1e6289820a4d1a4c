//! Stored objects and the events that tell of their changes, each encoded at most once.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

/// Where an object lives within its bucket. The order is the order of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// One stored state of an object. Never changed after it was committed, so it can be shared freely.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) value: Value,
    json: OnceLock<Bytes>,
    item: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(key: Key, revision: u64, value: Value) -> Self {
        Self { key, revision, value, json: OnceLock::new(), item: OnceLock::new() }
    }

    /// The object as JSON.
    pub(crate) fn json(&self) -> Bytes {
        self.json.get_or_init(|| encode(&self.value)).clone()
    }

    /// The object as an item of a built-in list, which leaves out `apiVersion` and `kind`.
    pub(crate) fn item(&self) -> Bytes {
        self.item
            .get_or_init(|| {
                let mut value = self.value.clone();
                if let Some(object) = value.as_object_mut() {
                    object.remove("apiVersion");
                    object.remove("kind");
                }
                encode(&value)
            })
            .clone()
    }

    pub(crate) fn uid(&self) -> &str {
        text(&self.value, "uid")
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.value.pointer("/metadata/deletionTimestamp").is_some()
    }

    pub(crate) fn finalizers(&self) -> Vec<&str> {
        let list = self.value.pointer("/metadata/finalizers");
        let list = list.and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    pub(crate) fn owners(&self) -> impl Iterator<Item = &Value> {
        let list = self.value.pointer("/metadata/ownerReferences");
        list.and_then(Value::as_array).into_iter().flatten()
    }

    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.owners().filter_map(|o| o.get("uid")?.as_str())
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// JSON of a value. Serializing a `Value` cannot fail: its keys are strings and its numbers finite.
pub(crate) fn encode(value: &Value) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One entry of a bucket's log.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) change: Change,
    /// The new state; for a deletion the last state under the deletion's revision.
    pub(crate) object: Arc<Object>,
    /// The state before, absent for a creation.
    pub(crate) previous: Option<Arc<Object>>,
    /// When it happened, for watches that lag on purpose.
    pub(crate) at: Instant,
    line: OnceLock<Bytes>,
}

impl Event {
    pub(crate) fn new(change: Change, object: Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self { revision: object.revision, change, object, previous, at: Instant::now(), line: OnceLock::new() }
    }

    /// The event as one line of a watch, shared by all watchers that see it unchanged.
    pub(crate) fn line(&self) -> Bytes {
        self.line.get_or_init(|| line(self.change.name(), &self.object.json())).clone()
    }
}

/// `{"type":"ADDED","object":...}` and a line feed.
pub(crate) fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + kind.len() + 24);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
