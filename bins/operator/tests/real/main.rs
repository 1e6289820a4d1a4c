//! The operator as a program on a real Keystone, Placement, Glance and Nova, with real servers on three hosts.
//!
//! Kubernetes is simulated, on a socket. The node agents run here, and what their hosts run is what Nova's computes run.
//! Everything is judged by what Nova and Placement say to somebody else than the operator.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../testing.rs"]
mod testing;

mod drain;
mod guests;
mod kubelet;
mod life;
mod mixed;
mod sampler;
mod trouble;
mod world;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cobalt-operator");

/// The hosts. One begins with another's name, and one has dots in its own.
const HOSTS: [&str; 3] = ["hv-1", "hv-10", "hv-2.rack-a.example"];
