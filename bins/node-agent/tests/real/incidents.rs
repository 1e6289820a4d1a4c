//! What befalls guests, provoked for real, in the status, as Events and as counts.

use cobalt_core::api::Hypervisor;
use cobalt_rig::Act;

use crate::{
    rig::{Region, eventually, start},
    testing::get,
};

fn message(hypervisor: &Hypervisor) -> String {
    hypervisor.condition("InstancesHealthy").map(|condition| condition.message.clone()).unwrap_or_default()
}

/// Whether the kind of incident is told of this guest: `crashed: a (…), b (…); rebooted: c (…)`.
fn tells(hypervisor: &Hypervisor, kind: &str, guest: &str) -> bool {
    message(hypervisor).split("; ").any(|part| part.starts_with(kind) && part.contains(&format!("{guest} (")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crashes_watchdogs_disks_and_reboots_are_shown_told_and_counted() {
    let test = "crashes_watchdogs_disks_and_reboots_are_shown_told_and_counted";
    let Some(region) = Region::up(test, 1).await else { return };
    let host = region.host(0);
    let mut agent = region.agent(0, &host.tls(), &[]);
    let admin = agent.admin_address();
    region.until(0, "is healthy", |found| found.is_true("InstancesHealthy")).await;

    let Some(crashing) = region.guest("panics", Act::Panic) else { return };
    start(host, &crashing.panic_device());
    let seen = region.until(0, "shows the crash", |found| tells(found, "crashed", "panics")).await;
    assert!(!seen.is_true("InstancesHealthy"), "{:?}", seen.conditions());
    region.hears("GuestCrashed", "panics").await;

    let image = host.small_disk("filling", 1024).unwrap().join("image").display().to_string();
    host.run(["truncate", "--size=8M", &image]).unwrap();
    let filling = region.guest("filling", Act::FillDisk).unwrap().stopping_disk(&image);
    start(host, &filling);
    region.until(0, "shows the full disk", |found| tells(found, "I/O error", "filling")).await;
    region.hears("GuestIoError", "enospc").await;
    // More space, and it is well again.
    host.small_disk("filling", 64 * 1024).unwrap();
    host.virsh(["resume", "filling"]).unwrap();
    region.until(0, "shows the healed disk", |found| !message(found).contains("I/O error")).await;
    eventually("the guest has written", || host.console("filling").contains("guest: disk written")).await;

    start(host, &region.guest("unfed", Act::Watchdog).unwrap().watchdog());
    region.until(0, "shows the watchdog", |found| tells(found, "watchdog fired", "unfed")).await;
    region.hears("GuestWatchdog", "unfed").await;
    host.virsh(["destroy", "unfed"]).unwrap();

    start(host, &region.guest("reboots", Act::Reboot).unwrap());
    region.until(0, "shows the reboot", |found| tells(found, "rebooted", "reboots")).await;
    region.hears("GuestRebooted", "reboots").await;

    let page = get(admin, "/metrics");
    for kind in ["lifecycle", "watchdog", "io-error", "reboot"] {
        let line = format!("cobalt_agent_libvirt_events_total{{kind=\"{kind}\"}} ");
        assert!(page.contains(&line), "no {line} in {page}");
    }
    assert!(page.contains("cobalt_agent_event_to_status_seconds_bucket"), "{page}");
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
}
