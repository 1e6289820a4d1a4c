use std::time::Duration;

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{agent::Heartbeat, api::labels};
use cobalt_sim::Region;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::json;

use super::Rig;

const INTERVAL: Duration = Duration::from_secs(10);

fn leases(rig: &Rig) -> Api<Lease> {
    Api::namespaced(rig.client.clone(), "default")
}

async fn lease(rig: &Rig, host: &str) -> Lease {
    leases(rig).get(&Heartbeat::lease_name(host)).await.unwrap()
}

fn health(lease: &Lease) -> &str {
    &lease.annotations()[labels::LIBVIRT_ANNOTATION]
}

async fn beating(rig: &Rig, region: &Region) -> String {
    beating_every(INTERVAL, rig, region).await
}

async fn beating_every(interval: Duration, rig: &Rig, region: &Region) -> String {
    let host = region.hosts().remove(0);
    rig.operator();
    rig.agent_with(region, &host, rig.stop.clone(), |agent| agent.part(Heartbeat::new("default", interval)));
    rig.add_node(host.as_str(), json!({}), json!({})).await;
    rig.until(host.as_str(), "reported", |hv| hv.is_true("LibVirtConnection")).await;
    tokio::time::sleep(INTERVAL).await;
    host.as_str().to_owned()
}

#[tokio::test(start_paused = true)]
async fn at_rest_the_lease_is_renewed_once_per_interval_and_nothing_else_is_written() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(10).seed(3).build();
    let host = beating(&rig, &region).await;
    tokio::time::sleep(INTERVAL * 6).await; // let the others come to rest
    rig.server.counters().reset();
    let hypervisor = rig.hypervisors().get(&host).await.unwrap().metadata.resource_version;
    tokio::time::sleep(INTERVAL * 100).await;
    let writes = rig.counts("agent").writes;
    assert!((99..=101).contains(&writes), "{writes} writes in 100 intervals");
    assert_eq!(rig.hypervisors().get(&host).await.unwrap().metadata.resource_version, hypervisor);
    let lease = lease(&rig, &host).await;
    assert_eq!(health(&lease), "connected");
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some(host.as_str()), Some(40)));
    let age = super::clock().now().duration_since(spec.renew_time.unwrap().0);
    assert!(age.as_secs() <= 10, "renewed {age} ago");
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_libvirt_is_in_the_lease_at_once_and_the_host_still_lives() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(1).seed(3).build();
    let host = beating(&rig, &region).await;
    let name = region.hosts().remove(0);
    let began = tokio::time::Instant::now();
    region.world().stop_daemon(&name).unwrap();
    while health(&lease(&rig, &host).await) == "connected" {
        assert!(began.elapsed() < INTERVAL / 2, "it waited for the next beat");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(health(&lease(&rig, &host).await).starts_with("disconnected: "));
    let before = lease(&rig, &host).await.spec.unwrap().renew_time;
    tokio::time::sleep(INTERVAL * 2).await;
    assert!(lease(&rig, &host).await.spec.unwrap().renew_time > before, "the host has not died with its daemon");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_could_not_be_written_does_not_wait_for_the_next_beat() {
    const HOUR: Duration = Duration::from_secs(3600);
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(1).seed(3).build();
    let host = beating_every(HOUR, &rig, &region).await;
    let name = region.hosts().remove(0);
    let beats = || Matcher::client("agent").verb(Verb::Patch).resource("leases.coordination.k8s.io").times(1);
    let unheard = [Effect::Latency { millis: 3_600_000 }, Effect::Status { code: 503, retry_after: None }];
    for (times, effect) in unheard.into_iter().enumerate() {
        rig.server.faults().add(Fault::new(beats().nth(times as u64 + 1), effect));
    }
    let began = tokio::time::Instant::now();
    region.world().stop_daemon(&name).unwrap();
    while health(&lease(&rig, &host).await) == "connected" {
        assert!(began.elapsed() < HOUR / 10, "it waited for the next beat");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.server.faults().fired().len(), 2);
    // Once it is written there is one beat per interval again.
    rig.server.counters().reset();
    tokio::time::sleep(HOUR * 10).await;
    let leases = |key: &cobalt_apiserver::CounterKey| key.client == "agent" && key.resource.starts_with("leases.");
    let writes = rig.server.counters().sum(leases).writes;
    assert!((9..=11).contains(&writes), "{writes} writes in 10 intervals");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_starts_without_libvirt_says_so_with_its_first_beat() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(1).seed(3).build();
    let host = region.hosts().remove(0);
    region.world().stop_daemon(&host).unwrap();
    rig.operator();
    rig.agent_with(&region, &host, rig.stop.clone(), |agent| agent.part(Heartbeat::new("default", INTERVAL)));
    rig.add_node(host.as_str(), json!({}), json!({})).await;
    rig.until(host.as_str(), "reported", |hv| hv.is_false("LibVirtConnection")).await;
    tokio::time::sleep(INTERVAL).await;
    let found = lease(&rig, host.as_str()).await;
    assert!(health(&found).starts_with("disconnected: "), "{}", health(&found));
    region.world().start_daemon(&host).unwrap();
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(health(&lease(&rig, host.as_str()).await), "connected");
}

#[tokio::test(start_paused = true)]
async fn the_lease_goes_with_its_hypervisor_and_comes_back_with_it() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(1).seed(3).build();
    let host = beating(&rig, &region).await;
    let owner = lease(&rig, &host).await.owner_references()[0].clone();
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Hypervisor", host.as_str()));
    rig.hypervisors().delete(&host, &DeleteParams::default()).await.unwrap();
    // The operator makes a new one for the Node that is still there.
    rig.until(&host, "made anew", |hv| hv.uid().is_some_and(|uid| uid != owner.uid)).await;
    tokio::time::sleep(INTERVAL * 3).await;
    let new = lease(&rig, &host).await.owner_references()[0].clone();
    assert_eq!(Some(new.uid), rig.hypervisors().get(&host).await.unwrap().uid());
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_costs_one_request_per_interval_and_beats_go_on_after_it() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(1).seed(3).build();
    let host = beating(&rig, &region).await;
    tokio::time::sleep(INTERVAL * 6).await;
    let beats = Matcher::client("agent").verb(Verb::Patch).resource("leases.coordination.k8s.io");
    rig.server.faults().add(Fault::new(beats, Effect::Latency { millis: 3_600_000 }));
    rig.server.counters().reset();
    tokio::time::sleep(INTERVAL * 20).await;
    let tries = rig.server.faults().fired().len();
    assert!((18..=21).contains(&tries), "{tries} tries in 20 intervals");
    rig.server.faults().clear();
    let before = lease(&rig, &host).await.spec.unwrap().renew_time;
    tokio::time::sleep(INTERVAL * 3).await;
    assert!(lease(&rig, &host).await.spec.unwrap().renew_time > before);
}
