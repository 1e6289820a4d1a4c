//! Replays recorded writes of a real server: who owns what afterwards, and how conflicts are worded.

use serde_json::{Value, json};

use crate::apply::{WriteInfo, apply, managed, settle, track_update};
use crate::patch;
use crate::schema::tests::wire::{APPLY, PATCH, Stored, Tally, VALIDATION, Write, records, schemas};
use crate::types::{builtin, same};

fn entries(object: &Value) -> Value {
    object.pointer("/metadata/managedFields").cloned().unwrap_or(Value::Null)
}

fn replay(text: &str) -> (Tally, Tally) {
    let schemas = schemas();
    let (mut stored, mut applies, mut updates) = (Stored::default(), Tally::default(), Tally::default());
    for record in &records(text) {
        if let Some(write) = Write::of(record)
            && let Some(types) = write.types()
            && record["response"]["trimmed"] != true
        {
            let live = stored.get(&write);
            if write.is_apply() {
                let outcome = apply(live, &write.sent, types, &write.info(), write.force);
                match (outcome, write.code) {
                    (Ok(mut object), 200..300) => {
                        if let (Some(live), Some(schema)) = (live, schemas.get(&write.kind)) {
                            schema.default_applied(&mut object);
                            // A status write leaves metadata alone, once it is recorded who wanted otherwise.
                            if write.on_status {
                                let owners = entries(&object);
                                object["metadata"] = live["metadata"].clone();
                                object["metadata"]["managedFields"] = owners;
                            }
                            settle(live, &mut object);
                        }
                        let (got, want) = (entries(&object), entries(write.answer));
                        applies.note(write.id, same(&got, &want), &got, &want);
                    }
                    (Err(error), 400..) if u64::from(error.code()) == write.code => {
                        let got = json!(error.to_string());
                        applies.note(write.id, got == write.answer["message"], &got, &write.answer["message"]);
                        if let crate::apply::ApplyError::Conflict(causes) = error {
                            let (got, want) = (json!(causes), &write.answer["details"]["causes"]);
                            applies.note(write.id, got == *want, &got, want);
                        }
                    }
                    // Left to the server: names, kinds, stale versions, validation, the format of times.
                    (Ok(_), 400 | 404 | 409 | 422) => {}
                    (Ok(_), 500)
                        if write.answer["message"].as_str().is_some_and(|text| text.contains("proper version")) => {}
                    (got, code) => applies.note(write.id, false, &got, &code),
                }
            } else if write.code < 300 && (write.code == 201 || live.is_some()) && write.id != "4.069-pod-ok" {
                // (That pod shows what admission added after the owners were recorded.)
                let mut object = write.answer.clone();
                managed::strip(&mut object);
                // Owners are recorded for what was asked, also where a status write will not get it.
                if schemas.contains_key(&write.kind) && write.on_status && write.sent["metadata"].is_object() {
                    patch::merge(&mut object, &json!({"metadata": write.sent["metadata"]}));
                }
                let sent = &write.sent["metadata"]["managedFields"];
                if !sent.is_null() {
                    object["metadata"]["managedFields"] = sent.clone();
                }
                track_update(live.filter(|_| write.code != 201), &mut object, types, &write.info()).unwrap();
                let (got, want) = (entries(&object), entries(write.answer));
                updates.note(write.id, same(&got, &want), &got, &want);
            }
        }
        stored.note(record);
    }
    (applies, updates)
}

#[test]
fn recorded_applies_own_what_the_real_server_recorded() {
    let (applies, updates) = replay(APPLY);
    applies.expect("applies", 98);
    updates.expect("updates", 8);
}

#[test]
fn recorded_patches_own_what_the_real_server_recorded() {
    let (_, updates) = replay(PATCH);
    updates.expect("updates", 65);
}

#[test]
fn recorded_creates_and_updates_own_what_the_real_server_recorded() {
    let (applies, updates) = replay(VALIDATION);
    applies.expect("applies", 2);
    updates.expect("updates", 46);
}

#[test]
fn a_recorded_scale_takes_the_replicas_and_has_no_time() {
    let records = records(APPLY);
    let answer = |id: &str| &records.iter().find(|record| record["id"] == id).unwrap()["response"]["body"];
    let (before, after) = (answer("3.104-deploy-m2-container"), answer("3.108-deploy-after-scale"));
    let mut object = after.clone();
    managed::strip(&mut object);
    let info = WriteInfo {
        manager: "scaler",
        api_version: "apps/v1",
        subresource: Some("scale"),
        time: "2026-03-01T00:00:09Z",
        reset: &["status"],
    };
    track_update(Some(before), &mut object, builtin("apps", "Deployment").unwrap(), &info).unwrap();
    assert_eq!(entries(&object), entries(after));
}
