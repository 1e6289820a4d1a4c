//! The OVS agent as a program on a node with a real Open vSwitch and OVN: whatever is broken there is said in its
//! OVSNode, and taken back when it is mended.
//!
//! They need root and the packages that `cargo xtask test` installs; elsewhere each test says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../testing.rs"]
mod testing;

mod endpoints;
mod faults;
mod rig;
