//! One connection to the scripted daemon.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use super::{
    answer::{Answer, Event},
    model::hangs_up,
    plan::{Accept, Fault},
    server::{Inner, State},
    wire::{Reader, Writer},
};
use crate::frame::{self, Frame, Header, MAX_FRAME, MessageType, PROGRAM_KEEPALIVE, PROGRAM_REMOTE, Status, VERSION};

/// What a client may leave unread before the daemon gives up on it.
pub(super) const OUTBOX: usize = 64 * 1024;

const REGISTER: u32 = 316;
const DEREGISTER: u32 = 317;
/// How many kinds of event libvirt 9 knows.
pub(super) const KINDS: i32 = 26;

/// What is to be done with the socket next.
#[derive(Debug)]
pub(super) enum Out {
    Bytes(Bytes),
    Close,
}

/// What the daemon remembers of one client.
#[derive(Debug)]
pub(super) struct Session {
    outbox: mpsc::Sender<Out>,
    /// Callback numbers by kind of event.
    callbacks: BTreeMap<i32, i32>,
    /// An answer that waits for the next one to overtake it.
    held: Option<Bytes>,
    /// Reads on and never says another word.
    mute: bool,
}

impl Session {
    pub(super) fn new(outbox: mpsc::Sender<Out>) -> Self {
        Self { outbox, callbacks: BTreeMap::new(), held: None, mute: false }
    }

    pub(super) fn callbacks(&self) -> usize {
        self.callbacks.len()
    }

    fn send(&self, bytes: Bytes) {
        if self.mute {
            return;
        }
        // A full outbox loses the answer, as a client that does not read would.
        let _ = self.outbox.try_send(Out::Bytes(bytes));
    }

    pub(super) fn mute(&mut self) {
        self.mute = true;
    }

    pub(super) fn close(&self) {
        let _ = self.outbox.try_send(Out::Close);
    }

    /// Sends the event if this client asked for its kind.
    pub(super) fn tell(&self, event: &Event) {
        if let Some(callback) = self.callbacks.get(&event.kind) {
            self.send(Frame::new(Header::event(event.procedure), event.payload(*callback)).to_bytes());
        }
    }

    fn send_later(&self, bytes: Bytes, after: Duration) {
        let outbox = self.outbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let _ = outbox.send(Out::Bytes(bytes)).await;
        });
    }

    fn reply(&mut self, call: &Header, answer: &Answer, fault: Option<Fault>) {
        let reply = Frame::new(call.reply(answer.status), answer.payload.clone());
        let bytes = reply.to_bytes();
        match fault {
            None => {}
            Some(Fault::Silent) => return,
            Some(Fault::HangUp) => return self.close(),
            Some(Fault::Truncated) => {
                self.send(bytes.slice(..=bytes.len() / 2));
                return self.close();
            }
            Some(Fault::Oversized) => {
                let mut bytes = BytesMut::from(bytes.as_ref());
                bytes[..4].copy_from_slice(&u32::MAX.to_be_bytes());
                return self.send(bytes.freeze());
            }
            Some(Fault::Garbage) => return self.send(Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
            Some(Fault::WrongSerial) => {
                let header = Header { serial: call.serial.wrapping_add(1_000_000), ..reply.header };
                return self.send(Frame::new(header, reply.payload).to_bytes());
            }
            Some(Fault::EventFirst(event)) => self.tell(&event),
            Some(Fault::AfterNext) => {
                self.held = Some(bytes);
                return;
            }
            Some(Fault::Slow(after)) => return self.send_later(bytes, after),
        }
        self.send(bytes);
        if let Some(held) = self.held.take() {
            self.send(held);
        }
        if hangs_up(call.procedure, answer) {
            self.close();
        }
    }
}

/// Handles one frame of a client.
pub(super) fn handle(state: &mut State, session: u64, frame: &Frame) {
    let header = &frame.header;
    if header.program == PROGRAM_KEEPALIVE {
        if let Some(session) = state.sessions.get(&session).filter(|_| header.procedure == 1) {
            session.send(Frame::new(Header::keepalive(2), Bytes::new()).to_bytes());
        }
        return;
    }
    if header.kind != MessageType::Call {
        // Real daemons ignore what is no call.
        return;
    }
    *state.counts.entry(header.procedure).or_default() += 1;
    let fault = state.plan.take_fault(header.procedure);
    let answer = if (header.program, header.version, header.status) == (PROGRAM_REMOTE, VERSION, Status::Ok) {
        answer(state, session, header.procedure, &frame.payload)
    } else {
        Answer::error(39, 7, "Cannot find program or version")
    };
    if let Some(session) = state.sessions.get_mut(&session) {
        session.reply(header, &answer, fault);
    }
    state.tell_pending();
}

fn answer(state: &mut State, session: u64, procedure: u32, arguments: &Bytes) -> Answer {
    if let Some(answer) = state.plan.answer(procedure) {
        return answer;
    }
    match procedure {
        REGISTER => register(state, session, arguments),
        DEREGISTER => {
            let wanted = Reader::new(arguments).i32();
            let Some(session) = state.sessions.get_mut(&session) else { return Answer::done() };
            let before = session.callbacks.len();
            session.callbacks.retain(|_, callback| Some(*callback) != wanted);
            if session.callbacks.len() < before {
                Answer::done()
            } else {
                Answer::error(1, 7, "internal error: domain event callback not registered")
            }
        }
        _ => state.model.answer(procedure, arguments),
    }
}

fn register(state: &mut State, session: u64, arguments: &Bytes) -> Answer {
    let Some(kind) = Reader::new(arguments).i32().filter(|kind| (0..state.kinds).contains(kind)) else {
        return Answer::error(1, 7, "internal error: unsupported event ID");
    };
    // Numbers go up for the whole life of the daemon, whoever registers.
    let callback = state.next_callback;
    state.next_callback += 1;
    if let Some(session) = state.sessions.get_mut(&session) {
        session.callbacks.insert(kind, callback);
    }
    Answer::ok(Writer::new().i32(callback).finish())
}

/// Serves one client until it leaves or is thrown out.
pub(super) async fn serve<S>(inner: Arc<Inner>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (mut from, mut to) = tokio::io::split(stream);
    match inner.with(|state| state.plan.accept) {
        Accept::Normal => {}
        Accept::HangUp => return,
        Accept::Silent => {
            let mut nowhere = [0; 4096];
            while from.read(&mut nowhere).await.is_ok_and(|count| count > 0) {}
            return;
        }
    }
    let (outbox, mut inbox) = mpsc::channel(OUTBOX);
    let id = inner.with(|state| state.enter(Session::new(outbox)));
    let reading = async {
        let mut buffer = BytesMut::new();
        while let Ok(Some(frame)) = frame::read(&mut from, &mut buffer, MAX_FRAME).await {
            inner.with(|state| handle(state, id, &frame));
        }
    };
    let writing = async {
        while let Some(Out::Bytes(bytes)) = inbox.recv().await {
            if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
    inner.with(|state| state.leave(id));
}
