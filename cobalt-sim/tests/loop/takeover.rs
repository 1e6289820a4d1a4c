//! Objects that an earlier operator and agent wrote with merge patches.

use cobalt_core::api::{Condition, Hypervisor, labels};
use cobalt_sim::Region;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Rig, ready};

async fn write(rig: &Rig, manager: &str, status: bool, body: Value) {
    let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    let patch = Patch::Merge(body);
    let api = rig.hypervisors();
    if status { api.patch_status("hv-000", &params, &patch).await } else { api.patch("hv-000", &params, &patch).await }
        .unwrap();
}

/// A Hypervisor as the earlier programs leave it behind.
async fn left_behind(rig: &Rig) {
    let created = json!({
        "metadata": {"name": "hv-000", "labels": {labels::ZONE: "qa-1a", labels::WORKER_POOL: "blue"}},
        "spec": {
            "reboot": false, "evacuateOnReboot": false, "lifecycleEnabled": true, "skipTests": false,
            "customTraits": null, "aggregates": null, "allowedProjects": null, "highAvailability": true,
            "createCertManagerCertificate": false, "installCertificate": true,
        },
    });
    let params = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    let api: kube::Api<kube::core::DynamicObject> =
        kube::Api::all_with(rig.client.clone(), &kube::core::ApiResource::erase::<Hypervisor>(&()));
    let mut created = created;
    created["apiVersion"] = json!("kvm.cloud.sap/v1");
    created["kind"] = json!("Hypervisor");
    api.create(&params, &serde_json::from_value(created).unwrap()).await.unwrap();
    write(rig, "manager", false, json!({"spec": {"aggregates": ["a", "qa-1a"]}})).await;
    write(rig, "cortex", false, json!({"spec": {"overcommit": {"cpu": 2.0}}})).await;
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": reason,
               "lastTransitionTime": "2025-06-01T00:00:00Z"})
    };
    let onboarded = condition("Onboarding", "False", "Succeeded");
    write(
        rig,
        "onboarding",
        true,
        json!({"status": {"numInstances": 0, "hypervisorId": "h", "serviceId": "s",
        "conditions": [onboarded]}}),
    )
    .await;
    let all = json!([onboarded, condition("Ready", "True", "Ready")]);
    write(rig, "ready", true, json!({"status": {"conditions": all}})).await;
    write(rig, "manager", true, json!({"status": {"numInstances": 7, "libVirtVersion": "1.0.0"}})).await;
}

