//! Faults on purpose: what goes wrong, for whom, and when.
//!
//! A plan is a list of [`Fault`]s, each a [`Matcher`] and an [`Effect`]. Plans are data: they can be written as
//! JSON, stored beside a failing seed and replayed. Every fault that fires is recorded.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::counters::resource_name;
use crate::verbs::{Target, Verb};

/// Which requests a fault concerns. Empty fields match everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matcher {
    /// Client name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Verb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<Verb>,
    /// `plural.group`, or the plural alone in the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Subresource; `""` means the object itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Object name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Fire from this matching request on, counted from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// After that, fire on every so-many-th matching request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Fire at most this often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

impl Matcher {
    /// Everything a client does.
    pub fn client(name: impl Into<String>) -> Self {
        Self { client: Some(name.into()), ..Self::default() }
    }

    /// Restricts to a verb.
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Restricts to a resource, named `plural.group`.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Restricts to a subresource; `""` means the object itself.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Restricts to an object name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Restricts to a namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Starts with the n-th matching request, counted from one.
    pub fn nth(mut self, nth: u64) -> Self {
        self.nth = Some(nth);
        self
    }

    /// Fires on every n-th matching request only.
    pub fn every(mut self, every: u64) -> Self {
        self.every = Some(every);
        self
    }

    /// Fires at most so often.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    fn concerns(&self, request: &Facts) -> bool {
        let is = |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|w| w == actual);
        self.verb.is_none_or(|verb| verb == request.verb)
            && is(&self.client, &request.client)
            && is(&self.resource, &request.resource)
            && is(&self.subresource, &request.subresource)
            && is(&self.namespace, &request.namespace)
            && is(&self.name, &request.name)
    }

    /// Whether the `seen`-th matching request fires, after `fired` times already.
    fn fires(&self, seen: u64, fired: u64) -> bool {
        let first = self.nth.unwrap_or(1).max(1);
        let every = self.every.unwrap_or(1).max(1);
        seen >= first && (seen - first).is_multiple_of(every) && self.times.is_none_or(|times| fired < times)
    }
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Effect {
    /// The request is refused with this status code and not executed.
    Status {
        /// HTTP status code.
        code: u16,
        /// Seconds for a `Retry-After` header.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
    },
    /// The request waits before it is executed.
    Latency {
        /// Milliseconds.
        millis: u64,
    },
    /// A watch ends after so many events.
    CutWatch {
        /// Events to send first.
        #[serde(default)]
        after_events: u64,
        /// Break the connection instead of ending the stream.
        #[serde(default)]
        abrupt: bool,
    },
    /// A watch tells every event so much later.
    LagWatch {
        /// Milliseconds.
        millis: u64,
    },
    /// A watch answers 410 at once, so that the client must list again.
    Relist,
    /// The request is executed, but the connection breaks before the answer.
    DropResponse,
    /// The client is to die here: the request is not executed and never answered.
    CrashBefore,
    /// The client is to die here: the request is executed and never answered.
    CrashAfter,
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    #[serde(rename = "when", default)]
    pub matcher: Matcher,
    /// What.
    #[serde(rename = "then")]
    pub effect: Effect,
}

impl Fault {
    /// A fault.
    pub fn new(matcher: Matcher, effect: Effect) -> Self {
        Self { matcher, effect }
    }
}

/// What a request is, as matchers and records see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Client name.
    pub client: String,
    /// Verb.
    pub verb: Verb,
    /// `plural.group`.
    pub resource: String,
    /// Subresource or `""`.
    pub subresource: String,
    /// Namespace or `""`.
    pub namespace: String,
    /// Object name or `""`.
    pub name: String,
}

impl Facts {
    pub(crate) fn new(client: &str, target: &Target) -> Self {
        Self {
            client: client.to_owned(),
            verb: target.verb,
            resource: resource_name(&target.resource.group, &target.resource.plural),
            subresource: target.subresource.clone().unwrap_or_default(),
            namespace: target.namespace.clone().unwrap_or_default(),
            name: target.name.clone().unwrap_or_default(),
        }
    }
}

/// A fault that fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// Index of the fault in the plan.
    pub fault: usize,
    /// What it did.
    pub effect: Effect,
    /// To which request.
    pub request: Facts,
}

/// How an open watch is disturbed from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Interruption {
    /// The stream ends as after a timeout.
    End,
    /// The connection breaks.
    Break,
    /// A 410 is told, then the stream ends.
    Expire,
}

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<(Fault, u64, u64)>,
    fired: Vec<Fired>,
}

/// The faults of a server.
#[derive(Debug)]
pub struct Faults {
    plan: Mutex<Plan>,
    crashes: broadcast::Sender<Fired>,
    pub(crate) interruptions: broadcast::Sender<(Matcher, Interruption)>,
}

/// More records than any test reads, and still a bound.
const RECORD_LIMIT: usize = 100_000;

