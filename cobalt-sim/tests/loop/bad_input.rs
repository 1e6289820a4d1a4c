//! Objects that cannot be read leave everything else running.

use cobalt_core::api::crd;
use serde_json::{Value, json};

use super::{Rig, ready};

/// The Hypervisor CRD as a careless administrator might install it: without any schema.
fn without_schema() -> impl Iterator<Item = Value> {
    crd::all().into_iter().map(|crd| {
        let mut crd = serde_json::to_value(crd).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        crd
    })
}

#[tokio::test(start_paused = true)]
async fn a_malformed_hypervisor_is_shown_and_never_overwritten_and_the_others_go_on() {
    let rig = Rig::with_crds(without_schema()).await;
    let api: kube::Api<kube::core::DynamicObject> =
        kube::Api::all_with(rig.client.clone(), &kube::core::ApiResource::erase::<cobalt_core::api::Hypervisor>(&()));
    let broken = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "metadata": {"name": "hv-broken"}, "spec": {"lifecycleEnabled": "perhaps"},
    });
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(broken).unwrap()).await.unwrap();
    rig.operator();
    rig.add_node("hv-broken", json!({}), json!({})).await;
    rig.add_node("hv-fine", json!({}), json!({})).await;
    rig.until("hv-fine", "judged", |hv| ready(hv).is_some()).await;
    rig.rest().await;

    let after = api.get("hv-broken").await.unwrap();
    assert_eq!(after.data["spec"], json!({"lifecycleEnabled": "perhaps"}), "not ours to guess about");
    let shown = serde_json::to_value(rig.status.report()).unwrap();
    let malformed =
        &shown["watches"].as_array().unwrap().iter().find(|w| w["kind"] == "Hypervisor").unwrap()["malformed"];
    assert_eq!(malformed[0]["name"], "hv-broken");
    assert!(malformed[0]["error"].as_str().unwrap().contains("spec.lifecycleEnabled"), "{malformed}");

    // Mended by its author, it is taken up at once.
    let params = kube::api::PatchParams::default();
    let mend = kube::api::Patch::Merge(json!({"spec": {"lifecycleEnabled": false}}));
    api.patch("hv-broken", &params, &mend).await.unwrap();
    rig.until("hv-broken", "judged", |hv| ready(hv).is_some()).await;
}
