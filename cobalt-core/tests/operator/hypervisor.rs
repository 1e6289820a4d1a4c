use cobalt_core::{
    api::{
        ConditionStatus, Maintenance, condition_types as types, labels, reasons,
        testing::{MADE_AT, hypervisor, node},
    },
    operator::{HypervisorSync, Plan, Snapshot},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::json;

use super::{decide, owning, seen};

fn sync(seen: &Snapshot) -> Plan {
    decide(&HypervisorSync::default(), seen)
}

#[test]
fn a_new_node_gets_a_hypervisor_that_is_not_managed() {
    let plan = sync(&seen(Some(node("node-1").build()), None));
    assert!(plan.create);
    assert_eq!(plan.spec.lifecycle_enabled, Some(false), "explicit, because the CRD's default would onboard it");
    assert_eq!(plan.spec.skip_tests, Some(false));
    assert_eq!(plan.spec.evacuate_on_reboot, Some(false));
    assert_eq!(plan.spec.high_availability, Some(true));
    assert_eq!(plan.spec.install_certificate, Some(true));
    assert_eq!(plan.spec.maintenance, None);
    let owner = plan.owner.unwrap();
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.api_version.as_str()), ("Node", "node-1", "v1"));
    assert_eq!((owner.block_owner_deletion, owner.controller), (Some(true), None));
}

#[test]
fn the_lifecycle_label_switches_management_on_and_its_value_the_tests_off() {
    let ours = json!({"spec": {"lifecycleEnabled": true, "skipTests": true}});
    for (label, enabled, skip) in
        [(None, false, false), (Some(""), true, false), (Some("skip-tests"), true, true), (Some("yes"), true, false)]
    {
        let mut machine = node("node-1");
        if let Some(value) = label {
            machine = machine.with_label(labels::LIFECYCLE, value);
        }
        let plan = sync(&owning(seen(Some(machine.build()), Some(hypervisor("node-1").build())), &ours));
        assert_eq!((plan.spec.lifecycle_enabled, plan.spec.skip_tests), (Some(enabled), Some(skip)), "{label:?}");
    }
}

#[test]
fn without_the_label_only_what_came_from_it_is_switched_off() {
    let decided = |ours: serde_json::Value| {
        let plan = sync(&owning(seen(Some(node("node-1").build()), Some(hypervisor("node-1").build())), &ours));
        (plan.spec.lifecycle_enabled, plan.spec.skip_tests)
    };
    assert_eq!(decided(json!({})), (None, None), "a person manages it");
    assert_eq!(decided(json!({"spec": {"lifecycleEnabled": true}})), (Some(false), None), "a person skips the tests");
    assert_eq!(decided(json!({"spec": {"skipTests": true}})), (None, Some(false)));
}

#[test]
fn what_is_written_at_creation_is_left_alone_afterwards() {
    let plan = sync(&seen(Some(node("node-1").build()), Some(hypervisor("node-1").build())));
    assert!(!plan.create);
    assert_eq!(plan.spec.evacuate_on_reboot, None);
    assert_eq!(plan.spec.high_availability, None);
    assert_eq!(plan.spec.install_certificate, None);
}

#[test]
fn labels_follow_the_node_and_leave_with_it_if_they_are_ours() {
    let machine = node("node-1").with_label(labels::ZONE, "qa-1a").with_label("unrelated", "x").build();
    let host = hypervisor("node-1").with_label(labels::REGION, "qa").with_label(labels::WORKER_POOL, "p").build();
    let ours = json!({"metadata": {"labels": {labels::REGION: "qa"}}});
    let plan = sync(&owning(seen(Some(machine), Some(host)), &ours));
    assert_eq!(plan.labels().get(labels::ZONE), Some(&Some("qa-1a".to_owned())));
    assert_eq!(plan.labels().get(labels::REGION), Some(&None), "ours, and gone from the Node");
    assert_eq!(plan.labels().get(labels::WORKER_POOL), None, "somebody else's: left alone");
    assert_eq!(plan.labels().get("unrelated"), None);
}

