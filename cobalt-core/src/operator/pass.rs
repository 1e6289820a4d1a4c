//! One pass over one Hypervisor, without IO: stages in order, and the bodies of the writes that follow from the plan.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Plan, Snapshot, Stage};
use crate::{api::labels, publish};

/// Runs the stages in order over what was seen.
pub fn decide(stages: &[Arc<dyn Stage>], seen: &Snapshot) -> Plan {
    let mut plan = Plan::new(seen);
    for stage in stages {
        stage.decide(seen, &mut plan);
    }
    plan
}

/// The body of the apply to everything but the status: what is ours as observed, with the plan on top.
pub fn main_body(seen: &Snapshot, plan: &Plan) -> Value {
    let mut body = publish::ours(seen.hypervisor.as_deref(), &seen.owned);
    publish::overlay(&mut body, "spec", serde_json::to_value(&plan.spec).unwrap_or_default());
    let spec = publish::object(&mut body, "spec");
    for field in plan.released() {
        spec.remove(*field);
    }
    let metadata = publish::object(&mut body, "metadata");
    let own_labels = metadata.entry("labels").or_insert_with(|| json!({}));
    for (key, value) in plan.labels() {
        match (value, own_labels.as_object_mut()) {
            (Some(value), Some(labels)) => {
                labels.insert(key.clone(), json!(value));
            }
            (None, Some(labels)) => {
                labels.remove(key);
            }
            (_, None) => {}
        }
    }
    let no_labels = own_labels.as_object().is_none_or(serde_json::Map::is_empty);
    if no_labels {
        metadata.remove("labels");
    }
    // Whoever is to go and was not kept by any stage is let go: an operator without that stage must not hold it for ever.
    let held = plan.held().or_else(|| seen.is_leaving().then_some(false));
    match held {
        Some(true) => drop(metadata.insert("finalizers".into(), json!([labels::FINALIZER]))),
        Some(false) => drop(metadata.remove("finalizers")),
        None => {}
    }
    if let Some(owner) = &plan.owner {
        // One Node at a time; owners of other kinds that have become ours stay.
        let others = metadata.remove("ownerReferences");
        let others = others.iter().flat_map(|list| list.as_array().into_iter().flatten());
        let owners = others.filter(|other| other["kind"] != "Node").cloned().chain([json!(owner)]);
        let owners: Vec<Value> = owners.collect();
        metadata.insert("ownerReferences".into(), owners.into());
    }
    for section in ["metadata", "spec"] {
        if body[section].as_object().is_some_and(serde_json::Map::is_empty)
            && let Some(body) = body.as_object_mut()
        {
            body.remove(section);
        }
    }
    body
}

/// Whether a body says nothing.
pub fn is_empty(body: &Value) -> bool {
    body.as_object().is_none_or(serde_json::Map::is_empty)
}

/// The body of the apply to the status.
pub fn status_body(seen: &Snapshot, plan: &Plan) -> Value {
    publish::status_body(seen.hypervisor.as_deref(), &seen.owned_status, &plan.status, plan.decided(), |type_| {
        plan.is_removed(type_)
    })
}
