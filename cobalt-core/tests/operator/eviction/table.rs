//! One look after the other, as tables and short stories.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    api::{ConditionStatus, EvictedInstance, EvictionStatus, InstanceState, MoveKind, conditions, labels, testing},
    ids::{HostName, InstanceId},
    nova::{
        BlockMigration, ComputeService, Migration, MigrationKind, MigrationPhase, Server, ServerStatus, ServiceState,
        TaskState,
    },
    operator::{
        AgentSeen, Outcome,
        eviction::{DrainPlan, DrainSeen, DrainSettings, HostSeen, HostState, InFlight, Moves, Room, Step, decide},
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{START, at, hypervisor, migration, reason, room, seen, server, service, settings, state_of, with_servers};

#[test]
fn each_kind_of_server_is_treated_as_nova_will_have_it() {
    let word = |word: &str| ServerStatus::Other(word.to_owned());
    let table: [(ServerStatus, InstanceState, Option<MoveKind>); 12] = [
        (ServerStatus::Active, InstanceState::Pending, Some(MoveKind::Live)),
        (ServerStatus::Paused, InstanceState::Pending, Some(MoveKind::Live)),
        (ServerStatus::ShutOff, InstanceState::Pending, Some(MoveKind::Cold)),
        (ServerStatus::VerifyResize, InstanceState::Confirming, Some(MoveKind::Cold)),
        (ServerStatus::Migrating, InstanceState::Queued, None),
        (ServerStatus::Resize, InstanceState::Queued, None),
        (ServerStatus::Build, InstanceState::Waiting, None),
        (ServerStatus::Rebuild, InstanceState::Waiting, None),
        (ServerStatus::Error, InstanceState::Blocked, Some(MoveKind::None)),
        (ServerStatus::Suspended, InstanceState::Blocked, Some(MoveKind::None)),
        (word("RESCUE"), InstanceState::Blocked, Some(MoveKind::None)),
        (word("SHELVED"), InstanceState::Blocked, Some(MoveKind::None)),
    ];
    for (status, state, how) in table {
        let plan = decide(&with_servers(vec![server("a", status.clone())]), &settings(1), START);
        let record = state_of(&plan, "a");
        assert_eq!((&record.state, &record.how), (&state, &how), "{status:?}");
        let starts = plan.steps.iter().filter(|step| matches!(step, Step::Start { .. })).count();
        assert_eq!(starts, usize::from(state == InstanceState::Pending), "{status:?}");
        assert!(reason(&plan, "Evicting").0 == ConditionStatus::True, "{status:?}: the host is not empty");
        if state == InstanceState::Blocked {
            assert!(record.error.is_some(), "{status:?}");
            assert_eq!(reason(&plan, "Evicting").1, "Blocked");
        }
    }
}

#[test]
fn a_blocked_server_is_looked_at_when_its_time_has_come() {
    let mut again = settings(1);
    (again.attempts, again.blocked_retry) = (1, Duration::from_secs(12));
    let blocked = EvictedInstance {
        id: "a".into(),
        state: InstanceState::Blocked,
        attempts: 1,
        retry_at: Some(Time(at(12))),
        ..EvictedInstance::default()
    };
    let mut eviction = testing::eviction("hv-1").running().build();
    eviction.status.get_or_insert_default().instances = Some(vec![blocked]);
    let state = HostState { servers: vec![server("a", ServerStatus::Active)], ..HostState::default() };
    let seen = seen(eviction, state);
    let plan = decide(&seen, &again, START);
    assert_eq!((plan.steps.len(), plan.again), (0, Some(Duration::from_secs(12))));
    assert_eq!(decide(&seen, &again, at(10)).again, Some(again.poll), "but not too soon after this one");
    assert_eq!(decide(&seen, &again, at(12)).steps.len(), 1);
}

#[test]
fn a_server_that_is_being_deleted_is_left_to_it() {
    let mut dying = server("a", ServerStatus::Active);
    dying.task = Some(TaskState::Deleting);
    let plan = decide(&with_servers(vec![dying]), &settings(1), START);
    assert_eq!(plan.steps, []);
    assert_eq!(state_of(&plan, "a").state, InstanceState::Waiting);
    let said = conditions::find(&plan.status.conditions, "MigratingInstance").unwrap();
    assert_eq!(said.message, "Live migration of terminating instance a skipped");
}

#[test]
fn a_lock_does_not_keep_an_administrator_out_and_local_disks_do_as_told() {
    let mut locked = server("a", ServerStatus::Active);
    (locked.locked, locked.local_disk) = (true, true);
    // The flavor of a disk made of an image need not name its size.
    for size in [0, 20] {
        locked.local_disk_gb = size;
        let starts = |block: BlockMigration| {
            let mut settings = settings(1);
            settings.block_migration = block;
            decide(&with_servers(vec![locked.clone()]), &settings, START).steps.len()
        };
        let all = [BlockMigration::Auto, BlockMigration::Yes, BlockMigration::No].map(starts);
        assert_eq!(all, [1, 1, 0], "{size} GB");
    }
}

#[test]
fn the_memory_that_is_outstanding_is_that_of_the_servers() {
    let mut large = server("b", ServerStatus::Active);
    large.memory_mb = 7000;
    let plan = decide(&with_servers(vec![server("a", ServerStatus::Active), large]), &settings(1), START);
    assert_eq!(plan.status.outstanding_ram_mb, Some(8000));
    assert_eq!(plan.status.outstanding_instances(), ["a", "b"]);
}

#[test]
fn one_that_cannot_move_does_not_hold_the_others_back() {
    let mut servers = vec![server("a", ServerStatus::Suspended)];
    servers.extend(["b", "c", "d"].map(|id| server(id, ServerStatus::Active)));
    let plan = decide(&with_servers(servers), &settings(2), START);
    let started: Vec<String> = plan.steps.iter().map(Step::key).collect();
    assert_eq!(started, ["move b", "move c"]);
    assert_eq!(reason(&plan, "Evicting"), (ConditionStatus::True, "Running".into()));
    let said = conditions::find(&plan.status.conditions, "PreflightChecksSucceeded").unwrap();
    assert!(said.is_true() && said.message.contains("name-a (it is suspended"), "{}", said.message);
}

#[test]
fn a_server_goes_to_another_zone_only_if_its_own_has_no_room() {
    let mut own = server("a", ServerStatus::Active);
    own.zone = Some("zone-a".into());
    let mut seen = with_servers(vec![own, server("b", ServerStatus::Active)]);
    let zoned =
        |host: &str, free: u64, zone: &str| Arc::new(Room { zone: Some(zone.into()), ..(*room(host, free)).clone() });
    let (near, far) = (zoned("hv-2", 1000, "zone-a"), zoned("hv-3", 9000, "zone-b"));
    let mut targets = |rooms: &[&Arc<Room>], taken: usize| {
        let rooms: Vec<Arc<Room>> = rooms.iter().copied().cloned().collect();
        if let HostSeen::Known(state) = &mut seen.cloud {
            state.room = [("a".into(), rooms)].into();
        }
        seen.elsewhere.to = [("hv-2".into(), Moves { placed: taken, overdue: 0 })].into();
        let mut settings = settings(4);
        settings.target_concurrency = 1;
        let target = |step| match step {
            Step::Start { target: Some(target), .. } => target.to_string(),
            other => panic!("{other:?}"),
        };
        decide(&seen, &settings, START).steps.into_iter().map(target).collect::<Vec<_>>()
    };
    assert_eq!(targets(&[&near, &far], 0), ["hv-2"]);
    assert_eq!(targets(&[&near, &far], 1), Vec::<String>::new(), "it waits for its place there");
    assert_eq!(targets(&[&far], 1), ["hv-3"]);
}

#[test]
fn limits_of_the_region_and_of_targets_are_shared_with_others() {
    let servers: Vec<Server> = ["a", "b", "c", "d"].map(|id| server(id, ServerStatus::Active)).into();
    let rooms = vec![room("hv-2", 9000), room("hv-3", 5000)];
    let mut seen = with_servers(servers);
    if let HostSeen::Known(state) = &mut seen.cloud {
        state.room = ["a", "b", "c", "d"].map(|id| (InstanceId::from(id), rooms.clone())).into();
    }
    let moves = |placed, overdue| Moves { placed, overdue };
    seen.elsewhere = InFlight { all: moves(2, 0), to: [(HostName::from("hv-2"), moves(1, 0))].into() };
    let mut settings = settings(4);
    settings.region_concurrency = 5;
    assert_eq!(decide(&seen, &settings, START).steps.len(), 3);
    settings.target_concurrency = 2;
    let targets: Vec<Option<HostName>> = decide(&seen, &settings, START)
        .steps
        .into_iter()
        .map(|step| match step {
            Step::Start { target, .. } => target,
            other => panic!("{other:?}"),
        })
        .collect();
    let on =
        |host: &str| targets.iter().filter(|target| target.as_ref().is_some_and(|one| one.as_str() == host)).count();
    assert_eq!((on("hv-2"), on("hv-3")), (1, 2), "one goes to hv-2 already");
    settings.region_concurrency = 2;
    assert!(decide(&seen, &settings, START).steps.is_empty());

    // What takes too long still moves, to its target too.
    seen.elsewhere = InFlight { all: moves(0, 2), to: [(HostName::from("hv-2"), moves(0, 2))].into() };
    (settings.region_concurrency, settings.target_concurrency) = (3, 3);
    assert_eq!(decide(&seen, &settings, START).steps.len(), 1);
    settings.target_concurrency = 2;
    let to = |plan: DrainPlan| match plan.steps.as_slice() {
        [Step::Start { target: Some(target), .. }] => target.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(to(decide(&seen, &settings, START)), "hv-3");
    // But it is not the end of all the others.
    settings.region_concurrency = 2;
    assert_eq!(to(decide(&seen, &settings, START)), "hv-3");
    seen.elsewhere.all = moves(0, 3);
    assert!(decide(&seen, &settings, START).steps.is_empty());
}

#[test]
fn a_move_of_the_drain_that_takes_too_long_counts_in_the_region() {
    let runs = |id: &str| migration(1, id, MigrationKind::Cold, MigrationPhase::Running);
    let mut looks = Looks::at(server("a", ServerStatus::Resize), runs("a"));
    looks.settings.region_concurrency = 1;
    let starts = |steps: &[Step]| steps.iter().filter(|step| matches!(step, Step::Start { .. })).count();
    assert_eq!(starts(&looks.look(0, &Outcome::Done).0), 0);
    let (steps, record) = looks.look(3600, &Outcome::Done);
    assert_eq!((record.state, starts(&steps)), (InstanceState::Overdue, 1), "one beside it");
    looks.settings.concurrency = 8;
    looks.state().servers[1].status = ServerStatus::Migrating;
    looks.state().servers.push(server("third", ServerStatus::Active));
    assert_eq!(starts(&looks.look(3605, &Outcome::Done).0), 0, "and no more");
}

#[test]
fn the_time_in_the_queue_does_not_count_and_the_time_after_it_does() {
    let mut settings = settings(1);
    settings.timeout = Duration::from_secs(100);
    let look = |status: EvictionStatus, phase: MigrationPhase, seconds: u64| {
        let mut eviction = testing::eviction("hv-1").running().build();
        eviction.status = Some(status);
        let mut record = migration(1, "a", MigrationKind::Live, phase);
        record.updated_at = Some(at(seconds));
        let state = HostState {
            servers: vec![server("a", ServerStatus::Migrating)],
            migrations: vec![record],
            ..HostState::default()
        };
        decide(&seen(eviction, state), &settings, at(seconds))
    };
    let queued = look(EvictionStatus::default(), MigrationPhase::Queued, 0);
    let still = look(queued.status, MigrationPhase::Queued, 5000);
    assert_eq!((state_of(&still, "a").state.clone(), still.steps.len()), (InstanceState::Queued, 0));
    let begun = look(still.status, MigrationPhase::Running, 5010);
    let runs = look(begun.status, MigrationPhase::Running, 5100);
    assert_eq!((state_of(&runs, "a").state.clone(), runs.steps.len()), (InstanceState::Migrating, 0));
    let late = look(runs.status, MigrationPhase::Running, 5111);
    assert_eq!(state_of(&late, "a").state, InstanceState::Aborting);
    assert_eq!(late.steps, [Step::Abort { server: "a".into(), migration: "1".into(), incoming: false }]);
    let past = look(late.status, MigrationPhase::Finishing, 5120);
    assert!(past.steps.is_empty(), "past the point of return");
}

#[test]
fn a_failed_eviction_is_not_reported_as_evicted() {
    let mut lost = with_servers(Vec::new());
    lost.hypervisor = Arc::new(hypervisor(true, 0));
    lost.cloud = HostSeen::Absent("hv-1: not found".into());
    // libvirt says that there is nothing: then there is nothing.
    assert_eq!(reason(&decide(&lost, &settings(1), START), "Evicting"), (ConditionStatus::False, "Succeeded".into()));
    let mut silent = hypervisor(true, 0);
    if let Some(status) = &mut silent.status {
        status.conditions.retain(|condition| condition.type_ != "LibVirtConnection");
    }
    lost.hypervisor = Arc::new(silent);
    assert_eq!(reason(&decide(&lost, &settings(1), START), "Evicting"), (ConditionStatus::True, "Failed".into()));
    lost.hypervisor = Arc::new(hypervisor(true, 3));
    assert_eq!(reason(&decide(&lost, &settings(1), START), "Evicting"), (ConditionStatus::True, "Blocked".into()));
}

#[test]
fn a_host_that_nova_never_knew_is_empty_unless_its_libvirt_has_fallen_silent_with_instances() {
    let mut stranger = with_servers(Vec::new());
    stranger.cloud = HostSeen::Absent("hv-1: not found".into());
    let mut said = |agent: AgentSeen, reaches: bool, instances: i32| {
        let mut object = hypervisor(true, instances);
        let status = object.status.as_mut().unwrap();
        status.hypervisor_id = None;
        if !reaches {
            status.conditions.iter_mut().filter(|one| one.type_ == "LibVirtConnection").for_each(|one| {
                one.status = ConditionStatus::False;
            });
        }
        (stranger.hypervisor, stranger.agent) = (Arc::new(object), agent);
        reason(&decide(&stranger, &settings(1), START), "Evicting").1
    };
    assert_eq!(said(AgentSeen::Silent, true, 0), "Succeeded");
    assert_eq!(said(AgentSeen::Alive, false, 0), "Succeeded");
    assert_eq!(said(AgentSeen::Silent, true, 3), "Blocked");
    assert_eq!(said(AgentSeen::NotYet, true, 3), "Running");
    assert_eq!(said(AgentSeen::Alive, false, 3), "Blocked");
}

#[test]
fn an_empty_host_is_believed_at_the_second_look_and_with_libvirt() {
    let mut empty = with_servers(Vec::new());
    let first = decide(&empty, &settings(1), at(10));
    assert!(first.empty);
    assert_eq!(reason(&first, "Evicting"), (ConditionStatus::True, "Running".into()));
    empty.empty_since = Some(at(10));
    let second = decide(&empty, &settings(1), at(15));
    assert_eq!(reason(&second, "Evicting"), (ConditionStatus::False, "Succeeded".into()));
    empty.hypervisor = Arc::new(hypervisor(true, 1));
    assert_eq!(reason(&decide(&empty, &settings(1), at(15)), "Evicting"), (ConditionStatus::True, "Running".into()));
    assert_eq!(reason(&decide(&empty, &settings(1), at(900)), "Evicting"), (ConditionStatus::True, "Blocked".into()));
}

#[test]
fn one_that_has_ended_rests_until_libvirt_has_instances_again() {
    let mut over = with_servers(Vec::new());
    over.eviction = Arc::new(testing::eviction("hv-1").succeeded().build());
    assert!(!over.wants_cloud());
    let plan = decide(&over, &settings(1), START);
    assert_eq!((plan.again, plan.steps.len()), (None, 0));
    over.hypervisor = Arc::new(hypervisor(false, 7));
    assert!(!over.wants_cloud(), "a host in service has instances, and nobody asks to drain it again");
    assert_eq!(decide(&over, &settings(1), START).again, None);
    over.hypervisor = Arc::new(hypervisor(true, 1));
    assert!(over.wants_cloud());
    assert_eq!(reason(&decide(&over, &settings(1), START), "Evicting").0, ConditionStatus::True);
}

#[test]
fn a_leftover_record_of_years_ago_holds_nothing_up() {
    let mut old = migration(1, "b", MigrationKind::Live, MigrationPhase::Preparing);
    (old.source, old.destination) = ("hv-9".into(), Some("hv-1".into()));
    let mut seen = with_servers(Vec::new());
    let mut look = |left: Option<Option<Server>>| {
        if let HostSeen::Known(state) = &mut seen.cloud {
            state.migrations = vec![old.clone()];
            state.left = left.into_iter().map(|server| ("b".into(), server)).collect();
        }
        let plan = decide(&seen, &settings(1), at(7 * 3600));
        (plan.empty, plan.steps.len())
    };
    let rests = Server { host: Some("hv-9".into()), ..server("b", ServerStatus::Active) };
    // One that its owner resized long after does not move either.
    let waits = Server { status: ServerStatus::VerifyResize, ..rests.clone() };
    assert_eq!([Some(rests), Some(waits), None].map(|answer| look(Some(answer))), [(true, 0); 3]);
    assert_eq!(look(None), (false, 0), "its server was not asked yet: nothing is stopped, and nothing ends");
}

#[test]
fn a_move_that_nova_has_not_touched_for_hours_is_a_move_while_its_server_says_so() {
    let hours = |hours: u64| hours * 3600;
    let mut coming = migration(1, "b", MigrationKind::Resize, MigrationPhase::Running);
    (coming.source, coming.destination) = ("hv-9".into(), Some("hv-1".into()));
    let mut seen = with_servers(Vec::new());
    if let HostSeen::Known(state) = &mut seen.cloud {
        state.migrations = vec![coming];
        state.left =
            [("b".into(), Some(Server { host: Some("hv-9".into()), ..server("b", ServerStatus::Resize) }))].into();
    }
    let plan = decide(&seen, &settings(1), at(hours(9)));
    assert!(!plan.empty, "its disk is large");
    assert_eq!(reason(&plan, "IncomingMigrationsSettled").1, "WaitingForIncomingMigrations");

    let copies = migration(1, "a", MigrationKind::Cold, MigrationPhase::Running);
    let mut looks = Looks::at(server("a", ServerStatus::Resize), copies);
    looks.look(0, &Outcome::Done);
    let (_, record) = looks.look(hours(9), &Outcome::Done);
    assert_eq!(record.state, InstanceState::Overdue, "{record:?}");
    assert!(!record.error.unwrap().contains("reset"), "that would harm it");

    let queues = migration(1, "a", MigrationKind::Live, MigrationPhase::Queued);
    let mut looks = Looks::at(server("a", ServerStatus::Migrating), queues);
    for seconds in [0, hours(1), hours(9)] {
        let (steps, record) = looks.look(seconds, &Outcome::Done);
        assert_eq!((steps, record.state, record.error), (vec![], InstanceState::Queued, None), "{seconds}");
    }
}

#[test]
fn a_deleted_eviction_stops_what_moves_and_goes_in_time() {
    let mut eviction = testing::eviction("hv-1").running().build();
    eviction.metadata.deletion_timestamp = Some(Time(START));
    eviction.metadata.finalizers = Some(vec![labels::EVICTION_FINALIZER.into()]);
    let record = |id: &str| EvictedInstance { id: id.into(), state: InstanceState::Migrating, ..Default::default() };
    eviction.status = Some(EvictionStatus { instances: Some(vec![record("a"), record("b")]), ..Default::default() });
    let state = HostState {
        servers: vec![
            server("a", ServerStatus::Migrating),
            server("b", ServerStatus::Migrating),
            server("c", ServerStatus::Active),
        ],
        migrations: vec![
            migration(1, "a", MigrationKind::Live, MigrationPhase::Running),
            migration(2, "b", MigrationKind::Live, MigrationPhase::Finishing),
        ],
        ..HostState::default()
    };
    let seen = seen(eviction, state);
    let plan = decide(&seen, &settings(8), at(1));
    assert_eq!(plan.steps, [Step::Abort { server: "a".into(), migration: "1".into(), incoming: false }]);
    assert!(plan.hold, "b is past the point of return and awaited");
    let late = decide(&seen, &settings(8), at(121));
    assert!(!late.hold && late.steps.is_empty(), "a deletion never hangs");
}

#[test]
fn a_deleted_eviction_leaves_alone_what_others_begin() {
    let mut eviction = testing::eviction("hv-1").running().build();
    eviction.metadata.deletion_timestamp = Some(Time(at(50)));
    eviction.metadata.finalizers = Some(vec![labels::EVICTION_FINALIZER.into()]);
    let record = |(id, state): (&str, InstanceState)| EvictedInstance { id: id.into(), state, ..Default::default() };
    let records = [("a", InstanceState::Pending), ("b", InstanceState::Pending), ("c", InstanceState::Waiting)];
    eviction.status = Some(EvictionStatus { instances: Some(records.map(record).into()), ..Default::default() });
    let moves = |number: usize, id: &str, seconds: u64| {
        let running = migration(number, id, MigrationKind::Live, MigrationPhase::Running);
        Migration { created_at: Some(at(seconds)), updated_at: Some(at(seconds)), ..running }
    };
    let state = HostState {
        servers: ["a", "b", "c"].map(|id| server(id, ServerStatus::Migrating)).into(),
        migrations: vec![moves(3, "c", 52), moves(2, "b", 51), moves(1, "a", 49)],
        ..HostState::default()
    };
    let mut seen = seen(eviction, state);
    let plan = decide(&seen, &settings(8), at(55));
    // A pass that died may have asked it to move and not have written that down.
    assert_eq!(plan.steps, [Step::Abort { server: "a".into(), migration: "1".into(), incoming: false }]);
    let mut eviction = (*seen.eviction).clone();
    eviction.status = Some(plan.status);
    seen.eviction = Arc::new(eviction);
    if let HostSeen::Known(state) = &mut seen.cloud {
        state.migrations[2].phase = MigrationPhase::Cancelled;
        state.servers[0].status = ServerStatus::Active;
    }
    assert!(!decide(&seen, &settings(8), at(60)).hold, "the others are not awaited either");
}

/// Over what is to be said about a host that Nova finds empty for the second time.
fn emptied(agent: AgentSeen, service_up: bool, minutes: u64) -> (bool, String, String) {
    let mut seen = with_servers(Vec::new());
    seen.agent = agent;
    seen.hypervisor = Arc::new(hypervisor(true, 7));
    if let HostSeen::Known(state) = &mut seen.cloud {
        let state_of = if service_up { ServiceState::Up } else { ServiceState::Down };
        state.service = Some(ComputeService { state: state_of, ..service(false) });
    }
    seen.empty_since = Some(START);
    let now = at(minutes * 60);
    let plan = decide(&seen, &DrainSettings::default(), now);
    let evicting = plan.status.conditions.iter().find(|one| one.type_ == "Evicting").cloned().unwrap();
    (evicting.is_false(), evicting.reason, evicting.message)
}

#[test]
fn what_an_agent_said_before_it_fell_silent_is_no_word_about_now() {
    let (over, reason, message) = emptied(AgentSeen::Silent, true, 1);
    assert_eq!((over, reason.as_str()), (false, "Running"), "{message}");
    let (over, reason, message) = emptied(AgentSeen::Silent, true, 30);
    assert_eq!((over, reason.as_str()), (false, "Blocked"));
    assert!(message.contains("no sign of life"), "{message}");
    // A host that is dead as a whole could never be taken out otherwise.
    let (over, _, message) = emptied(AgentSeen::Silent, false, 1);
    assert!(over && message.contains("Nova alone"), "{message}");
    // One that lives is believed.
    let (over, reason, message) = emptied(AgentSeen::Alive, true, 30);
    assert_eq!((over, reason.as_str()), (false, "Blocked"));
    assert!(message.contains("7 instances"), "{message}");
}

#[test]
fn one_whose_call_fails_each_time_does_not_keep_the_only_place() {
    let servers = ["a", "b"].map(|id| server(id, ServerStatus::Active));
    let mut seen = with_servers(servers.to_vec());
    let settings = settings(1);
    let first = decide(&seen, &settings, START);
    let [Step::Start { server: tried, .. }] = first.steps.as_slice() else { panic!("{:?}", first.steps) };
    let failed = Outcome::Failed { category: "unavailable", message: "migrate: unavailable".into() };
    seen.outcomes.insert(first.steps[0].key(), failed);
    let after = decide(&seen, &settings, START);
    let record = after.status.instances().iter().find(|one| one.id == tried.as_str()).unwrap();
    assert_eq!((record.attempts, record.error.as_deref()), (0, Some("migrate: unavailable")));
    assert!(record.retry_at.is_some() && after.again >= Some(settings.poll), "{after:?}");
    let mut eviction = (*seen.eviction).clone();
    eviction.status = Some(after.status);
    let mut seen = with_servers(servers.to_vec());
    seen.eviction = Arc::new(eviction);
    let second = decide(&seen, &settings, START);
    let [Step::Start { server: next, .. }] = second.steps.as_slice() else { panic!("{:?}", second.steps) };
    assert_ne!(next, tried, "the other one has its turn");
}

#[test]
fn a_move_that_cannot_be_stopped_does_not_hold_the_others_up() {
    let settings = settings(1);
    let mut seen = with_servers(vec![server("a", ServerStatus::Resize), server("b", ServerStatus::Active)]);
    if let HostSeen::Known(state) = &mut seen.cloud {
        state.migrations = vec![migration(1, "a", MigrationKind::Cold, MigrationPhase::Running)];
    }
    let first = decide(&seen, &settings, START);
    assert!(first.steps.is_empty(), "{:?}", first.steps);
    let mut eviction = (*seen.eviction).clone();
    eviction.status = Some(first.status);
    seen.eviction = Arc::new(eviction);
    let late = START + settings.timeout + Duration::from_secs(1);
    for _ in 0..2 {
        let after = decide(&seen, &settings, late);
        let record = after.status.instances().iter().find(|one| one.id == "a").unwrap();
        assert_eq!(record.state, InstanceState::Overdue, "{record:?}");
        assert!(matches!(after.steps.as_slice(), [Step::Start { server, .. }] if server.as_str() == "b"));
        let mut eviction = (*seen.eviction).clone();
        eviction.status = Some(after.status);
        seen.eviction = Arc::new(eviction);
    }
}

/// One drain of one host, look after look: what was written is seen again.
struct Looks {
    seen: DrainSeen,
    settings: DrainSettings,
}

impl Looks {
    fn at(server: Server, migration: Migration) -> Self {
        let mut seen = with_servers(vec![server, self::server("other", ServerStatus::Active)]);
        if let HostSeen::Known(state) = &mut seen.cloud {
            state.migrations = vec![migration];
        }
        Self { seen, settings: settings(1) }
    }

    fn state(&mut self) -> &mut HostState {
        match &mut self.seen.cloud {
            HostSeen::Known(state) => state,
            other => panic!("{other:?}"),
        }
    }

    /// A look, its steps with this outcome, and what is written then.
    fn look(&mut self, seconds: u64, outcome: &Outcome) -> (Vec<Step>, EvictedInstance) {
        let now = at(seconds);
        let mut plan = decide(&self.seen, &self.settings, now);
        let steps = plan.steps.clone();
        if !steps.is_empty() {
            self.seen.outcomes = steps.iter().map(|step| (step.key(), outcome.clone())).collect();
            plan = decide(&self.seen, &self.settings, now);
            self.seen.outcomes.clear();
        }
        let record = state_of(&plan, "a").clone();
        let mut eviction = (*self.seen.eviction).clone();
        eviction.status = Some(plan.status);
        self.seen.eviction = Arc::new(eviction);
        (steps, record)
    }
}

fn aborts(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Abort { .. })).count()
}

