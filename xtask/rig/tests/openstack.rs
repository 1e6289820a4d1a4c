//! The control plane itself: it comes up, does what a cloud does and what it is told, and leaves nothing behind.
#![allow(clippy::unwrap_used)]

mod traces;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use cobalt_rig::{Account, Boot, ControlPlane, ControlService, GuestState, Turn};
use serde_json::json;

use crate::traces::Traces;

/// Names that begin with each other, and one with dots, as hosts have them.
const HOSTS: [&str; 3] = ["hv-1", "hv-10", "hv-2.zone-a.example"];

fn target() -> &'static Path {
    // Cargo's directory for integration tests lies directly below the target directory.
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

fn turn(test: &str) -> Option<Turn> {
    Turn::wait(test, target(), &HOSTS)
}

/// Waits for a condition that nobody announces.
fn until(plane: &ControlPlane, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(240), "{what}: not yet{}", plane.tail());
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_control_plane_leaves_nothing_behind() {
    let Some(venv) = cobalt_rig::openstack_available("a_control_plane_leaves_nothing_behind", target()) else { return };
    let plane = ControlPlane::up(&venv, &[]).unwrap();
    for (name, time) in plane.phases() {
        eprintln!("{:5.1} s  {name}", time.as_secs_f64());
    }
    let traces = Traces::of(plane.logs().parent().unwrap(), "cmdline");
    assert!(!traces.processes().is_empty(), "nothing of it is seen, so its end would not be either");
    drop(plane);
    traces.are_gone();
}

#[test]
fn computes_have_any_name_and_are_added_stopped_killed_and_started() {
    let Some(turn) = turn("computes_have_any_name_and_are_added_stopped_killed_and_started") else { return };
    let plane = &turn.plane;
    let added = "hv-2.zone-b.example";
    plane.start_compute(added).unwrap();
    plane.wait_for_compute(added).unwrap();
    let hosts: BTreeSet<String> = plane.services().unwrap().into_iter().map(|service| service.host).collect();
    let providers: BTreeSet<String> = plane.providers().unwrap().into_iter().map(|provider| provider.name).collect();
    for name in HOSTS.iter().chain([&added]) {
        assert!(hosts.contains(*name) && providers.contains(*name), "{name}: {hosts:?} {providers:?}");
    }
    let server = plane.boot(added, "stays").unwrap();
    let guests = plane.compute(added).guests();
    assert_eq!(guests.len(), 1);
    assert!(guests[0].id == server && guests[0].server == "stays", "{guests:?}");
    assert_eq!((guests[0].state, guests[0].vcpus, guests[0].memory_mb), (GuestState::Running, 1, 64));
    assert_eq!(plane.servers_on("hv-2.zone-a.example").unwrap(), [], "another host");

    plane.stop_compute(added).unwrap();
    assert!(!plane.compute_runs(added) && plane.compute_runs("hv-1"));
    let id = |host: &str| plane.services().unwrap().into_iter().find(|service| service.host == host).unwrap();
    plane.start_compute(added).unwrap();
    plane.wait_for_compute(added).unwrap();
    // One that comes back is the same one and still has its guests.
    plane.kill_compute(added).unwrap();
    assert_eq!(plane.compute(added).guests().len(), 1);
    plane.start_compute(added).unwrap();
    plane.wait_for_compute(added).unwrap();
    let seen = plane.server(&server).unwrap().unwrap();
    assert_eq!((seen.status.as_str(), seen.host.as_deref()), ("ACTIVE", Some(added)));
    plane.delete(&server).unwrap();
    assert_eq!(plane.server(&server).unwrap(), None);
    until(plane, "the guest to be gone", || plane.compute(added).guests().is_empty());

    plane.stop_compute(added).unwrap();
    let service = id(added).id;
    assert_eq!(plane.api("DELETE", "compute", &format!("/os-services/{service}"), None).unwrap().0, 204);
    assert!(plane.services().unwrap().iter().all(|service| service.host != added));
    assert!(plane.providers().unwrap().iter().all(|provider| provider.name != added));
}

