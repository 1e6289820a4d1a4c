//! Stored objects, each encoded at most once.

use std::cmp::Ordering;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

/// Where an object lives within its bucket. The order is the order of lists: that of the paths `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The bytes of `namespace/name`.
    fn path(&self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain([b'/']).chain(self.name.bytes())
    }
}

impl Ord for Key {
    /// Namespaces are not compared as names: `a-b/x` comes before `a/x`.
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        self.path().cmp(other.path()).then_with(|| self.namespace.cmp(&other.namespace))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One stored state of an object. Never changed after it was committed, so it can be shared freely.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) value: Value,
    /// About how long its JSON is.
    pub(crate) size: usize,
    json: OnceLock<Bytes>,
    item: OnceLock<Bytes>,
}

impl Object {
    pub(crate) fn new(key: Key, revision: u64, value: Value) -> Self {
        let size = approximate_size(&value);
        Self { key, revision, value, size, json: OnceLock::new(), item: OnceLock::new() }
    }

    /// From its JSON, which is kept.
    pub(super) fn decoded(key: Key, revision: u64, value: Value, json: Bytes) -> Self {
        Self { key, revision, value, size: json.len(), json: json.into(), item: OnceLock::new() }
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

/// About how long the JSON of a value is. Counting is cheaper than encoding, which is done only if somebody reads.
pub(crate) fn approximate_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => list.iter().map(|v| approximate_size(v) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            let entries = map.iter().map(|(k, v)| k.len() + 4 + approximate_size(v));
            entries.sum::<usize>() + 2
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_paths() {
        let mut keys = [Key::new("a", "z"), Key::new("ab", "a"), Key::new("a-b", "x"), Key::new("a", "b")];
        keys.sort();
        let paths = keys.map(|key| format!("{}/{}", key.namespace, key.name));
        assert_eq!(paths, ["a-b/x", "a/b", "a/z", "ab/a"]);
    }
}
