//! A connection to a database server, with a method per call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;

use super::{
    monitor::{Follow, Method, RawUpdate, Updates},
    operation::{self, Operation, Outcome},
    row::{Names, Row},
    schema::Schema,
    task::{Answer, Call, Command, Task},
};
use crate::{
    error::{self, CloseReason, Error, Result},
    options::ConnectOptions,
    remote::Remote,
    transport::{self, Stream},
};

/// An open connection to a database server. Clones share it; when the last is dropped, the connection is closed.
///
/// Calls run side by side, every call has a timeout, and dropping a call's future gives it up.
///
/// ```no_run
/// use cobalt_ovs::{ConnectOptions, ovsdb::{Operation, Ovsdb}};
///
/// # async fn example() -> cobalt_ovs::Result<()> {
/// let db = Ovsdb::connect(&"unix:/run/openvswitch/db.sock".parse()?, &ConnectOptions::new()).await?;
/// let bridges = Operation::select("Bridge", []).columns(["name"]);
/// for row in &db.transact("Open_vSwitch", &[bridges]).await?[0].rows {
///     println!("{}", row.str("name").unwrap_or_default());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Ovsdb {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    commands: mpsc::Sender<Command>,
    /// One permit per unanswered call.
    slots: Arc<Semaphore>,
    reason: watch::Receiver<Option<Arc<CloseReason>>>,
    peer: String,
    call_timeout: Duration,
    monitor_capacity: usize,
    next_monitor: AtomicU64,
}

impl Ovsdb {
    /// Connects. Nothing is said to the server yet.
    pub async fn connect(remote: &Remote, options: &ConnectOptions) -> Result<Self> {
        let stream = transport::connect(remote, options).await?;
        Ok(Self::open(stream, remote.to_string(), options))
    }

