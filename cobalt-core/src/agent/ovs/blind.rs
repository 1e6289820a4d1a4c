//! What a look cannot tell.
//!
//! That something is not found means that it is mended only where it would have been found. What depends on a daemon
//! that hangs, on a database that is away, or on a look that nobody has made yet, is neither there nor gone: an issue
//! that was published stays as it was until somebody can tell again.

use super::{
    Config,
    finding::{Finding, IssueType, OVN_CONTROLLER, OVSDB_SERVER, Patience, is_fresh, is_known, knows_links},
    memory::Memory,
};
use crate::{
    agent::Section,
    api::OVSNodeStatus,
    ovs::{Controller, Daemon, Interface, OvsSnapshot},
};

/// The issues that were published and are not among `found`, and that this snapshot cannot call mended, in the order of
/// findings and in the words of then.
pub(super) fn kept(
    found: &[Finding],
    previous: &OVSNodeStatus,
    seen: &OvsSnapshot,
    memory: &Memory,
    config: &Config,
) -> Vec<Finding> {
    let published = previous.issues.iter().flatten().filter_map(|issue| {
        let type_ = IssueType::ALL.into_iter().find(|type_| issue.type_.as_deref() == Some(type_.as_str()))?;
        let object = issue.object.as_deref().filter(|object| !object.is_empty())?;
        let again = found.iter().any(|finding| finding.type_ == type_ && finding.object == object);
        let kept = !again && !is_judged(type_, object, seen, memory, config);
        kept.then(|| Finding::new(type_, object, issue.message.as_str()))
    });
    let mut kept: Vec<Finding> = published.collect();
    kept.sort_by(|a, b| (a.type_, &a.object).cmp(&(b.type_, &b.object)));
    debug_assert!(kept.iter().all(|finding| finding.patience == Patience::None), "they have had their time");
    kept
}

/// Whether this snapshot, and what is remembered beside it, would show such an issue of this object if there were one.
fn is_judged(type_: IssueType, object: &str, seen: &OvsSnapshot, memory: &Memory, config: &Config) -> bool {
    use IssueType as T;
    let interface = || seen.interfaces.iter().find(|interface| interface.name == object);
    let has_bridge = || seen.bridges.iter().any(|bridge| bridge.name == object);
    // What is not in the copy of a database that is connected is not there. Of any other copy nobody knows.
    let unless_missing = seen.database_connected;
    match type_ {
        T::DatabaseDisconnected => true,
        T::DaemonUnresponsive | T::DaemonInaccessible | T::DaemonAbsent => match object {
            // Without a connection to its database that is what is said, and how the daemon is beside it.
            OVSDB_SERVER => seen.database_connected || !is_so(type_, &seen.database),
            OVN_CONTROLLER => seen.controller.is_some() || unless_missing,
            _ => true,
        },
        T::BridgeMissing => seen.database_connected || !config.required_bridges.iter().any(|name| name == object),
        T::BridgeUnresponsive if has_bridge() => seen.switch.is_responsive(),
        T::BridgeIsolated if has_bridge() => {
            knows_links(seen) && seen.bonds.iter().all(|bond| is_known(seen, bond) && bond.is_told())
        }
        T::BridgeUnresponsive | T::BridgeIsolated => unless_missing,
        T::BondDown | T::BondDegraded | T::LacpPartnerSilent => {
            let bond = seen.bonds.iter().find(|bond| bond.name == object);
            bond.map_or(unless_missing, |bond| is_known(seen, bond) && bond.is_told())
        }
        T::LinkDown => interface().map_or(unless_missing, |card| is_fresh(seen, card)),
        T::InterfaceError => interface().is_some() || unless_missing,
        T::ConfigurationPending => seen.database_connected,
        T::OrphanPort => interface().map_or(unless_missing, |port| knows_claim(port, seen)),
        T::SouthboundDisconnected | T::SouthboundUnresponsive | T::OpenFlowDisconnected => {
            knows_controller(type_, seen)
        }
        // What takes the southbound database is no longer said by an agent that is told not to read it.
        T::SouthboundLag | T::UnpluggedPort | T::StaleTunnel | T::StaleFlows if memory.without_southbound => true,
        T::SouthboundLag => knows_controller(type_, seen),
        T::UnpluggedPort => {
            let claimed = || seen.interfaces.iter().any(|port| port.logical_port.as_deref() == Some(object));
            knows_controller(type_, seen) || (seen.database_connected && claimed())
        }
        T::StaleTunnel => match interface().filter(|tunnel| tunnel.remote_chassis.is_some()) {
            Some(tunnel) => tunnel.remote_known.is_some() && knows_controller(type_, seen),
            None => unless_missing,
        },
        T::StaleFlows => matches!(memory.stale_flows, Section::Known(_)),
    }
}

