//! The task that owns the socket.

use std::{collections::HashMap, io, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{OwnedSemaphorePermit, broadcast, mpsc, oneshot},
    time::{Instant, sleep_until},
};

use super::{Answer, CONNECT_CLOSE, ConnectOptions, EventMessage};
use crate::{
    error::CloseReason,
    frame::{self, Frame, Header, MessageType, PROGRAM_KEEPALIVE, PROGRAM_REMOTE},
    keepalive::{Due, Keepalive, PING, PONG},
    transport::Stream,
};

/// Above this many unsent bytes no further call is taken from the queue.
const HIGH_WATER: usize = 256 * 1024;
/// What is asked of the socket at least.
const READ_CHUNK: usize = 64 * 1024;
/// How long the daemon may take to answer a goodbye, and the socket to shut down.
const FAREWELL: Duration = Duration::from_secs(1);

/// What handles ask of the task.
#[derive(Debug)]
pub(super) enum Command {
    Call {
        procedure: u32,
        payload: Bytes,
        reply: oneshot::Sender<Answer>,
        slot: OwnedSemaphorePermit,
    },
    StartKeepalive,
    /// Say goodbye and end.
    Close,
}

/// A call without an answer so far.
#[derive(Debug)]
pub(super) struct Pending {
    procedure: u32,
    reply: oneshot::Sender<Answer>,
    _slot: OwnedSemaphorePermit,
}

/// What ends with the task and wakes the waiting: dropped only after the reason is known.
pub(super) type Leftovers = (HashMap<u32, Pending>, mpsc::Receiver<Command>, broadcast::Sender<EventMessage>);

pub(super) struct Task {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    queue: mpsc::Receiver<Command>,
    events: broadcast::Sender<EventMessage>,
    state: State,
}

/// Everything but the socket, so that the branches of the loop can borrow apart.
struct State {
    pending: HashMap<u32, Pending>,
    incoming: BytesMut,
    outgoing: BytesMut,
    /// Bytes are with the stream but perhaps not with the socket.
    unflushed: bool,
    /// Asked for and waiting for an empty `outgoing`. One pong answers any number of pings, so a peer that pings and
    /// never reads costs nothing.
    pong_due: bool,
    keepalive: Option<Keepalive>,
    /// Since when the peer has taken nothing of what waits in `outgoing`.
    stuck_since: Option<Instant>,
    /// Until when an answer to our goodbye is awaited. The end of the stream is then what we want.
    closing: Option<Instant>,
    next_serial: u32,
    max_message: usize,
    keepalive_settings: Option<(Duration, u32)>,
    patience: Option<Duration>,
}

