//! The loop of the node agent.
//!
//! ```text
//!   hypervisor events ──┐ touch domains, or everything after a (re)connection
//!   host events ────────┤ touch the operating system and its units
//!   own Hypervisor ─────┼──▶ dirty ── coalesce ──▶ ask ──▶ decide ──▶ apply, if anything is new
//!   safety resync ──────┤                                    │
//!   failed apply ───────┘◀──────────── after a pause ────────┘
//! ```
//!
//! One task, no locks: whatever arrives while the agent asks or writes waits in the bounded streams.

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::{Api, Client, runtime::watcher};
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

use super::{
    collect::{Collector, Dirty},
    status::{self, Wanted},
};
use crate::{
    api::{Hypervisor, conditions},
    backend::HypervisorBackend,
    host::HostSystem,
    publish,
    runtime::{
        Categorized,
        apply::{Applied, Applier, ApplyError, Target},
        clock::Clock,
        events::{Event, Recorder},
        metrics::Metrics,
        queue::Backoff,
        shutdown::{Chain, Shutdown, StopError, TaskGroup},
        state::Status,
        takeover::{TakeOver, compact_managed_fields},
        watch::{ObjectKey, Store, watched_store},
    },
};

/// The field manager of the node agent.
pub const FIELD_MANAGER: &str = "cobalt-node-agent";

/// Field managers under which earlier agents wrote. An operator used the same, so only what an agent writes is taken.
const EARLIER_PROGRAMS: [&str; 3] = ["manager", "kvm-node-agent", "unknown"];

/// The fields of the status that are the agent's.
const STATUS_FIELDS: [&str; 11] = [
    "status.libVirtVersion",
    "status.hypervisorVersion",
    "status.operatingSystem",
    "status.instances",
    "status.capabilities",
    "status.domainCapabilities",
    "status.allocation",
    "status.capacity",
    "status.effectiveCapacity",
    "status.cells",
    "status.numInstances",
];

/// How the agent behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Node's name, which is the Hypervisor's too.
    pub node_name: String,
    /// Service units to report as conditions.
    pub units: Vec<String>,
    /// How long to gather events before asking and writing once.
    pub coalesce: Duration,
    /// How often to read everything again, in case an event was lost.
    pub resync: Duration,
    /// The longest time for one question to the host.
    pub call_timeout: Duration,
}

impl Config {
    /// The usual behaviour on this node.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            units: ["libvirtd.service", "openvswitch-switch.service"].map(str::to_owned).into(),
            coalesce: Duration::from_millis(100),
            resync: Duration::from_secs(300),
            call_timeout: Duration::from_secs(30),
        }
    }
}

/// The node agent as a library: it publishes the status of one host from any backend.
///
/// ```no_run
/// use cobalt_core::{
///     agent::{Config, NodeAgent},
///     backend::HypervisorBackend,
///     host::HostSystem,
///     runtime::shutdown::Shutdown,
/// };
/// use std::sync::Arc;
///
/// # async fn example(client: kube::Client, backend: Arc<dyn HypervisorBackend>, host: Arc<dyn HostSystem>)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// NodeAgent::new(client, Config::new("node-1"), backend, host).run(Shutdown::new()).await?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct NodeAgent {
    client: Client,
    config: Config,
    backend: Arc<dyn HypervisorBackend>,
    host: Arc<dyn HostSystem>,
    clock: Clock,
    metrics: Arc<Metrics>,
    status: Status,
    recorder: Recorder,
}

impl fmt::Debug for NodeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAgent").field("config", &self.config).finish_non_exhaustive()
    }
}

