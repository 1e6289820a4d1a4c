//! The parts every program shares, as their users see them.
#![allow(clippy::unwrap_used, missing_docs)]

mod admin;
mod apply;
mod args;
mod client;
mod cluster;
mod elections;
mod events;
mod lease;
mod queue;
mod shutdown;
mod telemetry;
#[cfg(feature = "otlp")]
mod traces;
mod watch;
