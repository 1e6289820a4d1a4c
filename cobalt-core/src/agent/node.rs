//! The loop of the node agent.
//!
//! ```text
//!   hypervisor events ──┐ touch domains, or everything after a (re)connection; some are incidents
//!   host events ────────┤ touch the operating system and its units
//!   own Hypervisor ─────┼──▶ dirty ── coalesce ──▶ ask ──▶ decide ──▶ apply, if anything is new
//!   board of the parts ─┤                                    │
//!   incidents grown old ┤                                    │
//!   safety resync ──────┤                                    │
//!   failed apply ───────┘◀──────────── after a pause ────────┘
//! ```
//!
//! One task, no locks: whatever arrives while the agent asks or writes waits in the bounded streams.

mod counts;
mod heard;
mod publisher;

use std::{fmt, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use kube::{Api, Client, runtime::watcher};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};

use self::{
    counts::Counts,
    heard::Heard,
    publisher::{EARLIER_PROGRAMS, Publisher},
};
use super::{
    collect::{Collector, Dirty},
    incident,
    pace::{Pace, Passed},
    part::{Board, Context, Own, Part},
};
use crate::{
    api::Hypervisor,
    backend::HypervisorBackend,
    host::HostSystem,
    runtime::{
        Categorized,
        clock::Clock,
        events::Recorder,
        metrics::Metrics,
        shutdown::{Chain, Shutdown, StopError, TaskGroup},
        state::Status,
        takeover::{TakeOver, compact_managed_fields},
        watch::{ObjectKey, watched_store},
    },
};

/// The field manager of the node agent.
pub const FIELD_MANAGER: &str = "cobalt-node-agent";

/// As many events as are taken at once after a pass; the rest waits in the bounded stream.
const AT_ONCE: usize = 1024;

