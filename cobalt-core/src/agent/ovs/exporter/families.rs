//! Every metric of the exporter.

use std::{collections::BTreeMap, time::Duration};

use super::Labelled;
use crate::{
    agent::ovs::finding::{self, IssueType, OVN_CONTROLLER, OVSDB_SERVER, VSWITCHD, is_fresh, knows_links, link_up},
    ovs::{
        Bond, BondKind, BondMember, Bridge, Daemon, DatapathCounters, Interface, InterfaceRole, OvsCounters,
        OvsSnapshot, PmdCounters,
    },
    runtime::metrics::text::{Kind, Text, Value, escaped},
};

use Kind::{Counter, Gauge};
use Value::Count;

/// Counters of an interface with families of their own: their name in the switch, ours without `_total`, and what it is.
const STATISTICS: [(&str, &str, &str); 8] = [
    ("rx_packets", "ovs_interface_rx_packets", "Packets that came in by the interface"),
    ("tx_packets", "ovs_interface_tx_packets", "Packets that went out by the interface"),
    ("rx_bytes", "ovs_interface_rx_bytes", "Bytes that came in by the interface"),
    ("tx_bytes", "ovs_interface_tx_bytes", "Bytes that went out by the interface"),
    ("rx_errors", "ovs_interface_rx_errors", "Packets that came in broken"),
    ("tx_errors", "ovs_interface_tx_errors", "Packets that could not be sent"),
    ("rx_dropped", "ovs_interface_rx_dropped", "Packets dropped on their way in"),
    ("tx_dropped", "ovs_interface_tx_dropped", "Packets dropped on their way out"),
];

/// A family about members of bonds: its name, what it is, and its value.
type MemberRow = (&'static str, &'static str, fn(&BondMember) -> Option<Value>);
/// A family about datapaths.
type DatapathRow = (&'static str, Kind, &'static str, fn(&DatapathCounters) -> Option<Value>);
/// A family about threads that forward packets: its name, what it is, and the label and value of each of its series.
type PmdRow =
    (&'static str, &'static str, fn(&PmdCounters) -> Vec<(Option<(&'static str, &'static str)>, Option<u64>)>);

pub(super) fn is_known(statistic: &str) -> bool {
    STATISTICS.iter().any(|(name, ..)| *name == statistic)
}

fn flag(is: bool) -> Value {
    Count(u64::from(is))
}

fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{}\"", escaped(value))
}

pub(super) fn write(text: &mut Text, seen: &OvsSnapshot, counters: &OvsCounters, took: Duration) {
    daemons(text, seen, took);
    bridges(text, seen);
    interfaces(text, seen);
    bonds(text, seen);
    datapaths(text, &counters.datapaths);
    pmds(text, &counters.pmds);
    for (name, kind, help, label, all) in [
        ("ovs_coverage", Counter, "Events inside a daemon, by its own name for them", "event", &counters.coverage),
        ("ovs_memory", Gauge, "What takes memory in a daemon, by its own name for it", "what", &counters.memory),
    ] {
        let mut family = text.family(name, kind, help);
        for (daemon, counters) in all {
            let daemon = self::label("daemon", daemon);
            for (name, value) in counters {
                family.sample(&daemon, Some((label, &escaped(name))), Some(Count(*value)));
            }
        }
    }
}

