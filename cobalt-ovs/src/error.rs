//! What can go wrong between us and the daemons of a switch.

use std::{borrow::Cow, error::Error as StdError, sync::Arc, time::Duration};

pub use self::close::CloseReason;

mod close;
mod seam;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed cause, kept behind [`std::error::Error::source`].
pub type Cause = Box<dyn StdError + Send + Sync + 'static>;

/// What a call does and with which arguments, as a person would say it: `bond/show bond0 of ovs-vswitchd`.
pub type Operation = Cow<'static, str>;

/// Why something failed.
///
/// ```
/// use cobalt_ovs::Error;
///
/// let error = Error::refused("select from Interface", "not owner", None);
/// assert_eq!(error.to_string(), "select from Interface: not owner");
/// assert_eq!(error.category(), "refused");
/// assert!(!error.is_transient());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not one this client can use.
    #[error("address {address:?}: {detail}")]
    Address {
        /// The address as given.
        address: String,
        /// What is wrong with it and what would be right.
        detail: String,
    },
    /// The server could not be reached.
    #[error("{step}")]
    Connect {
        /// What was tried, with the address.
        step: String,
        /// Why it failed.
        #[source]
        cause: Cause,
    },
    /// TLS could not be set up: our files, their certificate, or the handshake.
    #[error("{step}")]
    Tls {
        /// What was tried, with the file or address.
        step: String,
        /// Why it failed.
        #[source]
        cause: Cause,
    },
    /// Nobody listens on the daemon's socket: it is dead, or was never started.
    #[error("{operation}: nobody listens")]
    Absent {
        /// The call and its arguments.
        operation: Operation,
        /// What the operating system said.
        #[source]
        cause: Cause,
    },
    /// The daemon's socket is there and cannot be used: most often, we may not.
    #[error("{operation}: cannot use the socket {}", path.display())]
    Socket {
        /// The call and its arguments.
        operation: Operation,
        /// The socket.
        path: std::path::PathBuf,
        /// What the operating system said.
        #[source]
        cause: std::io::Error,
    },
    /// The other side said something that does not follow the protocol, or that we cannot decode.
    #[error("{operation}: {detail}")]
    Protocol {
        /// The call and its arguments.
        operation: Operation,
        /// What was wrong, and where.
        detail: String,
    },
    /// No answer within the time this call is given. The daemon may still carry it out.
    #[error("{operation}: no answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The call and its arguments.
        operation: Operation,
        /// How long we waited.
        after: Duration,
    },
    /// The connection ended before the answer came. The server may still carry the call out.
    #[error("{operation}: the connection is closed")]
    Closed {
        /// The call and its arguments.
        operation: Operation,
        /// Why it ended; the same for every call that was pending.
        #[source]
        reason: Arc<CloseReason>,
    },
    /// The daemon understood and said no.
    #[error("{operation}: {error}{}", details.as_ref().map(|details| format!(" ({details})")).unwrap_or_default())]
    Refused {
        /// The call and its arguments.
        operation: Operation,
        /// The short name OVSDB gives to the error (`constraint violation`), or the daemon's sentence.
        error: String,
        /// More about it, for people.
        details: Option<String>,
    },
}

impl Error {
    /// An answer of the daemon that is an error.
    pub fn refused(operation: impl Into<Operation>, error: impl Into<String>, details: Option<String>) -> Self {
        Self::Refused { operation: operation.into(), error: error.into(), details }
    }

    /// An answer that we cannot make sense of.
    pub fn protocol(operation: impl Into<Operation>, detail: impl Into<String>) -> Self {
        Self::Protocol { operation: operation.into(), detail: detail.into() }
    }

    /// No answer in time.
    pub fn timeout(operation: impl Into<Operation>, after: Duration) -> Self {
        Self::Timeout { operation: operation.into(), after }
    }

    /// The connection has ended.
    pub fn closed(operation: impl Into<Operation>, reason: Arc<CloseReason>) -> Self {
        Self::Closed { operation: operation.into(), reason }
    }

    /// Nobody listens.
    pub fn absent(operation: impl Into<Operation>, cause: impl Into<Cause>) -> Self {
        Self::Absent { operation: operation.into(), cause: cause.into() }
    }

    pub(crate) fn address(address: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Address { address: address.into(), detail: detail.into() }
    }

    pub(crate) fn connect(step: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Connect { step: step.into(), cause: cause.into() }
    }

    pub(crate) fn tls(step: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Tls { step: step.into(), cause: cause.into() }
    }

    /// Whether the server does not know the method that was called, so that an older one may do.
    pub fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.contains("unknown method"))
    }

    /// Whether the connection itself is gone, so that only a new one can help.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Address { .. } => "address",
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Absent { .. } => "absent",
            Self::Socket { .. } => "socket",
            Self::Protocol { .. } => "protocol",
            Self::Timeout { .. } => "timeout",
            Self::Closed { .. } => "closed",
            Self::Refused { .. } => "refused",
        }
    }

    /// Whether the same call may succeed later, perhaps on a new connection, without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Absent { .. } | Self::Timeout { .. } | Self::Closed { .. } => true,
            Self::Refused { error, .. } => is_passing(error),
            Self::Address { .. } | Self::Tls { .. } | Self::Socket { .. } | Self::Protocol { .. } => false,
        }
    }
}

/// Errors of a transaction that another client, or a cluster without a leader, brings about.
pub(crate) fn is_passing(error: &str) -> bool {
    ["timed out", "not leader", "cluster error", "I/O error", "resources exhausted"].contains(&error)
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
