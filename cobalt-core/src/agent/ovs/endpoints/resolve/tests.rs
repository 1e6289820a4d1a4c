#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::ovs::{Bridge, Daemon, Device, InterfaceRole};

fn interface(name: &str, bridge: &str, mac: Option<&str>, instance: Option<&str>) -> Interface {
    Interface {
        name: name.into(),
        bridge: bridge.into(),
        role: InterfaceRole::Instance,
        admin_up: Some(true),
        link_up: Some(true),
        speed_bps: None,
        bond: None,
        error: None,
        ifindex: Some(1),
        ofport: Some(1),
        mac: mac.map(str::to_owned),
        instance: instance.map(str::to_owned),
        logical_port: instance.map(|instance| format!("port-of-{instance}-{name}")),
        binding: None,
        remote_chassis: None,
        remote_known: None,
        device: Device::default(),
        statistics: BTreeMap::new(),
    }
}

fn snapshot() -> OvsSnapshot {
    let bridge = |name: &str| Bridge { name: name.into(), ports: 1, datapath_type: "netdev".into(), flows: None };
    OvsSnapshot {
        at: Timestamp::UNIX_EPOCH,
        database_connected: true,
        database: Daemon::Responsive { version: None },
        switch: Daemon::Responsive { version: None },
        dpdk: None,
        bridges: vec![bridge("br-int"), bridge("br-ex")],
        interfaces: vec![
            interface("eth1", "br-ex", None, None),
            interface("tap1", "br-int", Some("FA:16:3E:00:00:01"), Some("vm-1")),
            interface("tap2", "br-int", Some("fa:16:3e:00:00:02"), Some("vm-2")),
            interface("tap3", "br-int", Some("fa:16:3e:00:00:03"), Some("vm-2")),
        ],
        bonds: vec![],
        controller: None,
        configuration_pending: false,
    }
}

fn question(from: &str, to: &str) -> TraceQuestion {
    TraceQuestion { from: from.into(), to: Some(to.into()), ..TraceQuestion::default() }
}

#[test]
fn a_port_is_found_by_its_own_name_its_logical_ports_and_its_vms() {
    let snapshot = snapshot();
    let found = |name| port(&snapshot, "from", name).map(|port| port.name.as_str());
    assert_eq!(found("tap1"), Ok("tap1"));
    assert_eq!(found("vm-1"), Ok("tap1"));
    assert_eq!(found("port-of-vm-2-tap3"), Ok("tap3"));
    assert!(found("vm-").unwrap_err().is_unknown(), "a part of a name is no name");
    let several = found("vm-2").unwrap_err();
    assert_eq!(several.to_string(), r#"from: "vm-2" has several ports, name one of them: tap2, tap3"#);
}

#[test]
fn addresses_are_filled_in_and_written_alike() {
    let packet = packet(&snapshot(), &question("vm-1", "tap2")).unwrap();
    assert_eq!((packet.bridge.as_str(), packet.in_port.as_str()), ("br-int", "tap1"));
    assert_eq!(packet.ethernet, ("fa:16:3e:00:00:01".to_owned(), "fa:16:3e:00:00:02".to_owned()));
    assert_eq!((packet.ip, packet.transport), (None, None));
}

#[test]
fn an_ip_packet_is_made_when_there_are_addresses() {
    let mut asked = question("tap1", "2001:db8::9");
    asked.destination = Some("fa:16:3e:00:00:ff".into());
    asked.source_address = "2001:db8::1".parse().ok();
    asked.protocol = Some(Protocol::Udp);
    asked.destination_port = Some(53);
    let made = packet(&snapshot(), &asked).unwrap();
    assert_eq!(made.ip.map(|(_, to)| to.to_string()).as_deref(), Some("2001:db8::9"));
    assert_eq!(made.transport, Some(Transport::Udp(49152, 53)));
    assert_eq!(made.ethernet.1, "fa:16:3e:00:00:ff");
    asked.source_address = "192.0.2.1".parse().ok();
    assert!(packet(&snapshot(), &asked).unwrap_err().to_string().contains("IPv4"), "families are not mixed");
}

#[test]
fn what_is_missing_is_named() {
    let with = |change: fn(&mut TraceQuestion)| {
        let mut asked = question("tap1", "tap2");
        change(&mut asked);
        packet(&snapshot(), &asked).unwrap_err().to_string()
    };
    assert!(with(|asked| asked.from = "eth1".into()).starts_with("source: the hardware address behind eth1"));
    assert!(with(|asked| asked.to = Some("eth1".into())).starts_with("to: the hardware address behind eth1"));
    assert!(with(|asked| asked.destination_address = "192.0.2.1".parse().ok()).starts_with("sourceAddress"));
    assert!(with(|asked| asked.source_address = "192.0.2.1".parse().ok()).starts_with("destinationAddress"));
    assert!(with(|asked| asked.protocol = Some(Protocol::Tcp)).starts_with("protocol: it needs"));
    assert!(with(|asked| asked.destination_port = Some(1)).starts_with("protocol: ports need one"));
    assert!(with(|asked| asked.bridge = Some("br-ex".into())).contains("tap1 is a port of br-int"));
}

proptest! {
    #[test]
    fn nothing_a_caller_wrote_reaches_the_switch_as_it_was_written(
        from in prop_oneof![Just("tap1".to_owned()), Just("vm-1".to_owned()), "\\PC{0,12}"],
        to in prop_oneof![Just("tap2".to_owned()), "([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", "\\PC{0,20}"],
        source in proptest::option::of(prop_oneof!["([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", "\\PC{0,20}"]),
    ) {
        let asked = TraceQuestion { from, to: Some(to), source, ..TraceQuestion::default() };
        if let Ok(packet) = packet(&snapshot(), &asked) {
            prop_assert!(snapshot().interfaces.iter().any(|port| port.name == packet.in_port));
            for mac in [&packet.ethernet.0, &packet.ethernet.1] {
                prop_assert_eq!(mac.len(), 17);
                prop_assert!(mac.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b':')), "{}", mac);
            }
        }
    }
}
