//! The virtual switch of a host, and how it breaks.
//!
//! Only what is out of order is stored. The ports follow from the host's domains, so that fifty thousand VMs have
//! fifty thousand ports for nothing.

use std::collections::{BTreeMap, BTreeSet};

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

/// Why a port belongs to no VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Orphan {
    /// Its device never existed, and the switch says so.
    NeverOpened,
    /// Its device vanished, which only the ifindex tells.
    DeviceGone,
    /// OVN has no such logical port.
    NoLogicalPort,
    /// Another port of the host claims the same, and has it.
    Duplicate,
    /// The logical port is bound to another host.
    Elsewhere,
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
    /// `ovn-controller` is connected to the switch, or not.
    OpenFlow(bool),
    /// `ovn-controller` is this many configuration steps behind.
    Lag(u64),
    /// The switch does not take up its configuration, or does.
    Pending(bool),
    /// This bridge answers, or not.
    Bridge(String, bool),
    /// The link of this card is up, or not.
    Link(String, bool),
    /// The switch complains about this interface.
    InterfaceError(String),
    /// The bond's partner speaks LACP, or not. The links stay up.
    Lacp(bool),
    /// `br-provider` has a bond of the kernel's instead of a card: `bond1` of `eno1` and `eno2`. Or not.
    KernelBond(bool),
    /// A port whose device is gone: it claims this logical port.
    OrphanPort(String),
    /// A port that claims this logical port and should not.
    Orphan(Orphan, String),
    /// This logical port is bound to the host, and nothing there claims it.
    Unplugged(String),
    /// There is a tunnel to this host, which is no more.
    StaleTunnel(String),
    /// So many flows that nothing explains.
    StaleFlows(u64),
    /// So many flows more than usual, all of them explained.
    Flows(u64),
    /// So many packets were dropped by `eth3`.
    Drops(u64),
    /// Everything is in order again.
    Repaired,
}

impl SwitchFault {
    /// Whether the switch's database tells of it. What hangs or dies leaves the database as it was, and what only the
    /// daemons know is not in it.
    fn is_told(&self) -> bool {
        matches!(
            self,
            Self::Database(_)
                | Self::Pending(_)
                | Self::Link(..)
                | Self::InterfaceError(_)
                | Self::KernelBond(_)
                | Self::OrphanPort(_)
                | Self::Orphan(..)
                | Self::StaleTunnel(_)
                | Self::Repaired
        )
    }
}

/// What is out of order.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    pub(crate) vswitchd: DaemonState,
    pub(crate) database: DaemonState,
    pub(crate) controller: DaemonState,
    pub(crate) southbound_lost: bool,
    pub(crate) openflow_lost: bool,
    pub(crate) lag: u64,
    pub(crate) pending: bool,
    pub(crate) bridges_silent: BTreeSet<String>,
    pub(crate) links_down: BTreeSet<String>,
    pub(crate) errors: BTreeSet<String>,
    pub(crate) lacp_silent: bool,
    pub(crate) kernel_bond: bool,
    pub(crate) orphans: BTreeMap<String, Orphan>,
    pub(crate) unplugged: BTreeSet<String>,
    pub(crate) stale_tunnels: BTreeSet<String>,
    pub(crate) stale_flows: u64,
    pub(crate) more_flows: u64,
    pub(crate) drops: u64,
}

impl Switch {
    /// A reboot starts every daemon anew and forgets what only memory held.
    pub(crate) fn recover(&mut self) {
        self.vswitchd = DaemonState::Running;
        self.database = DaemonState::Running;
        self.controller = DaemonState::Running;
        self.openflow_lost = false;
        self.pending = false;
        self.bridges_silent.clear();
        self.stale_flows = 0;
        self.more_flows = 0;
        self.drops = 0;
    }
}

impl World {
    /// Breaks a part of a host's switch, or mends it.
    pub fn switch_fault(&self, host: &HostName, fault: SwitchFault) -> Result<()> {
        self.with(|state| {
            let id = state.find("break the switch", host)?;
            let text = format!("{host}: switch: {fault:?}");
            let host = state.host_mut(id);
            let told = fault.is_told();
            let connected = host.switch.database == DaemonState::Running;
            host.switch.apply(fault);
            let connects = host.switch.database == DaemonState::Running;
            if connected != connects {
                host.switch_changes.publish(&OvsChange::Connected(connects));
            } else if connects && told {
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
            SwitchFault::OpenFlow(connected) => self.openflow_lost = !connected,
            SwitchFault::Lag(steps) => self.lag = steps,
            SwitchFault::Pending(pending) => self.pending = pending,
            SwitchFault::Bridge(name, true) => {
                self.bridges_silent.remove(&name);
            }
            SwitchFault::Bridge(name, false) => {
                self.bridges_silent.insert(name);
            }
            SwitchFault::InterfaceError(name) => {
                self.errors.insert(name);
            }
            SwitchFault::Lacp(speaks) => self.lacp_silent = !speaks,
            SwitchFault::KernelBond(there) => self.kernel_bond = there,
            SwitchFault::OrphanPort(port) => {
                self.orphans.insert(port, Orphan::NeverOpened);
            }
            SwitchFault::Orphan(why, port) => {
                self.orphans.insert(port, why);
            }
            SwitchFault::Unplugged(port) => {
                self.unplugged.insert(port);
            }
            SwitchFault::StaleTunnel(host) => {
                self.stale_tunnels.insert(host);
            }
            SwitchFault::StaleFlows(flows) => self.stale_flows = flows,
            SwitchFault::Flows(flows) => self.more_flows = flows,
            SwitchFault::Drops(packets) => self.drops = packets,
            SwitchFault::Repaired => *self = Self::default(),
        }
    }
}
