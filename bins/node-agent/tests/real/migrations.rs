//! Live migrations between three hosts, as Migration objects.

use cobalt_core::api::{Migration, MigrationStatus, condition_types::LIBVIRT_CONNECTION};
use cobalt_libvirt::{Libvirt, MigrateOptions};
use cobalt_rig::{Act, Guest};

use crate::{
    rig::{LIMIT, Region, eventually, lists, node, start},
    testing::Running,
};

fn status(migration: &Migration) -> MigrationStatus {
    migration.status.clone().unwrap_or_default()
}

/// On its way, with figures.
fn is_under_way(migration: &Migration) -> bool {
    let status = status(migration);
    let moved = status.progress.and_then(|progress| progress.mem_processed_bytes);
    status.ended.is_none() && status.started.is_some() && moved.is_some_and(|moved| moved > 0)
}

fn has_ended(migration: &Migration) -> bool {
    status(migration).ended.is_some()
}

/// Waits until every agent hears its libvirt: what happens before that is not told of.
async fn all_hear(region: &Region, agents: &[Running]) {
    for index in 0..agents.len() {
        region.until(index, "hears libvirt", |found| found.is_true(LIBVIRT_CONNECTION)).await;
    }
}

/// Sends a guest on its way, slowly, and waits for the end elsewhere.
async fn depart(
    region: &Region,
    guest: &Guest,
    from: usize,
    to: usize,
    bandwidth: u64,
) -> (Libvirt, tokio::task::JoinHandle<cobalt_libvirt::Result<()>>) {
    let (watching, moving) = (region.host(from).tcp(), region.host(from).tcp());
    let watching = Libvirt::connect(&watching).await.unwrap();
    let moving = Libvirt::connect(&moving).await.unwrap();
    let domain = watching.domain_by_name(guest.name()).await.unwrap();
    let options = MigrateOptions {
        persist: true,
        undefine_source: true,
        bandwidth: Some(bandwidth),
        timeout: LIMIT,
        ..MigrateOptions::live(region.host(to).tcp())
    };
    let gone = tokio::spawn(async move { moving.migrate_p2p(&domain, &options).await });
    (watching, gone)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_guest_that_goes_round_three_hosts_is_one_object_with_the_ends_of_its_last_journey() {
    let test = "a_guest_that_goes_round_three_hosts_is_one_object_with_the_ends_of_its_last_journey";
    let Some(region) = Region::up(test, 3).await else { return };
    let Some(guest) = region.guest("travels", Act::Idle) else { return };
    // One agent per host, each by another way.
    let uris = [region.host(0).tcp(), region.host(1).tls(), region.host(2).unix()];
    let mut agents: Vec<_> = uris.iter().enumerate().map(|(index, uri)| region.agent(index, uri, &[])).collect();
    all_hear(&region, &agents).await;
    start(region.host(0), &guest);
    eventually("the guest is up", || region.host(0).console(guest.name()).contains("guest: up")).await;
    region.until(0, "lists the guest", |found| lists(found, &guest, true)).await;

    for (from, to) in [(0, 1), (1, 2)] {
        let (here, there) = (node(from), node(to));
        // So slowly that it is on its way for long enough to be seen, until it is let go below.
        let (libvirt, gone) = depart(&region, &guest, from, to, 1).await;
        let ends = |migration: &Migration| {
            let status = status(migration);
            status.origin.as_deref() == Some(&here) && status.destination.as_deref() == Some(&there)
        };
        let under_way = region
            .migration(&guest, "is under way with both its ends", |found| is_under_way(found) && ends(found))
            .await;
        let seen = status(&under_way);
        assert_eq!(seen.operation.as_deref(), Some("migration_out"), "{seen:?}");
        assert!(matches!(seen.type_.as_deref(), Some("bounded" | "unbounded")), "{seen:?}");
        assert!(seen.mem_total.as_deref().is_some_and(|total| total.ends_with(" MiB")), "{seen:?}");
        assert!(seen.receiving_since.is_some(), "{seen:?}");

        let domain = libvirt.domain_by_name(guest.name()).await.unwrap();
        // It may be through already, upon which there is nobody to tell.
        let _ = libvirt.set_migrate_max_speed(&domain, 10_000).await;
        gone.await.unwrap().unwrap();
        let done = |found: &Migration| has_ended(found) && status(found).arrived.is_some() && ends(found);
        let seen = status(&region.migration(&guest, "has ended on both sides", done).await);
        assert_eq!((seen.type_.as_deref(), seen.err_msg.as_deref()), (Some("completed"), None), "{seen:?}");
        let progress = seen.progress.unwrap();
        assert!(progress.mem_total_bytes.is_some_and(|total| total >= 128 << 20), "{progress:?}");
        assert!(progress.downtime_ms.is_some() && seen.downtime.is_some(), "{progress:?}");
        assert!(progress.elapsed_ms.is_some_and(|elapsed| elapsed > 0) && seen.time_elapsed.is_some(), "{progress:?}");
        region.until(from, "is rid of it", |found| !lists(found, &guest, true) && !lists(found, &guest, false)).await;
        region.until(to, "has it", |found| lists(found, &guest, true)).await;
        region.hears("MigrationCompleted", guest.name()).await;
        region.hears("MigrationArrived", guest.name()).await;
    }
    for agent in &mut agents {
        agent.signal("TERM");
        assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn migrations_that_are_aborted_or_fail_say_so_and_the_guest_stays() {
    let test = "migrations_that_are_aborted_or_fail_say_so_and_the_guest_stays";
    let Some(region) = Region::up(test, 2).await else { return };
    let Some(guest) = region.guest("stays", Act::DirtyMemory) else { return };
    let mut agents: Vec<_> = (0..2).map(|index| region.agent(index, &region.host(index).tcp(), &[])).collect();
    all_hear(&region, &agents).await;
    start(region.host(0), &guest);
    eventually("the guest is up", || region.host(0).console(guest.name()).contains("guest: up")).await;
    region.until(0, "lists the guest", |found| lists(found, &guest, true)).await;

    let (libvirt, gone) = depart(&region, &guest, 0, 1, 2).await;
    region.migration(&guest, "is under way", is_under_way).await;
    let domain = libvirt.domain_by_name(guest.name()).await.unwrap();
    libvirt.abort_job(&domain).await.unwrap();
    gone.await.unwrap().unwrap_err();
    let seen = status(&region.migration(&guest, "has ended", has_ended).await);
    assert!(matches!(seen.type_.as_deref(), Some("failed" | "cancelled")), "{seen:?}");
    assert!(seen.err_msg.is_some() && seen.arrived.is_none(), "{seen:?}");
    region.hears("MigrationFailed", guest.name()).await;

    // Once more, and this time the other side dies.
    let (_libvirt, gone) = depart(&region, &guest, 0, 1, 2).await;
    region.migration(&guest, "is under way again", is_under_way).await;
    region.host(1).kill_guest(guest.name()).unwrap();
    gone.await.unwrap().unwrap_err();
    // It was under way, so this is another end than the first.
    let seen = status(&region.migration(&guest, "has ended again", has_ended).await);
    assert_eq!(seen.type_.as_deref(), Some("failed"), "{seen:?}");
    assert!(seen.err_msg.is_some() && seen.arrived.is_none(), "{seen:?}");
    region.until(0, "has it still", |found| lists(found, &guest, true)).await;
    region.until(1, "never got it", |found| !lists(found, &guest, true)).await;
    for agent in &mut agents {
        agent.signal("TERM");
        assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
    }
}
