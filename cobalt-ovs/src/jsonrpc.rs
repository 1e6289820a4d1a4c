//! JSON-RPC as OVSDB and the control sockets speak it: objects one after the other, with nothing in between.
//!
//! [`Framer`] finds where a message ends without understanding it, looking at each byte once however the bytes arrive.
//! [`Message`] then tells requests from replies and leaves what they carry unread, for whoever knows its shape.

use bytes::{Bytes, BytesMut};

pub use self::message::{Message, MessageError, RpcError};

mod message;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// Why bytes are no stream of messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A message begins with something that begins no object.
    #[error("a message begins with byte {0:#04x} and not with a brace")]
    NotAnObject(u8),
    /// A message is longer than is allowed.
    #[error("a message is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// Objects within objects, deeper than anything sensible.
    #[error("a message is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: u32,
    },
}

/// Nothing that the protocols say is deeper than a dozen levels.
const MAX_DEPTH: u32 = 100;

/// Cuts a stream of bytes into messages.
///
/// ```
/// use bytes::BytesMut;
/// use cobalt_ovs::jsonrpc::Framer;
///
/// let mut framer = Framer::new(1024);
/// let mut buffer = BytesMut::from(&br#"{"a":"\" {"}{"b":"#[..]);
/// assert_eq!(framer.next(&mut buffer)?.as_deref(), Some(&br#"{"a":"\" {"}"#[..]));
/// assert_eq!(framer.next(&mut buffer)?, None);
/// buffer.extend_from_slice(b"[]}");
/// assert_eq!(framer.next(&mut buffer)?.as_deref(), Some(&br#"{"b":[]}"#[..]));
/// # Ok::<(), cobalt_ovs::jsonrpc::FrameError>(())
/// ```
#[derive(Debug)]
pub struct Framer {
    limit: usize,
    /// How much of the buffer has been looked at.
    scanned: usize,
    depth: u32,
    string: bool,
    escape: bool,
}

impl Framer {
    /// A framer that refuses messages of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, scanned: 0, depth: 0, string: false, escape: false }
    }

    /// Takes the next whole message off the front of `buffer`; `None` if it is not there yet.
    ///
    /// Between two calls bytes may only be added to the buffer. After an error the stream is of no use any more.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        if self.depth == 0 {
            let blank = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let _ = buffer.split_to(blank);
            match buffer.first() {
                None => return Ok(None),
                Some(b'{') => {}
                Some(other) => return Err(FrameError::NotAnObject(*other)),
            }
        }
        while let Some(byte) = buffer.get(self.scanned).copied() {
            self.scanned += 1;
            if self.scanned > self.limit {
                return Err(FrameError::TooLong { limit: self.limit });
            }
            if self.string {
                match byte {
                    _ if self.escape => self.escape = false,
                    b'\\' => self.escape = true,
                    b'"' => self.string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.string = true,
                b'{' | b'[' if self.depth == MAX_DEPTH => return Err(FrameError::TooDeep { limit: MAX_DEPTH }),
                b'{' | b'[' => self.depth += 1,
                // The first byte was a brace, so there is always a level to leave. Whether it is left by the right
                // kind of bracket is for the parser to say.
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Ok(Some(buffer.split_to(std::mem::take(&mut self.scanned)).freeze()));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// How many bytes of an unfinished message have been seen.
    pub fn unfinished(&self) -> usize {
        self.scanned
    }
}
