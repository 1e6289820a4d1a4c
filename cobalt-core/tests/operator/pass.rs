use std::sync::Arc;

use cobalt_core::{
    api::{
        Condition, ConditionStatus, condition_types as types, labels, reasons,
        testing::{hypervisor, node},
    },
    operator::{Plan, Snapshot, Stage, default_stages, pass},
    runtime::fields::{FieldSet, Shape},
};
use serde_json::json;

use super::{owning, seen};

#[test]
fn the_default_list_syncs_first_and_judges_last() {
    let names: Vec<_> = default_stages().iter().map(|stage| stage.name()).collect();
    assert_eq!(names, ["hypervisor", "ovs", "taint", "ready"]);
}

#[test]
fn a_change_and_its_consequence_are_decided_in_one_pass() {
    let machine = node("node-1").with_condition(types::TERMINATING, ConditionStatus::True).build();
    let plan = pass::decide(&default_stages(), &seen(Some(machine), Some(hypervisor("node-1").onboarded().build())));
    assert_eq!(plan.condition(types::READY).unwrap().reason, reasons::TERMINATING);
}

#[test]
fn a_label_that_switches_lifecycle_on_is_judged_as_it_will_be() {
    let machine = node("node-1").with_label(labels::LIFECYCLE, "").build();
    let plan = pass::decide(&default_stages(), &seen(Some(machine), Some(hypervisor("node-1").unmanaged().build())));
    assert!(plan.condition(types::READY).unwrap().message.contains("waiting for nova-compute"));
}

#[test]
fn a_field_of_ours_that_nobody_decided_is_applied_as_observed() {
    let host = hypervisor("node-1").spec(|spec| spec.evacuate_on_reboot = Some(false)).build();
    let ours = json!({"spec": {"evacuateOnReboot": false, "aggregates": ["a"]}});
    let seen = owning(seen(None, Some(host)), &ours);
    let mut plan = Plan::new(&seen);
    plan.release("aggregates");
    let body = pass::main_body(&seen, &plan);
    assert_eq!(body["spec"], json!({"evacuateOnReboot": false}));
}

#[test]
fn a_field_somebody_else_has_changed_is_not_in_our_body() {
    let host = hypervisor("node-1").spec(|spec| spec.evacuate_on_reboot = Some(true)).build();
    let seen = owning(seen(None, Some(host)), &json!({"spec": {"lifecycleEnabled": false}}));
    let body = pass::main_body(&seen, &Plan::new(&seen));
    assert_eq!(body["spec"], json!({"lifecycleEnabled": true}), "as observed, and nothing of theirs");
}

#[test]
fn dropping_a_stage_from_the_list_deletes_no_condition() {
    struct Colour;
    impl Stage for Colour {
        fn name(&self) -> &'static str {
            "colour"
        }
        fn decide(&self, _: &Snapshot, plan: &mut Plan) {
            plan.set(Condition::new("Colour", ConditionStatus::True, "Blue", "cobalt"));
        }
    }
    let host = hypervisor("node-1")
        .with_condition(types::READY, ConditionStatus::False, reasons::ONBOARDING)
        .with_condition(types::LIBVIRT_CONNECTION, ConditionStatus::True, reasons::CONNECTED)
        .build();
    let mut seen = seen(None, Some(host));
    let ready = json!({"type": "Ready", "status": "False", "reason": "x", "message": "x", "lastTransitionTime": "x"});
    seen.owned_status = FieldSet::of(&json!({"status": {"conditions": [ready]}}), &Shape::default());
    let plan = pass::decide(&[Arc::new(Colour) as Arc<dyn Stage>], &seen);
    let body = pass::status_body(&seen, &plan);
    let types: Vec<_> = body["status"]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
    assert_eq!(types, ["Colour", "Ready"], "ours are kept, the agent's is not ours");
}

#[test]
fn a_removed_condition_leaves_the_body() {
    let host = hypervisor("node-1").with_condition(types::EVICTING, ConditionStatus::True, reasons::RUNNING).build();
    let mut seen = seen(None, Some(host));
    let evicting = json!({"type": "Evicting", "status": "True"});
    seen.owned_status = FieldSet::of(&json!({"status": {"conditions": [evicting]}}), &Shape::default());
    let mut plan = Plan::new(&seen);
    plan.remove(types::EVICTING);
    assert!(pass::status_body(&seen, &plan)["status"].get("conditions").is_none());
}

#[test]
fn only_news_is_told() {
    let host =
        hypervisor("node-1").unmanaged().with_condition(types::READY, ConditionStatus::False, reasons::ONBOARDING);
    let host = host.with_condition(types::TAINTED, ConditionStatus::False, reasons::NO_KUBECTL);
    let seen = seen(None, Some(host.build()));
    let plan = pass::decide(&default_stages(), &seen);
    assert_eq!(plan.transitions(seen.hypervisor.as_deref()).count(), 0, "the message changed, the reason did not");
    assert_eq!(plan.transitions(None).count(), 2);
}
