//! From what the agent knows to what it publishes: pure, so that each rule is a row of a test.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Config, blind,
    finding::{
        Finding, IssueType, OVN_CONTROLLER, OVSDB_SERVER, Severity, Uplinks, VSWITCHD, find, is_fresh, is_known,
        link_up, uplinks,
    },
    memory::{Memory, published},
};
use crate::{
    agent::Section,
    api::{self, Condition, ConditionStatus, Issue, OVSNodeStatus, condition_types as types, conditions},
    ovs::{Bond, BondKind, Daemon, InterfaceRole, OvsSnapshot},
};

/// The words for the state of a bridge, a card or a bond.
pub mod words {
    /// A bridge or a bond works.
    pub const ACTIVE: &str = "Active";
    /// A bond or a bridge works with less than it has.
    pub const DEGRADED: &str = "Degraded";
    /// A bridge leads nowhere.
    pub const ISOLATED: &str = "Isolated";
    /// A bridge does not answer.
    pub const UNRESPONSIVE: &str = "Unresponsive";
    /// A card has a link.
    pub const UP: &str = "Up";
    /// A card has no link, a bond no member that works.
    pub const DOWN: &str = "Down";
    /// Nobody can tell.
    pub const UNKNOWN: &str = "Unknown";
}

/// As many messages as fit into a condition that sums up.
const SUMMED_UP: usize = 5;

/// Decides the whole status, given what was published before. What is not known now keeps its last value where that is
/// still worth something (versions, the list of bridges) and is left out where it is not (counts).
pub fn decide(
    seen: &Section<OvsSnapshot>,
    previous: &OVSNodeStatus,
    memory: &Memory,
    now: Timestamp,
    config: &Config,
) -> OVSNodeStatus {
    let mut status = previous.clone();
    // An address at which nobody answers any more is not kept.
    status.troubleshooting.clone_from(&config.troubleshooting);
    let wanted = match seen {
        Section::Known(snapshot) => {
            let wrong = wrong(snapshot, previous, memory, now, config);
            describe(snapshot, &wrong, &mut status);
            status.issues = Some(issues(&wrong, previous, now, config.issues_per_type));
            judge(snapshot, &wrong, previous, memory)
        }
        Section::NotYet | Section::NotOffered => Vec::new(),
        Section::Failed(why) => unknown(why),
    };
    for condition in wanted {
        conditions::set_condition(&mut status.conditions, condition, now);
    }
    // The order must not depend on the order in which things happened.
    status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    status
}

/// What is wrong by now.
pub(super) struct Wrong {
    /// What this snapshot shows and counts.
    pub(super) found: Vec<Finding>,
    /// What was published and cannot be judged now.
    pub(super) kept: Vec<Finding>,
}

impl Wrong {
    /// All of it, in the order of findings.
    fn all(&self) -> Vec<Finding> {
        let mut all = [self.found.as_slice(), &self.kept].concat();
        all.sort_by(|a, b| (a.type_, &a.object).cmp(&(b.type_, &b.object)));
        all
    }
}

/// What a snapshot and what is remembered show, and what was published and they do not take back.
pub(super) fn wrong(
    seen: &OvsSnapshot,
    previous: &OVSNodeStatus,
    memory: &Memory,
    now: Timestamp,
    config: &Config,
) -> Wrong {
    let mut found = find(seen, memory, config);
    found.retain(|finding| memory.confirms(finding, previous, now));
    let kept = blind::kept(&found, previous, seen, memory, config);
    Wrong { found, kept }
}

