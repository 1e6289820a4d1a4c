//! The backend on a real QEMU: what it tells of guests, and what it makes of a daemon that dies.

use cobalt_core::{
    backend::{
        BackendEvent, DomainEvent, DomainState, HypervisorBackend, IoErrorAction, JobOperation, JobOutcome, Lifecycle,
        MigrateRequest, PowerAction, WatchdogAction,
    },
    ids::InstanceId,
};
use cobalt_libvirt::{BackendOptions, LibvirtBackend};
use cobalt_rig::{Act, Guest};
use futures::{StreamExt, stream::BoxStream};

use crate::{
    contract,
    rig::{LIMIT, Rig, booted, remove, start, until},
};

/// Room for what the guests of all other tests do on a shared host meanwhile.
fn options() -> BackendOptions {
    contract::options().event_capacity(1024)
}

async fn next(events: &mut BoxStream<'static, BackendEvent>, what: &str, wanted: impl Fn(&BackendEvent) -> bool) {
    let waiting = async {
        while let Some(event) = events.next().await {
            if wanted(&event) {
                return;
            }
        }
        panic!("{what}: the stream ended");
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "{what}: not within {LIMIT:?}");
}

/// Waits for this event of this guest.
async fn told(events: &mut BoxStream<'static, BackendEvent>, guest: &Guest, wanted: DomainEvent) {
    let what = format!("{wanted:?}");
    let wanted = |event: &BackendEvent| matches!(event, BackendEvent::Domain { id, event, .. } if id.as_str() == guest.uuid() && *event == wanted);
    next(events, &what, wanted).await;
}

