//! Units: their states, their changes, and starting them.

use std::time::Duration;

use cobalt_core::host::{HostEvent, HostSystem};
use zbus::{ObjectPath, Variant};

use crate::rig::{Rig, SYSTEMD, next, until};

fn changed(name: &str) -> HostEvent {
    HostEvent::UnitChanged(name.to_owned())
}

#[tokio::test]
async fn every_state_of_a_unit_is_understood_and_told() {
    let Some(rig) = Rig::host("every_state_of_a_unit_is_understood_and_told").await else { return };
    let (host, name) = (rig.systemd().await, "libvirtd.service".to_owned());
    let mut events = host.events();
    host.units(std::slice::from_ref(&name)).await.unwrap();
    for state in ["reloading", "deactivating", "inactive", "activating", "failed", "maintenance", "active"] {
        rig.set_unit(&name, "loaded", state).await;
        assert_eq!(next(&mut events).await, changed(&name), "{state}");
        let units = host.units(std::slice::from_ref(&name)).await.unwrap();
        assert_eq!((units[0].active.as_str(), units[0].load_state.as_str()), (state, "loaded"));
    }
}

#[tokio::test]
async fn units_are_answered_in_the_order_asked_whatever_their_names() {
    let Some(rig) = Rig::host("units_are_answered_in_the_order_asked_whatever_their_names").await else { return };
    let host = rig.systemd().await;
    rig.set_unit("openvswitch.service", "loaded", "active").await;
    rig.set_unit("virtqemud.service", "masked", "inactive").await;
    rig.set_alias("openvswitch-switch.service", "openvswitch.service").await;
    let names = ["", "openvswitch-switch.service", "x@.service", "none.service", "virtqemud.service", "no unit"];
    let units = host.units(&names.map(str::to_owned)).await.unwrap();
    let found: Vec<_> =
        units.iter().map(|unit| (unit.name.as_str(), unit.active.as_str(), unit.load_state.as_str())).collect();
    let wanted = [
        ("", "inactive", "not-found"),
        ("openvswitch-switch.service", "active", "loaded"),
        ("x@.service", "inactive", "not-found"),
        ("none.service", "inactive", "not-found"),
        ("virtqemud.service", "inactive", "masked"),
        ("no unit", "inactive", "not-found"),
    ];
    assert_eq!(found, wanted);
    let mut events = host.events();
    rig.set_unit("openvswitch.service", "loaded", "failed").await;
    until(&mut events, &changed("openvswitch-switch.service")).await;
}

#[tokio::test]
async fn asking_about_a_unit_at_rest_is_no_change_of_it() {
    let Some(rig) = Rig::host("asking_about_a_unit_at_rest_is_no_change_of_it").await else { return };
    let host = rig.systemd().await;
    rig.set_unit("idle.service", "loaded", "inactive").await;
    let names = ["idle.service", "absent.service", "libvirtd.service"].map(str::to_owned);
    host.units(&names).await.unwrap();
    let mut events = host.events();
    for _ in 0..3 {
        host.units(&names).await.unwrap();
    }
    rig.set_unit("libvirtd.service", "loaded", "failed").await;
    assert_eq!(next(&mut events).await, changed("libvirtd.service"));
}

#[tokio::test]
async fn jobs_reloads_and_unloading_are_told_and_other_units_are_not() {
    let Some(rig) = Rig::host("jobs_reloads_and_unloading_are_told_and_other_units_are_not").await else { return };
    let (host, name) = (rig.systemd().await, "libvirtd.service");
    host.units(&[name.to_owned()]).await.unwrap();
    let mut events = host.events();
    rig.set_unit("cron.service", "loaded", "active").await;
    let path = |text: &'static str| Variant::from(ObjectPath::try_from(text).unwrap());
    let job =
        [Variant::from(7_u32), path("/org/freedesktop/systemd1/job/7"), Variant::from(name), Variant::from("failed")];
    rig.emit(SYSTEMD, "JobRemoved", "uoss", &job).await;
    assert_eq!(next(&mut events).await, changed(name));
    rig.emit(SYSTEMD, "Reloading", "b", &[Variant::from(true)]).await;
    rig.emit(SYSTEMD, "Reloading", "b", &[Variant::from(false)]).await;
    assert_eq!(next(&mut events).await, changed(name));
    host.units(&[name.to_owned()]).await.unwrap();
    let unit = [Variant::from(name), path("/org/freedesktop/systemd1/unit/libvirtd_2eservice")];
    rig.emit(SYSTEMD, "UnitRemoved", "so", &unit).await;
    assert_eq!(next(&mut events).await, changed(name));
}

#[tokio::test]
async fn a_signal_that_makes_no_sense_is_passed_over() {
    let Some(rig) = Rig::host("a_signal_that_makes_no_sense_is_passed_over").await else { return };
    let (host, name) = (rig.systemd().await, "libvirtd.service");
    host.units(&[name.to_owned()]).await.unwrap();
    let mut events = host.events();
    let unit = (SYSTEMD.0, "/org/freedesktop/systemd1/unit/libvirtd_2eservice", "org.freedesktop.DBus.Properties");
    for signal in ["UnitNew", "UnitRemoved", "JobRemoved", "Reloading"] {
        rig.emit(SYSTEMD, signal, "", &[]).await;
        rig.emit(SYSTEMD, signal, "s", &[Variant::from("x")]).await;
    }
    rig.emit(unit, "PropertiesChanged", "s", &[Variant::from("org.freedesktop.systemd1.Unit")]).await;
    rig.emit(SYSTEMD, "Unheard", "i", &[Variant::from(1_i32)]).await;
    rig.set_unit(name, "loaded", "failed").await;
    assert_eq!(next(&mut events).await, changed(name));
}

#[tokio::test]
async fn a_start_is_accepted_or_says_why_not() {
    let Some(rig) = Rig::host("a_start_is_accepted_or_says_why_not").await else { return };
    let host = rig.systemd().await;
    rig.set_unit("update.service", "loaded", "inactive").await;
    rig.set_unit("masked.service", "masked", "inactive").await;
    host.start_unit("update.service").await.unwrap();
    let category = async |name: &str| host.start_unit(name).await.unwrap_err().category();
    assert_eq!(category("none.service").await, "not_found");
    assert_eq!(category("../../etc").await, "not_found");
    let masked = host.start_unit("masked.service").await.unwrap_err();
    assert_eq!(masked.to_string(), "start unit masked.service: refused: Unit masked.service is masked.");
}

#[tokio::test]
async fn a_systemd_that_never_answers_costs_no_more_than_the_timeout() {
    let test = "a_systemd_that_never_answers_costs_no_more_than_the_timeout";
    let Some(rig) = Rig::bus(test, crate::rig::Auth::External).await else { return };
    let silent = rig.client().await;
    silent.request_name(SYSTEMD.0).await.unwrap();
    let options = rig.options().timeout(Duration::from_millis(300));
    let host = cobalt_host::Systemd::connect(&options).await.unwrap();
    let answer = host.units(&["libvirtd.service".to_owned()]).await.unwrap_err();
    assert_eq!(answer.to_string(), "read units libvirtd.service: no answer within 0.3 s");
}