impl Task {
    pub(super) fn new(
        stream: Box<dyn Stream>,
        queue: mpsc::Receiver<Command>,
        events: broadcast::Sender<EventMessage>,
        options: &ConnectOptions,
    ) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        let state = State {
            pending: HashMap::with_capacity(options.max_pending),
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            unflushed: false,
            pong_due: false,
            keepalive: None,
            stuck_since: None,
            closing: None,
            next_serial: 1,
            max_message: options.max_message,
            keepalive_settings: options.keepalive_interval.map(|interval| (interval, options.keepalive_count)),
            patience: options.patience(),
        };
        Self { reader, writer, queue, events, state }
    }

    /// Work until the connection ends.
    pub(super) async fn run(mut self) -> (CloseReason, Leftovers) {
        let reason = match self.work().await {
            Ok(()) => CloseReason::Requested,
            Err(reason) => reason,
        };
        if matches!(reason, CloseReason::Requested) {
            let _ = tokio::time::timeout(FAREWELL, self.writer.shutdown()).await;
        }
        (reason, (self.state.pending, self.queue, self.events))
    }

    /// `Ok` when we wanted the end.
    async fn work(&mut self) -> Result<(), CloseReason> {
        let Self { reader, writer, queue, events, state } = self;
        loop {
            state.write_pong();
            state.reserve();
            let unsent = !state.outgoing.is_empty();
            let wake = state.deadline();
            tokio::select! {
                read = reader.read_buf(&mut state.incoming) => {
                    if read.map_err(CloseReason::Io)? == 0 {
                        return state.ended();
                    }
                    state.receive(events)?;
                }
                written = push(writer, &state.outgoing), if unsent || state.unflushed => {
                    state.wrote(written.map_err(CloseReason::Io)?);
                }
                command = queue.recv(), if state.closing.is_none() && state.outgoing.len() < HIGH_WATER => match command {
                    Some(Command::Call { procedure, payload, reply, slot }) => {
                        state.send(procedure, payload, reply, slot);
                    }
                    Some(Command::StartKeepalive) => state.start_keepalive(),
                    // Nothing to receive any more means that the last handle is gone.
                    Some(Command::Close) | None => state.say_goodbye(),
                },
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => state.tick()?,
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
    /// Room for the next read. A long message makes the buffer grow with what has arrived of it, never with what its
    /// length word promises.
    fn reserve(&mut self) {
        let have = self.incoming.len();
        let missing = match frame::expected_len(&self.incoming, self.max_message) {
            Ok(Some(length)) => length.saturating_sub(have),
            _ => READ_CHUNK / 8,
        };
        if self.incoming.capacity() - have < missing.min(READ_CHUNK / 8) {
            self.incoming.reserve(missing.clamp(READ_CHUNK, have.max(READ_CHUNK)));
        }
    }

    fn receive(&mut self, events: &broadcast::Sender<EventMessage>) -> Result<(), CloseReason> {
        if let Some(keepalive) = &mut self.keepalive {
            keepalive.heard(Instant::now());
        }
        while let Some(frame) = frame::decode(&mut self.incoming, self.max_message).map_err(CloseReason::Frame)? {
            self.dispatch(frame, events)?;
        }
        Ok(())
    }

    fn dispatch(&mut self, frame: Frame, events: &broadcast::Sender<EventMessage>) -> Result<(), CloseReason> {
        let Header { program, procedure, kind, serial, .. } = frame.header;
        match (program, kind) {
            (PROGRAM_KEEPALIVE, MessageType::Event) => {
                // A pong has done its work by arriving. Unknown procedures are ignored, as libvirt does.
                self.pong_due |= procedure == PING;
                Ok(())
            }
            (PROGRAM_REMOTE, MessageType::Event) => {
                let payload = Bytes::copy_from_slice(&frame.payload);
                // Nobody listening is fine.
                let _ = events.send(EventMessage { procedure, payload });
                Ok(())
            }
            (PROGRAM_REMOTE, MessageType::Reply) if self.closing.is_some() && procedure == CONNECT_CLOSE => {
                Err(CloseReason::Requested)
            }
            (PROGRAM_REMOTE, MessageType::Reply) => {
                let Some(pending) = self.pending.remove(&serial) else {
                    return Err(CloseReason::Violation(format!(
                        "a reply of procedure {procedure} with serial {serial}, which no call waits for"
                    )));
                };
                if pending.procedure != procedure {
                    return Err(CloseReason::Violation(format!(
                        "a reply of procedure {procedure} to call {serial} of procedure {}",
                        pending.procedure
                    )));
                }
                // An error here is a call that was given up: its late answer is of no interest.
                let _ = pending.reply.send(Answer::Reply(frame));
                Ok(())
            }
            (program, kind) => Err(CloseReason::Violation(format!(
                "a message of type {kind:?} of program {program:#x}, procedure {procedure}, which we never asked for"
            ))),
        }
    }

    fn send(&mut self, procedure: u32, payload: Bytes, reply: oneshot::Sender<Answer>, slot: OwnedSemaphorePermit) {
        if reply.is_closed() {
            return;
        }
        let serial = self.serial();
        let frame = Frame::new(Header::call(procedure, serial), payload);
        if frame.wire_len() > frame::MAX_FRAME {
            let _ = reply.send(Answer::TooLong { length: frame.wire_len(), limit: frame::MAX_FRAME });
            return;
        }
        frame.encode(&mut self.outgoing);
        self.pending.insert(serial, Pending { procedure, reply, _slot: slot });
        self.queued();
    }

    /// The goodbye takes no slot: it must not wait behind calls that take long. The daemon would close on its own when
    /// the socket ends, but logs an error then.
    fn say_goodbye(&mut self) {
        let serial = self.serial();
        Frame::new(Header::call(CONNECT_CLOSE, serial), Bytes::new()).encode(&mut self.outgoing);
        self.closing = Some(Instant::now() + FAREWELL);
    }

    /// After 2³² calls the numbers start again, around those whose answer is still awaited.
    fn serial(&mut self) -> u32 {
        loop {
            let serial = self.next_serial;
            self.next_serial = self.next_serial.wrapping_add(1);
            if !self.pending.contains_key(&serial) {
                return serial;
            }
        }
    }

    fn write_pong(&mut self) {
        if self.pong_due && self.outgoing.is_empty() {
            self.pong_due = false;
            self.put_keepalive(PONG);
        }
    }

    fn put_keepalive(&mut self, procedure: u32) {
        Frame::new(Header::keepalive(procedure), Bytes::new()).encode(&mut self.outgoing);
        self.queued();
    }

    fn queued(&mut self) {
        self.stuck_since.get_or_insert_with(Instant::now);
    }

    /// `count` bytes are with the stream, or all that is there is on its way when there was nothing to write.
    fn wrote(&mut self, count: usize) {
        self.unflushed = count > 0;
        self.outgoing.advance(count);
        self.stuck_since = (self.unflushed || !self.outgoing.is_empty()).then(Instant::now);
    }

    fn start_keepalive(&mut self) {
        self.keepalive =
            self.keepalive_settings.map(|(interval, count)| Keepalive::new(interval, count, Instant::now()));
    }

    fn deadline(&self) -> Option<Instant> {
        let silent = self.keepalive.as_ref().map(Keepalive::deadline);
        let stuck = self.stuck_since.zip(self.patience).map(|(since, patience)| since + patience);
        silent.into_iter().chain(stuck).chain(self.closing).min()
    }

    fn tick(&mut self) -> Result<(), CloseReason> {
        let now = Instant::now();
        if self.closing.is_some_and(|until| now >= until) {
            return Err(CloseReason::Requested);
        }
        if let (Some(since), Some(patience)) = (self.stuck_since, self.patience)
            && now >= since + patience
        {
            return Err(CloseReason::Stuck { after: now - since });
        }
        match self.keepalive.as_mut().map_or(Due::Nothing, |keepalive| keepalive.due(now)) {
            Due::Nothing => {}
            // A ping behind a full queue would tell nothing; silence goes on counting.
            Due::Ping if self.outgoing.len() >= HIGH_WATER => {}
            Due::Ping => self.put_keepalive(PING),
            Due::GiveUp { after } => return Err(CloseReason::Silent { after }),
        }
        Ok(())
    }

    /// The peer has closed its side.
    fn ended(&self) -> Result<(), CloseReason> {
        if !self.incoming.is_empty() {
            let detail = format!("closed after {} bytes of an unfinished message", self.incoming.len());
            return Err(CloseReason::Io(io::Error::new(io::ErrorKind::UnexpectedEof, detail)));
        }
        if self.closing.is_some() { Ok(()) } else { Err(CloseReason::Peer) }
    }
}
