//! Orphan ports: ports that claim to be a VM's and are not.
//!
//! Five signs. None is proof on the first look, because libvirt, Nova and OVN make a port in steps.
//!
//! 1. The device could never be opened.
//! 2. The device is gone. The userspace datapath then says so by its ifindex alone.
//! 3. There is no such logical port.
//! 4. Another port of this host is that logical port.
//! 5. The logical port is bound to another host. That is also what a VM on its way here looks like, for as long as its
//!    memory is copied, so a port whose device lives is given much more time.

use std::collections::BTreeMap;

use super::{
    Config,
    finding::{Finding, IssueType, Patience, complaint},
};
use crate::ovs::{Binding, Interface, InterfaceRole, OvsSnapshot};

pub(super) fn find(seen: &OvsSnapshot, config: &Config) -> Vec<Finding> {
    let claims = |port: &&Interface| port.role == InterfaceRole::Instance && port.logical_port.is_some();
    let ports: Vec<&Interface> = seen.interfaces.iter().filter(claims).collect();
    let mut newest: BTreeMap<&str, &Interface> = BTreeMap::new();
    for port in &ports {
        let Some(logical) = port.logical_port.as_deref() else { continue };
        let newest = newest.entry(logical).or_insert(port);
        if port.ofport > newest.ofport {
            *newest = port;
        }
    }
    let orphan = |port: &&Interface| {
        let logical = port.logical_port.as_deref()?;
        let usual = Patience::Observations(config.observations);
        let (why, patience) = if let Some(error) = complaint(port) {
            (error.to_owned(), usual)
        } else {
            match &port.binding {
                Some(Binding::Here) => return None,
                Some(Binding::Unknown) => (format!("OVN has no logical port {logical}"), usual),
                Some(Binding::Elsewhere(other)) if seen.interfaces.iter().any(|here| here.name == *other) => {
                    (format!("logical port {logical} is {other}"), usual)
                }
                Some(Binding::Elsewhere(chassis)) => {
                    let why = format!("logical port {logical} is bound to chassis {chassis}");
                    (why, Patience::For(config.migration_grace))
                }
                // Nobody to ask. Of two that claim the same, OVN takes the newer.
                None => {
                    let other = newest.get(logical).filter(|newest| newest.name != port.name)?;
                    (format!("logical port {logical} is claimed by {} too", other.name), usual)
                }
            }
        };
        let message = format!("Orphan port detected: {}: {why}", port.name);
        Some(Finding::new(IssueType::OrphanPort, &port.name, message).after(patience))
    };
    ports.iter().filter_map(orphan).collect()
}
