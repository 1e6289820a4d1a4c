//! Live migration between two hosts, seen from both.

use cobalt_libvirt::{
    DomainFilter, JobQuery, MigrateOptions,
    error::code,
    event::{
        BlockJobKind, BlockJobStatus, DefinedDetail, EventKind, Lifecycle, ResumedDetail, StartedDetail, StoppedDetail,
        SuspendedDetail,
    },
    rpc::{DomainState, JobKind},
};
use cobalt_rig::{Act, Guest};

use crate::rig::{Events, LIMIT, Rig, booted, connect, remove, start};

fn life(lifecycle: Lifecycle) -> EventKind {
    EventKind::Lifecycle(lifecycle)
}

#[tokio::test]
async fn a_guest_migrates_and_both_sides_tell() {
    let Some(rig) = Rig::shared("a_guest_migrates_and_both_sides_tell") else { return };
    let guest = rig.guest("moves", Act::Idle).unwrap_or_else(|| Guest::new("moves"));
    let disk = rig.hosts.shared().join("moves.img");
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let guest = guest.disk(&disk);
    let (here, there) = (connect(&rig.host().tcp()).await, connect(&rig.other().tcp()).await);
    start(rig.host(), &guest);
    booted(rig.host(), &guest).await;
    let (mut leaves, mut arrives) = (Events::of(&here, &guest).await, Events::of(&there, &guest).await);
    let domain = here.domain_by_name("moves").await.unwrap();
    let options = MigrateOptions {
        persist: true,
        undefine_source: true,
        timeout: LIMIT,
        ..MigrateOptions::live(rig.other().tcp())
    };
    // A directory of this machine is no shared storage to libvirt.
    let refused = here.migrate_p2p(&domain, &options).await.unwrap_err();
    assert_eq!(refused.code(), Some(code::MIGRATE_UNSAFE), "{refused}");
    here.migrate_p2p(&domain, &MigrateOptions { unsafe_: true, ..options }).await.unwrap();
    leaves
        .sequence(&[
            EventKind::MigrationIteration { iteration: 1 },
            life(Lifecycle::Suspended(SuspendedDetail::Migrated)),
            life(Lifecycle::Stopped(StoppedDetail::Migrated)),
        ])
        .await;
    let completed = |kind: &EventKind| match kind {
        EventKind::JobCompleted { params } => {
            params.get_u64("memory_total").is_some_and(|total| total > 0) && params.get_u64("downtime").is_some()
        }
        _ => false,
    };
    if !leaves.seen.iter().any(completed) {
        leaves.until("the figures of the migration", completed).await;
    }
    arrives
        .sequence(&[
            life(Lifecycle::Started(StartedDetail::Migrated)),
            life(Lifecycle::Defined(DefinedDetail::Added)),
            life(Lifecycle::Resumed(ResumedDetail::Migrated)),
        ])
        .await;
    assert_eq!(there.domain_status(&domain).await.unwrap().state, DomainState::Running);
    assert!(there.is_persistent(&domain).await.unwrap());
    assert!(here.domain_by_name("moves").await.unwrap_err().is_no_domain());
    remove(rig.other(), &guest);
}

