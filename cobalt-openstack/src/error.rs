//! What a cloud or our configuration can answer besides what we asked for.

use std::{fmt, time::Duration};

pub(crate) use cobalt_core::Cause;
use cobalt_core::Error as Seam;
use http::StatusCode;

/// The result of getting a cloud.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no connection to a cloud: what a person has to look at.
///
/// Calls through the clients answer [`cobalt_core::Error`]; an HTTP error is behind it as [`HttpError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration lacks something, or contradicts itself.
    #[error("OpenStack configuration: {detail}")]
    Configuration {
        /// What, in the words of the variables and keys people set.
        detail: String,
        /// What a file or a library said.
        #[source]
        cause: Option<Cause>,
    },
    /// The CA bundle cannot be read or holds no certificate.
    #[error("cannot use CA bundle {path}")]
    CaBundle {
        /// The file.
        path: String,
        /// What was wrong with it.
        #[source]
        cause: Option<Cause>,
    },
    /// Keystone did not let us in, or could not be reached.
    #[error("cannot log in")]
    Login(#[source] Box<Seam>),
}

impl Error {
    pub(crate) fn configuration(detail: impl Into<String>) -> Self {
        Self::Configuration { detail: detail.into(), cause: None }
    }

    /// A short, bounded name for metric labels and Event reasons.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Configuration { .. } => "configuration",
            Self::CaBundle { .. } => "ca_bundle",
            Self::Login(error) => error.category(),
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Login(error) if error.is_transient())
    }
}

/// An answer that was of no use to us: no success, or a success that cannot be read. It is the source of the seam's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpError {
    /// The status.
    pub status: StatusCode,
    /// What the service said, shortened.
    pub message: String,
    /// By what the service's own logs name this request.
    pub request_id: Option<String>,
    /// When it asks to be called again.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status.as_u16())?;
        if !self.message.is_empty() {
            write!(f, " {}", self.message)?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " ({id})")?;
        }
        Ok(())
    }
}

impl std::error::Error for HttpError {}

impl HttpError {
    /// The same in the terms of the seam, where variants say what a caller can do.
    pub(crate) fn into_core(self, operation: String, by: &str) -> Seam {
        let (reason, retry_after) = (self.message.clone(), self.retry_after);
        let status = self.status;
        let cause: Option<Cause> = Some(Box::new(self));
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Seam::NotFound { operation, cause },
            StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => Seam::Conflict { operation, reason, cause },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Seam::Denied { operation, cause },
            // The microversion that this call needs is not there, or the driver's ability.
            StatusCode::NOT_ACCEPTABLE | StatusCode::NOT_IMPLEMENTED => {
                Seam::Unsupported { operation, by: by.to_owned(), cause }
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                Seam::Unavailable { operation, retry_after, cause }
            }
            // The old way to say that there were too many requests.
            StatusCode::PAYLOAD_TOO_LARGE if retry_after.is_some() => {
                Seam::Unavailable { operation, retry_after, cause }
            }
            status if status.is_server_error() => Seam::Unavailable { operation, retry_after, cause },
            _ => Seam::Refused { operation, reason, cause },
        }
    }
}

/// The connection failed before there was an answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConnectionError(String);

impl ConnectionError {
    /// The chain of causes in one line, without the address: it may hold what nobody wants in a log.
    pub(crate) fn new(error: reqwest::Error) -> Self {
        use std::error::Error as _;
        let error = error.without_url();
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self(text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn mapped(status: u16, retry_after: Option<Duration>) -> Seam {
        let status = StatusCode::from_u16(status).unwrap();
        let error = HttpError { status, message: "said so".into(), request_id: Some("req-1".into()), retry_after };
        error.into_core("do it".into(), "Nova")
    }

    #[test]
    fn the_status_decides_what_the_seam_says() {
        for (status, category) in [
            (400, "refused"),
            (401, "denied"),
            (403, "denied"),
            (404, "not_found"),
            (406, "unsupported"),
            (409, "conflict"),
            (413, "refused"),
            (429, "unavailable"),
            (500, "unavailable"),
            (502, "unavailable"),
            (503, "unavailable"),
            (504, "unavailable"),
            (301, "refused"),
        ] {
            assert_eq!(mapped(status, None).category(), category, "{status}");
        }
        assert_eq!(mapped(413, Some(Duration::from_secs(1))).category(), "unavailable");
    }

    #[test]
    fn every_error_leads_to_the_answer_it_was_made_of() {
        for status in [301, 400, 401, 403, 404, 406, 409, 413, 429, 500, 501, 503] {
            let error = mapped(status, None);
            assert!(error.source().is_some_and(|source| source.to_string().contains("(req-1)")), "{error:?}");
        }
    }

    #[test]
    fn the_request_id_and_the_wish_to_wait_are_kept() {
        let error = mapped(503, Some(Duration::from_secs(7)));
        assert!(matches!(error, Seam::Unavailable { retry_after: Some(after), .. } if after.as_secs() == 7));
        assert_eq!(error.to_string(), "do it: unavailable");
        assert_eq!(error.source().unwrap().to_string(), "503 said so (req-1)");
    }
}