fn describe(seen: &OvsSnapshot, wrong: &Wrong, status: &mut OVSNodeStatus) {
    if let Some(version) = seen.switch.version() {
        status.ovs_version = Some(version.to_owned());
    }
    if let Some(version) = seen.database.version() {
        status.ovsd_version = Some(version.to_owned());
    }
    if seen.database_connected {
        status.dpdk_enabled = Some(seen.dpdk.is_some());
        status.dpdk_version.clone_from(&seen.dpdk);
    }
    // Without a database the lists are what was last known, and may be nothing.
    if seen.database_connected || !seen.bridges.is_empty() {
        status.bridges = Some(bridges(seen, wrong));
        status.interfaces = Some(api::Interfaces { physical: Some(physical(seen)), bonds: Some(bonds(seen)) });
    }
    // The counters come from the database: while it is away the last ones stay.
    if seen.database_connected {
        status.metrics = Some(metrics(seen));
    }
    status.flow_stats = flow_stats(seen);
    status.ovn_controller = seen.controller.as_ref().map(|controller| api::OvnController {
        connected: match controller.daemon {
            Daemon::Responsive { .. } => Some(controller.southbound_connected),
            Daemon::Unresponsive | Daemon::Inaccessible { .. } => None,
            Daemon::Absent => Some(false),
        },
        sb_connection: controller.southbound.clone(),
        chassis_id: controller.chassis_id.clone(),
        version: controller.daemon.version().map(str::to_owned),
    });
}

fn count(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

fn bridges(seen: &OvsSnapshot, wrong: &Wrong) -> Vec<api::Bridge> {
    let is_silent = |name: &str| {
        let counts = |finding: &Finding| finding.type_ == IssueType::BridgeUnresponsive && finding.object == name;
        !seen.switch.is_responsive() || wrong.found.iter().any(counts)
    };
    let word = |bridge: &crate::ovs::Bridge| match uplinks(seen, &bridge.name) {
        _ if bridge.flows.is_none() && is_silent(&bridge.name) => words::UNRESPONSIVE,
        _ if bridge.flows.is_none() => words::UNKNOWN,
        Uplinks::None => words::ISOLATED,
        Uplinks::Some => words::DEGRADED,
        Uplinks::Fine => words::ACTIVE,
    };
    let bridge = |bridge: &crate::ovs::Bridge| api::Bridge {
        name: bridge.name.clone(),
        ports: Some(count(bridge.ports)),
        flows: bridge.total_flows().map(count),
        datapath_type: Some(bridge.datapath_type.clone()),
        status: Some(word(bridge).to_owned()),
    };
    seen.bridges.iter().map(bridge).collect()
}

/// The cards: those of the switch, and the members of the kernel's bonds, which the switch sees as one interface.
fn physical(seen: &OvsSnapshot) -> Vec<api::PhysicalInterface> {
    let kernel = || seen.bonds.iter().filter(|bond| bond.kind == BondKind::Kernel);
    let word = |link_up| match link_up {
        Some(true) => words::UP,
        Some(false) => words::DOWN,
        None => words::UNKNOWN,
    };
    let mut cards: BTreeMap<&str, api::PhysicalInterface> = BTreeMap::new();
    let card = |name: &str, link_up, speed: Option<u64>, bond: Option<&str>| api::PhysicalInterface {
        name: name.to_owned(),
        status: Some(word(link_up).to_owned()),
        speed: speed.filter(|_| link_up != Some(false)).map(speed_text),
        bond: bond.map(str::to_owned),
    };
    for interface in seen.interfaces.iter().filter(|interface| interface.role == InterfaceRole::Physical) {
        if !kernel().any(|bond| bond.name == interface.name) {
            let speed = interface.speed_bps.filter(|_| is_fresh(seen, interface));
            let found = card(&interface.name, link_up(seen, interface), speed, interface.bond.as_deref());
            cards.insert(&interface.name, found);
        }
    }
    for bond in kernel() {
        for member in &bond.members {
            cards.insert(&member.name, card(&member.name, member.link_up, member.speed_bps, Some(&bond.name)));
        }
    }
    cards.into_values().collect()
}

/// A speed as people write it.
///
/// ```
/// use cobalt_core::agent::ovs::status::speed_text;
///
/// assert_eq!(speed_text(25_000_000_000), "25Gbps");
/// assert_eq!(speed_text(2_500_000_000), "2.5Gbps");
/// assert_eq!(speed_text(100_000_000), "100Mbps");
/// ```
pub fn speed_text(bits_per_second: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "Gbps"), (1_000_000, "Mbps"), (1_000, "Kbps")];
    for (unit, name) in UNITS {
        if bits_per_second >= unit {
            let tenths = bits_per_second % unit / (unit / 10);
            let whole = bits_per_second / unit;
            return if tenths == 0 { format!("{whole}{name}") } else { format!("{whole}.{tenths}{name}") };
        }
    }
    format!("{bits_per_second}bps")
}