#[test]
fn eight_live_migrations_run_at_a_time_and_one_server_refuses() {
    let Some(turn) = turn("eight_live_migrations_run_at_a_time_and_one_server_refuses") else { return };
    let plane = &turn.plane;
    let (source, target) = ("hv-1", "hv-10");
    let names: Vec<String> = (0..8).map(|number| format!("moving-{number}")).collect();
    let ids: Vec<String> = names.iter().map(|name| plane.request(&Boot::new(name).on(source)).unwrap()).collect();
    for id in &ids {
        plane.wait_for_server(id, "ACTIVE").unwrap();
    }
    let mut watch = plane.compute(source).watch();
    assert_eq!(watch.changed().unwrap().len(), 8);

    plane.compute(source).migrations_take(Duration::from_secs(3600)).unwrap();
    plane.compute(source).refuse_migrations(&[&ids[3]]).unwrap();
    for id in &ids {
        plane.act(id, "os-migrateLive", &json!({"host": target, "block_migration": "auto"})).unwrap();
    }
    let running = |id: &String| plane.migrations_of(id).unwrap().iter().any(|one| one.status == "running");
    until(plane, "all eight to run at the same time", || ids.iter().all(running));
    assert_eq!(watch.changed(), None, "they are still here");

    plane.compute(source).migrations_take(Duration::ZERO).unwrap();
    for (number, id) in ids.iter().enumerate() {
        plane.wait_for_server(id, "ACTIVE").unwrap();
        let (host, status) = if number == 3 { (source, "failed") } else { (target, "completed") };
        until(plane, "the record to be over", || plane.migrations_of(id).unwrap()[0].status == status);
        let server = plane.server(id).unwrap().unwrap();
        assert_eq!(server.host.as_deref(), Some(host), "{server:?}");
        let migrations = plane.migrations_of(id).unwrap();
        assert_eq!(migrations.len(), 1, "{migrations:?}");
        assert_eq!((migrations[0].kind.as_str(), migrations[0].source.as_str()), ("live-migration", source));
    }
    // The hypervisors agree with Nova, and whoever follows them hears of it.
    let left: Vec<String> = watch.changed().unwrap().into_iter().map(|guest| guest.server).collect();
    assert_eq!(left, ["moving-3"]);
    assert_eq!(plane.compute(target).guests().len(), 7);
    assert_eq!(plane.servers_on(source).unwrap().len(), 1);

    let providers = plane.providers().unwrap();
    let provider = |host: &str| providers.iter().find(|provider| provider.name == host).unwrap();
    assert_eq!(plane.allocations(&provider(source).id).unwrap(), [ids[3].clone()]);
    assert_eq!(plane.allocations(&provider(target).id).unwrap().len(), 7);
    plane.compute(source).allow_migrations().unwrap();
    for id in &ids {
        plane.delete(id).unwrap();
    }
}

#[test]
fn the_tester_boots_to_a_host_and_finds_the_name_on_the_console() {
    let Some(turn) = turn("the_tester_boots_to_a_host_and_finds_the_name_on_the_console") else { return };
    let plane = &turn.plane;
    let boot = Boot::new("smoke-hv-10").on("hv-10");
    let id = plane.request(&boot.clone().by(Account::Tester)).unwrap();
    plane.wait_for_server(&id, "ACTIVE").unwrap();
    let servers = plane.servers_on("hv-10").unwrap();
    assert!(servers.iter().any(|server| server.id == id && server.name == "smoke-hv-10"), "{servers:?}");
    let path = format!("/servers/{id}/action");
    let console = json!({"os-getConsoleOutput": {"length": 5}});
    let (status, said) = plane.api_as(Account::Tester, "POST", "compute", &path, Some(&console)).unwrap();
    assert!(status == 200 && said["output"].as_str().unwrap().contains("smoke-hv-10"), "{status} {said}");
    // It is the tester's own, and a customer may not choose a host.
    let (_, own) = plane.api_as(Account::Tester, "GET", "compute", "/servers", None).unwrap();
    assert_eq!(own["servers"].as_array().unwrap().len(), 1, "{own}");
    let refused = plane.request(&boot.by(Account::Customer)).unwrap_err().to_string();
    assert!(refused.contains("403"), "{refused}");
    plane.delete(&id).unwrap();

    let network = plane.add_network(Account::Tester, "smoke-net", false).unwrap();
    let id = plane.request(&Boot::new("smoke-port").network(&network).by(Account::Tester)).unwrap();
    plane.wait_for_server(&id, "ACTIVE").unwrap();
    plane.delete(&id).unwrap();

    plane.compute("hv-10").refuse_guests().unwrap();
    let id = plane.request(&Boot::new("smoke-fails").on("hv-10").by(Account::Tester)).unwrap();
    plane.wait_for_server(&id, "ERROR").unwrap();
    plane.compute("hv-10").allow_guests().unwrap();
    plane.delete(&id).unwrap();
}

#[test]
fn guests_are_paused_stopped_and_started() {
    let Some(turn) = turn("guests_are_paused_stopped_and_started") else { return };
    let plane = &turn.plane;
    let host = "hv-2.zone-a.example";
    let id = plane.boot(host, "tired").unwrap();
    for (action, status, state) in [
        ("pause", "PAUSED", GuestState::Paused),
        ("unpause", "ACTIVE", GuestState::Running),
        ("suspend", "SUSPENDED", GuestState::Suspended),
        ("resume", "ACTIVE", GuestState::Running),
        ("os-stop", "SHUTOFF", GuestState::Off),
        ("os-start", "ACTIVE", GuestState::Running),
    ] {
        plane.act(&id, action, &json!(null)).unwrap();
        plane.wait_for_server(&id, status).unwrap();
        assert_eq!(plane.compute(host).guests()[0].state, state, "after {action}");
    }
    plane.delete(&id).unwrap();
}

