//! What is wrong, in words, and what to do about it. Pure: a snapshot in, findings out.
//!
//! The rules are the agent's own ([`finding`]), so that doctor and OVSNode never disagree
//! about what is wrong and how bad it is. Two things differ: this is one moment, so what the OVSNode waits for (an orphan,
//! a bridge that does not answer, a lag) is told at once; and whoever asks about one port gets hints besides, which are no findings.

use super::wire::{Diagnosis, Finding, Severity};
use crate::{
    agent::ovs::{
        Config,
        finding::{self, IssueType, find},
        memory::Memory,
    },
    ovs::{Bond, BondKind, Interface, InterfaceRole, OvsSnapshot},
};

/// How many findings an answer lists.
pub const LISTED: usize = 200;

/// Everything that is wrong with the switch. What took a while to find out, stale flows, comes from `memory`.
///
/// ```
/// use cobalt_core::agent::ovs::{Config, endpoints::diagnose, memory::Memory};
/// # use cobalt_core::{jiff::Timestamp, ovs::{Daemon, OvsSnapshot}};
/// # let snapshot = OvsSnapshot {
/// #     at: Timestamp::UNIX_EPOCH, database_connected: true, database: Daemon::Responsive { version: None },
/// #     switch: Daemon::Unresponsive, dpdk: None, bridges: vec![], interfaces: vec![], bonds: vec![],
/// #     controller: None, configuration_pending: false,
/// # };
///
/// let config = Config::new("node-1");
/// let diagnosis = diagnose::switch(&snapshot, &Memory::default(), &config); // of a host whose ovs-vswitchd hangs
/// assert_eq!(diagnosis.findings[0].kind, "DaemonUnresponsive");
/// assert!(diagnosis.findings[0].advice.contains("restart"));
/// ```
pub fn switch(snapshot: &OvsSnapshot, memory: &Memory, config: &Config) -> Diagnosis {
    let mut found: Vec<Finding> = find(snapshot, memory, config).into_iter().map(told).collect();
    found.extend(snapshot.bonds.iter().filter_map(untold));
    finish(snapshot, found, "the switch")
}

/// What is wrong with one port, and with what it depends on.
pub fn port(snapshot: &OvsSnapshot, interface: &Interface, memory: &Memory, config: &Config) -> Diagnosis {
    let all = find(snapshot, memory, config).into_iter();
    let mut found: Vec<Finding> = all.filter(|finding| concerns(finding, interface)).map(told).collect();
    found.extend(hints(snapshot, interface));
    let below = |bond: &&Bond| interface.bond.as_deref() == Some(&bond.name) || interface.name == bond.name;
    found.extend(snapshot.bonds.iter().filter(below).filter_map(untold));
    finish(snapshot, found, &format!("port {}", interface.name))
}

/// Whether a port suffers from it.
fn concerns(finding: &finding::Finding, port: &Interface) -> bool {
    let object = finding.object.as_str();
    match finding.type_ {
        IssueType::DatabaseDisconnected | IssueType::ConfigurationPending => true,
        IssueType::DaemonUnresponsive | IssueType::DaemonInaccessible | IssueType::DaemonAbsent => {
            object != finding::OVN_CONTROLLER || port.logical_port.is_some()
        }
        IssueType::SouthboundDisconnected
        | IssueType::SouthboundUnresponsive
        | IssueType::SouthboundLag
        | IssueType::OpenFlowDisconnected => port.logical_port.is_some(),
        _ => object == port.name || object == port.bridge || Some(object) == port.bond.as_deref(),
    }
}

fn told(finding: finding::Finding) -> Finding {
    Finding {
        severity: match finding.type_.severity() {
            finding::Severity::Critical => Severity::Critical,
            finding::Severity::Warning => Severity::Warning,
        },
        kind: finding.type_.as_str().to_owned(),
        object: finding.object,
        message: finding.message,
        advice: finding.type_.advice().to_owned(),
    }
}

