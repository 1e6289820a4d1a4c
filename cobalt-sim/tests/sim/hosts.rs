//! Hosts and their guests, through the seams of one host.

use std::time::Duration;

use cobalt_core::{
    backend::{BackendEvent, DomainEvent, DomainState, HypervisorBackend, Lifecycle},
    host::{HostEvent, HostSystem},
};
use cobalt_sim::Region;
use futures::{FutureExt, StreamExt};

#[tokio::test(start_paused = true)]
async fn a_power_cut_silences_the_host_and_a_boot_brings_it_back_without_its_guests() {
    let region = Region::builder().hosts(2).vms_per_host(4).seed(1).build();
    let host = region.hosts()[0].clone();
    let backend = region.backend(&host).unwrap();
    let system = region.host_system(&host).unwrap();
    let before = system.facts().await.unwrap().boot_id;
    let mut events = backend.events();
    assert_eq!(events.next().await, Some(BackendEvent::Connected));

    region.world().power_cut(&host).unwrap();
    assert!(matches!(events.next().await, Some(BackendEvent::Disconnected(_))));
    assert_eq!(backend.inventory().await.unwrap_err().category(), "unavailable");
    assert_eq!(system.facts().await.unwrap_err().category(), "unavailable");

    region.world().power_on(&host).unwrap();
    assert_eq!(events.next().await, Some(BackendEvent::Connected));
    let domains = backend.inventory().await.unwrap();
    assert_eq!(domains.len(), 4);
    assert!(domains.iter().all(|domain| domain.state == DomainState::ShutOff));
    assert_ne!(system.facts().await.unwrap().boot_id, before);
    assert_eq!(region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_restart_is_noticed_by_listeners_and_not_by_guests() {
    let region = Region::builder().hosts(1).vms_per_host(2).build();
    let host = region.hosts()[0].clone();
    let backend = region.backend(&host).unwrap();
    let mut events = backend.events();
    assert_eq!(events.next().await, Some(BackendEvent::Connected));
    region.world().restart_daemon(&host).unwrap();
    assert!(matches!(events.next().await, Some(BackendEvent::Disconnected(_))));
    assert_eq!(events.next().await, Some(BackendEvent::Connected));
    assert!(backend.inventory().await.unwrap().iter().all(|domain| domain.state == DomainState::Running));
}

#[tokio::test(start_paused = true)]
async fn a_hung_host_keeps_its_guests_and_answers_nobody() {
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let host = region.hosts()[0].clone();
    region.world().hang(&host).unwrap();
    let backend = region.backend(&host).unwrap();
    assert_eq!(backend.inventory().await.unwrap_err().category(), "timeout");
    assert_eq!(region.world().host(&host).unwrap().active_vms, 1);
    region.world().unhang(&host).unwrap();
    assert_eq!(backend.inventory().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crashed_guest_tells_its_host_and_nova() {
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let host = region.hosts()[0].clone();
    let backend = region.backend(&host).unwrap();
    let events = backend.events();
    let vm = backend.inventory().await.unwrap().remove(0);
    assert_eq!(region.world().guest_crash(&vm.id).unwrap(), host);
    let crashed = |event: &BackendEvent| {
        matches!(event, BackendEvent::Domain { event: DomainEvent::Lifecycle(Lifecycle::Crashed), .. })
    };
    assert!(events.any(|event| futures::future::ready(crashed(&event))).await);
    assert_eq!(backend.domain(&vm.id).await.unwrap().state, DomainState::Crashed);
    assert!(region.world().guest_crash(&vm.id).is_err(), "what does not run cannot crash");
}

#[tokio::test(start_paused = true)]
async fn a_reboot_waits_for_those_who_delay_it() {
    let region = Region::builder().hosts(1).build();
    let host = region.hosts()[0].clone();
    let system = region.host_system(&host).unwrap();
    let mut events = system.events();
    let guard = system.inhibit_shutdown("guests are still here").await.unwrap();
    region.world().reboot(&host).unwrap();
    assert_eq!(events.next().await, Some(HostEvent::PrepareForShutdown(true)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(region.world().host(&host).unwrap().running, "it waits");
    drop(guard);
    assert_eq!(events.next().await, Some(HostEvent::Resync), "it is up again");
    assert!(events.next().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_update_is_there_after_the_reboot_that_follows_it() {
    let region = Region::builder().hosts(1).build();
    let host = region.hosts()[0].clone();
    let system = region.host_system(&host).unwrap();
    let unit = "systemd-sysupdate@2000.1.service".to_owned();
    system.start_unit(&unit).await.unwrap();
    let active = || async { system.units(std::slice::from_ref(&unit)).await.unwrap()[0].active.as_str().to_owned() };
    assert_eq!(active().await, "activating");
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(active().await, "inactive");
    system.start_unit("systemd-sysupdate-reboot.target").await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(system.facts().await.unwrap().version.as_deref(), Some("2000.1"));
    assert_eq!(system.start_unit("no-such.service").await.unwrap_err().category(), "not_found");
}
