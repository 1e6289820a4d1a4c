//! Shutdowns: announced, cancelled, delayed, and let go.

use std::time::Duration;

use cobalt_core::host::{HostEvent, HostSystem};
use zbus::names::OwnedUniqueName;

use crate::rig::{Auth, LOGIND, Rig, eventually, next};

#[tokio::test]
async fn a_delay_is_held_until_the_guard_is_dropped() {
    let Some(rig) = Rig::host("a_delay_is_held_until_the_guard_is_dropped").await else { return };
    let host = rig.systemd().await;
    let guard = host.inhibit_shutdown("VMs are moved away").await.unwrap();
    assert_eq!(guard.max_delay(), Some(Duration::from_secs(1800)));
    let wanted = ["sleep:shutdown", "cobalt-node-agent", "VMs are moved away", "delay"].map(str::to_owned);
    assert_eq!(rig.inhibitors().await, [wanted]);
    drop(guard);
    eventually("the delay is released", async || rig.inhibitors().await.is_empty()).await;
}

#[tokio::test]
async fn a_delay_ends_with_the_task_that_held_it_and_outlives_the_host_that_gave_it() {
    let test = "a_delay_ends_with_the_task_that_held_it_and_outlives_the_host_that_gave_it";
    let Some(rig) = Rig::host(test).await else { return };
    let host = rig.systemd().await;
    let guard = host.inhibit_shutdown("why").await.unwrap();
    drop(host);
    let (held, is_held) = tokio::sync::oneshot::channel();
    let holder = tokio::spawn(async move {
        let _guard = guard;
        held.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    is_held.await.unwrap();
    assert_eq!(rig.inhibitors().await.len(), 1);
    holder.abort();
    eventually("the delay is released", async || rig.inhibitors().await.is_empty()).await;
}

#[tokio::test]
async fn a_limit_that_is_unknown_or_endless_is_none() {
    let Some(rig) = Rig::host("a_limit_that_is_unknown_or_endless_is_none").await else { return };
    let host = rig.systemd().await;
    rig.set_property(LOGIND, "InhibitDelayMaxUSec", u64::MAX).await;
    assert_eq!(host.inhibit_shutdown("why").await.unwrap().max_delay(), None);
    rig.set_property(LOGIND, "InhibitDelayMaxUSec", "soon").await;
    assert_eq!(host.inhibit_shutdown("why").await.unwrap().max_delay(), None);
}

#[tokio::test]
async fn a_host_that_lets_nobody_delay_a_shutdown_says_so() {
    let Some(rig) = Rig::host("a_host_that_lets_nobody_delay_a_shutdown_says_so").await else { return };
    let host = rig.systemd().await;
    rig.set_property(LOGIND, "InhibitDelayMaxUSec", 0_u64).await;
    assert_eq!(host.inhibit_shutdown("why").await.unwrap().max_delay(), Some(Duration::ZERO));
}

#[tokio::test]
async fn an_announced_and_a_cancelled_shutdown_are_told_apart() {
    let Some(rig) = Rig::host("an_announced_and_a_cancelled_shutdown_are_told_apart").await else { return };
    let host = rig.systemd().await;
    let mut events = host.events();
    for announced in [true, false, true] {
        rig.announce_shutdown(announced).await;
        assert_eq!(next(&mut events).await, HostEvent::PrepareForShutdown(announced));
    }
    let mut late = host.events();
    assert_eq!(next(&mut late).await, HostEvent::PrepareForShutdown(true), "whoever comes later must know too");
}

#[tokio::test]
async fn an_agent_that_starts_during_a_shutdown_hears_of_it() {
    let Some(rig) = Rig::host("an_agent_that_starts_during_a_shutdown_hears_of_it").await else { return };
    rig.set_property(LOGIND, "PreparingForShutdown", true).await;
    let host = rig.systemd().await;
    assert_eq!(next(&mut host.events()).await, HostEvent::PrepareForShutdown(true));
}

#[tokio::test]
async fn a_logind_that_restarts_is_asked_again_whether_a_shutdown_is_announced() {
    let test = "a_logind_that_restarts_is_asked_again_whether_a_shutdown_is_announced";
    let Some(mut rig) = Rig::host(test).await else { return };
    let host = rig.systemd().await;
    let mut events = host.events();
    for (announced, properties) in [(true, r#"{"PreparingForShutdown": true}"#), (false, "{}")] {
        rig.stop(LOGIND.0).await;
        rig.start_logind_with(properties).await;
        assert_eq!(next(&mut events).await, HostEvent::Resync);
        assert_eq!(next(&mut events).await, HostEvent::PrepareForShutdown(announced));
    }
    // One that comes back as it went says nothing new, and its signals are heard.
    rig.stop(LOGIND.0).await;
    rig.start_logind().await;
    assert_eq!(next(&mut events).await, HostEvent::Resync);
    rig.announce_shutdown(true).await;
    assert_eq!(next(&mut events).await, HostEvent::PrepareForShutdown(true));
}

#[tokio::test]
async fn a_logind_that_restarts_and_does_not_answer_holds_up_no_signals() {
    let test = "a_logind_that_restarts_and_does_not_answer_holds_up_no_signals";
    let Some(mut rig) = Rig::host(test).await else { return };
    let host = rig.systemd().await;
    let unit = "libvirtd.service";
    host.units(&[unit.to_owned()]).await.unwrap();
    let mut events = host.events();
    rig.stop(LOGIND.0).await;
    let silent = rig.client().await;
    silent.request_name(LOGIND.0).await.unwrap();
    assert_eq!(next(&mut events).await, HostEvent::Resync);
    rig.set_unit(unit, "loaded", "failed").await;
    assert_eq!(next(&mut events).await, HostEvent::UnitChanged(unit.to_owned()));
    silent.emit_signal(None::<&str>, LOGIND.1, LOGIND.2, "PrepareForShutdown", &true).await.unwrap();
    assert_eq!(next(&mut events).await, HostEvent::PrepareForShutdown(true));
}

#[tokio::test]
async fn only_logind_is_believed_about_shutdowns() {
    let Some(rig) = Rig::host("only_logind_is_believed_about_shutdowns").await else { return };
    let host = rig.systemd().await;
    let mut events = host.events();
    let stranger = rig.client().await;
    let bus = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus");
    let names: Vec<String> = rig.call(bus, "ListNames", &()).await;
    for name in names.iter().filter(|name| name.starts_with(':')) {
        let to = OwnedUniqueName::try_from(name.as_str()).unwrap();
        stranger.emit_signal(Some(to), LOGIND.1, LOGIND.2, "PrepareForShutdown", &true).await.unwrap();
    }
    // The bus has passed them all on before it answers this.
    stranger.call_method(Some(bus.0), bus.1, Some(bus.2), "GetId", &()).await.unwrap();
    rig.announce_shutdown(false).await;
    assert_eq!(next(&mut events).await, HostEvent::PrepareForShutdown(false));
}

#[tokio::test]
async fn a_host_without_logind_lacks_the_feature() {
    let Some(mut rig) = Rig::bus("a_host_without_logind_lacks_the_feature", Auth::External).await else { return };
    rig.start_systemd().await;
    let host = rig.systemd().await;
    assert!(!host.features().shutdown_inhibitor && host.features().units);
    assert_eq!(host.inhibit_shutdown("why").await.err().unwrap().category(), "unsupported");
    let mut events = host.events();
    rig.start_logind().await;
    assert_eq!(next(&mut events).await, HostEvent::Resync);
    assert!(host.features().shutdown_inhibitor);
    drop(host.inhibit_shutdown("why").await.unwrap());
}
