//! Records on the wire: a length word, a header of six words, a payload.
//!
//! Everything libvirt's daemons and clients say to each other is cut into such frames, over every transport. This
//! module cuts and joins them and knows nothing of what the payloads mean. It serves both directions: the client reads
//! replies with it, a test server reads calls.
//!
//! ```
//! use bytes::BytesMut;
//! use cobalt_libvirt::frame::{self, Frame, Header};
//!
//! let call = Frame::new(Header::call(3, 1), &b""[..]);
//! let mut wire = BytesMut::new();
//! call.encode(&mut wire);
//! assert_eq!(wire.len(), 28);
//! assert_eq!(frame::decode(&mut wire, frame::MAX_FRAME).unwrap(), Some(call));
//! assert!(wire.is_empty());
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The program of all driver-independent calls and events.
pub const PROGRAM_REMOTE: u32 = 0x2000_8086;
/// The program of the QEMU-only calls (monitor passthrough, guest agent).
pub const PROGRAM_QEMU: u32 = 0x2000_8087;
/// The program of pings and pongs.
pub const PROGRAM_KEEPALIVE: u32 = 0x6b65_6570;
/// The only version any of the programs ever had.
pub const VERSION: u32 = 1;

/// The smallest legal value of the length word: itself and the header.
pub const MIN_FRAME: usize = 28;
/// The largest legal value of the length word: itself and 32 MiB.
pub const MAX_FRAME: usize = 32 * 1024 * 1024 + 4;

/// How much is asked of the socket at once. A frame longer than this makes the buffer grow as its bytes arrive, so
/// that a length word alone never costs memory.
const READ_CHUNK: usize = 64 * 1024;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// A question.
    Call,
    /// The answer to a call, with the call's serial.
    Reply,
    /// An event, or a ping or pong: nobody answers it by serial.
    Event,
    /// A piece of a stream (console, volume upload).
    Stream,
    /// A call with file descriptors attached.
    CallWithFds,
    /// A reply with file descriptors attached.
    ReplyWithFds,
    /// A hole in a sparse stream.
    StreamHole,
    /// A number that nobody has defined yet.
    Other(u32),
}

impl From<u32> for MessageType {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::Call,
            1 => Self::Reply,
            2 => Self::Event,
            3 => Self::Stream,
            4 => Self::CallWithFds,
            5 => Self::ReplyWithFds,
            6 => Self::StreamHole,
            other => Self::Other(other),
        }
    }
}

impl From<MessageType> for u32 {
    fn from(kind: MessageType) -> Self {
        match kind {
            MessageType::Call => 0,
            MessageType::Reply => 1,
            MessageType::Event => 2,
            MessageType::Stream => 3,
            MessageType::CallWithFds => 4,
            MessageType::ReplyWithFds => 5,
            MessageType::StreamHole => 6,
            MessageType::Other(other) => other,
        }
    }
}

/// Whether the payload is what was asked for or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The payload is the result. Calls and events carry this too.
    Ok,
    /// The payload is a libvirt error.
    Error,
    /// More of the stream follows.
    Continue,
    /// A number that nobody has defined yet.
    Other(u32),
}

impl From<u32> for Status {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Error,
            2 => Self::Continue,
            other => Self::Other(other),
        }
    }
}

impl From<Status> for u32 {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => 0,
            Status::Error => 1,
            Status::Continue => 2,
            Status::Other(other) => other,
        }
    }
}

/// The six words after the length word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Which set of procedures; see the `PROGRAM_` constants.
    pub program: u32,
    /// Version of the program, [`VERSION`] so far.
    pub version: u32,
    /// The procedure called, answered or announced.
    pub procedure: u32,
    /// What the frame is for.
    pub kind: MessageType,
    /// Chosen by the caller and repeated in the reply.
    pub serial: u32,
    /// Whether the payload is a result or an error.
    pub status: Status,
}

impl Header {
    const LEN: usize = MIN_FRAME - 4;

    /// The header of a call of the main program.
    pub const fn call(procedure: u32, serial: u32) -> Self {
        Self {
            program: PROGRAM_REMOTE,
            version: VERSION,
            procedure,
            kind: MessageType::Call,
            serial,
            status: Status::Ok,
        }
    }

    /// The header of the reply to a call with `self` as its header.
    pub const fn reply(&self, status: Status) -> Self {
        Self { kind: MessageType::Reply, status, ..*self }
    }

    /// The header of an event of the main program.
    pub const fn event(procedure: u32) -> Self {
        Self { kind: MessageType::Event, ..Self::call(procedure, 0) }
    }

