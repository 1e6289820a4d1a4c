//! The daemon's side of a conversation, said word by word by a test.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWriteExt, DuplexStream};

use crate::{
    connection::{ConnectOptions, Connection},
    frame::{self, Frame, Header, MAX_FRAME, Status},
    transport::Stream,
    uri::LibvirtUri,
    xdr::Writer,
};

pub(crate) const AUTH_LIST: u32 = 66;
pub(crate) const SUPPORTS_FEATURE: u32 = 60;
pub(crate) const OPEN: u32 = 1;

pub(crate) struct Peer<S = DuplexStream> {
    pub(crate) stream: S,
    buffer: BytesMut,
}

/// The words of a payload.
pub(crate) fn words(words: &[u32]) -> Bytes {
    let mut out = Writer::new();
    for word in words {
        out.u32(*word);
    }
    out.into_bytes().into()
}

pub(crate) fn error_payload(code: u32, message: &str) -> Bytes {
    let mut out = Writer::new();
    out.u32(code);
    out.u32(7);
    out.bool(true);
    out.string(message);
    out.into_bytes().into()
}

impl<S: Stream> Peer<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// The next frame, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        frame::read(&mut self.stream, &mut self.buffer, MAX_FRAME).await.unwrap()
    }

    /// The next frame, which must be a call of `procedure`.
    pub(crate) async fn expect(&mut self, procedure: u32) -> Frame {
        let frame = self.next().await.expect("a call");
        assert_eq!(frame.header, Header::call(procedure, frame.header.serial));
        frame
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(crate) async fn send(&mut self, header: Header, payload: impl Into<Bytes>) {
        self.raw(&Frame::new(header, payload).to_bytes()).await;
    }

    pub(crate) async fn reply(&mut self, call: &Frame, payload: impl Into<Bytes>) {
        self.send(call.header.reply(Status::Ok), payload).await;
    }

    pub(crate) async fn refuse(&mut self, call: &Frame, code: u32, message: &str) {
        self.send(call.header.reply(Status::Error), error_payload(code, message)).await;
    }

    /// Everything up to the opening, without authentication; gives the payload of the OPEN call.
    pub(crate) async fn welcome(&mut self, keepalive: bool) -> Bytes {
        let call = self.expect(AUTH_LIST).await;
        self.reply(&call, words(&[1, 0])).await;
        self.welcome_authenticated(keepalive).await
    }

    pub(crate) async fn welcome_authenticated(&mut self, keepalive: bool) -> Bytes {
        let call = self.expect(SUPPORTS_FEATURE).await;
        assert_eq!(call.payload, words(&[10]));
        self.reply(&call, words(&[keepalive.into()])).await;
        let call = self.expect(OPEN).await;
        self.reply(&call, Bytes::new()).await;
        call.payload
    }
}

/// An open connection to a peer, with room for `room` bytes on the way.
pub(crate) async fn opened(options: ConnectOptions, keepalive: bool, room: usize) -> (Connection, Peer) {
    let (ours, theirs) = tokio::io::duplex(room);
    let mut peer = Peer::new(theirs);
    let uri: LibvirtUri = "qemu+tcp://node-1/system".parse().unwrap();
    let open = Connection::open(Box::new(ours), uri.peer(), false, &uri, &options);
    let (connection, _) = tokio::join!(open, peer.welcome(keepalive));
    (connection.unwrap(), peer)
}
