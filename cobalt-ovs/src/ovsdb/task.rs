//! The task that owns the socket.

use std::{collections::HashMap, io, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, sleep_until},
};

use super::{
    monitor::{RawUpdate, UpdateMethod},
    probe::{Due, Probe},
};
use crate::{
    error::CloseReason,
    jsonrpc::{Framer, Message, RpcError},
    options::ConnectOptions,
    transport::Stream,
};

/// Above this many unsent bytes nothing further is taken from the queue or off the socket.
const HIGH_WATER: usize = 256 * 1024;
/// What is asked of the socket at least.
const READ_CHUNK: usize = 16 * 1024;
/// How long the socket may take to shut down.
const FAREWELL: Duration = Duration::from_secs(1);
/// The id of our own echo, which no call has.
const PROBE_ID: &[u8] = br#""probe""#;

/// What became of a call.
pub(super) type Answer = Result<Bytes, RpcError>;

/// What handles ask of the task.
#[derive(Debug)]
pub(super) enum Command {
    Call(Call),
    /// End the connection.
    Close,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: &'static str,
    /// JSON.
    pub(super) params: Bytes,
    pub(super) reply: oneshot::Sender<Answer>,
    pub(super) slot: OwnedSemaphorePermit,
    /// For a monitor: its id, and where its updates go. They may come right behind the answer.
    pub(super) monitor: Option<(String, mpsc::Sender<RawUpdate>)>,
}

/// A call without an answer so far. It keeps its slot also when nobody waits any more: the server still works on it.
#[derive(Debug)]
pub(super) struct Pending {
    reply: oneshot::Sender<Answer>,
    _slot: OwnedSemaphorePermit,
    monitor: Option<String>,
}

type Sinks = HashMap<String, mpsc::Sender<RawUpdate>>;

/// What ends with the task and wakes the waiting: dropped only after the reason is known.
pub(super) type Leftovers = (HashMap<u64, Pending>, mpsc::Receiver<Command>, Sinks);

pub(super) struct Task {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    queue: mpsc::Receiver<Command>,
    state: State,
}

/// Everything but the socket, so that the branches of the loop can borrow apart.
struct State {
    pending: HashMap<u64, Pending>,
    sinks: Sinks,
    framer: Framer,
    incoming: BytesMut,
    outgoing: BytesMut,
    /// Bytes are with the stream but perhaps not with the socket.
    unflushed: bool,
    probe: Option<Probe>,
    /// Since when the server has taken nothing of what waits in `outgoing`.
    stuck_since: Option<Instant>,
    patience: Duration,
    next_id: u64,
}

impl Task {
    pub(super) fn new(stream: Box<dyn Stream>, queue: mpsc::Receiver<Command>, options: &ConnectOptions) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let state = State {
            pending: HashMap::new(),
            sinks: HashMap::new(),
            framer: Framer::new(options.max_message),
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            unflushed: false,
            probe: options.probe_interval.map(|interval| Probe::new(interval, Instant::now())),
            stuck_since: None,
            patience: options.patience(),
            next_id: 0,
        };
        Self { reader, writer, queue, state }
    }

    /// Work until the connection ends.
    pub(super) async fn run(mut self) -> (CloseReason, Leftovers) {
        let reason = self.work().await;
        if matches!(reason, CloseReason::Requested) {
            let _ = tokio::time::timeout(FAREWELL, self.writer.shutdown()).await;
        }
        (reason, (self.state.pending, self.queue, self.state.sinks))
    }

    async fn work(&mut self) -> CloseReason {
        let Self { reader, writer, queue, state } = self;
        loop {
            if let Err(reason) = state.receive() {
                return reason;
            }
            state.make_room();
            let room = state.outgoing.len() < HIGH_WATER;
            let wake = state.deadline();
            tokio::select! {
                read = reader.read_buf(&mut state.incoming), if room => match read {
                    Ok(0) => return state.ended(),
                    Ok(_) => state.heard(),
                    Err(error) => return CloseReason::Io(error),
                },
                written = push(writer, &state.outgoing), if state.unflushed || !state.outgoing.is_empty() => {
                    match written {
                        Ok(count) => state.wrote(count),
                        Err(error) => return CloseReason::Io(error),
                    }
                }
                command = queue.recv(), if room => match command {
                    Some(Command::Call(call)) => state.send(call),
                    // Nothing to receive any more means that the last handle is gone.
                    Some(Command::Close) | None => return CloseReason::Requested,
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    if let Err(reason) = state.tick() {
                        return reason;
                    }
                }
            }
        }
    }
}

/// Write some of `bytes`, or flush when there are none. Dropping the future loses nothing.
async fn push(writer: &mut WriteHalf<Box<dyn Stream>>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        writer.flush().await.map(|()| 0)
    } else {
        match writer.write(bytes).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => Ok(count),
        }
    }
}

impl State {
    fn make_room(&mut self) {
        // At rest a connection costs nothing, however long the longest message was.
        if self.incoming.is_empty() && self.incoming.capacity() > 4 * READ_CHUNK {
            self.incoming = BytesMut::new();
        }
        if self.outgoing.is_empty() && self.outgoing.capacity() > 4 * READ_CHUNK {
            self.outgoing = BytesMut::new();
        }
        // The buffer grows with what has arrived of a long message.
        self.incoming.reserve(READ_CHUNK.max(self.incoming.len() / 2));
    }

