//! A host whose agent has fallen silent is not ready.

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Interruption, Matcher},
};
use cobalt_core::{
    agent::{Config, Heartbeat, NodeAgent},
    ids::HostName,
    operator::{HypervisorSync, Ready, Settings, Stage},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;
use kube::ResourceExt;

use super::{Rig, reason, say};

const NAMESPACE: &str = "default";

async fn rig() -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    let host = rig.region.hosts().remove(0);
    rig.cluster.join_all().await.unwrap();
    (rig, host)
}

/// An operator that judges, and does nothing else.
fn judge(rig: &Rig, stop: Shutdown) {
    let mut settings = Settings::default();
    settings.heartbeat_namespace = Some(NAMESPACE.into());
    let stages: Vec<Arc<dyn Stage>> = vec![Arc::new(HypervisorSync::default()), Arc::new(Ready)];
    tokio::spawn(rig.new_operator(settings).stages(stages).run(stop));
}

fn agent(rig: &Rig, host: &HostName, stop: Shutdown) {
    let backend = Arc::new(rig.region.backend(host).unwrap());
    let system = Arc::new(rig.region.host_system(host).unwrap());
    let agent = NodeAgent::new(rig.program("agent"), Config::new(host.as_str()), backend, system);
    let agent = agent.clock(rig.clock()).part(Heartbeat::new(NAMESPACE, Duration::from_secs(10)));
    tokio::spawn(agent.run(stop));
}

async fn until_ready_says(rig: &Rig, host: &HostName, wanted: &str) {
    rig.until(host, wanted, |hv| reason(hv, "Ready") == Some(wanted)).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_makes_its_host_not_ready_until_it_is_heard_again() {
    let (rig, host) = rig().await;
    judge(&rig, rig.stop.clone());
    until_ready_says(&rig, &host, "Onboarding").await;
    say(&rig, &host, "Onboarding", "False", "Succeeded").await;
    until_ready_says(&rig, &host, "Ready").await;
    // One that never gave a sign of life is not missed.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(reason(&rig.hypervisor(&host).await, "Ready"), Some("Ready"));

    let first = Shutdown::new();
    agent(&rig, &host, first.clone());
    rig.until(&host, "reported", |hv| hv.is_true("LibVirtConnection")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(reason(&rig.hypervisor(&host).await, "Ready"), Some("Ready"));
    let version = rig.hypervisor(&host).await.resource_version();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.hypervisor(&host).await.resource_version(), version, "renewals write nothing");

    first.trigger();
    let since = tokio::time::Instant::now();
    until_ready_says(&rig, &host, "AgentSilent").await;
    assert!((25..=55).contains(&since.elapsed().as_secs()), "as long as its Lease lasts: {:?}", since.elapsed());
    agent(&rig, &host, rig.stop.clone());
    until_ready_says(&rig, &host, "Ready").await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_anew_does_not_take_silence_for_life() {
    let (rig, host) = rig().await;
    let (first, alive) = (Shutdown::new(), Shutdown::new());
    judge(&rig, first.clone());
    agent(&rig, &host, alive.clone());
    rig.until(&host, "reported", |hv| hv.is_true("LibVirtConnection")).await;
    say(&rig, &host, "Onboarding", "False", "Succeeded").await;
    until_ready_says(&rig, &host, "Ready").await;
    alive.trigger();
    until_ready_says(&rig, &host, "AgentSilent").await;
    first.trigger();
    let version = rig.hypervisor(&host).await.resource_version();
    judge(&rig, rig.stop.clone());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let now = rig.hypervisor(&host).await;
    assert_eq!((reason(&now, "Ready"), now.resource_version()), (Some("AgentSilent"), version), "it did not flap");
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_cannot_hear_blames_nobody() {
    let (rig, host) = rig().await;
    judge(&rig, rig.stop.clone());
    agent(&rig, &host, rig.stop.clone());
    rig.until(&host, "reported", |hv| hv.is_true("LibVirtConnection")).await;
    say(&rig, &host, "Onboarding", "False", "Succeeded").await;
    until_ready_says(&rig, &host, "Ready").await;
    let since = rig.hypervisor(&host).await.condition("Ready").cloned();
    let server = rig.cluster.server();
    for verb in [Verb::List, Verb::Watch] {
        let leases = Matcher::client("operator").verb(verb).resource("leases.coordination.k8s.io");
        server.faults().add(Fault::new(leases, Effect::Status { code: 503, retry_after: None }));
    }
    let leases = Matcher::client("operator").verb(Verb::Watch).resource("leases.coordination.k8s.io");
    server.faults().interrupt(leases, Interruption::Break);
    tokio::time::sleep(Duration::from_secs(900)).await;
    server.faults().clear();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.hypervisor(&host).await.condition("Ready").cloned(), since);
}
