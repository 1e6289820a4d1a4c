//! Between the stored form of an object and the forms it is served in.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::registry::Resource;

/// The object as `resource` serves it.
pub(crate) fn to_version<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    if resource.is_storage_form(stored) {
        return Cow::Borrowed(stored);
    }
    let mut object =
        if resource.group == "events.k8s.io" { rename(stored, EVENT_FIELDS, false) } else { stored.clone() };
    object["apiVersion"] = resource.api_version().into();
    if resource.group == "events.k8s.io"
        && let Some(map) = object.as_object_mut()
    {
        // Fields that only one of the two versions can leave out.
        map.entry("eventTime").or_insert(Value::Null);
        map.entry("deprecatedSource").or_insert_with(|| json!({}));
        for field in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
            map.entry(field).or_insert(Value::Null);
        }
        for field in ["reportingController", "reportingInstance"] {
            if map.get(field).is_some_and(|value| value == "") {
                map.remove(field);
            }
        }
    }
    Cow::Owned(object)
}

/// The object as it is stored: events of both groups in the core form, everything else as it was written.
pub(crate) fn to_storage(resource: &Resource, served: Value) -> Value {
    if resource.group != "events.k8s.io" {
        return served;
    }
    let mut object = rename(&served, EVENT_FIELDS, true);
    object["apiVersion"] = "v1".into();
    for field in ["reportingComponent", "reportingInstance"] {
        if object.get(field).is_none() {
            object[field] = "".into();
        }
    }
    object
}

/// Names of the same field in core/v1 and in events.k8s.io/v1.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &Value, names: &[(&str, &str)], to_core: bool) -> Value {
    let mut renamed = Map::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        let pair = names
            .iter()
            .map(|(core, new)| if to_core { (*new, *core) } else { (*core, *new) })
            .find(|(from, _)| from == key);
        let name = pair.map_or(key.as_str(), |(_, to)| to);
        renamed.insert(name.to_owned(), value.clone());
    }
    Value::Object(renamed)
}

/// `PartialObjectMetadata` of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn an_event_is_the_same_object_in_both_groups() {
        let registry = Registry::new();
        let new = registry.find("events.k8s.io", "v1", "events").unwrap();
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "message": "m", "involvedObject": {"kind": "Pod"},
            "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        });
        let served = to_version(&new, &stored).into_owned();
        assert_eq!(served["note"], "m");
        assert_eq!(served["regarding"]["kind"], "Pod");
        assert_eq!(to_storage(&new, served), stored);
    }
}