fn bonds(seen: &OvsSnapshot) -> Vec<api::Bond> {
    seen.bonds.iter().map(|bond| if is_known(seen, bond) { known_bond(bond) } else { unknown_bond(bond) }).collect()
}

fn known_bond(bond: &Bond) -> api::Bond {
    let unsound = bond.members.iter().any(|member| bond.is_unsound(member));
    let word = match bond.active_members() {
        0 if bond.is_told() => words::DOWN,
        _ if unsound => words::DEGRADED,
        _ if !bond.is_told() => words::UNKNOWN,
        _ => words::ACTIVE,
    };
    let member = |member: &crate::ovs::BondMember| api::BondMember {
        name: member.name.clone(),
        enabled: member.enabled,
        lacp: member.lacp.clone(),
        partner: member.partner.clone(),
    };
    api::Bond {
        status: Some(word.to_owned()),
        active_members: bond.is_told().then(|| count(bond.active_members())),
        member_status: Some(bond.members.iter().map(member).collect()),
        ..unknown_bond(bond)
    }
}

/// A bond of a switch that does not answer: what is configured, not how it is.
fn unknown_bond(bond: &Bond) -> api::Bond {
    let names = bond.members.iter().map(|member| api::BondMember { name: member.name.clone(), ..Default::default() });
    api::Bond {
        name: bond.name.clone(),
        mode: Some(bond.mode.clone()),
        status: Some(words::UNKNOWN.to_owned()),
        members: Some(count(bond.members.len())),
        active_members: None,
        kind: Some(if bond.kind == BondKind::Kernel { "kernel" } else { "ovs" }.to_owned()),
        lacp: Some(bond.lacp),
        member_status: Some(names.collect()),
    }
}

/// None unless every bridge answered: a total without a bridge would be a lie.
fn flow_stats(seen: &OvsSnapshot) -> Option<api::FlowStats> {
    let mut tables: BTreeMap<u8, u64> = BTreeMap::new();
    if seen.bridges.is_empty() && !seen.database_connected {
        return None;
    }
    for bridge in &seen.bridges {
        for (table, flows) in bridge.flows.as_ref()? {
            let sum = tables.entry(*table).or_default();
            *sum = sum.saturating_add(*flows);
        }
    }
    let total = tables.values().fold(0_u64, |sum, flows| sum.saturating_add(*flows));
    let per_table =
        tables.into_iter().map(|(table, flows)| api::TableFlows { table: table.into(), flows: count(flows) });
    Some(api::FlowStats { total_flows: Some(count(total)), flows_per_table: Some(per_table.collect()) })
}

