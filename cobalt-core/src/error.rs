//! The error every seam speaks.

use std::{error::Error as StdError, fmt, time::Duration};

/// The result of a call through a seam.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed cause, kept behind [`std::error::Error::source`] and never repeated in the text.
pub type Cause = Box<dyn StdError + Send + Sync + 'static>;

/// Why a call through a seam failed, in the terms a caller decides on.
///
/// The variants say what the caller can *do*, not which library failed: an implementation maps its own errors onto
/// them and keeps the original as the [source](std::error::Error::source). `operation` names the call and its
/// arguments (`live-migrate server 6f2c… to any host`), so that a log line is readable without its surroundings.
///
/// ```
/// use cobalt_core::Error;
///
/// let error = Error::not_found("get server 6f2c");
/// assert_eq!(error.to_string(), "get server 6f2c: not found");
/// assert_eq!(error.category(), "not_found");
/// assert!(!error.is_transient());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This driver cannot do this, now or later. `features()` would have said so.
    #[error("{operation}: not supported by {by}")]
    Unsupported {
        /// The call and its arguments.
        operation: String,
        /// Which driver or service lacks it.
        by: String,
        /// The original error, if there was one.
        #[source]
        cause: Option<Cause>,
    },
    /// The thing asked about does not exist (any more).
    #[error("{operation}: not found")]
    NotFound {
        /// The call and its arguments.
        operation: String,
        /// The original error, if there was one.
        #[source]
        cause: Option<Cause>,
    },
    /// The other side is in a state that forbids this now: a stale generation, a task already running.
    #[error("{operation}: conflict: {reason}")]
    Conflict {
        /// The call and its arguments.
        operation: String,
        /// What the other side said.
        reason: String,
        /// The original error, if there was one.
        #[source]
        cause: Option<Cause>,
    },
    /// The other side understood and said no; the same call will be refused again.
    #[error("{operation}: refused: {reason}")]
    Refused {
        /// The call and its arguments.
        operation: String,
        /// What the other side said.
        reason: String,
        /// The original error, if there was one.
        #[source]
        cause: Option<Cause>,
    },
    /// We lack the right, or our credentials are not accepted.
    #[error("{operation}: permission denied")]
    Denied {
        /// The call and its arguments.
        operation: String,
        /// The original error, if there was one.
        #[source]
        cause: Option<Cause>,
    },
    /// The other side cannot be reached, or says that it cannot serve now.
    #[error("{operation}: unavailable")]
    Unavailable {
        /// The call and its arguments.
        operation: String,
        /// When it asks to be called again, if it said so.
        retry_after: Option<Duration>,
        /// The original error, if there was one.
        #[source]
        cause: Option<Cause>,
    },
    /// No answer within the time this call is given.
    #[error("{operation}: no answer within {}", Seconds(*after))]
    Timeout {
        /// The call and its arguments.
        operation: String,
        /// How long we waited.
        after: Duration,
    },
    /// The other side answered something we cannot make sense of.
    #[error("{operation}: malformed answer: {detail}")]
    Malformed {
        /// The call and its arguments.
        operation: String,
        /// What was wrong with it, and where.
        detail: String,
        /// Which answer it was, if that is known.
        #[source]
        cause: Option<Cause>,
    },
    /// We were told the wrong way to the other side, or none. A person has to mend it.
    #[error("{operation}: configured wrongly: {detail}")]
    Configuration {
        /// The call and its arguments.
        operation: String,
        /// What does not fit, in the words of what can be configured.
        detail: String,
    },
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64())
    }
}

impl Error {
    /// The driver named `by` has no such ability.
    pub fn unsupported(operation: impl Into<String>, by: impl Into<String>) -> Self {
        Self::Unsupported { operation: operation.into(), by: by.into(), cause: None }
    }

    /// The thing named in `operation` does not exist.
    pub fn not_found(operation: impl Into<String>) -> Self {
        Self::NotFound { operation: operation.into(), cause: None }
    }

    /// The state of the other side forbids it for now.
    pub fn conflict(operation: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Conflict { operation: operation.into(), reason: reason.into(), cause: None }
    }

    /// The other side said no and will say no again.
    pub fn refused(operation: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused { operation: operation.into(), reason: reason.into(), cause: None }
    }

    /// The other side cannot be reached.
    pub fn unavailable(operation: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Unavailable { operation: operation.into(), retry_after: None, cause: Some(cause.into()) }
    }

    /// No answer came in time.
    pub fn timeout(operation: impl Into<String>, after: Duration) -> Self {
        Self::Timeout { operation: operation.into(), after }
    }

    /// The answer could not be decoded.
    pub fn malformed(operation: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Malformed { operation: operation.into(), detail: detail.into(), cause: None }
    }

    /// The way to the other side is configured wrongly.
    pub fn configuration(operation: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Configuration { operation: operation.into(), detail: detail.into() }
    }

    /// A short, bounded name for metric labels and Event reasons.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "unsupported",
            Self::NotFound { .. } => "not_found",
            Self::Conflict { .. } => "conflict",
            Self::Refused { .. } => "refused",
            Self::Denied { .. } => "denied",
            Self::Unavailable { .. } => "unavailable",
            Self::Timeout { .. } => "timeout",
            Self::Malformed { .. } => "malformed",
            Self::Configuration { .. } => "configuration",
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Unavailable { .. } | Self::Timeout { .. })
    }

    /// Whether the thing is simply not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the driver lacks the ability.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_operation_and_leaves_the_cause_to_source() {
        let error = Error::unavailable("list services", std::io::Error::other("connection refused"));
        assert_eq!(error.to_string(), "list services: unavailable");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("connection refused"));
    }

    #[test]
    fn only_what_time_alone_can_cure_is_transient() {
        assert!(Error::timeout("ping", Duration::from_secs(2)).is_transient());
        assert!(Error::conflict("set traits", "generation 3 is stale").is_transient());
        assert!(!Error::refused("evacuate", "the service is up").is_transient());
        assert!(!Error::unsupported("migrate", "ch").is_transient());
        assert!(!Error::malformed("decode", "truncated").is_transient());
        assert!(!Error::configuration("list services", "no such region").is_transient());
    }
}
