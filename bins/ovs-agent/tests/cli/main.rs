//! The OVS agent as its users meet it: a program with arguments, in front of an API server on a socket.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../testing.rs"]
mod testing;

mod against_a_server;
mod arguments;
mod look;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cobalt-ovs-agent");
