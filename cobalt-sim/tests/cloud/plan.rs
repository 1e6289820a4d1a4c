//! The plan of a drain says what the drain then does.

use std::{collections::BTreeMap, time::Duration};

use cobalt_core::{
    api::MoveKind,
    ids::{HostName, InstanceId},
    nova::{BlockMigration, GroupPolicy, NovaClient, PlacementClient, ServerStatus},
    operator::eviction::{EvictionPlan, PlanOptions, PlannedMove, Risk, plan},
};
use cobalt_sim::{Driver, Flavor, Region, SimNova, faults::Failure};

async fn planned(region: &Region, nova: &SimNova, host: &HostName) -> EvictionPlan {
    plan(nova, &region.placement(), host, &PlanOptions::default()).await.unwrap()
}

fn by_id(plan: &EvictionPlan) -> BTreeMap<InstanceId, PlannedMove> {
    plan.moves.iter().map(|one| (one.id.clone(), one.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn it_only_reads_and_what_it_says_comes_true() {
    let region = Region::builder().hosts(4).vms_per_host(12).seed(6).build();
    let (nova, host) = (region.nova(), region.hosts()[0].clone());
    let before = nova.servers_on(&host).await.unwrap();
    let forecast = planned(&region, &nova, &host).await;
    assert!(forecast.would_succeed && forecast.stuck().next().is_none());
    assert_eq!(forecast.moves.len(), before.len());
    assert_eq!(forecast.notes, ["the host is enabled: a drain disables it first"]);
    assert!(forecast.moves.iter().all(|one| one.how == MoveKind::Live && one.candidates == 3));
    assert!(forecast.seconds >= 12 * 10);
    let writes = ["live_migrate", "cold_migrate", "disable_service", "confirm_migration", "abort_migration"];
    assert!(writes.iter().all(|write| nova.faults().calls(write) == 0));
    // The same, one by one, largest first, as it was dealt out.
    let service = nova.service_on(&host).await.unwrap();
    nova.disable_service(&service.id, "drain").await.unwrap();
    let mut order = before.clone();
    order.sort_by(|a, b| (b.memory_mb, &a.id).cmp(&(a.memory_mb, &b.id)));
    for server in order {
        nova.live_migrate(&server.id, None, BlockMigration::Auto).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let went = nova.server(&server.id).await.unwrap().host;
        assert_eq!(by_id(&forecast)[&server.id].target, went, "{}", server.name);
    }
}

#[tokio::test(start_paused = true)]
async fn each_that_stays_has_its_reason() {
    let region = Region::builder().hosts(3).vms_per_host(0).cells([(64, 64)]).seed(6).build();
    let (world, nova, placement, hosts) = (region.world(), region.nova(), region.placement(), region.hosts());
    let host = &hosts[0];
    world.add_flavor(Flavor { traits: ["CUSTOM_GPU".to_owned()].into(), ..Flavor::new("gpu", "g1", 1, 512) });
    world.add_flavor(Flavor { disk_gb: 20, ..Flavor::new("local", "l1", 1, 512) });
    let id = nova.hypervisor_named(host.as_str()).await.unwrap().id;
    let mut traits = placement.traits(&id).await.unwrap();
    traits.names.insert("CUSTOM_GPU".into());
    placement.set_traits(&id, &traits).await.unwrap();
    let (gpu, local, off, error, locked, plain) = (
        region.boot(host, "gpu").unwrap(),
        region.boot(host, "local").unwrap(),
        region.boot(host, "local").unwrap(),
        region.boot(host, "1").unwrap(),
        region.boot(host, "1").unwrap(),
        region.boot(host, "1").unwrap(),
    );
    world.guest_shutdown(&off).unwrap();
    nova.reset_state(&error, ServerStatus::Error).await.unwrap();
    world.lock(&locked, true).unwrap();
    let found = planned(&region, &nova, host).await;
    assert!(!found.would_succeed);
    let moves = by_id(&found);
    assert_eq!(
        moves[&gpu].why_not.as_deref(),
        Some("no other host has room for it: 1 VCPU, 512 MB, CUSTOM_GPU"),
        "{found:#?}"
    );
    assert!(moves[&error].why_not.as_deref().unwrap().starts_with("it is in ERROR"));
    assert_eq!((moves[&local].risks.clone(), moves[&local].data_at_risk), (vec![Risk::CopiesLocalDisk], false));
    assert_eq!(moves[&off].how, MoveKind::Cold);
    assert_eq!((moves[&off].risks.clone(), moves[&off].data_at_risk), (vec![Risk::LocalDiskMovesCold], true));
    assert_eq!((moves[&locked].risks.clone(), moves[&locked].why_not.clone()), (vec![Risk::Locked], None));
    assert!(moves[&plain].risks.is_empty() && moves[&plain].target.is_some());
    assert_eq!(found.stuck().count(), 2);

    // Without copying disks, one that runs on local disks stays.
    let options = PlanOptions { block_migration: BlockMigration::No, ..PlanOptions::default() };
    let strict = by_id(&plan(&nova, &placement, host, &options).await.unwrap());
    assert!(strict[&local].why_not.as_deref().unwrap().contains("block migration is off"));

    // And nobody can go where nobody is taken.
    for other in &hosts[1..] {
        let service = nova.service_on(other).await.unwrap();
        nova.disable_service(&service.id, "too").await.unwrap();
    }
    let closed = by_id(&planned(&region, &nova, host).await);
    assert_eq!(
        closed[&plain].why_not.as_deref(),
        Some("every host with room for it is out of the question (2 disabled)")
    );
}

#[tokio::test(start_paused = true)]
async fn room_is_dealt_out_once() {
    // The others have 12 GiB left each, and each server wants nine: two hosts take one each.
    let region = Region::builder().hosts(3).vms_per_host(0).cells([(64, 32)]).seed(6).build();
    let (nova, hosts) = (region.nova(), region.hosts());
    region.world().add_flavor(Flavor::new("half", "h1", 1, 9000));
    for _ in 0..3 {
        region.boot(&hosts[0], "half").unwrap();
    }
    region.boot(&hosts[1], "4").unwrap();
    region.boot(&hosts[2], "4").unwrap();
    let found = planned(&region, &nova, &hosts[0]).await;
    assert_eq!(found.moves.iter().filter(|one| one.target.is_some()).count(), 2);
    let stays = found.stuck().next().unwrap();
    assert!(stays.why_not.as_deref().unwrap().starts_with("2 hosts could take it, but are full"), "{stays:?}");
}

#[tokio::test(start_paused = true)]
async fn one_shape_that_placement_refuses_is_told_and_the_others_are_planned() {
    let region = Region::builder().hosts(2).vms_per_host(0).seed(6).build();
    let (nova, placement, host) = (region.nova(), region.placement(), region.hosts()[0].clone());
    region.boot(&host, "1").unwrap();
    region.boot(&host, "2").unwrap();
    let ask = async |failure| {
        placement.faults().fail_next("candidates", failure);
        plan(&nova, &placement, &host, &PlanOptions::default()).await
    };
    let found = ask(Failure::Refused).await.unwrap();
    let stays: Vec<_> = found.stuck().map(|one| one.why_not.clone().unwrap()).collect();
    let [why] = stays.as_slice() else { panic!("{stays:?}") };
    assert!(why.starts_with("Placement does not say who has room for it: find candidates"), "{why}");
    assert!(ask(Failure::Unavailable).await.is_err(), "nobody can say anything");
}

#[tokio::test(start_paused = true)]
async fn another_hypervisor_is_no_place_and_an_unknown_or_dead_host_no_plan() {
    let region = Region::builder().hosts(1).vms_per_host(1).seed(6).build();
    let (nova, host) = (region.nova(), region.hosts()[0].clone());
    let other = region.add_host("ch-0", Driver::CloudHypervisor, &[(64, 512)]).unwrap();
    region.world().start_compute(&other).unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let found = planned(&region, &nova, &host).await;
    let why = found.stuck().next().unwrap().why_not.clone().unwrap();
    assert_eq!(why, "every host with room for it is out of the question (1 of another hypervisor)");
    let missing = plan(&nova, &region.placement(), &HostName::from("hv"), &PlanOptions::default()).await;
    assert!(missing.unwrap_err().is_not_found(), "hv is not hv-000");
    region.world().power_cut(&host).unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let dead = planned(&region, &nova, &host).await;
    assert!(dead.stuck().next().unwrap().why_not.as_deref().unwrap().contains("only evacuated"));
}

#[tokio::test(start_paused = true)]
async fn groups_are_kept_to_also_among_those_that_move_in_the_same_drain() {
    let region = Region::builder().hosts(4).vms_per_host(0).seed(6).build();
    let (nova, hosts, world) = (region.nova(), region.hosts(), region.world());
    let boot = |host: &HostName| region.boot(host, "1").unwrap();
    // Two a host, of whom one host has two already and another one: one place is left there, and two on the last.
    let apart: Vec<_> = [0, 0, 0, 0, 1, 1, 2].map(|host| boot(&hosts[host])).into();
    world.add_server_group("apart", GroupPolicy::AntiAffinity { per_host: 2 }, &apart).unwrap();
    let alone = boot(&hosts[0]);
    world.add_server_group("alone", GroupPolicy::Affinity, std::slice::from_ref(&alone)).unwrap();
    let soft = boot(&hosts[0]);
    world.add_server_group("soft", GroupPolicy::SoftAntiAffinity, &[soft]).unwrap();
    let found = planned(&region, &nova, &hosts[0]).await;
    let moves = by_id(&found);
    let went: Vec<_> = apart[..4].iter().filter_map(|vm| moves[vm].target.clone()).collect();
    let to = |host: &HostName| went.iter().filter(|target| *target == host).count();
    assert_eq!((to(&hosts[1]), to(&hosts[2]), to(&hosts[3])), (0, 1, 2), "{found:#?}");
    let stays: Vec<_> = found.stuck().collect();
    assert_eq!(stays.len(), 2, "{stays:#?}");
    let why = |id: &InstanceId| moves[id].why_not.clone().unwrap_or_default();
    let fourth = stays.iter().find(|one| one.id != alone).unwrap();
    assert!(why(&fourth.id).contains("3 with a member of its server group"), "{}", why(&fourth.id));
    assert!(why(&alone).contains("3 without a member of its server group"), "{}", why(&alone));
    assert!(found.notes.iter().any(|note| note.starts_with("1 server is in a server group whose policy is a wish")));
    // Who may not ask for groups gets a plan all the same, which says so.
    nova.faults().fail_next("server_groups", Failure::Denied);
    let blind = planned(&region, &nova, &hosts[0]).await;
    assert!(blind.would_succeed && blind.notes.iter().any(|note| note.starts_with("server groups were not seen")));
}
