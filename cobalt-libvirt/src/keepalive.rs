//! Telling a silent daemon from a dead one.
//!
//! ```text
//!             heard anything                      heard anything
//!          ┌──────────────────┐          ┌────────────────────────────┐
//!          ▼                  │          ▼                            │
//!       listening ── interval passes ──▶ pinged n times ── interval ──▶ n = count? given up
//!                                             ▲    │
//!                                             └────┘ n < count: ping again
//! ```

use std::time::Duration;

use tokio::time::Instant;

pub(crate) const PING: u32 = 1;
pub(crate) const PONG: u32 = 2;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Ping,
    GiveUp { after: Duration },
}

/// Pure bookkeeping: it is told the time and says what is due.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    count: u32,
    heard: Instant,
    pings: u32,
}

impl Keepalive {
    pub(crate) fn new(interval: Duration, count: u32, now: Instant) -> Self {
        Self { interval, count, heard: now, pings: 0 }
    }

    /// Anything at all came from the peer.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
        self.pings = 0;
    }

    /// When to ask again what is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.heard + self.interval.saturating_mul(self.pings.saturating_add(1))
    }

    pub(crate) fn due(&mut self, now: Instant) -> Due {
        if now < self.deadline() {
            Due::Nothing
        } else if self.pings >= self.count {
            Due::GiveUp { after: now - self.heard }
        } else {
            self.pings += 1;
            Due::Ping
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_pinged_and_then_given_up() {
        let start = Instant::now();
        let second = |n| start + Duration::from_secs(n);
        let mut keepalive = Keepalive::new(Duration::from_secs(5), 2, start);
        assert_eq!(keepalive.due(second(4)), Due::Nothing);
        assert_eq!(keepalive.due(second(5)), Due::Ping);
        assert_eq!(keepalive.due(second(5)), Due::Nothing);
        assert_eq!(keepalive.due(second(10)), Due::Ping);
        keepalive.heard(second(11));
        assert_eq!(keepalive.due(second(15)), Due::Nothing);
        assert_eq!(keepalive.due(second(16)), Due::Ping);
        assert_eq!(keepalive.due(second(21)), Due::Ping);
        assert_eq!(keepalive.due(second(26)), Due::GiveUp { after: Duration::from_secs(15) });
    }
}
