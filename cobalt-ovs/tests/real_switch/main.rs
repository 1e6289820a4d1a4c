//! Against real daemons: Open vSwitch and OVN on a node of their own on this machine.
//!
//! They need root and the packages that `cargo xtask test` installs; elsewhere each test says that it was skipped.
#![allow(clippy::unwrap_used)]

mod database;
mod openflow;
mod rig;
