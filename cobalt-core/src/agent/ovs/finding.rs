//! What can be wrong with a switch, and how it shows.
//!
//! Each finding rests on what tells the truth, which is often not what the database says: it goes on saying that a link is
//! up after the daemon that would know has died.

use std::time::Duration;

use super::{Config, memory::Memory, orphan};
use crate::{
    agent::Section,
    ovs::{Bond, BondKind, Controller, Daemon, Interface, InterfaceRole, OvsSnapshot},
};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The host's network does not work, or cannot be changed any more.
    Critical,
    /// It works, and something is not as it should be.
    Warning,
}

impl Severity {
    /// The word in an OVSNode.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "Critical",
            Self::Warning => "Warning",
        }
    }
}

/// What is wrong, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum IssueType {
    /// There is no connection to the switch's database.
    DatabaseDisconnected,
    /// A daemon has a socket and does not answer.
    DaemonUnresponsive,
    /// A daemon has a socket that the agent cannot use.
    DaemonInaccessible,
    /// Nobody listens where a daemon should.
    DaemonAbsent,
    /// ovn-controller is not connected to the southbound database.
    SouthboundDisconnected,
    /// ovn-controller is connected to a southbound database that does not answer.
    SouthboundUnresponsive,
    /// ovn-controller is not connected to the switch.
    OpenFlowDisconnected,
    /// A bridge that must be there is not.
    BridgeMissing,
    /// A bridge does not answer although the switch does.
    BridgeUnresponsive,
    /// No card or bond of a bridge works.
    BridgeIsolated,
    /// A bond has no member that carries traffic.
    BondDown,
    /// A bond has members that carry no traffic.
    BondDegraded,
    /// All members of a bond work, and the other end does not speak LACP any more.
    LacpPartnerSilent,
    /// A card has no link.
    LinkDown,
    /// The switch complains about an interface.
    InterfaceError,
    /// The switch has not taken up the latest configuration.
    ConfigurationPending,
    /// ovn-controller is behind the latest of the cloud.
    SouthboundLag,
    /// A port that belongs to no VM.
    OrphanPort,
    /// A logical port that is bound to this host and has no port here.
    UnpluggedPort,
    /// A tunnel to a host that is no more.
    StaleTunnel,
    /// Flows that nothing in OVN explains.
    StaleFlows,
}

impl IssueType {
    /// Every type there is, the worst first.
    pub const ALL: [Self; 21] = [
        Self::DatabaseDisconnected,
        Self::DaemonUnresponsive,
        Self::DaemonInaccessible,
        Self::DaemonAbsent,
        Self::SouthboundDisconnected,
        Self::SouthboundUnresponsive,
        Self::OpenFlowDisconnected,
        Self::BridgeMissing,
        Self::BridgeUnresponsive,
        Self::BridgeIsolated,
        Self::BondDown,
        Self::BondDegraded,
        Self::LacpPartnerSilent,
        Self::LinkDown,
        Self::InterfaceError,
        Self::ConfigurationPending,
        Self::SouthboundLag,
        Self::OrphanPort,
        Self::UnpluggedPort,
        Self::StaleTunnel,
        Self::StaleFlows,
    ];

