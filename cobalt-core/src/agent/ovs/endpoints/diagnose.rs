//! What is wrong, in words, and what to do about it. Pure: a snapshot in, findings out.
//!
//! It says how the switch is at one moment. Whether a port has been out of order for long enough to be called an
//! orphan is the business of the agent's loop, which sees it more than once.

use std::collections::BTreeMap;

use super::wire::{Diagnosis, Finding, Severity};
use crate::ovs::{Binding, Bond, BondMember, Bridge, Controller, Daemon, Interface, InterfaceRole, OvsSnapshot};

/// How many findings an answer lists.
pub const LISTED: usize = 200;

/// Everything that is wrong with the switch.
///
/// ```
/// use cobalt_core::agent::ovs::endpoints::diagnose;
/// # use cobalt_core::{jiff::Timestamp, ovs::{Daemon, OvsSnapshot}};
/// # let snapshot = OvsSnapshot {
/// #     at: Timestamp::UNIX_EPOCH, database_connected: true, database: Daemon::Responsive { version: None },
/// #     switch: Daemon::Unresponsive, dpdk: None, bridges: vec![], interfaces: vec![], bonds: vec![],
/// #     controller: None, configuration_pending: false,
/// # };
///
/// let diagnosis = diagnose::switch(&snapshot); // of a host whose ovs-vswitchd hangs
/// assert_eq!(diagnosis.findings[0].kind, "DaemonUnresponsive");
/// assert!(diagnosis.findings[0].advice.contains("restart"));
/// ```
pub fn switch(snapshot: &OvsSnapshot) -> Diagnosis {
    let mut found = daemons(snapshot);
    if let Some(controller) = &snapshot.controller {
        found.extend(ovn(controller));
    }
    found.extend(snapshot.bridges.iter().filter_map(|bridge| silent_bridge(snapshot, bridge)));
    found.extend(snapshot.bonds.iter().flat_map(bond));
    let claims = claims(snapshot);
    for interface in &snapshot.interfaces {
        // What only counts is for whoever asks about that port.
        found.extend(of_port(interface, &claims).into_iter().filter(|finding| finding.severity != Severity::Info));
    }
    finish(snapshot, found, "the switch")
}

