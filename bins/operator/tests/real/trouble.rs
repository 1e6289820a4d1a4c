//! A drain comes to its end through trouble with the cloud and through a death of the operator.

use std::time::Duration;

use cobalt_rig::{Account, ControlService};
use serde_json::json;

use crate::world::{World, is_drained};

/// How long Nova's API is away.
const OUTAGE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_survives_the_cloud_and_the_operator() {
    let test = "a_drain_survives_the_cloud_and_the_operator";
    let arguments = ["--eviction-concurrency", "2", "--eviction-attempts", "3", "--eviction-blocked-retry", "15s"];
    let Some(world) = World::new(test, &arguments).await else { return };
    world.onboard().await;
    let servers = world.boot("hv-10", 14);
    through_trouble_with_the_cloud(&world, "hv-10", &servers).await;
    world.use_again("hv-10").await;
    through_a_death_of_the_operator(&world).await;
}

async fn through_trouble_with_the_cloud(world: &World, host: &str, servers: &[String]) {
    world.maintain(host).await;
    world.until_left(host, servers, 2).await;

    let token = world.cloud(|plane| plane.log_in(Account::Operator));
    world.cloud(|plane| plane.restart(ControlService::Keystone));
    world.until("Keystone answers", async || world.try_cloud(|plane| plane.log_in(Account::Operator)).ok()).await;
    world.cloud(|plane| plane.revoke_tokens(Account::Operator));
    world
        .until("old tokens are refused", async || {
            world.try_cloud(|plane| plane.accepts(&token)).is_ok_and(|accepted| !accepted).then_some(())
        })
        .await;
    world.until_left(host, servers, 6).await;

    world.cloud(|plane| plane.kill(ControlService::NovaApi));
    tokio::time::sleep(OUTAGE).await;
    let hypervisor = world.hypervisor(host).await;
    assert!(hypervisor.is_true("Evicting"), "what cannot be seen is not empty");
    world.cloud(|plane| plane.start(ControlService::NovaApi));
    until_drained_and_put_right(world, host).await;
    assert_eq!(world.servers_on(host), []);
    world.assert_moved_once(host, servers);
}

/// Waits until the host is empty. A compute that asks Keystone while that is away gives up on its migration and leaves the
/// server in ERROR; a person puts it right when all is well again, and the drain goes on.
async fn until_drained_and_put_right(world: &World, host: &str) {
    world
        .until("drained, and put right", async || {
            let servers = world.try_cloud(|plane| plane.servers_on(host)).ok()?;
            for broken in servers.iter().filter(|server| server.status == "ERROR") {
                let right = json!({"state": "active"});
                let _ = world.try_cloud(|plane| plane.act(&broken.id, "os-resetState", &right));
            }
            is_drained(&world.hypervisor(host).await).then_some(())
        })
        .await;
}

async fn through_a_death_of_the_operator(world: &World) {
    let host = fullest(world);
    let servers: Vec<String> = world.servers_on(host).into_iter().map(|server| server.id).collect();
    assert!(servers.len() >= 6, "{servers:?} on {host}");
    // Long enough to be found in the middle by a new operator.
    world.cloud(|plane| plane.compute(host).migrations_take(Duration::from_secs(6)));
    world.maintain(host).await;
    world.until_left(host, &servers, 1).await;
    let moving = until_moving(world, host, &[]).await;
    world.kill_operator();
    // Whoever was on the way arrives while nobody looks.
    world
        .until("they have arrived", async || {
            let there = world.servers_on(host);
            moving.iter().all(|id| !there.iter().any(|server| server.id == *id)).then_some(())
        })
        .await;
    world.start_operator();
    // And the next ones are on their way when it looks again.
    until_moving(world, host, &moving).await;
    world.kill_operator();
    world.start_operator();
    world.until_drained(host).await;
    assert_eq!(world.servers_on(host), []);
    world.assert_moved_once(host, &servers);
    world.assert_asked_once(host, &servers);
    let eviction = world.evictions().get(host).await.unwrap();
    let known = eviction.status.unwrap_or_default();
    for server in &servers {
        assert!(known.instances().iter().any(|instance| instance.id == *server), "{server} is forgotten");
    }
}

/// Waits until some servers are on their way from a host, others than these.
async fn until_moving(world: &World, host: &str, before: &[String]) -> Vec<String> {
    world
        .until("some are on their way", async || {
            let mut moving = world.servers_on(host);
            moving.retain(|server| server.task.as_deref() == Some("migrating") && !before.contains(&server.id));
            (!moving.is_empty()).then(|| moving.into_iter().map(|server| server.id).collect())
        })
        .await
}

/// The host that has most servers.
fn fullest(world: &World) -> &'static str {
    let count = |host: &&'static str| world.servers_on(host).len();
    crate::HOSTS.into_iter().max_by_key(count).unwrap()
}