fn daemons(text: &mut Text, seen: &OvsSnapshot, took: Duration) {
    let controller = seen.controller.as_ref();
    let mut info = text.family("ovs_info", Gauge, "The versions, as the daemons say them");
    let dpdk = label("dpdk", seen.dpdk.as_deref().unwrap_or_default());
    let all = [("ovs", seen.switch.version()), ("ovsdb", seen.database.version())];
    let all = all.into_iter().chain([("ovn", controller.and_then(|controller| controller.daemon.version()))]);
    let versions: Vec<String> = all.map(|(name, version)| label(name, version.unwrap_or_default())).collect();
    info.sample(&format!("{dpdk},{}", versions.join(",")), None, Some(Count(1)));
    let mut family = text.family("ovs_daemon_responsive", Gauge, "Whether a daemon answers its control socket in time");
    let found = [(VSWITCHD, Some(&seen.switch)), (OVSDB_SERVER, Some(&seen.database))];
    for (name, daemon) in found.into_iter().chain([(OVN_CONTROLLER, controller.map(|controller| &controller.daemon))]) {
        if let Some(daemon) = daemon {
            family.sample(&label("daemon", name), None, Some(flag(daemon.is_responsive())));
        }
    }
    let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    text.family("ovs_look_seconds", Gauge, "How long the switch took to answer everything that was asked").sample(
        "",
        None,
        Some(Value::Nanoseconds(took)),
    );
    if seen.database_connected {
        text.family("ovs_configuration_pending", Gauge, "Whether the switch has not taken up the latest configuration")
            .plain(u64::from(seen.configuration_pending));
    }
    let Some(controller) = controller else { return };
    let connected = match controller.daemon {
        Daemon::Responsive { .. } => Some(controller.southbound_connected),
        Daemon::Absent => Some(false),
        Daemon::Unresponsive | Daemon::Inaccessible { .. } => None,
    };
    if let Some(connected) = connected {
        let help = "Whether ovn-controller reaches the southbound database";
        text.family("ovn_controller_southbound_connected", Gauge, help).plain(u64::from(connected));
    }
    if let Some(connected) = controller.openflow_connected {
        text.family("ovn_controller_openflow_connected", Gauge, "Whether ovn-controller is connected to ovs-vswitchd")
            .plain(u64::from(connected));
    }
    if let Some(lag) = controller.lag {
        text.family("ovn_controller_lag", Gauge, "Configuration steps that ovn-controller is behind").plain(lag);
    }
    if let Some(unplugged) = &controller.unplugged {
        let help = "Logical ports bound to this host that no port here claims";
        text.family("ovn_unplugged_ports", Gauge, help).plain(unplugged.len() as u64);
    }
}

fn bridges(text: &mut Text, seen: &OvsSnapshot) {
    let bridges: &[Bridge] = &seen.bridges;
    let labels: Vec<String> = bridges.iter().map(|bridge| label("bridge", &bridge.name)).collect();
    let all = || bridges.iter().zip(&labels);
    let mut family = text.family("ovs_bridge_info", Gauge, "What forwards the packets of a bridge");
    for (bridge, labels) in all() {
        family.sample(labels, Some(("datapath_type", &escaped(&bridge.datapath_type))), Some(Count(1)));
    }
    let mut family = text.family("ovs_bridge_ports", Gauge, "Ports of a bridge; a bond is one");
    for (bridge, labels) in all() {
        family.sample(labels, None, seen.database_connected.then(|| Count(bridge.ports.into())));
    }
    let mut family = text.family("ovs_bridge_responsive", Gauge, "Whether a bridge answers OpenFlow in time");
    for (bridge, labels) in all() {
        family.sample(labels, None, Some(flag(bridge.flows.is_some())));
    }
    let mut family = text.family("ovs_bridge_flows", Gauge, "OpenFlow flows of a bridge");
    for (bridge, labels) in all() {
        family.sample(labels, None, bridge.total_flows().map(Count));
    }
    let mut family = text.family("ovs_bridge_table_flows", Gauge, "OpenFlow flows of one table of a bridge");
    for (bridge, labels) in all() {
        for (table, flows) in bridge.flows.iter().flatten() {
            family.sample(labels, Some(("table", &table.to_string())), Some(Count(*flows)));
        }
    }
}

