//! The way out of Nova for good, on the simulated region; drain and agents are played by the test.

use std::time::Duration;

use cobalt_core::{
    api::{ConditionStatus, condition_types as types},
    ids::{HostName, InstanceId},
    nova::{AfterEvacuation, NovaClient, PlacementClient},
    operator::Settings,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Region, faults::Failure};
use serde_json::json;

use super::{Rig, message, reason};

async fn rig(names: &[&str]) -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().named(names.iter().copied()).build()).await;
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    for host in rig.region.hosts() {
        rig.onboarded(&host).await;
    }
    rig.until(&host, "with aggregates", |hv| hv.is_true(types::AGGREGATES_UPDATED)).await;
    (rig, host)
}

/// Waits until `Offboarded` says that it waits for this.
async fn until_waiting(rig: &Rig, host: &HostName, text: &str) {
    let waits = |hv: &cobalt_core::api::Hypervisor| {
        hv.is_false(types::OFFBOARDED) && message(hv, types::OFFBOARDED).unwrap().contains(text)
    };
    let seen = rig.until(host, text, waits).await;
    assert_eq!(reason(&seen, types::OFFBOARDED), Some("Offboarding"));
}

#[tokio::test(start_paused = true)]
async fn a_terminating_host_leaves_nova_completely_step_by_step() {
    let (rig, host) = rig(&["hv-1", "hv-10", "hv-1.example"]).await;
    rig.patch(&host, json!({"aggregates": ["zone-a"]})).await;
    rig.until(&host, "in its zone", |hv| hv.status.as_ref().unwrap().aggregates().len() == 1).await;
    rig.wait("held", async || rig.is_held(&host).await).await;

    rig.cluster.terminate(&host).await.unwrap();
    until_waiting(&rig, &host, "Waiting for the host to be evicted").await;
    let seen = rig.hypervisor(&host).await;
    assert_eq!(reason(&seen, types::AGGREGATES_UPDATED), Some("EvictionInProgress"));
    assert_eq!(rig.aggregates_of(&host).await, ["zone-a"], "unchanged while instances leave");

    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    until_waiting(&rig, &host, "Waiting for agent pods").await;
    assert_eq!(reason(&rig.hypervisor(&host).await, types::AGGREGATES_UPDATED), Some("Terminating"));
    rig.wait("no aggregates", async || rig.aggregates_of(&host).await.is_empty()).await;

    rig.play_agents_gone(&host).await;
    until_waiting(&rig, &host, "Waiting for nova-compute to end").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(rig.nova.service_on(&host).await.is_ok(), "an agent that runs would make its provider anew");

    rig.region.world().stop_compute(&host).unwrap();
    let done = rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    assert_eq!(
        (reason(&done, types::OFFBOARDED), message(&done, types::OFFBOARDED)),
        (Some("Offboarded"), Some("Offboarding successful"))
    );
    assert_eq!(reason(&done, types::READY), Some("Offboarded"));
    assert!(rig.is_out_of_nova(&host).await);
    rig.wait("let go", async || !rig.is_held(&host).await).await;
    for other in &rig.region.hosts()[1..] {
        assert!(rig.service(other).await.enabled, "{other} has a similar name and nothing else in common");
        assert!(rig.hypervisor(other).await.condition(types::OFFBOARDED).is_none(), "{other}");
    }

    rig.cluster.remove(&host).await.unwrap();
    rig.wait("collected with its Node", async || rig.is_gone(&host).await).await;
}

/// A host that waits only for its agent to end.
async fn nearly_out(rig: &Rig, host: &HostName) {
    rig.cluster.terminate(host).await.unwrap();
    rig.play_drain(host, ConditionStatus::False, "Succeeded").await;
    rig.play_agents_gone(host).await;
    until_waiting(rig, host, "Waiting for nova-compute to end").await;
}

/// What fails on the way out: a host whose server was evacuated and is still booked on it, so that all is called.
async fn with_a_booking() -> (Rig, HostName, InstanceId) {
    let (rig, host) = rig(&["hv-1", "hv-2"]).await;
    let vm = rig.region.boot(&host, "2").unwrap();
    rig.region.world().power_cut(&host).unwrap();
    rig.nova.force_service_down(&rig.service_id(&host).await, true).await.unwrap();
    rig.nova.evacuate(&vm, None, AfterEvacuation::Run).await.unwrap();
    let refuge = rig.region.hosts()[1].clone();
    rig.wait("evacuated", async || rig.nova.server(&vm).await.unwrap().host == Some(refuge.clone())).await;
    (rig, host, vm)
}

