//! What the OVS agent says of a switch reaches the Hypervisor.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    agent::ovs::{Config, OvsAgent},
    api::{Hypervisor, crd},
    ids::HostName,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{DaemonState, Region, SwitchFault};
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;

use super::{Rig, clock, ready};

const NAMESPACE: &str = "ovn-system";

fn told(hypervisor: &Hypervisor) -> Option<(&str, &str)> {
    let condition = hypervisor.condition("OVSHealthy")?;
    Some((condition.status.as_str(), &condition.reason))
}

async fn rig() -> (Rig, Region, HostName) {
    let rig = Rig::new().await;
    let namespaces: Api<Namespace> = Api::all(rig.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let region = Region::builder().hosts(1).vms_per_host(2).seed(3).build();
    let host = region.hosts().remove(0);
    rig.operator();
    rig.add_node(host.as_str(), json!({}), json!({})).await;
    (rig, region, host)
}

fn agent(rig: &Rig, region: &Region, host: &HostName, stop: Shutdown) {
    let switch = Arc::new(region.switch(host).unwrap());
    let agent = OvsAgent::new(rig.program("ovs-agent"), Config::new(host.as_str()), switch);
    tokio::spawn(agent.clock(clock()).heartbeat(Duration::from_secs(10)).run(stop));
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_says_what_its_switch_says_for_as_long_as_the_agent_lives() {
    let (rig, region, host) = rig().await;
    rig.until(host.as_str(), "without a switch", |hv| told(hv) == Some(("Unknown", "NoOVSNode"))).await;
    let first = Shutdown::new();
    agent(&rig, &region, &host, first.clone());
    rig.until(host.as_str(), "healthy", |hv| told(hv) == Some(("True", "Ready"))).await;

    region.world().switch_fault(&host, SwitchFault::Switch(DaemonState::Hung)).unwrap();
    let sick = rig.until(host.as_str(), "sick", |hv| told(hv) == Some(("False", "DaemonUnresponsive"))).await;
    assert!(sick.condition("OVSHealthy").unwrap().message.contains("ovs-vswitchd"));
    assert!(ready(&sick).is_some_and(|ready| !ready.message.contains("ovs")), "a judgement of its own");
    region.world().switch_fault(&host, SwitchFault::Switch(DaemonState::Running)).unwrap();
    rig.until(host.as_str(), "healthy again", |hv| told(hv) == Some(("True", "Ready"))).await;

    first.trigger();
    let silent = tokio::time::Instant::now();
    rig.until(host.as_str(), "silent", |hv| told(hv) == Some(("Unknown", "AgentSilent"))).await;
    assert!((25..=50).contains(&silent.elapsed().as_secs()), "as long as its Lease lasts: {:?}", silent.elapsed());
    agent(&rig, &region, &host, rig.stop.clone());
    rig.until(host.as_str(), "heard again", |hv| told(hv) == Some(("True", "Ready"))).await;
}

#[tokio::test(start_paused = true)]
async fn renewed_leases_and_counters_wake_the_operator_for_nothing() {
    let (rig, region, host) = rig().await;
    agent(&rig, &region, &host, rig.stop.clone());
    rig.until(host.as_str(), "healthy", |hv| told(hv) == Some(("True", "Ready"))).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let before = rig.hypervisors().get(host.as_str()).await.unwrap().resource_version();
    rig.server.counters().reset();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(rig.counts("operator").requests, 0);
    assert_eq!(rig.hypervisors().get(host.as_str()).await.unwrap().resource_version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_ovsnodes_has_no_such_condition_until_it_has_them() {
    let others = crd::all().into_iter().filter(|crd| crd.spec.names.kind != "OVSNode");
    let rig = Rig::with_crds(others.map(|crd| serde_json::to_value(crd).unwrap())).await;
    rig.operator();
    rig.add_node("hv-000", json!({}), json!({})).await;
    let made = rig.until("hv-000", "judged", |hv| ready(hv).is_some()).await;
    assert_eq!(told(&made), None);
    rig.rest().await;
    assert!(rig.status.not_ready().is_empty(), "and is ready without them");
    rig.server.counters().reset();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let asked =
        rig.server.counters().sum(|key| key.client == "operator" && key.resource.starts_with("ovsnodes")).requests;
    assert!(asked <= 7, "{asked} questions in an hour");
    assert_eq!(told(&rig.hypervisors().get("hv-000").await.unwrap()), None);

    let definitions: Api<CustomResourceDefinition> = Api::all(rig.client.clone());
    let ours = crd::all().into_iter().find(|crd| crd.spec.names.kind == "OVSNode").unwrap();
    let ours = serde_json::from_value(serde_json::to_value(ours).unwrap()).unwrap();
    definitions.create(&PostParams::default(), &ours).await.unwrap();
    tokio::time::sleep(Duration::from_secs(700)).await;
    rig.until("hv-000", "asked for", |hv| told(hv) == Some(("Unknown", "NoOVSNode"))).await;
}