    /// The same over a stream that is already there.
    pub(crate) fn open(stream: Box<dyn Stream>, peer: String, options: &ConnectOptions) -> Self {
        let slots = Arc::new(Semaphore::new(options.max_pending));
        let (commands, queue) = mpsc::channel(options.max_pending);
        let (reason_in, reason) = watch::channel(None);
        let task = Task::new(stream, queue, options);
        let (task_slots, task_peer) = (Arc::clone(&slots), peer.clone());
        tokio::spawn(async move {
            let (reason, leftovers) = task.run().await;
            tracing::debug!(peer = task_peer, reason = reason.category(), "database connection ended");
            // The reason first: whoever is woken by the rest looks for it.
            reason_in.send_replace(Some(Arc::new(reason)));
            task_slots.close();
            drop(leftovers);
        });
        let inner = Inner {
            commands,
            slots,
            reason,
            peer,
            call_timeout: options.call_timeout,
            monitor_capacity: options.monitor_capacity,
            next_monitor: AtomicU64::new(1),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The server's address, for logs and errors.
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// The databases of the server.
    pub async fn list_dbs(&self) -> Result<Vec<String>> {
        self.ask("list_dbs", b"[]".to_vec(), "list databases".to_owned()).await
    }

    /// The schema of a database.
    pub async fn schema(&self, database: &str) -> Result<Schema> {
        let params = json!([database]).to_string().into_bytes();
        self.ask("get_schema", params, format!("get schema of {database}")).await
    }

    /// Asks the server whether it is there.
    pub async fn echo(&self) -> Result<()> {
        self.call("echo", b"[]".to_vec(), "echo".to_owned(), None).await.map(drop)
    }

    /// Carries out all operations, or none. An operation that fails is named in the error.
    pub async fn transact(&self, database: &str, operations: &[Operation]) -> Result<Vec<Outcome>> {
        let what = match operations {
            [one] => format!("{} of {database}", one.describe()),
            all => format!("{} operations on {database}", all.len()),
        };
        let mut params = json!([database]).to_string().into_bytes();
        params.pop();
        for operation in operations {
            params.push(b',');
            serde_json::to_writer(&mut params, operation)
                .map_err(|error| Error::protocol(what.clone(), error.to_string()))?;
        }
        params.push(b']');
        let reply = self.call("transact", params, what.clone(), None).await?;
        let answers = operation::outcomes(&reply).map_err(|error| Error::protocol(what.clone(), error.to_string()))?;
        if answers.len() < operations.len() {
            let detail = format!("{} outcomes for {} operations", answers.len(), operations.len());
            return Err(Error::protocol(what, detail));
        }
        let mut outcomes = Vec::with_capacity(operations.len());
        for (at, answer) in answers.into_iter().enumerate() {
            if let Some(error) = answer.error {
                // One more than there are operations is what the commit itself says.
                let step = operations.get(at).map_or_else(|| "commit".to_owned(), Operation::describe);
                let operation = if operations.len() == 1 { what } else { format!("{step} ({} of {what})", at + 1) };
                return Err(Error::refused(operation, error, answer.details));
            }
            outcomes.push(answer.outcome);
        }
        outcomes.truncate(operations.len());
        Ok(outcomes)
    }

    /// Selects rows and hands them on one by one, so that they are never all there at once.
    pub async fn select_each(&self, database: &str, select: &Operation, mut each: impl FnMut(Row)) -> Result<()> {
        let what = format!("{} of {database}", select.describe());
        let wrong = |error: serde_json::Error| Error::protocol(what.clone(), error.to_string());
        let params = serde_json::to_vec(&(database, select)).map_err(wrong)?;
        let reply = self.call("transact", params, what.clone(), None).await?;
        let answers = operation::outcomes_to(&reply, &mut each).map_err(wrong)?;
        match answers.into_iter().find_map(|answer| Some((answer.error?, answer.details))) {
            Some((error, details)) => Err(Error::refused(what, error, details)),
            None => Ok(()),
        }
    }

    /// Carries out operations that are JSON already, and gives the outcomes as JSON.
    pub async fn transact_json(&self, database: &str, operations: &[Value]) -> Result<Vec<Value>> {
        let what = format!("{} operations on {database}", operations.len());
        let params: Vec<&Value> = std::iter::once(&Value::Null).chain(operations).collect();
        let mut params = json!(params);
        params[0] = database.into();
        let outcomes: Vec<Value> = self.ask("transact", params.to_string().into_bytes(), what.clone()).await?;
        for (at, outcome) in outcomes.iter().enumerate() {
            if let Some(error) = outcome["error"].as_str() {
                let details = outcome["details"].as_str().map(ToOwned::to_owned);
                return Err(Error::refused(format!("operation {} of {what}", at + 1), error, details));
            }
        }
        Ok(outcomes)
    }

    /// Follows what this names, from now on or since a transaction. The newest method that the server knows is used.
    pub(super) async fn monitor(&self, follow: &Follow, since: Option<Uuid>, names: &mut Names) -> Result<Monitor> {
        let id = format!("cobalt-{}", self.inner.next_monitor.fetch_add(1, Ordering::Relaxed));
        let what = format!("follow {}", follow.database());
        for method in Method::ALL {
            let (sink, updates) = mpsc::channel(self.inner.monitor_capacity);
            let params = follow.request(&id, method, since);
            let reply = self.call(method.name(), params, what.clone(), Some((id.clone(), sink))).await;
            match reply {
                Err(error) if error.is_unknown_method() && method != Method::Monitor => {
                    tracing::debug!(peer = self.peer(), method = method.name(), "the server knows no such method");
                }
                Err(error) => return Err(error),
                Ok(reply) => {
                    let initial = Updates::initial(&reply, method, names)
                        .map_err(|error| Error::protocol(what, error.to_string()))?;
                    return Ok(Monitor { id, initial, updates, conditional: method != Method::Monitor });
                }
            }
        }
        Err(Error::protocol(what, "the server knows no way to follow"))
    }

    /// Changes which rows a monitor follows. What comes and goes by that has been told when this returns.
    pub(super) async fn change_conditions(&self, monitor: &str, follow: &Follow) -> Result<()> {
        let what = format!("change what is followed of {}", follow.database());
        self.call("monitor_cond_change", follow.change(monitor), what, None).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(&self, method: &'static str, params: Vec<u8>, what: String) -> Result<T> {
        let reply = self.call(method, params, what.clone(), None).await?;
        serde_json::from_slice(&reply).map_err(|error| Error::protocol(what, error.to_string()))
    }

    async fn call(
        &self,
        method: &'static str,
        params: Vec<u8>,
        what: String,
        monitor: Option<(String, mpsc::Sender<RawUpdate>)>,
    ) -> Result<Bytes> {
        let after = self.inner.call_timeout;
        let answer = tokio::time::timeout(after, self.exchange(method, params.into(), monitor)).await;
        match answer {
            Err(_elapsed) => Err(Error::timeout(what, after)),
            Ok(None) => Err(Error::closed(what, self.closed().await)),
            Ok(Some(Ok(reply))) => Ok(reply),
            Ok(Some(Err(told))) => Err(Error::refused(what, told.error, told.details)),
        }
    }

    /// `None` when the connection ended.
    async fn exchange(
        &self,
        method: &'static str,
        params: Bytes,
        monitor: Option<(String, mpsc::Sender<RawUpdate>)>,
    ) -> Option<Answer> {
        let slot = Arc::clone(&self.inner.slots).acquire_owned().await.ok()?;
        let (reply, answer) = oneshot::channel();
        self.inner.commands.send(Command::Call(Call { method, params, reply, slot, monitor })).await.ok()?;
        answer.await.ok()
    }

    /// Waits for the end of the connection, and says why it ended.
    pub async fn closed(&self) -> Arc<CloseReason> {
        let mut reason = self.inner.reason.clone();
        // The sender sets a reason before it goes, or panicked.
        let _ = reason.wait_for(Option::is_some).await;
        let reason = reason.borrow().clone();
        reason.unwrap_or_else(|| Arc::new(CloseReason::Violation("the connection's task is gone".into())))
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.inner.reason.borrow().is_some()
    }

    /// Ends the connection. Calls that are still pending fail.
    pub async fn close(&self) {
        let _ = self.inner.commands.send(Command::Close).await;
        self.closed().await;
    }

    /// Why it ended, in a line.
    pub(super) async fn epitaph(&self) -> String {
        error::chain(self.closed().await.as_ref())
    }
}

/// A running monitor. Dropping it ends it, with the next update.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) id: String,
    pub(super) initial: Updates,
    pub(super) updates: mpsc::Receiver<RawUpdate>,
    /// Whether its conditions count, and can be changed.
    pub(super) conditional: bool,
}
