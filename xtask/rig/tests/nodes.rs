//! The rig itself: a node with Open vSwitch and OVN works, breaks in the ways it offers, and leaves nothing.
#![allow(clippy::unwrap_used)]

mod traces;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use cobalt_rig::ovs::{Daemon, Node, NodeOptions, Orphan, Scale, Way, available};

use crate::traces::Traces;

fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(300), "{what}: not within five minutes");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A node for tests that leave it as they found it.
fn shared() -> Arc<Node> {
    static SHARED: Mutex<Weak<Node>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let node = Arc::new(Node::up().unwrap());
        *shared = Arc::downgrade(&node);
        node
    })
}

fn members(node: &Node) -> usize {
    node.appctl(["bond/show", "bond0"]).unwrap().matches(": enabled").count()
}

fn connection(node: &Node) -> String {
    let Some(pid) = node.pid(Daemon::Controller) else { return "dead".to_owned() };
    let socket = node.directory().join(format!("ovn-controller.{pid}.ctl"));
    let output = std::process::Command::new("ovs-appctl")
        .args(["--timeout=5", "-t", socket.to_str().unwrap(), "connection-status"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn a_node_has_bridges_a_negotiated_bond_a_tunnel_and_guests_that_reach_each_other() {
    if !available("a_node_has_bridges_a_negotiated_bond_a_tunnel_and_guests_that_reach_each_other") {
        return;
    }
    let node = shared();
    assert_eq!(node.vsctl(["list-br"]).unwrap(), "br-ex\nbr-int\nbr-provider\n");
    // The partner's word may be late, and then its time is up until the next one.
    wait("both members are negotiated", || {
        node.appctl(["lacp/show", "bond0"]).unwrap().matches("current attached").count() == 2
    });
    let tunnel = node.vsctl(["--bare", "--columns=options", "find", "Interface", "type=geneve"]).unwrap();
    assert!(tunnel.contains("remote_ip=172.31.0.12"), "{tunnel}");
    wait("the guests reach each other", || node.vm(0).ping(&node.vm(1).address(), 5).is_ok());
    wait("a guest reaches its router", || node.vm(1).ping("10.0.0.1", 5).is_ok());
    let flows = node.ofctl("dump-flows", "br-int", &[]).unwrap();
    assert!(flows.lines().count() > 100, "{flows}");
    assert_eq!(connection(&node), "connected");
    let names = node.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    assert!(names.contains("tap-vm1") && names.contains("br-int"), "{names}");
}

#[test]
fn the_databases_are_reached_over_tcp_and_tls_by_who_has_a_certificate() {
    if !available("the_databases_are_reached_over_tcp_and_tls_by_who_has_a_certificate") {
        return;
    }
    let node = shared();
    let pki = |file: &str| node.pki().join(file).display().to_string();
    let list = |remote: &str, certificate: bool| {
        let mut command = std::process::Command::new("ovsdb-client");
        command.args(["--timeout=60"]);
        if certificate {
            let (key, own, ca) = (pki("clientkey.pem"), pki("clientcert.pem"), pki("cacert.pem"));
            command.args(["-p", &key, "-c", &own, "-C", &ca]);
        }
        let output = command.args(["list-dbs", remote]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for way in [Way::Unix, Way::Tcp, Way::Ssl] {
        assert!(list(&node.database(way), true).contains("Open_vSwitch"), "{way:?}");
        assert!(list(&node.southbound(way), true).contains("OVN_Southbound"), "{way:?}");
    }
    assert_eq!(list(&node.database(Way::Ssl), false), "");
}

#[test]
fn a_silent_partner_and_pulled_cables_disable_the_members_until_they_are_back() {
    if !available("a_silent_partner_and_pulled_cables_disable_the_members_until_they_are_back") {
        return;
    }
    let node = Node::up().unwrap();
    node.silence_partner().unwrap();
    wait("no member is enabled", || members(&node) == 0);
    let link = |name: &str| node.vsctl(["get", "Interface", name, "link_state"]).unwrap().trim().to_owned();
    assert_eq!(link("eth1"), "up");
    node.wake_partner().unwrap();
    node.until_negotiated().unwrap();
    node.cable("eth1", false).unwrap();
    wait("one member is enabled", || members(&node) == 1 && link("eth1") == "down");
    node.cable("eth2", false).unwrap();
    wait("no member is enabled", || members(&node) == 0);
    node.cable("eth1", true).unwrap();
    node.cable("eth2", true).unwrap();
    node.until_negotiated().unwrap();
}

#[test]
fn daemons_that_are_killed_frozen_or_stopped_come_back_and_guests_reach_each_other_again() {
    if !available("daemons_that_are_killed_frozen_or_stopped_come_back_and_guests_reach_each_other_again") {
        return;
    }
    let node = Node::up_with(&NodeOptions { southbound: Way::Ssl }).unwrap();
    assert_eq!(connection(&node), "connected");
    for daemon in [Daemon::Switch, Daemon::Controller, Daemon::Database] {
        let first = node.pid(daemon).unwrap();
        node.kill(daemon).unwrap();
        assert_eq!(node.pid(daemon), None, "{daemon:?}");
        node.start(daemon).unwrap();
        assert_ne!(node.pid(daemon), Some(first), "{daemon:?}");
        node.freeze(daemon).unwrap();
        node.thaw(daemon).unwrap();
        node.freeze(daemon).unwrap();
        node.stop(daemon).unwrap();
        node.start(daemon).unwrap();
        wait("the switch answers", || node.appctl(["version"]).is_ok());
        node.until_synced().unwrap();
    }
    node.kill(Daemon::Southbound).unwrap();
    wait("the controller has noticed", || connection(&node) == "not connected");
    node.start(Daemon::Southbound).unwrap();
    wait("the controller is connected", || connection(&node) == "connected");
    node.until_synced().unwrap();
    wait("the guests reach each other", || node.vm(0).ping(&node.vm(1).address(), 2).is_ok());
}

#[test]
fn each_orphan_is_one_and_can_be_taken_away() {
    if !available("each_orphan_is_one_and_can_be_taken_away") {
        return;
    }
    let node = Node::up().unwrap();
    let column =
        |orphan: Orphan, name: &str| node.vsctl(["get", "Interface", orphan.port(), name]).unwrap().trim().to_owned();
    for orphan in Orphan::ALL {
        node.orphan(orphan).unwrap();
    }
    assert_eq!(column(Orphan::NeverExisted, "ofport"), "-1");
    assert_eq!(column(Orphan::Vanished, "ifindex"), "0");
    assert!(node.sbctl(["find", "Port_Binding", "logical_port=lp-unknown"]).unwrap().is_empty());
    let bound = node.sbctl(["--bare", "--columns=chassis", "find", "Port_Binding", "logical_port=lp-elsewhere"]);
    let other = node.sbctl(["--bare", "--columns=_uuid", "find", "Chassis", "name=hv2"]);
    assert_eq!(bound.unwrap(), other.unwrap());
    let claims = node.vsctl(["--bare", "--columns=name", "find", "Interface", "external_ids:iface-id=vm1"]).unwrap();
    assert_eq!(claims.split_whitespace().count(), 2, "{claims}");
    for orphan in Orphan::ALL {
        node.adopt(orphan).unwrap();
    }
    assert!(!node.vsctl(["list-ports", "br-int"]).unwrap().contains("tap-unknown"));
    wait("the guests reach each other", || node.vm(0).ping(&node.vm(1).address(), 2).is_ok());
}

#[test]
fn flows_are_left_behind_by_a_killed_controller_and_go_when_it_is_back() {
    if !available("flows_are_left_behind_by_a_killed_controller_and_go_when_it_is_back") {
        return;
    }
    let node = Node::up().unwrap();
    let count = || node.ofctl("dump-flows", "br-int", &[]).unwrap().lines().count();
    let before = count();
    node.add_flow("br-int", "cookie=0xdeadbeef,table=200,priority=1,actions=drop").unwrap();
    assert_eq!(count(), before + 1);
    node.leave_flows_behind(0).unwrap();
    assert_eq!(count(), before + 1);
    node.start(Daemon::Controller).unwrap();
    wait("the flows of the port are gone", || count() < before);
}

#[test]
fn a_node_leaves_nothing_behind() {
    if !available("a_node_leaves_nothing_behind") {
        return;
    }
    let node = Node::up().unwrap();
    node.freeze(Daemon::Switch).unwrap();
    let traces = Traces::of(node.directory().parent().unwrap(), "cmdline");
    assert!(traces.processes().len() >= 8, "three daemons of the node, two of the partner, three of OVN");
    drop(node);
    traces.are_gone();
}

#[test]
fn a_switch_has_as_many_ports_and_flows_as_asked_for() {
    if !available("a_switch_has_as_many_ports_and_flows_as_asked_for") {
        return;
    }
    let scale = Scale::up(300).unwrap();
    assert_eq!(scale.vsctl(["list-ports", "br-int"]).unwrap().lines().count(), 300);
    scale.add_flows(1000).unwrap();
    let said = scale.ofctl("dump-aggregate", &[]).unwrap();
    assert!(said.contains("flow_count=1000"), "{said}");
}
