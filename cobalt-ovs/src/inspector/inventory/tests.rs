use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::ovsdb::{Datum, RowUpdate, Schema, Updates};

/// Tables with these rows; a row's id is its place, from one.
fn tables(rows: Vec<(&str, Row)>) -> Tables {
    let schema: Schema = serde_json::from_str(r#"{"name":"Open_vSwitch"}"#).unwrap();
    let mut tables = Tables::default();
    for (at, (table, row)) in (1..).zip(rows) {
        let update = vec![(Uuid::from_u128(at), RowUpdate::Whole(row))];
        let updates = Updates { tables: vec![(Arc::from(table), update)], ..Updates::default() };
        tables.apply(updates, &schema);
    }
    tables
}

fn refs(rows: impl IntoIterator<Item = u128>) -> Datum {
    Datum::set(rows.into_iter().map(Uuid::from_u128))
}

fn named(name: &str) -> Row {
    Row::new().with("name", name)
}

/// A bridge with one port of this interface, and what is made of the interface.
fn one(interface: Row, port: Row) -> Interface {
    let found = read(&tables(vec![
        ("Bridge", named("br-int").with("ports", refs([2]))),
        ("Port", port.with("interfaces", refs([3]))),
        ("Interface", interface),
    ]));
    found.interfaces.into_iter().next().unwrap()
}

#[test]
fn bridges_ports_and_bonds_refer_to_each_other_and_are_in_order() {
    let found = read(&tables(vec![
        ("Bridge", named("br-int").with("ports", refs([3])).with("datapath_type", "netdev")),
        ("Bridge", named("br-ex").with("ports", refs([4, 5]))),
        ("Port", named("tap1").with("interfaces", refs([6]))),
        ("Port", named("br-ex").with("interfaces", refs([7]))),
        (
            "Port",
            named("bond0").with("interfaces", refs([9, 8])).with("lacp", "active").with("bond_mode", "balance-tcp"),
        ),
        ("Interface", named("tap1").with("external_ids", Datum::map([("iface-id", "vm1")]))),
        ("Interface", named("br-ex").with("type", "internal")),
        ("Interface", named("eth2").with("link_state", "up").with("link_speed", 10_000_000_000)),
        ("Interface", named("eth1").with("link_state", "down")),
        ("Interface", named("of-no-port")),
    ]));
    let bridges: Vec<_> =
        found.bridges.iter().map(|it| (it.name.as_str(), it.ports, it.datapath_type.as_str())).collect();
    assert_eq!(bridges, [("br-ex", 2, "system"), ("br-int", 1, "netdev")]);
    let interfaces: Vec<_> =
        found.interfaces.iter().map(|it| (it.name.as_str(), it.bridge.as_str(), it.bond.as_deref())).collect();
    assert_eq!(
        interfaces,
        [
            ("br-ex", "br-ex", None),
            ("eth1", "br-ex", Some("bond0")),
            ("eth2", "br-ex", Some("bond0")),
            ("tap1", "br-int", None)
        ]
    );
    assert_eq!(found.interfaces[2].speed_bps, Some(10_000_000_000));
    let bond = &found.bonds[0];
    assert_eq!((bond.name.as_str(), bond.mode.as_str(), bond.lacp), ("bond0", "balance-tcp", true));
    let members: Vec<_> = bond.members.iter().map(|it| (it.name.as_str(), it.link_up, it.enabled)).collect();
    assert_eq!(members, [("eth1", Some(false), None), ("eth2", Some(true), None)], "what carries is not in here");
}

#[test]
fn what_an_interface_is_for_is_told_by_its_type_its_claim_and_its_driver() {
    use InterfaceRole::{Instance, Internal, Patch, Physical, Tunnel};
    let claims = Datum::map([("iface-id", "vm1")]);
    for (kind, ids, driver, role) in [
        ("", Datum::EMPTY, "ixgbe", Physical),
        ("", Datum::EMPTY, "veth", Physical),
        ("dpdk", Datum::EMPTY, "net_mlx5", Physical),
        ("", claims.clone(), "veth", Instance),
        ("", Datum::EMPTY, "tun", Instance),
        ("dpdkvhostuserclient", Datum::EMPTY, "", Instance),
        ("internal", claims, "tun", Internal),
        ("patch", Datum::EMPTY, "", Patch),
        ("geneve", Datum::EMPTY, "", Tunnel),
        ("vxlan", Datum::EMPTY, "", Tunnel),
    ] {
        let row = named("x")
            .with("type", kind)
            .with("external_ids", ids)
            .with("status", Datum::map([("driver_name", driver)]));
        assert_eq!(one(row, named("x")).role, role, "{kind} {driver}");
    }
}

#[test]
fn a_device_that_never_opened_and_one_that_vanished_can_be_told() {
    let never =
        one(named("tap1").with("ofport", -1).with("error", "could not open network device tap1"), named("tap1"));
    assert_eq!((never.ofport, never.error.as_deref()), (Some(-1), Some("could not open network device tap1")));
    let vanished = one(named("tap1").with("ofport", 5).with("ifindex", 0).with("error", ""), named("tap1"));
    assert_eq!((vanished.ifindex, vanished.error), (Some(0), None));
    let tunnel = one(named("ovn-1").with("type", "geneve").with("ifindex", 0), named("ovn-1"));
    assert_eq!(tunnel.ifindex, None, "a tunnel has no device that could vanish");
    let guest = one(named("vhu1").with("type", "dpdkvhostuserclient").with("ifindex", 0), named("vhu1"));
    assert_eq!(guest.ifindex, None, "nor has a port of DPDK's");
}

#[test]
fn a_tunnel_names_the_host_at_its_other_end() {
    for (id, chassis) in [("hv2@172.31.0.12", "hv2"), ("a@b@10.0.0.1", "a@b"), ("hv3", "hv3")] {
        let port = named("ovn-1").with("external_ids", Datum::map([("ovn-chassis-id", id)]));
        let tunnel = one(named("ovn-1").with("type", "geneve"), port);
        assert_eq!(tunnel.remote_chassis.as_deref(), Some(chassis));
    }
}

#[test]
fn the_vm_behind_a_port_is_known_by_its_own_address() {
    let ids = Datum::map([("iface-id", "vm1"), ("attached-mac", "fa:16:3e:00:00:01"), ("vm-uuid", "6f2c")]);
    let port = one(named("tap1").with("external_ids", ids).with("mac_in_use", "fe:16:3e:00:00:01"), named("tap1"));
    assert_eq!(port.mac.as_deref(), Some("fa:16:3e:00:00:01"));
    assert_eq!((port.instance.as_deref(), port.logical_port.as_deref()), (Some("6f2c"), Some("vm1")));
}

#[test]
fn what_is_said_of_a_device_is_told_and_what_is_not_is_unknown() {
    let row = named("eth1").with("mtu", 9000).with("duplex", "half");
    let row = row.with("ingress_policing_rate", 10_000).with("ingress_policing_burst", 8);
    let told = Device {
        kind: Some("system".into()),
        mtu: Some(9000),
        full_duplex: Some(false),
        link_resets: None,
        policing_bps: Some(10_000_000),
        policing_burst_bits: Some(8000),
    };
    assert_eq!(one(row, named("eth1")).device, told);
    let silent = one(named("dpdk0").with("type", "dpdk").with("duplex", Datum::EMPTY), named("dpdk0")).device;
    assert_eq!(silent, Device { kind: Some("dpdk".into()), ..Device::default() });
    let absurd = one(named("x").with("ingress_policing_rate", i64::MAX).with("mtu", i64::MAX), named("x")).device;
    assert_eq!((absurd.policing_bps, absurd.mtu), (None, None));
}

#[test]
fn how_the_controller_is_configured_is_told_in_the_words_of_whoever_did() {
    let ids = [("ovn-encap-ip", "10.0.0.1"), ("ovn-monitor-all", "true"), ("ovn-encap-type", ""), ("ovn-other", "x")];
    let row = Row::new().with("external_ids", Datum::map(ids));
    let found = read(&tables(vec![("Open_vSwitch", row)])).configuration;
    let (encap_ip, monitor_all) = (Some("10.0.0.1".into()), Some("true".into()));
    assert_eq!(found, ControllerConfiguration { encap_ip, monitor_all, ..ControllerConfiguration::default() });
}

#[test]
fn dpdk_is_there_when_the_switch_says_that_it_runs() {
    let dpdk = |row: Row| read(&tables(vec![("Open_vSwitch", row)])).dpdk;
    let row = |runs: bool, version: &str| Row::new().with("dpdk_initialized", runs).with("dpdk_version", version);
    assert_eq!(dpdk(row(true, "DPDK 22.11.1")).as_deref(), Some("22.11.1"));
    assert_eq!(dpdk(row(true, "23.11.1")).as_deref(), Some("23.11.1"));
    assert_eq!(dpdk(row(false, "none")), None);
    assert_eq!(dpdk(row(true, "none")).as_deref(), Some("unknown"));
    assert_eq!(dpdk(Row::new()), None, "an old schema has no such columns");
}

#[test]
fn a_change_that_was_not_taken_up_is_pending() {
    let pending = |current: i64, next: i64| {
        let row = Row::new().with("cur_cfg", current).with("next_cfg", next);
        read(&tables(vec![("Open_vSwitch", row)])).configuration_pending
    };
    assert!(pending(16, 17));
    assert!(!pending(17, 17));
}

#[test]
fn connections_of_configured_controllers_are_counted_apart() {
    let found = read(&tables(vec![
        ("Controller", Row::new().with("is_connected", true)),
        ("Controller", Row::new().with("is_connected", false)),
        ("Open_vSwitch", Row::new().with("external_ids", Datum::map([("ovn-remote", ""), ("system-id", "hv1")]))),
    ]));
    assert_eq!(found.configured_controllers, 1);
    assert_eq!((found.southbound, found.chassis_id.as_deref()), (None, Some("hv1")));
}
