//! A work queue keyed by object, and its runner.
//!
//! Why not kube's `Controller`: it is bound to one kind and forgets a key when its object is deleted. Ours are keyed by
//! *name* across kinds (a Node and the Hypervisor made from it are one piece of work), and a deleted Node must still be
//! reconciled.
//!
//! The laws (tested as such):
//!
//! - a key is worked on by one worker at a time;
//! - a key added while waiting is not added twice; added while being worked on, it is worked on once more afterwards;
//! - no added key is forgotten;
//! - a failing key comes back after a pause that doubles up to a limit, and no other key waits for it;
//! - a success resets the pause;
//! - at most `concurrency` keys are worked on at once; memory grows with the number of distinct keys, not of additions.

mod runner;
mod state;

pub use runner::{Next, run};

use std::{
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use self::state::Inner;
use super::{
    lock,
    metrics::Metrics,
    state::{QueueReport, Status},
};

/// What can be a key.
pub trait Key: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static {}

impl<T: Clone + Debug + Eq + Hash + Ord + Send + Sync + 'static> Key for T {}

/// How long a failing key waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub limit: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(500), limit: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The pause after so many failures in a row: doubled each time, up to the limit.
    ///
    /// ```
    /// use cobalt_core::runtime::queue::Backoff;
    /// use std::time::Duration;
    ///
    /// let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };
    /// assert_eq!(backoff.after(1), Duration::from_secs(1));
    /// assert_eq!(backoff.after(4), Duration::from_secs(8));
    /// assert_eq!(backoff.after(4000), Duration::from_secs(60));
    /// ```
    pub fn after(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.limit)
    }
}

/// A queue of keys. Cloned freely; all clones are the same queue.
///
/// ```
/// use cobalt_core::runtime::{
///     metrics::Metrics, queue::{self, Next, Queue}, shutdown::Shutdown,
/// };
/// use std::{sync::Arc, time::Duration};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let metrics = Arc::new(Metrics::new());
/// let queue = Queue::new("hypervisors", metrics);
/// queue.add("node-1".to_owned());
/// queue.add("node-1".to_owned()); // one piece of work
///
/// let stop = Shutdown::new();
/// let end = stop.clone();
/// queue::run(&queue, 4, stop, move |name: String| {
///     let end = end.clone();
///     async move {
///         assert_eq!(name, "node-1");
///         end.trigger();
///         Ok::<_, cobalt_core::Error>(Next::Wait)
///     }
/// })
/// .await;
/// # });
/// ```
#[derive(Debug)]
pub struct Queue<K> {
    name: &'static str,
    inner: Arc<Mutex<Inner<K>>>,
    changed: Arc<Notify>,
    metrics: Arc<Metrics>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name,
            inner: self.inner.clone(),
            changed: self.changed.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

impl<K: Key> Queue<K> {
    /// An empty queue with the usual pauses.
    pub fn new(name: &'static str, metrics: Arc<Metrics>) -> Self {
        Self::with_backoff(name, Backoff::default(), metrics)
    }

    /// An empty queue.
    pub fn with_backoff(name: &'static str, backoff: Backoff, metrics: Arc<Metrics>) -> Self {
        Self { name, inner: Arc::new(Mutex::new(Inner::new(backoff))), changed: Arc::default(), metrics }
    }

    /// The queue's name, as in metrics and `/debug/state`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Wants a key worked on as soon as possible.
    pub fn add(&self, key: K) {
        lock(&self.inner).add(key, Instant::now());
        self.changed();
    }

    /// Wants a key worked on after a while; an earlier wish stands.
    pub fn add_after(&self, key: K, delay: Duration) {
        lock(&self.inner).add_at(key, Instant::now() + delay);
        self.changed();
    }

    /// Waits for a key whose turn it is. It must be given back with [`Queue::done`].
    pub async fn next(&self) -> K {
        loop {
            let notified = self.changed.notified();
            let wake = {
                let mut inner = lock(&self.inner);
                match inner.take(Instant::now()) {
                    Ok(key) => {
                        drop(inner);
                        self.count();
                        return key;
                    }
                    Err(wake) => wake,
                }
            };
            match wake {
                Some(at) => tokio::select! {
                    () = notified => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => notified.await,
            }
        }
    }

    /// Gives a key back. After a failure it comes again after its pause, which is returned.
    pub fn done(&self, key: &K, outcome: Outcome) -> Option<Duration> {
        let pause = lock(&self.inner).done(key, outcome, Instant::now());
        if outcome == Outcome::Failed {
            self.metrics.queue_retry(self.name);
        }
        self.changed();
        pause
    }

    /// Shows the queue on `/debug/state`.
    pub fn show(&self, status: &Status) {
        let queue = self.clone();
        status.queue(move || queue.report());
    }

    /// The queue's state.
    pub fn report(&self) -> QueueReport {
        lock(&self.inner).report(self.name, Instant::now())
    }

    fn changed(&self) {
        self.count();
        // One waiter at a time (the runner), and a permit is kept if it is not waiting right now.
        self.changed.notify_one();
    }

    fn count(&self) {
        let (depth, in_flight) = lock(&self.inner).counts();
        self.metrics.queue(self.name, depth, in_flight);
    }
}

/// How the work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well; the key rests until it is added again.
    Done,
    /// Well; the key comes again after this time.
    Again(Duration),
    /// Badly; the key comes again after its pause.
    Failed,
}
