//! Leader election: one of several replicas works, and never two.
//!
//! ```text
//!                     the record has not changed in our sight
//!                     for its own lease duration, or is free
//!          ┌──────────────────────────────────────────────────┐
//!          │                                                  ▼
//!     ┌─────────┐   somebody renews: wait on             ┌──────────┐  update with the resourceVersion
//!  ──►│ Follower│◄───────────────────────────────────────│ Claiming │  we decided on
//!     └─────────┘        409: somebody was faster        └──────────┘
//!          ▲                                                  │ 200
//!          │                                                  ▼
//!     ┌─────────┐  renew deadline passed without a success, ┌─────────┐
//!     │ Lost    │◄──────────────────────────────────────────│ Leader  │──┐ every retry period: update
//!     └─────────┘  or somebody else is in the record        └─────────┘◄─┘
//!          │                                                  │ shutdown: the work ends first
//!          ▼                                                  ▼
//!     the work is cancelled; the                            release: holderIdentity "" with
//!     program ends (and is restarted)                       resourceVersion; others claim at once
//! ```
//!
//! Why two never lead, whatever the clocks say:
//!
//! - Every write carries the resourceVersion of the record it was decided on, so of two claims one fails.
//! - A leader counts its time from *before* it sent its last successful write, and stops working when the renew
//!   deadline has passed since. A follower counts from when it *saw* that write, which is later, and waits for the whole
//!   lease duration, which is longer. Both use their own monotonic clock; `renewTime` is written for people and other
//!   implementations and never read.
//! - A request that seems lost may arrive late. A late renewal only makes the others wait longer; a late release or
//!   claim carries an old resourceVersion and fails.
//!
//! One thing only a person can do wrong: delete the Lease while somebody holds it *and* start a replica that has never
//! seen it. A replica that has seen it waits the holder's time out.
//!
//! The decisions are the pure functions of [`core`]; [`LeaseElector`] carries them out. The Lease names are those of the
//! Go programs ([`names`]), so that ours and theirs exclude each other on one cluster.

pub mod core;
mod elector;
pub mod names;
mod store;

pub use elector::{Leadership, LeaseElector};
pub use store::{KubeLeases, LeaseStore, StoreError};

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use super::args::LeaderArgs;

/// How an elector behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The Lease's name.
    pub name: String,
    /// The Lease's namespace.
    pub namespace: String,
    /// Who we are: unique for every process.
    pub identity: String,
    /// How long the others wait for us.
    pub lease_duration: Duration,
    /// How long we go on without a successful renewal.
    pub renew_deadline: Duration,
    /// The pause between two attempts.
    pub retry_period: Duration,
}

impl LeaseConfig {
    /// From the arguments. `default_namespace` is used when they name none; `host` names us in the record when they do
    /// not, and a random suffix makes it unique, so that a restarted pod never mistakes its predecessor for itself.
    pub fn new(
        args: &LeaderArgs,
        name: impl Into<String>,
        default_namespace: &str,
        host: &str,
    ) -> Result<Self, LeaseError> {
        let base = args.leader_elect_identity.as_deref().unwrap_or(host);
        let config = Self {
            name: name.into(),
            namespace: args.leader_elect_namespace.clone().unwrap_or_else(|| default_namespace.to_owned()),
            identity: unique(base),
            lease_duration: args.leader_elect_lease_duration,
            renew_deadline: args.leader_elect_renew_deadline,
            retry_period: args.leader_elect_retry_period,
        };
        config.validated()
    }

    /// Checks that the durations leave room for each other.
    pub fn validated(self) -> Result<Self, LeaseError> {
        let reason = if self.lease_duration < Duration::from_secs(1) {
            Some("the lease duration must be at least one second")
        } else if self.renew_deadline >= self.lease_duration {
            Some("the renew deadline must be shorter than the lease duration")
        } else if self.retry_period * 2 > self.renew_deadline {
            Some("the retry period must fit at least twice into the renew deadline")
        } else {
            None
        };
        match reason {
            Some(reason) => Err(LeaseError::Durations {
                lease: self.lease_duration,
                renew: self.renew_deadline,
                retry: self.retry_period,
                reason,
            }),
            None => Ok(self),
        }
    }
}

/// A name nobody else has: `base`, the process id, and 64 random bits.
///
/// ```
/// use cobalt_core::runtime::lease::unique;
///
/// assert!(unique("pod-1").starts_with("pod-1_"));
/// assert_ne!(unique("pod-1"), unique("pod-1"));
/// ```
pub fn unique(base: &str) -> String {
    // The standard library seeds its hash maps from the operating system; that is all the randomness needed here.
    let random = RandomState::new().build_hasher().finish();
    format!("{base}_{}_{random:016x}", std::process::id())
}

/// Why an election ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The durations contradict each other.
    #[error("elect a leader with lease {lease:?}, renew deadline {renew:?}, retry period {retry:?}: {reason}")]
    Durations {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
        /// What is wrong.
        reason: &'static str,
    },
    /// The lease is no longer ours; the work has been stopped.
    #[error("keep lease {lease}: lost ({reason})")]
    Lost {
        /// `namespace/name`.
        lease: String,
        /// Why.
        reason: String,
    },
    /// The work itself failed while leading; the lease has been released.
    #[error("work under lease {lease}")]
    Work {
        /// `namespace/name`.
        lease: String,
        /// What it reported.
        #[source]
        cause: super::shutdown::TaskError,
    },
}

impl LeaseError {
    /// The class of the error.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Durations { .. } => "configuration",
            Self::Lost { .. } => "lease_lost",
            Self::Work { .. } => "work",
        }
    }

    /// Whether a new attempt may succeed.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Durations { .. })
    }
}
