//! The way from client-side to server-side apply, for kubectl only.
//!
//! `kubectl apply` without `--server-side` keeps what it applied in an annotation. When the same kubectl applies on
//! the server later, it conflicts with its own past; what the annotation shows as its own is therefore not a conflict.

use serde_json::Value;

use super::fieldset::FieldSet;
use super::managed;
use super::walk;
use crate::apply::check::{Duplicates, check};
use crate::types::{TypeNode, too_deep};

/// The field manager of kubectl's server-side apply; any other name opts out.
const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations of an object together may not be larger.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// What kubectl applied on the client and nobody changed since.
pub(super) fn tolerated(manager: &str, stored: &Value, types: &TypeNode) -> FieldSet {
    let Some(applied) = annotation(stored).filter(|_| manager == KUBECTL) else { return FieldSet::default() };
    let Ok(applied) = serde_json::from_str::<Value>(applied) else { return FieldSet::default() };
    if too_deep(&applied) || check(types, &applied, Duplicates::Allowed).is_some() {
        return FieldSet::default();
    }
    let changes = walk::compare(types, stored, &applied);
    walk::field_set(types, &applied).difference(&changes.taken()).difference(&changes.removed)
}

/// Keeps the annotation up to date, so that one can go back to client-side apply.
pub(super) fn sync(manager: &str, result: &mut Value, applied: &Value) {
    if manager != KUBECTL || annotation(result).is_none() {
        return;
    }
    let mut applied = applied.clone();
    managed::strip(&mut applied);
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let mut text = format!("{applied}\n");
    if text.len() > MAX_ANNOTATIONS {
        text.clear();
    }
    if let Some(annotations) = result.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(ANNOTATION.to_owned(), Value::from(text));
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}
