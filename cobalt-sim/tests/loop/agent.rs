use std::sync::Arc;

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    agent::{Config, NodeAgent},
    api::labels,
};
use cobalt_sim::{Driver, Region, faults::Failure};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Rig, clock, ready, reason};

async fn reporting(rig: &Rig, region: &Region) -> String {
    let host = region.hosts().remove(0);
    rig.operator();
    rig.agent(region, &host);
    rig.add_node(host.as_str(), json!({}), json!({})).await;
    rig.until(host.as_str(), "reported", |hv| hv.is_true("LibVirtConnection") && ready(hv).is_some()).await;
    rig.rest().await;
    host.as_str().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_agent_publishes_what_its_host_has_and_runs() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(6).cells([(16, 64), (16, 64)]).seed(3).build();
    let host = reporting(&rig, &region).await;
    let status = rig.hypervisors().get(&host).await.unwrap().status.unwrap();
    assert_eq!(status.num_instances(), 6);
    assert_eq!(status.instances().len(), 6);
    assert!(status.lib_virt_version.is_some());
    let capacity = serde_json::to_value(&status.capacity).unwrap();
    assert_eq!(capacity, json!({"cpu": "32", "memory": "128Gi"}));
    assert_eq!(status.cells.unwrap().iter().map(|cell| cell.cell_id).collect::<Vec<_>>(), [0, 1]);
    assert!(status.operating_system.unwrap().kernel_release.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_starts_or_goes_reaches_the_status_without_waiting_for_a_resync() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(2).seed(3).build();
    let host = reporting(&rig, &region).await;
    let name = region.hosts().remove(0);
    let began = tokio::time::Instant::now();
    let vm = region.boot(&name, "2").unwrap();
    rig.until(&host, "three VMs", |hv| hv.status.as_ref().is_some_and(|status| status.num_instances() == 3)).await;
    assert!(began.elapsed().as_secs() < 2, "by its event, not by the resync after five minutes");
    region.world().delete(&vm).unwrap();
    rig.until(&host, "two VMs", |hv| hv.status.as_ref().is_some_and(|status| status.num_instances() == 2)).await;
    assert!(began.elapsed().as_secs() < 4);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_events_is_one_write() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(2).seed(3).build();
    let host = reporting(&rig, &region).await;
    let name = region.hosts().remove(0);
    rig.server.counters().reset();
    for _ in 0..40 {
        region.boot(&name, "1").unwrap();
    }
    rig.until(&host, "all there", |hv| hv.status.as_ref().is_some_and(|status| status.num_instances() == 42)).await;
    rig.rest().await;
    assert!(rig.counts("agent").writes <= 2, "{:?}", rig.counts("agent"));
}

#[tokio::test(start_paused = true)]
async fn at_rest_neither_agent_nor_operator_writes_anything() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(10).seed(3).build();
    reporting(&rig, &region).await;
    rig.an_hour_of_rest(&[("agent", 1), ("operator", 4)]).await; // resyncs included
}

