//! A daemon of a few lines: it answers what it has been told to, and writes down what it was asked.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::mpsc,
};

use crate::{
    ConnectOptions, Libvirt,
    frame::{self, Frame, Header, Status},
    rpc::{self, Procedure},
    xdr::{self, Encode},
};

/// What the peer says to a call.
pub(super) enum Answer {
    Reply(Status, Bytes),
    Silence,
}

/// What the peer is to do.
pub(super) type Script = Box<dyn FnMut(u32, &Bytes) -> Answer + Send>;

pub(super) struct Peer {
    pub(super) calls: Arc<Mutex<Vec<(u32, Bytes)>>>,
    out: mpsc::UnboundedSender<Frame>,
}

impl Peer {
    /// A client connected to a daemon that answers with `script`.
    pub(super) async fn connect(script: Script) -> (Libvirt, Self) {
        Self::connect_with(script, &ConnectOptions::new()).await
    }

    pub(super) async fn connect_with(script: Script, options: &ConnectOptions) -> (Libvirt, Self) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (out, queue) = mpsc::unbounded_channel();
        let calls = Arc::default();
        tokio::spawn(serve(theirs, script, out.clone(), queue, Arc::clone(&calls)));
        let uri = "test+tcp://peer/default".parse().unwrap();
        (Libvirt::over(ours, "the peer", &uri, options).await.unwrap(), Self { calls, out })
    }

    pub(super) fn event(&self, procedure: u32, message: &impl Encode) {
        self.out.send(Frame::new(Header::event(procedure), xdr::to_bytes(message))).unwrap();
    }

    /// How often a procedure was called.
    pub(super) fn count(&self, procedure: u32) -> usize {
        self.calls.lock().unwrap().iter().filter(|(called, _)| *called == procedure).count()
    }

    /// The arguments of the last call.
    pub(super) fn last(&self) -> (u32, Bytes) {
        self.calls.lock().unwrap().last().cloned().unwrap()
    }
}

pub(super) fn ok(reply: &impl Encode) -> Answer {
    Answer::Reply(Status::Ok, xdr::to_bytes(reply).into())
}

pub(super) fn error(code: i32, message: &str) -> Answer {
    let text = Some(message);
    let reply = ((code, 10, text), (2, None::<u32>, text), ((text, None::<&str>, -1), -1, None::<u32>));
    Answer::Reply(Status::Error, xdr::to_bytes(&reply).into())
}

async fn serve(
    stream: DuplexStream,
    mut script: Script,
    out: mpsc::UnboundedSender<Frame>,
    mut queue: mpsc::UnboundedReceiver<Frame>,
    calls: Arc<Mutex<Vec<(u32, Bytes)>>>,
) {
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::spawn(async move {
        while let Some(frame) = queue.recv().await {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = BytesMut::new();
    loop {
        while let Some(call) = frame::decode(&mut buffer, frame::MAX_FRAME).unwrap() {
            let procedure = call.header.procedure;
            let answer = match procedure {
                _ if call.header.program != frame::PROGRAM_REMOTE => Answer::Silence,
                <rpc::AuthList as Procedure>::NUMBER => ok(&(vec![0],)),
                <rpc::ConnectSupportsFeature as Procedure>::NUMBER => ok(&(false,)),
                <rpc::ConnectOpen as Procedure>::NUMBER | <rpc::ConnectClose as Procedure>::NUMBER => ok(&()),
                _ => {
                    calls.lock().unwrap().push((procedure, call.payload.clone()));
                    script(procedure, &call.payload)
                }
            };
            if let Answer::Reply(status, payload) = answer {
                out.send(Frame::new(call.header.reply(status), payload)).unwrap();
            }
        }
        if matches!(read.read_buf(&mut buffer).await, Ok(0) | Err(_)) {
            return;
        }
    }
}