#[test]
fn aggregates_come_from_the_annotation_with_the_zone_behind_them() {
    for (annotation, expected) in [
        ("a, b ,,c", vec!["a", "b", "c", "qa-1a"]),
        ("", vec!["qa-1a"]),
        ("qa-1a,b", vec!["qa-1a", "b"]),
        ("b,b", vec!["b", "qa-1a"]),
    ] {
        let machine = node("node-1")
            .with_label(labels::ZONE, "qa-1a")
            .with_annotation(labels::AGGREGATES_ANNOTATION, annotation)
            .build();
        let plan = sync(&seen(Some(machine), Some(hypervisor("node-1").build())));
        assert_eq!(plan.spec.aggregates.unwrap(), expected, "{annotation:?}");
    }
}

#[test]
fn a_removed_annotation_releases_the_list_only_if_it_is_ours() {
    let machine = || Some(node("node-1").build());
    let host = || {
        Some(
            hypervisor("node-1")
                .spec(|spec| {
                    spec.aggregates = Some(vec!["a".into()]);
                    spec.custom_traits = Some(vec!["CUSTOM_A".into()]);
                })
                .build(),
        )
    };
    let ours = json!({"spec": {"aggregates": ["a"], "customTraits": ["CUSTOM_A"]}});
    let released = sync(&owning(seen(machine(), host()), &ours));
    assert_eq!(released.released().iter().copied().collect::<Vec<_>>(), ["aggregates", "customTraits"]);
    let theirs = sync(&seen(machine(), host()));
    assert!(theirs.released().is_empty());
    assert_eq!((theirs.spec.aggregates, theirs.spec.custom_traits), (None, None));
}

#[test]
fn the_internal_address_of_a_dual_stack_node_does_not_flap() {
    let machine = || node("node-1").with_internal_ip("10.0.0.1").with_internal_ip("fd00::1").build();
    let address = |current: Option<&str>| {
        let host = hypervisor("node-1").status(|status| status.internal_ip = current.map(str::to_owned)).build();
        sync(&seen(Some(machine()), Some(host))).status.internal_ip
    };
    assert_eq!(address(None).as_deref(), Some("10.0.0.1"));
    assert_eq!(address(Some("10.0.0.1")).as_deref(), Some("10.0.0.1"));
    assert_eq!(address(Some("fd00::1")).as_deref(), Some("fd00::1"), "still one of the Node's");
    assert_eq!(address(Some("10.9.9.9")).as_deref(), Some("10.0.0.1"), "not the Node's any more");
}

#[test]
fn a_terminating_node_says_so_and_one_that_lives_again_takes_it_back() {
    let terminating = node("node-1").with_condition(types::TERMINATING, ConditionStatus::True).build();
    let plan = sync(&seen(Some(terminating.clone()), Some(hypervisor("node-1").build())));
    let condition = plan.condition(types::TERMINATING).unwrap();
    assert_eq!(
        (condition.status, condition.reason.as_str(), condition.message.as_str()),
        (ConditionStatus::True, reasons::TERMINATING, "Node is terminating")
    );
    assert_eq!(plan.spec.maintenance, Some(Maintenance::Termination));

    let born_dying = sync(&seen(Some(terminating), None));
    assert_eq!(born_dying.spec.maintenance, Some(Maintenance::Termination));

    let was = hypervisor("node-1").with_condition(types::TERMINATING, ConditionStatus::True, reasons::TERMINATING);
    let alive = sync(&seen(Some(node("node-1").build()), Some(was.build())));
    assert!(alive.condition(types::TERMINATING).unwrap().is_false());
    let never = sync(&seen(Some(node("node-1").build()), Some(hypervisor("node-1").build())));
    assert!(never.condition(types::TERMINATING).is_none());
}

#[test]
fn the_spec_of_a_terminating_hypervisor_is_not_touched_because_it_is_immutable() {
    let host = hypervisor("node-1").in_maintenance(Maintenance::Termination).build();
    let machine = node("node-1").with_annotation(labels::AGGREGATES_ANNOTATION, "new").build();
    let plan = sync(&seen(Some(machine), Some(host)));
    assert_eq!((plan.spec.lifecycle_enabled, plan.spec.aggregates.clone()), (None, None));
    assert!(plan.released().is_empty());
}