#[test]
fn a_move_that_hears_no_stop_is_asked_less_and_less_and_the_others_go_on() {
    let running = migration(1, "a", MigrationKind::Live, MigrationPhase::Running);
    let mut looks = Looks::at(server("a", ServerStatus::Migrating), running);
    looks.settings.timeout = Duration::from_secs(100);
    let (mut asked, mut others_from) = (Vec::new(), None);
    for seconds in (0..2000).step_by(5) {
        let (steps, record) = looks.look(seconds, &Outcome::Done);
        if aborts(&steps) > 0 {
            asked.push(seconds);
        }
        if others_from.is_none() && steps.iter().any(|step| step.key() == "move other") {
            others_from = Some((seconds, record));
        }
    }
    assert_eq!(asked, [100, 130, 160, 220, 340, 580, 880, 1180, 1480, 1780]);
    let (since, record) = others_from.unwrap();
    assert_eq!((since, &record.state), (220, &InstanceState::Overdue));
    assert!(record.error.as_deref().unwrap().contains("does not stop"), "{record:?}");
    assert_eq!(record.aborted_at, Some(Time(at(100))));
    // It has been stopped after all.
    looks.state().migrations[0].phase = MigrationPhase::Cancelled;
    looks.state().servers[0].status = ServerStatus::Active;
    let (_, record) = looks.look(2000, &Outcome::Done);
    assert_eq!(record.state, InstanceState::Failed);
    assert_eq!(record.error.as_deref(), Some("it took longer than 100 s, and was stopped"));
}

