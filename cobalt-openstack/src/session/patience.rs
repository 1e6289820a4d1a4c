//! When Keystone is left alone: a pure function of what it said and the time.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::HttpError;

/// The first wait after a refused login; it doubles. Keystones lock an account after a handful of wrong passwords.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// Between two tries to renew a token that is still good.
const RENEWAL: Duration = Duration::from_secs(15);

/// What was heard at the last logins.
#[derive(Debug, Default)]
pub(super) struct Patience {
    refused: Option<Refusal>,
    renew_at: Option<Instant>,
}

#[derive(Debug)]
struct Refusal {
    said: HttpError,
    times: u32,
    until: Instant,
}

/// A login that was not tried, because the last one was refused.
#[derive(Debug, thiserror::Error)]
#[error("refused before, and not tried again for {} s", .wait.as_secs())]
pub(super) struct HeldBack {
    wait: Duration,
    #[source]
    said: HttpError,
}

impl Patience {
    /// Keystone did not take what we know.
    pub(super) fn refused(&mut self, said: &HttpError, now: Instant) {
        let times = self.refused.as_ref().map_or(0, |refusal| refusal.times).saturating_add(1);
        let pause = FIRST.saturating_mul(1 << (times - 1).min(16)).min(LONGEST);
        self.refused = Some(Refusal { said: said.clone(), times, until: now + pause });
    }

    /// A token that is still good could not be renewed.
    pub(super) fn not_renewed(&mut self, now: Instant) {
        self.renew_at = Some(now + RENEWAL);
    }

    pub(super) fn logged_in(&mut self) {
        *self = Self::default();
    }

    /// Why there is no login now, if there is none.
    pub(super) fn held_back(&self, now: Instant) -> Option<HeldBack> {
        let refusal = self.refused.as_ref().filter(|refusal| now < refusal.until)?;
        Some(HeldBack { wait: refusal.until - now, said: refusal.said.clone() })
    }

    /// Whether to renew a token that is still good.
    pub(super) fn may_renew(&self, now: Instant) -> bool {
        self.renew_at.is_none_or(|at| at <= now) && self.held_back(now).is_none()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn said() -> HttpError {
        HttpError { status: StatusCode::UNAUTHORIZED, message: "no".into(), request_id: None, retry_after: None }
    }

    #[test]
    fn a_wrong_password_is_tried_a_handful_of_times_in_half_an_hour() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        let mut now = start;
        let mut tries = 0;
        while now - start < Duration::from_secs(1800) {
            assert!(patience.held_back(now).is_none());
            tries += 1;
            patience.refused(&said(), now);
            assert!(!patience.may_renew(now));
            now += patience.held_back(now).unwrap().wait;
        }
        assert_eq!(tries, 6);
        patience.logged_in();
        patience.refused(&said(), now);
        assert_eq!(patience.held_back(now).unwrap().wait, FIRST, "a success is a new beginning");
    }

    #[test]
    fn a_renewal_is_not_tried_by_every_call() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        assert!(patience.may_renew(now));
        patience.not_renewed(now);
        assert!(!patience.may_renew(now) && patience.held_back(now).is_none());
        assert!(patience.may_renew(now + RENEWAL));
    }
}
