//! The Prometheus metrics of a program.
//!
//! One [`Metrics`] is made by `main` and handed around as an `Arc`. Every label has a bounded set of values: names from
//! our own code, categories of errors, classes of status codes. Never an object's name.
//!
//! What must be asked of somebody else at the moment of a scrape comes from a [`Source`].

mod source;
#[cfg(feature = "agent")]
pub(crate) mod text;

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, RwLock},
    time::Duration,
};

use bytes::Bytes;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

pub use self::source::Source;
use self::source::Sources;
use super::lock;

/// More distinct resources than any program of ours talks to; the rest is counted as `other`.
const MAX_RESOURCES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    resource: String,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileError {
    controller: &'static str,
    category: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Queue {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: String,
    target: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    lease: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// What became of a write that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// A request changed the object.
    Applied,
    /// The object already was as wanted: no request.
    Unchanged,
    /// Fields of other managers were made ours.
    TakenOver,
    /// The object had changed in between.
    Conflict,
    /// The request failed.
    Failed,
}

/// What became of a Kubernetes Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// A new Event object.
    Created,
    /// One more of a known series.
    Aggregated,
    /// Over the rate of its object, or the queue was full.
    Dropped,
    /// The request failed.
    Failed,
}

/// The metrics all programs have, and a registry to which each adds its own.
///
/// ```
/// use cobalt_core::runtime::metrics::{Metrics, Write};
///
/// let metrics = Metrics::new();
/// metrics.write("Hypervisor", "status", Write::Unchanged);
/// assert!(metrics.encode().contains(
///     r#"cobalt_writes_total{kind="Hypervisor",target="status",outcome="unchanged"} 1"#));
/// ```
#[derive(Debug)]
pub struct Metrics {
    registry: RwLock<Registry>,
    resources: Mutex<HashSet<String>>,
    requests: Family<Request, Counter>,
    request_seconds: Family<Verb, Histogram>,
    reconciles: Family<Controller, Counter>,
    reconcile_errors: Family<ReconcileError, Counter>,
    reconcile_seconds: Family<Controller, Histogram>,
    queue_depth: Family<Queue, Gauge>,
    queue_in_flight: Family<Queue, Gauge>,
    queue_retries: Family<Queue, Counter>,
    writes: Family<WriteLabels, Counter>,
    events: Family<Outcome, Counter>,
    leader: Family<LeaseLabels, Gauge>,
    watch_objects: Family<Kind, Gauge>,
    watch_restarts: Family<Kind, Counter>,
    watch_malformed: Family<Kind, Counter>,
    sources: Sources,
}

fn seconds() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

