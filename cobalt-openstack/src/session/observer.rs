//! Who wants to know how calls go.

use std::time::Duration;

/// One call that is over, with its attempts. All texts are bounded, so they may be metric labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord {
    /// `compute` or `placement`.
    pub service: &'static str,
    /// The method of the seam.
    pub call: &'static str,
    /// `ok`, or the category of the error.
    pub outcome: &'static str,
    /// How many requests it took.
    pub attempts: u32,
    /// How long it took, waits included.
    pub elapsed: Duration,
}

/// Hears of every call: the place to count and to measure.
pub trait CallObserver: Send + Sync {
    /// Called once per request to the cloud (a page is one), after its last attempt. It must not block.
    fn observe(&self, record: &CallRecord);
}

impl<F: Fn(&CallRecord) + Send + Sync> CallObserver for F {
    fn observe(&self, record: &CallRecord) {
        self(record);
    }
}