    /// The word in an OVSNode, and the reason of an Event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DatabaseDisconnected => "DatabaseDisconnected",
            Self::DaemonUnresponsive => "DaemonUnresponsive",
            Self::DaemonInaccessible => "DaemonInaccessible",
            Self::DaemonAbsent => "DaemonAbsent",
            Self::SouthboundDisconnected => "SouthboundDisconnected",
            Self::SouthboundUnresponsive => "SouthboundUnresponsive",
            Self::OpenFlowDisconnected => "OpenFlowDisconnected",
            Self::BridgeMissing => "BridgeMissing",
            Self::BridgeUnresponsive => "BridgeUnresponsive",
            Self::BridgeIsolated => "BridgeIsolated",
            Self::BondDown => "BondDown",
            Self::BondDegraded => "BondDegraded",
            Self::LacpPartnerSilent => "LacpPartnerSilent",
            Self::LinkDown => "LinkDown",
            Self::InterfaceError => "InterfaceError",
            Self::ConfigurationPending => "ConfigurationPending",
            Self::SouthboundLag => "SouthboundLag",
            Self::OrphanPort => "OrphanPort",
            Self::UnpluggedPort => "UnpluggedPort",
            Self::StaleTunnel => "StaleTunnel",
            Self::StaleFlows => "StaleFlows",
        }
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::DatabaseDisconnected
            | Self::DaemonUnresponsive
            | Self::DaemonInaccessible
            | Self::DaemonAbsent
            | Self::SouthboundDisconnected
            | Self::SouthboundUnresponsive
            | Self::OpenFlowDisconnected
            | Self::BridgeMissing
            | Self::BridgeUnresponsive
            | Self::BridgeIsolated
            | Self::BondDown => Severity::Critical,
            _ => Severity::Warning,
        }
    }

    /// What a person should do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::DatabaseDisconnected => {
                "see whether ovsdb-server runs and whether its socket (db.sock) is the one the agent is configured for; everything else is what was last known"
            }
            Self::DaemonUnresponsive => {
                "read its log and keep a stack trace (gdb -p PID) before you restart it; see whether the host lacks CPU or memory"
            }
            Self::DaemonInaccessible => {
                "see who may use its control socket, and as whom the agent runs: the daemon itself may be well"
            }
            Self::DaemonAbsent => "start it, and read its log and the kernel's for why it ended",
            Self::SouthboundDisconnected => {
                "see whether that address can be reached from the host, and whether the database runs; for ssl, the certificates"
            }
            Self::SouthboundUnresponsive => {
                "the database behind that socket hangs, and ovn-controller does not notice: keep a stack trace of its ovsdb-server and restart it"
            }
            Self::OpenFlowDisconnected => {
                "see whether ovn-bridge names a bridge that exists, and read the log of ovn-controller"
            }
            Self::BridgeMissing => "create it, or correct the list of required bridges",
            Self::BridgeUnresponsive => {
                "see whether its management socket is there and its datapath type available, and read the log of ovs-vswitchd"
            }
            Self::BridgeIsolated => "see what is said of its cards and bonds",
            Self::BondDown => {
                "no link: check cables and the ports of the physical switch; a silent partner: its port channel"
            }
            Self::BondDegraded => {
                "as for a bond that is down, for the members named; the next failure may cut the host off"
            }
            Self::LacpPartnerSilent => {
                "see whether the ports of the physical switch are in the right port channel and speak LACP"
            }
            Self::LinkDown => "check cable, optics and the port of the physical switch",
            Self::InterfaceError => "mend what the switch names, or delete the port if nothing needs it",
            Self::ConfigurationPending => {
                "ask again in a moment; if it stays, read the log of ovs-vswitchd for what it cannot do"
            }
            Self::SouthboundLag => "ask again in a moment; if it stays, ovn-controller is overloaded",
            Self::OrphanPort => {
                "one that was just made is known in a moment; if it stays, make sure that no VM uses it and delete it (ovs-vsctl del-port)"
            }
            Self::UnpluggedPort => {
                "see whether its VM runs here; if it does, its interface was not plugged into br-int"
            }
            Self::StaleTunnel => "ovn-controller should remove it; if it stays, look at ovn-controller first",
            Self::StaleFlows => {
                "left over by an ovn-controller that died, they go when it is restarted; others were added by hand, and ovs-ofctl dump-flows shows them by cookie"
            }
        }
    }
}

/// When a finding counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// At once.
    None,
    /// After so many looks in a row.
    Observations(u32),
    /// After this long without a break.
    For(Duration),
}

/// Something that is wrong, as one snapshot shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub type_: IssueType,
    /// What it is about.
    pub object: String,
    /// What it is, in words.
    pub message: String,
    /// When it counts.
    pub patience: Patience,
}

impl Finding {
    pub(super) fn new(type_: IssueType, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_, object: object.into(), message: message.into(), patience: Patience::None }
    }

    pub(super) fn after(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }
}