fn managers(hypervisor: &Hypervisor, field: &str) -> Vec<String> {
    let mut names: Vec<String> = hypervisor
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|entry| serde_json::to_string(&entry.fields_v1).unwrap().contains(field))
        .map(|entry| entry.manager.clone().unwrap_or_default())
        .collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_running_cloud_is_taken_over_without_changing_anything_that_matters() {
    let rig = Rig::new().await;
    left_behind(&rig).await;
    rig.add_node(
        "hv-000",
        json!({labels::LIFECYCLE: "", labels::ZONE: "qa-1a"}),
        json!({labels::AGGREGATES_ANNOTATION: "a"}),
    )
    .await;
    rig.operator();
    let region = Region::builder().hosts(1).vms_per_host(3).build();
    rig.agent(&region, &region.hosts()[0]);
    let taken = rig.until("hv-000", "reported", |hv| hv.is_true("LibVirtConnection")).await;
    rig.rest().await;

    // Facts survive, to the transition time.
    assert!(taken.is_false("Onboarding"));
    let ready = ready(&taken).unwrap();
    assert!(ready.is_true());
    let since = serde_json::to_value(ready).unwrap()["lastTransitionTime"].clone();
    assert_eq!(since, "2025-06-01T00:00:00Z");
    assert_eq!(taken.spec.aggregates(), ["a", "qa-1a"]);

    let taken = rig.hypervisors().get("hv-000").await.unwrap();
    assert_eq!(managers(&taken, "hypervisorId"), ["cobalt-operator"]);
    assert_eq!(managers(&taken, r#"{\"type\":\"Onboarding\"}"#), ["cobalt-operator"]);
    assert_eq!(managers(&taken, "overcommit"), ["cortex"]);
    assert_eq!(managers(&taken, "numInstances"), ["cobalt-node-agent"]);
    assert_eq!(taken.status.as_ref().unwrap().num_instances(), 3);

    // And removal works now, which co-ownership would have prevented.
    let labels = taken.metadata.labels.as_ref().unwrap();
    assert_eq!(labels.get(labels::WORKER_POOL), None, "the Node does not have it");
    rig.patch_node("hv-000", json!({"metadata": {"annotations": {labels::AGGREGATES_ANNOTATION: null}}})).await;
    rig.until("hv-000", "without aggregates", |hv| hv.spec.aggregates().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_annotation_was_gone_before_is_not_emptied() {
    let rig = Rig::new().await;
    left_behind(&rig).await;
    rig.add_node("hv-000", json!({labels::LIFECYCLE: "", labels::ZONE: "qa-1a"}), json!({})).await;
    rig.operator();
    rig.until("hv-000", "owned", |hv| hv.metadata.owner_references.is_some()).await;
    rig.rest().await;
    let after = rig.hypervisors().get("hv-000").await.unwrap();
    assert_eq!(after.spec.aggregates(), ["a", "qa-1a"]);
    assert_eq!(managers(&after, "aggregates"), ["manager"]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_managed_without_a_label_stays_managed() {
    let rig = Rig::new().await;
    left_behind(&rig).await;
    rig.add_node("hv-000", json!({labels::ZONE: "qa-1a"}), json!({})).await;
    rig.operator();
    rig.until("hv-000", "owned", |hv| hv.metadata.owner_references.is_some()).await;
    rig.rest().await;
    let after = rig.hypervisors().get("hv-000").await.unwrap();
    assert!(after.spec.lifecycle_enabled(), "nobody has asked for an end of its management");
    assert_eq!(managers(&after, "lifecycleEnabled"), ["manager"]);
    // A person goes on managing it.
    write(&rig, "kubectl-edit", false, json!({"spec": {"skipTests": true}})).await;
    rig.rest().await;
    let after = rig.hypervisors().get("hv-000").await.unwrap();
    assert!(after.spec.lifecycle_enabled() && after.spec.skip_tests());

    // A label makes both the Node's, and they go off with it.
    rig.patch_node("hv-000", json!({"metadata": {"labels": {labels::LIFECYCLE: "true"}}})).await;
    rig.until("hv-000", "the Node's", |hv| hv.spec.lifecycle_enabled() && !hv.spec.skip_tests()).await;
    rig.rest().await;
    rig.patch_node("hv-000", json!({"metadata": {"labels": {labels::LIFECYCLE: null}}})).await;
    rig.until("hv-000", "off", |hv| !hv.spec.lifecycle_enabled()).await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_two_managers_made_together_survives_the_take_over() {
    let rig = Rig::new().await;
    left_behind(&rig).await;
    let disabled = |status: &str, reason: &str| {
        json!([{"type": "HypervisorDisabled", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2025-06-01T00:00:00Z"}])
    };
    // Made by an external service under its own name, then flipped by an earlier controller: that one owns what it
    // changed, and not the key.
    let params = PatchParams::apply("kvm-ha-service");
    let made = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "status": {"numInstances": 7, "conditions": disabled("True", "Succeeded")}});
    rig.hypervisors().patch_status("hv-000", &params.force(), &Patch::Apply(made)).await.unwrap();
    let mut list = serde_json::to_value(rig.hypervisors().get("hv-000").await.unwrap().conditions()).unwrap();
    for condition in list.as_array_mut().unwrap() {
        if condition["type"] == "HypervisorDisabled" {
            condition["status"] = json!("False");
        }
    }
    write(&rig, "HypervisorMaintenance", true, json!({"status": {"conditions": list}})).await;

    rig.operator();
    rig.add_node("hv-000", json!({labels::LIFECYCLE: "", labels::ZONE: "qa-1b"}), json!({})).await;
    let taken = rig.until("hv-000", "owned", |hv| hv.metadata.owner_references.is_some()).await;
    rig.rest().await;
    assert!(ready(&taken).is_some());
    let after = rig.hypervisors().get("hv-000").await.unwrap();
    assert_eq!(after.status.as_ref().unwrap().internal_ip.as_deref(), Some("10.0.0.1"), "the status can be written");
    assert_eq!(managers(&after, "internalIp"), ["cobalt-operator"]);
    let condition = after.condition("HypervisorDisabled").unwrap();
    assert!(condition.is_false() && condition.reason == "Succeeded", "{condition:?}");
}

#[tokio::test(start_paused = true)]
async fn what_another_program_writes_under_a_common_name_stays_with_it() {
    let rig = Rig::new().await;
    left_behind(&rig).await;
    rig.operator();
    rig.add_node("hv-000", json!({labels::LIFECYCLE: "", labels::ZONE: "qa-1a"}), json!({})).await;
    rig.until("hv-000", "owned", |hv| hv.metadata.owner_references.is_some()).await;
    rig.rest().await;
    write(&rig, "manager", false, json!({"spec": {"maintenance": "auto", "maintenanceReason": "reboot"}})).await;
    rig.until("hv-000", "in maintenance", |hv| ready(hv).is_some_and(|ready| ready.reason == "Maintenance")).await;
    rig.rest().await;
    let after = rig.hypervisors().get("hv-000").await.unwrap();
    assert_eq!(managers(&after, "f:maintenance\""), ["manager"]);
    write(&rig, "manager", false, json!({"spec": {"maintenance": "", "maintenanceReason": null}})).await;
    rig.until("hv-000", "in service", |hv| ready(hv).is_some_and(Condition::is_true)).await;
}
