//! When an agent looks and writes next: soon after something happened, and later after a failure.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::runtime::queue::Backoff;

/// The longest pause between two attempts.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    /// Everything is read and written.
    Complete,
    /// Something could not be read; what is known is written.
    Incomplete,
    /// It could not be written.
    Unwritten,
}

/// The moment of the next pass.
#[derive(Debug)]
pub(super) struct Pace {
    coalesce: Duration,
    due: Option<Instant>,
    /// After a failed write nothing is written before this, however much happens.
    not_before: Instant,
    failures: u32,
}

impl Pace {
    /// The first pass is due at once.
    pub(super) fn new(coalesce: Duration) -> Self {
        let now = Instant::now();
        Self { coalesce, due: Some(now), not_before: now, failures: 0 }
    }

    /// Something happened just now.
    pub(super) fn touch(&mut self) {
        self.touch_since(Instant::now());
    }

    /// Something has happened since then: what arrived during a pass may have waited for the whole of it. The first of
    /// what arrives decides, so that a busy host is not put off for ever.
    pub(super) fn touch_since(&mut self, arrived: Instant) {
        let soon = Instant::now().max(arrived + self.coalesce);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)).max(self.not_before));
    }

    /// Waits for the moment.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// A pass has ended. Answers how long it is until the next attempt, if it is to be repeated.
    pub(super) fn passed(&mut self, how: Passed) -> Option<Duration> {
        self.failures = if how == Passed::Complete { 0 } else { self.failures + 1 };
        let pause = (self.failures > 0).then(|| BACKOFF.after(self.failures));
        self.due = pause.map(|pause| Instant::now() + pause);
        if let (Passed::Unwritten, Some(due)) = (how, self.due) {
            self.not_before = due;
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    const COALESCE: Duration = Duration::from_millis(100);

    async fn rested() -> Pace {
        let mut pace = Pace::new(COALESCE);
        pace.due().await;
        assert_eq!(pace.passed(Passed::Complete), None);
        pace
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_of_a_burst_decides_when() {
        let mut pace = rested().await;
        assert!(pace.due().now_or_never().is_none(), "nothing happened");
        pace.touch();
        advance(COALESCE / 2).await;
        pace.touch();
        let began = Instant::now();
        pace.due().await;
        assert!(began.elapsed() <= COALESCE / 2 + Duration::from_millis(2), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waited_for_a_pass_need_not_be_gathered_again() {
        let mut pace = rested().await;
        let began = Instant::now();
        advance(COALESCE * 3).await;
        pace.touch_since(began);
        assert!(pace.due().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failed_write_nothing_hurries_and_after_a_failed_read_something_may() {
        let mut pace = rested().await;
        let pause = pace.passed(Passed::Unwritten).unwrap_or_default();
        assert!(pause >= Duration::from_millis(500), "{pause:?}");
        pace.touch();
        let began = Instant::now();
        pace.due().await;
        assert!(began.elapsed() >= pause);
        let pause = pace.passed(Passed::Incomplete).unwrap_or_default();
        pace.touch();
        let began = Instant::now();
        pace.due().await;
        assert!(began.elapsed() < pause);
    }
}
