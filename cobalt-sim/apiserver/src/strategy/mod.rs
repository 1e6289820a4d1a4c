//! What is special about a kind: defaults on create, isolation of `status`, validation.

mod core;
mod decoding;
mod prune;
mod services;

use serde_json::{Value, json};

pub(crate) use self::core::{
    copy_topology, finish_create, grace_period, has_grace_field, is_protected_namespace, mark_terminating, validate,
};
pub(crate) use self::decoding::decoding_problem;
pub(crate) use self::prune::{fill, omit_empty, prune_builtin, prune_metadata};
use crate::crd;
use crate::meta;
use crate::registry::Resource;
use crate::schema::{Cause, FieldError};
use crate::status::StatusCause;

/// A schema error as a cause.
pub(crate) fn cause(error: &FieldError) -> StatusCause {
    StatusCause::new(error.reason.as_str(), &*error.field, &*error.message)
}

/// A cause found before the schema was looked at, in the schema's terms.
pub(crate) fn field_error(cause: &StatusCause) -> FieldError {
    let reason = match cause.reason.as_str() {
        "FieldValueRequired" => Cause::Required,
        "FieldValueTooLong" => Cause::TooLong,
        "FieldValueForbidden" => Cause::Forbidden,
        "FieldValueNotSupported" => Cause::NotSupported,
        _ => Cause::Invalid,
    };
    FieldError { field: cause.field.clone(), reason, message: cause.message.clone() }
}

/// Defaults and server-owned parts of a new object.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value) {
    if resource.is_custom() {
        if resource.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        return;
    }
    core::prepare_create(resource, object);
    core::count_templates(resource, None, object);
    crate::admission::default(resource, object);
    omit_empty(object, resource.types());
    fill(object, &resource.types().zero());
    if resource.bucket == crate::store::DEFINITIONS {
        crd::prepare(object);
    }
}

/// Defaults of a changed object.
pub(crate) fn prepare_update(resource: &Resource, old: &Value, object: &mut Value) {
    if resource.is_custom() {
        return;
    }
    core::prepare_update(resource, old, object);
    core::count_templates(resource, Some(old), object);
    crate::admission::default(resource, object);
    omit_empty(object, resource.types());
    fill(object, &resource.types().zero());
    if resource.bucket == crate::store::DEFINITIONS {
        crd::prepare(object);
    }
    if resource.has_status {
        // It is the old one to the letter, also where it says nothing.
        meta::copy_top(object, old, "status");
    }
}

/// Keeps the main resource and its `status` apart.
pub(crate) fn isolate(resource: &Resource, status: bool, old: &Value, new: &mut Value) {
    if !status {
        if resource.has_status {
            meta::copy_top(new, old, "status");
        }
        return;
    }
    if !resource.is_custom() {
        meta::copy_top(new, old, "spec");
        core::default_status(resource, new);
        return;
    }
    // Everything but the status stays; what was sent as metadata is looked at once more by field ownership.
    let mut kept = old.clone();
    for field in ["status", "metadata"] {
        meta::copy_top(&mut kept, new, field);
    }
    *new = kept;
}

/// Takes back what a write to `status` said about metadata, after field ownership has seen it.
pub(crate) fn reset_metadata(resource: &Resource, status: bool, old: &Value, new: &mut Value) {
    let resets = resource.is_custom() || resource.bucket == crate::store::DEFINITIONS;
    if status && resets {
        let mut metadata = old["metadata"].clone();
        if let Some(fields) = new["metadata"].get("managedFields") {
            metadata["managedFields"] = fields.clone();
        }
        new["metadata"] = metadata;
    }
}

/// Top-level fields that a write through this endpoint cannot change.
pub(crate) fn reset_fields(resource: &Resource, status: bool) -> &'static [&'static str] {
    match (resource.has_status, status) {
        (true, true) => &["spec"],
        (true, false) => &["status"],
        _ => &[],
    }
}

/// Whether the part of the object that `metadata.generation` counts is another one.
pub(crate) fn desired_state_changed(resource: &Resource, old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let counted =
        |key: &str| !matches!(key, "apiVersion" | "kind" | "metadata") && (key != "status" || !resource.has_status);
    let keys = old.keys().chain(new.keys());
    keys.filter(|key| counted(key)).any(|key| old.get(key) != new.get(key))
}

/// Whether nothing holds a terminating object any more.
pub(crate) fn may_go(resource: &Resource, object: &Value) -> bool {
    let held = resource.bucket == crate::store::NAMESPACES
        && object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    meta::finalizers(object).is_empty() && !held && grace.unwrap_or(0) == 0
}

/// `Invalid value: ...: field is immutable`.
pub(crate) fn immutable(field: &str, value: &Value) -> StatusCause {
    StatusCause::invalid(field, value, "field is immutable")
}

/// `{"type":...}` conditions helper: sets a condition, keeping its time while the status stays.
pub(crate) fn set_condition(conditions: &mut Vec<Value>, condition: Value, now: &str) {
    let existing = conditions.iter_mut().find(|c| c["type"] == condition["type"]);
    let mut condition = condition;
    if let Some(existing) = existing {
        let same = existing["status"] == condition["status"];
        condition["lastTransitionTime"] = if same { existing["lastTransitionTime"].clone() } else { json!(now) };
        *existing = condition;
    } else {
        condition["lastTransitionTime"] = now.into();
        conditions.push(condition);
    }
}
