//! A bus that is away, comes back, or does not want us.

use std::error::Error;

use cobalt_core::host::{HostEvent, HostSystem};
use futures::StreamExt;

use crate::rig::{Auth, LOGIND, Rig, next, until};

fn names() -> [String; 1] {
    ["libvirtd.service".to_owned()]
}

#[tokio::test]
async fn a_bus_that_was_killed_is_found_again_and_everything_is_read_anew() {
    let Some(mut rig) = Rig::host("a_bus_that_was_killed_is_found_again_and_everything_is_read_anew").await else {
        return;
    };
    let host = rig.systemd().await;
    let before = host.units(&names()).await.unwrap();
    let mut events = host.events();
    rig.stop_bus();
    for error in [
        host.units(&names()).await.unwrap_err(),
        host.facts().await.unwrap_err(),
        host.start_unit("a.service").await.unwrap_err(),
        host.inhibit_shutdown("why").await.err().unwrap(),
    ] {
        assert_eq!(error.category(), "unavailable", "{error}");
        assert!(error.is_transient());
    }
    rig.start_bus().await;
    rig.start_services().await;
    until(&mut events, &HostEvent::Resync).await;
    assert_eq!(host.units(&names()).await.unwrap(), before);
    // The signals are back too, whichever of the returning services was heard of meanwhile.
    rig.set_unit("libvirtd.service", "loaded", "failed").await;
    until(&mut events, &HostEvent::UnitChanged("libvirtd.service".into())).await;
    drop(host.inhibit_shutdown("why").await.unwrap());
}

#[tokio::test]
async fn a_delay_granted_before_the_bus_died_and_a_shutdown_announced_meanwhile_are_not_lost() {
    let test = "a_delay_granted_before_the_bus_died_and_a_shutdown_announced_meanwhile_are_not_lost";
    let Some(mut rig) = Rig::host(test).await else { return };
    let host = rig.systemd().await;
    let guard = host.inhibit_shutdown("why").await.unwrap();
    let mut events = host.events();
    rig.stop_bus();
    assert_eq!(host.units(&names()).await.unwrap_err().category(), "unavailable");
    assert_eq!(guard.max_delay().map(|delay| delay.as_secs()), Some(1800));
    rig.start_bus().await;
    rig.start_services().await;
    rig.set_property(LOGIND, "PreparingForShutdown", true).await;
    rig.announce_shutdown(true).await;
    until(&mut events, &HostEvent::PrepareForShutdown(true)).await;
}

#[tokio::test]
async fn a_bus_that_comes_late_is_found() {
    let Some(mut rig) = Rig::bus("a_bus_that_comes_late_is_found", Auth::External).await else { return };
    rig.stop_bus();
    let host = rig.systemd().await;
    let mut events = host.events();
    let error = host.units(&names()).await.unwrap_err();
    assert_eq!(error.to_string(), "read units libvirtd.service: unavailable");
    assert!(error.source().unwrap().to_string().starts_with("connect to the system bus at unix:path="));
    rig.start_bus().await;
    rig.start_systemd().await;
    assert_eq!(next(&mut events).await, HostEvent::Resync);
    assert_eq!(host.units(&names()).await.unwrap()[0].active.as_str(), "active");
}

#[tokio::test]
async fn the_events_end_with_the_host_and_not_with_the_bus() {
    let Some(mut rig) = Rig::host("the_events_end_with_the_host_and_not_with_the_bus").await else { return };
    let host = rig.systemd().await;
    let mut events = host.events();
    rig.stop_bus();
    assert_eq!(host.units(&names()).await.unwrap_err().category(), "unavailable");
    rig.start_bus().await;
    until(&mut events, &HostEvent::Resync).await;
    drop(host);
    while let Some(event) = tokio::time::timeout(crate::rig::LIMIT, events.next()).await.unwrap() {
        assert_eq!(event, HostEvent::Resync);
    }
}

#[tokio::test]
async fn a_bus_that_does_not_know_our_user_may_take_us_without_a_name() {
    let test = "a_bus_that_does_not_know_our_user_may_take_us_without_a_name";
    let Some(mut rig) = Rig::bus(test, Auth::Anonymous).await else { return };
    rig.start_systemd().await;
    let host = rig.systemd().await;
    assert_eq!(host.units(&names()).await.unwrap()[0].load_state, "loaded");
}

#[tokio::test]
async fn a_bus_that_takes_us_in_no_way_denies_and_does_not_end_us() {
    let test = "a_bus_that_takes_us_in_no_way_denies_and_does_not_end_us";
    let Some(rig) = Rig::bus(test, Auth::Foreign).await else { return };
    let host = rig.systemd().await;
    let error = host.units(&names()).await.unwrap_err();
    assert_eq!(error.category(), "denied", "{error}");
}