    fn heard(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.heard(Instant::now());
        }
    }

    /// Looks at all messages that are there, unless the server asks faster than it reads answers.
    fn receive(&mut self) -> Result<(), CloseReason> {
        while self.outgoing.len() < HIGH_WATER
            && let Some(message) = self.framer.next(&mut self.incoming).map_err(CloseReason::Frame)?
        {
            let message = Message::parse(&message)
                .map_err(|error| CloseReason::Violation(format!("{} ({})", error, crate::error::chain(&error))))?;
            self.dispatch(message)?;
        }
        Ok(())
    }

    fn dispatch(&mut self, message: Message) -> Result<(), CloseReason> {
        match message {
            Message::Request { id, method, params } if method == "echo" => {
                self.put(&[br#"{"id":"#, &id, br#","result":"#, &params, br#","error":null}"#]);
            }
            Message::Request { id, method, .. } => {
                tracing::debug!(method, "the server asks for something nobody knows");
                self.put(&[br#"{"id":"#, &id, br#","result":null,"error":"unknown method"}"#]);
            }
            Message::Notification { method, params } => self.notice(&method, params)?,
            Message::Reply { id, .. } if id == PROBE_ID => {}
            Message::Reply { id, answer } => {
                let Some(pending) = number(&id).and_then(|id| self.pending.remove(&id)) else {
                    let id: String = String::from_utf8_lossy(&id).chars().take(40).collect();
                    return Err(CloseReason::Violation(format!("a reply to {id}, which no call waits for")));
                };
                if let (Some(monitor), Err(_)) = (&pending.monitor, &answer) {
                    self.sinks.remove(monitor);
                }
                // An error here is a call that was given up: its late answer is of no interest.
                let _ = pending.reply.send(answer);
            }
        }
        Ok(())
    }

    fn notice(&mut self, method: &str, params: Bytes) -> Result<(), CloseReason> {
        let update = UpdateMethod::named(method);
        if update.is_none() && method != "monitor_canceled" {
            tracing::debug!(method, "the server tells something nobody asked about");
            return Ok(());
        }
        let Some(id) = monitor_id(&params) else {
            return Err(CloseReason::Violation(format!("{method} names no monitor of ours")));
        };
        let Some(sink) = self.sinks.get(&id) else { return Ok(()) };
        let Some(update) = update else {
            // Without its sender the reader sees the end.
            self.sinks.remove(&id);
            return Ok(());
        };
        match sink.try_send(RawUpdate { method: update, params }) {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, mpsc::error::TrySendError::Full(_)) {
                    tracing::debug!(monitor = id, "a reader fell behind and loses its monitor");
                }
                self.sinks.remove(&id);
                self.cancel(&id);
            }
        }
        Ok(())
    }

    /// Nobody reads it any more. The answer is of no interest, so it gets the id of a probe.
    fn cancel(&mut self, monitor: &str) {
        let params = serde_json::json!([monitor]).to_string();
        self.put(&[br#"{"id":"#, PROBE_ID, br#","method":"monitor_cancel","params":"#, params.as_bytes(), b"}"]);
    }

    fn send(&mut self, call: Call) {
        if call.reply.is_closed() {
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let method = call.method;
        self.put(&[format!(r#"{{"id":{id},"method":"{method}","params":"#).as_bytes(), &call.params, b"}"]);
        let monitor = call.monitor.map(|(monitor, sink)| {
            self.sinks.insert(monitor.clone(), sink);
            monitor
        });
        self.pending.insert(id, Pending { reply: call.reply, _slot: call.slot, monitor });
    }

    fn put(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.outgoing.extend_from_slice(piece);
        }
        self.stuck_since.get_or_insert_with(Instant::now);
    }

    /// `count` bytes are with the stream, or all that is there is on its way when there was nothing to write.
    fn wrote(&mut self, count: usize) {
        self.unflushed = count > 0;
        self.outgoing.advance(count);
        self.stuck_since = (self.unflushed || !self.outgoing.is_empty()).then(Instant::now);
    }

    fn deadline(&self) -> Option<Instant> {
        let silent = self.probe.as_ref().map(Probe::deadline);
        let stuck = self.stuck_since.map(|since| since + self.patience);
        silent.into_iter().chain(stuck).min()
    }

    fn tick(&mut self) -> Result<(), CloseReason> {
        let now = Instant::now();
        if let Some(since) = self.stuck_since.filter(|since| now >= *since + self.patience) {
            return Err(CloseReason::Stuck { after: now - since });
        }
        match self.probe.as_mut().map_or(Due::Nothing, |probe| probe.due(now)) {
            Due::Nothing => Ok(()),
            Due::Ask => {
                self.put(&[br#"{"id":"#, PROBE_ID, br#","method":"echo","params":[]}"#]);
                Ok(())
            }
            Due::GiveUp { after } => Err(CloseReason::Silent { after }),
        }
    }

    /// The server has closed its side.
    fn ended(&self) -> CloseReason {
        match self.framer.unfinished() {
            0 => CloseReason::Peer,
            unfinished => {
                let detail = format!("closed after {unfinished} bytes of an unfinished message");
                CloseReason::Io(io::Error::new(io::ErrorKind::UnexpectedEof, detail))
            }
        }
    }
}

fn number(id: &[u8]) -> Option<u64> {
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// The first argument, if it is text: all ids of ours are.
fn monitor_id(params: &[u8]) -> Option<String> {
    let pieces: Vec<&serde_json::value::RawValue> = serde_json::from_slice(params).ok()?;
    serde_json::from_str(pieces.first()?.get()).ok()
}
