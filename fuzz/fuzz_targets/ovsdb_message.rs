//! Any bytes, in any pieces, to the JSON-RPC framing: messages come out whole and joined are the same bytes, or the
//! stream is refused; nothing panics.

#![no_main]

use bytes::BytesMut;
use cobalt_ovs::jsonrpc::{Framer, Message};
use libfuzzer_sys::fuzz_target;

// The first byte is the length of the pieces and the next two are the limit, so that a recorded stream behind three
// bytes is an input.
fuzz_target!(|input: &[u8]| {
    let Some((&[piece, a, b], bytes)) = input.split_first_chunk() else { return };
    let limit = usize::from(u16::from_be_bytes([a, b]));
    let (mut framer, mut buffer, mut joined) = (Framer::new(limit), BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(usize::from(piece).max(1)) {
        buffer.extend_from_slice(chunk);
        loop {
            match framer.next(&mut buffer) {
                Ok(Some(message)) => {
                    assert!(message.len() <= limit);
                    joined.extend_from_slice(&message);
                    if let Ok(Message::Reply { id, .. }) = Message::parse(&message) {
                        assert!(!id.is_empty());
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    joined.extend_from_slice(&buffer);
    // White space between messages is all that may be missing.
    let ink = |bytes: &[u8]| bytes.iter().filter(|byte| !byte.is_ascii_whitespace()).count();
    assert_eq!(ink(&joined), ink(bytes));
});
