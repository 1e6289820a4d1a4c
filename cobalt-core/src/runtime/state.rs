//! What a program knows about itself: health checks and the parts shown on `/debug/state`.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{clock::Clock, lock};

/// One watch, as shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchReport {
    /// The kind, or a name that tells two watches of one kind apart.
    pub kind: &'static str,
    /// Whether the first listing is complete.
    pub synced: bool,
    /// How many objects the cache holds.
    pub objects: usize,
    /// Objects that exist but could not be read, with the reason.
    pub malformed: Vec<MalformedReport>,
    /// When the last event arrived.
    #[serde(serialize_with = "time")]
    pub last_event: Option<Timestamp>,
    /// How often the watch failed and began anew.
    pub restarts: u64,
    /// The last failure.
    pub last_error: Option<String>,
}

/// An object that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MalformedReport {
    /// Its name (with the namespace before it, if there is one).
    pub name: String,
    /// The version that could not be read.
    pub resource_version: String,
    /// What is wrong with it.
    pub error: String,
}

/// One work queue, as shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// The queue's name.
    pub name: &'static str,
    /// Keys that wait for a worker now.
    pub depth: usize,
    /// Keys that wait for their time.
    pub delayed: usize,
    /// Keys being worked on.
    pub in_flight: usize,
    /// Keys queued again after a failure, since the start.
    pub retries: u64,
    /// Seconds the longest-waiting ready key has waited.
    pub oldest_seconds: Option<f64>,
    /// Keys whose last pass failed (a few of them), with the number of failures in a row.
    pub failing: Vec<(String, u32)>,
}

/// One lease, as shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseReport {
    /// `namespace/name`.
    pub name: String,
    /// Our identity.
    pub identity: String,
    /// Who holds it, as last seen.
    pub holder: Option<String>,
    /// Whether that is us.
    pub mine: bool,
    /// Seconds since the record last changed in our sight.
    pub renew_age_seconds: Option<f64>,
    /// How often the holder has changed.
    pub transitions: i32,
}

/// The whole page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StateReport {
    /// When the page was made.
    #[serde(serialize_with = "time")]
    pub time: Option<Timestamp>,
    /// Every watch.
    pub watches: Vec<WatchReport>,
    /// Every queue.
    pub queues: Vec<QueueReport>,
    /// Every lease.
    pub leases: Vec<LeaseReport>,
    /// The readiness checks that fail, with their reason.
    pub not_ready: Vec<(String, String)>,
    /// What a program shows besides, by name.
    #[serde(flatten)]
    pub sections: BTreeMap<&'static str, Value>,
}

#[allow(clippy::ref_option)] // the signature serde asks for
fn time<S: serde::Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
type Report<T> = Box<dyn Fn() -> T + Send + Sync>;

#[derive(Default)]
struct Parts {
    live: Vec<(String, Check)>,
    ready: Vec<(String, Check)>,
    watches: Vec<Report<WatchReport>>,
    queues: Vec<Report<QueueReport>>,
    leases: Vec<Report<LeaseReport>>,
    sections: BTreeMap<&'static str, Report<Value>>,
}

/// Where the parts of a program register what can be asked of them.
///
/// ```
/// use cobalt_core::runtime::{clock::Clock, state::Status};
///
/// let status = Status::new(Clock::system());
/// status.ready_check("libvirt", || Err("not connected".into()));
/// assert_eq!(status.not_ready(), [("libvirt".to_owned(), "not connected".to_owned())]);
/// ```
#[derive(Clone)]
pub struct Status {
    clock: Clock,
    parts: Arc<Mutex<Parts>>,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").finish_non_exhaustive()
    }
}

impl Status {
    /// Nothing registered: alive and ready.
    pub fn new(clock: Clock) -> Self {
        Self { clock, parts: Arc::default() }
    }

    /// The clock the reports are made with.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A reason to restart the process: a check that fails here fails `/healthz`.
    pub fn live_check(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        lock(&self.parts).live.push((name.into(), Box::new(check)));
    }

    /// A reason not to count on the process yet: a check that fails here fails `/readyz`.
    pub fn ready_check(&self, name: impl Into<String>, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        lock(&self.parts).ready.push((name.into(), Box::new(check)));
    }

    /// Shows a watch.
    pub fn watch(&self, report: impl Fn() -> WatchReport + Send + Sync + 'static) {
        lock(&self.parts).watches.push(Box::new(report));
    }

    /// Shows a queue.
    pub fn queue(&self, report: impl Fn() -> QueueReport + Send + Sync + 'static) {
        lock(&self.parts).queues.push(Box::new(report));
    }

    /// Shows a lease.
    pub fn lease(&self, report: impl Fn() -> LeaseReport + Send + Sync + 'static) {
        lock(&self.parts).leases.push(Box::new(report));
    }

    /// Shows something of a program's own. Whoever comes later with the same name replaces it.
    pub fn section(&self, name: &'static str, report: impl Fn() -> Value + Send + Sync + 'static) {
        lock(&self.parts).sections.insert(name, Box::new(report));
    }

    /// The liveness checks that fail.
    pub fn not_live(&self) -> Vec<(String, String)> {
        failing(&lock(&self.parts).live)
    }

    /// The readiness checks that fail.
    pub fn not_ready(&self) -> Vec<(String, String)> {
        failing(&lock(&self.parts).ready)
    }

    /// The whole page.
    pub fn report(&self) -> StateReport {
        let parts = lock(&self.parts);
        StateReport {
            time: Some(self.clock.now()),
            watches: parts.watches.iter().map(|report| report()).collect(),
            queues: parts.queues.iter().map(|report| report()).collect(),
            leases: parts.leases.iter().map(|report| report()).collect(),
            not_ready: failing(&parts.ready),
            sections: parts.sections.iter().map(|(name, report)| (*name, report())).collect(),
        }
    }
}

fn failing(checks: &[(String, Check)]) -> Vec<(String, String)> {
    checks.iter().filter_map(|(name, check)| Some((name.clone(), check().err()?))).collect()
}
