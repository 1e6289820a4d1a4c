//! Kubernetes Events: what happened to an object and why, where `kubectl describe` and `kubectl get events` show it.
//!
//! Built on `events.k8s.io/v1` (kubectl shows its series as `x5 over 3m`). kube's own `Recorder` was considered: it
//! blocks the caller on a request, merges different messages into one, has no rate limit and no bound on its cache.
//! Here:
//!
//! - [`Recorder::publish`] never waits: a bounded queue takes the Event or drops it (counted).
//! - The same Event again within a while becomes a higher count of the first one, as client-go does it. More than ten
//!   different messages for one reason are combined into one.
//! - One object cannot flood: a token bucket per object, as client-go's (25 at once, then one every five minutes). What a
//!   full bucket holds back is in the count of the next update.
//! - [`Publisher::run`] ends on shutdown after it has sent what is queued.

mod aggregate;

pub use aggregate::{Aggregator, EventKey, Limits, Step};

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event as KubeEvent, events::v1::EventSeries},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use tokio::{sync::mpsc, time::Instant};

use super::{
    api_transient,
    clock::Clock,
    metrics::{EventOutcome, Metrics},
    shutdown::{Chain, Shutdown},
};

/// How many Events may wait for the API server.
const QUEUE: usize = 1024;

/// Whether an Event is good or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something happened as it should.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What happened to an object.
///
/// ```
/// use cobalt_core::runtime::events::Event;
/// use k8s_openapi::api::core::v1::Node;
///
/// let node = Node::default();
/// let event = Event::warning(&node, "Drain", "MigrationFailed", "server 6f2c did not move: no valid host");
/// assert_eq!(event.reason, "MigrationFailed");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The object it is about.
    pub regarding: ObjectReference,
    /// Good or bad.
    pub severity: Severity,
    /// What was being done, in one CamelCase word.
    pub action: String,
    /// What came of it, in one CamelCase word; bounded, as people filter by it.
    pub reason: String,
    /// A sentence for people.
    pub note: String,
}

impl Event {
    /// Good news about an object.
    pub fn normal<K: Resource<DynamicType = ()>>(
        about: &K,
        action: &str,
        reason: &str,
        note: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Normal, about.object_ref(&()), action, reason, note)
    }

    /// Bad news about an object.
    pub fn warning<K: Resource<DynamicType = ()>>(
        about: &K,
        action: &str,
        reason: &str,
        note: impl Into<String>,
    ) -> Self {
        Self::new(Severity::Warning, about.object_ref(&()), action, reason, note)
    }

    /// News about whatever is referred to.
    pub fn new(
        severity: Severity,
        regarding: ObjectReference,
        action: &str,
        reason: &str,
        note: impl Into<String>,
    ) -> Self {
        // A version in the reference would make every Event of an object a different one.
        let regarding = ObjectReference { resource_version: None, ..regarding };
        Self { regarding, severity, action: action.to_owned(), reason: reason.to_owned(), note: note.into() }
    }
}

/// Where Events are handed in. Cloned freely.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: Option<mpsc::Sender<(Event, Timestamp)>>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// Hands an Event in. Never waits; an Event that finds the queue full is dropped and counted.
    pub fn publish(&self, event: Event) {
        let at = self.clock.now();
        if let Some(queue) = &self.queue
            && queue.try_send((event, at)).is_err()
        {
            self.metrics.event(EventOutcome::Dropped);
        }
    }

    /// A recorder that drops everything: for tests and for programs that may not write.
    pub fn silent() -> Self {
        Self { queue: None, clock: Clock::system(), metrics: Arc::default() }
    }
}

/// Sends what the recorders hand in.
pub struct Publisher {
    client: Client,
    queue: mpsc::Receiver<(Event, Timestamp)>,
    aggregator: Aggregator,
    controller: String,
    instance: String,
    metrics: Arc<Metrics>,
    /// Makes names unique together with the time.
    sequence: u64,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// A recorder and the publisher behind it. `controller` is the program's name, `instance` that of the pod.
///
/// ```no_run
/// use cobalt_core::runtime::{
///     clock::Clock, events::{self, Event}, metrics::Metrics, shutdown::{Lifecycle, Phase},
/// };
/// use std::sync::Arc;
///
/// # fn example(client: kube::Client, life: &Lifecycle, node: &k8s_openapi::api::core::v1::Node) {
/// let (recorder, publisher) =
///     events::recorder(client, "cobalt-operator", "cobalt-operator-0", Clock::system(), Arc::new(Metrics::new()));
/// life.phase(Phase::Events).spawn("events", publisher.run(life.phase(Phase::Events).stopping()));
/// recorder.publish(Event::normal(node, "Onboard", "Onboarded", "the host serves VMs"));
/// # }
/// ```
pub fn recorder(
    client: Client,
    controller: &str,
    instance: &str,
    clock: Clock,
    metrics: Arc<Metrics>,
) -> (Recorder, Publisher) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let publisher = Publisher {
        client,
        queue,
        aggregator: Aggregator::new(Limits::default()),
        controller: controller.to_owned(),
        // The API server refuses an empty instance, and one of more than 128 characters.
        instance: if instance.is_empty() { controller } else { instance }.chars().take(128).collect(),
        metrics: metrics.clone(),
        sequence: 0,
    };
    (Recorder { queue: Some(sender), clock, metrics }, publisher)
}