fn add<M: EncodeMetric + Clone + std::fmt::Debug + Send + Sync + 'static>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// All metrics at zero, names prefixed `cobalt_`.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("cobalt");
        let r = &mut registry;
        let histogram: fn() -> Histogram = seconds;
        Self {
            resources: Mutex::default(),
            requests: add(r, "api_requests", "Requests to the Kubernetes API", Family::default()),
            request_seconds: add(
                r,
                "api_request_seconds",
                "Time until the answer of the Kubernetes API (watches: until the stream began)",
                Family::new_with_constructor(histogram),
            ),
            reconciles: add(r, "reconciles", "Passes over one object", Family::default()),
            reconcile_errors: add(r, "reconcile_errors", "Passes that failed, by class", Family::default()),
            reconcile_seconds: add(
                r,
                "reconcile_seconds",
                "Duration of one pass over one object",
                Family::new_with_constructor(histogram),
            ),
            queue_depth: add(r, "queue_depth", "Keys that wait for a worker", Family::default()),
            queue_in_flight: add(r, "queue_in_flight", "Keys being worked on", Family::default()),
            queue_retries: add(r, "queue_retries", "Keys queued again after a failure", Family::default()),
            writes: add(r, "writes", "Wanted writes, by what became of them", Family::default()),
            events: add(r, "events", "Kubernetes Events, by what became of them", Family::default()),
            leader: add(r, "leader", "1 while this process holds the Lease", Family::default()),
            watch_objects: add(r, "watch_objects", "Objects in the cache of a watch", Family::default()),
            watch_restarts: add(r, "watch_restarts", "Watches that failed and began anew", Family::default()),
            watch_malformed: add(r, "watch_malformed_objects", "Objects that could not be read", Family::default()),
            sources: Sources::new(add(
                r,
                "scrape_source_failures",
                "Scrapes for which a source had no answer in time",
                Family::default(),
            )),
            registry: RwLock::new(registry),
        }
    }

    /// Adds a program's own metrics.
    pub fn register(&self, with: impl FnOnce(&mut Registry)) {
        with(&mut self.registry.write().unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    /// Adds a source that is asked at every scrape, and given this long to answer.
    pub fn source(&self, name: &'static str, limit: Duration, source: impl Source) {
        self.sources.add(name, limit, source);
    }

    /// The OpenMetrics text of everything: what is counted here and what the sources answer.
    ///
    /// However many scrape at once, the sources are asked once.
    pub async fn scrape(&self) -> String {
        let parts = self.parts().await;
        parts.iter().map(|part| String::from_utf8_lossy(part)).collect()
    }

    /// The same in its parts, which are not copied.
    pub(crate) async fn parts(&self) -> VecDeque<Bytes> {
        const END: &str = "# EOF\n";
        let asked = self.sources.ask().await;
        let mut text = self.encode();
        text.truncate(text.strip_suffix(END).map_or(text.len(), str::len));
        let (first, last) = (Bytes::from(text), Bytes::from_static(END.as_bytes()));
        let parts = std::iter::once(first).chain(asked.iter().cloned()).chain(std::iter::once(last));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// The OpenMetrics text of what is counted here, without the sources.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        let registry = self.registry.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if encode(&mut out, &registry).is_err() {
            // Writing to a String cannot fail; a metric that cannot encode itself leaves a cut text behind.
            tracing::warn!("a metric could not be encoded");
        }
        out
    }

    /// One request to the Kubernetes API.
    pub fn request(&self, verb: &'static str, resource: &str, code: &'static str, duration: Duration) {
        let resource = self.bounded(resource);
        self.requests.get_or_create(&Request { verb, resource, code }).inc();
        self.request_seconds.get_or_create(&Verb { verb }).observe(duration.as_secs_f64());
    }

    /// How many requests were counted with this verb and resource, whatever their outcome.
    pub fn requests(&self, verb: &'static str, resource: &str) -> u64 {
        ["2xx", "3xx", "4xx", "5xx", "error"]
            .into_iter()
            .filter_map(|code| {
                self.requests.get(&Request { verb, resource: resource.to_owned(), code }).map(|c| c.get())
            })
            .sum()
    }

    fn bounded(&self, resource: &str) -> String {
        let mut known = lock(&self.resources);
        if known.contains(resource) {
            return resource.to_owned();
        }
        if known.len() >= MAX_RESOURCES {
            return "other".to_owned();
        }
        known.insert(resource.to_owned());
        resource.to_owned()
    }

    /// One pass over one object; `error` is its category if it failed.
    pub fn reconcile(&self, controller: &'static str, duration: Duration, error: Option<&'static str>) {
        self.reconciles.get_or_create(&Controller { controller }).inc();
        self.reconcile_seconds.get_or_create(&Controller { controller }).observe(duration.as_secs_f64());
        if let Some(category) = error {
            self.reconcile_errors.get_or_create(&ReconcileError { controller, category }).inc();
        }
    }

    /// The state of a work queue.
    pub fn queue(&self, queue: &'static str, depth: usize, in_flight: usize) {
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.queue_depth.get_or_create(&Queue { queue }).set(gauge(depth));
        self.queue_in_flight.get_or_create(&Queue { queue }).set(gauge(in_flight));
    }

    /// A key is queued again because its pass failed.
    pub fn queue_retry(&self, queue: &'static str) {
        self.queue_retries.get_or_create(&Queue { queue }).inc();
    }

    /// What became of a wanted write; `target` is `main` or `status`.
    pub fn write(&self, kind: &str, target: &'static str, outcome: Write) {
        let outcome = match outcome {
            Write::Applied => "applied",
            Write::Unchanged => "unchanged",
            Write::TakenOver => "taken_over",
            Write::Conflict => "conflict",
            Write::Failed => "failed",
        };
        self.writes.get_or_create(&WriteLabels { kind: kind.to_owned(), target, outcome }).inc();
    }

    /// What became of an Event.
    pub fn event(&self, outcome: EventOutcome) {
        let outcome = match outcome {
            EventOutcome::Created => "created",
            EventOutcome::Aggregated => "aggregated",
            EventOutcome::Dropped => "dropped",
            EventOutcome::Failed => "failed",
        };
        self.events.get_or_create(&Outcome { outcome }).inc();
    }

    /// Whether this process holds the Lease.
    pub fn leader(&self, lease: &str, leading: bool) {
        self.leader.get_or_create(&LeaseLabels { lease: lease.to_owned() }).set(i64::from(leading));
    }

    /// How many objects a watch holds.
    pub fn watch_objects(&self, kind: &'static str, objects: usize) {
        self.watch_objects.get_or_create(&Kind { kind }).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// A watch failed and begins anew.
    pub fn watch_restart(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&Kind { kind }).inc();
    }

    /// An object could not be read.
    pub fn watch_malformed(&self, kind: &'static str) {
        self.watch_malformed.get_or_create(&Kind { kind }).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
