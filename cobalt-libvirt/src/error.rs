//! What can go wrong between us and a libvirt daemon.

use std::{borrow::Cow, error::Error as StdError, sync::Arc, time::Duration};

pub use self::close::CloseReason;

mod close;
pub mod code;
mod seam;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A boxed cause, kept behind [`std::error::Error::source`].
pub type Cause = Box<dyn StdError + Send + Sync + 'static>;

/// What a call does and with which arguments, as a person would say it: `get XML of domain instance-0001`.
pub type Operation = Cow<'static, str>;

/// Why something failed.
///
/// What the daemon itself refused is [`Remote`](Self::Remote), with the daemon's code: compare it with the constants
/// in [`code`], never with message texts, which change between versions. Everything else is between us and the daemon.
///
/// ```
/// use cobalt_libvirt::{Error, error::code};
///
/// let error = Error::remote("look up domain web-1", code::NO_DOMAIN, 10, "Domain not found");
/// assert_eq!(error.code(), Some(code::NO_DOMAIN));
/// assert_eq!(error.to_string(), "look up domain web-1: Domain not found (libvirt error 42 in domain 10)");
/// assert!(cobalt_core::Error::from(error).is_not_found());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URI is not one this client can use.
    #[error("libvirt URI {uri:?}: {detail}")]
    Uri {
        /// The URI as given.
        uri: String,
        /// What is wrong with it and what would be right.
        detail: String,
    },
    /// The daemon could not be reached.
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
    /// The daemon does not accept who we are, or asks for a proof that we cannot or will not give.
    #[error("authenticate to {peer}: {detail}")]
    Authentication {
        /// The daemon's address.
        peer: String,
        /// What is missing or was refused. Never contains a secret.
        detail: String,
        /// What the daemon said, if it said anything.
        #[source]
        cause: Option<Cause>,
    },
    /// The daemon said something that does not follow the protocol, or that we cannot decode.
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
    /// The connection ended before the answer came. The daemon may still carry the call out.
    #[error("{operation}: the connection is closed")]
    Closed {
        /// The call and its arguments.
        operation: Operation,
        /// Why it ended; the same for every call that was pending.
        #[source]
        reason: Arc<CloseReason>,
    },
    /// The daemon answered with an error.
    #[error("{operation}: {message} (libvirt error {code} in domain {domain})")]
    Remote {
        /// The call and its arguments.
        operation: Operation,
        /// What kind of error; see [`code`].
        code: u32,
        /// Which part of libvirt raised it: 7 the RPC layer, 10 the qemu driver, 20 the API's own checks, …
        domain: u32,
        /// For people. Differs between versions.
        message: String,
    },
}

impl Error {
    /// An answer of the daemon that is an error.
    pub fn remote(operation: impl Into<Operation>, code: u32, domain: u32, message: impl Into<String>) -> Self {
        Self::Remote { operation: operation.into(), code, domain, message: message.into() }
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

    pub(crate) fn uri(uri: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Uri { uri: uri.into(), detail: detail.into() }
    }

    pub(crate) fn connect(step: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Connect { step: step.into(), cause: cause.into() }
    }

    pub(crate) fn tls(step: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self::Tls { step: step.into(), cause: cause.into() }
    }

    pub(crate) fn authentication(peer: impl Into<String>, detail: impl Into<String>, cause: Option<Cause>) -> Self {
        Self::Authentication { peer: peer.into(), detail: detail.into(), cause }
    }

    /// The daemon's error code, if it was the daemon that said no.
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Remote { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the daemon or its driver has no such procedure.
    pub fn is_no_support(&self) -> bool {
        self.code() == Some(code::NO_SUPPORT)
    }

    /// Whether the daemon knows no such domain.
    pub fn is_no_domain(&self) -> bool {
        self.code() == Some(code::NO_DOMAIN)
    }

    /// Whether the connection itself is gone, so that only a new one can help.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Uri { .. } => "uri",
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Authentication { .. } => "authentication",
            Self::Protocol { .. } => "protocol",
            Self::Timeout { .. } => "timeout",
            Self::Closed { .. } => "closed",
            Self::Remote { .. } => "remote",
        }
    }

    /// Whether the same call may succeed later, perhaps on a new connection, without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } | Self::Closed { .. } => true,
            Self::Remote { code, .. } => code::is_transient(*code),
            Self::Uri { .. } | Self::Tls { .. } | Self::Authentication { .. } | Self::Protocol { .. } => false,
        }
    }
}
