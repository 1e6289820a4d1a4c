//! Room elsewhere, and limits of what moves there.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    api::InstanceState,
    nova::{NovaClient, PlacementClient, view::ViewOptions},
    operator::{
        Cloud, Operator, Settings,
        eviction::{PlanOptions, plan},
    },
};
use cobalt_sim::{Flavor, Region, faults::Failure};
use serde_json::json;

use super::{EVICTING, instances, message, reason, settings, with_concurrency};
use crate::{LONG, Rig};

#[tokio::test(start_paused = true)]
async fn one_shape_that_placement_refuses_holds_no_other_server_up() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(0).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.region.world().add_flavor(Flavor::new("odd", "o1", 1, 1024));
    let (odd, other) = (rig.region.boot(&host, "odd").unwrap(), rig.region.boot(&host, "2").unwrap());
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    // The first to be asked about is the first by its id.
    let (refused, moves) = if odd < other { (odd, other) } else { (other, odd) };
    rig.placement.faults().fail_next("candidates", Failure::Refused);
    rig.drains(settings(|drain| (drain.concurrency, drain.target_concurrency) = (1, 1)));
    rig.evict(host.as_str(), &host).await;
    let told = rig
        .until_eviction(host.as_str(), "at the other one", |found| {
            instances(found).get(moves.as_str()).is_some_and(|one| one.state == InstanceState::Moved)
        })
        .await;
    assert_eq!(instances(&told)[refused.as_str()].state, InstanceState::Pending);
    let said = message(&told, EVICTING).unwrap();
    assert!(said.contains("no target can be chosen for 1 instance") && said.contains("injected fault"), "{said}");
    rig.drained(host.as_str()).await;
}

#[tokio::test(start_paused = true)]
async fn for_whom_there_is_no_room_once_the_others_have_gone_is_told_before_they_go() {
    // The others have 12 GiB left each, and each server wants nine: two hosts take one each.
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(0).cells([(64, 32)]).seed(6).build()).await;
    let hosts = rig.region.hosts();
    rig.region.world().add_flavor(Flavor::new("half", "h1", 1, 9000));
    for _ in 0..3 {
        rig.region.boot(&hosts[0], "half").unwrap();
    }
    rig.region.boot(&hosts[1], "4").unwrap();
    rig.region.boot(&hosts[2], "4").unwrap();
    let forecast = plan(&rig.nova, &rig.placement, &hosts[0], &PlanOptions::default()).await.unwrap();
    let stays = forecast.stuck().next().unwrap();
    rig.ready_to_drain(&hosts[0]).await;
    rig.disable(&hosts[0]).await;
    rig.drains(with_concurrency(1));
    rig.evict("first", &hosts[0]).await;
    let preflight = "PreflightChecksSucceeded";
    let told = rig.until_eviction("first", "told", |found| found.condition(preflight).is_some()).await;
    let said = message(&told, preflight).unwrap();
    let wanted =
        format!("there is not room for all: 1 instance would stay: {} (2 hosts could take it, but", stays.name);
    assert!(said.contains(&wanted), "{said}");
    assert!(instances(&told).values().all(|one| one.state != InstanceState::Blocked), "{told:?}");
    rig.until_eviction("first", "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    assert_eq!(rig.servers_on(&hosts[0]).await.len(), 1, "and so it is");
}

/// The most that moved at once from a host that only one may leave at a time, by a trait.
async fn most_at_once_by_trait(rig: &Rig, operator: impl FnOnce(Settings) -> Operator) -> usize {
    let host = rig.region.hosts()[2].clone();
    rig.region.world().set_parallel_migrations(8);
    rig.disable(&host).await;
    let limits = settings(|drain| {
        drain.concurrency = 4;
        drain.trait_concurrency = [("CUSTOM_SLOW".to_owned(), 1)].into();
    });
    tokio::spawn(operator(limits).run(rig.stop.clone()));
    // Until the traits of all hosts have been read, if they are.
    tokio::time::sleep(Duration::from_secs(120)).await;
    rig.evict("first", &host).await;
    rig.drained("first").await;
    rig.most_at_once(&host).await
}

#[tokio::test(start_paused = true)]
async fn the_trait_that_sets_the_limit_is_placements_or_while_that_is_not_known_the_hypervisors() {
    let region = || Region::builder().hosts(3).vms_per_host(6).seed(9).build();
    let slow = ["CUSTOM_SLOW"];
    // By Placement, which counts more than what was written once.
    for (in_placement, most) in [(true, 1), (false, 4)] {
        let rig = Rig::new(region()).await;
        let host = rig.region.hosts()[2].clone();
        rig.ready_to_drain(&host).await;
        if in_placement {
            let id = rig.nova.hypervisor_named(host.as_str()).await.unwrap().id;
            rig.placement.ensure_trait(slow[0]).await.unwrap();
            let mut traits = rig.placement.traits(&id).await.unwrap();
            traits.names.extend(slow.map(str::to_owned));
            rig.placement.set_traits(&id, &traits).await.unwrap();
        } else {
            rig.write_status(&host, json!({"traits": slow})).await;
        }
        assert_eq!(most_at_once_by_trait(&rig, |limits| rig.drainer(limits)).await, most);
    }
    // By the Hypervisor, as long as nobody has read them.
    let rig = Rig::new(region()).await;
    let host = rig.region.hosts()[2].clone();
    rig.ready_to_drain(&host).await;
    rig.write_status(&host, json!({"traits": slow})).await;
    let never = ViewOptions { trait_interval: LONG * 24, ..ViewOptions::default() };
    let cloud = Cloud::new(Arc::new(rig.nova.clone()), Arc::new(rig.placement.clone()), never);
    let most =
        most_at_once_by_trait(&rig, |limits| rig.drainer(limits.clone()).cloud(cloud, limits).stages(Vec::new())).await;
    assert_eq!(most, 1);
}