/// Totals over all ports. A counter that a port does not have counts as none.
fn metrics(seen: &OvsSnapshot) -> api::SwitchMetrics {
    // A member of a bond of the kernel's is no port of the switch: its packets are counted at the bond.
    let is_kernel_bond = |name: &str| seen.bonds.iter().any(|bond| bond.kind == BondKind::Kernel && bond.name == name);
    let sum = |names: &[&str]| {
        let ports = seen.interfaces.iter().filter(|port| !port.bond.as_deref().is_some_and(is_kernel_bond));
        let counts = ports.flat_map(|port| names.iter().filter_map(|name| port.statistics.get(*name).copied()));
        Some(i64::try_from(counts.fold(0, u64::saturating_add)).unwrap_or(i64::MAX))
    };
    api::SwitchMetrics {
        packets_received: sum(&["rx_packets"]),
        packets_sent: sum(&["tx_packets"]),
        bytes_received: sum(&["rx_bytes"]),
        bytes_sent: sum(&["tx_bytes"]),
        drops: sum(&["rx_dropped", "tx_dropped"]),
        errors: sum(&["rx_errors", "tx_errors"]),
        observed_at: None,
    }
}

/// The list of what is wrong. The time of detection stays that of the first; of very many of a kind some are listed and
/// the rest is counted. Those that are listed already go first, lest one looks mended because another came.
fn issues(wrong: &Wrong, previous: &OVSNodeStatus, now: Timestamp, most: usize) -> Vec<Issue> {
    let all = wrong.all();
    let issue = |type_: IssueType, object: &str, message: String| Issue {
        severity: type_.severity().as_str().to_owned(),
        message,
        detected_at: published(previous, type_, object).and_then(|known| known.detected_at.clone()).or(Some(Time(now))),
        type_: Some(type_.as_str().to_owned()),
        object: Some(object.to_owned()),
    };
    let mut list = Vec::new();
    for type_ in IssueType::ALL {
        let mut of_type: Vec<&Finding> = all.iter().filter(|finding| finding.type_ == type_).collect();
        let more = of_type.len().saturating_sub(most);
        of_type.sort_by_key(|finding| published(previous, type_, &finding.object).is_none());
        of_type.truncate(most);
        of_type.sort_by(|a, b| a.object.cmp(&b.object));
        list.extend(of_type.into_iter().map(|finding| issue(type_, &finding.object, finding.message.clone())));
        if more > 0 {
            list.push(issue(type_, "", format!("{more} more of this type")));
        } else if wrong.kept.iter().any(|finding| finding.type_ == type_) {
            // Those that were counted and not listed are not known by name, and no more mended than the others.
            list.extend(published(previous, type_, "").cloned());
        }
    }
    list
}

/// A look that failed as a whole says nothing about anything.
fn unknown(why: &str) -> Vec<Condition> {
    [
        types::READY,
        types::OVSDB_CONNECTED,
        types::OVN_CONTROLLER_CONNECTED,
        types::ALL_BRIDGES_HEALTHY,
        types::ALL_BONDS_HEALTHY,
        types::OVS_DAEMON_RESPONSIVE,
        types::OPENFLOW_CONNECTED,
    ]
    .into_iter()
    .map(|type_| Condition::new(type_, ConditionStatus::Unknown, "InspectionFailed", why))
    .collect()
}

fn judge(seen: &OvsSnapshot, wrong: &Wrong, previous: &OVSNodeStatus, memory: &Memory) -> Vec<Condition> {
    let all = wrong.all();
    let found = all.as_slice();
    vec![
        ready(found),
        from_findings(types::OVSDB_CONNECTED, "Connected", found, &[IssueType::DatabaseDisconnected], |_| true),
        from_findings(
            types::OVS_DAEMON_RESPONSIVE,
            "Responsive",
            found,
            &[
                IssueType::DaemonUnresponsive,
                IssueType::DaemonInaccessible,
                IssueType::DaemonAbsent,
                IssueType::DatabaseDisconnected,
            ],
            |finding| {
                let ours = [VSWITCHD, OVSDB_SERVER].contains(&finding.object.as_str());
                ours && (finding.type_ != IssueType::DatabaseDisconnected || !seen.database.is_responsive())
            },
        ),
        controller(seen, found),
        openflow(seen, found),
        bridges_condition(seen, found),
        // A bond that was down before the switch fell silent is one that nobody knows of now.
        bonds_condition(seen, &wrong.found),
        stale_flows(memory, previous),
    ]
}

