//! How often what was asked for.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Where requests for what we do not have are counted.
pub(super) const OTHER: &str = "other";

/// Requests by method and route, such as `GET /compute/v2.1/servers/{}`. The keys are the routes we know and `other`, so
/// there is no end of them.
#[derive(Debug, Default)]
pub struct Counters(Mutex<BTreeMap<&'static str, u64>>);

impl Counters {
    pub(super) fn count(&self, route: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(route).or_default() += 1;
    }

    /// All counts so far.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The requests of one route.
    pub fn of(&self, route: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(route).copied().unwrap_or(0)
    }

    /// All requests.
    pub fn sum(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Starts again from zero.
    pub fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
