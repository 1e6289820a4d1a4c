//! Decisions, row by row. What whole programs do is tested with the simulated region.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{Config, figures, finding::find, memory::Memory, status::decide};
use crate::{
    agent::Section,
    api::OVSNodeStatus,
    ovs::{
        Binding, Bond, BondKind, BondMember, Bridge, Controller, ControllerConfiguration, Daemon, Device, Interface,
        InterfaceRole, OvsSnapshot,
    },
};

pub(super) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn daemon() -> Daemon {
    Daemon::Responsive { version: Some("3.1.0".into()) }
}

pub(super) fn interface(name: &str, bridge: &str, role: InterfaceRole) -> Interface {
    Interface {
        name: name.into(),
        bridge: bridge.into(),
        role,
        admin_up: Some(true),
        link_up: Some(true),
        speed_bps: None,
        bond: None,
        error: None,
        ifindex: Some(3),
        ofport: Some(1),
        mac: None,
        instance: None,
        logical_port: None,
        binding: None,
        remote_chassis: None,
        remote_known: None,
        device: Device::default(),
        statistics: BTreeMap::from([("rx_packets".into(), 11), ("tx_packets".into(), 12)]),
    }
}

fn member(name: &str) -> BondMember {
    let partner = Some("02:00:00:00:00:01".into());
    let (link_up, speed_bps, lacp) = (Some(true), Some(25_000_000_000), Some("current".into()));
    BondMember { name: name.into(), enabled: Some(true), link_up, speed_bps, lacp, partner }
}

/// A switch on which all is well.
pub(super) fn sound() -> OvsSnapshot {
    let card = |name: &str| Interface {
        bond: Some("bond0".into()),
        speed_bps: Some(25_000_000_000),
        ..interface(name, "br-ex", InterfaceRole::Physical)
    };
    let port = Interface {
        logical_port: Some("port-1".into()),
        binding: Some(Binding::Here),
        ..interface("tap1", "br-int", InterfaceRole::Instance)
    };
    let bridge = |name: &str| Bridge {
        name: name.into(),
        ports: 1,
        datapath_type: "netdev".into(),
        flows: Some(BTreeMap::from([(0, 10), (8, 20)])),
    };
    OvsSnapshot {
        at: now(),
        database_connected: true,
        database: daemon(),
        switch: daemon(),
        dpdk: None,
        bridges: vec![bridge("br-ex"), bridge("br-int")],
        interfaces: vec![card("eth1"), card("eth2"), port],
        bonds: vec![Bond {
            name: "bond0".into(),
            kind: BondKind::Ovs,
            mode: "balance-tcp".into(),
            lacp: true,
            members: vec![member("eth1"), member("eth2")],
        }],
        controller: Some(Controller {
            daemon: daemon(),
            southbound_connected: true,
            southbound_responsive: None,
            southbound: Some("tcp:10.0.0.10:6642".into()),
            chassis_id: Some("hv1".into()),
            openflow_connected: Some(true),
            lag: Some(0),
            wanted: Some(7),
            configuration: ControllerConfiguration::default(),
            unplugged: Some(Vec::new()),
        }),
        configuration_pending: false,
    }
}

fn found(seen: &OvsSnapshot) -> Vec<(&'static str, String)> {
    let config = Config::new("node-1");
    find(seen, &Memory::default(), &config).into_iter().map(|f| (f.type_.as_str(), f.object)).collect()
}

fn decided(seen: OvsSnapshot) -> OVSNodeStatus {
    decide(&Section::Known(seen), &OVSNodeStatus::default(), &Memory::default(), now(), &Config::new("node-1"))
}

fn condition(status: &OVSNodeStatus, type_: &str) -> (String, String) {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    (found.status.to_string(), found.reason.clone())
}

