//! The scripted daemon against the recordings it is made of, and every fault as it looks on the wire.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used)]

mod faults;
mod recorded;

use std::path::Path;

use bytes::{Bytes, BytesMut};
use cobalt_libvirt::{
    frame::{self, Frame, Header, MAX_FRAME},
    testing::Recording,
};
use tokio::io::{AsyncWriteExt, DuplexStream};

/// A recording by the name of its files.
fn recording(name: &str) -> Recording {
    let read = |file: String| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(file);
        Recording::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    read(format!("{name}.jsonl")).and(read(format!("{name}-messages.jsonl")))
}

/// The barest of clients.
struct Client {
    stream: DuplexStream,
    buffer: BytesMut,
    serial: u32,
}

impl Client {
    fn new(stream: DuplexStream) -> Self {
        Self { stream, buffer: BytesMut::new(), serial: 0 }
    }

    async fn send(&mut self, procedure: u32, arguments: Bytes) -> u32 {
        self.serial += 1;
        let frame = Frame::new(Header::call(procedure, self.serial), arguments);
        self.stream.write_all(&frame.to_bytes()).await.unwrap();
        self.serial
    }

    async fn read(&mut self) -> std::io::Result<Option<Frame>> {
        frame::read(&mut self.stream, &mut self.buffer, MAX_FRAME).await
    }

    /// The next frame, which must come.
    async fn frame(&mut self) -> Frame {
        self.read().await.unwrap().expect("the connection is open")
    }
}
