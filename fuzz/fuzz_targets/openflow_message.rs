//! Any bytes, in any pieces, from a bridge: messages come out whole and encode to the same bytes, or the stream is
//! refused; what their bodies say of flows is read, shown or refused; nothing panics.

#![no_main]

use bytes::BytesMut;
use cobalt_ovs::openflow::{self, Version, message};
use libfuzzer_sys::fuzz_target;

// The first byte is the length of the pieces, so that a recorded dump behind one byte is an input.
fuzz_target!(|input: &[u8]| {
    let Some((piece, bytes)) = input.split_first() else { return };
    let (mut buffer, mut joined) = (BytesMut::new(), BytesMut::new());
    for chunk in bytes.chunks(usize::from(*piece).max(1)) {
        buffer.extend_from_slice(chunk);
        loop {
            match message::decode(&mut buffer) {
                Ok(Some(message)) => {
                    message.encode(&mut joined);
                    let version = Version::ALL.into_iter().find(|version| version.wire() == message.version);
                    if let (Some(version), Some(body)) = (version, message.body.get(8..)) {
                        // Text is bounded by the bytes it is made of: a field of a match or an action has at least
                        // four, and the longest word for one is `malformed(…)` or a name with its numbers.
                        for flow in openflow::flows_in(body, version) {
                            assert!(!flow.actions.is_empty());
                            assert!(flow.matched.len() + flow.actions.len() <= 64 + 40 * body.len());
                        }
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    joined.extend_from_slice(&buffer);
    assert_eq!(joined, bytes);
});
