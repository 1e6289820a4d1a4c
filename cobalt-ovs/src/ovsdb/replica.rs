//! A copy of a database that follows it.
//!
//! ```text
//!             ┌────────────── wait, doubled each time ◀──┐
//!             ▼                                          │ failed
//!    ┌──────────────┐  schema, monitor       ┌───────────┴──┐
//! ──▶│  connecting  ├───────────────────────▶│  (attempt)   │
//!    └──────────────┘                        └───────────┬──┘
//!             ▲                                          │ Connected, and what was missed as Changed
//!             │ Disconnected, wait                       ▼
//!             └──────────────────────────────────── following: updates are worked in and told
//! ```
//!
//! While there is no connection the copy stays as it was last known. A server that numbers its transactions is asked
//! for what was missed only; from any other all rows come again, and what differs is told.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use futures::{Stream, StreamExt, stream};
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    task::AbortHandle,
};
use uuid::Uuid;

pub use self::options::ReplicaOptions;
use super::{
    client::Ovsdb,
    monitor::{Clause, Follow},
    tables::{RowChange, Tables},
};
use crate::{
    error::{Error, Result},
    remote::Remote,
};

mod options;
mod task;

/// How the connection of a replica fares, for metrics and diagnostics.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaState {
    /// Whether there is a connection and the copy follows the database.
    pub connected: bool,
    /// Since when that is so.
    pub since: Instant,
    /// Whether the copy was ever complete.
    pub synced: bool,
    /// How many connections were made after the first.
    pub reconnects: u64,
    /// How many attempts failed since there was a connection.
    pub failed_attempts: u64,
    /// Why the last connection ended or the last attempt failed; kept after a success.
    pub last_error: Option<String>,
    /// The version of the server's schema.
    pub schema_version: Option<String>,
}

/// What a replica tells.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ReplicaEvent {
    /// There is a connection, and the copy is as the database.
    Connected,
    /// The connection is gone, and why. Told once per lost connection.
    Disconnected(String),
    /// Rows have changed. The copy has the changes already.
    Changed(Arc<[RowChange]>),
    /// This reader was slow and lost this many events; read the copy.
    Lagged(u64),
}

/// A copy of parts of a database. Clones are handles to the same one; it ends with the last of them.
///
/// ```no_run
/// use cobalt_ovs::ovsdb::{Follow, Replica, ReplicaOptions};
/// use futures::StreamExt;
///
/// # async fn example() -> cobalt_ovs::Result<()> {
/// let follow = Follow::new("Open_vSwitch").table("Bridge", ["name", "ports"]);
/// let replica = Replica::connect(vec!["unix:/run/openvswitch/db.sock".parse()?], follow, ReplicaOptions::new()).await?;
/// let mut events = replica.events().boxed();
/// println!("{} bridges", replica.read(|tables| tables.rows("Bridge").count()));
/// while let Some(event) = events.next().await {
///     println!("{event:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Replica {
    shared: Arc<Shared>,
    _task: Arc<TaskGuard>,
}

/// Ends the task with the last handle.
#[derive(Debug)]
struct TaskGuard(AbortHandle);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What changes, under one lock, so that nobody sees half of a change.
#[derive(Debug)]
struct State {
    tables: Tables,
    follow: Follow,
    /// Goes up whenever other rows are wanted, and which of them the copy has.
    wanted: u64,
    followed: u64,
    client: Option<Ovsdb>,
    /// The last transaction that is in the tables, where the server numbers them.
    transaction: Option<Uuid>,
    report: ReplicaState,
    connected_before: bool,
}

#[derive(Debug)]
struct Shared {
    remotes: Vec<Remote>,
    options: ReplicaOptions,
    state: Mutex<State>,
    events: broadcast::Sender<ReplicaEvent>,
    /// Goes up with each finished attempt.
    attempts: watch::Sender<u64>,
    /// Asks the task to look at `follow` again.
    reconsider: mpsc::Sender<oneshot::Sender<Result<()>>>,
}

