use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::api::{Maintenance, labels};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{Rig, ready, reason};

#[tokio::test(start_paused = true)]
async fn a_node_becomes_a_hypervisor_that_is_not_managed_and_not_ready() {
    let rig = Rig::new().await;
    rig.operator();
    rig.add_node("hv-1", json!({labels::ZONE: "qa-1a", "other": "x"}), json!({})).await;
    let made = rig.until("hv-1", "judged", |hv| ready(hv).is_some()).await;

    assert_eq!(made.spec.lifecycle_enabled, Some(false));
    assert_eq!(made.spec.evacuate_on_reboot, Some(false));
    assert_eq!((made.spec.high_availability, made.spec.install_certificate), (Some(true), Some(true)));
    let labels = made.metadata.labels.as_ref().unwrap();
    assert_eq!(labels.get(labels::ZONE).map(String::as_str), Some("qa-1a"));
    assert_eq!(labels.get("other"), None);
    let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", "hv-1"));
    assert_eq!(made.status.as_ref().unwrap().internal_ip.as_deref(), Some("10.0.0.1"));
    let ready = ready(&made).unwrap();
    assert!(ready.is_false());
    assert_eq!(ready.message, "Onboarding not started: lifecycle management is disabled");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_virt_driver_label_gets_none() {
    let rig = Rig::new().await;
    rig.operator();
    let plain = json!({"metadata": {"name": "plain"}});
    rig.nodes().create(&kube::api::PostParams::default(), &serde_json::from_value(plain).unwrap()).await.unwrap();
    rig.add_node("hv-1", json!({}), json!({})).await;
    rig.until("hv-1", "made", |_| true).await;
    rig.rest().await;
    assert!(rig.hypervisors().get_opt("plain").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_are_followed_both_ways() {
    let rig = Rig::new().await;
    rig.operator();
    rig.add_node("hv-1", json!({}), json!({})).await;
    rig.until("hv-1", "made", |hv| ready(hv).is_some()).await;

    rig.patch_node(
        "hv-1",
        json!({"metadata": {
            "labels": {labels::LIFECYCLE: "skip-tests", labels::ZONE: "qa-1a", labels::WORKER_POOL: "blue"},
            "annotations": {labels::AGGREGATES_ANNOTATION: "a,b", labels::CUSTOM_TRAITS_ANNOTATION: "CUSTOM_X"},
        }}),
    )
    .await;
    let on = rig.until("hv-1", "managed", |hv| hv.spec.lifecycle_enabled()).await;
    assert!(on.spec.skip_tests());
    assert_eq!(on.spec.aggregates(), ["a", "b", "qa-1a"]);
    assert_eq!(on.spec.custom_traits(), ["CUSTOM_X"]);

    rig.patch_node(
        "hv-1",
        json!({"metadata": {
            "labels": {labels::LIFECYCLE: null, labels::WORKER_POOL: null},
            "annotations": {labels::AGGREGATES_ANNOTATION: null, labels::CUSTOM_TRAITS_ANNOTATION: null},
        }}),
    )
    .await;
    let off = rig.until("hv-1", "not managed any more", |hv| !hv.spec.lifecycle_enabled()).await;
    assert!(!off.spec.skip_tests());
    assert!(off.spec.aggregates().is_empty() && off.spec.custom_traits().is_empty());
    let labels = off.metadata.labels.unwrap();
    assert_eq!(labels.get(labels::WORKER_POOL), None);
    assert_eq!(labels.get(labels::ZONE).map(String::as_str), Some("qa-1a"));
}

#[tokio::test(start_paused = true)]
async fn one_new_node_costs_two_writes_and_rest_costs_none() {
    let rig = Rig::new().await;
    rig.operator();
    for n in 0..20 {
        rig.add_node(&format!("hv-{n}"), json!({labels::LIFECYCLE: ""}), json!({})).await;
    }
    for n in 0..20 {
        rig.until(&format!("hv-{n}"), "judged", |hv| {
            hv.status.as_ref().is_some_and(|status| status.internal_ip.is_some()) && ready(hv).is_some()
        })
        .await;
    }
    rig.rest().await;
    let made = rig.counts("operator");
    // The object and its status; a Node's address may arrive after its labels and cost one more.
    assert!((40..=60).contains(&made.writes), "{made:?}");

    rig.an_hour_of_rest(&[("operator", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_the_cache_has_not_heard_of_is_not_made_a_second_time() {
    let rig = Rig::new().await;
    // The operator hears of Hypervisors five seconds late, and of Nodes at once.
    rig.server.faults().set([Fault::new(
        Matcher::client("operator").verb(Verb::Watch).resource("hypervisors.kvm.cloud.sap"),
        Effect::LagWatch { millis: 5000 },
    )]);
    rig.operator();
    rig.add_node("hv-1", json!({}), json!({})).await;
    rig.until("hv-1", "judged", |hv| ready(hv).is_some()).await;
    let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let edit = Patch::Merge(json!({"spec": {"highAvailability": false, "evacuateOnReboot": true}}));
    rig.hypervisors().patch("hv-1", &params, &edit).await.unwrap();
    rig.patch_node("hv-1", json!({"metadata": {"labels": {labels::ZONE: "qa-1a"}}})).await;
    rig.until("hv-1", "labelled", |hv| hv.metadata.labels.as_ref().is_some_and(|l| l.contains_key(labels::ZONE))).await;
    rig.rest().await;
    let after = rig.hypervisors().get("hv-1").await.unwrap();
    assert_eq!((after.spec.high_availability, after.spec.evacuate_on_reboot), (Some(false), Some(true)));
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_without_a_node_is_judged_and_otherwise_left_alone() {
    let rig = Rig::new().await;
    rig.operator();
    let alone =
        json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "alone"}, "spec": {}});
    let api: kube::Api<kube::core::DynamicObject> =
        kube::Api::all_with(rig.client.clone(), &kube::core::ApiResource::erase::<cobalt_core::api::Hypervisor>(&()));
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(alone).unwrap()).await.unwrap();
    rig.until("alone", "judged", |hv| ready(hv).is_some()).await;
    rig.rest().await;
    rig.server.counters().reset();
    // Somebody else's writes do not make ours.
    for n in 0..3 {
        let params = PatchParams { field_manager: Some("somebody".into()), ..PatchParams::default() };
        let body = Patch::Merge(json!({"metadata": {"labels": {"n": n.to_string()}}}));
        rig.hypervisors().patch("alone", &params, &body).await.unwrap();
        rig.rest().await;
    }
    assert_eq!(rig.counts("operator").requests, 0);
}

#[tokio::test(start_paused = true)]
async fn fields_of_the_scheduler_and_of_people_are_left_alone() {
    let rig = Rig::new().await;
    rig.operator();
    rig.add_node("hv-1", json!({}), json!({})).await;
    rig.until("hv-1", "made", |hv| ready(hv).is_some()).await;
    let patch = |manager: &str, body| {
        let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let api = rig.hypervisors();
        async move { api.patch("hv-1", &params, &Patch::Merge(body)).await.unwrap() }
    };
    patch("cortex", json!({"spec": {"overcommit": {"cpu": 4.0}, "groups": [{"trait": {"name": "T"}}]}})).await;
    patch("kubectl-edit", json!({"spec": {"evacuateOnReboot": true, "highAvailability": false}})).await;
    // Something for the operator to write afterwards.
    rig.patch_node("hv-1", json!({"metadata": {"labels": {labels::LIFECYCLE: ""}}})).await;
    rig.until("hv-1", "managed", |hv| hv.spec.lifecycle_enabled()).await;
    rig.rest().await;
    let after = rig.hypervisors().get("hv-1").await.unwrap();
    assert_eq!(after.spec.overcommit("cpu").to_string(), "4");
    assert_eq!(after.spec.groups().len(), 1);
    assert_eq!((after.spec.evacuate_on_reboot, after.spec.high_availability), (Some(true), Some(false)));
    let ours = after.metadata.managed_fields.unwrap();
    let ours =
        ours.iter().find(|entry| entry.manager.as_deref() == Some("cobalt-operator") && entry.subresource.is_none());
    let fields = serde_json::to_string(&ours.unwrap().fields_v1).unwrap();
    assert!(
        !fields.contains("overcommit") && !fields.contains("groups") && !fields.contains("highAvailability"),
        "{fields}"
    );
    assert!(fields.contains("installCertificate"), "written at creation and still ours: {fields}");
}

#[tokio::test(start_paused = true)]
async fn termination_is_seen_and_a_deleted_node_takes_its_hypervisor_along() {
    let rig = Rig::new().await;
    rig.operator();
    rig.add_node("hv-1", json!({}), json!({})).await;
    rig.add_node("hv-10", json!({}), json!({})).await;
    rig.until("hv-1", "made", |hv| ready(hv).is_some()).await;
    rig.until("hv-10", "made", |hv| ready(hv).is_some()).await;

    let terminating = json!([{"type": "Terminating", "status": "True", "reason": "x", "message": "x"}]);
    rig.patch_node_status("hv-1", json!({"conditions": terminating})).await;
    let seen = rig.until("hv-1", "terminating", |hv| hv.is_true("Terminating")).await;
    assert_eq!(reason(&seen, "Ready"), Some("Terminating"), "cause and consequence in one write");

    rig.nodes().delete("hv-1", &DeleteParams::background()).await.unwrap();
    rig.rest().await;
    rig.server.settle().await;
    assert!(rig.hypervisors().get_opt("hv-1").await.unwrap().is_none());
    assert!(rig.hypervisors().get_opt("hv-10").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_terminating_from_the_start_gets_a_hypervisor_on_its_way_out() {
    let rig = Rig::new().await;
    rig.add_node("hv-1", json!({labels::LIFECYCLE: ""}), json!({})).await;
    let terminating = json!([{"type": "Terminating", "status": "True", "reason": "x", "message": "x"}]);
    rig.patch_node_status("hv-1", json!({"conditions": terminating})).await;
    rig.operator();
    let made = rig.until("hv-1", "judged", |hv| ready(hv).is_some()).await;
    assert_eq!(made.spec.maintenance(), &Maintenance::Termination);
    // Its spec is immutable now; the operator must get along with that when the Node changes.
    rig.patch_node("hv-1", json!({"metadata": {"labels": {labels::LIFECYCLE: null, labels::ZONE: "qa-1a"}}})).await;
    rig.until("hv-1", "labelled", |hv| hv.metadata.labels.as_ref().is_some_and(|l| l.contains_key(labels::ZONE))).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_by_hand_is_shown_with_the_generation_it_made() {
    let rig = Rig::new().await;
    rig.operator();
    rig.add_node("hv-1", json!({}), json!({})).await;
    let made = rig.until("hv-1", "judged", |hv| reason(hv, "Tainted") == Some("NoKubectl")).await;
    assert_eq!(made.condition("Tainted").unwrap().observed_generation, made.metadata.generation);
    let edit = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"version": "1"}}));
    rig.hypervisors().patch("hv-1", &edit, &patch).await.unwrap();
    let tainted = rig.until("hv-1", "tainted", |hv| reason(hv, "Tainted") == Some("Kubectl")).await;
    assert!(tainted.condition("Tainted").unwrap().is_true());
    assert_eq!(tainted.condition("Tainted").unwrap().observed_generation, tainted.metadata.generation);
    assert!(tainted.metadata.generation > made.metadata.generation);
    rig.rest().await;
    let after = rig.hypervisors().get("hv-1").await.unwrap();
    assert_eq!(after.metadata.resource_version, tainted.metadata.resource_version);
}
