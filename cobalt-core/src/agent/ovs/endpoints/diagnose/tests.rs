use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::ovs::{Binding, Bond, BondKind, BondMember, Bridge, Controller, ControllerConfiguration, Daemon, Device};

fn responsive() -> Daemon {
    Daemon::Responsive { version: Some("3.1.0".into()) }
}

fn interface(name: &str, role: InterfaceRole) -> Interface {
    Interface {
        name: name.into(),
        bridge: "br-int".into(),
        role,
        admin_up: Some(true),
        link_up: Some(true),
        speed_bps: None,
        bond: None,
        error: None,
        ifindex: Some(7),
        ofport: Some(3),
        mac: None,
        instance: None,
        logical_port: None,
        binding: None,
        remote_chassis: None,
        remote_known: None,
        device: Device::default(),
        statistics: BTreeMap::new(),
    }
}

fn member(name: &str, enabled: bool) -> BondMember {
    let lacp = Some("current".into());
    BondMember { name: name.into(), enabled: Some(enabled), link_up: Some(true), lacp, partner: None, speed_bps: None }
}

/// A host on which all is well.
fn well() -> OvsSnapshot {
    let members = vec![member("eth1", true), member("eth2", true)];
    let flows = Some(BTreeMap::from([(0, 10)]));
    OvsSnapshot {
        at: Timestamp::UNIX_EPOCH,
        database_connected: true,
        database: responsive(),
        switch: responsive(),
        dpdk: None,
        bridges: vec![Bridge { name: "br-int".into(), ports: 2, datapath_type: "netdev".into(), flows }],
        interfaces: vec![
            Interface {
                logical_port: Some("lp1".into()),
                binding: Some(Binding::Here),
                ..interface("tap1", InterfaceRole::Instance)
            },
            Interface { bond: Some("bond0".into()), ..interface("eth1", InterfaceRole::Physical) },
        ],
        bonds: vec![Bond {
            name: "bond0".into(),
            kind: BondKind::Ovs,
            mode: "balance-tcp".into(),
            lacp: true,
            members,
        }],
        controller: Some(Controller {
            daemon: responsive(),
            southbound_connected: true,
            southbound_responsive: None,
            southbound: Some("tcp:192.0.2.1:6642".into()),
            chassis_id: None,
            openflow_connected: Some(true),
            lag: Some(0),
            wanted: Some(7),
            configuration: ControllerConfiguration::default(),
            unplugged: Some(vec![]),
        }),
        configuration_pending: false,
    }
}

fn kinds(diagnosis: &Diagnosis) -> Vec<(Severity, &str, &str)> {
    diagnosis.findings.iter().map(|found| (found.severity, found.kind.as_str(), found.object.as_str())).collect()
}

fn switch(snapshot: &OvsSnapshot) -> Diagnosis {
    super::switch(snapshot, &Memory::default(), &Config::new("node-1"))
}

fn port(snapshot: &OvsSnapshot, interface: &Interface) -> Diagnosis {
    super::port(snapshot, interface, &Memory::default(), &Config::new("node-1"))
}

fn named(diagnosis: &Diagnosis) -> Vec<(&str, &str)> {
    diagnosis.findings.iter().map(|found| (found.kind.as_str(), found.object.as_str())).collect()
}

#[test]
fn a_host_on_which_all_is_well_has_no_findings() {
    let diagnosis = switch(&well());
    assert_eq!((kinds(&diagnosis), diagnosis.summary.as_str()), (vec![], "nothing is wrong with the switch"));
}

