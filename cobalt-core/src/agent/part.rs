//! The parts of a node agent, and what they share.
//!
//! ```text
//!   Heartbeat ─┐ Lease
//!   Migrations ┤ Migration objects            each part: its own task, its own wake-ups
//!   Exporter ──┤ /metrics
//!   Incidents ─┤
//!   Updates ───┼──▶ Board ──▶ the agent's loop ──▶ one apply of the Hypervisor's status
//!   Certificates┤
//!   Ceph ──────┤
//!   Reboots ───┘ spec.maintenance
//! ```
//!
//! The status of a Hypervisor has one writer per program. A part that has something to say there puts it on the
//! [`Board`], and the loop publishes it together with everything else, in one write.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kube::Client;
use tokio::sync::{Notify, watch};

use crate::{
    api::{Condition, Hypervisor, UpdateStatus},
    backend::HypervisorBackend,
    host::HostSystem,
    runtime::{
        clock::Clock,
        events::Recorder,
        lock,
        metrics::Metrics,
        shutdown::{Shutdown, TaskError},
        watch::{ObjectKey, Store},
    },
};

/// A duty of the agent besides publishing the status: it runs for as long as the agent does.
///
/// A part that fails ends the agent; what may go wrong on a host is therefore a condition, an Event or a retry, not an
/// error of [`Part::run`].
///
/// ```
/// use async_trait::async_trait;
/// use cobalt_core::{
///     agent::{Context, Contribution, Part},
///     api::{Condition, ConditionStatus},
///     runtime::shutdown::{Shutdown, TaskError},
/// };
///
/// /// Says whether the rack door is closed.
/// struct Door;
///
/// #[async_trait]
/// impl Part for Door {
///     fn name(&self) -> &'static str {
///         "door"
///     }
///
///     async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
///         let closed = Condition::new("DoorClosed", ConditionStatus::True, "Closed", "");
///         context.board.put("door", Contribution::condition(closed));
///         stop.triggered().await;
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Part: Send + Sync + 'static {
    /// A short word for it: its task's name, and its place on the [`Board`].
    fn name(&self) -> &'static str;

    /// Does its duty until `stop`.
    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError>;
}

/// What every part of an agent works with.
#[derive(Clone)]
pub struct Context {
    /// The Kubernetes API.
    pub client: Client,
    /// The name of the Node and of its Hypervisor.
    pub node_name: String,
    /// This host's Hypervisor, as the API server has it.
    pub own: Own,
    /// This host's hypervisor.
    pub backend: Arc<dyn HypervisorBackend>,
    /// This host's operating system.
    pub host: Arc<dyn HostSystem>,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Takes Events.
    pub recorder: Recorder,
    /// Takes what a part has to say in the Hypervisor's status.
    pub board: Board,
    /// The longest time for one question to the host.
    pub call_timeout: Duration,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

/// The agent's own object (for the node agent its Hypervisor), followed by one watch for all parts.
pub struct Own<K = Hypervisor> {
    key: ObjectKey,
    store: Store<K>,
    changes: watch::Receiver<u64>,
}

impl<K> Clone for Own<K> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), store: self.store.clone(), changes: self.changes.clone() }
    }
}

impl<K> fmt::Debug for Own<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Own").field(&self.key).finish()
    }
}

impl<K> Own<K> {
    pub(super) fn new(key: ObjectKey, store: Store<K>, changes: watch::Receiver<u64>) -> Self {
        Self { key, store, changes }
    }

    /// The object, once it is there.
    pub fn get(&self) -> Option<Arc<K>> {
        self.store.get(&self.key)
    }

    /// Whether the API server has been asked: from then on, none means that there is none.
    pub fn is_synced(&self) -> bool {
        self.store.is_synced()
    }

    /// Waits for the next change since the last call on this handle. It never ends when the watch has: the agent's end
    /// is told by its shutdown.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a part wants in the Hypervisor's status. What it says nothing about stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contribution {
    /// Conditions to set.
    pub conditions: Vec<Condition>,
    /// Types of conditions to remove.
    pub removed: Vec<String>,
    /// How the update of the operating system goes.
    pub update_status: Option<UpdateStatus>,
}

impl Contribution {
    /// One condition, and nothing else.
    pub fn condition(condition: Condition) -> Self {
        Self { conditions: vec![condition], ..Self::default() }
    }

    /// One condition less.
    pub fn without(type_: impl Into<String>) -> Self {
        Self { removed: vec![type_.into()], ..Self::default() }
    }
}

/// Where parts put what they have to say; the agent's loop publishes it. The last word of each part counts.
#[derive(Clone, Debug, Default)]
pub struct Board {
    said: Arc<Mutex<BTreeMap<&'static str, Contribution>>>,
    changed: Arc<Notify>,
}

impl Board {
    /// Replaces what this part said before. Saying the same again wakes nobody.
    pub fn put(&self, part: &'static str, contribution: Contribution) {
        let mut said = lock(&self.said);
        if said.get(part) != Some(&contribution) {
            said.insert(part, contribution);
            self.changed.notify_one();
        }
    }

    /// What this part said last.
    pub fn said(&self, part: &'static str) -> Option<Contribution> {
        lock(&self.said).get(part).cloned()
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Everything together.
    pub(super) fn all(&self) -> Contribution {
        let mut all = Contribution::default();
        for contribution in lock(&self.said).values() {
            all.conditions.extend(contribution.conditions.iter().cloned());
            all.removed.extend(contribution.removed.iter().cloned());
            all.update_status = all.update_status.or_else(|| contribution.update_status.clone());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::api::ConditionStatus;

    fn condition(message: &str) -> Contribution {
        Contribution::condition(Condition::new("DoorClosed", ConditionStatus::True, "Closed", message))
    }

    #[test]
    fn the_same_words_again_wake_nobody() {
        let board = Board::default();
        board.put("door", condition("shut"));
        assert!(board.changed().now_or_never().is_some());
        board.put("door", condition("shut"));
        assert!(board.changed().now_or_never().is_none());
        board.put("door", condition("locked"));
        assert!(board.changed().now_or_never().is_some());
        assert_eq!(board.all(), condition("locked"));
    }

    #[test]
    fn every_part_is_heard() {
        let board = Board::default();
        board.put("door", condition("shut"));
        board.put("window", Contribution::without("WindowOpen"));
        let all = board.all();
        assert_eq!((all.conditions.len(), all.removed), (1, vec!["WindowOpen".to_owned()]));
    }
}