#[test]
fn aggregates_make_zones_and_extra_specs_choose_hosts() {
    let Some(turn) = turn("aggregates_make_zones_and_extra_specs_choose_hosts") else { return };
    let plane = &turn.plane;
    let host = "hv-2.zone-a.example";
    let zone = plane.add_aggregate("zone-a", Some("zone-a")).unwrap();
    let filter = plane.add_aggregate("tenant_filter_tests", None).unwrap();
    let project = plane.project(Account::Tester).unwrap();
    plane.set_aggregate_metadata(filter, "filter_tenant_id", &project).unwrap();
    let member = |id: u64, verb: &str| {
        let path = format!("/os-aggregates/{id}/action");
        assert_eq!(plane.api("POST", "compute", &path, Some(&json!({verb: {"host": host}}))).unwrap().0, 200);
    };
    member(zone, "add_host");
    member(filter, "add_host");
    let seen = plane.aggregates().unwrap();
    let names: Vec<&str> = seen.iter().map(|aggregate| aggregate.name.as_str()).collect();
    assert_eq!(names, ["tenant_filter_tests", "zone-a"]);
    assert_eq!(seen[0].metadata["filter_tenant_id"], project);
    assert_eq!((seen[1].zone.as_deref(), &seen[1].hosts[..]), (Some("zone-a"), &[host.to_owned()][..]));
    let server = plane.boot(host, "in-a-zone").unwrap();
    plane.delete(&server).unwrap();

    assert!(plane.api("PUT", "placement", "/traits/CUSTOM_RIG", None).unwrap().0 < 300);
    plane.add_flavor("rare", "rare", 0, &[("trait:CUSTOM_RIG", "required")]).unwrap();
    let id = plane.request(&Boot::new("nowhere").flavor("rare")).unwrap();
    plane.wait_for_server(&id, "ERROR").unwrap();
    plane.delete(&id).unwrap();
    let provider = plane.providers().unwrap().into_iter().find(|provider| provider.name == "hv-10").unwrap().id;
    let path = format!("/resource_providers/{provider}/traits");
    // Nova writes traits too, so a generation may be old when it is used.
    until(plane, "the trait to be taken", || {
        let (_, mut body) = plane.api("GET", "placement", &path, None).unwrap();
        body["traits"].as_array_mut().unwrap().push("CUSTOM_RIG".into());
        plane.api("PUT", "placement", &path, Some(&body)).unwrap().0 == 200
    });
    assert!(plane.traits(&provider).unwrap().contains(&"CUSTOM_RIG".to_owned()));
    let id = plane.request(&Boot::new("rare").flavor("rare")).unwrap();
    plane.wait_for_server(&id, "ACTIVE").unwrap();
    assert_eq!(plane.server(&id).unwrap().unwrap().host.as_deref(), Some("hv-10"));
    plane.delete(&id).unwrap();
    for (id, path) in [(zone, "zone"), (filter, "filter")] {
        member(id, "remove_host");
        assert_eq!(plane.api("DELETE", "compute", &format!("/os-aggregates/{id}"), None).unwrap().0, 200, "{path}");
    }
}

#[test]
fn services_are_killed_and_started_and_tokens_are_revoked() {
    let Some(turn) = turn("services_are_killed_and_started_and_tokens_are_revoked") else { return };
    let plane = &turn.plane;
    plane.kill(ControlService::NovaApi).unwrap();
    assert!(plane.api("GET", "compute", "/servers", None).is_err(), "a killed API does not answer");
    plane.start(ControlService::NovaApi).unwrap();
    let answers = || plane.api("GET", "compute", "/servers", None).is_ok_and(|(status, _)| status == 200);
    until(plane, "Nova's API to answer again", answers);

    plane.restart(ControlService::Keystone).unwrap();
    until(plane, "Keystone to answer again", || plane.project(Account::Tester).is_ok());
    let (revoked, other) = (plane.log_in(Account::Tester).unwrap(), plane.log_in(Account::Customer).unwrap());
    assert!(plane.accepts(&revoked).unwrap() && plane.accepts(&other).unwrap());
    plane.revoke_tokens(Account::Tester).unwrap();
    until(plane, "the token to be worth nothing", || !plane.accepts(&revoked).unwrap());
    assert!(plane.accepts(&other).unwrap(), "that of somebody else");
    let environment = plane.environment_of(Account::Tester);
    assert_eq!((environment["OS_USERNAME"].as_str(), environment["OS_PROJECT_NAME"].as_str()), ("test", "test"));
    assert_eq!(environment["OS_AUTH_URL"], plane.auth_url());
    assert_eq!(plane.api_as(Account::Tester, "GET", "compute", "/servers", None).unwrap().0, 200, "after a new login");
}