#[test]
fn each_fault_is_found_and_comes_with_advice() {
    use Severity::{Critical, Warning};
    type Change = fn(&mut OvsSnapshot);
    let table: &[(Change, Severity, &str, &str)] = &[
        (|s| s.switch = Daemon::Unresponsive, Critical, "DaemonUnresponsive", "ovs-vswitchd"),
        (|s| s.switch = Daemon::Absent, Critical, "DaemonAbsent", "ovs-vswitchd"),
        (|s| s.database = Daemon::Absent, Critical, "DaemonAbsent", "ovsdb-server"),
        (|s| s.database_connected = false, Critical, "DatabaseDisconnected", "ovsdb-server"),
        (|s| s.configuration_pending = true, Warning, "ConfigurationPending", "ovs-vswitchd"),
        (|s| s.bridges[0].flows = None, Critical, "BridgeUnresponsive", "br-int"),
        (|s| s.bonds[0].members[0].enabled = Some(false), Warning, "BondDegraded", "bond0"),
        (|s| s.bonds[0].members.iter_mut().for_each(|m| m.enabled = Some(false)), Critical, "BondDown", "bond0"),
        (
            |s| s.switch = Daemon::Inaccessible { why: "permission denied".into() },
            Critical,
            "DaemonInaccessible",
            "ovs-vswitchd",
        ),
        (|s| s.interfaces[0].ifindex = Some(0), Warning, "OrphanPort", "tap1"),
        (|s| s.interfaces[0].ofport = Some(-1), Warning, "OrphanPort", "tap1"),
        (|s| s.interfaces[0].error = Some("no such device".into()), Warning, "OrphanPort", "tap1"),
        (|s| s.interfaces[0].binding = Some(Binding::Unknown), Warning, "OrphanPort", "tap1"),
        (|s| s.interfaces[0].binding = Some(Binding::Elsewhere("hv2".into())), Warning, "OrphanPort", "tap1"),
        (|s| s.interfaces[1].ifindex = Some(0), Warning, "InterfaceError", "eth1"),
        (|s| s.interfaces[1].error = Some("could not set configuration".into()), Warning, "InterfaceError", "eth1"),
        (
            |s| {
                s.interfaces[1].role = InterfaceRole::Tunnel;
                s.interfaces[1].remote_known = Some(false);
            },
            Warning,
            "StaleTunnel",
            "eth1",
        ),
    ];
    for (change, severity, kind, object) in table {
        let mut snapshot = well();
        change(&mut snapshot);
        let diagnosis = switch(&snapshot);
        assert!(kinds(&diagnosis).contains(&(*severity, kind, object)), "{kind}: {diagnosis:#?}");
        assert!(diagnosis.findings.iter().all(|finding| !finding.advice.is_empty()), "{kind}");
    }
}

#[test]
fn each_fault_of_the_controller_is_found() {
    type Change = fn(&mut Controller);
    let table: &[(Change, &str, &str)] = &[
        (|c| c.daemon = Daemon::Unresponsive, "DaemonUnresponsive", "ovn-controller"),
        (|c| c.southbound_connected = false, "SouthboundDisconnected", "ovn-controller"),
        (|c| c.southbound_responsive = Some(false), "SouthboundUnresponsive", "ovn-controller"),
        (|c| c.openflow_connected = Some(false), "OpenFlowDisconnected", "ovn-controller"),
        (|c| c.lag = Some(3), "SouthboundLag", "ovn-controller"),
        (|c| c.unplugged = Some(vec!["lp9".into()]), "UnpluggedPort", "lp9"),
    ];
    for (change, kind, object) in table {
        let mut snapshot = well();
        if let Some(controller) = &mut snapshot.controller {
            change(controller);
        }
        let diagnosis = switch(&snapshot);
        let found: Vec<_> =
            diagnosis.findings.iter().map(|found| (found.kind.as_str(), found.object.as_str())).collect();
        assert_eq!(found, [(*kind, *object)]);
    }
}

#[test]
fn a_silent_partner_is_told_from_a_pulled_cable() {
    let mut snapshot = well();
    snapshot.bonds[0].members[0] = BondMember { lacp: Some("expired".into()), ..member("eth1", false) };
    snapshot.bonds[0].members[1] = BondMember { link_up: Some(false), ..member("eth2", false) };
    let diagnosis = switch(&snapshot);
    assert_eq!(named(&diagnosis), [("BridgeIsolated", "br-int"), ("BondDown", "bond0")]);
    let message = &diagnosis.findings[1].message;
    assert!(message.contains("eth1: the partner is silent") && message.contains("eth2: no link"), "{message}");
}

#[test]
fn the_doctor_is_as_worried_as_the_ovsnode() {
    let mut snapshot = well();
    snapshot.interfaces.push(Interface { link_up: Some(false), ..interface("eth3", InterfaceRole::Physical) });
    snapshot.interfaces.push(Interface { error: Some("odd".into()), ..interface("eth4", InterfaceRole::Physical) });
    let config = Config::new("node-1");
    let found = find(&snapshot, &Memory::default(), &config);
    let of_node: Vec<_> = found.iter().map(|found| (found.type_.severity().as_str(), found.type_.as_str())).collect();
    let diagnosis = switch(&snapshot);
    let of_doctor: Vec<_> =
        diagnosis.findings.iter().map(|found| (severity_word(found.severity), found.kind.as_str())).collect();
    assert!(of_node.contains(&("Warning", "LinkDown")) && of_node.contains(&("Warning", "InterfaceError")));
    assert_eq!(of_doctor, of_node);
}

fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "Critical",
        Severity::Warning => "Warning",
        Severity::Info => "Info",
    }
}

