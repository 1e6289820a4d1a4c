//! What the switch's database says, in the terms of the seam. No IO here.

use std::collections::BTreeMap;

use cobalt_core::ovs::{Bond, BondKind, BondMember, Bridge, ControllerConfiguration, Device, Interface, InterfaceRole};

use crate::ovsdb::{Follow, Row, Tables};

pub(super) const DATABASE: &str = "Open_vSwitch";

/// Everything but `statistics`, which changes all the time, and `link_resets`, which is a counter too: these are asked for
/// when they are wanted.
pub(super) fn follow() -> Follow {
    Follow::new(DATABASE)
        .table("Open_vSwitch", ["bridges", "cur_cfg", "next_cfg", "dpdk_initialized", "dpdk_version", "external_ids"])
        .table("Bridge", ["name", "ports", "datapath_type"])
        .table("Port", ["name", "interfaces", "bond_mode", "lacp", "external_ids"])
        .table(
            "Interface",
            [
                "name",
                "type",
                "admin_state",
                "link_state",
                "link_speed",
                "error",
                "ifindex",
                "ofport",
                "mac_in_use",
                "mtu",
                "duplex",
                "ingress_policing_rate",
                "ingress_policing_burst",
                "external_ids",
                "status",
            ],
        )
        .table("Controller", ["is_connected"])
        // Those of captures are to be removed after their time.
        .table("Mirror", ["external_ids"])
}

/// The configuration and the state that the database knows.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) bridges: Vec<Bridge>,
    pub(super) interfaces: Vec<Interface>,
    /// Without knowing which members carry traffic.
    pub(super) bonds: Vec<Bond>,
    pub(super) dpdk: Option<String>,
    pub(super) configuration_pending: bool,
    /// OVN's database and name of this host, as its controller is configured.
    pub(super) southbound: Option<String>,
    pub(super) chassis_id: Option<String>,
    pub(super) configuration: ControllerConfiguration,
    /// Connections to the switch that configured controllers have, and not OVN's.
    pub(super) configured_controllers: u64,
    /// Devices that carry traffic of a bridge without being in it: where tunnels leave.
    pub(super) egress: BTreeMap<String, String>,
}