/// What is wrong with one port, and with what it depends on.
pub fn port(snapshot: &OvsSnapshot, interface: &Interface) -> Diagnosis {
    let mut found = of_port(interface, &claims(snapshot));
    found.extend(counted(interface));
    if let Some(name) = &interface.bond
        && let Some(of) = snapshot.bonds.iter().find(|bond| bond.name == *name)
    {
        found.extend(bond(of));
    }
    if let Some(of) = snapshot.bridges.iter().find(|bridge| bridge.name == interface.bridge) {
        found.extend(silent_bridge(snapshot, of));
        if of.total_flows() == Some(0) {
            found.push(finding(
                Severity::Warning,
                "NoFlows",
                &of.name,
                format!("bridge {} has no flows at all: it forwards nothing", of.name),
                "look at whoever writes its flows, which is ovn-controller for br-int",
            ));
        }
    }
    found.extend(daemons(snapshot));
    if let (Some(controller), Some(_)) = (&snapshot.controller, &interface.logical_port) {
        found.extend(ovn(controller));
    }
    finish(snapshot, found, &format!("port {}", interface.name))
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

fn finding(
    severity: Severity,
    kind: &str,
    object: &str,
    message: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding {
        severity,
        kind: kind.to_owned(),
        object: object.to_owned(),
        message: message.into(),
        advice: advice.into(),
    }
}

fn daemon(daemon: &Daemon, name: &str, consequence: &str) -> Option<Finding> {
    let (kind, message) = match daemon {
        Daemon::Responsive { .. } => return None,
        Daemon::Unresponsive => ("DaemonUnresponsive", format!("{name} runs and does not answer: {consequence}")),
        Daemon::Absent => ("DaemonAbsent", format!("{name} does not run: {consequence}")),
    };
    let advice = match daemon {
        Daemon::Unresponsive => {
            format!(
                "read its log and keep a stack trace (gdb -p PID) before you restart {name}; see whether the host lacks CPU or memory"
            )
        }
        _ => format!("start {name}, and read its log and the kernel's for why it ended"),
    };
    Some(finding(Severity::Critical, kind, name, message, advice))
}

fn daemons(snapshot: &OvsSnapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(daemon(&snapshot.switch, "ovs-vswitchd", "links, flows and bonds below are what was last known"));
    found.extend(daemon(&snapshot.database, "ovsdb-server", "nothing about the switch can be changed"));
    if !snapshot.database_connected && snapshot.database.is_responsive() {
        found.push(finding(
            Severity::Critical,
            "DatabaseDisconnected",
            "ovsdb-server",
            "the agent has no connection to the switch's database: what is said here is what was last known",
            "see whether its socket (db.sock) is the one the agent is configured for, and read the agent's log",
        ));
    }
    // While the switch does not run this is no news.
    if snapshot.configuration_pending && snapshot.switch.is_responsive() {
        found.push(finding(
            Severity::Warning,
            "ConfigurationPending",
            "ovs-vswitchd",
            "the database has a change that the switch has not taken up",
            "ask again in a moment; if it stays, read the log of ovs-vswitchd for what it cannot do",
        ));
    }
    found
}

fn ovn(controller: &Controller) -> Vec<Finding> {
    let name = "ovn-controller";
    if let Some(down) = daemon(&controller.daemon, name, "flows stay as they are and follow no change") {
        return vec![down];
    }
    let mut found = Vec::new();
    if !controller.southbound_connected {
        let place = controller.southbound.as_deref().unwrap_or("(not configured)");
        found.push(finding(
            Severity::Critical,
            "SouthboundDisconnected",
            name,
            format!("ovn-controller has no connection to the southbound database at {place}: new ports get no flows"),
            "see whether that address can be reached from the host, and whether the database runs; for ssl, the certificates",
        ));
    }
    if controller.openflow_connected == Some(false) {
        found.push(finding(
            Severity::Critical,
            "OpenFlowDisconnected",
            name,
            "ovn-controller has no OpenFlow connection to the switch: it changes no flow",
            "see whether ovn-bridge names a bridge that exists, and read the log of ovn-controller",
        ));
    }
    if let Some(lag) = controller.lag.filter(|lag| *lag > 0) {
        found.push(finding(
            Severity::Warning,
            "SouthboundLag",
            name,
            format!("the host is {lag} configuration steps behind the cloud's"),
            "ask again in a moment; if it grows, ovn-controller is overloaded or cannot reach the southbound database",
        ));
    }
    for port in controller.unplugged.iter().flatten() {
        found.push(finding(
            Severity::Warning,
            "UnpluggedPort",
            port,
            format!("the cloud has put logical port {port} on this host, and no interface claims it"),
            "see whether its VM runs here; if it does, its interface was not plugged into br-int",
        ));
    }
    found
}

fn silent_bridge(snapshot: &OvsSnapshot, bridge: &Bridge) -> Option<Finding> {
    // A switch that does not run is said once.
    (bridge.flows.is_none() && snapshot.switch.is_responsive()).then(|| {
        finding(
            Severity::Critical,
            "BridgeUnresponsive",
            &bridge.name,
            format!("bridge {} does not answer to OpenFlow", bridge.name),
            "see whether its management socket is there, and read the log of ovs-vswitchd",
        )
    })
}

fn bond(bond: &Bond) -> Vec<Finding> {
    let name = &bond.name;
    let (enabled, all) = (bond.active_members(), bond.members.len());
    let mut found = Vec::new();
    if enabled == 0 {
        found.push(finding(
            Severity::Critical,
            "BondDown",
            name,
            format!("bond {name} sends over none of its {all} members: the host is cut off behind it"),
            "look at the members below, and at the port channel of the physical switch",
        ));
    } else if !bond.members.iter().all(|member| bond.is_sound(member)) {
        found.push(finding(
            Severity::Warning,
            "BondDegraded",
            name,
            format!("bond {name} sends over {enabled} of its {all} members"),
            "look at the members below; the next failure may cut the host off",
        ));
    }
    found.extend(bond.members.iter().filter(|member| !bond.is_sound(member)).map(|out| member(bond, out)));
    found
}

fn member(bond: &Bond, member: &BondMember) -> Finding {
    let BondMember { name, .. } = member;
    let of = &bond.name;
    if member.link_up == Some(false) {
        return finding(
            Severity::Warning,
            "LinkDown",
            name,
            format!("member {name} of bond {of} has no link"),
            "check cable, optics and the port of the physical switch",
        );
    }
    match member.lacp.as_deref() {
        Some(state) if state != "current" => finding(
            Severity::Warning,
            "LacpPartnerSilent",
            name,
            format!("member {name} of bond {of} has a link, and its partner says nothing by LACP ({state})"),
            "see whether the port of the physical switch is in the right port channel and speaks LACP",
        ),
        _ => finding(
            Severity::Warning,
            "MemberDisabled",
            name,
            format!("member {name} of bond {of} is disabled although its link is up"),
            "see bond/show on the host for why; after a link came back, updelay may still run",
        ),
    }
}

/// Which ports claim to be a logical port.
type Claims<'a> = BTreeMap<&'a str, Vec<&'a str>>;

fn claims(snapshot: &OvsSnapshot) -> Claims<'_> {
    let mut claims = Claims::new();
    for port in &snapshot.interfaces {
        if let Some(logical) = &port.logical_port {
            claims.entry(logical).or_default().push(&port.name);
        }
    }
    claims
}

