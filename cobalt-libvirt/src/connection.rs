//! One conversation with one daemon.
//!
//! A task owns the socket; handles send it calls and get the answers, matched by serial and in any order. Events go
//! to a bounded broadcast, so that nobody who reads them slowly can hold the answers up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};

pub(crate) use self::open::decode;
pub use self::options::{ConnectOptions, Credentials, Pki};
use self::task::{Command, Task};
use crate::{
    error::{CloseReason, Error, Operation, Result},
    frame::{Frame, Status},
    transport::{self, Stream},
    uri::LibvirtUri,
};

mod open;
mod options;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod peer;
mod remote_error;
mod task;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// The procedure that ends a conversation.
const CONNECT_CLOSE: u32 = 2;

/// An event as it came: the payload is for whoever knows the procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventMessage {
    /// Which event, as a procedure number.
    pub(crate) procedure: u32,
    /// Its XDR. A copy of its own, so that a waiting event never keeps a large read buffer alive.
    pub(crate) payload: Bytes,
}

/// A handle on an open connection. Clones share it; when the last is dropped, the connection is closed.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    commands: mpsc::Sender<Command>,
    /// One permit per unanswered call. A call that was given up keeps its permit until its late answer comes: the
    /// daemon still works on it.
    slots: Arc<Semaphore>,
    reason: watch::Receiver<Option<Arc<CloseReason>>>,
    /// Weak, so that the readers of events see the end of the connection as the end of the events.
    events: broadcast::WeakSender<EventMessage>,
    peer: String,
    call_timeout: Duration,
}

impl Connection {
    /// Connect, authenticate and open what `uri` names.
    pub(crate) async fn connect(uri: &LibvirtUri, options: &ConnectOptions) -> Result<Self> {
        let transport = transport::connect(uri, options).await?;
        Self::open(transport.stream, transport.peer, transport.confidential, uri, options).await
    }

    /// Authenticate and open over a stream that is already there.
    pub(crate) async fn open(
        stream: Box<dyn Stream>,
        peer: String,
        confidential: bool,
        uri: &LibvirtUri,
        options: &ConnectOptions,
    ) -> Result<Self> {
        let connection = Self::spawn(stream, peer, options);
        match open::open(&connection, confidential, uri, options).await {
            Ok(()) => Ok(connection),
            // "The connection is closed" alone would hide where: while opening, the daemon's address is the news.
            Err(Error::Closed { operation, reason }) => {
                Err(Error::connect(format!("{operation} at {}", connection.peer()), reason))
            }
            Err(error) => Err(error),
        }
    }

    /// Start the task on a stream, without a word to the daemon.
    fn spawn(stream: Box<dyn Stream>, peer: String, options: &ConnectOptions) -> Self {
        let slots = Arc::new(Semaphore::new(options.max_pending));
        let (commands, queue) = mpsc::channel(options.max_pending);
        let (reason_in, reason) = watch::channel(None);
        let (events_in, _) = broadcast::channel(options.event_capacity);
        let events = events_in.downgrade();
        let task = Task::new(stream, queue, events_in, options);
        let (task_slots, task_peer) = (Arc::clone(&slots), peer.clone());
        tokio::spawn(async move {
            let (reason, leftovers) = task.run().await;
            tracing::debug!(peer = task_peer, reason = reason.category(), "libvirt connection ended");
            // The reason first: whoever is woken by the rest looks for it.
            reason_in.send_replace(Some(Arc::new(reason)));
            task_slots.close();
            drop(leftovers);
        });
        let call_timeout = options.call_timeout;
        Self { inner: Arc::new(Inner { commands, slots, reason, events, peer, call_timeout }) }
    }

    /// The daemon's address, for logs and errors.
    pub(crate) fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// How long an ordinary call may take.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.inner.call_timeout
    }

    /// Call `procedure` with `payload` and wait for the payload of the answer.
    ///
    /// `operation` says for people what is done to what. `timeout` covers everything, also waiting for a free slot.
    /// Dropping the future gives the answer up; the daemon still carries the call out.
    pub(crate) async fn call(
        &self,
        procedure: u32,
        payload: impl Into<Bytes>,
        operation: impl Into<Operation>,
        timeout: Duration,
    ) -> Result<Bytes> {
        let (operation, started) = (operation.into(), Instant::now());
        let answer = tokio::time::timeout(timeout, self.exchange(procedure, payload.into())).await;
        tracing::trace!(procedure, elapsed = ?started.elapsed(), peer = self.peer(), "{operation}");
        match answer {
            Err(_elapsed) => Err(Error::Timeout { operation, after: timeout }),
            Ok(None) => Err(Error::closed(operation, self.closed().await)),
            Ok(Some(Answer::TooLong { length, limit })) => {
                Err(Error::protocol(operation, format!("the call has {length} bytes, the limit is {limit}")))
            }
            Ok(Some(Answer::Reply(frame))) => match frame.header.status {
                Status::Ok => Ok(frame.payload),
                Status::Error => Err(remote_error::decode(operation, &frame.payload)),
                other => Err(Error::protocol(operation, format!("unexpected status {other:?} of a reply"))),
            },
        }
    }

    /// `None` when the connection ended.
    async fn exchange(&self, procedure: u32, payload: Bytes) -> Option<Answer> {
        let slot = Arc::clone(&self.inner.slots).acquire_owned().await.ok()?;
        let (reply, answer) = oneshot::channel();
        self.inner.commands.send(Command::Call { procedure, payload, reply, slot }).await.ok()?;
        answer.await.ok()
    }

    /// From now on ping the daemon when it is silent. Only for daemons that said they answer.
    async fn start_keepalive(&self) {
        // An error means that the connection has ended, which the next call tells.
        let _ = self.inner.commands.send(Command::StartKeepalive).await;
    }

    /// The events from now on. At the end of the connection the receiver is closed.
    pub(crate) fn events(&self) -> broadcast::Receiver<EventMessage> {
        match self.inner.events.upgrade() {
            Some(events) => events.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Wait for the end of the connection, and say why it ended.
    pub(crate) async fn closed(&self) -> Arc<CloseReason> {
        let mut reason = self.inner.reason.clone();
        // The sender sets a reason before it goes, or panicked.
        let _ = reason.wait_for(Option::is_some).await;
        let reason = reason.borrow().clone();
        reason.unwrap_or_else(|| Arc::new(CloseReason::Violation("the connection's task is gone".into())))
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.reason.borrow().is_some()
    }

    /// Say goodbye and end the connection. Calls that are still pending fail with [`CloseReason::Requested`].
    pub(crate) async fn close(&self) {
        let _ = self.inner.commands.send(Command::Close).await;
        self.closed().await;
    }
}

/// What became of a call.
#[derive(Debug)]
enum Answer {
    Reply(Frame),
    /// Refused before it was sent: the daemon would have hung up on it.
    TooLong {
        length: usize,
        limit: usize,
    },
}