/// Whether a daemon is as an issue of this type says.
fn is_so(type_: IssueType, daemon: &Daemon) -> bool {
    match daemon {
        Daemon::Responsive { .. } => false,
        Daemon::Unresponsive => type_ == IssueType::DaemonUnresponsive,
        Daemon::Inaccessible { .. } => type_ == IssueType::DaemonInaccessible,
        Daemon::Absent => type_ == IssueType::DaemonAbsent,
    }
}

/// Whether OVN's controller is there to tell, and told of this.
fn knows_controller(type_: IssueType, seen: &OvsSnapshot) -> bool {
    let Some(controller) = &seen.controller else { return seen.database_connected };
    controller.daemon.is_responsive()
        && match type_ {
            IssueType::SouthboundUnresponsive => {
                !controller.southbound_connected || controller.southbound_responsive.is_some() || !is_asked(controller)
            }
            IssueType::OpenFlowDisconnected => seen.switch.is_responsive() && controller.openflow_connected.is_some(),
            IssueType::SouthboundLag => controller.lag.is_some(),
            IssueType::UnpluggedPort => controller.unplugged.is_some(),
            _ => true,
        }
}

/// Whether the southbound database is one that is asked whether it answers: behind UNIX sockets only.
fn is_asked(controller: &Controller) -> bool {
    let remotes = controller.southbound.as_deref().unwrap_or_default();
    remotes.split(',').all(|remote| remote.trim().starts_with("unix:"))
}

