//! Hosts are drained: by the controller alone, with a test in the part of the maintenance stage.

mod room;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cobalt_core::{
    api::{EvictedInstance, Eviction, EvictionSpec, Hypervisor, HypervisorSpec, InstanceState, MoveKind},
    ids::{HostName, InstanceId},
    nova::{BlockMigration, GroupPolicy, MigrationKind, MigrationPhase, NovaClient, PlacementClient, ServerStatus},
    operator::{DrainSettings, Operator, Settings},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Flavor, Region, Timing, faults::Failure};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{LONG, Rig};

const EVICTING: &str = "Evicting";
const OTHER: &str = "test-maintenance";

fn settings(change: impl FnOnce(&mut DrainSettings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings.drain);
    settings
}

fn with_concurrency(concurrency: usize) -> Settings {
    settings(|drain| drain.concurrency = concurrency)
}

impl Rig {
    /// An operator that drains and does nothing else.
    fn drainer(&self, settings: Settings) -> Operator {
        self.new_operator(settings).stages(Vec::new())
    }

    fn drains(&self, settings: Settings) {
        tokio::spawn(self.drainer(settings).run(self.stop.clone()));
    }

    /// A Hypervisor that knows its ids in Nova, in service.
    async fn ready_to_drain(&self, host: &HostName) {
        let object = Hypervisor::new(host.as_str(), HypervisorSpec::default());
        self.hypervisors().create(&PostParams::default(), &object).await.unwrap();
        let hypervisor = self.nova.hypervisor_named(host.as_str()).await.unwrap();
        let ids = json!({"hypervisorId": hypervisor.id, "serviceId": hypervisor.service, "numInstances": 0});
        self.write_status(host, ids).await;
    }

    async fn write_status(&self, host: &HostName, status: Value) {
        let params = PatchParams { field_manager: Some(OTHER.into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"status": status}));
        self.hypervisors().patch_status(host.as_str(), &params, &patch).await.unwrap();
    }

    /// What the maintenance stage does: the service is disabled, and the Hypervisor says so.
    async fn disable(&self, host: &HostName) {
        self.disable_service(host).await;
        self.say_disabled(host, true).await;
    }

    async fn disable_service(&self, host: &HostName) {
        let service = self.service(host).await;
        self.nova.disable_service(&service.id, "maintenance").await.unwrap();
    }

    async fn say_disabled(&self, host: &HostName, disabled: bool) {
        let at = self.region.world().now().to_string();
        let condition = json!({
            "type": "HypervisorDisabled", "status": if disabled { "True" } else { "False" }, "reason": "Succeeded",
            "message": "played by a test", "lastTransitionTime": at,
        });
        self.write_status(host, json!({"conditions": [condition]})).await;
    }

    async fn evict(&self, name: &str, host: &HostName) {
        let spec = EvictionSpec { hypervisor: host.to_string(), reason: "testing".into() };
        self.evictions().create(&PostParams::default(), &Eviction::new(name, spec)).await.unwrap();
    }

    async fn eviction_named(&self, name: &str) -> Eviction {
        self.evictions().get(name).await.unwrap()
    }

    /// Waits until the Eviction satisfies the test; fails with its last state otherwise.
    async fn until_eviction(&self, name: &str, what: &str, test: impl Fn(&Eviction) -> bool) -> Eviction {
        let deadline = tokio::time::Instant::now() + LONG * 4;
        loop {
            let seen = self.evictions().get_opt(name).await.unwrap();
            match seen {
                Some(found) if test(&found) => return found,
                last if tokio::time::Instant::now() > deadline => panic!("{name}: never {what}; last: {last:#?}"),
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    async fn drained(&self, name: &str) -> Eviction {
        self.until_eviction(name, "drained", |found| reason(found, EVICTING) == Some("Succeeded")).await
    }

    async fn servers_on(&self, host: &HostName) -> Vec<InstanceId> {
        self.nova.servers_on(host).await.unwrap().into_iter().map(|server| server.id).collect()
    }

    /// How often each server was asked to leave a host, by Nova's records.
    async fn moves_from(&self, host: &HostName) -> BTreeMap<InstanceId, usize> {
        let mut count = BTreeMap::new();
        for one in self.nova.migrations(host).await.unwrap().into_iter().filter(|one| one.source == *host) {
            *count.entry(one.server).or_default() += 1;
        }
        count
    }

    /// The largest number of moves from a host at the same time, by what Nova's records say of their times.
    async fn most_at_once(&self, host: &HostName) -> usize {
        let records = self.nova.migrations(host).await.unwrap();
        let mine: Vec<_> = records.iter().filter(|one| one.source == *host).collect();
        let at = |moment| {
            let over =
                mine.iter().filter(|one| one.created_at <= moment && (!one.phase.is_over() || one.updated_at > moment));
            over.count()
        };
        mine.iter().map(|one| at(one.created_at)).max().unwrap_or(0)
    }

    async fn events(&self) -> Vec<(String, String)> {
        let api: Api<cobalt_core::k8s_openapi::api::events::v1::Event> = Api::all(self.client.clone());
        let list = api.list(&kube::api::ListParams::default()).await.unwrap();
        list.into_iter().map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }
}

fn reason<'a>(eviction: &'a Eviction, type_: &str) -> Option<&'a str> {
    eviction.condition(type_).map(|condition| condition.reason.as_str())
}

fn message<'a>(eviction: &'a Eviction, type_: &str) -> Option<&'a str> {
    eviction.condition(type_).map(|condition| condition.message.as_str())
}