/// The three daemons.
pub(super) const VSWITCHD: &str = "ovs-vswitchd";
pub(super) const OVSDB_SERVER: &str = "ovsdb-server";
pub(super) const OVN_CONTROLLER: &str = "ovn-controller";

/// Everything that is wrong in this snapshot, whether it counts already or not, the worst first. What cannot be told from
/// it is left out, which does not mean that it is well.
pub fn find(seen: &OvsSnapshot, memory: &Memory, config: &Config) -> Vec<Finding> {
    let mut all = Vec::new();
    database(seen, &mut all);
    daemon(VSWITCHD, &seen.switch, &mut all);
    if let Some(controller) = &seen.controller {
        ovn(seen, controller, config, &mut all);
    }
    for bridge in &config.required_bridges {
        if seen.database_connected && !seen.bridges.iter().any(|known| known.name == *bridge) {
            all.push(Finding::new(IssueType::BridgeMissing, bridge, format!("There is no bridge {bridge}")));
        }
    }
    bridges(seen, &mut all);
    all.extend(seen.bonds.iter().filter(|bond| is_known(seen, bond)).filter_map(bond));
    interfaces(seen, &mut all);
    if seen.configuration_pending {
        let message = "The database has a change that ovs-vswitchd has not taken up";
        let finding = Finding::new(IssueType::ConfigurationPending, VSWITCHD, message);
        all.push(finding.after(Patience::For(config.settle)));
    }
    all.extend(orphan::find(seen, config));
    if let Section::Known(cookies) = &memory.stale_flows
        && !cookies.is_empty()
    {
        let flows = cookies.values().fold(0_u64, |sum, flows| sum.saturating_add(*flows));
        let bridge = &config.integration_bridge;
        let count = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let (flows, cookies) = (count(flows, "flow"), count(cookies.len() as u64, "cookie"));
        let message = format!("{flows} with {cookies} that nothing in OVN explains on {bridge}");
        all.push(Finding::new(IssueType::StaleFlows, bridge, message));
    }
    all.sort_by(|a, b| (a.type_, &a.object).cmp(&(b.type_, &b.object)));
    all
}

/// Whether what is said about this bond's members is true: the switch's own bonds are known to nobody but the switch. The
/// kernel may tell of some members only.
pub(super) fn is_known(seen: &OvsSnapshot, bond: &Bond) -> bool {
    bond.kind == BondKind::Kernel || (bond.is_told() && seen.switch.is_responsive())
}

/// Whether what the switch writes about links is how they are: the database keeps it when the switch dies or hangs, and
/// our copy of it when the database does.
pub(super) fn knows_links(seen: &OvsSnapshot) -> bool {
    seen.database_connected && seen.switch.is_responsive()
}

/// Whether what is said about the state of this interface is how it is now. The members of the kernel's bonds the kernel
/// tells of.
pub(super) fn is_fresh(seen: &OvsSnapshot, interface: &Interface) -> bool {
    let of_kernel = |bond: &Bond| bond.kind == BondKind::Kernel && Some(&bond.name) == interface.bond.as_ref();
    knows_links(seen) || seen.bonds.iter().any(of_kernel)
}

/// Whether an interface has a link; `None` if nobody can tell now.
pub(super) fn link_up(seen: &OvsSnapshot, interface: &Interface) -> Option<bool> {
    interface.link_up.filter(|_| is_fresh(seen, interface))
}

fn database(seen: &OvsSnapshot, all: &mut Vec<Finding>) {
    if seen.database_connected {
        daemon(OVSDB_SERVER, &seen.database, all);
    } else {
        let how = match seen.database {
            Daemon::Responsive { .. } => "ovsdb-server answers its control socket",
            Daemon::Unresponsive => "ovsdb-server hangs",
            Daemon::Inaccessible { .. } => "the agent cannot use its control socket either",
            Daemon::Absent => "ovsdb-server does not run",
        };
        let message = format!("No connection to the switch's database: {how}");
        all.push(Finding::new(IssueType::DatabaseDisconnected, OVSDB_SERVER, message));
    }
}