#[test]
fn a_stop_that_nova_refuses_is_told_with_its_reason() {
    let running = migration(1, "a", MigrationKind::Live, MigrationPhase::Running);
    let mut looks = Looks::at(server("a", ServerStatus::Migrating), running);
    looks.settings.timeout = Duration::from_secs(100);
    looks.look(0, &Outcome::Done);
    let denied = Outcome::Failed { category: "denied", message: "abort migration 1: permission denied".into() };
    let (_, record) = looks.look(100, &denied);
    let told = "it took longer than 100 s, and is not stopped: abort migration 1: permission denied";
    assert_eq!((&record.state, record.error.as_deref()), (&InstanceState::Aborting, Some(told)));
    let (_, record) = looks.look(225, &denied);
    assert_eq!((&record.state, record.error.as_deref()), (&InstanceState::Overdue, Some(told)));
}

#[test]
fn a_record_that_a_restart_of_the_compute_service_left_open_holds_no_server_up() {
    for phase in [MigrationPhase::Queued, MigrationPhase::Preparing] {
        // Of somebody else's, from before the drain.
        let left_open = migration(1, "a", MigrationKind::Live, phase.clone());
        let mut looks = Looks::at(server("a", ServerStatus::Active), left_open.clone());
        let (steps, record) = looks.look(30, &Outcome::Done);
        assert!(steps.is_empty() && record.state.is_in_flight(), "{phase:?}: the move may have begun just now");
        let (_, record) = looks.look(61, &Outcome::Done);
        assert_eq!((&record.state, record.attempts), (&InstanceState::Failed, 1), "{phase:?}");
        let (steps, _) = looks.look(200, &Outcome::Done);
        assert_eq!(steps.iter().map(Step::key).collect::<Vec<_>>(), ["move a"], "{phase:?}");
        // And one that the server bears out may wait for as long as it likes.
        let mut looks = Looks::at(server("a", ServerStatus::Migrating), left_open);
        looks.settings.concurrency = 2;
        let (_, record) = looks.look(4000, &Outcome::Done);
        assert!(record.state.is_in_flight(), "{phase:?}");
    }
}