fn of_port(port: &Interface, claims: &Claims<'_>) -> Vec<Finding> {
    let name = &port.name;
    let mut found = Vec::new();
    let has_device = matches!(port.role, InterfaceRole::Physical | InterfaceRole::Instance);
    let never_opened = port.ofport == Some(-1);
    if let Some(error) = &port.error {
        found.push(finding(
            Severity::Critical,
            "InterfaceError",
            name,
            format!("the switch cannot use {name}: {error}"),
            if never_opened {
                "the device does not exist: if its VM is gone, delete the port (ovs-vsctl del-port); if the VM runs, its tap was made under another name"
            } else {
                "mend what the switch names, or delete the port if nothing needs it"
            },
        ));
    } else if never_opened {
        found.push(finding(
            Severity::Critical,
            "PortNotOpened",
            name,
            format!("the switch could not open {name}, so it has no OpenFlow port"),
            "see whether a device of that name exists on the host",
        ));
    } else if has_device && port.ifindex == Some(0) {
        found.push(finding(
            Severity::Critical,
            "DeviceVanished",
            name,
            format!("the device of {name} has vanished, and the port is still there"),
            "if its VM is gone, delete the port; if the VM runs, plug it again",
        ));
    } else if port.link_up == Some(false) && port.bond.is_none() {
        found.push(link_down(port));
    }
    if let Some(logical) = &port.logical_port {
        found.extend(claim(port, logical, claims));
    }
    if port.role == InterfaceRole::Tunnel && port.remote_known == Some(false) {
        let remote = port.remote_chassis.as_deref().unwrap_or("a host");
        found.push(finding(
            Severity::Warning,
            "StaleTunnel",
            name,
            format!("the tunnel {name} leads to {remote}, which the cloud no longer has"),
            "ovn-controller should remove it; if it stays, look at ovn-controller first",
        ));
    }
    found
}

fn link_down(port: &Interface) -> Finding {
    let name = &port.name;
    let (severity, advice) = match port.role {
        InterfaceRole::Physical => (Severity::Critical, "check cable, optics and the port of the physical switch"),
        InterfaceRole::Instance => (
            Severity::Warning,
            "see whether the VM runs and has not set its card down; a VM that boots is down for a moment",
        ),
        // A bridge's own port is down until somebody gives it an address.
        _ => (Severity::Info, "nothing, unless the host itself should use it"),
    };
    finding(severity, "LinkDown", name, format!("{name} has no link"), advice)
}

fn claim(port: &Interface, logical: &str, claims: &Claims<'_>) -> Vec<Finding> {
    let name = &port.name;
    let mut found = Vec::new();
    let others: Vec<&str> = claims.get(logical).into_iter().flatten().copied().filter(|other| other != name).collect();
    if !others.is_empty() {
        found.push(finding(
            Severity::Critical,
            "DuplicateClaim",
            name,
            format!(
                "{name} and {} all claim to be logical port {logical}: only one of them gets its traffic",
                others.join(", ")
            ),
            "find the one the VM uses (virsh domiflist), and delete the others",
        ));
    }
    match &port.binding {
        None | Some(Binding::Here) => {}
        Some(Binding::Unknown) => found.push(finding(
            Severity::Warning,
            "UnknownLogicalPort",
            name,
            format!("{name} claims to be logical port {logical}, which the cloud does not have"),
            "a port that was just made is known in a moment; if it stays, its VM or its port in Neutron is gone: delete the port",
        )),
        Some(Binding::Elsewhere(place)) => found.push(finding(
            Severity::Warning,
            "BoundElsewhere",
            name,
            format!("{name} claims to be logical port {logical}, which the cloud has at {place}"),
            "during a migration this is normal for a while; after it, the port here is a leftover: delete it",
        )),
    }
    found
}

/// Counters that should not count.
fn counted(port: &Interface) -> Option<Finding> {
    let bad = |(name, value): (&String, &u64)| {
        let suspicious = ["_dropped", "_critical", "_err", "_missed_critical", "collisions"];
        (*value > 0 && suspicious.iter().any(|end| name.ends_with(end))).then(|| format!("{name} {value}"))
    };
    let counted: Vec<String> = port.statistics.iter().filter_map(bad).collect();
    (!counted.is_empty()).then(|| {
        finding(
            Severity::Info,
            "Losses",
            &port.name,
            format!("{} has counted losses since it was made: {}", port.name, counted.join(", ")),
            "ask again: only if a number grows, packets are being lost now",
        )
    })
}

#[cfg(test)]
mod tests;
