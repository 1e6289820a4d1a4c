//! What must be so before a host is tested.

use std::{fmt, str::FromStr};

use crate::{
    api::{Bridge, Condition, OVSNode, condition_types},
    operator::{AgentSeen, Snapshot, SwitchSeen},
};

/// The word of the OVS agent for a bridge that works.
const ACTIVE: &str = "Active";

/// Checks before the smoke test; all are off unless configured. None is polled: what they look at wakes the operator
/// when it changes.
///
/// Whether a host reaches its storage is for those to say who can tell: a [condition](Checks::conditions) that a storage
/// agent writes, or a smoke test that boots from a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// The agent is connected to libvirt.
    pub libvirt: bool,
    /// libvirt is this new.
    pub libvirt_version: Option<LibvirtVersion>,
    /// The switch has these bridges, and they are healthy.
    pub bridges: Vec<String>,
    /// These conditions of the Hypervisor are `True`.
    pub conditions: Vec<String>,
}

impl Checks {
    /// The first thing that is not so, as what is waited for.
    pub(super) fn unmet(&self, seen: &Snapshot) -> Option<String> {
        let libvirt = self.libvirt.then(|| unmet_libvirt(seen)).flatten();
        libvirt
            .or_else(|| self.unmet_version(seen))
            .or_else(|| self.bridges.iter().find_map(|bridge| unmet_bridge(&seen.switch, bridge)))
            .or_else(|| self.conditions.iter().find_map(|type_| unmet_condition(seen, type_)))
    }

    fn unmet_version(&self, seen: &Snapshot) -> Option<String> {
        let wanted = self.libvirt_version.as_ref()?;
        let told = seen.status().lib_virt_version;
        match told.as_deref().map(str::parse::<LibvirtVersion>) {
            Some(Ok(found)) if found >= *wanted => None,
            Some(Ok(found)) => Some(format!("libvirt {wanted} or newer: the host has {found}")),
            _ => Some(format!("libvirt {wanted} or newer: its agent has not told the version")),
        }
    }
}

/// What a silent agent said of libvirt is old.
fn unmet_libvirt(seen: &Snapshot) -> Option<String> {
    let type_ = condition_types::LIBVIRT_CONNECTION;
    if seen.agent == AgentSeen::Silent {
        return Some(format!("condition {type_}: the node agent gives no sign of life"));
    }
    unmet_condition(seen, type_)
}

fn unmet_condition(seen: &Snapshot, type_: &str) -> Option<String> {
    match seen.condition(type_) {
        Some(condition) if condition.is_true() => None,
        Some(Condition { status, reason, message, .. }) if message.is_empty() => {
            Some(format!("condition {type_}: it is {status} ({reason})"))
        }
        Some(Condition { status, reason, message, .. }) => {
            Some(format!("condition {type_}: it is {status} ({reason}): {message}"))
        }
        None => Some(format!("condition {type_}: nobody has written it")),
    }
}

fn unmet_bridge(switch: &SwitchSeen, name: &str) -> Option<String> {
    let why = match switch {
        SwitchSeen::NotYet => "the switch was not seen yet".to_owned(),
        SwitchSeen::NotInstalled => "the cluster has no OVSNodes".to_owned(),
        SwitchSeen::Known { node: None, .. } => "no OVS agent has told of this host".to_owned(),
        SwitchSeen::Known { fresh: false, .. } => "the OVS agent gives no sign of life".to_owned(),
        SwitchSeen::Known { node: Some(node), fresh: true } => match bridge(node, name) {
            None => "the switch has none of this name".to_owned(),
            Some(Bridge { status: Some(status), .. }) if status == ACTIVE => return None,
            Some(Bridge { status, .. }) => format!("it is {}", status.as_deref().unwrap_or("in an unknown state")),
        },
    };
    Some(format!("bridge {name}: {why}"))
}

fn bridge<'a>(node: &'a OVSNode, name: &str) -> Option<&'a Bridge> {
    node.status.as_ref()?.bridges.iter().flatten().find(|bridge| bridge.name == name)
}

/// A version of libvirt: numbers with dots between.
///
/// ```
/// use cobalt_core::operator::onboarding::LibvirtVersion;
///
/// let version = |text: &str| text.parse::<LibvirtVersion>();
/// assert!(version("10.0.0").unwrap() > version("9.11").unwrap());
/// assert!(version("N/A").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LibvirtVersion(Vec<u32>);

impl FromStr for LibvirtVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        let mut numbers = numbers.map_err(|_| "expected a version such as 9.0.0".to_owned())?;
        // 9.0 and 9.0.0 are one version.
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for LibvirtVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.clone();
        numbers.resize(numbers.len().max(3), 0);
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}