#[tokio::test]
async fn a_guest_is_described_as_it_was_defined() {
    let Some(rig) = Rig::shared("a_guest_is_described_as_it_was_defined") else { return };
    let nova = "<metadata><nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'>\
                <nova:name>web</nova:name><nova:flavor name='m1.tiny'/><nova:owner>\
                <nova:user uuid='u-1'>someone</nova:user><nova:project uuid='p-1'>some</nova:project></nova:owner>\
                </nova:instance></metadata><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='0'/></cputune>";
    let disk = rig.hosts.shared().join("described.img");
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let guest = Guest::new("described").memory_mib(64).vcpus(2).disk(&disk).nic("52:54:00:00:00:01").with(nova);
    start(rig.host(), &guest);
    let backend = LibvirtBackend::connect(&rig.host().tcp(), options()).await.unwrap();
    let id = InstanceId::from(guest.uuid());
    let domain = backend.domain(&id).await.unwrap();
    assert_eq!((domain.name.as_str(), domain.state, domain.vcpus), ("described", DomainState::Running, 2));
    assert_eq!(domain.memory_bytes, 64 << 20);
    let [share] = domain.cells.as_slice() else { panic!("{:?}", domain.cells) };
    assert_eq!((share.cell, share.cpu_millis), (0, 2000));
    let nova = domain.nova.clone().unwrap();
    assert_eq!((nova.name.as_deref(), nova.flavor.as_deref()), (Some("web"), Some("m1.tiny")));
    assert_eq!((nova.user_id.as_deref(), nova.project_id.as_deref()), (Some("u-1"), Some("p-1")));
    assert!(backend.inventory().await.unwrap().contains(&domain));
    let stats = backend.stats().await.unwrap().into_iter().find(|stats| stats.id == id).unwrap();
    assert!(stats.cpu.time_ns.is_some_and(|time| time > 0), "{stats:?}");
    assert_eq!(stats.memory.maximum_bytes, Some(64 << 20));
    assert!(stats.memory.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{stats:?}");
    assert_eq!(stats.vcpus.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(stats.blocks["vda"].capacity_bytes, Some(1 << 20));
    assert_eq!(stats.blocks["vda"].source.as_deref(), disk.to_str());
    backend.power(&id, PowerAction::Destroy).await.unwrap();
    assert_eq!(backend.domain(&id).await.unwrap().state, DomainState::ShutOff);
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_guest_that_is_pinned_while_it_runs_is_booked_on_its_cell() {
    let Some(rig) = Rig::shared("a_guest_that_is_pinned_while_it_runs_is_booked_on_its_cell") else { return };
    let guest = Guest::new("pinned-later");
    start(rig.host(), &guest);
    let backend = LibvirtBackend::connect(&rig.host().tcp(), options()).await.unwrap();
    let mut events = backend.events();
    let id = InstanceId::from(guest.uuid());
    let cells = async || {
        let found = backend.inventory().await.unwrap().into_iter().find(|domain| domain.id == id).unwrap();
        found.cells.iter().map(|share| (share.cell, share.cpu_millis)).collect::<Vec<_>>()
    };
    assert_eq!(cells().await, []);
    rig.host().virsh(["vcpupin", guest.name(), "0", "0", "--live"]).unwrap();
    told(&mut events, &guest, DomainEvent::Lifecycle(Lifecycle::Defined)).await;
    assert_eq!(cells().await, [(0, 1000)]);
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_guest_that_crashes_is_told_as_crashed() {
    let Some(rig) = Rig::shared("a_guest_that_crashes_is_told_as_crashed") else { return };
    let Some(guest) = rig.guest("crashes", Act::Panic) else { return };
    let guest = guest.panic_device();
    let backend = LibvirtBackend::connect(&rig.host().unix(), options()).await.unwrap();
    let mut events = backend.events();
    start(rig.host(), &guest);
    told(&mut events, &guest, DomainEvent::Lifecycle(Lifecycle::Started)).await;
    told(&mut events, &guest, DomainEvent::Lifecycle(Lifecycle::Crashed)).await;
    let id = InstanceId::from(guest.uuid());
    until("it is not active", || rig.host().virsh(["domstate", "crashes"]).unwrap().trim() != "running").await;
    assert!(!backend.domain(&id).await.unwrap().state.is_active());
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_watchdog_and_a_full_disk_are_told_with_what_was_done() {
    let Some(rig) = Rig::shared("a_watchdog_and_a_full_disk_are_told_with_what_was_done") else { return };
    let Some(watched) = rig.guest("unfed", Act::Watchdog) else { return };
    let Some(filling) = rig.guest("filling", Act::FillDisk) else { return };
    let image = rig.host().small_disk("filling", 1024).unwrap().join("image").display().to_string();
    rig.host().run(["truncate", "--size=8M", &image]).unwrap();
    let (watched, filling) = (watched.watchdog(), filling.stopping_disk(&image));
    let backend = LibvirtBackend::connect(&rig.host().tls(), options()).await.unwrap();
    let (mut dog, mut disk) = (backend.events(), backend.events());
    start(rig.host(), &watched);
    start(rig.host(), &filling);
    told(&mut dog, &watched, DomainEvent::Watchdog(WatchdogAction::Reset)).await;
    told(&mut dog, &watched, DomainEvent::Reboot).await;
    let full = |event: &BackendEvent| {
        matches!(event, BackendEvent::Domain { name, event: DomainEvent::IoError { action, reason, .. }, .. }
            if name == "filling" && *action == IoErrorAction::Pause && reason == "enospc")
    };
    next(&mut disk, "no space", full).await;
    told(&mut disk, &filling, DomainEvent::Lifecycle(Lifecycle::SuspendedOnIoError)).await;
    let id = InstanceId::from(filling.uuid());
    assert_eq!(backend.domain(&id).await.unwrap().state, DomainState::PausedOnIoError);
    rig.host().small_disk("filling", 64 * 1024).unwrap();
    backend.power(&id, PowerAction::Resume).await.unwrap();
    told(&mut disk, &filling, DomainEvent::Lifecycle(Lifecycle::Resumed)).await;
    assert_eq!(backend.domain(&id).await.unwrap().state, DomainState::Running);
    remove(rig.host(), &watched);
    remove(rig.host(), &filling);
}

#[tokio::test]
async fn a_migration_is_told_on_both_sides_with_its_figures() {
    let Some(rig) = Rig::shared("a_migration_is_told_on_both_sides_with_its_figures") else { return };
    let Some(guest) = rig.guest("travels", Act::Idle) else { return };
    let here = LibvirtBackend::connect(&rig.host().tcp(), options()).await.unwrap();
    let there = LibvirtBackend::connect(&rig.other().tcp(), options()).await.unwrap();
    start(rig.host(), &guest);
    booted(rig.host(), &guest).await;
    let (mut leaves, mut arrives) = (here.events(), there.events());
    let (id, destination) = (InstanceId::from(guest.uuid()), rig.other().tcp());
    let request = MigrateRequest { destination, live: true, copy_storage: false, persist: true };
    here.migrate(&id, &request).await.unwrap();
    told(&mut leaves, &guest, DomainEvent::Lifecycle(Lifecycle::SuspendedByMigration)).await;
    told(&mut leaves, &guest, DomainEvent::Lifecycle(Lifecycle::Migrated)).await;
    let figures = |event: &BackendEvent| match event {
        BackendEvent::Domain { name, event: DomainEvent::JobCompleted(job), .. } if name == "travels" => {
            assert_eq!((job.operation, job.outcome), (JobOperation::MigrationOut, JobOutcome::Completed), "{job:?}");
            assert!(job.memory.total.is_some_and(|total| total >= 128 << 20) && job.downtime.is_some(), "{job:?}");
            true
        }
        _ => false,
    };
    next(&mut leaves, "the figures", figures).await;
    told(&mut arrives, &guest, DomainEvent::Lifecycle(Lifecycle::StartedByMigration)).await;
    told(&mut arrives, &guest, DomainEvent::Lifecycle(Lifecycle::ResumedByMigration)).await;
    assert!(here.domain(&id).await.unwrap_err().is_not_found());
    assert_eq!(there.domain(&id).await.unwrap().state, DomainState::Running);
    remove(rig.other(), &guest);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_the_daemon_was_away_is_in_the_next_inventory() {
    let Some(rig) = Rig::own("what_changed_while_the_daemon_was_away_is_in_the_next_inventory", 1) else { return };
    let (stays, dies) = (Guest::new("stays"), Guest::new("dies"));
    start(rig.host(), &stays);
    start(rig.host(), &dies);
    let backend = LibvirtBackend::connect(&rig.host().tcp(), options()).await.unwrap();
    assert_eq!(backend.inventory().await.unwrap().iter().filter(|domain| domain.state.is_active()).count(), 2);
    let mut events = backend.events();
    rig.host().kill_daemon().unwrap();
    next(&mut events, "word of the loss", |event| matches!(event, BackendEvent::Disconnected(_))).await;
    let error = backend.inventory().await.unwrap_err();
    assert_eq!(error.category(), "unavailable", "{error:?}");
    assert!(!backend.connection_state().connected);
    rig.host().kill_guest("dies").unwrap();
    rig.host().start_daemon().unwrap();
    next(&mut events, "word of the return", |event| *event == BackendEvent::Connected).await;
    let state = |guest: &Guest| {
        let (backend, id) = (backend.clone(), InstanceId::from(guest.uuid()));
        async move { backend.domain(&id).await.unwrap().state }
    };
    assert_eq!(state(&stays).await, DomainState::Running);
    // libvirtd looks after its guests again only after it listens.
    let waiting = async {
        while state(&dies).await.is_active() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok());
    assert_eq!(backend.connection_state().reconnects, 1);
    // Events flow again: callbacks were registered anew.
    backend.power(&InstanceId::from(stays.uuid()), PowerAction::Suspend).await.unwrap();
    told(&mut events, &stays, DomainEvent::Lifecycle(Lifecycle::Suspended)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_may_start_before_its_daemon() {
    let Some(rig) = Rig::own("a_backend_may_start_before_its_daemon", 1) else { return };
    rig.host().stop_daemon().unwrap();
    let backend = LibvirtBackend::connect(&rig.host().unix(), options()).await.unwrap();
    assert!(!backend.connection_state().connected);
    let mut events = backend.events();
    rig.host().start_daemon().unwrap();
    next(&mut events, "the connection", |event| *event == BackendEvent::Connected).await;
    assert!(backend.inventory().await.unwrap().is_empty());
}