/// Whether it is known what becomes of a port's claim. Where OVN's controller does not answer, the southbound database
/// knows that a port is bound here, and not which of two that claim it.
fn knows_claim(port: &Interface, seen: &OvsSnapshot) -> bool {
    let Some(logical) = &port.logical_port else { return true };
    if seen.controller.as_ref().is_none_or(|controller| controller.daemon.is_responsive()) {
        return true;
    }
    let same = |other: &&Interface| other.logical_port.as_ref() == Some(logical);
    port.binding.is_some() && seen.interfaces.iter().filter(same).count() == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        agent::ovs::{
            finding::find,
            status::decide,
            tests::{interface, now, sound},
        },
        api::Issue,
        ovs::{Binding, InterfaceRole},
    };

    type Change = fn(&mut OvsSnapshot, &mut Memory);

    fn issues(status: &OVSNodeStatus) -> Vec<Issue> {
        status.issues.clone().unwrap()
    }

    fn breaks(fault: Change) -> (OvsSnapshot, Memory) {
        let (mut seen, mut memory) = (sound(), Memory::of_stale_flows(Section::Known(BTreeMap::new())));
        fault(&mut seen, &mut memory);
        (seen, memory)
    }

    fn silent(seen: &mut OvsSnapshot) {
        for member in &mut seen.bonds[0].members {
            (member.enabled, member.lacp) = (Some(false), Some("expired".into()));
        }
    }

    fn controller(seen: &mut OvsSnapshot) -> &mut Controller {
        seen.controller.as_mut().unwrap()
    }

    fn tunnel(known: Option<bool>) -> Interface {
        let remote_chassis = Some("hv9".into());
        Interface { remote_chassis, remote_known: known, ..interface("ovn-hv9-0", "br-int", InterfaceRole::Tunnel) }
    }

    /// Each row: what is broken and then published, and what makes it unknowable while it is as broken as before.
    const ROWS: &[(&str, Change, Change)] = &[
        ("BondDown", |s, _| silent(s), |s, _| s.switch = Daemon::Unresponsive),
        ("BondDown", |s, _| silent(s), |s, _| s.bonds[0].members[0].enabled = None),
        ("BridgeIsolated", |s, _| silent(s), |s, _| s.switch = Daemon::Absent),
        ("BridgeUnresponsive", |s, _| s.bridges[0].flows = None, |s, _| s.switch = Daemon::Unresponsive),
        (
            "LinkDown",
            |s, _| {
                let card = interface("eth3", "br-ex", InterfaceRole::Physical);
                s.interfaces.push(Interface { link_up: Some(false), ..card });
            },
            |s, _| s.switch = Daemon::Absent,
        ),
        (
            "InterfaceError",
            |s, _| s.interfaces[0].error = Some("no such device".into()),
            // Begun anew while the database is away: nothing is known of any port.
            |s, _| (s.database_connected, s.interfaces) = (false, Vec::new()),
        ),
        (
            "ConfigurationPending",
            |s, _| s.configuration_pending = true,
            |s, _| {
                (s.database_connected, s.configuration_pending) = (false, false);
            },
        ),
        ("DaemonUnresponsive", |s, _| s.database = Daemon::Unresponsive, |s, _| s.database_connected = false),
        (
            "DaemonAbsent",
            |s, _| controller(s).daemon = Daemon::Absent,
            |s, _| {
                (s.database_connected, s.controller) = (false, None);
            },
        ),
        (
            "SouthboundDisconnected",
            |s, _| controller(s).southbound_connected = false,
            |s, _| {
                controller(s).daemon = Daemon::Unresponsive;
            },
        ),
        (
            "SouthboundUnresponsive",
            |s, _| {
                let controller = controller(s);
                (controller.southbound, controller.southbound_responsive) = (Some("unix:/sb".into()), Some(false));
            },
            |s, _| controller(s).southbound_responsive = None,
        ),
        (
            "OpenFlowDisconnected",
            |s, _| controller(s).openflow_connected = Some(false),
            |s, _| {
                controller(s).openflow_connected = None;
            },
        ),
        ("SouthboundLag", |s, _| controller(s).lag = Some(4), |s, _| controller(s).lag = None),
        (
            "UnpluggedPort",
            |s, _| controller(s).unplugged = Some(vec!["vm7".into()]),
            |s, _| {
                controller(s).unplugged = None;
            },
        ),
        (
            "StaleTunnel",
            |s, _| s.interfaces.push(tunnel(Some(false))),
            |s, _| {
                s.interfaces.last_mut().unwrap().remote_known = None;
            },
        ),
        (
            "StaleFlows",
            |_, m| m.stale_flows = Section::Known(BTreeMap::from([(7, 3)])),
            |_, m| {
                m.stale_flows = Section::Failed("no connection".into());
            },
        ),
        (
            "StaleFlows",
            |_, m| m.stale_flows = Section::Known(BTreeMap::from([(7, 3)])),
            |_, m| {
                m.stale_flows = Section::NotYet; // begun anew
            },
        ),
        (
            "OrphanPort",
            |s, _| s.interfaces[2].binding = Some(Binding::Unknown),
            |s, _| {
                (controller(s).daemon, s.interfaces[2].binding) = (Daemon::Unresponsive, None);
            },
        ),
        (
            "OrphanPort",
            |s, _| {
                let other = Interface { name: "tap2".into(), ..s.interfaces[2].clone() };
                s.interfaces.push(Interface { binding: Some(Binding::Elsewhere("tap1".into())), ..other });
            },
            // The southbound database says that the logical port is here, and no more.
            |s, _| (controller(s).daemon, s.interfaces[3].binding) = (Daemon::Unresponsive, Some(Binding::Here)),
        ),
    ];

    /// What was published by an agent that had all the time it needs.
    fn published(type_: &str, seen: &OvsSnapshot, memory: &Memory, config: &Config) -> OVSNodeStatus {
        let found = find(seen, memory, config);
        let finding = found.iter().find(|finding| finding.type_.as_str() == type_).expect(type_);
        let before = now() - std::time::Duration::from_secs(3600);
        let issue = Issue {
            severity: finding.type_.severity().as_str().into(),
            message: finding.message.clone(),
            detected_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(before)),
            type_: Some(type_.into()),
            object: Some(finding.object.clone()),
        };
        OVSNodeStatus { issues: Some(vec![issue]), ..OVSNodeStatus::default() }
    }

    #[test]
    fn what_became_unknowable_stays_as_it_was_published_and_what_is_mended_goes() {
        let config = Config::new("node-1");
        for (type_, fault, blindness) in ROWS {
            let (mut seen, mut memory) = breaks(*fault);
            let previous = published(type_, &seen, &memory, &config);
            let issue = issues(&previous).remove(0);
            let is_there = |status: &OVSNodeStatus| issues(status).contains(&issue);
            let of_type = |status: &OVSNodeStatus| {
                issues(status).iter().any(|other| other.type_ == issue.type_ && other.object == issue.object)
            };
            let decided = |seen: &OvsSnapshot, memory: &Memory, previous: &OVSNodeStatus| {
                decide(&Section::Known(seen.clone()), previous, memory, now(), &config)
            };
            assert!(is_there(&decided(&seen, &memory, &previous)), "{type_}: it stays while it is seen");
            blindness(&mut seen, &mut memory);
            let blind = decided(&seen, &memory, &previous);
            assert!(is_there(&blind), "{type_} is not mended: {:#?}", issues(&blind));
            let again = decided(&seen, &memory, &blind);
            assert_eq!(issues(&again), issues(&blind), "{type_}: nor news");
            let (seen, memory) = breaks(|_, _| {});
            assert!(!of_type(&decided(&seen, &memory, &blind)), "{type_} is mended");
        }
    }

    #[test]
    fn what_is_kept_still_counts_for_readiness() {
        let config = Config::new("node-1");
        let (mut seen, memory) = breaks(|s, _| s.interfaces.push(tunnel(Some(false))));
        let previous = published("StaleTunnel", &seen, &memory, &config);
        seen.interfaces.last_mut().unwrap().remote_known = None;
        let status = decide(&Section::Known(seen), &previous, &memory, now(), &config);
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!((ready.reason.as_str(), ready.is_true()), ("Degraded", true));
    }

    #[test]
    fn an_agent_that_is_told_not_to_read_the_southbound_database_keeps_nothing_that_takes_it() {
        let config = Config::new("node-1");
        let (mut seen, memory) = breaks(|s, _| s.interfaces.push(tunnel(Some(false))));
        let previous = published("StaleTunnel", &seen, &memory, &config);
        seen.interfaces.last_mut().unwrap().remote_known = None;
        let mut blind = Memory::of_stale_flows(Section::NotOffered);
        blind.without_southbound = true;
        let status = decide(&Section::Known(seen), &previous, &blind, now(), &config);
        assert_eq!(issues(&status), []);
    }

    #[test]
    fn a_thousand_that_became_unknowable_are_listed_and_counted_as_they_were() {
        let config = Config::new("node-1");
        let (mut seen, memory) = breaks(|_, _| {});
        let ports: Vec<String> = (0..1000).map(|number| format!("vm{number:04}")).collect();
        controller(&mut seen).unplugged = Some(ports);
        let mut patient = memory.clone();
        for looks in 0..4 {
            patient.observe(&seen, now() + config.probe * looks, &config);
        }
        let known = decide(&Section::Known(seen.clone()), &OVSNodeStatus::default(), &patient, now(), &config);
        assert_eq!(issues(&known).len(), 51);
        controller(&mut seen).unplugged = None;
        let blind = decide(&Section::Known(seen), &known, &patient, now(), &config);
        assert_eq!(issues(&blind), issues(&known));
    }
}
