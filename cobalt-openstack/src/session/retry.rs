//! Whether to try again, and when: a pure function.

use std::time::Duration;

use http::{Method, StatusCode};

use super::Failed;
use crate::options::Options;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Wait(Duration),
    GiveUp,
}

/// What to do after attempt number `attempt` (from 1) failed.
///
/// A request that the service did not take (429, no connection) may be repeated, whatever it was. One that it may have
/// carried out (a broken connection, a gateway's timeout) only if doing it twice is the same as once.
pub(super) fn verdict(failed: &Failed, method: &Method, attempt: u32, options: &Options) -> Verdict {
    let repeatable = *method != Method::POST;
    let asked = match failed {
        Failed::Http(error) => match error.status {
            StatusCode::TOO_MANY_REQUESTS => error.retry_after,
            StatusCode::SERVICE_UNAVAILABLE if repeatable || error.retry_after.is_some() => error.retry_after,
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT if *method == Method::GET => error.retry_after,
            _ => return Verdict::GiveUp,
        },
        Failed::NotSent(_) => None,
        Failed::Broken(_) if repeatable => None,
        // Another attempt of a read may find a quicker worker; a write is for the caller to look after.
        Failed::Timeout(_) if *method == Method::GET => None,
        Failed::Broken(_) | Failed::Timeout(_) | Failed::Malformed(..) | Failed::NoEndpoint(_) => {
            return Verdict::GiveUp;
        }
    };
    if attempt >= options.attempts {
        return Verdict::GiveUp;
    }
    let doubled = options.backoff.saturating_mul(1 << (attempt - 1).min(16));
    let wait = asked.unwrap_or(doubled);
    if asked.is_some_and(|asked| asked > options.longest_wait) {
        return Verdict::GiveUp;
    }
    Verdict::Wait(wait.min(options.longest_wait))
}

/// The header in either of its forms; a date is measured against the answer's own.
pub(super) fn retry_after(value: Option<&str>, date: Option<&str>) -> Option<Duration> {
    let value = value?.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let read = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp());
    let wait = read(value)?.duration_since(read(date?.trim())?);
    Some(Duration::try_from(wait).unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::HttpError;

    fn http(status: u16, retry_after: Option<u64>) -> Failed {
        let retry_after = retry_after.map(Duration::from_secs);
        let status = StatusCode::from_u16(status).unwrap();
        Failed::Http(HttpError { status, message: String::new(), request_id: None, retry_after })
    }

    #[test]
    fn only_what_was_not_done_or_may_be_repeated_is_tried_again() {
        let options = Options::default();
        let wait = |seconds| Verdict::Wait(Duration::from_secs_f64(seconds));
        for (failed, method, wanted) in [
            (http(429, None), Method::POST, wait(0.5)),
            (http(429, Some(7)), Method::POST, wait(7.0)),
            (http(503, None), Method::GET, wait(0.5)),
            (http(503, None), Method::PUT, wait(0.5)),
            (http(503, None), Method::POST, Verdict::GiveUp),
            (http(503, Some(2)), Method::POST, wait(2.0)),
            (http(502, None), Method::GET, wait(0.5)),
            (http(504, None), Method::DELETE, Verdict::GiveUp),
            (http(500, None), Method::GET, Verdict::GiveUp),
            (http(404, None), Method::GET, Verdict::GiveUp),
            (http(409, Some(1)), Method::PUT, Verdict::GiveUp),
            (Failed::Timeout(Duration::ZERO), Method::GET, wait(0.5)),
            (Failed::Timeout(Duration::ZERO), Method::PUT, Verdict::GiveUp),
            (Failed::NoEndpoint(String::new()), Method::GET, Verdict::GiveUp),
        ] {
            assert_eq!(verdict(&failed, &method, 1, &options), wanted, "{failed:?} {method}");
        }
    }

    #[test]
    fn waits_double_and_end() {
        let options = Options::default();
        let waits: Vec<Verdict> =
            (1..=4).map(|attempt| verdict(&http(503, None), &Method::GET, attempt, &options)).collect();
        let millis = |millis| Verdict::Wait(Duration::from_millis(millis));
        assert_eq!(waits, [millis(500), millis(1000), millis(2000), Verdict::GiveUp]);
        assert_eq!(verdict(&http(503, Some(3600)), &Method::GET, 1, &options), Verdict::GiveUp, "the caller may wait");
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        assert_eq!(retry_after(Some("120"), None), Some(Duration::from_secs(120)));
        let (then, now) = ("Wed, 21 Oct 2015 07:28:30 GMT", "Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(retry_after(Some(then), Some(now)), Some(Duration::from_secs(30)));
        assert_eq!(retry_after(Some(now), Some(then)), Some(Duration::ZERO));
        for nonsense in ["soon", "-3", ""] {
            assert_eq!(retry_after(Some(nonsense), Some(now)), None);
        }
    }
}