#[tokio::test(start_paused = true)]
async fn a_question_that_failed_is_asked_again_soon_and_not_only_at_the_resync() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(2).build();
    let host = region.hosts().remove(0);
    let backend = region.backend(&host).unwrap();
    backend.faults().fail_next("inventory", Failure::Unavailable);
    let client = rig.program("agent");
    let system = Arc::new(region.host_system(&host).unwrap());
    let agent = NodeAgent::new(client, Config::new(host.as_str()), Arc::new(backend), system).clock(clock());
    rig.operator();
    tokio::spawn(agent.run(rig.stop.clone()));
    rig.add_node(host.as_str(), json!({}), json!({})).await;
    let began = tokio::time::Instant::now();
    rig.until(host.as_str(), "complete", |hv| hv.status.as_ref().is_some_and(|s| s.num_instances() == 2)).await;
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_may_only_write_the_status_publishes_beside_earlier_managers() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(2).build();
    let host = region.hosts().remove(0);
    rig.operator();
    rig.add_node(host.as_str(), json!({}), json!({})).await;
    rig.until(host.as_str(), "made", |hv| ready(hv).is_some()).await;
    let params = PatchParams { field_manager: Some("manager".into()), ..PatchParams::default() };
    let old = Patch::Merge(json!({"status": {"numInstances": 7}}));
    rig.hypervisors().patch_status(host.as_str(), &params, &old).await.unwrap();
    rig.server.faults().add(Fault::new(
        Matcher::client("agent").verb(Verb::Patch).subresource(""),
        Effect::Status { code: 403, retry_after: None },
    ));
    rig.agent(&region, &host);
    rig.until(host.as_str(), "reported", |hv| hv.status.as_ref().is_some_and(|s| s.num_instances() == 2)).await;
    rig.rest().await;
    rig.an_hour_of_rest(&[("agent", 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn overcommit_by_the_scheduler_changes_the_effective_capacity_and_nothing_else() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).cells([(16, 64)]).build();
    let host = reporting(&rig, &region).await;
    let params = PatchParams { field_manager: Some("cortex".into()), ..PatchParams::default() };
    let body = Patch::Merge(json!({"spec": {"overcommit": {"cpu": 2.5}}}));
    rig.hypervisors().patch(&host, &params, &body).await.unwrap();
    let after = rig
        .until(&host, "overcommitted", |hv| {
            serde_json::to_value(&hv.status).unwrap()["effectiveCapacity"]["cpu"] == "40"
        })
        .await;
    assert_eq!(serde_json::to_value(&after.status).unwrap()["capacity"]["cpu"], "16");
    assert_eq!(after.spec.overcommit("cpu").to_string(), "2.5");
}

#[tokio::test(start_paused = true)]
async fn a_lost_daemon_is_said_and_what_was_known_is_kept_until_it_returns() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(4).seed(3).build();
    let host = reporting(&rig, &region).await;
    let name = region.hosts().remove(0);
    region.world().stop_daemon(&name).unwrap();
    let lost = rig.until(&host, "disconnected", |hv| hv.is_false("LibVirtConnection")).await;
    assert_eq!(lost.status.as_ref().unwrap().num_instances(), 4, "old, and still there");
    assert!(lost.is_false("InstancesCurrent"), "and said to be old");
    region.world().start_daemon(&name).unwrap();
    let back = rig.until(&host, "connected again", |hv| hv.is_true("LibVirtConnection")).await;
    assert!(back.is_true("InstancesCurrent"));
    assert_eq!(reason(&back, "LibVirtConnection"), Some("Connected"));
}

#[tokio::test(start_paused = true)]
async fn cloud_hypervisor_lacks_much_and_is_healthy_all_the_same() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(3).driver(Driver::CloudHypervisor).seed(3).build();
    let host = reporting(&rig, &region).await;
    let hypervisor = rig.hypervisors().get(&host).await.unwrap();
    let status = hypervisor.status.as_ref().unwrap();
    assert_eq!(status.num_instances(), 3);
    assert_eq!(status.domain_capabilities.as_ref().unwrap().hypervisor_type.as_deref(), Some("ch"));
    assert!(hypervisor.condition("DomainCapabilitiesCurrent").is_none(), "lacking is not failing");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_there_before_its_hypervisor_waits_for_it() {
    let rig = Rig::new().await;
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let host = region.hosts().remove(0);
    rig.agent(&region, &host);
    rig.rest().await;
    assert!(rig.hypervisors().get_opt(host.as_str()).await.unwrap().is_none(), "it creates nothing itself");
    rig.operator();
    rig.add_node(host.as_str(), json!({labels::LIFECYCLE: ""}), json!({})).await;
    rig.until(host.as_str(), "reported", |hv| hv.is_true("LibVirtConnection")).await;
}
