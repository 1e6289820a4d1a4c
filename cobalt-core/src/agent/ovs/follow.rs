//! The loop of the OVS agent.
//!
//! ```text
//!   changes of the switch ─┐
//!   probe ─────────────────┤ a daemon that hangs makes no event
//!   looks for stale flows ─┼──▶ coalesce ──▶ look ──▶ remember ──▶ decide ──▶ apply, if anything but counters is new
//!   own OVSNode ───────────┤                                        │
//!   failed apply ──────────┘◀────────────── after a pause ──────────┘
//! ```
//!
//! A look is the whole switch, so every probe is a resync too.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use kube::{Api, Client, runtime::watcher};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};

use super::{
    Config, Demand, Verdict,
    endpoints::Published,
    memory::Memory,
    publisher::Publisher,
    stale::Looks,
    status::{decide, wrong},
};
use crate::{
    Error,
    agent::{
        Own, Section,
        beats::{Beats, Sign},
        pace::{Pace, Passed},
    },
    api::{Condition, OVSNode, OVSNodeStatus, condition_types, conditions, labels},
    ovs::{OvsInspector, OvsSnapshot},
    runtime::{
        Categorized,
        clock::Clock,
        events::Recorder,
        metrics::Metrics,
        shutdown::{Chain, Shutdown, StopError, TaskGroup},
        state::Status,
        takeover::compact_managed_fields,
        watch::{ObjectKey, watched_store},
    },
};

/// The field manager of the OVS agent.
pub const FIELD_MANAGER: &str = "cobalt-ovs-agent";

/// The Lease of a host's OVS agent, which says how fresh its OVSNode is. It lives beside it.
///
/// ```
/// assert_eq!(cobalt_core::agent::ovs::lease_name("node-1"), "cobalt-ovs-agent-node-1");
/// ```
pub fn lease_name(node: &str) -> String {
    format!("{FIELD_MANAGER}-{node}")
}

/// The OVS agent as a library: it publishes the switch of one host from any inspector.
///
/// ```no_run
/// use cobalt_core::{agent::ovs::{Config, OvsAgent}, ovs::OvsInspector, runtime::shutdown::Shutdown};
/// use std::{sync::Arc, time::Duration};
///
/// # async fn example(client: kube::Client, switch: Arc<dyn OvsInspector>) -> Result<(), Box<dyn std::error::Error>> {
/// OvsAgent::new(client, Config::new("node-1"), switch).heartbeat(Duration::from_secs(10)).run(Shutdown::new()).await?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct OvsAgent {
    client: Client,
    config: Config,
    inspector: Arc<dyn OvsInspector>,
    heartbeat: Option<Duration>,
    clock: Clock,
    metrics: Arc<Metrics>,
    status: Status,
    recorder: Recorder,
    grace: Duration,
    verdict: Verdict,
    demand: Demand,
    jitter: fn() -> f64,
    troubleshooting: Option<Published>,
}

/// A fraction from zero to one that differs between processes, which is all that jitter needs.
fn any_fraction() -> f64 {
    let bits = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}

impl fmt::Debug for OvsAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OvsAgent").field("config", &self.config).finish_non_exhaustive()
    }
}

impl OvsAgent {
    /// An agent with the system's clock, nobody watching it, and no Lease.
    pub fn new(client: Client, config: Config, inspector: Arc<dyn OvsInspector>) -> Self {
        let clock = Clock::system();
        Self {
            client,
            config,
            inspector,
            heartbeat: None,
            status: Status::new(clock.clone()),
            clock,
            metrics: Arc::new(Metrics::new()),
            recorder: Recorder::silent(),
            grace: Duration::from_secs(5),
            verdict: Verdict::default(),
            demand: Demand::default(),
            jitter: any_fraction,
            troubleshooting: None,
        }
    }

    /// Where the jitter of the looks for stale flows comes from: a function that returns a fraction from zero to one. A
    /// random one by default.
    pub fn jitter(mut self, jitter: fn() -> f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// Gives a sign of life this often, by a Lease beside the OVSNode.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = Some(interval);
        self
    }

