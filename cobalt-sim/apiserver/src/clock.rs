//! Time and randomness, both passed in so that a run can be repeated.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;
use uuid::{Builder, Uuid};

/// The server's clock: a fixed start plus the time Tokio says has passed.
///
/// Under `tokio::time::pause()` this is virtual time, so that timestamps in objects, watch timeouts and
/// bookmarks all move together with the test.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Timestamp,
    origin: Instant,
}

impl Clock {
    /// A clock that shows `start` now.
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, origin: Instant::now() }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.start.checked_add(self.origin.elapsed()).unwrap_or(Timestamp::MAX)
    }

    /// The present moment as Kubernetes writes it: RFC 3339 in UTC, whole seconds.
    pub fn rfc3339(&self) -> String {
        seconds(self.now())
    }
}

/// `2026-01-01T00:00:00Z`.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Source of uids and of the random end of generated names.
#[derive(Debug)]
pub(crate) struct Entropy(Mutex<StdRng>);

impl Entropy {
    /// The same seed gives the same uids and names in the same order.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        let rng = seed.map_or_else(|| rand::make_rng(), StdRng::seed_from_u64);
        Self(Mutex::new(rng))
    }

    pub(crate) fn uid(&self) -> String {
        let bytes: [u8; 16] = self.0.lock().unwrap_or_else(PoisonError::into_inner).random();
        let uid: Uuid = Builder::from_random_bytes(bytes).into_uuid();
        uid.to_string()
    }

    /// Five characters without vowels, as the real server appends them to `generateName`.
    pub(crate) fn suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (0..5).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())])).collect()
    }
}

/// Numbers in a row.
#[derive(Debug, Default)]
pub(crate) struct Sequence(AtomicU32);

impl Sequence {
    pub(crate) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_virtual_time() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.rfc3339(), "1970-01-01T00:01:30Z");
    }

    #[test]
    fn a_seed_fixes_uids_and_suffixes() {
        let (a, b) = (Entropy::new(Some(7)), Entropy::new(Some(7)));
        assert_eq!((a.uid(), a.suffix()), (b.uid(), b.suffix()));
        assert_eq!(a.suffix().len(), 5);
        assert_ne!(a.uid(), Entropy::new(None).uid());
    }
}
