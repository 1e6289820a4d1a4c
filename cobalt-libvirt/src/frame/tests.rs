use proptest::prelude::*;

use super::*;

fn any_frame() -> impl Strategy<Value = Frame> {
    (any::<[u32; 6]>(), proptest::collection::vec(any::<u8>(), 0..300)).prop_map(|(words, payload)| {
        let [program, version, procedure, kind, serial, status] = words;
        let header = Header { program, version, procedure, kind: kind.into(), serial, status: status.into() };
        Frame::new(header, payload)
    })
}

proptest! {
    #[test]
    fn any_sequence_of_frames_survives_any_cutting(
        frames in proptest::collection::vec(any_frame(), 1..6),
        cut in 1_usize..200,
    ) {
        let mut wire = BytesMut::new();
        for frame in &frames {
            frame.encode(&mut wire);
        }
        let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
        for piece in wire.chunks(cut) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decode(&mut buffer, MAX_FRAME).unwrap() {
                seen.push(frame);
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(seen, frames);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), limit in 0_usize..400) {
        let mut buffer = BytesMut::from(&bytes[..]);
        while let Ok(Some(frame)) = decode(&mut buffer, limit) {
            prop_assert!(frame.wire_len() <= limit);
        }
    }
}

#[test]
fn lengths_outside_the_limits_are_refused_before_a_body_arrives() {
    for length in [0_u32, 3, 4, 8, 27] {
        let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
        assert_eq!(decode(&mut buffer, MAX_FRAME), Err(FrameError::TooShort { length }));
        assert_eq!(buffer.len(), 4);
    }
    for length in [33_554_437_u32, 0x4745_5420, u32::MAX] {
        let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
        assert_eq!(decode(&mut buffer, MAX_FRAME), Err(FrameError::TooLong { length, limit: MAX_FRAME }));
    }
    for length in [28_u32, 33_554_432, 33_554_436] {
        let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
        assert_eq!(decode(&mut buffer, MAX_FRAME), Ok(None));
    }
}

#[tokio::test]
async fn a_large_length_word_alone_costs_no_memory() {
    let (mut ours, mut theirs) = tokio::io::duplex(64);
    tokio::io::AsyncWriteExt::write_all(&mut theirs, &33_554_436_u32.to_be_bytes()).await.unwrap();
    drop(theirs);
    let mut buffer = BytesMut::new();
    let error = read(&mut ours, &mut buffer, MAX_FRAME).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(buffer.capacity() <= 2 * READ_CHUNK, "{}", buffer.capacity());
}

#[tokio::test]
async fn the_end_between_frames_is_clean_and_within_a_frame_is_not() {
    let frame = Frame::new(Header::call(3, 1), &b"abcd"[..]).to_bytes();
    let mut buffer = BytesMut::new();
    let mut whole = &frame[..];
    assert!(read(&mut whole, &mut buffer, MAX_FRAME).await.unwrap().is_some());
    assert!(read(&mut whole, &mut buffer, MAX_FRAME).await.unwrap().is_none());
    let mut cut = &frame[..30];
    let error = read(&mut cut, &mut buffer, MAX_FRAME).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}
