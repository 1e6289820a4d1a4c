//! Any bytes, in any pieces, to the libvirt framing: frames come out whole and re-encode to the same bytes, or the
//! stream is refused; nothing panics.

#![no_main]

use bytes::BytesMut;
use cobalt_libvirt::frame;
use libfuzzer_sys::fuzz_target;

// The first byte is the length of the pieces and the next four are the limit, so that a recorded stream behind five
// bytes is an input.
fuzz_target!(|input: &[u8]| {
    let Some((&[piece, a, b, c, d], bytes)) = input.split_first_chunk() else { return };
    let limit = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX).min(frame::MAX_FRAME);
    let (mut buffer, mut joined) = (BytesMut::new(), BytesMut::new());
    for chunk in bytes.chunks(usize::from(piece).max(1)) {
        buffer.extend_from_slice(chunk);
        loop {
            match frame::decode(&mut buffer, limit) {
                Ok(Some(frame)) => {
                    assert!(frame.wire_len() <= limit);
                    frame.encode(&mut joined);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    joined.extend_from_slice(&buffer);
    assert_eq!(joined, bytes);
});
