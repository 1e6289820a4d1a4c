//! Every metric of the exporter.

use std::{collections::BTreeMap, time::Duration};

use super::Labelled;
use crate::{
    agent::ovs::finding::{self, IssueType, OVN_CONTROLLER, OVSDB_SERVER, VSWITCHD, is_fresh, knows_links, link_up},
    ovs::{
        Bond, BondKind, BondMember, Bridge, ControllerConfiguration, Daemon, DatapathCounters, Interface,
        InterfaceRole, OvsCounters, OvsSnapshot, PmdCounters, ReceiveQueue,
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
/// A family about the queues of threads.
type QueueRow = (&'static str, &'static str, fn(&ReceiveQueue) -> Option<Value>);
/// A family about interfaces that tells how they are now.
type InterfaceRow = (&'static str, Kind, &'static str, fn(&Interface) -> Option<Value>);
/// A family about threads that forward packets: its name, what it is, and the label and value of each of its series.
type PmdRow =
    (&'static str, Kind, &'static str, fn(&PmdCounters) -> Vec<(Option<(&'static str, &'static str)>, Option<Value>)>);

pub(super) fn is_known(statistic: &str) -> bool {
    STATISTICS.iter().any(|(name, ..)| *name == statistic)
}

fn flag(is: bool) -> Value {
    Count(u64::from(is))
}

fn nanoseconds(time: Duration) -> Value {
    Value::Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
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
    text.family("ovs_look_seconds", Gauge, "How long the switch took to answer everything that was asked").sample(
        "",
        None,
        Some(nanoseconds(took)),
    );
    if seen.database_connected {
        text.family("ovs_configuration_pending", Gauge, "Whether the switch has not taken up the latest configuration")
            .plain(u64::from(seen.configuration_pending));
    }
    let Some(controller) = controller else { return };
    if seen.database_connected {
        configuration(text, &controller.configuration);
    }
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

fn configuration(text: &mut Text, configured: &ControllerConfiguration) {
    let labels = [
        ("encap_ip", &configured.encap_ip),
        ("encap_type", &configured.encap_type),
        ("bridge_mappings", &configured.bridge_mappings),
        ("monitor_all", &configured.monitor_all),
        ("remote_probe_interval", &configured.remote_probe_interval),
        ("openflow_probe_interval", &configured.openflow_probe_interval),
    ];
    let labels = labels.map(|(name, value)| label(name, value.as_deref().unwrap_or_default())).join(",");
    text.family("ovn_controller_info", Gauge, "How ovn-controller is configured").sample(&labels, None, Some(Count(1)));
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
    let help = "What an interface is for and what makes it, and the port and the VM it belongs to";
    let mut family = text.family("ovs_interface_info", Gauge, help);
    for (port, labels) in all() {
        let role = match port.role {
            InterfaceRole::Physical => "physical",
            InterfaceRole::Instance => "instance",
            InterfaceRole::Tunnel => "tunnel",
            InterfaceRole::Patch => "patch",
            InterfaceRole::Internal => "internal",
        };
        let kind = label("type", port.device.kind.as_deref().unwrap_or_default());
        let labels = format!("{labels},{kind},{}", label("port", port.bond.as_ref().unwrap_or(&port.name)));
        family.meta(&labels, ("role", role), ("instance", port.instance.as_deref().unwrap_or_default()));
    }
    let mut family = text.family("ovs_interface_link_up", Gauge, "Whether an interface has a link");
    for (port, labels) in all() {
        family.sample(labels, None, link_up(seen, port).map(flag));
    }
    let rows: [InterfaceRow; 8] = [
        ("ovs_interface_admin_up", Gauge, "Whether an interface is set up by whoever manages it", |port| {
            port.admin_up.map(flag)
        }),
        ("ovs_interface_speed_bits_per_second", Gauge, "The speed of an interface", |port| port.speed_bps.map(Count)),
        ("ovs_interface_error", Gauge, "Whether the switch complains about an interface", |port| {
            Some(flag(port.error.is_some()))
        }),
        ("ovs_interface_mtu_bytes", Gauge, "How long the packets of an interface may be", |port| {
            port.device.mtu.map(|mtu| Count(mtu.into()))
        }),
        ("ovs_interface_full_duplex", Gauge, "Whether an interface sends and receives at the same time", |port| {
            port.device.full_duplex.map(flag)
        }),
        ("ovs_interface_link_resets", Counter, "How often the link of an interface has come or gone", |port| {
            port.device.link_resets.map(Count)
        }),
        (
            "ovs_interface_ingress_policing_bits_per_second",
            Gauge,
            "How much may come in by an interface; 0 is no bound",
            |port| port.device.policing_bps.map(Count),
        ),
        ("ovs_interface_ingress_policing_burst_bits", Gauge, "And how much more for a moment", |port| {
            port.device.policing_burst_bits.map(Count)
        }),
    ];
    for (name, kind, help, value) in rows {
        let mut family = text.family(name, kind, help);
        for (port, labels) in fresh() {
            family.sample(labels, None, value(port));
        }
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
    let rows: [DatapathRow; 9] = [
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
            counters.dump.map(nanoseconds)
        }),
        ("ovs_datapath_masks", Gauge, "Masks by which the cached flows of a datapath are found", |counters| {
            counters.masks.map(Count)
        }),
        ("ovs_datapath_mask_hits", Counter, "Masks that packets were compared with", |counters| {
            counters.mask_hits.map(Count)
        }),
        ("ovs_datapath_mask_cache_hits", Counter, "Packets whose mask was known before", |counters| {
            counters.mask_cache_hits.map(Count)
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
    let rows: [PmdRow; 10] = [
        ("ovs_pmd_packets", Counter, "Packets that a thread received", |pmd| vec![(None, pmd.received.map(Count))]),
        ("ovs_pmd_recirculations", Counter, "Packets that went through a thread's tables once more", |pmd| {
            vec![(None, pmd.recirculated.map(Count))]
        }),
        ("ovs_pmd_hits", Counter, "Packets that a cache of a thread knew", |pmd| {
            vec![
                (Some(("cache", "emc")), pmd.emc_hits.map(Count)),
                (Some(("cache", "smc")), pmd.smc_hits.map(Count)),
                (Some(("cache", "megaflow")), pmd.megaflow_hits.map(Count)),
            ]
        }),
        ("ovs_pmd_upcalls", Counter, "Packets that no cache of a thread knew", |pmd| {
            vec![
                (Some(("result", "answered")), pmd.upcalls.map(Count)),
                (Some(("result", "lost")), pmd.failed_upcalls.map(Count)),
            ]
        }),
        ("ovs_pmd_cycles", Counter, "Cycles of a thread's core", |pmd| {
            vec![
                (Some(("state", "idle")), pmd.idle_cycles.map(Count)),
                (Some(("state", "busy")), pmd.busy_cycles.map(Count)),
            ]
        }),
        ("ovs_pmd_iterations", Counter, "Rounds of a thread over its queues", |pmd| {
            vec![
                (Some(("state", "idle")), pmd.idle_iterations.map(Count)),
                (Some(("state", "busy")), pmd.busy_iterations.map(Count)),
            ]
        }),
        ("ovs_pmd_sleep_iterations", Counter, "Rounds after which a thread slept", |pmd| {
            vec![(None, pmd.sleep_iterations.map(Count))]
        }),
        ("ovs_pmd_sleep_seconds", Counter, "How long a thread slept", |pmd| vec![(None, pmd.slept.map(nanoseconds))]),
        ("ovs_pmd_isolated", Gauge, "Whether a thread serves only the queues that somebody gave it", |pmd| {
            vec![(None, pmd.isolated.map(flag))]
        }),
        ("ovs_pmd_overhead_percent", Gauge, "How much of its last minute a thread spent on no queue", |pmd| {
            vec![(None, pmd.overhead_percent.map(Count))]
        }),
    ];
    let numa = |pmd: &PmdCounters| pmd.numa.map(|numa| numa.to_string()).unwrap_or_default();
    let of = |pmd: &PmdCounters| format!("{},{}", label("thread", &pmd.thread), label("numa", &numa(pmd)));
    for (name, kind, help, values) in rows {
        let mut family = text.family(name, kind, help);
        for pmd in threads {
            for (label, value) in values(pmd) {
                family.sample(&of(pmd), label, value);
            }
        }
    }
    let rows: [QueueRow; 2] = [
        ("ovs_pmd_queue_enabled", "Whether packets may come by a queue that a thread serves", |queue| {
            Some(flag(queue.enabled))
        }),
        ("ovs_pmd_queue_usage_percent", "How much of its thread's last minute a queue took", |queue| {
            queue.usage_percent.map(Count)
        }),
    ];
    for (name, help, value) in rows {
        let mut family = text.family(name, Gauge, help);
        for pmd in threads {
            for queue in &pmd.queues {
                let labels = format!("{},{}", of(pmd), label("interface", &queue.interface));
                family.sample(&labels, Some(("queue", &queue.queue.to_string())), value(queue));
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
