//! Every hypervisor Node gets a certificate, where there is somebody who makes them.

use std::{sync::Arc, time::Duration};

use cobalt_core::operator::{CertificateSettings, HypervisorSync, Settings, Stage};
use cobalt_sim::Region;
use k8s_openapi::{
    api::core::v1::{Namespace, Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::Rig;

fn certificates(rig: &Rig) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    Api::namespaced_with(rig.client.clone(), "monsoon3", &kind)
}

async fn rig() -> Rig {
    let rig = Rig::new(Region::builder().hosts(2).build()).await;
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "monsoon3"}})).unwrap();
    Api::all(rig.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    rig
}

async fn install_cert_manager(rig: &Rig) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": "Certificate", "plural": "certificates", "singular": "certificate"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    }))
    .unwrap();
    Api::all(rig.client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    rig.cluster.server().settle().await;
}

fn operator(rig: &Rig) {
    let mut settings = Settings::default();
    settings.certificates = Some(CertificateSettings::default());
    let stages: Vec<Arc<dyn Stage>> = vec![Arc::new(HypervisorSync::default())];
    tokio::spawn(rig.new_operator(settings).stages(stages).run(rig.stop.clone()));
}

async fn certified(rig: &Rig, node: &str) -> DynamicObject {
    let name = format!("libvirt-{node}");
    rig.wait("certified", async || certificates(rig).get_opt(&name).await.unwrap().is_some()).await;
    certificates(rig).get(&name).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_gets_a_certificate_and_keeps_it_as_it_should_be() {
    let rig = rig().await;
    install_cert_manager(&rig).await;
    operator(&rig);
    rig.cluster.join_all().await.unwrap();
    let host = rig.region.hosts().remove(0);
    let made = certified(&rig, host.as_str()).await;
    certified(&rig, rig.region.hosts()[1].as_str()).await;
    assert_eq!(made.data["spec"]["secretName"], format!("tls-libvirt-{host}"));
    assert_eq!(made.owner_references()[0].kind, "Node");
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.at_rest(Duration::from_secs(3600)).await;

    // Another address, and a hand that meddles.
    rig.cluster.set_internal_ips(&host, &["10.9.9.9".parse().unwrap()]).await.unwrap();
    let name = format!("libvirt-{host}");
    let addressed = async || certificates(&rig).get(&name).await.unwrap().data["spec"]["ipAddresses"].clone();
    rig.wait("addressed anew", async || addressed().await == json!(["10.9.9.9"])).await;
    let meddled = Patch::Merge(json!({"spec": {"duration": "1h0m0s"}}));
    certificates(&rig).patch(&name, &PatchParams::default(), &meddled).await.unwrap();
    rig.wait("mended", async || certificates(&rig).get(&name).await.unwrap().data["spec"]["duration"] == "1128h0m0s")
        .await;
    rig.cluster.remove(&host).await.unwrap();
    rig.wait("gone with its Node", async || certificates(&rig).get_opt(&name).await.unwrap().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_cert_manager_is_none_the_worse_and_may_get_one() {
    let rig = rig().await;
    operator(&rig);
    rig.cluster.join_all().await.unwrap();
    let host = rig.region.hosts().remove(0);
    rig.until(&host, "made", |_| true).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    install_cert_manager(&rig).await;
    certified(&rig, host.as_str()).await;
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_an_earlier_operator_becomes_ours_without_a_new_one() {
    let rig = rig().await;
    install_cert_manager(&rig).await;
    rig.cluster.join_all().await.unwrap();
    let host = rig.region.hosts().remove(0);
    let node = Api::<Node>::all(rig.client.clone()).get(host.as_str()).await.unwrap();
    // As an earlier program wrote it, with a field that this one does not know of.
    let mut body = CertificateSettings::default().body(&node).unwrap();
    body["spec"]["revisionHistoryLimit"] = json!(2);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
    let mut earlier = DynamicObject::new(&format!("libvirt-{host}"), &kind).data(json!({"spec": body["spec"]}));
    earlier.metadata.owner_references = serde_json::from_value(body["metadata"]["ownerReferences"].clone()).unwrap();
    let params = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    let earlier = certificates(&rig).create(&params, &earlier).await.unwrap();
    operator(&rig);
    let managers = |certificate: &DynamicObject| -> Vec<_> {
        certificate.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect()
    };
    let name = earlier.name_any();
    rig.wait("ours", async || managers(&certificates(&rig).get(&name).await.unwrap()) == ["cobalt-operator"]).await;
    rig.at_rest_soon().await;
    let after = certificates(&rig).get(&name).await.unwrap();
    let mut spec = earlier.data["spec"].clone();
    spec.as_object_mut().unwrap().remove("revisionHistoryLimit");
    let mut kept = after.data["spec"].clone();
    kept.as_object_mut().unwrap().remove("revisionHistoryLimit");
    assert_eq!(kept, spec, "nothing that would make cert-manager issue a new one");
    rig.at_rest(Duration::from_secs(600)).await;
}