/// How the agent behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Node's name, which is the Hypervisor's too.
    pub node_name: String,
    /// Service units to report as conditions.
    pub units: Vec<String>,
    /// Service units of libvirt, to report as conditions. They are alternatives: a host has one daemon for everything or
    /// one per driver, and those it has not are not reported.
    pub libvirt_units: Vec<String>,
    /// Why what is said between agent and libvirt could be overheard or forged, if it could. It becomes a condition.
    pub insecure: Option<String>,
    /// How long what befalls VMs is shown, and how much of it.
    pub incidents: incident::Limits,
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
            units: vec!["openvswitch-switch.service".to_owned()],
            libvirt_units: ["libvirtd.service", "virtqemud.service", "virtchd.service"].map(str::to_owned).into(),
            insecure: None,
            incidents: incident::Limits::default(),
            coalesce: Duration::from_millis(100),
            resync: Duration::from_secs(300),
            call_timeout: Duration::from_secs(30),
        }
    }

    /// All units, each once.
    pub(super) fn watched_units(&self) -> Vec<String> {
        let mut units = self.libvirt_units.clone();
        units.extend(self.units.iter().filter(|unit| !self.libvirt_units.contains(unit)).cloned());
        units
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
    grace: Duration,
    parts: Vec<Box<dyn Part>>,
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
            grace: Duration::from_secs(5),
            parts: Vec::new(),
        }
    }

    /// Gives the agent one more duty.
    pub fn part(mut self, part: impl Part) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Gives it these; an `Option` is a list of none or one.
    pub fn parts(mut self, parts: impl IntoIterator<Item = impl Part>) -> Self {
        self.parts.extend(parts.into_iter().map(|part| Box::new(part) as Box<dyn Part>));
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

    /// Waits at the end for so long until what the parts have in flight is through.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Publishes until `stop`.
    ///
    /// A Hypervisor that does not exist (yet, or any more) is waited for; nothing is created here.
    /// An error means that a part of it died.
    pub async fn run(mut self, stop: Shutdown) -> Result<(), StopError> {
        let stop = stop.child();
        let (touch, changes) = watch::channel(0_u64);
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
        .on_touch(move |_| touch.send_modify(|changes| *changes += 1))
        .build(&self.status);
        let tasks = TaskGroup::new("agent", stop.clone());
        tasks.spawn("watch own hypervisor", watch.run(tasks.stopping()));

        let key = ObjectKey::cluster(&self.config.node_name);
        let context = Context {
            client: self.client.clone(),
            node_name: self.config.node_name.clone(),
            own: Own::new(key.clone(), hypervisors.clone(), changes),
            backend: self.backend.clone(),
            host: self.host.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            recorder: self.recorder.clone(),
            board: Board::default(),
            call_timeout: self.config.call_timeout,
        };
        for part in std::mem::take(&mut self.parts) {
            tasks.spawn(part.name(), part.run(context.clone(), tasks.stopping()));
        }
        let publisher = Publisher::new(&context, key, hypervisors, self.config.watched_units());
        self.follow(publisher, context, &stop).await;
        // A part that died asks this agent to end, and is the reason for it.
        tasks.stop(Instant::now() + self.grace).await
    }

    async fn follow(&self, mut publisher: Publisher, context: Context, stop: &Shutdown) {
        let Context { mut own, board, .. } = context;
        let mut collector = Collector::new(self.backend.clone(), self.host.clone(), &self.config);
        let mut heard = Heard::new(self.config.incidents, Counts::new(&self.metrics));
        // Subscribed before the first question, so that nothing falls between the two.
        let mut events = self.backend.events();
        let mut host_events = self.host.events();
        let mut resync = interval_at(Instant::now() + self.config.resync, self.config.resync);
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pace = Pace::new(self.config.coalesce);
        let (mut backend_ended, mut host_ended) = (false, false);
        loop {
            let old = heard.next();
            tokio::select! {
                () = stop.triggered() => return,
                event = events.next(), if !backend_ended => {
                    if let Some(event) = event {
                        heard.backend(event, Instant::now());
                        pace.touch();
                    } else {
                        backend_ended = true;
                        tracing::warn!("the hypervisor sends no more events, only the resync is left");
                    }
                }
                event = host_events.next(), if !host_ended => match event {
                    Some(event) => { heard.dirty.note_host(&event); pace.touch(); }
                    None => host_ended = true,
                },
                () = own.changed() => pace.touch(),
                () = board.changed() => pace.touch(),
                _ = resync.tick() => { heard.dirty.add(Dirty::all()); pace.touch(); }
                () = sleep_until(old.unwrap_or_else(Instant::now)), if old.is_some() => {
                    heard.grow_old(Instant::now());
                    pace.touch();
                }
                () = pace.due() => {
                    let began = Instant::now();
                    // A question may take long on a sick host; it only reads, so a shutdown need not wait for it.
                    tokio::select! {
                        () = stop.triggered() => return,
                        () = collector.refresh(std::mem::take(&mut heard.dirty)) => {}
                    }
                    heard.collected(collector.report(), Instant::now());
                    let published = publisher.publish(collector.report(), &mut heard).await;
                    let missing = collector.missing();
                    if let Ok(written) = &published && missing.is_none() {
                        heard.published(*written, Instant::now());
                    }
                    let retry_in = pace.passed(match (&published, &missing) {
                        (Err(_), _) => Passed::Unwritten,
                        (Ok(_), Some(_)) => Passed::Incomplete,
                        (Ok(_), None) => Passed::Complete,
                    });
                    heard.dirty.add(missing.unwrap_or_default());
                    if let Err(error) = &published {
                        tracing::warn!(category = error.category(), ?retry_in, error = %Chain(error), "publish failed");
                    }
                    // What came meanwhile may have waited since we began.
                    for _ in 0..AT_ONCE {
                        let Some(Some(event)) = events.next().now_or_never().filter(|_| !backend_ended) else { break };
                        heard.backend(event, began);
                        pace.touch_since(began);
                    }
                }
            }
        }
    }
}
