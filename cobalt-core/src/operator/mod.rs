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
//! | [`HypervisorSync`] | labels, owner, `lifecycleEnabled`, `skipTests`, `aggregates`, `customTraits`, `internalIp`, `Terminating`, `maintenance: termination` |
//! | [`Onboarding`] | `Onboarding` until the host is tested, `status.hypervisorId`, `status.serviceId` |
//! | [`Maintenance`] | `HypervisorDisabled`, `Evicting`, `status.evicted` |
//! | [`AgentPods`] | `AgentPodsEvicted`, and a Node's taint |
//! | [`Traits`] | `TraitsUpdated`, `status.traits`, `status.appliedTraits` |
//! | [`Aggregates`] | `AggregatesUpdated`, `status.aggregates` |
//! | [`Ha`] | `HaEnabled` where nobody owns it |
//! | [`Handover`] | `Onboarding`, from the last step to its end |
//! | [`Offboarding`] | `Offboarded`, the finalizer |
//! | [`Gardener`] | nothing of a Hypervisor: a Deployment and a budget per Node |
//! | [`OvsHealth`] | `OVSHealthy` |
//! | [`Taint`] | `Tainted` |
//! | [`Ready`] | `Ready` |

mod absence;
mod acting;
mod agent_pods;
mod aggregates;
mod calls;
mod certificate;
mod cloud;
mod controller;
pub mod eviction;
mod gardener;
mod ha;
mod hand;
mod hypervisor;
mod installed;
mod keepers;
mod kubernetes;
mod lives;
mod maintenance;
mod offboarding;
pub mod onboarding;
mod ovs;
pub mod pass;
mod plan;
pub mod program;
mod ready;
mod selector;
mod snapshot;
mod stage;
mod switches;
mod taint;
mod traits;
mod wake;

use std::{fmt, sync::Arc};

use kube::Client;

pub use self::{
    agent_pods::{AgentPods, AgentPodsSettings},
    aggregates::{Aggregates, AggregatesArgs, AggregatesSettings},
    calls::CloudCalls,
    certificate::{CertificateArgs, CertificateSettings, KeyAlgorithm},
    cloud::Cloud,
    controller::FIELD_MANAGER,
    eviction::DrainSettings,
    gardener::{Gardener, GardenerArgs, GardenerSettings},
    ha::{Ha, HaArgs, HaGate, HaOwner, ha_gate},
    hand::{Hand, Wish},
    hypervisor::HypervisorSync,
    maintenance::{EVICTION_REASON, Maintenance, REASON as MAINTENANCE_REASON},
    offboarding::{Offboarding, OffboardingArgs, OffboardingSettings, Released, release_finalizers},
    onboarding::{
        Handover, Onboarding, OnboardingArgs, OnboardingSettings, SmokeTest, SmokeTestArgs, SmokeTestSettings,
    },
    ovs::OvsHealth,
    plan::Plan,
    ready::Ready,
    selector::Selector,
    snapshot::{AbsentNode, AgentSeen, CloudSeen, KeeperSeen, Outcome, PodsSeen, Snapshot, SwitchSeen},
    stage::{Action, Progress, Stage},
    taint::Taint,
    traits::Traits,
};
use crate::runtime::{
    clock::Clock,
    events::Recorder,
    metrics::Metrics,
    shutdown::{Shutdown, StopError},
    state::Status,
};

/// Everything about the operator that is configuration. The default is what the earlier programs did, but for what a
/// cluster must have for it: there is no Gardener and no cert-manager unless somebody says so.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Settings {
    /// From Nodes to Hypervisors.
    pub hypervisor: HypervisorSync,
    /// Into Nova.
    pub onboarding: OnboardingSettings,
    /// Aggregates.
    pub aggregates: AggregatesSettings,
    /// Who owns `HaEnabled`.
    pub ha: Ha,
    /// Out of Nova.
    pub offboarding: OffboardingSettings,
    /// What holds Nodes back from Gardener; `None` where there is no Gardener.
    pub gardener: Option<GardenerSettings>,
    /// Draining.
    pub drain: DrainSettings,
    /// Certificates for Nodes; `None` makes none.
    pub certificates: Option<CertificateSettings>,
    /// The namespaces whose Pods count as agents of a host.
    pub agent_namespaces: Vec<String>,
    /// How those Pods are looked for.
    pub agent_pods: AgentPodsSettings,
    /// Where the Leases of the node agents are; `None` looks at none.
    pub heartbeat_namespace: Option<String>,
    /// Works only on Nodes and Hypervisors with these labels; empty for all.
    pub label_selector: String,
}