#[test]
fn a_record_of_a_server_that_does_not_come_holds_no_end_up() {
    let mut coming = migration(1, "b", MigrationKind::Live, MigrationPhase::Queued);
    (coming.source, coming.destination) = ("hv-9".into(), Some("hv-1".into()));
    let mut seen = with_servers(Vec::new());
    let elsewhere = |status| Some(Server { host: Some("hv-9".into()), ..server("b", status) });
    let look = |seen: &mut DrainSeen, b: Option<Server>, seconds: u64| {
        if let HostSeen::Known(state) = &mut seen.cloud {
            state.migrations = vec![coming.clone()];
            state.left = [("b".into(), b)].into();
        }
        let plan = decide(seen, &settings(1), at(seconds));
        (plan.empty, plan.steps.len())
    };
    assert_eq!(look(&mut seen, elsewhere(ServerStatus::Active), 30), (false, 1), "it may have begun just now");
    assert_eq!(look(&mut seen, elsewhere(ServerStatus::Active), 61), (true, 0));
    assert_eq!(look(&mut seen, None, 30), (true, 0), "it is gone");
    assert_eq!(look(&mut seen, elsewhere(ServerStatus::Migrating), 4000), (false, 1));
    // Once asked to stop, it is left alone for a while.
    seen.stopping = [("1".into(), at(4030))].into();
    assert_eq!(look(&mut seen, elsewhere(ServerStatus::Migrating), 4000), (false, 0));
    assert_eq!(look(&mut seen, elsewhere(ServerStatus::Migrating), 4030), (false, 1));
}

