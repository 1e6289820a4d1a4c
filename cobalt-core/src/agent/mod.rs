//! The node agent: it publishes how one host is.
//!
//! It works with any [`HypervisorBackend`](crate::backend::HypervisorBackend) and any
//! [`HostSystem`](crate::host::HostSystem); what a driver lacks is left out of the status, and what could not be read
//! keeps its last value under a condition that says so.
//!
//! [`NodeAgent`] is the loop, [`status::decide`] what it publishes, [`program`] the arguments of a program around it.

mod collect;
mod node;
pub mod program;
mod report;
pub mod status;

pub use self::{
    node::{Config, FIELD_MANAGER, NodeAgent},
    report::{Report, Section},
};