/// True unless something of these types was found.
fn from_findings(
    type_: &str,
    good: &str,
    found: &[Finding],
    bad: &[IssueType],
    concerns: impl Fn(&Finding) -> bool,
) -> Condition {
    let bad: Vec<&Finding> = found.iter().filter(|finding| bad.contains(&finding.type_) && concerns(finding)).collect();
    match bad.first() {
        None => Condition::new(type_, ConditionStatus::True, good, ""),
        Some(first) => Condition::new(type_, ConditionStatus::False, first.type_.as_str(), sum_up(&bad)),
    }
}

fn sum_up(found: &[&Finding]) -> String {
    let mut text = found.iter().take(SUMMED_UP).map(|finding| finding.message.as_str()).collect::<Vec<_>>().join("; ");
    if found.len() > SUMMED_UP {
        text.push_str("; and more");
    }
    text
}

/// Whatever is critical makes a switch not ready; a warning leaves it ready, and says so.
fn ready(found: &[Finding]) -> Condition {
    let of = |severity| move |finding: &&Finding| finding.type_.severity() == severity;
    let critical: Vec<&Finding> = found.iter().filter(of(Severity::Critical)).collect();
    let mut warnings: Vec<&str> = found.iter().filter(of(Severity::Warning)).map(|f| f.type_.as_str()).collect();
    warnings.dedup(); // they are ordered
    match critical.first() {
        Some(first) => Condition::new(types::READY, ConditionStatus::False, first.type_.as_str(), sum_up(&critical)),
        None if warnings.is_empty() => Condition::new(types::READY, ConditionStatus::True, "Ready", ""),
        None => {
            let message = format!("The switch works, with issues: {}", warnings.join(", "));
            Condition::new(types::READY, ConditionStatus::True, words::DEGRADED, message)
        }
    }
}

fn controller(seen: &OvsSnapshot, found: &[Finding]) -> Condition {
    let type_ = types::OVN_CONTROLLER_CONNECTED;
    if seen.controller.is_none() {
        let message = "This host has no ovn-controller";
        return Condition::new(type_, ConditionStatus::Unknown, "NoController", message);
    }
    let bad = [
        IssueType::DaemonUnresponsive,
        IssueType::DaemonInaccessible,
        IssueType::DaemonAbsent,
        IssueType::SouthboundDisconnected,
        IssueType::SouthboundUnresponsive,
    ];
    from_findings(type_, "Connected", found, &bad, |finding| finding.object == OVN_CONTROLLER)
}

/// Who is connected to the switch only the switch can tell; and a controller that hangs keeps its connection.
fn openflow(seen: &OvsSnapshot, found: &[Finding]) -> Condition {
    let type_ = types::OPENFLOW_CONNECTED;
    let unknown = |reason, message: &str| Condition::new(type_, ConditionStatus::Unknown, reason, message);
    let Some(controller) = &seen.controller else {
        return unknown("NoController", "This host has no ovn-controller");
    };
    if !seen.switch.is_responsive() {
        return unknown("SwitchUnresponsive", "ovs-vswitchd does not answer");
    }
    match (&controller.daemon, controller.openflow_connected) {
        (Daemon::Absent, _) => Condition::new(
            type_,
            ConditionStatus::False,
            IssueType::DaemonAbsent.as_str(),
            "ovn-controller does not run",
        ),
        (Daemon::Unresponsive | Daemon::Inaccessible { .. }, _) => {
            unknown("ControllerUnresponsive", "ovn-controller does not answer")
        }
        (Daemon::Responsive { .. }, None) => unknown("NotKnown", "ovs-vswitchd does not say who is connected to it"),
        (Daemon::Responsive { .. }, Some(_)) => {
            from_findings(type_, "Connected", found, &[IssueType::OpenFlowDisconnected], |_| true)
        }
    }
}