#[test]
fn a_move_is_confirmed_once_and_the_cleaning_up_may_take_its_time() {
    let moved = migration(1, "a", MigrationKind::Cold, MigrationPhase::Unconfirmed);
    let mut looks = Looks::at(server("other-too", ServerStatus::Suspended), moved);
    let there = Server { host: Some("hv-2".into()), ..server("a", ServerStatus::VerifyResize) };
    looks.state().left = [("a".into(), Some(there))].into();
    let confirms = |steps: &[Step]| steps.iter().filter(|step| step.key() == "confirm a").count();
    let (steps, record) = looks.look(10, &Outcome::Done);
    assert_eq!((confirms(&steps), &record.state), (1, &InstanceState::Confirming));
    // Nova works on it, and would refuse a second yes.
    looks.state().migrations[0].phase = MigrationPhase::Confirming;
    for seconds in [15, 600, 3599] {
        let (steps, record) = looks.look(seconds, &Outcome::Done);
        assert_eq!((confirms(&steps), &record.state, &record.error), (0, &InstanceState::Confirming, &None));
    }
    let (steps, record) = looks.look(3600, &Outcome::Done);
    assert_eq!((confirms(&steps), &record.state), (0, &InstanceState::Overdue));
    assert!(record.error.as_deref().unwrap().contains("being confirmed for too long"), "{record:?}");
    assert!(steps.iter().any(|step| step.key() == "move other"), "the others go on");
    looks.state().migrations[0].phase = MigrationPhase::Completed;
    if let Some(Some(server)) = looks.state().left.get_mut(&InstanceId::from("a")) {
        server.status = ServerStatus::ShutOff;
    }
    assert_eq!(looks.look(3700, &Outcome::Done).1.state, InstanceState::Moved);
}