fn daemon(name: &str, daemon: &Daemon, all: &mut Vec<Finding>) {
    match daemon {
        Daemon::Responsive { .. } => {}
        Daemon::Unresponsive => {
            let message = format!("{name} does not answer its control socket: it hangs");
            all.push(Finding::new(IssueType::DaemonUnresponsive, name, message));
        }
        Daemon::Inaccessible { why } => {
            let message = format!("The agent cannot use the control socket of {name}: {why}");
            all.push(Finding::new(IssueType::DaemonInaccessible, name, message));
        }
        Daemon::Absent => {
            let message = format!("Nobody listens at the control socket of {name}: it does not run");
            all.push(Finding::new(IssueType::DaemonAbsent, name, message));
        }
    }
}

fn ovn(seen: &OvsSnapshot, controller: &Controller, config: &Config, all: &mut Vec<Finding>) {
    daemon(OVN_CONTROLLER, &controller.daemon, all);
    if !controller.daemon.is_responsive() {
        return; // what else is said about it was true once
    }
    let remote = controller.southbound.as_deref().unwrap_or("the southbound database");
    if !controller.southbound_connected {
        let message = format!("ovn-controller is not connected to {remote}");
        all.push(Finding::new(IssueType::SouthboundDisconnected, OVN_CONTROLLER, message));
    }
    if controller.southbound_connected && controller.southbound_responsive == Some(false) {
        let message = format!("ovn-controller is connected to {remote}, and nobody answers there: it hangs");
        let finding = Finding::new(IssueType::SouthboundUnresponsive, OVN_CONTROLLER, message);
        all.push(finding.after(Patience::For(config.settle)));
    }
    if controller.openflow_connected == Some(false) && seen.switch.is_responsive() {
        let message = "ovn-controller is not connected to ovs-vswitchd: it cannot program flows";
        all.push(Finding::new(IssueType::OpenFlowDisconnected, OVN_CONTROLLER, message));
    }
    if controller.lag.is_some_and(|lag| lag > 0) {
        // Without the number: it moves all the time, and every move would be a write.
        let message = "ovn-controller is behind the latest configuration of the cloud";
        let finding = Finding::new(IssueType::SouthboundLag, OVN_CONTROLLER, message);
        all.push(finding.after(Patience::For(config.settle)));
    }
    for port in controller.unplugged.iter().flatten() {
        let message = format!("Logical port {port} is bound to this host and no port here claims it");
        let finding = Finding::new(IssueType::UnpluggedPort, port, message);
        all.push(finding.after(Patience::Observations(config.observations)));
    }
    let gone = seen.interfaces.iter().filter(|tunnel| tunnel.remote_known == Some(false));
    for tunnel in gone {
        let remote = tunnel.remote_chassis.as_deref().unwrap_or("unknown");
        let message = format!("Tunnel {} leads to chassis {remote}, which OVN does not know", tunnel.name);
        let finding = Finding::new(IssueType::StaleTunnel, &tunnel.name, message);
        all.push(finding.after(Patience::Observations(config.observations)));
    }
}

/// How the ways out of a bridge are: its cards, and its bonds as one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uplinks {
    /// It has none, all work, or nobody knows.
    Fine,
    /// Some do not work.
    Some,
    /// None works.
    None,
}

pub(super) fn uplinks(seen: &OvsSnapshot, bridge: &str) -> Uplinks {
    let cards = seen
        .interfaces
        .iter()
        .filter(|card| card.bridge == bridge && card.role == InterfaceRole::Physical && card.bond.is_none())
        .map(|card| match seen.bonds.iter().find(|bond| bond.kind == BondKind::Kernel && bond.name == card.name) {
            Some(bond) => bond.active_members() > 0 || !bond.is_told(),
            None => link_up(seen, card) != Some(false) && complaint(card).is_none(),
        });
    let bonds = seen
        .bonds
        .iter()
        .filter(|bond| bond.kind == BondKind::Ovs && bridge_of(seen, bond) == Some(bridge))
        .map(|bond| !is_known(seen, bond) || bond.active_members() > 0);
    let works: Vec<bool> = cards.chain(bonds).collect();
    match works.iter().filter(|works| **works).count() {
        0 if !works.is_empty() => Uplinks::None,
        some if some < works.len() => Uplinks::Some,
        _ => Uplinks::Fine,
    }
}

