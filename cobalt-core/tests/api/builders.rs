//! The builders make objects that a program cannot tell from real ones.

use cobalt_core::api::testing::{eviction, hypervisor, node};
use cobalt_core::api::{ConditionStatus, Hypervisor, Maintenance, condition_types, labels, reasons};

#[test]
fn a_hypervisor_reads_as_the_sentence_that_built_it() {
    let host = hypervisor("node-1").ready().in_maintenance(Maintenance::Manual).with_instances(2).build();
    assert!(host.is_true(condition_types::READY) && host.is_false(condition_types::ONBOARDING));
    assert_eq!(host.spec.maintenance(), &Maintenance::Manual);
    assert!(host.spec.maintenance_reason.as_ref().is_some_and(|reason| !reason.is_empty()));
    let status = host.status.as_ref().unwrap();
    assert_eq!((status.num_instances(), status.instances().len()), (2, 2));
    assert_ne!(status.hypervisor_id, status.service_id);
}

#[test]
fn a_built_object_survives_the_wire_and_is_the_same_every_time() {
    let build = || hypervisor("node-1").onboarding(reasons::TESTING).unmanaged().build();
    let read: Hypervisor = serde_json::from_value(serde_json::to_value(build()).unwrap()).unwrap();
    assert_eq!(read, build());
    assert_ne!(build().metadata.uid, hypervisor("node-10").build().metadata.uid);
}

#[test]
fn a_node_has_what_it_was_given() {
    let machine = node("node-1")
        .managed()
        .with_annotation(labels::CUSTOM_TRAITS_ANNOTATION, "CUSTOM_A")
        .with_internal_ip("10.0.0.1")
        .with_internal_ip("fd00::1")
        .with_condition(condition_types::TERMINATING, ConditionStatus::True)
        .with_taint(labels::OFFBOARDING_TAINT, "NoExecute")
        .deleted()
        .build();
    let labels_of = machine.metadata.labels.unwrap();
    assert!(labels_of.contains_key(labels::VIRT_DRIVER) && labels_of.contains_key(labels::LIFECYCLE));
    assert!(machine.metadata.deletion_timestamp.is_some());
    let status = machine.status.unwrap();
    let addresses: Vec<_> = status.addresses.unwrap().into_iter().map(|address| address.address).collect();
    assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
    assert_eq!(status.conditions.unwrap()[0].status, "True");
    assert_eq!(machine.spec.unwrap().taints.unwrap()[0].key, labels::OFFBOARDING_TAINT);
}

#[test]
fn an_eviction_ends_in_success_or_failure() {
    let reason =
        |eviction: cobalt_core::api::Eviction| eviction.condition(condition_types::EVICTING).unwrap().reason.clone();
    assert_eq!(reason(eviction("node-1").running().succeeded().build()), reasons::SUCCEEDED);
    assert_eq!(reason(eviction("node-1").running().failed().build()), reasons::FAILED);
}