fn known(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

#[test]
fn a_sound_switch_has_no_findings_and_deciding_again_changes_nothing() {
    assert_eq!(found(&sound()), []);
    let first = decided(sound());
    let seen = Section::Known(sound());
    let again = decide(&seen, &first, &Memory::default(), now(), &Config::new("node-1"));
    assert_eq!(again, first);
}

#[test]
fn dpdk_is_told_as_the_database_tells_it() {
    let with = decided(OvsSnapshot { dpdk: Some("23.11.1".into()), ..sound() });
    assert_eq!((with.dpdk_enabled, with.dpdk_version.as_deref()), (Some(true), Some("23.11.1")));
    let without = decided(sound());
    assert_eq!((without.dpdk_enabled, without.dpdk_version), (Some(false), None));
}

#[test]
fn a_database_that_was_never_there_tells_of_nothing() {
    let seen = OvsSnapshot {
        database_connected: false,
        database: Daemon::Absent,
        switch: Daemon::Absent,
        bridges: Vec::new(),
        interfaces: Vec::new(),
        bonds: Vec::new(),
        controller: None,
        ..sound()
    };
    let status = decided(seen);
    assert_eq!((&status.bridges, &status.flow_stats, status.dpdk_enabled), (&None, &None, None));
    assert_eq!(condition(&status, "AllBridgesHealthy"), known("Unknown", "NotKnown"));
    assert_eq!(condition(&status, "OVNControllerConnected"), known("Unknown", "NoController"));
    assert_eq!(condition(&status, "Ready"), known("False", "DatabaseDisconnected"));
}

#[test]
fn a_partner_that_fell_silent_on_a_bond_that_falls_back_is_a_warning() {
    let mut seen = sound();
    seen.bonds[0].members[1].lacp = Some("defaulted".into());
    assert_eq!(found(&seen), [("LacpPartnerSilent", "bond0".to_owned())]);
}

#[test]
fn a_member_that_waits_its_turn_is_sound_and_one_without_a_link_is_not() {
    let mut seen = sound();
    let bond = &mut seen.bonds[0];
    (bond.kind, bond.mode, bond.lacp) = (BondKind::Kernel, "active-backup".into(), false);
    bond.members[1].enabled = Some(false);
    assert_eq!(found(&seen), []);
    seen.bonds[0].members[1].link_up = Some(false);
    assert_eq!(found(&seen), [("BondDegraded", "bond0".to_owned())]);
}

#[test]
fn an_lacp_bond_of_which_only_the_links_are_known_is_not_called_sound() {
    let mut seen = sound();
    let bond = &mut seen.bonds[0];
    bond.kind = BondKind::Kernel;
    for member in &mut bond.members {
        (member.enabled, member.lacp) = (None, None);
    }
    assert_eq!(found(&seen), [], "nothing is known to be wrong either");
    let status = decided(seen.clone());
    assert_eq!(condition(&status, "AllBondsHealthy"), known("Unknown", "NotKnown"));
    let published = &status.interfaces.unwrap().bonds.unwrap()[0];
    assert_eq!((published.status.as_deref(), published.active_members), (Some("Unknown"), None));
    assert!(published.member_status.as_ref().unwrap().iter().all(|member| member.enabled.is_none()));
    // A link that is down is known.
    let member = &mut seen.bonds[0].members[1];
    (member.enabled, member.link_up) = (Some(false), Some(false));
    assert_eq!(found(&seen), [("BondDegraded", "bond0".to_owned())]);
    assert_eq!(condition(&decided(seen), "AllBondsHealthy"), known("False", "BondDegraded"));
}

/// Without a controller nobody says which of two ports has the binding. OVN takes the newer.
#[test]
fn of_two_that_claim_the_same_port_the_older_is_the_orphan() {
    let mut seen = sound();
    seen.controller = None;
    seen.interfaces[2].binding = None;
    seen.interfaces.push(Interface { name: "tap2".into(), ofport: Some(9), ..seen.interfaces[2].clone() });
    assert_eq!(found(&seen), [("OrphanPort", "tap1".to_owned())]);
}

#[test]
fn a_port_of_a_vm_is_no_orphan_because_its_link_is_down_and_a_patch_never_is_one() {
    let mut seen = sound();
    seen.interfaces[2].link_up = Some(false);
    seen.interfaces.push(Interface { ifindex: Some(0), ..interface("patch1", "br-int", InterfaceRole::Patch) });
    assert_eq!(found(&seen), []);
}

/// The database goes on saying that a link is up when whoever would know has died.
#[test]
fn a_link_is_up_only_while_switch_and_database_answer_and_a_kernels_bond_tells_of_its_own() {
    type Change = fn(&mut OvsSnapshot);
    let cards = |fault: Change| {
        let mut seen = sound();
        seen.bonds.push(Bond {
            name: "bond1".into(),
            kind: BondKind::Kernel,
            members: vec![member("eno1")],
            ..seen.bonds[0].clone()
        });
        fault(&mut seen);
        let cards = decided(seen).interfaces.unwrap().physical.unwrap();
        cards.into_iter().map(|card| (card.name, card.status.unwrap(), card.speed)).collect::<Vec<_>>()
    };
    let card =
        |name: &str, status: &str, speed: Option<&str>| (name.to_owned(), status.to_owned(), speed.map(str::to_owned));
    let (up, speed) = ("Up", Some("25Gbps"));
    assert_eq!(cards(|_| {}), [card("eno1", up, speed), card("eth1", up, speed), card("eth2", up, speed)]);
    for fault in [
        (|seen| seen.switch = Daemon::Unresponsive) as Change,
        |seen| seen.switch = Daemon::Absent,
        |seen| seen.database_connected = false,
    ] {
        let unknown = |name| card(name, "Unknown", None);
        assert_eq!(cards(fault), [card("eno1", up, speed), unknown("eth1"), unknown("eth2")]);
    }
}

#[test]
fn a_bond_whose_members_nobody_has_told_of_is_unknown_and_not_down() {
    let mut seen = sound();
    seen.bonds[0].members.iter_mut().for_each(|member| member.enabled = None);
    assert_eq!(found(&seen), []);
    let status = decided(seen);
    let bond = &status.interfaces.as_ref().unwrap().bonds.as_ref().unwrap()[0];
    assert_eq!((bond.status.as_deref(), bond.active_members), (Some("Unknown"), None));
    assert_eq!(condition(&status, "AllBondsHealthy").0, "Unknown");
}

#[test]
fn numbers_that_do_not_fit_are_very_large_and_not_a_panic() {
    let mut seen = sound();
    seen.bridges[0].flows = Some(BTreeMap::from([(0, u64::MAX), (1, u64::MAX)]));
    seen.interfaces[0].statistics.insert("rx_bytes".into(), u64::MAX);
    seen.interfaces[1].statistics.insert("rx_bytes".into(), u64::MAX);
    let status = decided(seen);
    assert_eq!(status.flow_stats.unwrap().total_flows, Some(i32::MAX));
    assert_eq!(status.metrics.unwrap().bytes_received, Some(i64::MAX));
}

#[test]
fn a_bridge_is_unresponsive_after_two_looks_and_unknown_after_one() {
    let config = Config::new("node-1");
    let (mut seen, mut memory, mut status) = (sound(), Memory::default(), OVSNodeStatus::default());
    seen.bridges[1].flows = None;
    let mut told = Vec::new();
    for looks in 0..2 {
        let at = now() + config.probe * looks;
        memory.observe(&seen, at, &config);
        status = decide(&Section::Known(seen.clone()), &status, &memory, at, &config);
        let word = status.bridges.as_ref().unwrap()[1].status.clone().unwrap();
        told.push((word, condition(&status, "Ready").1));
    }
    let told: Vec<_> = told.iter().map(|(word, ready)| (word.as_str(), ready.as_str())).collect();
    assert_eq!(told, [("Unknown", "Ready"), ("Unresponsive", "BridgeUnresponsive")]);
}

/// A cloud in which something changes all the time: at every look another step is wanted.
#[test]
fn a_controller_lags_when_it_does_not_reach_what_was_wanted_and_not_because_more_is_wanted() {
    let config = Config::new("node-1");
    let (mut memory, mut status) = (Memory::default(), OVSNodeStatus::default());
    let mut at = now();
    // What is told after looking for five minutes at a controller that is so many steps behind, and takes no more.
    let mut looks = |behind: u64, stuck: bool| {
        let mut told = Vec::new();
        let mut lag = behind;
        for _ in 0..30 {
            at += config.probe;
            lag += if stuck { 10 } else { 0 };
            let mut seen = sound();
            let controller = seen.controller.as_mut().unwrap();
            let second = u64::try_from(at.as_second()).unwrap();
            (controller.wanted, controller.lag) = (Some(second), Some(lag));
            memory.observe(&seen, at, &config);
            status = decide(&Section::Known(seen), &status, &memory, at, &config);
            told.push(
                status.issues.as_ref().unwrap().iter().any(|issue| issue.type_.as_deref() == Some("SouthboundLag")),
            );
        }
        told
    };
    assert_eq!(looks(15, false), [false; 30], "it keeps up, at a distance of 15 seconds");
    let stuck = looks(15, true);
    assert_eq!((stuck[3], stuck[9], stuck[29]), (false, true, true), "{stuck:?}");
    let mended = looks(15, false);
    assert_eq!((mended[0], mended[29]), (true, false), "{mended:?}");
    let slow = looks(100, false);
    assert!(slow[9..].iter().all(|told| *told), "it is always too late, and does not come and go: {slow:?}");
}

#[test]
fn figures_are_held_until_they_move_far_and_then_for_a_while() {
    let limits = figures::Limits::default();
    let at = |seconds: u64| now() + Duration::from_secs(seconds);
    let with = |flows: u64| {
        let mut seen = sound();
        seen.bridges[1].flows = Some(BTreeMap::from([(0, flows)]));
        decided(seen)
    };
    let published = figures::hold(with(1000), None, at(0), &limits);
    let total = |status: &OVSNodeStatus| status.flow_stats.as_ref().unwrap().total_flows.unwrap();
    for (seconds, flows, wanted) in [
        (9000, 1040, 1030), // by 40
        (9000, 1100, 1030), // by 100, which is less than a tenth of 1030
        (300, 5000, 1030),  // far, and too soon
        (600, 5000, 5030),
        (600, 500, 530),
    ] {
        let held = figures::hold(with(flows), Some(&published), at(seconds), &limits);
        assert_eq!(total(&held), wanted, "{flows} flows after {seconds} s");
        assert_eq!(held == published, wanted == 1030, "{flows} flows after {seconds} s");
    }
}