    /// Tells the time by this clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Counts into these metrics.
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Shows its watch here.
    pub fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// Records Events here.
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = recorder;
        self
    }

    /// Waits at the end for so long until what is in flight is through.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Publishes where questions about the switch are answered.
    pub fn troubleshooting(mut self, published: Published) -> Self {
        self.troubleshooting = Some(published);
        self
    }

    /// What the agent concludes, for whoever asks in between.
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Asks for a look for stale flows.
    pub fn demand(&self) -> Demand {
        self.demand.clone()
    }

    /// Publishes until `stop`. The OVSNode is made as soon as there is a Node it can belong to.
    ///
    /// An error means that a part of it died.
    pub async fn run(self, stop: Shutdown) -> Result<(), StopError> {
        let stop = stop.child();
        let (touch, changes) = watch::channel(0_u64);
        let (nodes, watch) = watched_store::<OVSNode>(
            "OVSNode",
            Api::namespaced(self.client.clone(), &self.config.namespace),
            watcher::Config::default().fields(&format!("metadata.name={}", self.config.node_name)),
            self.metrics.clone(),
        )
        .clock(self.clock.clone())
        .modify(|node| compact_managed_fields(node, FIELD_MANAGER, None))
        .on_touch(move |_| touch.send_modify(|changes| *changes += 1))
        .build(&self.status);
        let key = ObjectKey::namespaced(&self.config.namespace, &self.config.node_name);
        let own = Own::new(key, nodes, changes);
        let tasks = TaskGroup::new("ovs agent", stop.clone());
        tasks.spawn("watch own ovsnode", watch.run(tasks.stopping()));

        let (signs, said) = watch::channel(Sign::UNKNOWN);
        if let Some(interval) = self.heartbeat {
            let beats = self.beats(interval, own.clone());
            let (said, stopping) = (turns(said), tasks.stopping());
            tasks.spawn("heartbeat", async move {
                beats.run(said, stopping).await;
                Ok::<_, std::convert::Infallible>(())
            });
        }
        let (found, looks) = watch::channel(Section::NotYet);
        let looking = Looks {
            inspector: self.inspector.clone(),
            bridge: self.config.integration_bridge.clone(),
            pause: self.config.stale_flows,
            demand: self.demand.clone(),
            found,
            clock: self.clock.clone(),
            jitter: self.jitter,
        };
        tasks.spawn("stale flows", looking.run(tasks.stopping()));
        self.follow(own, looks, &signs, &stop).await;
        // A part that died asks this agent to end, and is the reason for it.
        tasks.stop(Instant::now() + self.grace).await
    }

    fn beats(&self, interval: Duration, own: Own<OVSNode>) -> Beats<OVSNode> {
        Beats {
            client: self.client.clone(),
            namespace: self.config.namespace.clone(),
            name: lease_name(&self.config.node_name),
            holder: self.config.node_name.clone(),
            interval,
            manager: FIELD_MANAGER,
            annotation: labels::SWITCH_ANNOTATION,
            ask: None,
            own,
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
        }
    }

    async fn follow(
        &self,
        mut own: Own<OVSNode>,
        mut looks: watch::Receiver<Section<BTreeMap<u64, u64>>>,
        signs: &watch::Sender<Sign>,
        stop: &Shutdown,
    ) {
        let mut config = self.config.clone();
        let mut troubleshooting = self.troubleshooting.clone();
        let mut publisher =
            Publisher::new(&self.client, own.clone(), self.metrics.clone(), self.recorder.clone(), &config);
        let mut memory = Memory::default();
        // Subscribed before the first look, so that nothing falls between the two.
        let mut changes = self.inspector.changes();
        let mut ended = false;
        let mut probe = interval_at(Instant::now() + config.probe, config.probe);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pace = Pace::new(config.coalesce);
        loop {
            tokio::select! {
                () = stop.triggered() => return,
                change = changes.next(), if !ended => {
                    if change.is_some() {
                        pace.touch();
                    } else {
                        ended = true;
                        tracing::warn!("the switch tells no more changes, only the probe is left");
                    }
                }
                () = own.changed() => pace.touch(),
                Ok(()) = looks.changed() => {
                    memory.stale_flows = looks.borrow_and_update().clone();
                    pace.touch();
                }
                _ = probe.tick() => pace.touch(),
                () = changed(&mut troubleshooting) => pace.touch(),
                () = pace.due() => {
                    // A look may take long on a sick host; it only reads, so a shutdown need not wait for it.
                    let seen = tokio::select! {
                        () = stop.triggered() => return,
                        seen = look(self.inspector.as_ref(), config.call_timeout) => seen,
                    };
                    let now = self.clock.now();
                    if let Some(published) = &troubleshooting {
                        config.troubleshooting = published.get();
                    }
                    memory.without_southbound = !self.inspector.features().southbound;
                    if let Section::Known(snapshot) = &seen {
                        memory.observe(snapshot, now, &config);
                    }
                    let observed = publisher.observed();
                    let previous = observed.and_then(|node| node.status.clone()).unwrap_or_default();
                    let wanted = decide(&seen, &previous, &memory, now, &config);
                    self.conclude(&seen, &previous, &wanted, &memory);
                    signs.send_if_modified(|last| {
                        let said = sign(&wanted);
                        let new = *last != said;
                        *last = said;
                        new
                    });
                    let published = publisher.publish(wanted, now).await;
                    // A failed look is repeated by the next probe, which is soon.
                    let retry_in = pace.passed(if published.is_err() { Passed::Unwritten } else { Passed::Complete });
                    if let Err(error) = &published {
                        tracing::warn!(category = error.category(), ?retry_in, error = %Chain(error), "publish failed");
                    }
                }
            }
        }
    }

    fn conclude(&self, seen: &Section<OvsSnapshot>, previous: &OVSNodeStatus, wanted: &OVSNodeStatus, memory: &Memory) {
        let counted = seen.known().map(|snapshot| {
            let mut counted = BTreeMap::new();
            let wrong = wrong(snapshot, previous, memory, self.clock.now(), &self.config);
            for finding in wrong.found.iter().chain(&wrong.kept) {
                *counted.entry(finding.type_).or_insert(0) += 1;
            }
            counted
        });
        let stale =
            memory.stale_flows.known().map(|cookies| cookies.values().fold(0, |sum: u64, n| sum.saturating_add(*n)));
        self.verdict.set(wanted.clone(), counted, stale);
    }
}

