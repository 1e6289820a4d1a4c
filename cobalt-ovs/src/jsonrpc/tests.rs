use proptest::prelude::*;

use super::*;

fn all(bytes: &[u8], piece: usize, limit: usize) -> Result<Vec<Vec<u8>>, FrameError> {
    let (mut framer, mut buffer, mut found) = (Framer::new(limit), BytesMut::new(), Vec::new());
    for chunk in bytes.chunks(piece) {
        buffer.extend_from_slice(chunk);
        while let Some(message) = framer.next(&mut buffer)? {
            found.push(message.to_vec());
        }
    }
    Ok(found)
}

#[test]
fn odd_quotes_and_braces_within_strings_end_no_message() {
    let odd = [r#"{"v":"5\" {"}"#, r#"{"v":"}"}"#, r#"{"v":"\\"}"#, r#"{"v":"\\\"]}"}"#, r#"{"v":"[{\u0022"}"#];
    let stream = odd.concat();
    for piece in [1, 2, 3, 7, 1000] {
        let found = all(stream.as_bytes(), piece, 100).unwrap();
        assert_eq!(found, odd.map(|message| message.as_bytes().to_vec()), "in pieces of {piece}");
    }
}

#[test]
fn white_space_between_messages_is_no_message() {
    assert_eq!(all(b" \n{}\r\n\t{} ", 1, 10).unwrap(), [b"{}".to_vec(), b"{}".to_vec()]);
}

#[test]
fn what_is_no_object_is_refused_at_its_first_byte() {
    for (bytes, first) in [(&b"[1]"[..], b'['), (b"}", b'}'), (b"\"{}\"", b'"'), (b"HTTP/1.1 400", b'H')] {
        assert_eq!(all(bytes, 1, 100), Err(FrameError::NotAnObject(first)));
    }
}

#[test]
fn a_message_above_the_limit_is_refused_before_it_is_complete() {
    let long = br#"{"v":"aaaaaaaaaaaaaaaaaaaaaaaaaa"#;
    assert_eq!(all(long, 4, 16), Err(FrameError::TooLong { limit: 16 }));
    assert_eq!(all(br#"{"v":"aaaaaaaa"}"#, 4, 16).unwrap().len(), 1);
    let deep = [b"{\"a\":".as_slice(), &[b'['; 200]].concat();
    assert_eq!(all(&deep, 64, 1000), Err(FrameError::TooDeep { limit: 100 }));
}

#[test]
fn each_byte_is_looked_at_once_however_a_long_message_arrives() {
    let (mut framer, mut buffer) = (Framer::new(1 << 20), BytesMut::from(&b"{\"v\":\""[..]));
    for seen in 0..1000 {
        assert_eq!(framer.next(&mut buffer).unwrap(), None);
        assert_eq!(framer.unfinished(), 6 + seen * 10);
        buffer.extend_from_slice(b"0123456789");
    }
}

proptest! {
    #[test]
    fn any_objects_in_any_pieces_come_out_as_they_went_in(
        values in prop::collection::vec(prop::collection::btree_map(any::<String>(), any::<String>(), 0..4), 0..6),
        piece in 1_usize..40,
    ) {
        let messages: Vec<Vec<u8>> = values.iter().map(|value| serde_json::to_vec(value).unwrap()).collect();
        prop_assert_eq!(all(&messages.concat(), piece, 1 << 16).unwrap(), messages);
    }
}

fn parse(text: &str) -> Result<Message, MessageError> {
    Message::parse(&Bytes::copy_from_slice(text.as_bytes()))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn requests_notifications_and_replies_are_told_apart() {
    let echo = parse(r#"{"id":"echo","method":"echo","params":[]}"#).unwrap();
    assert_eq!(echo, Message::Request { id: bytes(r#""echo""#), method: "echo".into(), params: bytes("[]") });
    let update = parse(r#"{"id":null,"method":"update2","params":["m",{}]}"#).unwrap();
    assert_eq!(update, Message::Notification { method: "update2".into(), params: bytes(r#"["m",{}]"#) });
    let reply = parse(r#"{"error":null,"id":7,"result":[1, 2]}"#).unwrap();
    assert_eq!(reply, Message::Reply { id: bytes("7"), answer: Ok(bytes("[1, 2]")) });
}

#[test]
fn errors_are_read_as_objects_and_as_sentences_with_and_without_a_result() {
    let error = |text: &str| match parse(text).unwrap() {
        Message::Reply { answer: Err(error), .. } => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(error(r#"{"id":0,"error":"no such bond\n"}"#), "no such bond\n");
    let told = r#"{"id":0,"result":null,"error":{"error":"syntax error","details":"no object","syntax":"[]"}}"#;
    assert_eq!(error(told), "syntax error (no object)");
    assert_eq!(error(r#"{"id":0,"error":{"code":3}}"#), r#"{"code":3}"#);
}

#[test]
fn what_is_neither_question_nor_answer_is_refused() {
    assert!(matches!(parse("{}"), Err(MessageError::Neither)));
    assert!(matches!(parse(r#"{"id":null,"result":1}"#), Err(MessageError::Neither)));
    assert!(matches!(parse(r#"{"method":7}"#), Err(MessageError::Json(_))));
    assert!(matches!(parse("{]"), Err(MessageError::Json(_))));
}
