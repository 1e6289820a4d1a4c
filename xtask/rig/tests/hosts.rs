//! The rig itself: what it brings up works, and nothing of it stays.
#![allow(clippy::unwrap_used)]

mod traces;

use std::path::Path;
use std::time::{Duration, Instant};

use cobalt_rig::{Act, Guest, HostOptions, Hosts, Kernel, Sasl, available, skip};

use crate::traces::Traces;

fn login(mechanisms: &str) -> HostOptions {
    let (user, password) = ("agent".to_owned(), "a secret".to_owned());
    HostOptions { sasl: Some(Sasl { user, password, mechanisms: mechanisms.to_owned() }) }
}

/// Asks by virsh over any URI, as another client would.
fn virsh(uri: &str, arguments: &[&str]) -> Result<String, String> {
    let output = std::process::Command::new("virsh").args(["-c", uri]).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(300), "{what}: not within five minutes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_way_leads_to_a_host_of_its_own() {
    if !available("every_way_leads_to_a_host_of_its_own") {
        return;
    }
    let hosts = Hosts::up(2).unwrap();
    let (one, two) = (hosts.host(0), hosts.host(1));
    for host in [one, two] {
        for uri in [host.tcp(), host.tls(), host.unix(), host.test_driver()] {
            assert_eq!(virsh(&uri, &["hostname"]).as_deref(), Ok(host.name()), "{uri}");
        }
    }
    one.define(&Guest::new("vm1")).unwrap();
    assert_eq!(one.virsh(["list", "--all", "--name"]).unwrap().trim(), "vm1");
    assert_eq!(two.virsh(["list", "--all", "--name"]).unwrap().trim(), "");
    one.virsh(["start", "vm1"]).unwrap();
    one.virsh(["migrate", "--live", "--p2p", "--persistent", "--undefinesource", "vm1", &two.tcp()]).unwrap();
    assert_eq!(two.virsh(["domstate", "vm1"]).unwrap().trim(), "running");
    assert_eq!(one.virsh(["list", "--all", "--name"]).unwrap().trim(), "");
}

#[test]
fn a_host_with_a_login_lets_in_who_knows_the_password() {
    if !available("a_host_with_a_login_lets_in_who_knows_the_password") {
        return;
    }
    let hosts = Hosts::up_with(&[login("scram-sha-256"), login("plain")]).unwrap();
    for host in hosts.iter() {
        let ask = |password: &str| {
            let file = hosts.shared().join("auth.conf");
            let content = format!(
                "[credentials-rig]\nauthname=agent\npassword={password}\n[auth-libvirt-{}]\ncredentials=rig\n",
                host.address()
            );
            std::fs::write(&file, content).unwrap();
            virsh(&format!("{}&authfile={}", host.tls(), file.display()), &["hostname"])
        };
        assert_eq!(ask("a secret").as_deref(), Ok(host.name()));
        let refused = ask("a guess").unwrap_err();
        assert!(refused.contains("authentication failed"), "{refused}");
    }
}

#[test]
fn a_daemon_that_is_killed_or_frozen_comes_back_and_guests_run_on() {
    if !available("a_daemon_that_is_killed_or_frozen_comes_back_and_guests_run_on") {
        return;
    }
    let hosts = Hosts::up(1).unwrap();
    let host = hosts.host(0);
    host.define(&Guest::new("vm1")).unwrap();
    host.virsh(["start", "vm1"]).unwrap();
    host.kill_daemon().unwrap();
    assert!(virsh(&host.tcp(), &["hostname"]).is_err());
    host.start_daemon().unwrap();
    assert_eq!(host.virsh(["domstate", "vm1"]).unwrap().trim(), "running");
    host.freeze_daemon().unwrap();
    host.thaw_daemon().unwrap();
    assert_eq!(virsh(&host.tcp(), &["hostname"]).as_deref(), Ok(host.name()));
    host.freeze_daemon().unwrap();
    host.kill_daemon().unwrap();
    host.start_daemon().unwrap();
    host.restart_daemon().unwrap();
    host.kill_guest("vm1").unwrap();
    wait("the killed guest is seen", || host.virsh(["domstate", "vm1"]).unwrap().trim() == "shut off");
}

#[test]
fn a_rig_leaves_nothing_behind() {
    if !available("a_rig_leaves_nothing_behind") {
        return;
    }
    let hosts = Hosts::up(1).unwrap();
    let host = hosts.host(0);
    host.define(&Guest::new("vm1")).unwrap();
    host.virsh(["start", "vm1"]).unwrap();
    let shared = hosts.shared();
    let traces = Traces::of(shared.parent().unwrap(), "mountinfo");
    assert!(traces.processes().len() >= 3, "the first process, libvirtd and QEMU have our mounts");
    drop(hosts);
    traces.are_gone();
}

#[test]
fn many_domains_are_defined_in_one_go() {
    if !available("many_domains_are_defined_in_one_go") {
        return;
    }
    let hosts = Hosts::up(1).unwrap();
    let guests: Vec<Guest> = (0..50).map(|number| Guest::new(format!("vm{number}"))).collect();
    hosts.host(0).define_all(&guests).unwrap();
    assert_eq!(hosts.host(0).virsh(["list", "--all", "--uuid"]).unwrap().lines().count(), 50);
    let twice = hosts.host(0).define_all(&[Guest::new("vm1").with("<nonsense")]).unwrap_err();
    assert!(twice.to_string().contains("define 1 domains"), "{twice}");
}

#[test]
fn a_guest_boots_and_does_as_told() {
    const NAME: &str = "a_guest_boots_and_does_as_told";
    if !available(NAME) {
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let hosts = Hosts::up(1).unwrap();
    let kernel = match Kernel::prepare(target, &hosts.shared()) {
        Ok(kernel) => kernel,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    let host = hosts.host(0);
    let disk = host.small_disk("disk", 1024).unwrap();
    host.run(["truncate", "--size=8M", disk.join("image").to_str().unwrap()]).unwrap();
    let guests = [
        Guest::new("idle").act(&kernel, Act::Idle),
        Guest::new("off").act(&kernel, Act::PowerOff),
        Guest::new("full").act(&kernel, Act::FillDisk).stopping_disk(disk.join("image")),
    ];
    host.define_all(&guests).unwrap();
    for guest in &guests {
        host.virsh(["start", guest.name()]).unwrap();
    }
    wait("the idle guest is up", || host.console("idle").contains("guest: tick"));
    wait("the other is off", || host.virsh(["domstate", "off"]).unwrap().trim() == "shut off");
    wait("the full one is stopped", || host.virsh(["domstate", "full"]).unwrap().trim() == "paused");
    assert_eq!(host.virsh(["domblkerror", "full"]).unwrap().trim(), "vda: no space");
    host.small_disk("disk", 64 * 1024).unwrap();
    host.virsh(["resume", "full"]).unwrap();
    wait("the disk is written", || host.console("full").contains("guest: disk written"));
}
