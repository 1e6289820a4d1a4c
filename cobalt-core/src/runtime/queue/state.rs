//! The queue without its waiting.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    time::Duration,
};

use tokio::time::Instant;

use super::{Backoff, Key, Outcome};
use crate::runtime::state::QueueReport;

/// How many failing keys the state page names.
const SHOWN: usize = 10;

#[derive(Debug, Default)]
struct Entry {
    phase: Phase,
    /// The wish for a later pass.
    due: Option<Instant>,
    failures: u32,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Resting,
    Ready {
        since: Instant,
    },
    Running {
        /// Added meanwhile.
        again: bool,
    },
}

#[derive(Debug)]
pub(super) struct Inner<K> {
    backoff: Backoff,
    entries: HashMap<K, Entry>,
    ready: VecDeque<K>,
    delayed: BTreeSet<(Instant, K)>,
    running: usize,
    retries: u64,
}

impl<K: Key> Inner<K> {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            entries: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            running: 0,
            retries: 0,
        }
    }

    pub(super) fn add(&mut self, key: K, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        match &mut entry.phase {
            Phase::Ready { .. } => {}
            Phase::Running { again } => *again = true,
            Phase::Resting => {
                entry.phase = Phase::Ready { since: now };
                if let Some(due) = entry.due.take() {
                    self.delayed.remove(&(due, key.clone()));
                }
                self.ready.push_back(key);
            }
        }
    }

    pub(super) fn add_at(&mut self, key: K, at: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        match entry.phase {
            Phase::Ready { .. } => {}
            // Kept until the pass ends; see `done`.
            Phase::Running { .. } => entry.due = Some(entry.due.map_or(at, |due| due.min(at))),
            Phase::Resting => {
                if let Some(due) = entry.due {
                    if due <= at {
                        return;
                    }
                    self.delayed.remove(&(due, key.clone()));
                }
                entry.due = Some(at);
                self.delayed.insert((at, key));
            }
        }
    }

    /// A key to work on, or when to look again.
    pub(super) fn take(&mut self, now: Instant) -> Result<K, Option<Instant>> {
        while let Some((at, key)) = self.delayed.first() {
            if *at > now {
                break;
            }
            let (at, key) = (*at, key.clone());
            self.delayed.pop_first();
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.due = None;
                entry.phase = Phase::Ready { since: at };
                self.ready.push_back(key);
            }
        }
        let Some(key) = self.ready.pop_front() else {
            return Err(self.delayed.first().map(|(at, _)| *at));
        };
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.phase = Phase::Running { again: false };
        }
        self.running += 1;
        Ok(key)
    }

    pub(super) fn done(&mut self, key: &K, outcome: Outcome, now: Instant) -> Option<Duration> {
        let entry = self.entries.get_mut(key)?;
        let Phase::Running { again } = entry.phase else { return None };
        self.running -= 1;
        entry.phase = Phase::Resting;
        let wish = entry.due.take();
        let pause = match outcome {
            Outcome::Done => {
                entry.failures = 0;
                None
            }
            Outcome::Again(delay) => {
                entry.failures = 0;
                Some(delay)
            }
            Outcome::Failed => {
                entry.failures = entry.failures.saturating_add(1);
                self.retries += 1;
                Some(spread(self.backoff.after(entry.failures), key))
            }
        };
        // A key that was touched meanwhile is worked on at once, unless it has just failed: the touch is not forgotten,
        // but a chatty object must not defeat the pause.
        if again && outcome != Outcome::Failed {
            self.add(key.clone(), now);
            return pause;
        }
        // A failing key waits for its pause even if an earlier wish stands, or the wish would defeat the pause.
        let at = match (pause.map(|pause| now + pause), wish) {
            (Some(at), Some(wish)) if outcome != Outcome::Failed => Some(at.min(wish)),
            (Some(at), _) => Some(at),
            (None, wish) => wish,
        };
        match at {
            Some(at) => self.add_at(key.clone(), at),
            None => {
                self.entries.remove(key);
            }
        }
        pause
    }

    pub(super) fn counts(&self) -> (usize, usize) {
        (self.ready.len(), self.running)
    }

    pub(super) fn report(&self, name: &'static str, now: Instant) -> QueueReport {
        let oldest = self.ready.front().and_then(|key| match self.entries.get(key)?.phase {
            Phase::Ready { since } => Some(now.saturating_duration_since(since).as_secs_f64()),
            _ => None,
        });
        let mut failing: Vec<(String, u32)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.failures > 0)
            .map(|(key, entry)| (format!("{key:?}").trim_matches('"').to_owned(), entry.failures))
            .collect();
        failing.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        failing.truncate(SHOWN);
        QueueReport {
            name,
            depth: self.ready.len(),
            delayed: self.delayed.len(),
            in_flight: self.running,
            retries: self.retries,
            oldest_seconds: oldest,
            failing,
        }
    }
}

/// A thousand keys that failed together must not come back together: each waits up to a tenth longer, by its hash.
fn spread<K: Key>(pause: Duration, key: &K) -> Duration {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
    #[allow(clippy::cast_precision_loss)] // 10 bits fit
    let share = (hash % 1024) as f64 / 10240.0;
    pause + pause.mul_f64(share)
}

#[cfg(test)]
mod tests;