#[test]
fn a_deleted_eviction_waits_for_what_is_overdue_too() {
    let mut looks =
        Looks::at(server("a", ServerStatus::Resize), migration(1, "a", MigrationKind::Cold, MigrationPhase::Running));
    looks.look(0, &Outcome::Done);
    let (_, record) = looks.look(4000, &Outcome::Done);
    assert_eq!(record.state, InstanceState::Overdue);
    assert!(decide(&looks.seen, &looks.settings, at(4001)).hold);
    let mut eviction = (*looks.seen.eviction).clone();
    eviction.metadata.deletion_timestamp = Some(Time(at(4010)));
    eviction.metadata.finalizers = Some(vec![labels::EVICTION_FINALIZER.into()]);
    looks.seen.eviction = Arc::new(eviction);
    let leaving = decide(&looks.seen, &looks.settings, at(4011));
    assert!(leaving.hold, "it still moves: {:?}", leaving.status);
    assert!(state_of(&leaving, "a").state.is_under_way());
    looks.settings.release = Duration::from_secs(600);
    assert!(decide(&looks.seen, &looks.settings, at(4600)).hold, "for as long as was asked for");
    assert!(!decide(&looks.seen, &looks.settings, at(4610)).hold);
}

#[test]
fn one_that_stands_back_only_waits() {
    let mut seen = with_servers(vec![server("a", ServerStatus::Active)]);
    seen.stands_back_for = Some("by-hand".into());
    assert!(!seen.wants_cloud());
    let plan = decide(&seen, &settings(1), START);
    assert_eq!((plan.steps.len(), plan.status.instances().len(), plan.hold), (0, 0, false));
    let said = conditions::find(&plan.status.conditions, "Evicting").unwrap();
    assert_eq!((said.is_true(), said.message.as_str()), (true, "Running; Eviction by-hand drains this host"));
    assert!(plan.again.is_some());
}