pub(super) fn read(tables: &Tables) -> Inventory {
    let mut found = Inventory::default();
    if let Some((_, switch)) = tables.rows("Open_vSwitch").next() {
        found.dpdk = dpdk(switch);
        // Both are counters that begin at zero, which is the default and may be left out.
        let number = |column| switch.integer(column).unwrap_or_default();
        found.configuration_pending = number("cur_cfg") < number("next_cfg");
        found.southbound = id(switch, "ovn-remote");
        found.chassis_id = id(switch, "system-id");
        found.configuration = ControllerConfiguration {
            encap_ip: id(switch, "ovn-encap-ip"),
            encap_type: id(switch, "ovn-encap-type"),
            bridge_mappings: id(switch, "ovn-bridge-mappings"),
            monitor_all: id(switch, "ovn-monitor-all"),
            remote_probe_interval: id(switch, "ovn-remote-probe-interval"),
            openflow_probe_interval: id(switch, "ovn-openflow-probe-interval"),
        };
    }
    found.configured_controllers = tables
        .rows("Controller")
        .filter(|(_, row)| row.boolean("is_connected") == Some(true))
        .count()
        .try_into()
        .unwrap_or(u64::MAX);
    for (_, bridge) in tables.rows("Bridge") {
        read_bridge(tables, bridge, &mut found);
    }
    found.bridges.sort_by(|one, other| one.name.cmp(&other.name));
    found.interfaces.sort_by(|one, other| one.name.cmp(&other.name));
    found.bonds.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn id(switch: &Row, key: &str) -> Option<String> {
    switch.key("external_ids", key).filter(|value| !value.is_empty()).map(ToOwned::to_owned)
}

/// Where OVN's controller is told to find its database.
pub(super) fn read_southbound(tables: &Tables) -> Option<String> {
    id(tables.rows("Open_vSwitch").next()?.1, "ovn-remote")
}

/// The version where DPDK runs. `none` is what a switch without it writes.
fn dpdk(switch: &Row) -> Option<String> {
    let runs = switch.boolean("dpdk_initialized") == Some(true);
    let version = switch.str("dpdk_version").filter(|version| !["", "none"].contains(version));
    // The switch writes `DPDK 22.11.1`; whoever reads a version wants the number.
    let version = version.map(|version| version.strip_prefix("DPDK ").unwrap_or(version));
    runs.then(|| version.unwrap_or("unknown").to_owned())
}

fn read_bridge(tables: &Tables, bridge: &Row, found: &mut Inventory) {
    let Some(name) = bridge.str("name") else { return };
    let ports: Vec<&Row> = bridge.uuids("ports").filter_map(|port| tables.row("Port", port)).collect();
    found.bridges.push(Bridge {
        name: name.to_owned(),
        ports: u32::try_from(ports.len()).unwrap_or(u32::MAX),
        // Empty is what the column holds for the kernel's datapath.
        datapath_type: bridge.str("datapath_type").filter(|kind| !kind.is_empty()).unwrap_or("system").to_owned(),
        flows: None,
    });
    for port in ports {
        let members: Vec<&Row> = port.uuids("interfaces").filter_map(|row| tables.row("Interface", row)).collect();
        let bond = (members.len() > 1).then(|| port.str("name").unwrap_or_default().to_owned());
        if let Some(bond) = &bond {
            found.bonds.push(read_bond(bond, port, &members));
        }
        for member in members {
            if let Some(interface) = read_interface(name, port, member, bond.clone()) {
                if let Some(egress) = member.key("status", "tunnel_egress_iface") {
                    found.egress.insert(egress.to_owned(), name.to_owned());
                }
                found.interfaces.push(interface);
            }
        }
    }
}

fn read_bond(name: &str, port: &Row, members: &[&Row]) -> Bond {
    let mut members: Vec<BondMember> = members
        .iter()
        .filter_map(|member| {
            Some(BondMember {
                name: member.str("name")?.to_owned(),
                // For the switch to say: a link that is up carries nothing to a partner that is silent.
                enabled: None,
                link_up: link_up(member),
                speed_bps: member.integer("link_speed").and_then(|speed| u64::try_from(speed).ok()),
                lacp: None,
                partner: None,
            })
        })
        .collect();
    members.sort_by(|one, other| one.name.cmp(&other.name));
    Bond {
        name: name.to_owned(),
        kind: BondKind::Ovs,
        mode: port.str("bond_mode").unwrap_or("active-backup").to_owned(),
        lacp: matches!(port.str("lacp"), Some("active" | "passive")),
        members,
    }
}

fn read_interface(bridge: &str, port: &Row, row: &Row, bond: Option<String>) -> Option<Interface> {
    let text = |value: Option<&str>| value.filter(|value| !value.is_empty()).map(ToOwned::to_owned);
    let role = role(row);
    // Written as CHASSIS@ADDRESS, on the port.
    let chassis = port.key("external_ids", "ovn-chassis-id").filter(|_| role == InterfaceRole::Tunnel);
    Some(Interface {
        name: row.str("name")?.to_owned(),
        bridge: bridge.to_owned(),
        role,
        admin_up: up(row.str("admin_state")),
        link_up: link_up(row),
        speed_bps: row.integer("link_speed").and_then(|speed| u64::try_from(speed).ok()),
        bond,
        error: text(row.str("error")),
        // Only of a device of the kernel's does its absence mean something: tunnels, patches and vhost-user have none.
        ifindex: row.integer("ifindex").filter(|_| has_device(row)).and_then(|index| u32::try_from(index).ok()),
        ofport: row.integer("ofport"),
        mac: text(row.key("external_ids", "attached-mac")).or_else(|| text(row.str("mac_in_use"))),
        instance: text(row.key("external_ids", "vm-uuid")),
        logical_port: text(row.key("external_ids", "iface-id")),
        binding: None,
        remote_chassis: chassis.map(|id| id.rsplit_once('@').map_or(id, |(chassis, _)| chassis).to_owned()),
        remote_known: None,
        device: device(row),
        statistics: BTreeMap::new(),
    })
}

fn device(row: &Row) -> Device {
    // Written in thousands.
    let bits = |column: &str| u64::try_from(row.integer(column)?).ok()?.checked_mul(1000);
    Device {
        kind: Some(row.str("type").filter(|kind| !kind.is_empty()).unwrap_or("system").to_owned()),
        mtu: row.integer("mtu").and_then(|mtu| u32::try_from(mtu).ok()),
        full_duplex: match row.str("duplex") {
            Some("full") => Some(true),
            Some("half") => Some(false),
            _ => None,
        },
        link_resets: None,
        policing_bps: bits("ingress_policing_rate"),
        policing_burst_bits: bits("ingress_policing_burst"),
    }
}

/// Whether the kernel has a device of an interface's name.
pub(super) fn has_device(row: &Row) -> bool {
    matches!(row.str("type").unwrap_or_default(), "" | "system" | "internal" | "tap" | "afxdp" | "afxdp-nonpmd")
}

fn link_up(row: &Row) -> Option<bool> {
    up(row.str("link_state"))
}

fn up(word: Option<&str>) -> Option<bool> {
    match word? {
        "up" => Some(true),
        "down" => Some(false),
        _ => None,
    }
}

fn role(row: &Row) -> InterfaceRole {
    let claims = row.key("external_ids", "iface-id").is_some();
    match row.str("type").unwrap_or_default() {
        "internal" => InterfaceRole::Internal,
        "patch" => InterfaceRole::Patch,
        "geneve" | "vxlan" | "gre" | "ip6gre" | "erspan" | "ip6erspan" | "stt" | "lisp" | "gtpu" | "bareudp"
        | "srv6" => InterfaceRole::Tunnel,
        kind if kind.starts_with("dpdkvhostuser") || kind == "tap" => InterfaceRole::Instance,
        // A VM's tap that no OVN knows of.
        _ if claims || matches!(row.key("status", "driver_name"), Some("tun" | "vhost")) => InterfaceRole::Instance,
        _ => InterfaceRole::Physical,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
