//! What can go wrong between us and a bridge.

use std::time::Duration;

use cobalt_core::Error as Seam;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call to a bridge failed.
///
/// ```
/// use cobalt_ovs::openflow::Error;
///
/// let error = Error::Refused { operation: "read the groups of br-int".into(), kind: 1, code: 2, detail: String::new() };
/// assert_eq!(error.to_string(), "read the groups of br-int: bad request (OpenFlow error 1, code 2)");
/// assert_eq!(error.category(), "refused");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens on the bridge's socket, or there is none.
    #[error("{operation}: cannot connect")]
    Connect {
        /// The call and its arguments.
        operation: String,
        /// What the operating system said.
        #[source]
        cause: std::io::Error,
    },
    /// The connection ended, or broke, before the answer came.
    #[error("{operation}: the connection is closed")]
    Closed {
        /// The call and its arguments.
        operation: String,
        /// What the operating system said, if anything.
        #[source]
        cause: Option<std::io::Error>,
    },
    /// The bridge speaks none of our versions.
    #[error("{operation}: no common version of OpenFlow: {detail}")]
    Version {
        /// The call and its arguments.
        operation: String,
        /// What the bridge said.
        detail: String,
    },
    /// The bridge's answer does not follow the protocol, or is above our bounds.
    #[error("{operation}: {detail}")]
    Protocol {
        /// The call and its arguments.
        operation: String,
        /// What was wrong, and where.
        detail: String,
    },
    /// No answer within the time a call is given: the switch hangs, or is very busy.
    #[error("{operation}: no answer within {} s", after.as_secs_f64())]
    Timeout {
        /// The call and its arguments.
        operation: String,
        /// How long we waited.
        after: Duration,
    },
    /// The bridge answered with an error.
    #[error("{operation}: {} (OpenFlow error {kind}, code {code}){detail}", kind_name(*kind))]
    Refused {
        /// The call and its arguments.
        operation: String,
        /// What kind of error, by the standard's number.
        kind: u16,
        /// Which error of that kind.
        code: u16,
        /// What the bridge added in words, or nothing.
        detail: String,
    },
}

/// The standard's words for its kinds of errors.
fn kind_name(kind: u16) -> &'static str {
    match kind {
        0 => "hello failed",
        1 => "bad request",
        2 => "bad action",
        3 => "bad instruction",
        4 => "bad match",
        5 => "flow change failed",
        6 => "group change failed",
        7 => "port change failed",
        8 => "table change failed",
        9 => "queue operation failed",
        10 => "switch configuration failed",
        11 => "role request failed",
        12 => "meter change failed",
        13 => "table features failed",
        14 => "bad property",
        _ => "refused",
    }
}

impl Error {
    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Closed { .. } => "closed",
            Self::Version { .. } => "version",
            Self::Protocol { .. } => "protocol",
            Self::Timeout { .. } => "timeout",
            Self::Refused { .. } => "refused",
        }
    }

    /// Whether the same call may succeed later, on a new connection, without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Closed { .. } | Self::Timeout { .. })
    }
}

impl From<Error> for Seam {
    fn from(error: Error) -> Self {
        match &error {
            Error::Connect { operation, .. } | Error::Closed { operation, .. } => {
                Self::unavailable(operation.clone(), error)
            }
            Error::Timeout { operation, after } => Self::timeout(operation.clone(), *after),
            Error::Protocol { operation, detail } => Self::malformed(operation.clone(), detail.clone()),
            Error::Version { operation, detail } => {
                let (operation, reason) = (operation.clone(), format!("no common version of OpenFlow: {detail}"));
                Self::Refused { operation, reason, cause: Some(error.into()) }
            }
            Error::Refused { operation, kind, .. } => {
                let (operation, reason) = (operation.clone(), kind_name(*kind).to_owned());
                Self::Refused { operation, reason, cause: Some(error.into()) }
            }
        }
    }
}