impl Shared {
    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Replica {
    /// A copy of what `follow` names, from whichever of the servers answers. It returns after the first attempt to
    /// connect, whether that went well or not: a server that is down is no reason not to start.
    pub async fn connect(remotes: Vec<Remote>, follow: Follow, options: ReplicaOptions) -> Result<Self> {
        let replica = Self::start(remotes, follow, options)?;
        replica.attempted().await;
        Ok(replica)
    }

    /// Waits until an attempt to connect has ended, well or not.
    pub async fn attempted(&self) {
        let mut attempts = self.shared.attempts.subscribe();
        let _ = attempts.wait_for(|count| *count > 0).await;
    }

    /// The same without waiting for anything. Must be called within a tokio runtime.
    pub fn start(remotes: Vec<Remote>, follow: Follow, options: ReplicaOptions) -> Result<Self> {
        if remotes.is_empty() {
            return Err(Error::address("", "there is no address"));
        }
        let (events, _) = broadcast::channel(options.event_capacity);
        let (reconsider, wishes) = mpsc::channel(16);
        let state = State {
            tables: Tables::default(),
            follow,
            wanted: 0,
            followed: 0,
            client: None,
            transaction: None,
            report: ReplicaState {
                connected: false,
                since: Instant::now(),
                synced: false,
                reconnects: 0,
                failed_attempts: 0,
                last_error: None,
                schema_version: None,
            },
            connected_before: false,
        };
        let shared = Arc::new(Shared {
            remotes,
            options,
            state: Mutex::new(state),
            events,
            attempts: watch::Sender::new(0),
            reconsider,
        });
        let task = tokio::spawn(task::run(Arc::clone(&shared), wishes));
        Ok(Self { shared, _task: Arc::new(TaskGuard(task.abort_handle())) })
    }

    /// Looks at the rows. Whatever waits for the lock waits for `look`: be short.
    pub fn read<T>(&self, look: impl FnOnce(&Tables) -> T) -> T {
        self.shared.state(|state| look(&state.tables))
    }

    /// The same, if these are the rows of a table that are followed; `None` if somebody has asked for others since, or
    /// they are not there yet.
    pub fn read_followed<T>(&self, table: &str, clauses: &[Clause], look: impl FnOnce(&Tables) -> T) -> Option<T> {
        self.shared.state(|state| {
            let followed = state.follow.tables.get(table).is_none_or(|known| known.clauses == clauses);
            (followed && state.wanted == state.followed).then(|| look(&state.tables))
        })
    }

    /// How the connection fares.
    pub fn state(&self) -> ReplicaState {
        self.shared.state(|state| state.report.clone())
    }

    /// Whether the copy follows the database now.
    pub fn is_connected(&self) -> bool {
        self.shared.state(|state| state.report.connected)
    }

    /// The connection, for calls of one's own.
    pub fn client(&self) -> Result<Ovsdb> {
        self.shared.state(|state| state.client.clone().ok_or_else(|| state.report.last_error.clone())).map_err(|why| {
            let remotes: Vec<String> = self.shared.remotes.iter().map(ToString::to_string).collect();
            let why = why.unwrap_or_else(|| "no attempt has ended yet".to_owned());
            Error::connect(format!("use the connection to {}", remotes.join(",")), why)
        })
    }

    /// What happens from now on. A reader that is slow loses the oldest and is told so.
    pub fn events(&self) -> impl Stream<Item = ReplicaEvent> + Send + use<> {
        let receiver = self.shared.events.subscribe();
        stream::unfold(receiver, |mut receiver| async {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(broadcast::error::RecvError::Lagged(lost)) => Some((ReplicaEvent::Lagged(lost), receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
        .fuse()
    }

    /// Follows other rows of a table from now on. When it returns well, the copy has the rows that came by that.
    ///
    /// Without a connection it fails, and the next connection begins with the new conditions.
    pub async fn follow_rows(&self, table: &str, clauses: Vec<Clause>) -> Result<()> {
        let there = self.shared.state(|state| {
            if let Some(known) = state.follow.tables.get_mut(table)
                && known.clauses != clauses
            {
                known.clauses = clauses;
                state.wanted += 1;
                // Rows that the old conditions left out are no news to the server.
                state.transaction = None;
            }
            // Somebody else may have asked for the same a moment ago, and still wait for it.
            state.wanted == state.followed
        });
        if there {
            return Ok(());
        }
        let (done, answer) = oneshot::channel();
        let gone = || Error::connect(format!("follow other rows of {table}"), "the replica has ended");
        self.shared.reconsider.send(done).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
