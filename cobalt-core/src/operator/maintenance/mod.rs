//! Stage `maintenance`: what a wish for maintenance does to a host.
//!
//! ```text
//!   spec.maintenance      compute service                      instances
//!   ────────────────────  ───────────────────────────────────  ─────────────────────────────────────────────
//!   ""                    enabled, once it was tested          our Eviction is deleted; no Evicting, evicted=false
//!   manual, auto,         disabled, with a reason that names   an Eviction, mirrored:
//!   termination           the mode                               Evicting=True/Running ─▶ False/Succeeded, evicted
//!                                                                   ▲  │  ▲                   │
//!                                                      True/Failed ◀┘  │  └── a VM is seen ───┘
//!                                                      True/Blocked ◀──┘      on the host again
//!   ha, words unknown     left to their owner                  left to their owner
//! ```
//!
//! Others read any `Evicting=False` on a Hypervisor as *empty*. So a drain that failed is not over: it stays `True`, with
//! the reason, until the host is empty.
//!
//! **What is ours.** A service whose reason begins with [`REASON`] was disabled by us (or by an earlier program in our
//! place) and is enabled again; one that a person has disabled stays so, and `HypervisorDisabled` says it. Nova's own
//! agent disables and enables itself when it loses libvirt (`AUTO:`), so under maintenance such a reason is replaced.
//! Declared death (`forced_down`) is taken back when maintenance ends, and never merely because it is seen.
//!
//! Nothing is done while a host is being onboarded, and a host that was never tested is never enabled.

mod drain;
mod service;

use kube::Client;

pub use self::{drain::EVICTION_REASON, service::REASON};
use super::{Cloud, Plan, Snapshot, Stage};
use crate::api::{Condition, Maintenance as Mode, condition_types, labels};

/// See the module.
#[derive(Clone)]
pub struct Maintenance {
    cloud: Cloud,
    client: Client,
    labels: Vec<String>,
}

impl Maintenance {
    /// On this cloud and this cluster.
    pub fn new(cloud: Cloud, client: Client) -> Self {
        Self { cloud, client, labels: labels::TRANSFERRED.map(str::to_owned).into() }
    }

    /// Gives Evictions these labels of their Hypervisors.
    #[must_use]
    pub fn labels(mut self, labels: Vec<String>) -> Self {
        self.labels = labels;
        self
    }
}

impl std::fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maintenance").field("labels", &self.labels).finish_non_exhaustive()
    }
}

impl Stage for Maintenance {
    fn name(&self) -> &'static str {
        "maintenance"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let Some(hypervisor) = &seen.hypervisor else { return };
        let mode = plan.effective_spec().maintenance().clone();
        // Somebody who deletes a Hypervisor wants no drain; one that goes for good is drained to the end.
        if seen.is_leaving() && !(mode == Mode::Termination && seen.is_held()) {
            return;
        }
        let is_true = |type_| plan.condition(type_).is_some_and(Condition::is_true);
        if is_true(condition_types::ONBOARDING) || is_true(condition_types::OFFBOARDED) {
            return;
        }
        match mode {
            Mode::Off => {
                service::decide_enabled(&self.cloud, seen, plan);
                drain::decide_end(self, hypervisor, seen, plan);
            }
            Mode::Manual | Mode::Auto | Mode::Termination => {
                service::decide_disabled(&self.cloud, &mode, seen, plan);
                drain::decide_drain(self, hypervisor, seen, plan);
            }
            Mode::Ha | Mode::Other(_) => {}
        }
    }
}
