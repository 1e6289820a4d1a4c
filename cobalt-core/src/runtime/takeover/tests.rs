#![allow(clippy::unwrap_used)]

use super::*;
use k8s_openapi::api::core::v1::Node;

const OURS: &str = "cobalt-operator";

fn managed(entries: Value) -> Vec<ManagedFieldsEntry> {
    serde_json::from_value(entries).unwrap()
}

fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: &Value) -> Value {
    let mut entry = json!({"apiVersion": "kvm.cloud.sap/v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
                           "manager": manager, "operation": operation, "time": "2026-01-01T00:00:00Z"});
    if let Some(subresource) = subresource {
        entry["subresource"] = json!(subresource);
    }
    entry
}

fn condition(type_: &str) -> String {
    format!("k:{{\"type\":\"{type_}\"}}")
}

#[test]
fn fields_written_by_merge_patch_become_ours() {
    let before = managed(json!([
        entry(
            "ready",
            "Update",
            Some("status"),
            &json!({"f:status": {"f:conditions": {".": {},
            condition("Ready"): {".": {}, "f:status": {}, "f:type": {}}}}})
        ),
        entry(
            "onboarding",
            "Update",
            Some("status"),
            &json!({"f:status": {"f:hypervisorId": {}, "f:conditions": {
            condition("Onboarding"): {".": {}, "f:type": {}}}}})
        ),
        entry("kvm-node-agent", "Update", Some("status"), &json!({"f:status": {"f:numInstances": {}}})),
        entry("hypervisor", "Update", None, &json!({"f:spec": {".": {}, "f:lifecycleEnabled": {}}})),
    ]));
    let take_over = TakeOver::from(["ready", "onboarding", "hypervisor"]);
    let after = take_over.rewrite(&before, OURS).unwrap();
    let expected = managed(json!([
        entry("kvm-node-agent", "Update", Some("status"), &json!({"f:status": {"f:numInstances": {}}})),
        entry(
            OURS,
            "Apply",
            Some("status"),
            &json!({"f:status": {"f:hypervisorId": {}, "f:conditions": {".": {},
            condition("Onboarding"): {".": {}, "f:type": {}},
            condition("Ready"): {".": {}, "f:status": {}, "f:type": {}}}}})
        ),
        entry(OURS, "Apply", None, &json!({"f:spec": {".": {}, "f:lifecycleEnabled": {}}})),
    ]));
    assert_eq!(after, expected);
    assert_eq!(take_over.rewrite(&after, OURS), None, "once is enough");
}

#[test]
fn what_we_own_already_stays_ours() {
    let before = managed(json!([
        entry(OURS, "Apply", None, &json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
        entry("hypervisor", "Update", None, &json!({"f:metadata": {"f:labels": {"f:b": {}}}})),
    ]));
    let after = TakeOver::from(["hypervisor"]).rewrite(&before, OURS).unwrap();
    let expected =
        managed(json!([entry(OURS, "Apply", None, &json!({"f:metadata": {"f:labels": {"f:a": {}, "f:b": {}}}}))]));
    assert_eq!(after, expected);
}

#[test]
fn excepted_fields_stay_with_whoever_has_them() {
    let fields = json!({"f:spec": {"f:overcommit": {"f:cpu": {}}, "f:groups": {}, "f:lifecycleEnabled": {}}});
    let before = managed(json!([entry("unknown", "Update", None, &fields)]));
    let take_over = TakeOver::from(["unknown"]).except(["spec.overcommit", "spec.groups"]);
    let after = take_over.rewrite(&before, OURS).unwrap();
    let left = json!({"f:spec": {"f:overcommit": {"f:cpu": {}}, "f:groups": {}}});
    let expected = managed(json!([
        entry("unknown", "Update", None, &left),
        entry(OURS, "Apply", None, &json!({"f:spec": {"f:lifecycleEnabled": {}}})),
    ]));
    assert_eq!(after, expected);
    assert!(!take_over.is_needed(&after, OURS), "an entry of excepted fields alone is left in peace");
}

#[test]
fn only_the_named_fields_are_taken_from_a_shared_manager() {
    let fields = json!({"f:spec": {"f:lifecycleEnabled": {}}, "f:metadata": {"f:annotations": {"f:note": {}}}});
    let before = managed(json!([entry("unknown", "Update", None, &fields)]));
    let after = TakeOver::from(["unknown"]).only(["spec"]).except(["spec.groups"]).rewrite(&before, OURS).unwrap();
    let expected = managed(json!([
        entry("unknown", "Update", None, &json!({"f:metadata": {"f:annotations": {"f:note": {}}}})),
        entry(OURS, "Apply", None, &json!({"f:spec": {"f:lifecycleEnabled": {}}})),
    ]));
    assert_eq!(after, expected);
}

#[test]
fn what_others_apply_is_never_taken() {
    let before = managed(json!([
        entry("hypervisor", "Apply", None, &json!({"f:spec": {"f:a": {}}})),
        entry("cortex", "Update", None, &json!({"f:spec": {"f:overcommit": {}}})),
    ]));
    assert_eq!(TakeOver::from(["hypervisor"]).rewrite(&before, OURS), None);
}

#[test]
fn our_own_updates_are_taken_over_too() {
    let before = managed(json!([entry(OURS, "Update", None, &json!({"f:spec": {"f:a": {}}}))]));
    let after = TakeOver::default().rewrite(&before, OURS).unwrap();
    assert_eq!(after, managed(json!([entry(OURS, "Apply", None, &json!({"f:spec": {"f:a": {}}}))])));
}

#[test]
fn the_patch_is_for_this_version_only() {
    let mut node = Node::default();
    node.metadata.resource_version = Some("17".into());
    node.metadata.managed_fields =
        Some(managed(json!([entry("old", "Update", None, &json!({"f:spec": {"f:a": {}}}))])));
    let patch = serde_json::to_value(TakeOver::from(["old"]).patch(&node, OURS).unwrap()).unwrap();
    assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "17"}));
    assert_eq!(patch[1]["path"], "/metadata/managedFields");
}

#[test]
fn compaction_keeps_what_decisions_need() {
    let mut node = Node::default();
    let all = managed(json!([
        entry("kubelet", "Update", Some("status"), &json!({"f:status": {"f:images": {}}})),
        entry(OURS, "Apply", None, &json!({"f:spec": {"f:a": {}}})),
        entry("old", "Update", None, &json!({"f:spec": {"f:b": {}}})),
        entry("old", "Apply", None, &json!({"f:spec": {"f:c": {}}})),
    ]));
    node.metadata.managed_fields = Some(all.clone());
    let take_over = TakeOver::from(["old"]);
    compact_managed_fields(&mut node, OURS, Some(&take_over));
    let kept = node.metadata.managed_fields.unwrap();
    assert_eq!(kept.len(), 2);
    assert_eq!(take_over.is_needed(&kept, OURS), take_over.is_needed(&all, OURS));
    let fields = |entries: &[ManagedFieldsEntry], who: &str| {
        fields_of(entries.iter().find(|entry| entry.manager.as_deref() == Some(who)).unwrap())
    };
    for who in [OURS, "old"] {
        assert_eq!(fields(&kept, who), fields(&all, who));
        assert!(!fields(&kept, who).is_empty());
    }
}
