//! Messages on the wire: version, type, length, transaction, body.
//!
//! ```
//! use bytes::BytesMut;
//! use cobalt_ovs::openflow::message::{self, Message, kind};
//!
//! let echo = Message::new(6, kind::ECHO_REQUEST, 1, &b"ping"[..]);
//! let mut wire = BytesMut::new();
//! echo.encode(&mut wire);
//! assert_eq!(&wire[..8], &[6, 2, 0, 12, 0, 0, 0, 1]);
//! assert_eq!(message::decode(&mut wire).unwrap(), Some(echo));
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The smallest message: a header alone. The largest is what its 16-bit length can say, so that every message is
/// bounded by the protocol itself.
pub const HEADER: usize = 8;

/// How much is asked of the socket at once.
const READ_CHUNK: usize = 16 * 1024;

/// Message types this client knows. They are the same in 1.3, 1.4 and 1.5.
pub mod kind {
    /// Both sides' first word.
    pub const HELLO: u8 = 0;
    /// A refusal.
    pub const ERROR: u8 = 1;
    /// Are you there?
    pub const ECHO_REQUEST: u8 = 2;
    /// I am.
    pub const ECHO_REPLY: u8 = 3;
    /// A request for statistics or descriptions.
    pub const MULTIPART_REQUEST: u8 = 18;
    /// One of the replies to it.
    pub const MULTIPART_REPLY: u8 = 19;
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The protocol's version on the wire: 4 is 1.3, 5 is 1.4, 6 is 1.5.
    pub version: u8,
    /// What it is; see [`kind`].
    pub kind: u8,
    /// Chosen by who asks and repeated in the reply.
    pub xid: u32,
    /// What follows the header.
    pub body: Bytes,
}

impl Message {
    /// A message of these parts.
    pub fn new(version: u8, kind: u8, xid: u32, body: impl Into<Bytes>) -> Self {
        Self { version, kind, xid, body: body.into() }
    }

    /// Appends the message to `out`. A body longer than a message can be is cut: we send none, and the peer's echo,
    /// which we repeat, came in a message itself.
    pub fn encode(&self, out: &mut BytesMut) {
        let body = &self.body[..self.body.len().min(usize::from(u16::MAX) - HEADER)];
        out.reserve(HEADER + body.len());
        out.put_u8(self.version);
        out.put_u8(self.kind);
        out.put_u16(u16::try_from(HEADER + body.len()).unwrap_or(u16::MAX));
        out.put_u32(self.xid);
        out.put_slice(body);
    }
}

/// A length that cannot be: the position in the stream is lost with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message of {length} bytes is shorter than its header ({HEADER})")]
pub struct TooShort {
    /// The length the header names.
    pub length: u16,
}

/// Takes one message off the front of `buffer`, or `None` while it is incomplete.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Message>, TooShort> {
    let Some(&[version, kind, high, low, a, b, c, d]) = buffer.first_chunk::<HEADER>() else { return Ok(None) };
    let length = u16::from_be_bytes([high, low]);
    if usize::from(length) < HEADER {
        return Err(TooShort { length });
    }
    if buffer.len() < usize::from(length) {
        return Ok(None);
    }
    let mut body = buffer.split_to(usize::from(length)).freeze();
    body.advance(HEADER);
    Ok(Some(Message { version, kind, xid: u32::from_be_bytes([a, b, c, d]), body }))
}

/// Reads the next message from `from`; `None` when the peer has closed between two messages.
///
/// `buffer` holds what was read beyond the message and goes into the next call. Dropping the future loses nothing.
pub async fn read<R>(from: &mut R, buffer: &mut BytesMut) -> std::io::Result<Option<Message>>
where
    R: AsyncRead + Unpin + ?Sized,
{
    use std::io::{Error, ErrorKind};
    loop {
        if let Some(message) = decode(buffer).map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
            return Ok(Some(message));
        }
        if buffer.capacity() - buffer.len() < READ_CHUNK / 4 {
            buffer.reserve(READ_CHUNK);
        }
        if from.read_buf(buffer).await? == 0 {
            return if buffer.is_empty() {
                Ok(None)
            } else {
                let detail = format!("closed after {} bytes of an unfinished message", buffer.len());
                Err(Error::new(ErrorKind::UnexpectedEof, detail))
            };
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_pieces_is_read_once_it_is_whole() {
        let message = Message::new(4, kind::HELLO, 7, &b"body"[..]);
        let mut wire = BytesMut::new();
        message.encode(&mut wire);
        let bytes = wire.split().freeze();
        let mut buffer = BytesMut::new();
        for byte in &bytes[..bytes.len() - 1] {
            buffer.put_u8(*byte);
            assert_eq!(decode(&mut buffer).unwrap(), None);
        }
        buffer.put_u8(bytes[bytes.len() - 1]);
        assert_eq!(decode(&mut buffer).unwrap(), Some(message));
    }

    #[test]
    fn a_length_below_the_header_is_refused() {
        let mut buffer = BytesMut::from(&[6, 0, 0, 7, 0, 0, 0, 1][..]);
        assert_eq!(decode(&mut buffer), Err(TooShort { length: 7 }));
    }

    #[tokio::test]
    async fn a_peer_that_closes_within_a_message_is_told_from_one_that_closes_between() {
        let mut buffer = BytesMut::new();
        assert_eq!(read(&mut &b""[..], &mut buffer).await.unwrap(), None);
        let error = read(&mut &[6, 0, 0, 9][..], &mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