#[test]
fn what_keeps_the_drain_waiting_for_room_is_said() {
    let mut seen = with_servers(vec![server("a", ServerStatus::Active)]);
    let mut settings = settings(1);
    let said = |seen: &DrainSeen, settings: &DrainSettings| {
        let plan = decide(seen, settings, START);
        let message = conditions::find(&plan.status.conditions, "Evicting").unwrap().message.clone();
        (plan.steps.len(), message)
    };
    if let HostSeen::Known(state) = &mut seen.cloud {
        state.room_unknown = [("a".into(), "find candidates: unavailable".into())].into();
    }
    assert_eq!(said(&seen, &settings), (1, "Running".into()), "the scheduler asks Placement itself");
    settings.target_concurrency = 1;
    let (starts, message) = said(&seen, &settings);
    assert_eq!(starts, 0);
    let told =
        "no target can be chosen for 1 instance, Placement does not say who has room: find candidates: unavailable";
    assert!(message.contains(told), "{message}");
    // All who have room are out of the question, which is something else than no room.
    if let HostSeen::Known(state) = &mut seen.cloud {
        state.room_unknown.clear();
        state.room = [("a".into(), Vec::new())].into();
        state.no_room = [("a".into(), "every host with room for it is out of the question (2 disabled)".into())].into();
    }
    let (_, message) = said(&seen, &settings);
    assert!(message.contains("out of the question (2 disabled)"), "{message}");
}

#[test]
fn a_server_whose_owner_takes_its_resize_back_has_not_moved() {
    let reverts = migration(1, "a", MigrationKind::Resize, MigrationPhase::Finishing);
    // The drain has not asked for anything yet.
    let mut looks = Looks::at(server("a", ServerStatus::Active), reverts);
    looks.settings.concurrency = 2;
    looks.state().migrations.clear();
    looks.look(0, &Outcome::Underway(String::new()));
    looks.state().migrations = vec![migration(1, "a", MigrationKind::Resize, MigrationPhase::Finishing)];
    let back = Server {
        host: Some("hv-2".into()),
        task: Some(TaskState::Other("resize_reverting".into())),
        ..server("a", ServerStatus::Other("REVERT_RESIZE".into()))
    };
    let here = looks.state().servers.remove(0);
    looks.state().left = [("a".into(), Some(back))].into();
    for seconds in [10, 3000] {
        let (_, record) = looks.look(seconds, &Outcome::Done);
        assert_eq!(record.state, InstanceState::Migrating, "it is about to be here: {record:?}");
    }
    looks.state().left.clear();
    looks.state().servers.push(here);
    looks.state().migrations[0].phase = MigrationPhase::Completed;
    let (steps, record) = looks.look(3010, &Outcome::Done);
    assert!(steps.iter().any(|step| step.key() == "move a"), "{record:?}");
    assert_eq!(record.attempts, 1, "and what its owner did was no attempt");
}

#[test]
fn a_server_that_was_resized_to_the_host_has_not_failed_to_leave_it() {
    let mut coming = migration(1, "a", MigrationKind::Resize, MigrationPhase::Finishing);
    (coming.source, coming.destination) = ("hv-9".into(), Some("hv-1".into()));
    let mut finishing = server("a", ServerStatus::Resize);
    finishing.task = Some(TaskState::Other("resize_finish".into()));
    let mut looks = Looks::at(finishing, coming);
    looks.settings.concurrency = 2;
    let (_, record) = looks.look(0, &Outcome::Done);
    assert_eq!((&record.state, record.attempts), (&InstanceState::Waiting, 0), "{record:?}");
    // Its owner was quick to say yes.
    looks.state().migrations[0].phase = MigrationPhase::Completed;
    looks.state().servers[0] = server("a", ServerStatus::Active);
    let (steps, record) = looks.look(5, &Outcome::Done);
    assert_eq!(steps.iter().map(Step::key).collect::<Vec<_>>(), ["move a"], "{record:?}");
    assert_eq!((&record.state, record.attempts), (&InstanceState::Queued, 1));
}

