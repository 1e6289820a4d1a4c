//! Wall time, passed around instead of read.

use jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time.
///
/// Decisions never read a clock; they are given a [`Timestamp`]. The part that calls them holds a `Clock`: the system's
/// in production, or one that follows tokio's time, which tests pause and advance.
///
/// ```
/// use cobalt_core::runtime::clock::Clock;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
/// tokio::time::advance(Duration::from_secs(90)).await;
/// assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Tokio { start: Timestamp, origin: Instant },
}

impl Clock {
    /// The system's wall clock. It may step; durations are measured with [`Clock::instant`].
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that reads `start` now and moves with tokio's time.
    pub fn starting_at(start: Timestamp) -> Self {
        Self(Source::Tokio { start, origin: Instant::now() })
    }

    /// The wall time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Tokio { start, origin } => start.saturating_add(origin.elapsed()).unwrap_or(Timestamp::MAX),
        }
    }

    /// The monotonic time, for durations and deadlines.
    pub fn instant(&self) -> Instant {
        Instant::now()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}