    /// The header of a keepalive message; `procedure` is 1 for a ping and 2 for a pong.
    pub const fn keepalive(procedure: u32) -> Self {
        Self { program: PROGRAM_KEEPALIVE, ..Self::event(procedure) }
    }

    fn put(&self, out: &mut BytesMut) {
        for word in [self.program, self.version, self.procedure, self.kind.into(), self.serial, self.status.into()] {
            out.put_u32(word);
        }
    }

    /// The caller has checked that the bytes are there.
    fn get(from: &mut impl Buf) -> Self {
        Self {
            program: from.get_u32(),
            version: from.get_u32(),
            procedure: from.get_u32(),
            kind: from.get_u32().into(),
            serial: from.get_u32(),
            status: from.get_u32().into(),
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub header: Header,
    /// What it says, in XDR. A cheap slice of the read buffer.
    pub payload: Bytes,
}

impl Frame {
    /// A frame of `header` and `payload`.
    pub fn new(header: Header, payload: impl Into<Bytes>) -> Self {
        Self { header, payload: payload.into() }
    }

    /// The value of the length word. Saturates for a payload that no peer would accept.
    pub fn wire_len(&self) -> usize {
        self.payload.len().saturating_add(MIN_FRAME)
    }

    /// Append the frame to `out`.
    ///
    /// The length is written as it is, also when it is above [`MAX_FRAME`] and the peer will hang up on it: a client
    /// asks [`wire_len`](Self::wire_len) first, a test server may want exactly that.
    pub fn encode(&self, out: &mut BytesMut) {
        out.reserve(self.wire_len());
        out.put_u32(u32::try_from(self.wire_len()).unwrap_or(u32::MAX));
        self.header.put(out);
        out.put_slice(&self.payload);
    }

    /// The bytes of the frame alone.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }
}

/// Bytes that are no frame. The position in the stream is lost with it: the connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length word is smaller than the header it must cover.
    #[error("length word {length} is smaller than a header ({MIN_FRAME})")]
    TooShort {
        /// The length word.
        length: u32,
    },
    /// The length word is above what we accept.
    #[error("length word {length} is above the limit of {limit}")]
    TooLong {
        /// The length word.
        length: u32,
        /// Our limit.
        limit: usize,
    },
}

/// How many bytes the frame at the start of `buffer` has, or `None` while its length word is incomplete.
pub fn expected_len(buffer: &[u8], limit: usize) -> Result<Option<usize>, FrameError> {
    let Some(word) = buffer.first_chunk::<4>() else { return Ok(None) };
    let word = u32::from_be_bytes(*word);
    let length = usize::try_from(word).unwrap_or(usize::MAX);
    if length < MIN_FRAME {
        return Err(FrameError::TooShort { length: word });
    }
    if length > limit {
        return Err(FrameError::TooLong { length: word, limit });
    }
    Ok(Some(length))
}

/// Take one frame off the front of `buffer`, or `None` while it is incomplete.
///
/// `limit` is the largest accepted length word, normally [`MAX_FRAME`]. After an error the buffer is unchanged.
pub fn decode(buffer: &mut BytesMut, limit: usize) -> Result<Option<Frame>, FrameError> {
    let Some(length) = expected_len(buffer, limit)? else { return Ok(None) };
    if buffer.len() < length {
        return Ok(None);
    }
    let mut bytes = buffer.split_to(length).freeze();
    bytes.advance(MIN_FRAME - Header::LEN);
    let header = Header::get(&mut bytes);
    Ok(Some(Frame { header, payload: bytes }))
}

/// Read the next frame from `from`; `None` when the peer has closed between two frames.
///
/// `buffer` holds what was read beyond the frame and goes into the next call. Dropping the future loses nothing, so it
/// may stand in a `select!`. A peer that closes within a frame is [`std::io::ErrorKind::UnexpectedEof`], bytes that are
/// no frame are [`std::io::ErrorKind::InvalidData`] around a [`FrameError`].
pub async fn read<R>(from: &mut R, buffer: &mut BytesMut, limit: usize) -> std::io::Result<Option<Frame>>
where
    R: AsyncRead + Unpin + ?Sized,
{
    use std::io::{Error, ErrorKind};
    loop {
        if let Some(frame) = decode(buffer, limit).map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
            return Ok(Some(frame));
        }
        if buffer.capacity() - buffer.len() < READ_CHUNK / 4 {
            buffer.reserve(READ_CHUNK);
        }
        if from.read_buf(buffer).await? == 0 {
            return if buffer.is_empty() {
                Ok(None)
            } else {
                let detail = format!("closed after {} bytes of an unfinished frame", buffer.len());
                Err(Error::new(ErrorKind::UnexpectedEof, detail))
            };
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