fn bridge_of<'a>(seen: &'a OvsSnapshot, bond: &Bond) -> Option<&'a str> {
    let member = seen.interfaces.iter().find(|member| member.bond.as_deref() == Some(&bond.name))?;
    Some(&member.bridge)
}

fn bridges(seen: &OvsSnapshot, all: &mut Vec<Finding>) {
    for bridge in &seen.bridges {
        // A switch that hangs takes all its bridges with it, and is said once.
        if bridge.flows.is_none() && seen.switch.is_responsive() {
            let message = format!("Bridge {} does not answer OpenFlow although ovs-vswitchd runs", bridge.name);
            let finding = Finding::new(IssueType::BridgeUnresponsive, &bridge.name, message);
            // One answer may come too late on a host that is busy for a moment.
            all.push(finding.after(Patience::Observations(2)));
        }
        if uplinks(seen, &bridge.name) == Uplinks::None {
            let message = format!("No card or bond of bridge {} works: it leads nowhere", bridge.name);
            all.push(Finding::new(IssueType::BridgeIsolated, &bridge.name, message));
        }
    }
}

fn bond(bond: &Bond) -> Option<Finding> {
    let out: Vec<String> = bond
        .members
        .iter()
        .filter_map(|member| {
            let lacp = member.lacp.as_deref().filter(|lacp| bond.lacp && *lacp != "current");
            match (bond.is_unsound(member), member.link_up, lacp) {
                (true, Some(false), _) => Some(format!("{}: no link", member.name)),
                (_, _, Some(state)) => Some(format!("{}: the partner is silent, LACP {state}", member.name)),
                (true, _, None) => Some(format!("{}: not enabled", member.name)),
                (false, _, None) => None,
            }
        })
        .collect();
    let active = bond.active_members();
    let (type_, what) = if bond.members.is_empty() || (active == 0 && bond.is_told()) {
        (IssueType::BondDown, "has no member that carries traffic")
    } else if bond.members.iter().any(|member| bond.is_unsound(member)) {
        (IssueType::BondDegraded, "has members that carry no traffic")
    } else if !out.is_empty() {
        (IssueType::LacpPartnerSilent, "carries traffic to a partner that does not speak LACP")
    } else {
        return None;
    };
    let details = if out.is_empty() { String::new() } else { format!(" ({})", out.join("; ")) };
    Some(Finding::new(type_, &bond.name, format!("Bond {} {what}{details}", bond.name)))
}

/// What is wrong with the device of an interface, by the switch's words or by what it knows of it.
pub(super) fn complaint(interface: &Interface) -> Option<&str> {
    let device = matches!(interface.role, InterfaceRole::Physical | InterfaceRole::Instance);
    match &interface.error {
        Some(error) => Some(error),
        None if interface.ofport == Some(-1) => Some("its device could not be opened"),
        None if device && interface.ifindex == Some(0) => Some("its device is gone"),
        None => None,
    }
}

fn interfaces(seen: &OvsSnapshot, all: &mut Vec<Finding>) {
    for interface in &seen.interfaces {
        let Interface { name, role, .. } = interface;
        // One that claims to be a VM's is an orphan, and given its time.
        let orphan = *role == InterfaceRole::Instance && interface.logical_port.is_some();
        if let Some(error) = complaint(interface).filter(|_| !orphan) {
            let message = format!("ovs-vswitchd cannot use interface {name}: {error}");
            all.push(Finding::new(IssueType::InterfaceError, name, message));
        } else if *role == InterfaceRole::Physical
            && interface.bond.is_none()
            && link_up(seen, interface) == Some(false)
        {
            let bond = seen.bonds.iter().any(|bond| bond.name == *name);
            if !bond {
                all.push(Finding::new(IssueType::LinkDown, name, format!("Card {name} has no link")));
            }
        }
    }
}
