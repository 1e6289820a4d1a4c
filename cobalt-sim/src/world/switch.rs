//! The virtual switch of a host, and how it breaks.
//!
//! Only what is out of order is stored. The ports follow from the host's domains, so that fifty thousand VMs have
//! fifty thousand ports for nothing.

use std::collections::BTreeSet;

use cobalt_core::{ids::HostName, ovs::OvsChange};

use super::{State, World};
use crate::error::Result;

/// How a daemon of the switch is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DaemonState {
    /// It answers.
    #[default]
    Running,
    /// It has a socket and does not answer.
    Hung,
    /// Nobody listens.
    Dead,
}

/// Something out of order on a switch, or in order again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SwitchFault {
    /// `ovs-vswitchd` is in this state.
    Switch(DaemonState),
    /// `ovsdb-server` is in this state.
    Database(DaemonState),
    /// `ovn-controller` is in this state.
    Controller(DaemonState),
    /// The southbound database can be reached, or not.
    Southbound(bool),
    /// The link of this card is up, or not.
    Link(String, bool),
    /// The bond's partner speaks LACP, or not. The links stay up.
    Lacp(bool),
    /// A port whose device is gone: it claims this logical port.
    OrphanPort(String),
    /// So many flows that nothing explains.
    StaleFlows(u64),
    /// Everything is in order again.
    Repaired,
}

/// What is out of order.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    pub(crate) vswitchd: DaemonState,
    pub(crate) database: DaemonState,
    pub(crate) controller: DaemonState,
    pub(crate) southbound_lost: bool,
    pub(crate) links_down: BTreeSet<String>,
    pub(crate) lacp_silent: bool,
    pub(crate) orphans: BTreeSet<String>,
    pub(crate) stale_flows: u64,
}

impl Switch {
    /// A reboot starts every daemon anew and forgets what only memory held.
    pub(crate) fn recover(&mut self) {
        self.vswitchd = DaemonState::Running;
        self.database = DaemonState::Running;
        self.controller = DaemonState::Running;
        self.stale_flows = 0;
    }
}

impl World {
    /// Breaks a part of a host's switch, or mends it.
    pub fn switch_fault(&self, host: &HostName, fault: SwitchFault) -> Result<()> {
        self.with(|state| {
            let id = state.find("break the switch", host)?;
            let text = format!("{host}: switch: {fault:?}");
            let host = state.host_mut(id);
            let connected = host.switch.database == DaemonState::Running;
            host.switch.apply(fault);
            let connects = host.switch.database == DaemonState::Running;
            if connected != connects {
                host.switch_changes.publish(&OvsChange::Connected(connects));
            } else if connects {
                host.switch_changes.publish(&OvsChange::Changed);
            }
            State::note(state, text);
            Ok(())
        })
    }
}

impl Switch {
    fn apply(&mut self, fault: SwitchFault) {
        match fault {
            SwitchFault::Switch(daemon) => self.vswitchd = daemon,
            SwitchFault::Database(daemon) => self.database = daemon,
            SwitchFault::Controller(daemon) => self.controller = daemon,
            SwitchFault::Southbound(reachable) => self.southbound_lost = !reachable,
            SwitchFault::Link(name, true) => {
                self.links_down.remove(&name);
            }
            SwitchFault::Link(name, false) => {
                self.links_down.insert(name);
            }
            SwitchFault::Lacp(speaks) => self.lacp_silent = !speaks,
            SwitchFault::OrphanPort(port) => {
                self.orphans.insert(port);
            }
            SwitchFault::StaleFlows(flows) => self.stale_flows = flows,
            SwitchFault::Repaired => *self = Self::default(),
        }
    }
}
