//! The node agent: it publishes how one host is.
//!
//! It works with any [`HypervisorBackend`](crate::backend::HypervisorBackend) and any
//! [`HostSystem`](crate::host::HostSystem); what a driver lacks is left out of the status, and what could not be read
//! keeps its last value under a condition that says so.
//!
//! [`NodeAgent`] is the loop, [`status::decide`] what it publishes, [`program`] the arguments of a program around it.
//! Everything else an agent does is a [`Part`].

mod beats;
mod ceph;
mod certificate;
mod collect;
pub mod exporter;
mod heartbeat;
pub mod incident;
mod migration;
mod node;
mod once;
pub mod ovs;
mod pace;
mod part;
pub mod program;
mod reboot;
mod report;
pub mod status;
mod update;

pub use self::{
    ceph::{Ceph, CephArgs, Monitor, Monitors, RBD_REACHABLE},
    certificate::{CERTIFICATE_REQUESTED, CertificateArgs, Certificates},
    heartbeat::{Heartbeat, HeartbeatArgs},
    migration::{MigrationArgs, Migrations},
    node::{Config, FIELD_MANAGER, NodeAgent},
    once::{Once, once},
    part::{Board, Context, Contribution, Own, Part},
    reboot::{BOOT_ID_ANNOTATION, EVACUATE_ON_REBOOT, REBOOT_REASON, RebootArgs, Reboots},
    report::{Report, Section},
    update::{UpdateArgs, Updates},
};
