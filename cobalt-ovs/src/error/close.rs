use std::{io, time::Duration};

use crate::jsonrpc::FrameError;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// We closed it, or dropped the last handle on it.
    #[error("closed by this client")]
    Requested,
    /// The server closed it between two messages: it stops, restarts or has enough of us.
    #[error("closed by the server")]
    Peer,
    /// The socket failed.
    #[error("the socket failed")]
    Io(#[source] io::Error),
    /// The bytes are no JSON-RPC, or a message is above the size limit.
    #[error("the server sent bytes that are no message")]
    Frame(#[source] FrameError),
    /// A message that has no place in the conversation.
    #[error("the server broke the protocol: {0}")]
    Violation(String),
    /// Nothing was heard, not even an answer to our echo.
    #[error("the server has been silent for {} s", .after.as_secs_f64())]
    Silent {
        /// For how long.
        after: Duration,
    },
    /// The server does not read what we send.
    #[error("the server took nothing off the socket for {} s", .after.as_secs_f64())]
    Stuck {
        /// For how long.
        after: Duration,
    },
}

impl CloseReason {
    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Peer => "peer",
            Self::Io(_) => "io",
            Self::Frame(_) => "frame",
            Self::Violation(_) => "violation",
            Self::Silent { .. } => "silent",
            Self::Stuck { .. } => "stuck",
        }
    }
}