/// One look at the whole switch.
pub(super) async fn look(inspector: &dyn OvsInspector, limit: Duration) -> Section<OvsSnapshot> {
    timeout(limit, inspector.snapshot())
        .await
        .unwrap_or_else(|_| Err(Error::timeout("look at the switch", limit)))
        .into()
}

/// Waits until there is something else to say about the endpoints.
async fn changed(published: &mut Option<Published>) {
    match published {
        Some(published) => published.changed().await,
        None => std::future::pending().await,
    }
}

/// What the Lease says: the condition `Ready`.
fn sign(status: &OVSNodeStatus) -> Sign {
    match conditions::find(&status.conditions, condition_types::READY) {
        None => Sign::UNKNOWN,
        Some(ready) if ready.is_true() => Sign { state: "ready", why: None },
        Some(Condition { status, reason, message, .. }) => {
            let state = if *status == crate::api::ConditionStatus::Unknown { "unknown" } else { "not ready" };
            Sign { state, why: Some(if message.is_empty() { reason.clone() } else { message.clone() }) }
        }
    }
}

fn turns(said: watch::Receiver<Sign>) -> futures::stream::BoxStream<'static, Sign> {
    futures::stream::unfold(said, |mut said| async move {
        said.changed().await.ok()?;
        let now = said.borrow_and_update().clone();
        Some((now, said))
    })
    .boxed()
}
