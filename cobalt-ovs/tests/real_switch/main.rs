//! Against real daemons: Open vSwitch and OVN on a node of their own on this machine.
//!
//! They need root and the packages that `cargo xtask test` installs; elsewhere each test says that it was skipped.
#![allow(clippy::unwrap_used)]

mod bonds;
mod contract;
mod daemons;
mod database;
mod flows;
mod mirror;
mod openflow;
mod packets;
mod ports;
mod rig;
mod snapshot;
