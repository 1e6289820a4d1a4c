//! A host with servers in all states is emptied, moves that take too long are stopped, and so are those of a drain that is
//! called off.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use cobalt_core::api::{EvictedInstance, Eviction, InstanceState};
use serde_json::json;

use crate::world::World;

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn records(eviction: &Eviction) -> BTreeMap<String, EvictedInstance> {
    let all = eviction.status.iter().flat_map(|status| status.instances().to_vec());
    all.map(|record| (record.id.clone(), record)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_in_all_states_leave_and_a_drain_that_is_called_off_stops_its_moves() {
    let test = "servers_in_all_states_leave_and_a_drain_that_is_called_off_stops_its_moves";
    // One try, and the next one soon.
    let arguments = [
        ["--eviction-concurrency", "6"],
        ["--eviction-timeout", "15s"],
        ["--eviction-attempts", "1"],
        ["--eviction-blocked-retry", "5s"],
    ];
    let Some(world) = World::new(test, arguments.as_flattened()).await else { return };
    world.onboard().await;
    servers_in_all_states_leave(&world, "hv-1").await;
    world.use_again("hv-1").await;
    a_drain_that_is_called_off_stops_its_moves(&world, "hv-10").await;
}

async fn servers_in_all_states_leave(world: &World, host: &str) {
    let servers = world.boot(host, 4);
    let [active, stopped, paused, broken] = [0, 1, 2, 3].map(|index| servers[index].as_str());
    let moved = world.boot("hv-10", 1).remove(0);
    world.cloud(|plane| {
        plane.act(stopped, "os-stop", &json!(null))?;
        plane.act(paused, "pause", &json!(null))?;
        plane.act(broken, "os-resetState", &json!({"state": "error"}))?;
        plane.act(&moved, "migrate", &json!({"host": host}))?;
        plane.wait_for_server(stopped, "SHUTOFF")?;
        plane.wait_for_server(paused, "PAUSED")?;
        plane.wait_for_server(&moved, "VERIFY_RESIZE")?;
        plane.compute(host).migrations_take(FOR_EVER)
    });

    world.maintain(host).await;
    // Each is told for as long as it waits for its next try, which need not be at the same time.
    let stopped_moves = RefCell::new(BTreeMap::new());
    world
        .until_eviction(host, "moves that take too long are stopped", |eviction| {
            let is_stopped =
                |record: &EvictedInstance| record.error.as_deref() == Some("it took longer than 15 s, and was stopped");
            let seen = records(eviction).into_iter().filter(|(_, record)| is_stopped(record));
            stopped_moves.borrow_mut().extend(seen);
            [active, paused].iter().all(|id| stopped_moves.borrow().contains_key(*id))
        })
        .await;
    assert!(stopped_moves.borrow()[active].aborted_at.is_some());
    let ended = world.cloud(|plane| plane.migrations_of(active));
    assert!(ended.iter().any(|migration| migration.status == "cancelled"), "{ended:?}");

    world.cloud(|plane| plane.compute(host).migrations_take(Duration::from_secs(1)));
    let left = world
        .until_eviction(host, "all have left but the broken one", |eviction| {
            let records = records(eviction);
            records.len() == 5 && records.values().all(|record| record.state.is_finished() || record.id == broken)
        })
        .await;
    let last = &records(&left)[broken];
    assert_eq!(last.state, InstanceState::Blocked);
    assert!(last.error.as_deref().unwrap().starts_with("it is in ERROR"), "{last:?}");
    let there = world.servers_on(host);
    assert!(there.len() == 1 && there[0].id == broken, "{there:?}");
    for (id, status) in [(stopped, "SHUTOFF"), (moved.as_str(), "ACTIVE")] {
        let server = world.cloud(|plane| plane.server(id)).unwrap();
        assert_eq!(server.status, status, "{server:?}");
        let cold = world.cloud(|plane| plane.migrations_of(id));
        assert!(cold.iter().any(|migration| migration.status == "confirmed"), "{cold:?}");
        let record = &records(&left)[id];
        assert_eq!(record.error, None, "confirmed without trouble: {record:?}");
    }

    world.cloud(|plane| plane.act(broken, "os-resetState", &json!({"state": "active"})));
    world.until_drained(host).await;
    assert_eq!(world.servers_on(host), []);
    assert_eq!(world.plane.compute(host).guests(), []);
}

async fn a_drain_that_is_called_off_stops_its_moves(world: &World, host: &str) {
    world.boot(host, 2);
    world.cloud(|plane| plane.compute(host).migrations_take(FOR_EVER));
    let before: Vec<String> = world.servers_on(host).into_iter().map(|server| server.id).collect();
    world.maintain(host).await;
    let moving = world
        .until("some are on their way", async || {
            let mut there = world.servers_on(host);
            there.retain(|server| server.task.as_deref() == Some("migrating"));
            (there.len() >= 2).then_some(there)
        })
        .await;
    world.patch(host, json!({"maintenance": null, "maintenanceReason": null})).await;
    let evictions = world.evictions();
    world.until("its Eviction is gone", async || evictions.get_opt(host).await.unwrap().is_none().then_some(())).await;
    // Nobody watches them any more: so nothing moves.
    for server in &moving {
        let now = world.cloud(|plane| plane.server(&server.id)).unwrap();
        assert_eq!((now.task.as_deref(), &now.host), (None, &Some(host.to_owned())), "{now:?}");
    }
    let after = world.servers_on(host);
    assert!(after.iter().all(|server| before.contains(&server.id)), "{after:?}");
    world.cloud(|plane| plane.compute(host).migrations_take(Duration::from_secs(1)));
    world.use_again(host).await;
}