impl Settings {
    /// The selector, read. One that cannot be read is an empty one: the API server will have refused it.
    fn selector(&self) -> Selector {
        self.label_selector.parse().unwrap_or_default()
    }

    /// From Nodes to Hypervisors, with the labels by which we choose them.
    fn sync(&self) -> HypervisorSync {
        let mut sync = self.hypervisor.clone();
        for key in self.selector().keys() {
            if !sync.transferred_labels.iter().any(|label| label == key) {
                sync.transferred_labels.push(key.to_owned());
            }
        }
        sync
    }
}

/// The stages of an operator without a cloud, in their order.
pub fn default_stages() -> Vec<Arc<dyn Stage>> {
    without_cloud(&Settings::default())
}

fn without_cloud(settings: &Settings) -> Vec<Arc<dyn Stage>> {
    vec![Arc::new(settings.sync()), Arc::new(OvsHealth), Arc::new(Taint), Arc::new(Ready)]
}

/// The stages of an operator with a cloud, in their order.
pub fn stages(settings: &Settings, cloud: &Cloud, client: &Client) -> Vec<Arc<dyn Stage>> {
    // One stage puts new hosts into it, the other waits until they are there: it must be the same for both.
    let mut onboarding = settings.onboarding.clone();
    onboarding.test_aggregate.clone_from(&settings.aggregates.test_aggregate);
    let mut stages: Vec<Arc<dyn Stage>> = vec![
        Arc::new(settings.sync()),
        Arc::new(Onboarding::new(cloud.clone(), onboarding.clone())),
        Arc::new(Maintenance::new(cloud.clone(), client.clone()).labels(settings.sync().transferred_labels)),
        Arc::new(AgentPods::new(client.clone(), settings.agent_pods.clone())),
        Arc::new(Traits::new(cloud.clone())),
        Arc::new(Aggregates::new(cloud.clone(), settings.aggregates.clone())),
        Arc::new(settings.ha),
        Arc::new(Handover::new(cloud.clone(), onboarding, settings.ha)),
        Arc::new(Offboarding::new(cloud.clone(), settings.offboarding.clone())),
    ];
    if let Some(gardener) = &settings.gardener {
        stages.push(Arc::new(Gardener::new(client.clone(), gardener.clone(), settings.ha)));
    }
    stages.extend([Arc::new(OvsHealth) as Arc<dyn Stage>, Arc::new(Taint), Arc::new(Ready)]);
    stages
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
                drains: true,
                cloud: None,
                settings: Arc::default(),
                ovs_namespace: Some(switches::NAMESPACE.to_owned()),
                status: Status::new(clock.clone()),
                clock,
                metrics: Arc::new(Metrics::new()),
                recorder: Recorder::silent(),
                hand: Hand::default(),
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

    /// Works without a cloud, with these settings as far as they concern no cloud.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.controller.stages = without_cloud(&settings).into();
        self.controller.settings = Arc::new(settings);
        self
    }

    /// Works on this cloud, with the [stages](stages()) for one. Without a cloud, Hypervisors are kept in step with their
    /// Nodes and nothing more.
    pub fn cloud(mut self, cloud: Cloud, settings: Settings) -> Self {
        self.controller.stages = stages(&settings, &cloud, &self.controller.client).into();
        self.controller.cloud = Some(cloud);
        self.controller.settings = Arc::new(settings);
        self
    }

    /// Whether it works on Evictions itself, which it does with a cloud; `false` where another program drains hosts.
    pub fn drains(mut self, drains: bool) -> Self {
        self.controller.drains = drains;
        self
    }

    /// Writes and does nothing, and only says what it would do.
    pub fn observe_only(mut self, observe_only: bool) -> Self {
        self.controller.hand = self.controller.hand.observe_only(observe_only);
        self
    }

    /// Whether it may act, and what it would do.
    pub fn hand(&self) -> Hand {
        self.controller.hand.clone()
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

    /// Asks before each pass and before each action whether it still may: for a leader that could have been frozen and
    /// replaced. What is written after that is protected by the resourceVersion it was decided on, and by a Lease that
    /// its holder gives up before it expires.
    pub fn while_allowed(mut self, may_act: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.controller.hand = self.controller.hand.while_allowed(may_act);
        self
    }

    /// Reconciles until `stop`, then finishes what is in flight. An error means that a part of it died.
    pub async fn run(self, stop: Shutdown) -> Result<(), StopError> {
        self.controller.run(stop).await
    }
}
