//! Agents leave a host before it is taken out of the cloud.

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    api::{Hypervisor, labels},
    ids::HostName,
    operator::{AgentPods, AgentPodsSettings, HypervisorSync, Settings, Stage},
};
use cobalt_sim::Region;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Rig, message, say};

const NAMESPACE: &str = "default";

fn told(hypervisor: &Hypervisor) -> Option<(&str, &str)> {
    let condition = hypervisor.condition("AgentPodsEvicted")?;
    Some((condition.status.as_str(), &condition.reason))
}

/// A host that is to go and is empty, and an operator that does nothing but send its agents away.
async fn rig() -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    let host = rig.region.hosts().remove(0);
    rig.cluster.join_all().await.unwrap();
    rig.cluster.manage(&host, true).await.unwrap();
    let mut settings = Settings::default();
    settings.agent_namespaces = vec!["kube-system".into(), NAMESPACE.into()];
    let stages: Vec<Arc<dyn Stage>> = vec![
        Arc::new(HypervisorSync::default()),
        Arc::new(AgentPods::new(rig.program("operator"), AgentPodsSettings::default())),
    ];
    tokio::spawn(rig.new_operator(settings).stages(stages).run(rig.stop.clone()));
    rig.until(&host, "made", |hv| hv.spec.lifecycle_enabled()).await;
    (rig, host)
}

async fn drained(rig: &Rig, host: &HostName) {
    rig.patch(host, json!({"maintenance": "termination"})).await;
    say(rig, host, "Evicting", "False", "Succeeded").await;
}

async fn run_pod(rig: &Rig, host: &HostName, name: &str, spec: Value) {
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), NAMESPACE);
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": host.as_str(), "containers": [{"name": "a", "image": "a"}]},
    });
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn taints(rig: &Rig, host: &HostName) -> Vec<String> {
    let node = Api::<Node>::all(rig.client.clone()).get(host.as_str()).await.unwrap();
    node.spec.unwrap_or_default().taints.unwrap_or_default().into_iter().map(|taint| taint.key).collect()
}

#[tokio::test(start_paused = true)]
async fn an_empty_host_is_tainted_and_its_agents_are_waited_for() {
    let (rig, host) = rig().await;
    let other = json!({"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}});
    let nodes: Api<Node> = Api::all(rig.client.clone());
    nodes.patch(host.as_str(), &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    run_pod(&rig, &host, "agent", json!({})).await;
    run_pod(&rig, &host, "patient", json!({"tolerations": [{"operator": "Exists", "tolerationSeconds": 300}]})).await;
    run_pod(&rig, &host, "stays", json!({"tolerations": [{"operator": "Exists"}]})).await;
    run_pod(&rig, &"elsewhere".into(), "foreign", json!({})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(taints(&rig, &host).await, ["other"], "not before it is empty");

    drained(&rig, &host).await;
    let waiting = rig.until(&host, "waiting", |hv| told(hv) == Some(("False", "AgentPodsRunning"))).await;
    assert_eq!(taints(&rig, &host).await, ["other", labels::OFFBOARDING_TAINT]);
    assert_eq!(
        message(&waiting, "AgentPodsEvicted"),
        Some("2 agent pod(s) still running on node: default/agent, default/patient")
    );
    let pods: Api<Pod> = Api::namespaced(rig.client.clone(), NAMESPACE);
    for name in ["agent", "patient"] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    rig.until(&host, "rid of them", |hv| told(hv) == Some(("True", "NoAgentPods"))).await;

    // At rest nobody is asked any more, and nothing is written.
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.at_rest(Duration::from_secs(3600)).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_tell_is_no_proof_that_they_are_gone() {
    let (rig, host) = rig().await;
    let lists = Matcher::client("operator").verb(Verb::List).resource("pods");
    rig.cluster.server().faults().add(Fault::new(lists, Effect::Status { code: 500, retry_after: None }));
    drained(&rig, &host).await;
    let unknown = rig.until(&host, "not known", |hv| told(hv) == Some(("Unknown", "Failed"))).await;
    assert_eq!(
        message(&unknown, "AgentPodsEvicted"),
        Some("Pods on this node could not be listed: namespace kube-system: server_error")
    );
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(told(&rig.hypervisor(&host).await), Some(("Unknown", "Failed")));
    rig.cluster.server().faults().clear();
    rig.until(&host, "known", |hv| told(hv) == Some(("True", "NoAgentPods"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_may_not_be_tainted_is_told_and_tried_again() {
    let (rig, host) = rig().await;
    let patches = Matcher::client("operator").verb(Verb::Patch).resource("nodes");
    rig.cluster.server().faults().add(Fault::new(patches, Effect::Status { code: 403, retry_after: None }));
    drained(&rig, &host).await;
    let failed = rig.until(&host, "failing", |hv| told(hv) == Some(("Unknown", "Failed"))).await;
    let text = message(&failed, "AgentPodsEvicted").unwrap();
    assert!(text.starts_with(&format!("The agents cannot be sent away: taint node {host}")), "{text}");
    let warned = async || rig.warnings(&host).await.iter().any(|event| event.contains("cannot be sent away"));
    rig.wait("an Event", warned).await;
    rig.cluster.server().faults().clear();
    rig.until(&host, "rid of them", |hv| told(hv) == Some(("True", "NoAgentPods"))).await;
}
