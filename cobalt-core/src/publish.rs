//! From decisions to the body of a server-side apply.
//!
//! An apply carries *what is ours, as observed*, with what was decided on top and without what was let go. So a field
//! or condition that nobody spoke of this time stays as it is, and is not deleted by being left out; and a field that
//! somebody else has changed is no longer ours, so it is not in the body and we do not fight for it.

use std::{collections::BTreeMap, sync::Arc};

use kube::Resource;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{api::Condition, runtime::fields::FieldSet};

/// A condition as people read it in an Event.
pub(crate) fn sentence(condition: &Condition) -> String {
    let Condition { type_, status, message, .. } = condition;
    if message.is_empty() { format!("{type_} is {status}") } else { format!("{type_} is {status}: {message}") }
}

/// The newer of what the cache holds and what the server answered to our own write. Versions are compared as the numbers
/// they are; if one is none, the cache is believed.
pub(crate) fn newer<K: Resource>(cached: Option<Arc<K>>, written: Option<Arc<K>>) -> Option<Arc<K>> {
    let version = |object: &Arc<K>| object.meta().resource_version.as_deref()?.parse::<u64>().ok();
    match (cached, written) {
        (Some(cached), Some(written)) if version(&written) > version(&cached) && version(&cached).is_some() => {
            Some(written)
        }
        (Some(cached), _) => Some(cached),
        // It was written and is not cached: not yet, or not any more. The next event tells.
        (None, _) => None,
    }
}

/// The parts of an object that are ours, as they were observed.
pub(crate) fn ours<K: Serialize>(observed: Option<&K>, owned: &FieldSet) -> Value {
    let Some(observed) = observed.filter(|_| !owned.is_empty()) else { return json!({}) };
    match serde_json::to_value(observed) {
        Ok(object) => owned.project(&object),
        // Plain data always encodes. Were it ever not so, an empty start would delete, so start from the object.
        Err(error) => unreachable!("an object of the API is plain data: {error}"),
    }
}

/// Puts the fields of `over` on top of `body[section]`, field by field.
pub(crate) fn overlay(body: &mut Value, section: &str, over: Value) {
    let Value::Object(over) = over else { return };
    let target = object(body, section);
    for (name, value) in over {
        target.insert(name, value);
    }
}

/// The object at `body[section]`, made if it is not there.
pub(crate) fn object<'a>(body: &'a mut Value, section: &str) -> &'a mut Map<String, Value> {
    let slot = &mut body[section];
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("it was made an object on the line above"),
    }
}

/// The body of a status apply: what is ours as observed, the given fields, and the given conditions.
///
/// `removed` tells which conditions to let go.
pub(crate) fn status_body<'a, K: Serialize>(
    observed: Option<&K>,
    owned: &FieldSet,
    fields: &impl Serialize,
    conditions: impl Iterator<Item = &'a Condition>,
    removed: impl Fn(&str) -> bool,
) -> Value {
    let mut body = ours(observed, owned);
    let mut list: BTreeMap<String, Value> = body["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|condition| Some((condition["type"].as_str()?.to_owned(), condition.clone())))
        .collect();
    // The conditions among the fields are overwritten below by those that are merged.
    overlay(&mut body, "status", serde_json::to_value(fields).unwrap_or_default());
    for condition in conditions {
        list.insert(condition.type_.clone(), serde_json::to_value(condition).unwrap_or_default());
    }
    list.retain(|type_, _| !removed(type_));
    let status = object(&mut body, "status");
    if list.is_empty() {
        status.remove("conditions");
    } else {
        // Ordered by type: the order of a body must not depend on the order in which things happened.
        status.insert("conditions".into(), list.into_values().collect());
    }
    body
}
