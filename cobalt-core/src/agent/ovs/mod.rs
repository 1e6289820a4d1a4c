//! The OVS agent: it publishes how the virtual switch of one host is, as an [`OVSNode`](crate::api::OVSNode).
//!
//! It works with any [`OvsInspector`](crate::ovs::OvsInspector) and only observes: nothing here removes a port or a flow.
//!
//! | Module | What it holds |
//! |---|---|
//! | [`finding`] | what can be wrong, and how it shows in a snapshot |
//! | [`memory`] | what was seen before: some findings count only after a while |
//! | [`status`] | from all that to the status, purely |
//! | [`figures`] | which moves of a counter are worth a write |
//! | [`exporter`] | the figures for Prometheus |
//! | [`endpoints`] | questions about the switch, answered over HTTPS |
//! | [`program`] | the arguments of a program around [`OvsAgent`] |

mod blind;
mod config;
pub mod endpoints;
pub mod exporter;
pub mod figures;
pub mod finding;
mod follow;
pub mod memory;
mod news;
mod once;
mod orphan;
pub mod program;
mod publisher;
mod stale;
pub mod status;
mod verdict;

pub use self::{
    config::Config,
    follow::{FIELD_MANAGER, OvsAgent, lease_name},
    once::{Once, once},
    stale::{Demand, Stands, look as look_for_stale_flows},
    verdict::Verdict,
};

#[cfg(test)]
mod tests;
