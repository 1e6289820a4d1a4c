//! What drivers can do, learned or known, and what they are told to do.

use std::time::Duration;

use cobalt_core::{
    Error,
    backend::{EventKind, HypervisorBackend, JobOperation, JobOutcome, MigrateRequest, PowerAction, VcpuState},
    ids::InstanceId,
};
use cobalt_libvirt::{
    ConnectOptions,
    testing::{Answer, Fault, Writer},
};

use super::fixture::{LIMIT, options, recording, replayed, replayed_with, uuid};

const REBOOT: u32 = 27;
const ABORT_JOB: u32 = 164;
const MAX_SPEED: u32 = 242;
const JOB_STATS: u32 = 298;
const MIGRATE: u32 = 305;
const DOMAIN_CAPABILITIES: u32 = 342;
const BULK: u32 = 344;

fn id() -> InstanceId {
    InstanceId::from(uuid(1))
}

fn category<T: std::fmt::Debug>(answer: Result<T, Error>) -> &'static str {
    answer.expect_err("a failure").category()
}

#[tokio::test]
async fn versions_and_capabilities_are_those_of_the_recorded_host() {
    let (_server, backend) = replayed("ch-11.3").await;
    let versions = backend.versions().await.unwrap();
    assert_eq!((versions.library.as_deref(), versions.hypervisor.as_deref()), (Some("11.3.0"), Some("53.0.0")));
    assert_eq!(backend.driver(), "ch");

    let (_server, backend) = replayed("qemu-9.0").await;
    let host = backend.capabilities().await.unwrap();
    assert_eq!((host.cpu_arch.as_deref(), host.cells.len()), (Some("x86_64"), 1));
    let domains = backend.domain_capabilities().await.unwrap();
    assert!(domains.devices.contains(&"disk/virtio".to_owned()) || domains.devices.contains(&"disk".to_owned()));
}

#[tokio::test]
async fn a_driver_nobody_knows_is_asked_what_it_can_do() {
    let (server, _) = replayed("qemu-9.0").await;
    server.always(3, Answer::ok(Writer::new().string("BHYVE").finish()));
    server.lacks(&[DOMAIN_CAPABILITIES, MAX_SPEED]);
    let address = server.listen_tcp().await.unwrap();
    let uri = format!("bhyve+tcp://{address}/system");
    let backend = cobalt_libvirt::LibvirtBackend::connect(&uri, options()).await.unwrap();
    let features = backend.features();
    assert_eq!(backend.driver(), "bhyve");
    assert!(features.stats && features.jobs && features.power);
    assert!(!features.domain_capabilities && !features.migration);
    assert_eq!(features.events, [EventKind::Lifecycle]);
    assert_eq!(category(backend.domain_capabilities().await), "unsupported");
}

#[tokio::test]
async fn what_a_driver_turns_out_to_lack_is_remembered_and_not_asked_again() {
    let (server, backend) = replayed("qemu-9.0").await;
    server.start_domain("a", &uuid(1)).unwrap();
    server.lacks(&[BULK, JOB_STATS]);
    assert!(backend.features().stats && backend.features().jobs);
    assert_eq!(category(backend.stats().await), "unsupported");
    assert_eq!(category(backend.job(&id()).await), "unsupported");
    assert!(!backend.features().stats && !backend.features().jobs);
    server.reset_counts();
    assert_eq!(category(backend.stats().await), "unsupported");
    assert_eq!(backend.inventory().await.unwrap().len(), 1);
    assert_eq!(server.count(BULK), 0);
}

#[tokio::test]
async fn counters_of_a_recorded_guest_are_all_there() {
    let (server, backend) = replayed("qemu-9.0").await;
    server.start_domain("a", &uuid(1)).unwrap();
    let stats = backend.stats().await.unwrap().remove(0);
    assert_eq!((stats.id.as_str(), stats.name.as_str()), (uuid(1).as_str(), "a"));
    assert_eq!(stats.cpu.time_ns, Some(850_000_000));
    assert_eq!(stats.cpu.user_ns, Some(590_000_000));
    assert_eq!(stats.memory.maximum_bytes, Some(256 << 20));
    assert_eq!(stats.memory.resident_bytes, Some(88_316 * 1024));
    assert_eq!(stats.vcpus_maximum, Some(1));
    assert_eq!(stats.vcpus[&0].state, Some(VcpuState::Running));
}

#[tokio::test]
async fn power_in_the_wrong_state_is_a_conflict_on_every_driver() {
    for name in ["ch-11.3", "test-9.0", "qemu-9.0"] {
        let (server, backend) = replayed(name).await;
        server.start_domain("a", &uuid(1)).unwrap();
        for action in [PowerAction::Start, PowerAction::Resume] {
            assert_eq!(category(backend.power(&id(), action).await), "conflict", "{name}: {action:?} what runs");
        }
        backend.power(&id(), PowerAction::Destroy).await.unwrap();
        for action in [PowerAction::Destroy, PowerAction::Reset, PowerAction::Suspend, PowerAction::Resume] {
            assert_eq!(category(backend.power(&id(), action).await), "conflict", "{name}: {action:?} what is off");
        }
    }
}