#[tokio::test(start_paused = true)]
async fn every_failure_on_the_way_is_said_and_tried_again_until_nothing_is_left() {
    let calls = |seam, calls: &[&'static str]| calls.iter().map(move |call| (seam, *call)).collect::<Vec<_>>();
    let nova = calls("nova", &["service_on", "servers_on", "delete_service", "server"]);
    let placement = calls("placement", &["provider_named", "allocations", "release", "delete_provider"]);
    for (seam, call) in nova.into_iter().chain(placement) {
        let (rig, host, vm) = with_a_booking().await;
        rig.cluster.terminate(&host).await.unwrap();
        rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
        until_waiting(&rig, &host, "Waiting for agent pods").await;
        rig.at_rest_soon().await;
        let faults = if seam == "nova" { rig.nova.faults() } else { rig.placement.faults() };
        let before = faults.calls(call);
        for _ in 0..3 {
            faults.fail_next(call, Failure::Unavailable);
        }
        faults.lose_answer(call);
        rig.play_agents_gone(&host).await;
        until_waiting(&rig, &host, "This failed and is tried again").await;
        rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
        assert!(rig.is_out_of_nova(&host).await, "{seam} {call}");
        assert!(faults.calls(call) - before > 3, "{seam} {call}: it failed each time it was to");
        let refuge = rig.nova.hypervisor_named("hv-2").await.unwrap().id;
        let booked = rig.placement.allocations(&refuge).await.unwrap();
        assert!(booked.len() == 1 && booked[0].consumer == vm, "{seam} {call}: what it uses elsewhere is left");
    }
}

#[tokio::test(start_paused = true)]
async fn nova_away_for_a_while_ends_in_the_same_state() {
    let (rig, host) = rig(&["hv-1"]).await;
    nearly_out(&rig, &host).await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.region.world().set_nova_available(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    rig.region.world().set_nova_available(true);
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    assert!(rig.is_out_of_nova(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_an_agent_made_anew_after_its_service_was_deleted_is_found_and_deleted() {
    let rig = Rig::new(Region::builder().named(["hv-1", "hv-10"]).build()).await;
    let (first, host) = (Shutdown::new(), rig.region.hosts()[0].clone());
    rig.life_until(Settings::default(), first.clone());
    rig.onboarded(&host).await;
    nearly_out(&rig, &host).await;
    first.trigger();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let recorded = rig.nova.hypervisor_named("hv-1").await.unwrap().id;
    rig.nova.delete_service(&rig.service_id(&host).await).await.unwrap();
    let orphan = async || {
        let all = rig.placement.providers().await.unwrap();
        all.into_iter().find(|one| one.name == "hv-1").map(|one| one.id)
    };
    rig.wait("an orphan", async || orphan().await.is_some()).await;
    assert_ne!(orphan().await, Some(recorded), "nobody has recorded this one");
    rig.region.world().stop_compute(&host).unwrap();

    rig.life(Settings::default());
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    assert!(rig.is_out_of_nova(&host).await);
    assert!(rig.service(&rig.region.hosts()[1]).await.enabled);
}

#[tokio::test(start_paused = true)]
async fn what_was_booked_for_evacuated_servers_is_cleared_and_their_new_place_is_kept() {
    let rig = Rig::new(Region::builder().named(["hv-1", "hv-2"]).build()).await;
    rig.life(Settings::default());
    let (host, refuge) = (rig.region.hosts()[0].clone(), rig.region.hosts()[1].clone());
    rig.onboarded(&host).await;
    let vm = rig.region.boot(&host, "2").unwrap();
    rig.region.world().power_cut(&host).unwrap();
    let id = rig.service_id(&host).await;
    rig.nova.force_service_down(&id, true).await.unwrap();
    rig.nova.evacuate(&vm, None, AfterEvacuation::Run).await.unwrap();
    rig.wait("evacuated", async || rig.nova.server(&vm).await.unwrap().host == Some(refuge.clone())).await;
    let old = rig.nova.hypervisor_named("hv-1").await.unwrap().id;
    let new = rig.nova.hypervisor_named("hv-2").await.unwrap().id;
    assert_eq!(rig.placement.allocations(&old).await.unwrap().len(), 1, "Nova leaves it booked on the dead host");

    rig.cluster.terminate(&host).await.unwrap();
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.play_agents_gone(&host).await;
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    assert!(rig.is_out_of_nova(&host).await);
    assert_eq!(rig.placement.allocations(&new).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_appears_at_the_last_moment_stops_it() {
    let (rig, host) = rig(&["hv-1"]).await;
    nearly_out(&rig, &host).await;
    rig.nova.enable_service(&rig.service_id(&host).await).await.unwrap();
    let late = rig.region.boot(&host, "2").unwrap();
    rig.region.world().stop_compute(&host).unwrap();
    rig.until(&host, "drained again", |hv| hv.is_true(types::EVICTING)).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(rig.nova.server(&late).await.is_ok() && rig.nova.service_on(&host).await.is_ok());
    until_waiting(&rig, &host, "Waiting for the host to be evicted").await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_back_is_published_before_it_is_done() {
    let (rig, host) = rig(&["hv-1"]).await;
    nearly_out(&rig, &host).await;
    rig.nova.faults().delay(Duration::from_secs(5));
    rig.region.world().stop_compute(&host).unwrap();
    let text = format!("Removing hv-1 from Nova: compute service {}", rig.service_id(&host).await);
    until_waiting(&rig, &host, &text).await;
    assert!(rig.nova.service_on(&host).await.is_ok(), "said, and not done yet");
    rig.nova.faults().clear();
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_nova_never_knew_is_offboarded_without_a_call() {
    let rig = Rig::new(Region::builder().named(["hv-1"]).unregistered().build()).await;
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.manage(&host, true).await.unwrap();
    rig.until(&host, "there", |hv| hv.spec.lifecycle_enabled()).await;
    assert!(!rig.is_held(&host).await, "nothing to clean up, nothing to hold");
    rig.cluster.terminate(&host).await.unwrap();
    until_waiting(&rig, &host, "Waiting for agent pods").await;
    rig.play_agents_gone(&host).await;
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    assert_eq!(rig.nova.faults().calls("delete_service"), 0);
}

#[tokio::test(start_paused = true)]
async fn at_rest_an_offboarded_host_costs_nothing() {
    let (rig, host) = rig(&["hv-1"]).await;
    nearly_out(&rig, &host).await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let (version, calls) =
        (rig.hypervisor(&host).await.metadata.resource_version, rig.nova.faults().calls("service_on"));
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(rig.hypervisor(&host).await.metadata.resource_version, version);
    assert_eq!(rig.nova.faults().calls("service_on"), calls);
}
