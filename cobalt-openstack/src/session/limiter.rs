//! Our own rate: a bucket of turns that fills at a steady pace.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Limiter {
    /// Between two turns in the long run.
    pace: Duration,
    /// How far turns may be taken ahead of the pace.
    slack: Duration,
    /// When the next turn would be if all had kept the pace.
    next: Instant,
    /// Nothing before.
    paused: Instant,
}

impl Limiter {
    pub(super) fn new(rate: f64, burst: u32, now: Instant) -> Self {
        // A rate of nothing, or of no number, would be a standstill; once a minute is slow enough.
        let pace = if rate > 0.0 { Duration::from_secs_f64((1.0 / rate).min(60.0)) } else { Duration::from_secs(60) };
        Self { pace, slack: pace.saturating_mul(burst.max(1) - 1), next: now, paused: now }
    }

    /// Takes the next turn, and answers when it is.
    pub(super) fn reserve(&mut self, now: Instant) -> Instant {
        let next = self.next.max(now);
        self.next = next + self.pace;
        let turn = next.checked_sub(self.slack).map_or(now, |early| early.max(now));
        turn.max(self.paused)
    }

    /// Gives no turns before `until`.
    pub(super) fn pause(&mut self, until: Instant) {
        self.paused = self.paused.max(until);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn waits(limiter: &mut Limiter, now: Instant, count: usize) -> Vec<u64> {
        let wait = |at: Instant| u64::try_from((at - now).as_millis()).unwrap();
        (0..count).map(|_| wait(limiter.reserve(now))).collect()
    }

    #[test]
    fn a_burst_goes_through_and_then_the_pace_holds() {
        let now = Instant::now();
        let mut limiter = Limiter::new(10.0, 3, now);
        assert_eq!(waits(&mut limiter, now, 5), [0, 0, 0, 100, 200]);
        let later = now + Duration::from_secs(60);
        assert_eq!(waits(&mut limiter, later, 4), [0, 0, 0, 100], "a long rest gives one burst, not many");
    }

    #[test]
    fn a_pause_holds_everybody() {
        let now = Instant::now();
        let mut limiter = Limiter::new(10.0, 100, now);
        limiter.pause(now + Duration::from_secs(2));
        limiter.pause(now + Duration::from_secs(1));
        assert_eq!(waits(&mut limiter, now, 2), [2000, 2000]);
    }

    #[test]
    fn a_senseless_rate_is_no_standstill() {
        for rate in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            let now = Instant::now();
            let mut limiter = Limiter::new(rate, 0, now);
            assert_eq!(waits(&mut limiter, now, 2), [0, 60_000], "{rate}");
        }
    }
}
