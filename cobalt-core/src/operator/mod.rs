//! The hypervisor operator: it keeps one [`Hypervisor`](crate::api::Hypervisor) per hypervisor Node and says how it is.
//!
//! A Hypervisor is reconciled in **one pass** through a list of [`Stage`]s, each a pure decision. The list is a value:
//! take [`default_stages`], drop one, add your own, or run a single one.
//!
//! ```no_run
//! use cobalt_core::operator::{Operator, default_stages};
//! use cobalt_core::runtime::shutdown::Shutdown;
//!
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let mut stages = default_stages();
//! stages.retain(|stage| stage.name() != "ready"); // somebody else judges
//! Operator::new(client).stages(stages).run(Shutdown::new()).await?;
//! # Ok(()) }
//! ```
//!
//! | Stage | Writes |
//! |---|---|
//! | [`HypervisorSync`] | labels, owner, `lifecycleEnabled`, `skipTests`, `aggregates`, `customTraits`, `internalIp`, `Terminating` |
//! | [`OvsHealth`] | `OVSHealthy` |
//! | [`Ready`] | `Ready` |

mod controller;
mod hypervisor;
mod ovs;
pub mod pass;
mod plan;
pub mod program;
mod ready;
mod snapshot;
mod stage;
mod switches;

use std::{fmt, sync::Arc};

use kube::Client;

pub use self::{
    controller::FIELD_MANAGER,
    hypervisor::HypervisorSync,
    ovs::OvsHealth,
    plan::Plan,
    ready::Ready,
    snapshot::{Outcome, Snapshot, SwitchSeen},
    stage::{Action, Stage},
};
use crate::runtime::{
    clock::Clock,
    events::Recorder,
    metrics::Metrics,
    shutdown::{Shutdown, StopError},
    state::Status,
};

/// The stages of the operator, in their order.
pub fn default_stages() -> Vec<Arc<dyn Stage>> {
    vec![Arc::new(HypervisorSync::default()), Arc::new(OvsHealth), Arc::new(Ready)]
}

/// The operator as a library: give it a client, run it until shutdown.
///
/// [`program`] wraps it into a program with arguments, an admin server and leader election.
#[must_use]
pub struct Operator {
    controller: controller::Controller,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages: Vec<_> = self.controller.stages.iter().map(|stage| stage.name()).collect();
        f.debug_struct("Operator").field("stages", &stages).finish_non_exhaustive()
    }
}

impl Operator {
    /// An operator with the default stages, the system's clock and nobody watching it.
    pub fn new(client: Client) -> Self {
        let clock = Clock::system();
        Self {
            controller: controller::Controller {
                client,
                stages: default_stages().into(),
                workers: 8,
                ovs_namespace: Some(switches::NAMESPACE.to_owned()),
                status: Status::new(clock.clone()),
                clock,
                metrics: Arc::new(Metrics::new()),
                recorder: Recorder::silent(),
                may_act: Arc::new(|| true),
            },
        }
    }

    /// Runs these stages instead, in this order.
    pub fn stages(mut self, stages: impl Into<Arc<[Arc<dyn Stage>]>>) -> Self {
        self.controller.stages = stages.into();
        self
    }

    /// Works on so many Hypervisors at once.
    pub fn workers(mut self, workers: usize) -> Self {
        self.controller.workers = workers;
        self
    }

    /// Looks for OVSNodes in this namespace, or not at all. By default in `ovn-system`.
    pub fn ovs_namespace(mut self, namespace: Option<String>) -> Self {
        self.controller.ovs_namespace = namespace;
        self
    }

    /// Tells the time by this clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.controller.clock = clock;
        self
    }

    /// Counts into these metrics.
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.controller.metrics = metrics;
        self
    }

    /// Shows its watches and its queue here.
    pub fn status(mut self, status: Status) -> Self {
        self.controller.status = status;
        self
    }

    /// Records Events here.
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.controller.recorder = recorder;
        self
    }

    /// Asks before everything that is written or done whether it still may: for a leader that could have been frozen
    /// and replaced.
    pub fn while_allowed(mut self, may_act: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.controller.may_act = Arc::new(may_act);
        self
    }

    /// Reconciles until `stop`, then finishes what is in flight. An error means that a part of it died.
    pub async fn run(self, stop: Shutdown) -> Result<(), StopError> {
        self.controller.run(stop).await
    }
}