/// What an interface is for stays known. How it is and what it counts the switch writes into its database, which keeps it
/// when the switch dies or hangs.
fn interfaces(text: &mut Text, seen: &OvsSnapshot) {
    let interfaces: &[Interface] = &seen.interfaces;
    let of = |port: &Interface| format!("{},{}", label("bridge", &port.bridge), label("interface", &port.name));
    let labels: Vec<String> = interfaces.iter().map(of).collect();
    let all = || interfaces.iter().zip(&labels);
    let fresh = || all().filter(|(port, _)| is_fresh(seen, port));
    let mut family = text.family("ovs_interface_info", Gauge, "What an interface is for, and the VM it belongs to");
    for (port, labels) in all() {
        let role = match port.role {
            InterfaceRole::Physical => "physical",
            InterfaceRole::Instance => "instance",
            InterfaceRole::Tunnel => "tunnel",
            InterfaceRole::Patch => "patch",
            InterfaceRole::Internal => "internal",
        };
        family.meta(labels, ("role", role), ("instance", port.instance.as_deref().unwrap_or_default()));
    }
    let mut family =
        text.family("ovs_interface_admin_up", Gauge, "Whether an interface is set up by whoever manages it");
    for (port, labels) in fresh() {
        family.sample(labels, None, port.admin_up.map(flag));
    }
    let mut family = text.family("ovs_interface_link_up", Gauge, "Whether an interface has a link");
    for (port, labels) in all() {
        family.sample(labels, None, link_up(seen, port).map(flag));
    }
    let mut family = text.family("ovs_interface_speed_bits_per_second", Gauge, "The speed of an interface");
    for (port, labels) in fresh() {
        family.sample(labels, None, port.speed_bps.map(Count));
    }
    let mut family = text.family("ovs_interface_error", Gauge, "Whether the switch complains about an interface");
    for (port, labels) in fresh() {
        family.sample(labels, None, Some(flag(port.error.is_some())));
    }
    for (statistic, name, help) in STATISTICS {
        let mut family = text.family(name, Counter, help);
        for (port, labels) in fresh() {
            family.sample(labels, None, port.statistics.get(statistic).copied().map(Count));
        }
    }
    let help = "Counters of an interface, by the switch's own name for them";
    let mut family = text.family("ovs_interface_statistics", Counter, help);
    for (port, labels) in fresh() {
        for (name, value) in port.statistics.iter().filter(|(name, _)| !is_known(name)) {
            family.sample(labels, Some(("statistic", &escaped(name))), Some(Count(*value)));
        }
    }
}

fn bonds(text: &mut Text, seen: &OvsSnapshot) {
    let kind = |bond: &Bond| if bond.kind == BondKind::Kernel { "kernel" } else { "ovs" };
    let of = |bond: &Bond| format!("{},{}", label("bond", &bond.name), label("kind", kind(bond)));
    let labels: Labelled<'_> = seen.bonds.iter().map(|bond| (bond.name.as_str(), of(bond))).collect();
    let all = || seen.bonds.iter().filter_map(|bond| Some((bond, labels.get(bond.name.as_str())?)));
    // How the members of the switch's bonds are only the switch knows.
    let known = || all().filter(|(bond, _)| finding::is_known(seen, bond));
    let configured = || all().filter(|(bond, _)| bond.kind == BondKind::Kernel || seen.database_connected);
    let linked = || all().filter(|(bond, _)| bond.kind == BondKind::Kernel || knows_links(seen));
    let mut family = text.family("ovs_bond_members", Gauge, "Members of a bond");
    for (bond, labels) in configured() {
        family.sample(labels, None, Some(Count(bond.members.len() as u64)));
    }
    let mut family = text.family("ovs_bond_active_members", Gauge, "Members of a bond that carry traffic");
    for (bond, labels) in known() {
        family.sample(labels, None, bond.is_told().then(|| Count(bond.active_members() as u64)));
    }
    let rows: [MemberRow; 2] = [
        ("ovs_bond_member_enabled", "Whether a bond sends over a member", |member| member.enabled.map(flag)),
        ("ovs_bond_member_lacp_current", "Whether the partner of a member speaks LACP", |member| {
            member.lacp.as_deref().map(|lacp| flag(lacp == "current"))
        }),
    ];
    for (name, help, value) in rows {
        let mut family = text.family(name, Gauge, help);
        for (bond, labels) in known() {
            for member in &bond.members {
                family.sample(labels, Some(("member", &escaped(&member.name))), value(member));
            }
        }
    }
    let mut family = text.family("ovs_bond_member_link_up", Gauge, "Whether a member of a bond has a link");
    for (bond, labels) in linked() {
        for member in &bond.members {
            family.sample(labels, Some(("member", &escaped(&member.name))), member.link_up.map(flag));
        }
    }
}

