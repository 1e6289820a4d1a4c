//! What the daemons say on their control sockets, understood.
//!
//! The control sockets answer in words for people, and the words change between versions. So every function here takes
//! what it knows and passes over the rest: a line that nobody has seen before costs that line, never the answer, and
//! nothing here fails. What was not said is `None`, or is not in the list.
//!
//! | Command | Function |
//! |---|---|
//! | `version` | [`version`] |
//! | `bond/show`, `lacp/show` | [`bonds`], [`lacp`] |
//! | `dpif/show`, `dpctl/show -s`, `upcall/show` | [`ports`], [`datapaths`], [`upcalls`] |
//! | `dpif-netdev/pmd-stats-show`, `pmd-rxq-show`, `pmd-perf-show` | [`pmds`] |
//! | `fdb/show BRIDGE` | [`fdb`] |
//! | `coverage/show`, `memory/show` | [`coverage`], [`memory`] |
//! | `ofproto/trace BRIDGE FLOW` | [`packet`] makes the second parameter, [`trace`] reads the answer |
//! | `connection-status`, `debug/dump-local-bindings` of `ovn-controller` | [`connected`], [`bindings`] |
//!
//! ```
//! use cobalt_ovs::show;
//!
//! let bonds = show::bonds("---- bond0 ----\nbond_mode: balance-tcp\n\nmember eth1: disabled\n  may_enable: false\n");
//! assert_eq!(bonds[0].mode.as_deref(), Some("balance-tcp"));
//! assert!(!bonds[0].members[0].enabled);
//! ```

pub use self::{
    bond::{BondReport, LacpMember, LacpReport, MemberReport, bonds, lacp},
    controller::{LocalBinding, bindings, connected},
    counters::{coverage, memory, version},
    datapath::{Port, Ports, Upcalls, datapaths, fdb, ports, upcalls},
    packet::{PacketError, packet},
    pmd::pmds,
    trace::trace,
};

mod bond;
mod controller;
mod counters;
mod datapath;
mod packet;
mod pmd;
mod trace;

/// Lines looked at, at most. A node with ten thousand ports says less.
const MAX_LINES: usize = 200_000;

/// The lines of a text, without what is at their ends.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take(MAX_LINES).map(str::trim_end)
}

/// `key: value`.
fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    Some((key.trim(), value.trim()))
}

/// How far a line is moved to the right.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
