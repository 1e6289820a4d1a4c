//! Telling a silent server from a dead one.
//!
//! ```text
//!             heard anything                  heard anything
//!          ┌──────────────────┐           ┌───────────────────┐
//!          ▼                  │           ▼                   │
//!       listening ── interval passes ──▶ asked ── interval ──▶ given up
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Ask,
    GiveUp { after: Duration },
}

/// Pure bookkeeping: it is told the time and says what is due.
#[derive(Debug)]
pub(super) struct Probe {
    interval: Duration,
    heard: Instant,
    asked: bool,
}

impl Probe {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, heard: now, asked: false }
    }

    /// Anything at all came from the server.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.asked = false;
    }

    /// When to ask again what is due.
    pub(super) fn deadline(&self) -> Instant {
        self.heard + self.interval.saturating_mul(1 + u32::from(self.asked))
    }

    pub(super) fn due(&mut self, now: Instant) -> Due {
        if now < self.deadline() {
            Due::Nothing
        } else if self.asked {
            Due::GiveUp { after: now - self.heard }
        } else {
            self.asked = true;
            Due::Ask
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_asked_once_and_then_given_up() {
        let start = Instant::now();
        let second = |n| start + Duration::from_secs(n);
        let mut probe = Probe::new(Duration::from_secs(5), start);
        assert_eq!(probe.due(second(4)), Due::Nothing);
        assert_eq!(probe.due(second(5)), Due::Ask);
        assert_eq!(probe.due(second(9)), Due::Nothing);
        probe.heard(second(9));
        assert_eq!(probe.due(second(13)), Due::Nothing);
        assert_eq!(probe.due(second(14)), Due::Ask);
        assert_eq!(probe.due(second(19)), Due::GiveUp { after: Duration::from_secs(10) });
    }
}