fn datapaths(text: &mut Text, datapaths: &BTreeMap<String, DatapathCounters>) {
    let rows: [DatapathRow; 6] = [
        ("ovs_datapath_hits", Counter, "Packets that met a cached flow", |counters| Some(Count(counters.hit))),
        ("ovs_datapath_misses", Counter, "Packets that had to be asked about", |counters| Some(Count(counters.missed))),
        ("ovs_datapath_lost", Counter, "Packets lost on the way to being asked about", |counters| {
            Some(Count(counters.lost))
        }),
        ("ovs_datapath_flows", Gauge, "Cached flows of a datapath", |counters| Some(Count(counters.flows))),
        (
            "ovs_datapath_flow_limit",
            Gauge,
            "How many flows may be cached, which falls when the switch cannot keep up",
            |counters| counters.flow_limit.map(Count),
        ),
        ("ovs_datapath_dump_seconds", Gauge, "How long the last look through the cached flows took", |counters| {
            counters.dump.map(|dump| Value::Nanoseconds(u64::try_from(dump.as_nanos()).unwrap_or(u64::MAX)))
        }),
    ];
    for (name, kind, help, value) in rows {
        let mut family = text.family(name, kind, help);
        for (datapath, counters) in datapaths {
            family.sample(&label("datapath", datapath), None, value(counters));
        }
    }
}

fn pmds(text: &mut Text, threads: &[PmdCounters]) {
    let rows: [PmdRow; 5] = [
        ("ovs_pmd_packets", "Packets that a thread received", |pmd| vec![(None, pmd.received)]),
        ("ovs_pmd_recirculations", "Packets that went through a thread's tables once more", |pmd| {
            vec![(None, pmd.recirculated)]
        }),
        ("ovs_pmd_hits", "Packets that a cache of a thread knew", |pmd| {
            vec![
                (Some(("cache", "emc")), pmd.emc_hits),
                (Some(("cache", "smc")), pmd.smc_hits),
                (Some(("cache", "megaflow")), pmd.megaflow_hits),
            ]
        }),
        ("ovs_pmd_upcalls", "Packets that no cache of a thread knew", |pmd| {
            vec![(Some(("result", "answered")), pmd.upcalls), (Some(("result", "lost")), pmd.failed_upcalls)]
        }),
        ("ovs_pmd_cycles", "Cycles of a thread's core", |pmd| {
            vec![(Some(("state", "idle")), pmd.idle_cycles), (Some(("state", "busy")), pmd.busy_cycles)]
        }),
    ];
    let numa = |pmd: &PmdCounters| pmd.numa.map(|numa| numa.to_string()).unwrap_or_default();
    for (name, help, values) in rows {
        let mut family = text.family(name, Counter, help);
        for pmd in threads {
            let labels = format!("{},{}", label("thread", &pmd.thread), label("numa", &numa(pmd)));
            for (label, value) in values(pmd) {
                family.sample(&labels, label, value.map(Count));
            }
        }
    }
}

/// What took the agent several looks to find out.
pub(super) fn write_verdict(text: &mut Text, issues: Option<&BTreeMap<IssueType, usize>>, stale_flows: Option<u64>) {
    if let Some(issues) = issues {
        write_issues(text, issues);
    }
    if let Some(flows) = stale_flows {
        text.family("ovs_stale_flows", Gauge, "Flows that nothing in OVN explains").plain(flows);
    }
}

fn write_issues(text: &mut Text, issues: &BTreeMap<IssueType, usize>) {
    let count = |type_: IssueType| issues.get(&type_).copied().unwrap_or(0) as u64;
    let mut family = text.family("ovs_issues", Gauge, "What is wrong with the switch, by type");
    for type_ in IssueType::ALL {
        let labels = format!("type=\"{}\",severity=\"{}\"", type_.as_str(), type_.severity().as_str());
        family.sample(&labels, None, Some(Count(count(type_))));
    }
    let orphans = count(IssueType::OrphanPort);
    text.family("ovs_orphan_ports", Gauge, "Ports that claim to be a VM's and are not").plain(orphans);
}
