//! `cobaltctl ovs --local` on a node with a real Open vSwitch and OVN.
//!
//! They need root and the packages that `cargo xtask test` installs; elsewhere each test says that it was skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../testing.rs"]
mod testing;

mod answers;
mod captures;
mod rig;