#[tokio::test]
async fn an_aborted_migration_leaves_the_guest_where_it_was() {
    let Some(rig) = Rig::shared("an_aborted_migration_leaves_the_guest_where_it_was") else { return };
    let Some(guest) = rig.guest("stays", Act::DirtyMemory) else { return };
    let (here, there) = (connect(&rig.host().tcp()).await, connect(&rig.other().tcp()).await);
    // Migrations hold their place on a connection to the end.
    let migrating = connect(&rig.host().tcp()).await;
    start(rig.host(), &guest);
    booted(rig.host(), &guest).await;
    let (mut leaves, mut arrives) = (Events::of(&here, &guest).await, Events::of(&there, &guest).await);
    let domain = here.domain_by_name("stays").await.unwrap();
    let options = MigrateOptions { bandwidth: Some(4), timeout: LIMIT, ..MigrateOptions::live(rig.other().tcp()) };
    let abort = async {
        leaves.until("the copy has begun", |kind| matches!(kind, EventKind::MigrationIteration { .. })).await;
        let job = here.job_stats(&domain, JobQuery::Running).await.unwrap();
        assert!(job.kind.is_running(), "{job:?}");
        assert!(job.params.get_u64("memory_total").is_some_and(|total| total >= 128 << 20), "{job:?}");
        here.abort_job(&domain).await.unwrap();
    };
    let (ended, ()) = tokio::join!(migrating.migrate_p2p(&domain, &options), abort);
    assert_eq!(ended.unwrap_err().code(), Some(code::OPERATION_ABORTED));
    assert_eq!(here.domain_status(&domain).await.unwrap().state, DomainState::Running);
    assert_eq!(here.job_stats(&domain, JobQuery::Running).await.unwrap().kind, JobKind::None);
    arrives.until("the other side gives up", |kind| *kind == life(Lifecycle::Stopped(StoppedDetail::Failed))).await;
    let left = there.domains(DomainFilter::NONE).await.unwrap();
    assert!(left.iter().all(|domain| domain.name != "stays"), "{left:?}");
    assert!(!leaves.seen.iter().any(|kind| matches!(kind, EventKind::JobCompleted { .. })), "{:?}", leaves.seen);
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_migration_to_nowhere_fails_and_changes_nothing() {
    let Some(rig) = Rig::shared("a_migration_to_nowhere_fails_and_changes_nothing") else { return };
    let guest = Guest::new("nowhere");
    let here = connect(&rig.host().tcp()).await;
    start(rig.host(), &guest);
    let domain = here.domain_by_name("nowhere").await.unwrap();
    let options = MigrateOptions { timeout: LIMIT, ..MigrateOptions::live("qemu+tcp://no-such-host/system") };
    assert!(here.migrate_p2p(&domain, &options).await.unwrap_err().code().is_some());
    assert_eq!(here.domain_status(&domain).await.unwrap().state, DomainState::Running);
    remove(rig.host(), &guest);
}

#[tokio::test]
async fn a_guest_takes_its_disk_along_and_the_copy_is_told() {
    let Some(rig) = Rig::shared("a_guest_takes_its_disk_along_and_the_copy_is_told") else { return };
    // The same path on both hosts, and two file systems: nothing is shared.
    let images = [rig.host(), rig.other()].map(|host| {
        let image = host.small_disk("luggage", 8 * 1024).unwrap().join("image").display().to_string();
        host.run(["truncate", "--size=4M", &image]).unwrap();
        image
    });
    let (from, to) = (&images[0], &images[1]);
    let guest = Guest::new("carries").disk(from);
    let (here, there) = (connect(&rig.host().tcp()).await, connect(&rig.other().tcp()).await);
    start(rig.host(), &guest);
    let (mut leaves, mut arrives) = (Events::of(&here, &guest).await, Events::of(&there, &guest).await);
    let domain = here.domain_by_name("carries").await.unwrap();
    let options = MigrateOptions {
        persist: true,
        undefine_source: true,
        copy_storage: true,
        destination_xml: Some(guest.xml().replace(from.as_str(), to)),
        timeout: LIMIT,
        ..MigrateOptions::live(rig.other().tcp())
    };
    let moved = here.migrate_p2p(&domain, &options).await;
    assert!(moved.is_ok(), "{moved:?} after {:?}", leaves.seen);
    let job = BlockJobKind::Copy;
    for status in [BlockJobStatus::Ready, BlockJobStatus::Completed] {
        let (path, target) = (from.clone(), "vda".to_owned());
        let by_path = EventKind::BlockJob { disk: path, job, status };
        let by_target = EventKind::BlockJob2 { disk: target, job, status };
        for wanted in [by_path, by_target] {
            if !leaves.seen.contains(&wanted) {
                leaves.until(&format!("{wanted:?}"), |kind| *kind == wanted).await;
            }
        }
    }
    arrives.until("it runs there", |kind| *kind == life(Lifecycle::Resumed(ResumedDetail::Migrated))).await;
    remove(rig.other(), &guest);
}

#[tokio::test]
async fn a_migration_goes_on_when_nobody_waits_for_it() {
    let Some(rig) = Rig::shared("a_migration_goes_on_when_nobody_waits_for_it") else { return };
    let Some(guest) = rig.guest("alone", Act::Idle) else { return };
    let (here, there) = (connect(&rig.host().tcp()).await, connect(&rig.other().tcp()).await);
    start(rig.host(), &guest);
    booted(rig.host(), &guest).await;
    let mut arrives = Events::of(&there, &guest).await;
    let mut leaves = Events::of(&here, &guest).await;
    let domain = here.domain_by_name("alone").await.unwrap();
    let options = MigrateOptions { bandwidth: Some(2), timeout: LIMIT, ..MigrateOptions::live(rig.other().tcp()) };
    let waiting = connect(&rig.host().tcp()).await;
    let given_up = async {
        tokio::select! {
            biased;
            () = leaves.until("it begins", |kind| matches!(kind, EventKind::MigrationIteration { .. })) => {}
            ended = waiting.migrate_p2p(&domain, &options) => panic!("so soon: {ended:?}"),
        }
    };
    given_up.await;
    // Not even the connection is left.
    waiting.close().await;
    arrives.until("it runs there", |kind| *kind == life(Lifecycle::Resumed(ResumedDetail::Migrated))).await;
    let _ = rig.other().virsh(["destroy", "alone"]);
    remove(rig.host(), &guest);
}