#[test]
fn with_a_limit_per_target_one_without_room_stays_blocked_until_there_is_some() {
    let mut looks =
        Looks::at(server("a", ServerStatus::Active), migration(1, "b", MigrationKind::Live, MigrationPhase::Failed));
    looks.state().servers.truncate(1);
    looks.settings.target_concurrency = 1;
    looks.state().room = [("a".into(), Vec::new())].into();
    let (_, blocked) = looks.look(0, &Outcome::Done);
    assert_eq!(blocked.state, InstanceState::Blocked, "{blocked:?}");
    for seconds in [605, 1205, 9000] {
        assert_eq!(looks.look(seconds, &Outcome::Done), (vec![], blocked.clone()), "nothing to be said anew");
    }
    looks.state().room = [("a".into(), vec![room("hv-2", 9000)])].into();
    assert_eq!(looks.look(9005, &Outcome::Done).0.len(), 1);
    // Neither is one that has been tried tried again for nothing.
    looks.state().room = [("a".into(), Vec::new())].into();
    let (steps, record) = looks.look(9010, &Outcome::Done);
    assert_eq!((steps, &record.state), (vec![], &InstanceState::Failed), "its move has failed");
    let (steps, record) = looks.look(9015, &Outcome::Done);
    assert_eq!((steps, &record.state), (vec![], &InstanceState::Blocked), "{record:?}");
}

#[test]
fn one_that_waits_or_says_that_it_moves_for_too_long_is_blocked_until_that_ends() {
    let rebuilds = server("a", ServerStatus::Rebuild);
    // Nova says so, and has no record of it.
    let moves = server("a", ServerStatus::Migrating);
    let stuck = "Nova says that it moves, and nothing moves it: its state has to be reset";
    for (busy, meanwhile, error) in
        [(rebuilds, InstanceState::Waiting, "it is being rebuilt"), (moves, InstanceState::Queued, stuck)]
    {
        let mut looks = Looks::at(busy, migration(1, "b", MigrationKind::Live, MigrationPhase::Failed));
        looks.state().servers.truncate(1);
        for seconds in [0, 3599] {
            let (steps, record) = looks.look(seconds, &Outcome::Done);
            assert_eq!((steps, &record.state), (vec![], &meanwhile), "{seconds}");
        }
        for seconds in [3600, 9000] {
            let (steps, record) = looks.look(seconds, &Outcome::Done);
            let told = (steps, &record.state, record.error.as_deref());
            assert_eq!(told, (vec![], &InstanceState::Blocked, Some(error)), "{seconds}");
        }
        looks.state().servers[0] = server("a", ServerStatus::Active);
        let (steps, record) = looks.look(9005, &Outcome::Done);
        assert_eq!(steps.len(), 1, "{record:?}");
    }
}

#[test]
fn a_trait_of_the_host_sets_how_many_move_at_a_time() {
    let mut seen = with_servers(["a", "b", "c", "d"].map(|id| server(id, ServerStatus::Active)).into());
    let mut settings = settings(3);
    settings.trait_concurrency = [("CUSTOM_SLOW".into(), 1), ("CUSTOM_FAST".into(), 4)].into();
    let mut starts = |traits: &[&str]| {
        if let HostSeen::Known(state) = &mut seen.cloud {
            state.traits = traits.iter().map(|name| (*name).to_owned()).collect();
        }
        decide(&seen, &settings, START).steps.len()
    };
    let all =
        [starts(&[]), starts(&["CUSTOM_FAST"]), starts(&["CUSTOM_FAST", "CUSTOM_SLOW"]), starts(&["HW_CPU_X86_AVX2"])];
    assert_eq!(all, [3, 4, 1, 3]);
}

#[test]
fn a_move_that_somebody_else_has_made_since_one_failed_is_confirmed_at_once_and_a_refused_yes_after_a_pause() {
    let failed = migration(1, "a", MigrationKind::Cold, MigrationPhase::Failed);
    let mut looks = Looks::at(server("a", ServerStatus::ShutOff), failed);
    looks.settings.concurrency = 2;
    looks.look(0, &Outcome::Done);
    let (_, record) = looks.look(5, &Outcome::Done);
    assert_eq!(record.state, InstanceState::Failed, "{record:?}");
    let moved = migration(2, "a", MigrationKind::Cold, MigrationPhase::Unconfirmed);
    looks.state().migrations = vec![Migration { updated_at: Some(at(8)), ..moved }];
    looks.state().servers.remove(0);
    let there = Server { host: Some("hv-3".into()), ..server("a", ServerStatus::VerifyResize) };
    looks.state().left = [("a".into(), Some(there))].into();
    let confirms = |steps: Vec<Step>| steps.iter().any(|step| step.key() == "confirm a");
    let conflict = Outcome::Failed { category: "conflict", message: "conflict".into() };
    assert!(confirms(looks.look(10, &conflict).0));
    assert!(!confirms(looks.look(15, &conflict).0));
    assert!(confirms(looks.look(400, &Outcome::Done).0));
}

#[test]
fn a_server_that_is_on_its_way_and_was_not_asked_for_counts_at_its_target() {
    let mut looks =
        Looks::at(server("b", ServerStatus::Active), migration(1, "a", MigrationKind::Live, MigrationPhase::Finishing));
    let (_, record) = looks.look(10, &Outcome::Done);
    assert_eq!((record.state, record.target.as_deref()), (InstanceState::Migrating, Some("hv-2")));
}
