//! A host is emptied, although people and servers make it hard.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cobalt_core::api::InstanceState;
use cobalt_rig::{Boot, ControlPlane};
use serde_json::json;

use crate::{
    sampler::Sampler,
    world::{World, reason},
};

const CONCURRENCY: usize = 4;

/// How many servers of a host moved at once, at most.
fn watch_moves(plane: &Arc<ControlPlane>, host: &'static str) -> Sampler<usize> {
    Sampler::start(plane, Duration::from_secs(1), move |plane, most: &mut usize| {
        let Ok(servers) = plane.servers_on(host) else { return };
        let moving = servers.iter().filter(|server| server.task.as_deref() == Some("migrating")).count();
        *most = moving.max(*most);
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_takes_what_comes_meanwhile_and_goes_on_around_what_refuses() {
    let test = "a_drain_takes_what_comes_meanwhile_and_goes_on_around_what_refuses";
    // One try is enough to know that a server refuses; then it is tried again before people get tired.
    let arguments = ["--eviction-concurrency", "4", "--eviction-attempts", "1", "--eviction-blocked-retry", "15s"];
    let Some(world) = World::new(test, &arguments).await else { return };
    world.onboard().await;
    let host = "hv-1";
    let mut servers = world.boot(host, 20);
    let bystander = world.boot("hv-10", 1).remove(0);
    let stubborn = servers[7].clone();
    world.cloud(|plane| plane.compute(host).refuse_migrations(&[&stubborn]));

    let most = watch_moves(&world.plane, host);
    world.maintain(host).await;
    world.until_left(host, &servers, 3).await;
    let disabled = world.service(host);
    assert_eq!(disabled.reason.as_deref(), Some("Hypervisor CRD: spec.maintenance=manual"), "{disabled:?}");

    // Somebody enables the service by hand, and two servers get in before it is disabled again.
    servers.extend(slip_in(&world, host).await);
    world.until("its service is disabled again", async || (!world.service(host).enabled).then_some(())).await;

    // All but one leave, and the one is shown.
    world.until_left(host, &servers, servers.len() - 1).await;
    let blocked = world
        .until_eviction(host, "one is blocked and nothing else is left", |eviction| {
            let status = eviction.status.clone().unwrap_or_default();
            let left: Vec<_> = status.instances().iter().filter(|instance| !instance.state.is_finished()).collect();
            left.len() == 1 && left[0].id == stubborn && left[0].state == InstanceState::Blocked
        })
        .await;
    assert_eq!(blocked.status.unwrap().outstanding_instances(), std::slice::from_ref(&stubborn));
    let hypervisor =
        world.until_hypervisor(host, "blocked", |hypervisor| reason(hypervisor, "Evicting") == "Blocked").await;
    assert!(hypervisor.is_true("Evicting"), "a host that is not empty is never said to be");
    assert_eq!(hypervisor.status.as_ref().and_then(|status| status.evicted), Some(false));
    let left: BTreeSet<String> = world.servers_on(host).into_iter().map(|server| server.id).collect();
    assert_eq!(left, BTreeSet::from([stubborn.clone()]));

    world.cloud(|plane| plane.compute(host).allow_migrations());
    world.until_drained(host).await;
    assert_eq!(world.servers_on(host), []);
    assert_eq!(world.plane.compute(host).guests(), []);
    world.assert_moved_once(host, &servers);
    let most = most.seen();
    assert!((2..=CONCURRENCY).contains(&most), "{most} at once");
    // And between those looks.
    let most = world.most_at_once(host, &servers);
    assert!((2..=CONCURRENCY).contains(&most), "{most} at once, by Nova's records");
    assert_eq!(world.cloud(|plane| plane.migrations_of(&bystander)), [], "hv-10 is another host");
    world.use_again(host).await;
}

/// Enables a host by hand, and boots two servers on it while it is.
async fn slip_in(world: &World, host: &str) -> Vec<String> {
    let service = world.service(host).id;
    let mut landed = Vec::new();
    world
        .until("two servers have slipped in", async || {
            let name = format!("late-{}", landed.len());
            // The operator may be faster than the scheduler; then it is tried again.
            let id = world.cloud(|plane| {
                let path = format!("/os-services/{service}");
                let (status, body) = plane.api("PUT", "compute", &path, Some(&json!({"status": "enabled"})))?;
                assert_eq!(status, 200, "{body}");
                let id = plane.request(&Boot::new(&name).on(host))?;
                if plane.wait_for_server(&id, "ACTIVE").is_ok() {
                    return Ok(Some(id));
                }
                plane.delete(&id).map(|()| None)
            });
            landed.extend(id);
            (landed.len() == 2).then_some(())
        })
        .await;
    landed
}
