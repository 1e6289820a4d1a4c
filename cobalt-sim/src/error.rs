//! Why the world refused an action.

use cobalt_core::ids::{HostName, InstanceId};

/// The result of an action on the world.
pub type Result<T, E = SimError> = std::result::Result<T, E>;

/// Why an action on the world did not happen. The world itself is unchanged then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// There is no such host in this world.
    #[error("{operation}: there is no host {host}")]
    UnknownHost {
        /// What was to be done.
        operation: String,
        /// The name nobody has.
        host: HostName,
    },
    /// There is no such VM where one was needed.
    #[error("{operation}: there is no VM {vm}")]
    UnknownVm {
        /// What was to be done.
        operation: String,
        /// The id nobody has.
        vm: InstanceId,
    },
    /// The world is in a state in which this cannot happen: a guest that does not run cannot crash.
    #[error("{operation}: {reason}")]
    NotNow {
        /// What was to be done.
        operation: String,
        /// Why it cannot happen.
        reason: String,
    },
    /// The simulated API server failed where a real one would not.
    #[error("{operation}: the simulated cluster failed")]
    Cluster {
        /// What was to be done.
        operation: String,
        /// What went wrong.
        #[source]
        cause: ClusterCause,
    },
}

/// An error of the simulated cluster, comparable by its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ClusterCause(pub String);

impl SimError {
    pub(crate) fn not_now(operation: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::NotNow { operation: operation.into(), reason: reason.into() }
    }

    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::UnknownHost { .. } => "unknown_host",
            Self::UnknownVm { .. } => "unknown_vm",
            Self::NotNow { .. } => "not_now",
            Self::Cluster { .. } => "cluster",
        }
    }

    /// Whether the same action may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotNow { .. })
    }
}