impl Publisher {
    /// Sends Events until `stop`, then what is still queued.
    pub async fn run(mut self, stop: Shutdown) -> Result<(), std::convert::Infallible> {
        loop {
            tokio::select! {
                biased;
                event = self.queue.recv() => match event {
                    Some((event, at)) => self.send(event, at).await,
                    None => return Ok(()),
                },
                () = stop.triggered() => break,
            }
        }
        self.queue.close();
        while let Some((event, at)) = self.queue.recv().await {
            self.send(event, at).await;
        }
        Ok(())
    }

    async fn send(&mut self, mut event: Event, at: Timestamp) {
        let step = self.aggregator.observe(&mut event, Instant::now());
        let outcome = match step {
            Step::Drop => EventOutcome::Dropped,
            Step::Create { key } => self.begin(&event, &key, at).await,
            Step::Repeat { key, name, count } => match self.repeat(&event, &name, count, at).await {
                Ok(()) => EventOutcome::Aggregated,
                // Events live for an hour: the first one is gone, so this one begins anew.
                Err(kube::Error::Api(status)) if status.code == 404 => self.begin(&event, &key, at).await,
                Err(error) => {
                    tracing::warn!(reason = event.reason, error = %Chain(&error), "could not update an Event");
                    EventOutcome::Failed
                }
            },
        };
        self.metrics.event(outcome);
    }

    async fn begin(&mut self, event: &Event, key: &EventKey, at: Timestamp) -> EventOutcome {
        if let Some(name) = self.create(event, at).await {
            self.aggregator.created(key, name);
            EventOutcome::Created
        } else {
            self.aggregator.forget(key);
            EventOutcome::Failed
        }
    }

    fn api(&self, event: &Event) -> Api<KubeEvent> {
        // Events about cluster-scoped objects live in `default`; the API server insists.
        Api::namespaced(self.client.clone(), event.regarding.namespace.as_deref().unwrap_or("default"))
    }

    async fn create(&mut self, event: &Event, at: Timestamp) -> Option<String> {
        self.sequence += 1;
        let about = event.regarding.name.as_deref().unwrap_or("unknown");
        let name = format!("{about}.{:x}{:04x}", at.as_microsecond(), self.sequence & 0xffff);
        let body = KubeEvent {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(event.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..Default::default()
            },
            event_time: Some(MicroTime(at)),
            regarding: Some(event.regarding.clone()),
            type_: Some(event.severity.name().to_owned()),
            action: Some(event.action.clone()),
            reason: Some(event.reason.clone()),
            note: Some(limited(&event.note)),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Default::default()
        };
        let params = PostParams { field_manager: Some(self.controller.clone()), ..Default::default() };
        let api = self.api(event);
        for attempt in 0..3_u32 {
            match api.create(&params, &body).await {
                Ok(_) => return Some(name),
                // A repeated create whose first answer was lost.
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => return Some(name),
                Err(error) if attempt < 2 && api_transient(&error) => {
                    tokio::time::sleep(Duration::from_millis(200) * (attempt + 1)).await;
                }
                Err(error) => {
                    tracing::warn!(
                        object = about, reason = event.reason, note = event.note, error = %Chain(&error),
                        "could not publish an Event"
                    );
                    return None;
                }
            }
        }
        None
    }

    async fn repeat(&self, event: &Event, name: &str, count: i32, at: Timestamp) -> Result<(), kube::Error> {
        let series = EventSeries { count, last_observed_time: MicroTime(at) };
        // Everything but the series is immutable, so combined Events keep the text of the first one.
        let patch = serde_json::json!({"series": series});
        let params = PatchParams { field_manager: Some(self.controller.clone()), ..Default::default() };
        self.api(event).patch(name, &params, &Patch::Merge(&patch)).await.map(drop)
    }
}

/// The API server refuses notes of more than 1024 bytes.
fn limited(note: &str) -> String {
    if note.len() <= 1024 {
        return note.to_owned();
    }
    let mut end = 1021;
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &note[..end])
}