#[tokio::test]
async fn where_there_is_no_reset_button_a_reboot_does() {
    let (server, backend) = replayed("ch-11.3").await;
    server.start_domain("a", &uuid(1)).unwrap();
    backend.power(&id(), PowerAction::Reset).await.unwrap();
    assert_eq!(server.count(REBOOT), 1);
}

#[tokio::test]
async fn a_recorded_migration_is_a_job_with_its_figures() {
    let (server, backend) = replayed("qemu-9.0").await;
    server.start_domain("a", &uuid(1)).unwrap();
    let migration = recording("qemu-9.0-migration");
    let answers = |running: bool| {
        let wanted = if running { 1..=2 } else { 3..=3 };
        let calls = migration.calls().iter().filter(|call| call.procedure == JOB_STATS);
        let mut answers = calls.filter(|call| call.answer.code().is_none()).map(|call| call.answer.clone());
        answers.find(|answer| wanted.contains(&answer.payload()[3])).unwrap()
    };
    server.next(JOB_STATS, answers(true));
    let job = backend.job(&id()).await.unwrap().unwrap();
    assert_eq!(job.operation, JobOperation::MigrationOut);
    assert!(job.outcome.is_running(), "{job:?}");
    assert!(job.elapsed.is_some() && job.memory.total.is_some(), "{job:?}");

    server.next(JOB_STATS, Answer::ok(Writer::new().i32(0).u32(0).finish()));
    server.next(JOB_STATS, answers(false));
    let job = backend.job(&id()).await.unwrap().unwrap();
    assert_eq!(job.outcome, JobOutcome::Completed);
    assert!(job.downtime.is_some() && job.memory_iteration.is_some(), "{job:?}");

    server.next(JOB_STATS, Answer::error(84, 10, "migration statistics are available only on the source host"));
    let job = backend.job(&id()).await.unwrap().unwrap();
    assert_eq!((job.operation, job.outcome), (JobOperation::MigrationIn, JobOutcome::RunningUnbounded));

    server.next(JOB_STATS, Answer::error(55, 20, "domain is not running"));
    assert_eq!(backend.job(&id()).await.unwrap(), None);
    assert_eq!(category(backend.abort_job(&id()).await), "conflict");
    assert_eq!(server.count(ABORT_JOB), 1);
}

#[tokio::test]
async fn a_migration_ends_as_the_daemon_says() {
    let (server, backend) = replayed_with("qemu-9.0", options().migrate_unsafe(true)).await;
    server.start_domain("a", &uuid(1)).unwrap();
    let request = MigrateRequest {
        destination: "qemu+tcp://10.0.0.2/system".into(),
        live: true,
        copy_storage: false,
        persist: true,
    };
    server.next(MIGRATE, Answer::ok(Writer::new().u32(0).finish()));
    backend.migrate(&id(), &request).await.unwrap();
    for (code, wanted) in [(78, "conflict"), (55, "conflict"), (81, "refused"), (42, "not_found"), (38, "unavailable")]
    {
        server.next(MIGRATE, Answer::error(code, 10, "no"));
        let error = backend.migrate(&id(), &request).await.unwrap_err();
        assert_eq!(error.category(), wanted, "{code}");
        assert!(error.to_string().contains("to qemu+tcp://10.0.0.2/system"), "{error}");
    }
    assert_eq!(server.count(MIGRATE), 6);
}

#[tokio::test]
async fn migrations_under_way_leave_room_for_everything_else() {
    let connection = ConnectOptions::new().call_timeout(LIMIT).connect_timeout(LIMIT).max_pending(2);
    let (server, backend) = replayed_with("qemu-9.0", options().connection(connection)).await;
    server.start_domain("a", &uuid(1)).unwrap();
    let request = MigrateRequest {
        destination: "qemu+tcp://10.0.0.2/system".into(),
        live: true,
        copy_storage: false,
        persist: true,
    };
    let under_way: Vec<_> = (0..4)
        .map(|_| {
            // The daemon works on it for as long as this test takes.
            server.fault(MIGRATE, Fault::Silent);
            let (backend, request) = (backend.clone(), request.clone());
            tokio::spawn(async move { backend.migrate(&id(), &request).await })
        })
        .collect();
    let begun = async {
        while server.count(MIGRATE) < under_way.len() as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, begun).await.expect("all of them have begun");
    assert_eq!(backend.inventory().await.unwrap().len(), 1);
    assert_eq!(backend.connection_state().reconnects, 0);
    for migration in under_way {
        migration.abort();
    }
}