#[test]
fn stale_flows_that_were_found_are_told() {
    let memory = Memory::of_stale_flows(crate::agent::Section::Known(BTreeMap::from([(0xdead_beef, 3)])));
    let diagnosis = super::switch(&well(), &memory, &Config::new("node-1"));
    assert_eq!(named(&diagnosis), [("StaleFlows", "br-int")]);
    assert_eq!(diagnosis.findings[0].message, "3 flows with 1 cookie that nothing in OVN explains on br-int");
    let memory = Memory::of_stale_flows(crate::agent::Section::Known(BTreeMap::from([(1, 1)])));
    let diagnosis = super::switch(&well(), &memory, &Config::new("node-1"));
    assert_eq!(diagnosis.findings[0].message, "1 flow with 1 cookie that nothing in OVN explains on br-int");
}

#[test]
fn losses_are_told_by_whatever_name_the_kernel_the_switch_or_dpdk_counts_them() {
    let losses = [
        "rx_errors",
        "tx_errors",
        "rx_missed_errors",
        "rx_crc_err",
        "rx_dropped",
        "ovs_tx_failure_drops",
        "rx_mbuf_allocation_errors",
        "collisions",
    ];
    for loss in losses {
        let mut snapshot = well();
        snapshot.interfaces[0].statistics = BTreeMap::from([(loss.to_owned(), 2), ("rx_packets".into(), 9)]);
        let diagnosis = port(&snapshot, &snapshot.interfaces[0]);
        assert_eq!(named(&diagnosis), [("Losses", "tap1")], "{loss}");
        assert!(diagnosis.findings[0].message.ends_with(&format!("{loss} 2")), "{diagnosis:?}");
    }
}

#[test]
fn a_bond_of_which_nobody_could_tell_is_mentioned_and_not_passed_over() {
    let mut snapshot = well();
    snapshot.bonds[0].kind = BondKind::Kernel;
    assert_eq!(named(&super::switch(&snapshot, &Memory::default(), &Config::new("node-1"))), []);
    (snapshot.bonds[0].members[0].enabled, snapshot.bonds[0].members[0].lacp) = (None, None);
    let told = super::switch(&snapshot, &Memory::default(), &Config::new("node-1"));
    assert_eq!(named(&told), [("BondUnknown", "bond0")]);
    assert!(told.findings[0].message.contains("on eth1 of bond bond0"), "{told:?}");
    let of_card = port(&snapshot, &snapshot.interfaces[1]);
    assert_eq!(named(&of_card), [("BondUnknown", "bond0")]);
    assert_eq!(named(&port(&snapshot, &snapshot.interfaces[0])), []);
}

#[test]
fn a_port_is_told_with_what_it_depends_on() {
    let mut snapshot = well();
    snapshot.interfaces[0].statistics = BTreeMap::from([("rx_dropped".into(), 4), ("tx_packets".into(), 9)]);
    snapshot.bridges[0].flows = Some(BTreeMap::new());
    let of_tap = port(&snapshot, &snapshot.interfaces[0]);
    assert_eq!(named(&of_tap), [("NoFlows", "br-int"), ("Losses", "tap1")]);
    assert!(of_tap.findings[1].message.ends_with("rx_dropped 4"), "{of_tap:?}");
    assert_eq!(of_tap.summary, "nothing is wrong with port tap1", "hints are no findings");
    snapshot.bonds[0].members[1].enabled = Some(false);
    let of_card = port(&snapshot, &snapshot.interfaces[1]);
    assert!(named(&of_card).contains(&("BondDegraded", "bond0")), "{of_card:?}");
    assert!(!named(&port(&snapshot, &snapshot.interfaces[0])).contains(&("BondDegraded", "bond0")), "not its bond");
}

#[test]
fn hints_explain_a_port_that_is_down_or_claimed_twice() {
    let mut snapshot = well();
    snapshot.interfaces[0].link_up = Some(false);
    let second = Interface { name: "tap2".into(), admin_up: Some(false), ..snapshot.interfaces[0].clone() };
    snapshot.interfaces.push(second);
    assert_eq!(
        named(&port(&snapshot, &snapshot.interfaces[0])),
        [("GuestLinkDown", "tap1"), ("DuplicateClaim", "tap1")]
    );
    assert!(named(&port(&snapshot, &snapshot.interfaces[2])).contains(&("AdminDown", "tap2")));
}

#[test]
fn a_flood_of_findings_is_cut_and_counted() {
    let mut snapshot = well();
    for number in 0..LISTED + 50 {
        let port = Interface { ofport: Some(-1), ..interface(&format!("tap-{number}"), InterfaceRole::Instance) };
        snapshot.interfaces.push(port);
    }
    let diagnosis = switch(&snapshot);
    assert_eq!((diagnosis.findings.len(), diagnosis.omitted), (LISTED, 50));
    assert_eq!(diagnosis.summary, format!("the switch has {} warnings", LISTED + 50));
}
