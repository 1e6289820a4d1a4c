//! What is written is what was set, and nothing else.

use cobalt_core::api::{
    Apply, Condition, ConditionStatus, Eviction, EvictionSpec, EvictionStatus, Hypervisor, HypervisorSpec,
    HypervisorStatus, Maintenance, MigrationStatus, OVSNode, OVSNodeStatus, Quantity, ResourceList, resources,
};
use serde_json::json;

#[test]
fn an_empty_status_is_written_as_an_empty_object() {
    let empty = json!({});
    assert_eq!(serde_json::to_value(HypervisorStatus::default()).unwrap(), empty);
    assert_eq!(serde_json::to_value(EvictionStatus::default()).unwrap(), empty);
    assert_eq!(serde_json::to_value(MigrationStatus::default()).unwrap(), empty);
    assert_eq!(serde_json::to_value(OVSNodeStatus::default()).unwrap(), empty);
    assert_eq!(serde_json::to_value(HypervisorSpec::default()).unwrap(), empty);
}

#[test]
fn an_empty_list_is_written_when_it_was_set() {
    let spec = HypervisorSpec { custom_traits: Some(Vec::new()), ..HypervisorSpec::default() };
    assert_eq!(serde_json::to_value(spec).unwrap(), json!({"customTraits": []}));
}

#[test]
fn maintenance_is_ended_by_an_empty_word_and_left_alone_by_silence() {
    let off = HypervisorSpec { maintenance: Some(Maintenance::Off), ..HypervisorSpec::default() };
    assert_eq!(serde_json::to_value(off).unwrap(), json!({"maintenance": ""}));
}

#[test]
fn an_apply_to_the_status_carries_no_spec() {
    let capacity = ResourceList::from([
        (resources::CPU.to_owned(), Quantity::cpus(128)),
        (resources::MEMORY.to_owned(), Quantity::bytes(512 << 30)),
    ]);
    let status = HypervisorStatus {
        capacity: Some(capacity),
        conditions: vec![Condition::new("Ready", ConditionStatus::True, "Ready", "Hypervisor is ready")],
        ..HypervisorStatus::default()
    };
    let body = Apply::<Hypervisor>::to("node-1").at_version(Some("7".into())).status(status);
    assert_eq!(
        serde_json::to_value(body).unwrap(),
        json!({
            "apiVersion": "kvm.cloud.sap/v1",
            "kind": "Hypervisor",
            "metadata": {"name": "node-1", "resourceVersion": "7"},
            "status": {
                "capacity": {"cpu": "128", "memory": "512Gi"},
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Ready", "message": "Hypervisor is ready"},
                ],
            },
        })
    );
}

#[test]
fn an_apply_can_carry_labels_and_a_namespace() {
    let mut body = Apply::<OVSNode>::to("node-1").in_namespace("ovn-system");
    body.metadata.labels = Some([("zone".to_owned(), "a".to_owned())].into());
    assert_eq!(
        serde_json::to_value(body).unwrap(),
        json!({
            "apiVersion": "ovs.c5c3.io/v1alpha1",
            "kind": "OVSNode",
            "metadata": {"name": "node-1", "namespace": "ovn-system", "labels": {"zone": "a"}},
        })
    );
}

#[test]
fn a_whole_object_is_written_as_the_api_server_wants_it_on_create() {
    let eviction = Eviction::new("node-1", EvictionSpec { hypervisor: "node-1".into(), reason: "disk swap".into() });
    assert_eq!(
        serde_json::to_value(eviction).unwrap(),
        json!({
            "apiVersion": "kvm.cloud.sap/v1",
            "kind": "Eviction",
            "metadata": {"name": "node-1"},
            "spec": {"hypervisor": "node-1", "reason": "disk swap"},
        })
    );
}
