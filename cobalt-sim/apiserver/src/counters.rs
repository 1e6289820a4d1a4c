//! How often each client asked for what, and how often that changed something.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::verbs::{Target, Verb};

/// What is counted apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterKey {
    /// Name of the client.
    pub client: String,
    /// What it did.
    pub verb: Verb,
    /// `plural.group`, or the plural alone in the core group.
    pub resource: String,
    /// The subresource, empty for the object itself.
    pub subresource: String,
}

/// Counts of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests, whatever became of them.
    pub requests: u64,
    /// Requests that stored, changed or removed something.
    pub writes: u64,
}

/// Counters of a server, readable at any time.
#[derive(Debug, Default)]
pub struct Counters(Mutex<BTreeMap<CounterKey, Counts>>);

impl Counters {
    pub(crate) fn request(&self, client: &str, target: &Target) -> CounterKey {
        let key = CounterKey {
            client: client.to_owned(),
            verb: target.verb,
            resource: resource_name(&target.resource.group, &target.resource.plural),
            subresource: target.subresource.clone().unwrap_or_default(),
        };
        self.count(&key, |c| c.requests += 1);
        key
    }

    pub(crate) fn write(&self, key: &CounterKey) {
        self.count(key, |c| c.writes += 1);
    }

    fn count(&self, key: &CounterKey, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(counts.entry(key.clone()).or_default());
    }

    /// All counts so far.
    pub fn all(&self) -> BTreeMap<CounterKey, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The sum of the counts `which` picks.
    pub fn sum(&self, which: impl Fn(&CounterKey) -> bool) -> Counts {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let picked = counts.iter().filter(|(key, _)| which(key));
        picked.fold(Counts::default(), |sum, (_, c)| Counts {
            requests: sum.requests + c.requests,
            writes: sum.writes + c.writes,
        })
    }

    /// Requests of one client, all of them.
    pub fn of_client(&self, client: &str) -> Counts {
        self.sum(|key| key.client == client)
    }

    /// Starts again from zero.
    pub fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// `plural.group`.
pub(crate) fn resource_name(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}