fn bridges_condition(seen: &OvsSnapshot, found: &[Finding]) -> Condition {
    let type_ = types::ALL_BRIDGES_HEALTHY;
    if !seen.database_connected && seen.bridges.is_empty() {
        let message = "The switch's database has not told of any bridge";
        return Condition::new(type_, ConditionStatus::Unknown, "NotKnown", message);
    }
    if !seen.switch.is_responsive() && !seen.bridges.is_empty() {
        let message = "ovs-vswitchd does not answer, so no bridge does";
        return Condition::new(type_, ConditionStatus::False, IssueType::BridgeUnresponsive.as_str(), message);
    }
    let bad = [IssueType::BridgeMissing, IssueType::BridgeUnresponsive, IssueType::BridgeIsolated];
    let judged = from_findings(type_, "Healthy", found, &bad, |_| true);
    let degraded: Vec<&str> = seen
        .bridges
        .iter()
        .filter(|bridge| uplinks(seen, &bridge.name) == Uplinks::Some)
        .map(|bridge| bridge.name.as_str())
        .collect();
    if judged.is_true() && !degraded.is_empty() {
        let message = format!("Some cards do not work: {}", degraded.join(", "));
        return Condition::new(type_, ConditionStatus::False, words::DEGRADED, message);
    }
    judged
}

fn bonds_condition(seen: &OvsSnapshot, found: &[Finding]) -> Condition {
    let type_ = types::ALL_BONDS_HEALTHY;
    let bad = [IssueType::BondDown, IssueType::BondDegraded, IssueType::LacpPartnerSilent];
    let judged = from_findings(type_, if seen.bonds.is_empty() { "NoBonds" } else { "Healthy" }, found, &bad, |_| true);
    let asleep = judged.is_true() && !seen.bonds.iter().all(|bond| is_known(seen, bond));
    if asleep || (judged.is_true() && !seen.database_connected && seen.bonds.is_empty()) {
        if seen.switch.is_responsive() && seen.database_connected {
            let message = "ovs-vswitchd does not say how the members of its bonds are";
            return Condition::new(type_, ConditionStatus::Unknown, "NotKnown", message);
        }
        let message = "Nobody can tell how the bonds of the switch are while it does not answer";
        return Condition::new(type_, ConditionStatus::Unknown, "SwitchUnresponsive", message);
    }
    let unknown: Vec<&str> = seen.bonds.iter().filter(|bond| !bond.is_told()).map(|bond| bond.name.as_str()).collect();
    if judged.is_true() && !unknown.is_empty() {
        let names = unknown.join(", ");
        let message = format!("The kernel does not tell the agent how LACP fares (CAP_NET_ADMIN): {names}");
        return Condition::new(type_, ConditionStatus::Unknown, "NotKnown", message);
    }
    judged
}

/// What the last look found, an earlier agent's if this one has not looked yet.
fn stale_flows(memory: &Memory, previous: &OVSNodeStatus) -> Condition {
    let type_ = types::NO_STALE_FLOWS;
    match &memory.stale_flows {
        Section::Known(cookies) if cookies.is_empty() => Condition::new(type_, ConditionStatus::True, "NoneFound", ""),
        Section::Known(_) => {
            let message = "There are flows that nothing in OVN explains";
            Condition::new(type_, ConditionStatus::False, IssueType::StaleFlows.as_str(), message)
        }
        Section::NotYet => conditions::find(&previous.conditions, type_)
            .cloned()
            .unwrap_or_else(|| Condition::new(type_, ConditionStatus::Unknown, "NotLookedYet", "")),
        Section::NotOffered => {
            let message = "Flows cannot be told from stale ones without the southbound database";
            Condition::new(type_, ConditionStatus::Unknown, "NoSouthbound", message)
        }
        Section::Failed(why) => Condition::new(type_, ConditionStatus::Unknown, "LookFailed", why),
    }
}
