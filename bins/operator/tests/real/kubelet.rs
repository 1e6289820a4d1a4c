//! What the cluster does on a host when it gets the taint of offboarding: the agents' pods go.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    api::labels,
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        Api, Client, ResourceExt,
        api::{DeleteParams, ListParams, PostParams},
    },
    runtime::shutdown::Shutdown,
};
use cobalt_rig::ControlPlane;
use serde_json::json;

/// Where the pods of nova-compute are.
pub(crate) const AGENTS: &str = "agents";

fn pod_of(host: &str) -> String {
    format!("nova-compute-{host}")
}

/// Says that nova-compute runs on a host, as a pod that the taint drives away, beside one that it does not.
pub(crate) async fn admit(client: &Client, host: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), AGENTS);
    let all = json!([{"operator": "Exists"}]);
    for (name, tolerations) in [(pod_of(host), json!([])), (format!("node-exporter-{host}"), all)] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": host, "tolerations": tolerations, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "registry.example/agent:1"}],
            },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
}

/// Ends nova-compute where the taint is, and then its pod, until `stop`.
pub(crate) async fn run(client: Client, plane: Arc<ControlPlane>, stop: Shutdown) {
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client, AGENTS);
    let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    while !stop.is_triggered() {
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let host = node.name_any();
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let driven =
                taints.iter().any(|taint| taint.key == labels::OFFBOARDING_TAINT && taint.effect == "NoExecute");
            if !driven || pods.get_opt(&pod_of(&host)).await.unwrap().is_none() {
                continue;
            }
            let (plane, name) = (plane.clone(), host.clone());
            tokio::task::spawn_blocking(move || plane.stop_compute(&name)).await.unwrap().unwrap();
            pods.delete(&pod_of(&host), &at_once).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