#[test]
fn a_terminating_node_takes_its_host_out_of_service_whatever_maintenance_it_is_in_but_ha() {
    use Maintenance::{Auto, Ha, Manual, Off, Termination};
    for (mode, expected) in [
        (Off, Some(Termination)),
        (Manual, Some(Termination)),
        (Auto, Some(Termination)),
        (Ha, None),
        (Termination, None),
    ] {
        let terminating = node("node-1").with_condition(types::TERMINATING, ConditionStatus::True).build();
        let host = hypervisor("node-1").in_maintenance(mode.clone()).build();
        let plan = sync(&seen(Some(terminating), Some(host)));
        assert_eq!(plan.spec.maintenance, expected, "{mode:?}");
        assert_eq!(plan.spec.maintenance_reason, None, "the words of who set the mode before stay theirs");
        assert!(!plan.released().contains("maintenance"));
    }
}

#[test]
fn a_node_that_somebody_waits_for_terminates_and_one_that_was_merely_deleted_does_not() {
    for (finalizer, expected) in
        [("machine.sapcloud.io/x", Some(Maintenance::Termination)), ("foregroundDeletion", None)]
    {
        let machine = || node("node-1").deleted().metadata(|meta| meta.finalizers = Some(vec![finalizer.into()]));
        let plan = sync(&seen(Some(machine().build()), Some(hypervisor("node-1").build())));
        assert_eq!(plan.spec.maintenance, expected, "{finalizer}");
        assert!(plan.condition(types::TERMINATING).unwrap().is_true(), "{finalizer}");
        let missing = sync(&seen(Some(machine().build()), None));
        assert_eq!(missing.create, expected.is_some(), "{finalizer}: it would hold its Node back");
    }
}

#[test]
fn termination_is_not_taken_back_because_the_spec_is_immutable_but_that_is_said() {
    let host = hypervisor("node-1")
        .in_maintenance(Maintenance::Termination)
        .with_condition(types::TERMINATING, ConditionStatus::True, reasons::TERMINATING)
        .build();
    let ours = json!({"spec": {"maintenance": "termination", "lifecycleEnabled": true}});
    let plan = sync(&owning(seen(Some(node("node-1").build()), Some(host)), &ours));
    assert_eq!(plan.spec.maintenance, None);
    assert!(plan.released().is_empty());
    let condition = plan.condition(types::TERMINATING).unwrap();
    assert!(condition.is_false() && condition.message.contains("for good"), "{}", condition.message);
}

#[test]
fn a_hypervisor_that_left_for_good_is_not_given_to_a_new_node_of_its_name() {
    let past = |mode| {
        let owner = OwnerReference { kind: "Node".into(), uid: "an earlier one".into(), ..OwnerReference::default() };
        let host = hypervisor("node-1").in_maintenance(mode);
        host.metadata(|meta| meta.owner_references = Some(vec![owner])).build()
    };
    let plan = sync(&seen(Some(node("node-1").build()), Some(past(Maintenance::Termination))));
    assert!(plan.owner.is_none() && plan.labels().is_empty(), "it is collected, and made anew");
    let plan = sync(&seen(Some(node("node-1").build()), Some(past(Maintenance::Manual))));
    assert!(plan.owner.is_some(), "one in service goes on with the new Node");
}

#[test]
fn a_hypervisor_that_is_being_deleted_is_left_alone() {
    let host = hypervisor("node-1").metadata(|meta| meta.deletion_timestamp = Some(Time(MADE_AT))).build();
    let plan = sync(&seen(Some(node("node-1").managed().build()), Some(host)));
    assert!(plan.owner.is_none() && plan.spec.lifecycle_enabled.is_none());
}

#[test]
fn without_a_node_nothing_is_decided() {
    let plan = sync(&seen(None, Some(hypervisor("node-1").build())));
    assert!(!plan.create && plan.labels().is_empty() && plan.owner.is_none());
    assert_eq!(plan.decided().count(), 0);
}