fn finish(snapshot: &OvsSnapshot, mut found: Vec<Finding>, what: &str) -> Diagnosis {
    found.sort_by_key(|finding| finding.severity);
    let of = |severity| found.iter().filter(|finding| finding.severity == severity).count();
    let (critical, warnings) = (of(Severity::Critical), of(Severity::Warning));
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let summary = match (critical, warnings) {
        (0, 0) => format!("nothing is wrong with {what}"),
        (0, _) => format!("{what} has {}", plural(warnings, "warning")),
        (_, 0) => format!("{what} has {}", plural(critical, "critical finding")),
        _ => format!("{what} has {} and {}", plural(critical, "critical finding"), plural(warnings, "warning")),
    };
    let omitted = found.len().saturating_sub(LISTED) as u64;
    found.truncate(LISTED);
    Diagnosis { at: snapshot.at, summary, findings: found, omitted }
}

/// What is not wrong by itself, and may explain what somebody sees on this port.
fn hints(snapshot: &OvsSnapshot, port: &Interface) -> Vec<Finding> {
    let name = &port.name;
    let mut found = Vec::new();
    if port.admin_up == Some(false) && port.role != InterfaceRole::Internal {
        let message = format!("{name} is set down on the host");
        found.push(hint("AdminDown", name, message, "whoever manages it has to set it up (ip link set DEVICE up)"));
    } else if port.link_up == Some(false) && port.role == InterfaceRole::Instance {
        let advice = "see whether the VM runs and has not set its card down; a VM that boots is down for a moment";
        found.push(hint("GuestLinkDown", name, format!("{name} has no link to its VM"), advice));
    }
    let others: Vec<&str> = snapshot
        .interfaces
        .iter()
        .filter(|other| other.name != *name && port.logical_port.is_some() && other.logical_port == port.logical_port)
        .map(|other| other.name.as_str())
        .collect();
    if !others.is_empty() {
        let logical = port.logical_port.as_deref().unwrap_or_default();
        let message =
            format!("logical port {logical} is claimed by {} too: only one gets its traffic", others.join(", "));
        found.push(hint(
            "DuplicateClaim",
            name,
            message,
            "find the one the VM uses (virsh domiflist), and delete the others",
        ));
    }
    if let Some(bridge) = snapshot.bridges.iter().find(|bridge| bridge.name == port.bridge)
        && bridge.total_flows() == Some(0)
    {
        let message = format!("bridge {} has no flows at all: it forwards nothing", bridge.name);
        let advice = "look at whoever writes its flows, which is ovn-controller for br-int";
        found.push(hint("NoFlows", &bridge.name, message, advice));
    }
    found.extend(counted(port));
    found
}

/// A bond of the kernel's of which nobody could tell whether it works, and which must not pass for a sound one.
fn untold(bond: &Bond) -> Option<Finding> {
    if bond.kind != BondKind::Kernel {
        return None;
    }
    let unknown: Vec<&str> =
        bond.members.iter().filter(|member| member.enabled.is_none()).map(|member| member.name.as_str()).collect();
    let message = format!("the kernel does not tell how LACP fares on {} of bond {}", unknown.join(", "), bond.name);
    let advice = "give the agent CAP_NET_ADMIN, or read /proc/net/bonding as root";
    (!unknown.is_empty()).then(|| hint("BondUnknown", &bond.name, message, advice))
}

fn hint(kind: &str, object: &str, message: String, advice: &str) -> Finding {
    Finding {
        severity: Severity::Info,
        kind: kind.to_owned(),
        object: object.to_owned(),
        message,
        advice: advice.to_owned(),
    }
}

/// Counters that should not count.
fn counted(port: &Interface) -> Option<Finding> {
    let bad = |(name, value): (&String, &u64)| {
        // The kernel's names, those of the switch's own datapath, and DPDK's.
        let suspicious = ["_dropped", "_drops", "_errors", "_err", "collisions"];
        (*value > 0 && suspicious.iter().any(|end| name.ends_with(end))).then(|| format!("{name} {value}"))
    };
    let counted: Vec<String> = port.statistics.iter().filter_map(bad).collect();
    (!counted.is_empty()).then(|| {
        let message = format!("{} has counted losses since it was made: {}", port.name, counted.join(", "));
        hint("Losses", &port.name, message, "ask again: only if a number grows, packets are being lost now")
    })
}

#[cfg(test)]
mod tests;