fn instances(eviction: &Eviction) -> BTreeMap<String, EvictedInstance> {
    let records = eviction.status.iter().flat_map(|status| status.instances().to_vec());
    records.map(|record| (record.id.clone(), record)).collect()
}

/// A server of a flavor that only its host takes.
pub(super) async fn pinned(rig: &Rig, host: &HostName) -> InstanceId {
    let flavor = Flavor { traits: ["CUSTOM_PINNED".to_owned()].into(), ..Flavor::new("pinned", "p1", 1, 1024) };
    rig.region.world().add_flavor(flavor);
    let id = rig.nova.hypervisor_named(host.as_str()).await.unwrap().id;
    let mut traits = rig.placement.traits(&id).await.unwrap();
    traits.names.insert("CUSTOM_PINNED".into());
    rig.placement.set_traits(&id, &traits).await.unwrap();
    rig.region.boot(host, "pinned").unwrap()
}

#[tokio::test(start_paused = true)]
async fn twenty_servers_leave_four_at_a_time_late_comers_too_and_one_that_cannot_is_named() {
    let rig = Rig::new(Region::builder().hosts(4).vms_per_host(0).seed(3).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.region.world().set_parallel_migrations(8);
    for _ in 0..20 {
        rig.region.boot(&host, "2").unwrap();
    }
    let stuck = pinned(&rig, &host).await;
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(4));
    rig.evict(host.as_str(), &host).await;
    rig.until_eviction(host.as_str(), "in the middle", |found| {
        instances(found).values().filter(|one| one.state == InstanceState::Moved).count() >= 4
    })
    .await;

    // Two arrive after all: the scheduler had sent them before it heard that the host is disabled.
    let service = rig.service(&host).await;
    rig.nova.enable_service(&service.id).await.unwrap();
    let late = [rig.region.boot(&host, "2").unwrap(), rig.region.boot(&host, "3").unwrap()];
    rig.nova.disable_service(&service.id, "maintenance").await.unwrap();

    let blocked =
        rig.until_eviction(host.as_str(), "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    assert!(blocked.condition(EVICTING).unwrap().is_true(), "the host is not empty");
    assert!(message(&blocked, EVICTING).unwrap().starts_with("1 instance cannot move: vm-"), "{blocked:?}");
    assert_eq!(rig.servers_on(&host).await, std::slice::from_ref(&stuck));
    let status = blocked.status.clone().unwrap();
    assert_eq!(status.outstanding_instances(), [stuck.to_string()]);
    assert_eq!(status.outstanding_ram_mb, Some(1024));
    let records = instances(&blocked);
    assert_eq!(records.len(), 23);
    assert!(
        records[stuck.as_str()].error.as_deref().unwrap().contains("CUSTOM_PINNED"),
        "{:?}",
        records[stuck.as_str()]
    );
    for vm in &late {
        assert_eq!(records[vm.as_str()].state, InstanceState::Moved);
        let target = records[vm.as_str()].target.clone().unwrap();
        assert_eq!(rig.nova.server(vm).await.unwrap().host, Some(HostName::from(target.as_str())));
    }
    let moves = rig.moves_from(&host).await;
    assert_eq!(moves.len(), 22, "the one that cannot move was not even asked");
    assert!(moves.values().all(|times| *times == 1), "{moves:?}");
    assert!(rig.most_at_once(&host).await <= 4);
    assert_eq!(reason(&blocked, "MigratingInstance"), Some("Failed"));
    assert!(rig.events().await.iter().any(|(reason, _)| reason == "InstanceBlocked"));

    // It goes too once somebody deletes it, and only then the host is empty.
    rig.nova.delete_server(&stuck).await.unwrap();
    let done = rig.drained(host.as_str()).await;
    assert!(done.condition(EVICTING).unwrap().is_false());
    assert_eq!(instances(&done)[stuck.as_str()].state, InstanceState::Gone);
    assert_eq!(done.status.unwrap().outstanding_ram_mb, Some(0));
    assert!(done.metadata.finalizers.unwrap_or_default().is_empty());
    assert_eq!(rig.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_killed_in_the_middle_moves_nothing_twice_and_forgets_nothing() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(12).seed(7).build()).await;
    let host = rig.region.hosts()[1].clone();
    rig.region.world().set_parallel_migrations(3);
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    let before: BTreeSet<InstanceId> = rig.servers_on(&host).await.into_iter().collect();
    rig.evict(host.as_str(), &host).await;
    let mut life = 0;
    loop {
        // Killed, not asked to end: in the middle of whatever it does.
        let run = tokio::spawn(rig.drainer(with_concurrency(3)).run(Shutdown::new()));
        tokio::time::sleep(Duration::from_millis(2700 + 311 * life)).await;
        run.abort();
        let _ended = run.await;
        life += 1;
        if rig.servers_on(&host).await.is_empty() && rig.region.world().migrating().is_empty() {
            break;
        }
        assert!(life < 200, "it never ends");
    }
    assert!(life > 2, "it was killed in the middle");
    rig.drains(with_concurrency(3));
    let done = rig.drained(host.as_str()).await;
    let moves = rig.moves_from(&host).await;
    assert_eq!(moves.keys().cloned().collect::<BTreeSet<_>>(), before);
    assert!(moves.values().all(|times| *times == 1), "{moves:?}");
    assert!(rig.most_at_once(&host).await <= 3);
    let records = instances(&done);
    assert!(before.iter().all(|vm| records[vm.as_str()].state == InstanceState::Moved), "{records:?}");
    assert_eq!(rig.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_away_for_a_while_only_delays() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(6).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(2));
    rig.evict(host.as_str(), &host).await;
    rig.until_eviction(host.as_str(), "begun", |found| {
        instances(found).values().any(|one| one.state == InstanceState::Moved)
    })
    .await;
    rig.region.world().set_nova_available(false);
    let away = rig
        .until_eviction(host.as_str(), "noticing", |found| {
            message(found, EVICTING).is_some_and(|message| message.contains("does not answer"))
        })
        .await;
    assert!(away.condition(EVICTING).unwrap().is_true());
    tokio::time::sleep(Duration::from_secs(20)).await;
    rig.region.world().set_nova_available(true);
    rig.drained(host.as_str()).await;
    assert!(rig.moves_from(&host).await.values().all(|times| *times == 1));
    assert_eq!(rig.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_found_in_what_nova_does() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(3).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.nova.faults().lose_answer("live_migrate");
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    rig.drained(host.as_str()).await;
    let moves = rig.moves_from(&host).await;
    assert_eq!(moves.len(), 3);
    assert!(moves.values().all(|times| *times == 1), "{moves:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_recorded_and_the_others_go_on() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(5).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.nova.faults().fail_next("live_migrate", Failure::Refused);
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    let seen = rig
        .until_eviction(host.as_str(), "said", |found| {
            instances(found).values().any(|one| one.state == InstanceState::Failed)
        })
        .await;
    assert!(message(&seen, "MigratingInstance").unwrap().contains("injected fault"), "{seen:?}");
    let refused = instances(&seen).into_values().find(|one| one.state == InstanceState::Failed).unwrap();
    let done = rig.drained(host.as_str()).await;
    let records = instances(&done);
    assert_eq!(records[&refused.id].attempts, 2);
    let last = records.values().max_by_key(|one| one.finished_at.as_ref().map(|at| at.0)).unwrap();
    assert_eq!(last.id, refused.id, "nobody waited behind it");
}

#[tokio::test(start_paused = true)]
async fn a_move_that_fails_every_time_is_blocked_and_tried_seldom() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(1).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    let vm = rig.servers_on(&host).await.remove(0);
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.region.world().fail_migrations(4, "the guest dirties its memory too fast");
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    let blocked =
        rig.until_eviction(host.as_str(), "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    let record = &instances(&blocked)[vm.as_str()];
    assert_eq!((record.attempts, &record.state), (3, &InstanceState::Blocked));
    assert!(record.error.as_deref().unwrap().contains("its migration failed"), "{record:?}");
    let done = rig.drained(host.as_str()).await;
    assert_eq!(instances(&done)[vm.as_str()].attempts, 5);
    assert_eq!(rig.moves_from(&host).await[&vm], 5);
}

#[tokio::test(start_paused = true)]
async fn a_move_that_takes_too_long_is_stopped_and_the_time_in_the_queue_does_not_count() {
    let timing = Timing { copy_per_gib: Duration::from_secs(20), ..Timing::default() };
    let region = Region::builder().hosts(2).vms_per_host(0).timing(timing).seed(4).build();
    let rig = Rig::new(region).await;
    let host = rig.region.hosts()[0].clone();
    // Forty seconds each, one after the other: the third is in Nova's queue for longer than it may take.
    rig.region.world().add_flavor(Flavor::new("two", "t2", 1, 2048));
    let small: Vec<_> = (0..3).map(|_| rig.region.boot(&host, "two").unwrap()).collect();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(settings(|drain| (drain.concurrency, drain.timeout) = (4, Duration::from_secs(60))));
    rig.evict(host.as_str(), &host).await;
    let done = rig.drained(host.as_str()).await;
    assert!(small.iter().all(|vm| instances(&done)[vm.as_str()].attempts == 1), "{done:?}");
    assert!(rig.moves_from(&host).await.values().all(|times| *times == 1));

    // One that takes more than a minute is stopped, three times, and is blocked then.
    let (other, big) = (rig.region.hosts()[1].clone(), "4");
    let service = rig.service(&host).await;
    rig.nova.enable_service(&service.id).await.unwrap();
    for vm in rig.servers_on(&other).await {
        rig.region.world().delete(&vm).unwrap();
    }
    let vm = rig.region.boot(&other, big).unwrap();
    rig.ready_to_drain(&other).await;
    rig.disable(&other).await;
    // Until the operator has seen that the first host takes instances again.
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.evict(other.as_str(), &other).await;
    let blocked =
        rig.until_eviction(other.as_str(), "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    let record = &instances(&blocked)[vm.as_str()];
    assert_eq!(record.error.as_deref(), Some("it took longer than 60 s, and was stopped"));
    let ended: Vec<_> = rig.nova.migrations(&other).await.unwrap().into_iter().map(|one| one.phase).collect();
    assert_eq!(ended.iter().filter(|phase| **phase == MigrationPhase::Cancelled).count(), 3, "{ended:?}");
    assert_eq!(rig.servers_on(&other).await, [vm], "and it is where it was");
    assert_eq!(rig.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_shut_off_move_cold_and_are_confirmed() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(2).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    let vms = rig.servers_on(&host).await;
    rig.region.world().guest_shutdown(&vms[0]).unwrap();
    // One that its owner resized: it waits for a yes where it is now.
    rig.nova.cold_migrate(&vms[1], None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.nova.server(&vms[1]).await.unwrap().status, ServerStatus::VerifyResize);
    let now_on = rig.nova.server(&vms[1]).await.unwrap().host.unwrap();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(2));
    rig.evict(host.as_str(), &host).await;
    let done = rig.drained(host.as_str()).await;
    let record = &instances(&done)[vms[0].as_str()];
    assert_eq!((record.how.clone(), &record.state), (Some(MoveKind::Cold), &InstanceState::Moved));
    let moved = rig.nova.server(&vms[0]).await.unwrap();
    assert_eq!(moved.status, ServerStatus::ShutOff, "it is off, as it was");
    assert_ne!(moved.host, Some(host.clone()));
    let resized = rig.nova.server(&vms[1]).await.unwrap();
    assert_eq!((resized.status, resized.host), (ServerStatus::Active, Some(now_on.clone())), "confirmed where it was");
    assert!(rig.nova.migrations(&host).await.unwrap().iter().all(|one| one.phase.is_over()));

    // And the host where it went to: confirmed first, then moved.
    rig.nova.cold_migrate(&vms[1], None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let there = rig.nova.server(&vms[1]).await.unwrap().host.unwrap();
    rig.ready_to_drain(&there).await;
    rig.disable(&there).await;
    rig.evict("second", &there).await;
    rig.drained("second").await;
    assert_eq!(rig.servers_on(&there).await, []);
    assert_eq!(rig.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_to_the_host_is_stopped_or_awaited() {
    let timing = Timing { copy_per_gib: Duration::from_secs(10), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(1).timing(timing).seed(4).build()).await;
    let hosts = rig.region.hosts();
    let (host, source) = (hosts[0].clone(), hosts[1].clone());
    let (own, vm) = (rig.servers_on(&host).await.remove(0), rig.servers_on(&source).await.remove(0));
    rig.nova.live_migrate(&vm, Some(&host), BlockMigration::Auto).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    let seen = rig
        .until_eviction(host.as_str(), "aware", |found| found.condition("IncomingMigrationsSettled").is_some())
        .await;
    assert_eq!(reason(&seen, "IncomingMigrationsSettled"), Some("AbortingIncomingMigrations"));
    let done = rig.drained(host.as_str()).await;
    assert_eq!(reason(&done, "IncomingMigrationsSettled"), Some("Settled"));
    assert_eq!(rig.nova.server(&vm).await.unwrap().host, Some(source.clone()), "it stayed where it was");
    assert_ne!(rig.nova.server(&own).await.unwrap().host, Some(host.clone()));

    // A cold one cannot be stopped: it arrives, and leaves again.
    let service = rig.service(&host).await;
    rig.nova.enable_service(&service.id).await.unwrap();
    let full = rig.service(&hosts[2]).await;
    rig.nova.disable_service(&full.id, "so that it goes to the first").await.unwrap();
    rig.nova.cold_migrate(&vm, None).await.unwrap();
    rig.nova.enable_service(&full.id).await.unwrap();
    rig.nova.disable_service(&service.id, "again").await.unwrap();
    rig.evict("again", &host).await;
    let waiting = rig
        .until_eviction("again", "waiting", |found| {
            reason(found, "IncomingMigrationsSettled") == Some("WaitingForIncomingMigrations")
        })
        .await;
    assert!(waiting.condition(EVICTING).unwrap().is_true());
    rig.drained("again").await;
    assert_eq!(rig.servers_on(&host).await, []);
    let kinds: Vec<_> = rig.nova.migrations(&host).await.unwrap().into_iter().map(|one| one.kind).collect();
    assert!(kinds.contains(&MigrationKind::Cold));
}

#[tokio::test(start_paused = true)]
async fn more_at_a_time_is_faster() {
    let drain = |concurrency: usize| async move {
        let region = Region::builder().hosts(4).vms_per_host(0).seed(3).build();
        let rig = Rig::new(region).await;
        let host = rig.region.hosts()[0].clone();
        rig.region.world().set_parallel_migrations(16);
        for _ in 0..24 {
            rig.region.boot(&host, "3").unwrap();
        }
        rig.ready_to_drain(&host).await;
        rig.disable(&host).await;
        let began = tokio::time::Instant::now();
        rig.drains(with_concurrency(concurrency));
        rig.evict(host.as_str(), &host).await;
        rig.drained(host.as_str()).await;
        assert!(rig.most_at_once(&host).await <= concurrency);
        began.elapsed()
    };
    let (one, two, four, eight) = (drain(1).await, drain(2).await, drain(4).await, drain(8).await);
    assert!(two < one * 6 / 10 && four < two * 6 / 10 && eight < four * 7 / 10, "{one:?} {two:?} {four:?} {eight:?}");
}

#[tokio::test(start_paused = true)]
async fn drains_share_the_limits_of_the_region_and_of_targets() {
    let rig = Rig::new(Region::builder().hosts(5).vms_per_host(6).seed(9).build()).await;
    rig.region.world().set_parallel_migrations(16);
    let hosts = rig.region.hosts();
    let limits = |drain: &mut DrainSettings| {
        (drain.concurrency, drain.region_concurrency, drain.target_concurrency) = (4, 3, 1);
    };
    for host in &hosts[..2] {
        // Cold moves have targets as live ones do.
        for vm in &rig.servers_on(host).await[..2] {
            rig.region.world().guest_shutdown(vm).unwrap();
        }
        rig.ready_to_drain(host).await;
        rig.disable(host).await;
        rig.evict(host.as_str(), host).await;
    }
    rig.drains(settings(limits));
    let drained =
        async |host: &HostName| reason(&rig.eviction_named(host.as_str()).await, EVICTING) == Some("Succeeded");
    let (mut most, mut most_to_one) = (0, 0);
    while !(drained(&hosts[0]).await && drained(&hosts[1]).await) {
        let mut to: BTreeMap<HostName, usize> = BTreeMap::new();
        let mut all = BTreeSet::new();
        for host in &hosts {
            let open = rig.nova.migrations(host).await.unwrap().into_iter().filter(|one| !one.phase.is_over());
            for one in open.filter(|one| one.source == *host) {
                all.insert(one.server.clone());
                *to.entry(one.destination.unwrap()).or_default() += 1;
            }
        }
        most = most.max(all.len());
        most_to_one = most_to_one.max(to.values().copied().max().unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!((most, most_to_one), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn names_with_dots_and_names_that_begin_with_each_other_are_told_apart() {
    let names = ["hv-1.zone-a.example", "hv-1.zone-b.example", "hv-10.zone-a.example"];
    let rig = Rig::new(Region::builder().named(names).vms_per_host(3).seed(4).build()).await;
    let hosts = rig.region.hosts();
    let host = hosts.iter().find(|host| host.as_str() == names[0]).unwrap();
    let before = rig.servers_on(host).await;
    rig.ready_to_drain(host).await;
    rig.disable(host).await;
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), host).await;
    let done = rig.drained(host.as_str()).await;
    assert_eq!(rig.servers_on(host).await, []);
    for vm in &before {
        assert_eq!(instances(&done)[vm.as_str()].state, InstanceState::Moved);
        assert_ne!(rig.nova.server(vm).await.unwrap().host.as_ref(), Some(host));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_moves_before_the_host_is_disabled_in_both_places() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(2).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    let preflight = "PreflightChecksSucceeded";
    let first = rig.until_eviction(host.as_str(), "said", |found| found.condition(preflight).is_some()).await;
    assert_eq!(message(&first, preflight), Some("hypervisor not disabled"));
    assert_eq!((reason(&first, EVICTING), reason(&first, preflight)), (Some("Running"), Some("Failed")));
    assert_eq!(rig.nova.faults().calls("servers_on"), 0, "Nova is not asked for what the Hypervisor says");
    rig.say_disabled(&host, true).await;
    let second = rig
        .until_eviction(host.as_str(), "said", |found| {
            message(found, preflight).is_some_and(|message| message.contains("Nova"))
        })
        .await;
    assert_eq!(reason(&second, preflight), Some("Failed"));
    assert_eq!(rig.moves_from(&host).await, BTreeMap::new());
    rig.disable(&host).await;
    let done = rig.drained(host.as_str()).await;
    assert_eq!(
        message(&done, preflight),
        Some("Preflight checks passed, hypervisor is disabled and ready for eviction")
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_nova_never_knew_is_empty_and_one_that_it_should_know_is_not() {
    let rig = Rig::new(Region::builder().hosts(1).vms_per_host(0).build()).await;
    rig.drains(with_concurrency(1));
    for name in ["never", "lost"] {
        let object = Hypervisor::new(name, HypervisorSpec::default());
        rig.hypervisors().create(&PostParams::default(), &object).await.unwrap();
    }
    let lost = HostName::from("lost");
    rig.write_status(&lost, json!({"hypervisorId": "6b1c", "serviceId": "0f1a", "numInstances": 0})).await;
    rig.say_disabled(&lost, true).await;
    rig.evict("never", &HostName::from("never")).await;
    rig.evict("lost", &lost).await;
    let done = rig.drained("never").await;
    assert_eq!(message(&done, EVICTING), Some("eviction completed successfully due to expected case of no hypervisor"));
    let failed = rig.until_eviction("lost", "failed", |found| reason(found, EVICTING) == Some("Failed")).await;
    assert!(failed.condition(EVICTING).unwrap().is_true(), "failed is not evicted");
    assert!(message(&failed, EVICTING).unwrap().starts_with("failed to get hypervisor"));
}

#[tokio::test(start_paused = true)]
async fn the_host_is_empty_when_libvirt_agrees() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(2).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.agent(&host);
    rig.until(&host, "counted", |found| found.status.as_ref().is_some_and(|status| status.num_instances() == 2)).await;
    // One that Nova knows nothing of.
    let stray = rig.region.world().start_domain(&host, &cobalt_sim::VmSpec::default()).unwrap();
    rig.disable(&host).await;
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    let blocked =
        rig.until_eviction(host.as_str(), "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    assert_eq!(message(&blocked, EVICTING), Some("Nova has no server on the host, and libvirt has 1 instances"));
    assert_eq!(rig.servers_on(&host).await, []);
    rig.region.world().remove_domain(&host, &stray).unwrap();
    let done = rig.drained(host.as_str()).await;
    assert_eq!(message(&done, EVICTING), Some("eviction completed successfully"));
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_asked_and_nothing_is_written() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(2).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(2));
    rig.evict(host.as_str(), &host).await;
    let done = rig.drained(host.as_str()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let asked = |method| rig.nova.faults().calls(method);
    let before = [asked("servers_on"), asked("migrations"), asked("service_on"), asked("server")];
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(before, [asked("servers_on"), asked("migrations"), asked("service_on"), asked("server")]);
    assert_eq!(
        rig.eviction_named(host.as_str()).await.resource_version(),
        done_version(&rig, host.as_str(), &done).await
    );

    // Neither does one that can only wait write anything while it waits.
    let other = rig.region.hosts()[1].clone();
    let stuck = pinned(&rig, &other).await;
    rig.ready_to_drain(&other).await;
    rig.disable(&other).await;
    rig.evict(other.as_str(), &other).await;
    rig.until_eviction(other.as_str(), "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    assert!(rig.servers_on(&other).await.contains(&stuck));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let version = rig.eviction_named(other.as_str()).await.resource_version();
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(rig.eviction_named(other.as_str()).await.resource_version(), version);
}

/// The version after the last write of the end, which is the finalizer's.
async fn done_version(rig: &Rig, name: &str, done: &Eviction) -> Option<String> {
    let now = rig.eviction_named(name).await;
    assert!(now.metadata.finalizers.clone().unwrap_or_default().is_empty());
    assert_eq!(now.status, done.status);
    now.resource_version()
}

#[tokio::test(start_paused = true)]
async fn a_deleted_eviction_stops_what_it_has_begun_and_goes() {
    let timing = Timing { copy_per_gib: Duration::from_secs(30), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(4).timing(timing).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.region.world().set_parallel_migrations(4);
    let vms = rig.servers_on(&host).await;
    rig.region.world().guest_shutdown(&vms[0]).unwrap();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    let stop = Shutdown::new();
    let run = tokio::spawn(rig.drainer(with_concurrency(4)).run(stop.clone()));
    rig.evict(host.as_str(), &host).await;
    rig.wait("moving", async || rig.region.world().migrating().len() == 4).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    // Nobody is there at the moment of the deletion: it waits for the next operator.
    run.abort();
    rig.evictions().delete(host.as_str(), &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(rig.evictions().get_opt(host.as_str()).await.unwrap().is_some());
    rig.drains(with_concurrency(4));
    rig.wait("gone", async || rig.evictions().get_opt(host.as_str()).await.unwrap().is_none()).await;
    assert_eq!(rig.region.world().migrating(), []);
    let cold = rig.nova.server(&vms[0]).await.unwrap();
    assert!(cold.status == ServerStatus::ShutOff && cold.host != Some(host.clone()), "seen to its end: {cold:?}");
    assert_eq!(rig.servers_on(&host).await, vms[1..], "stopped");
    let asked = rig.moves_from(&host).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.moves_from(&host).await, asked, "nothing new");
    assert!(rig.events().await.iter().any(|(reason, _)| reason == "Withdrawn"));
    assert_eq!(rig.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_does_not_hang_while_the_cloud_is_away() {
    let timing = Timing { copy_per_gib: Duration::from_secs(300), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(1).timing(timing).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    rig.wait("moving", async || rig.region.world().migrating().len() == 1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    rig.region.world().set_nova_available(false);
    rig.evictions().delete(host.as_str(), &DeleteParams::default()).await.unwrap();
    rig.wait("gone", async || rig.evictions().get_opt(host.as_str()).await.unwrap().is_none()).await;
    assert!(rig.events().await.iter().any(|(reason, _)| reason == "WithdrawnMoving"));
}

#[tokio::test(start_paused = true)]
async fn of_two_evictions_of_one_host_the_older_works_and_both_end() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(5).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.evict("by-hand", &host).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    rig.evict(host.as_str(), &host).await;
    rig.drains(with_concurrency(1));
    let back = rig
        .until_eviction(host.as_str(), "standing back", |found| {
            message(found, EVICTING) == Some("Running; Eviction by-hand drains this host")
        })
        .await;
    assert!(instances(&back).is_empty(), "it only waits: {back:?}");
    rig.drained("by-hand").await;
    rig.drained(host.as_str()).await;
    assert_eq!(rig.most_at_once(&host).await, 1);
    assert!(rig.moves_from(&host).await.values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_begins_when_an_older_one_that_is_deleted_has_stopped_its_moves() {
    let timing = Timing { copy_per_gib: Duration::from_secs(40), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(0).timing(timing).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.region.world().add_flavor(Flavor::new("two", "t2", 1, 2048));
    for _ in 0..5 {
        rig.region.boot(&host, "two").unwrap();
    }
    // One is shut off: its move cannot be stopped, and is awaited.
    rig.region.world().guest_shutdown(&rig.servers_on(&host).await[0]).unwrap();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.evict("by-hand", &host).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    rig.evict(host.as_str(), &host).await;
    rig.drains(with_concurrency(5));
    rig.wait("moving", async || rig.region.world().migrating().len() == 5).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.evictions().delete("by-hand", &DeleteParams::default()).await.unwrap();
    let before = rig.nova.migrations(&host).await.unwrap().len();
    let gone = async || rig.evictions().get_opt("by-hand").await.unwrap().is_none();
    rig.wait("gone", gone).await;
    assert_eq!(rig.nova.migrations(&host).await.unwrap().len(), before, "nothing new begins while it is held");
    rig.drained(host.as_str()).await;
    // Newest first: what came after that was not stopped.
    let all = rig.nova.migrations(&host).await.unwrap();
    let later = &all[..all.len() - before];
    assert!(!later.is_empty() && later.iter().all(|one| one.phase == MigrationPhase::Completed), "{later:?}");
    assert!(rig.most_at_once(&host).await <= 5);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_of_an_earlier_program_is_taken_over_and_its_failure_is_no_end() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(2).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.evict(host.as_str(), &host).await;
    let params = PatchParams { field_manager: Some("eviction".into()), ..PatchParams::default() };
    let condition = json!({
        "type": EVICTING, "status": "False", "reason": "Failed", "message": "failed to get hypervisor",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let patch = Patch::Merge(json!({"status": {"conditions": [condition], "outstandingRamMb": 77}}));
    rig.evictions().patch_status(host.as_str(), &params, &patch).await.unwrap();
    rig.drains(with_concurrency(1));
    let done = rig.drained(host.as_str()).await;
    assert_eq!(rig.servers_on(&host).await, []);
    let theirs =
        done.metadata.managed_fields.unwrap().into_iter().filter(|one| one.manager.as_deref() == Some("eviction"));
    assert_eq!(theirs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_only_observes_says_what_it_would_move_and_moves_nothing() {
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(3).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.evict(host.as_str(), &host).await;
    let version = rig.eviction_named(host.as_str()).await.resource_version();
    let operator = rig.drainer(with_concurrency(2)).observe_only(true);
    let hand = operator.hand();
    tokio::spawn(operator.run(rig.stop.clone()));
    let about = format!("eviction/{host}");
    let moves = || hand.wishes().into_iter().filter(|wish| wish.about == about).collect::<Vec<_>>();
    rig.wait("said", async || moves().len() == 2).await;
    assert!(moves().iter().all(|wish| wish.action.starts_with("live-migrate server ")), "{:?}", moves());
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.moves_from(&host).await, BTreeMap::new());
    assert_eq!(rig.eviction_named(host.as_str()).await.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_hears_no_stop_keeps_one_server_and_not_the_others() {
    let timing = Timing { copy_per_gib: Duration::from_secs(20), ..Timing::default() };
    let region = Region::builder().hosts(3).vms_per_host(0).cells([(64, 128)]).timing(timing).seed(4).build();
    let rig = Rig::new(region).await;
    let (host, world) = (rig.region.hosts()[0].clone(), rig.region.world());
    world.add_flavor(Flavor::new("huge", "h1", 1, 51_200));
    let huge = rig.region.boot(&host, "huge").unwrap();
    let small: Vec<_> = (0..3).map(|_| rig.region.boot(&host, "1").unwrap()).collect();
    world.set_parallel_migrations(4);
    world.set_aborts_heard(false);
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(settings(|drain| (drain.concurrency, drain.timeout) = (1, Duration::from_secs(60))));
    rig.evict(host.as_str(), &host).await;
    let stuck = rig
        .until_eviction(host.as_str(), "alone with the one that does not stop", |found| {
            let records = instances(found);
            let state = |vm: &InstanceId| records.get(vm.as_str()).map(|one| one.state.clone());
            state(&huge) == Some(InstanceState::Overdue)
                && small.iter().all(|vm| state(vm) == Some(InstanceState::Moved))
        })
        .await;
    assert_eq!(rig.servers_on(&host).await, std::slice::from_ref(&huge));
    assert!(message(&stuck, EVICTING).unwrap().contains("does not stop"), "{stuck:?}");
    assert!(!stuck.metadata.finalizers.clone().unwrap_or_default().is_empty(), "it still moves");
    assert!(rig.nova.faults().calls("abort_migration") <= 6, "{}", rig.nova.faults().calls("abort_migration"));
    for (what, vm) in [("InstanceMoved", &small[0]), ("MigrationStopped", &huge), ("MigrationOverdue", &huge)] {
        let told =
            async || rig.events().await.iter().any(|(reason, note)| reason == what && note.contains(vm.as_str()));
        rig.wait(what, told).await;
    }
    let done = rig.drained(host.as_str()).await;
    assert_eq!(
        (&instances(&done)[huge.as_str()].state, instances(&done)[huge.as_str()].attempts),
        (&InstanceState::Moved, 1)
    );
    assert_eq!(world.check(), []);
}

#[tokio::test(start_paused = true)]
async fn records_that_a_restart_of_a_compute_service_left_open_cost_minutes_and_not_hours() {
    let timing = Timing { copy_per_gib: Duration::from_secs(10), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(2).timing(timing).seed(4).build()).await;
    let (hosts, world) = (rig.region.hosts(), rig.region.world());
    let (host, source) = (hosts[0].clone(), hosts[1].clone());
    // One on its way to the host, behind another one in the queue, and forgotten there.
    let coming = rig.servers_on(&source).await;
    for vm in &coming {
        rig.nova.live_migrate(vm, Some(&host), BlockMigration::Auto).await.unwrap();
    }
    world.forget_migration(&coming[1]);
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    let began = tokio::time::Instant::now();
    rig.drains(with_concurrency(2));
    rig.evict(host.as_str(), &host).await;
    // And one on its way from the host.
    let queued = async || {
        let all = rig.nova.migrations(&host).await.unwrap();
        all.into_iter().find(|one| one.source == host && one.phase == MigrationPhase::Queued)
    };
    rig.wait("one queues", async || queued().await.is_some()).await;
    let forgotten = queued().await.unwrap();
    world.forget_migration(&forgotten.server);
    let done = rig.drained(host.as_str()).await;
    assert!(began.elapsed() < Duration::from_secs(600), "{:?}", began.elapsed());
    assert_eq!(instances(&done)[forgotten.server.as_str()].attempts, 2);
    let open: Vec<_> =
        rig.nova.migrations(&host).await.unwrap().into_iter().filter(|one| !one.phase.is_over()).collect();
    assert_eq!(open.len(), 2, "nobody has closed them: {open:?}");
    assert!(rig.nova.faults().calls("abort_migration") <= 4, "{}", rig.nova.faults().calls("abort_migration"));
}

#[tokio::test(start_paused = true)]
async fn each_of_many_records_that_were_left_open_has_its_turn() {
    let region = Region::builder().hosts(2).vms_per_host(0).cells([(64, 128)]).seed(4).build();
    let rig = Rig::new(region).await;
    let (hosts, world) = (rig.region.hosts(), rig.region.world());
    for _ in 0..50 {
        let vm = rig.region.boot(&hosts[1], "1").unwrap();
        rig.nova.live_migrate(&vm, Some(&hosts[0]), BlockMigration::Auto).await.unwrap();
        world.forget_migration(&vm);
    }
    let open = rig.nova.migrations(&hosts[0]).await.unwrap().into_iter().filter(|one| !one.phase.is_over()).count();
    assert_eq!(open, 50);
    tokio::time::sleep(Duration::from_secs(120)).await;
    rig.ready_to_drain(&hosts[0]).await;
    rig.disable(&hosts[0]).await;
    let began = tokio::time::Instant::now();
    rig.drains(with_concurrency(1));
    rig.evict("first", &hosts[0]).await;
    rig.drained("first").await;
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    assert_eq!(rig.nova.faults().calls("server"), 50, "once is enough");
    assert_eq!(rig.nova.faults().calls("abort_migration"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_that_takes_its_time_is_no_failure() {
    let timing = Timing { confirm: Duration::from_secs(90), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(2).timing(timing).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    let vms = rig.servers_on(&host).await;
    for vm in &vms {
        rig.region.world().guest_shutdown(vm).unwrap();
    }
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(2));
    rig.evict(host.as_str(), &host).await;
    let done = rig.drained(host.as_str()).await;
    for vm in &vms {
        let record = &instances(&done)[vm.as_str()];
        assert_eq!((record.attempts, &record.error, &record.state), (1, &None, &InstanceState::Moved), "{record:?}");
    }
    assert_eq!(rig.nova.faults().calls("confirm_migration"), 2);
    assert!(!rig.events().await.iter().any(|(reason, _)| reason == "MigrationFailed"));
}

#[tokio::test(start_paused = true)]
async fn hosts_that_are_out_of_the_question_are_named_as_in_the_plan() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(1).seed(4).build()).await;
    let hosts = rig.region.hosts();
    for host in &hosts {
        rig.disable_service(host).await;
    }
    rig.ready_to_drain(&hosts[0]).await;
    rig.say_disabled(&hosts[0], true).await;
    rig.drains(with_concurrency(1));
    rig.evict("first", &hosts[0]).await;
    let blocked = rig.until_eviction("first", "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    let said = message(&blocked, EVICTING).unwrap();
    assert!(said.contains("every host with room for it is out of the question (2 disabled)"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_whose_hypervisor_has_gone_is_let_go_with_a_warning() {
    let timing = Timing { copy_per_gib: Duration::from_secs(300), ..Timing::default() };
    let rig = Rig::new(Region::builder().hosts(2).vms_per_host(1).timing(timing).seed(4).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.ready_to_drain(&host).await;
    rig.disable(&host).await;
    rig.drains(with_concurrency(1));
    rig.evict(host.as_str(), &host).await;
    rig.until_eviction(host.as_str(), "moving", |found| {
        instances(found).values().any(|one| one.state == InstanceState::Migrating)
    })
    .await;
    rig.hypervisors().delete(host.as_str(), &DeleteParams::default()).await.unwrap();
    rig.evictions().delete(host.as_str(), &DeleteParams::default()).await.unwrap();
    rig.wait("gone", async || rig.evictions().get_opt(host.as_str()).await.unwrap().is_none()).await;
    let told = async || {
        let events = rig.events().await;
        events.iter().any(|(reason, note)| reason == "WithdrawnUnseen" && note.contains("1 instances may still move"))
    };
    rig.wait("told", told).await;
}

#[tokio::test(start_paused = true)]
async fn members_of_a_group_do_not_go_where_its_policy_forbids() {
    let rig = Rig::new(Region::builder().hosts(4).vms_per_host(0).seed(4).build()).await;
    let (hosts, world) = (rig.region.hosts(), rig.region.world());
    let apart: Vec<_> = hosts[..3].iter().map(|host| rig.region.boot(host, "1").unwrap()).collect();
    let together: Vec<_> = (0..2).map(|_| rig.region.boot(&hosts[0], "1").unwrap()).collect();
    let soft: Vec<_> = (0..2).map(|_| rig.region.boot(&hosts[0], "1").unwrap()).collect();
    world.add_server_group("apart", GroupPolicy::AntiAffinity { per_host: 1 }, &apart).unwrap();
    world.add_server_group("together", GroupPolicy::Affinity, &together).unwrap();
    world.add_server_group("soft", GroupPolicy::SoftAffinity, &soft).unwrap();
    // The only host that may take the first one takes nobody now.
    let last = rig.service(&hosts[3]).await;
    rig.nova.disable_service(&last.id, "for a while").await.unwrap();
    rig.ready_to_drain(&hosts[0]).await;
    rig.disable(&hosts[0]).await;
    rig.drains(with_concurrency(2));
    rig.evict("first", &hosts[0]).await;
    let blocked = rig.until_eviction("first", "blocked", |found| reason(found, EVICTING) == Some("Blocked")).await;
    let records = instances(&blocked);
    let error = |vm: &InstanceId| records[vm.as_str()].error.clone().unwrap_or_default();
    assert!(error(&apart[0]).contains("1 disabled, 2 with a member of its server group"), "{}", error(&apart[0]));
    for vm in &together {
        assert!(error(vm).contains("2 without a member of its server group"), "{}", error(vm));
    }
    assert!(
        soft.iter().all(|vm| records[vm.as_str()].state == InstanceState::Moved),
        "a wish keeps nobody: {records:?}"
    );
    let asked = rig.nova.faults().calls("server_groups");
    assert!((1..=3).contains(&asked), "{asked}");
    rig.nova.enable_service(&last.id).await.unwrap();
    rig.until_eviction("first", "gone on", |found| instances(found)[apart[0].as_str()].state == InstanceState::Moved)
        .await;
    assert_eq!(rig.nova.server(&apart[0]).await.unwrap().host.as_ref(), Some(&hosts[3]));
    assert_eq!(rig.servers_on(&hosts[0]).await.len(), 2, "they want to stay together, and Nova lets them go nowhere");
}