impl Default for Faults {
    fn default() -> Self {
        Self { plan: Mutex::default(), crashes: broadcast::Sender::new(64), interruptions: broadcast::Sender::new(64) }
    }
}

impl Faults {
    /// Replaces the plan; counting starts again, the record stays.
    pub fn set(&self, plan: impl IntoIterator<Item = Fault>) {
        let mut state = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults = plan.into_iter().map(|fault| (fault, 0, 0)).collect();
    }

    /// Adds a fault to the plan.
    pub fn add(&self, fault: Fault) {
        let mut state = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults.push((fault, 0, 0));
    }

    /// No more faults.
    pub fn clear(&self) {
        self.set([]);
    }

    /// What fired so far, in order.
    pub fn fired(&self) -> Vec<Fired> {
        let state = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        state.fired.clone()
    }

    /// Tells of crash points as they are reached, so that a harness can kill the client.
    pub fn crashes(&self) -> broadcast::Receiver<Fired> {
        self.crashes.subscribe()
    }

    /// Disturbs the watches that are open now and match. Returns how many watches were listening at all.
    pub fn interrupt(&self, matcher: Matcher, how: Interruption) -> usize {
        self.interruptions.send((matcher, how)).unwrap_or(0)
    }

    /// The effects on a request, in the order of the plan.
    pub(crate) fn on(&self, request: &Facts) -> Injected {
        let mut state = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let mut injected = Injected::default();
        let mut fired = Vec::new();
        for (index, (fault, seen, count)) in state.faults.iter_mut().enumerate() {
            if !fault.matcher.concerns(request) {
                continue;
            }
            *seen += 1;
            if fault.matcher.fires(*seen, *count) {
                *count += 1;
                injected.add(index, &fault.effect);
                fired.push(Fired { fault: index, effect: fault.effect.clone(), request: request.clone() });
            }
        }
        for fired in fired {
            if state.fired.len() < RECORD_LIMIT {
                state.fired.push(fired);
            }
        }
        injected
    }

    pub(crate) fn signal_crash(&self, fault: usize, effect: Effect, request: Facts) {
        // Nobody listening is fine: the request then simply hangs.
        let _ = self.crashes.send(Fired { fault, effect, request });
    }
}

impl Matcher {
    /// Whether an open watch is meant.
    pub(crate) fn concerns_watch(&self, request: &Facts) -> bool {
        self.concerns(request)
    }
}

/// All effects on one request together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Injected {
    pub(crate) status: Option<(u16, Option<u32>)>,
    pub(crate) latency: Duration,
    pub(crate) cut_after: Option<(u64, bool)>,
    pub(crate) lag: Duration,
    pub(crate) relist: bool,
    pub(crate) drop_response: bool,
    /// The fault in the plan that is a crash point.
    pub(crate) crash_before: Option<usize>,
    pub(crate) crash_after: Option<usize>,
}

impl Injected {
    fn add(&mut self, index: usize, effect: &Effect) {
        match effect {
            Effect::Status { code, retry_after } => self.status = Some((*code, *retry_after)),
            Effect::Latency { millis } => self.latency += Duration::from_millis(*millis),
            Effect::CutWatch { after_events, abrupt } => self.cut_after = Some((*after_events, *abrupt)),
            Effect::LagWatch { millis } => self.lag += Duration::from_millis(*millis),
            Effect::Relist => self.relist = true,
            Effect::DropResponse => self.drop_response = true,
            Effect::CrashBefore => self.crash_before = Some(index),
            Effect::CrashAfter => self.crash_after = Some(index),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn facts(client: &str, verb: Verb) -> Facts {
        Facts {
            client: client.into(),
            verb,
            resource: "pods".into(),
            subresource: String::new(),
            namespace: "default".into(),
            name: "a".into(),
        }
    }

    #[test]
    fn a_fault_fires_from_the_nth_time_on_every_so_often_and_not_more() {
        let faults = Faults::default();
        let matcher = Matcher::client("c").verb(Verb::Patch).nth(2).every(2).times(2);
        faults.add(Fault::new(matcher, Effect::DropResponse));
        let hits: Vec<bool> = (0..8).map(|_| faults.on(&facts("c", Verb::Patch)).drop_response).collect();
        assert_eq!(hits, [false, true, false, true, false, false, false, false]);
        assert!(!faults.on(&facts("other", Verb::Patch)).drop_response);
        assert_eq!(faults.fired().len(), 2);
    }

    #[test]
    fn a_plan_is_data() {
        let text = r#"[{"when":{"client":"agent","verb":"update","times":1},"then":{"status":{"code":503,"retryAfter":2}}},
                       {"then":"relist"}]"#;
        let plan: Vec<Fault> = serde_json::from_str(text).unwrap();
        assert_eq!(plan[0].matcher.client.as_deref(), Some("agent"));
        let expected = Effect::Status { code: 503, retry_after: Some(2) };
        assert_eq!(plan[0].effect, expected);
        let again: Vec<Fault> = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(again, plan);
    }
}
