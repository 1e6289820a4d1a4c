//! A node with a real Open vSwitch and a real OVN.
//!
//! ```text
//!   central: northbound, northd, southbound          tor: the switch at the other end of the cables
//!        │ (unix, tcp or ssl)                         │ swp1 ┐ LACP   │ swp3
//!   node: ovn-controller, ovs-vswitchd, ovsdb-server  │ eth1 ┤        │ eth3
//!        ├─ br-ex ────────────── bond0 ───────────────┴ eth2 ┘        │
//!        ├─ br-provider ───────────────────────────────────────────────┘
//!        └─ br-int ── tap-vm1 ═ vm1,  tap-vm2 ═ vm2,  a tunnel to the chassis hv2
//! ```
//!
//! Everything has namespaces of its own and the datapath is the one in userspace, so that no kernel module is needed.
//! Two differences to a machine in a rack remain: cables are pairs of virtual interfaces, and hv2 is a name and an
//! address in the southbound database, with nobody behind it.

mod central;
mod daemon;
mod faults;
mod node;
mod ports;
mod scale;
mod switch;

pub use central::Way;
pub use faults::{Daemon, Orphan};
pub use node::{Node, NodeOptions, Vm};
pub use scale::Scale;

pub use crate::requirements::{ovs_available as available, ovs_missing as missing};
