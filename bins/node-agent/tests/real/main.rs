//! The node agent on hosts with a real libvirtd and a real QEMU: what happens there is what its objects say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../testing.rs"]
mod testing;

mod daemon;
mod incidents;
mod inventory;
mod migrations;
mod rig;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cobalt-node-agent");
