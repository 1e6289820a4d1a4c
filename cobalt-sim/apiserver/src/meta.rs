//! Small helpers on the `metadata` of an object.

use serde_json::{Map, Value};

/// A text field of `metadata`, empty if absent.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata` as a map, made if it is missing or something else.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("metadata was just made a map"),
    }
}

/// Sets or, with `None`, removes a field of `metadata`.
pub(crate) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = of(object);
    match value {
        Some(value) => {
            metadata.insert(field.to_owned(), value);
        }
        None => {
            metadata.remove(field);
        }
    }
}

/// Copies a field of `metadata` from another object; absent there means removed here.
pub(crate) fn copy(object: &mut Value, from: &Value, field: &str) {
    let value = from.get("metadata").and_then(|m| m.get(field)).cloned();
    set(object, field, value);
}

/// Copies a top-level field from another object; absent there means removed here.
pub(crate) fn copy_top(object: &mut Value, from: &Value, field: &str) {
    match (object.as_object_mut(), from.get(field)) {
        (Some(map), Some(value)) => {
            map.insert(field.to_owned(), value.clone());
        }
        (Some(map), None) => {
            map.remove(field);
        }
        (None, _) => {}
    }
}

/// The finalizers.
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    let list = object.pointer("/metadata/finalizers");
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|f| f.as_str().map(str::to_owned)).collect()
}

/// Sets the finalizers; an empty list is left out as in every stored object.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let value = (!finalizers.is_empty()).then(|| finalizers.to_vec().into());
    set(object, "finalizers", value);
}

/// Removes empty collections and nulls from `metadata`, which the typed metadata of the real server cannot hold.
pub(crate) fn tidy(object: &mut Value) {
    let metadata = of(object);
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
    metadata.remove("selfLink");
}

/// Whether two states differ in anything but the times of their managed fields.
pub(crate) fn same_but_times(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a == b;
    };
    a.len() == b.len()
        && a.iter().all(|(key, value)| {
            let other = b.get(key);
            if key == "metadata" {
                other.is_some_and(|other| same_metadata(value, other))
            } else {
                other == Some(value)
            }
        })
}

fn same_metadata(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a == b;
    };
    a.len() == b.len()
        && a.iter().all(|(key, value)| {
            let other = b.get(key);
            if key == "managedFields" {
                other.is_some_and(|other| same_managers(value, other))
            } else {
                other == Some(value)
            }
        })
}

fn same_managers(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_array(), b.as_array()) else {
        return a == b;
    };
    let entry = |entry: &Value| -> Vec<(String, Value)> {
        let map = entry.as_object().into_iter().flatten();
        map.filter(|(key, _)| *key != "time").map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    // Times order the entries, so the order counts as little as the times.
    let others: Vec<_> = b.iter().map(entry).collect();
    a.len() == b.len() && a.iter().all(|a| others.contains(&entry(a)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_new_time_of_a_manager_is_no_change() {
        let state = |time: &str, value: i64| {
            json!({
                "metadata": {"name": "a", "managedFields": [{"manager": "m", "time": time}]},
                "spec": {"v": value},
            })
        };
        assert!(same_but_times(&state("1", 1), &state("2", 1)));
        assert!(!same_but_times(&state("1", 1), &state("1", 2)));
    }

    #[test]
    fn tidy_drops_what_typed_metadata_cannot_hold() {
        let mut object = json!({"metadata": {"name": "a", "labels": {}, "finalizers": [], "uid": null}});
        tidy(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }
}