impl NodeAgent {
    /// An agent with the system's clock and nobody watching it.
    pub fn new(client: Client, config: Config, backend: Arc<dyn HypervisorBackend>, host: Arc<dyn HostSystem>) -> Self {
        let clock = Clock::system();
        Self {
            client,
            config,
            backend,
            host,
            status: Status::new(clock.clone()),
            clock,
            metrics: Arc::new(Metrics::new()),
            recorder: Recorder::silent(),
        }
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

    /// Publishes until `stop`.
    ///
    /// A Hypervisor that does not exist (yet, or any more) is waited for; nothing is created here.
    /// An error means that a part of it died.
    pub async fn run(self, stop: Shutdown) -> Result<(), StopError> {
        let stop = stop.child();
        let touched = Arc::new(Notify::new());
        let notify = touched.clone();
        let (hypervisors, watch) = watched_store::<Hypervisor>(
            "Hypervisor",
            Api::all(self.client.clone()),
            watcher::Config::default().fields(&format!("metadata.name={}", self.config.node_name)),
            self.metrics.clone(),
        )
        .clock(self.clock.clone())
        .modify(|hypervisor| {
            compact_managed_fields(hypervisor, FIELD_MANAGER, Some(&TakeOver::from(EARLIER_PROGRAMS)));
        })
        .on_touch(move |_| notify.notify_one())
        .build(&self.status);
        let watches = TaskGroup::new("agent watches", stop.clone());
        watches.spawn("watch own hypervisor", watch.run(stop.clone()));

        let publisher = Publisher {
            api: Api::all(self.client.clone()),
            applier: Applier::new(FIELD_MANAGER, self.metrics.clone())
                .taking_over(TakeOver::from(EARLIER_PROGRAMS).only(STATUS_FIELDS)),
            key: ObjectKey::cluster(&self.config.node_name),
            hypervisors,
            clock: self.clock.clone(),
            recorder: self.recorder.clone(),
            written: None,
            units: self.config.units.clone(),
            said: "",
        };
        self.follow(publisher, &touched, &stop).await;
        // A watch that died asks this part to end, and is the reason for it.
        watches.stop(Instant::now() + Duration::from_secs(5)).await
    }

    async fn follow(&self, mut publisher: Publisher, touched: &Notify, stop: &Shutdown) {
        let mut collector = Collector::new(
            self.backend.clone(),
            self.host.clone(),
            self.config.units.clone(),
            self.config.call_timeout,
        );
        let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };
        let mut failures = 0_u32;
        // Subscribed before the first question, so that nothing falls between the two.
        let mut events = self.backend.events();
        let mut host_events = self.host.events();
        let mut resync = interval_at(Instant::now() + self.config.resync, self.config.resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut dirty = Dirty::all();
        let mut due = Some(Instant::now());
        // After a failed write nothing is written before this, however much happens.
        let mut not_before = Instant::now();
        let (mut backend_ended, mut host_ended) = (false, false);
        loop {
            // From the moment something arrives, not from the moment we began to wait for it; and the first of what
            // arrives decides, so that a busy host is not put off for ever.
            let soon = |due: Option<Instant>| {
                let soon = Instant::now() + self.config.coalesce;
                Some(due.map_or(soon, |due| due.min(soon)).max(not_before))
            };
            tokio::select! {
                () = stop.triggered() => return,
                event = events.next(), if !backend_ended => {
                    if let Some(event) = event {
                        dirty.note(event);
                        due = soon(due);
                    } else {
                        backend_ended = true;
                        tracing::warn!("the hypervisor sends no more events, only the resync is left");
                    }
                }
                event = host_events.next(), if !host_ended => match event {
                    Some(event) => { dirty.note_host(&event); due = soon(due); }
                    None => host_ended = true,
                },
                () = touched.notified() => due = soon(due),
                _ = resync.tick() => { dirty.add(Dirty::all()); due = soon(due); }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    // A question may take long on a sick host; it only reads, so a shutdown need not wait for it.
                    tokio::select! {
                        () = stop.triggered() => return,
                        () = collector.refresh(std::mem::take(&mut dirty)) => {}
                    }
                    let published = publisher.publish(collector.report()).await;
                    let missing = collector.missing();
                    failures = if published.is_err() || missing.is_some() { failures + 1 } else { 0 };
                    let retry = Instant::now() + backoff.after(failures);
                    due = (failures > 0).then_some(retry);
                    dirty.add(missing.unwrap_or_default());
                    if let Err(error) = &published {
                        not_before = retry;
                        let retry_in = backoff.after(failures);
                        tracing::warn!(category = error.category(), ?retry_in, error = %Chain(error), "publish failed");
                    }
                }
            }
        }
    }
}

struct Publisher {
    api: Api<Hypervisor>,
    applier: Applier,
    key: ObjectKey,
    hypervisors: Store<Hypervisor>,
    clock: Clock,
    recorder: Recorder,
    /// What the server answered last: until the cache has caught up, this is newer.
    written: Option<Arc<Hypervisor>>,
    /// The units that are reported.
    units: Vec<String>,
    /// What was last said about our state.
    said: &'static str,
}

impl Publisher {
    /// Logs a change of state, once.
    fn say(&mut self, state: &'static str) {
        if std::mem::replace(&mut self.said, state) != state {
            tracing::info!(hypervisor = %self.key, "{state}");
        }
    }

    async fn publish(&mut self, report: &super::Report) -> Result<(), ApplyError> {
        let Some(cached) = self.hypervisors.get(&self.key) else {
            self.written = None;
            if self.hypervisors.is_synced() {
                self.say("waiting for the Hypervisor to be created");
            }
            return Ok(()); // the watch wakes us when it is there
        };
        let Some(observed) = publish::newer(Some(cached), self.written.take()) else { return Ok(()) };
        let Wanted { status, conditions: wanted } = status::decide(report, &observed.spec, observed.conditions());
        let mut list = observed.conditions().to_vec();
        let types: Vec<String> = wanted.iter().map(|condition| condition.type_.clone()).collect();
        for condition in wanted {
            conditions::set_condition(&mut list, condition, self.clock.now());
        }
        let decided = list.iter().filter(|condition| types.contains(&condition.type_));
        let owned = self.applier.owned(observed.as_ref(), Target::Status);
        let body = publish::status_body(Some(&observed), &owned, &status, decided.clone(), |type_| {
            // A unit that is not reported any more.
            type_.ends_with(".service") && !self.units.iter().any(|unit| unit == type_)
        });
        if let Applied::Written(object) =
            self.applier.status_unconditionally(&self.api, observed.as_ref(), &body).await?
        {
            for condition in decided {
                let old = observed.condition(&condition.type_);
                if old.is_some_and(|old| old.status != condition.status) {
                    let note = publish::sentence(condition);
                    let event = if condition.is_true() { Event::normal } else { Event::warning::<Hypervisor> };
                    self.recorder.publish(event(observed.as_ref(), "Observe", &condition.reason, note));
                }
            }
            self.say("publishing");
            self.written = Some(Arc::new(*object));
        } else {
            self.written = Some(observed);
        }
        Ok(())
    }
}
