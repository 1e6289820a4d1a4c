//! Replays recorded writes of a real server against the schemas it had.

use serde_json::{Value, json};

use super::wire::{APPLY, CRDS, PATCH, Stored, Tally, VALIDATION, Write, narrowed_schema, records, schemas};
use crate::apply::apply;
use crate::patch;
use crate::schema::{Part, Schema};
use crate::types::{canonical_numbers, same};

/// The object a write asks for: patched, pruned, defaulted, with the part kept that it cannot change.
fn wanted(write: &Write<'_>, live: Option<&Value>, schema: &Schema) -> Option<Value> {
    let mut object = match (write.method, write.media) {
        ("POST" | "PUT", _) => write.sent.clone(),
        (_, media) if media.contains("apply-patch") => {
            let mut object = apply(live, &write.sent, schema.types(), &write.info(), write.force).ok()?;
            schema.default_applied(&mut object);
            return Some(object);
        }
        (_, media) if media.contains("merge-patch") => {
            let mut object = live?.clone();
            patch::merge(&mut object, &write.sent);
            object
        }
        _ => patch::json(live?, &write.sent).ok()?,
    };
    schema.prune(&mut object);
    schema.default(&mut object);
    let kept = if write.on_status { "spec" } else { "status" };
    let map = object.as_object_mut()?;
    match live.and_then(|live| live.get(kept)) {
        Some(value) => map.insert(kept.to_owned(), value.clone()),
        None => map.remove(kept),
    };
    Some(object)
}

fn sorted(causes: &Value) -> Vec<String> {
    let mut causes: Vec<String> = causes.as_array().into_iter().flatten().map(Value::to_string).collect();
    causes.sort();
    causes
}

/// What this layer answers for: the rest of an object is metadata.
fn content(object: &Value) -> Value {
    json!({"spec": object["spec"], "status": object["status"]})
}

/// Metadata and request parameters are validated elsewhere.
fn concerns_us(causes: &Value) -> bool {
    let elsewhere = ["kind", "fieldValidation", "patch", "fieldManager", "force"];
    causes.as_array().is_some_and(|causes| {
        causes
            .iter()
            .filter_map(|cause| cause["field"].as_str())
            .all(|field| !field.starts_with("metadata") && !elsewhere.contains(&field))
    })
}

fn replay(text: &str) -> Tally {
    let (schemas, narrowed) = (schemas(), narrowed_schema());
    let (mut stored, mut tally) = (Stored::default(), Tally::default());
    for record in &records(text) {
        if let Some(write) = Write::of(record)
            && let Some(mut schema) = schemas.get(&write.kind)
        {
            let mut live = stored.get(&write).cloned();
            if write.id.contains("ratchet") {
                schema = &narrowed;
                // How the object came to be is not recorded.
                live = live.or_else(|| {
                    let mut object =
                        json!({"metadata": {"name": "r1"}, "spec": {"maintenance": "auto", "version": "1"}});
                    narrowed.default(&mut object);
                    Some(object)
                });
            }
            let relevant = write.code < 300 || (write.code == 422 && concerns_us(&write.answer["details"]["causes"]));
            if relevant && let Some(mut object) = wanted(&write, live.as_ref(), schema) {
                let part = if write.on_status { Part::Status } else { Part::Whole };
                let errors = json!(schema.validate_part(part, &object, live.as_ref(), Vec::new()));
                if write.code == 422 {
                    let (got, want) = (sorted(&errors), sorted(&write.answer["details"]["causes"]));
                    tally.note(write.id, got == want, &got, &want);
                } else {
                    canonical_numbers(&mut object);
                    let (got, want) = (content(&object), content(write.answer));
                    let agrees = same(&got, &want) && errors == json!([]);
                    tally.note(write.id, agrees, &(got, errors), &want);
                }
            }
        }
        stored.note(record);
    }
    tally
}

#[test]
fn recorded_writes_are_pruned_defaulted_and_validated_alike() {
    replay(VALIDATION).expect("validation", 90);
}

#[test]
fn recorded_applies_give_the_recorded_objects() {
    replay(APPLY).expect("apply", 51);
}

#[test]
fn recorded_patches_give_the_recorded_objects() {
    replay(PATCH).expect("patch", 25);
}

#[test]
fn recorded_bad_definitions_are_refused_alike() {
    let mut tally = Tally::default();
    for record in &records(CRDS) {
        let id = record["id"].as_str().unwrap();
        let causes = &record["response"]["body"]["details"]["causes"];
        let ours = causes.as_array().is_some_and(|causes| {
            causes.iter().all(|cause| cause["field"].as_str().is_some_and(|field| field.starts_with("spec.validation")))
        });
        // The cost of rules is not estimated.
        if ours && !id.contains("cost") {
            let schema = &record["request"]["body"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let (got, want) = (sorted(&json!(Schema::compile(schema).err().unwrap_or_default())), sorted(causes));
            tally.note(id, got == want, &got, &want);
        }
    }
    tally.expect("definitions", 4);
}
