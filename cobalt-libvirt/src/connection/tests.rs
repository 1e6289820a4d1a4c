use std::{error::Error as _, time::Duration};

use tokio::io::AsyncWriteExt;

use super::{peer::*, *};
use crate::{
    error::code,
    frame::{FrameError, Header, MAX_FRAME, MessageType, PROGRAM_KEEPALIVE},
    keepalive::{PING, PONG},
    xdr::Writer,
};

mod keepalive;
mod recorded;

const GET_TYPE: u32 = 3;
const GET_VERSION: u32 = 4;
const LONG: Duration = Duration::from_secs(60);

async fn pair() -> (Connection, Peer) {
    opened(ConnectOptions::new(), false, 1 << 16).await
}

/// A call that runs by itself.
fn calling(connection: &Connection, procedure: u32) -> tokio::task::JoinHandle<Result<Bytes>> {
    let connection = connection.clone();
    tokio::spawn(async move { connection.call(procedure, Bytes::new(), format!("call {procedure}"), LONG).await })
}

#[tokio::test]
async fn opening_sends_the_name_as_the_daemon_sees_it() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let mut peer = Peer::new(theirs);
    let uri: LibvirtUri = "ch+tcp://anna@node-1:7/system?no_tty=1".parse().unwrap();
    let options = ConnectOptions::new().read_only(true);
    let open = Connection::open(Box::new(ours), uri.peer(), false, &uri, &options);
    let (connection, payload) = tokio::join!(open, peer.welcome(false));
    assert_eq!(connection.unwrap().peer(), "tcp node-1:7");
    let mut expected = Writer::new();
    expected.bool(true);
    expected.string("ch:///system");
    expected.u32(1);
    assert_eq!(payload, expected.into_bytes());
}

#[tokio::test]
async fn an_open_that_the_daemon_refuses_names_the_uri_and_its_code() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let mut peer = Peer::new(theirs);
    let uri: LibvirtUri = "bhyve+tcp://node-1/system".parse().unwrap();
    let options = ConnectOptions::new().keepalive(None, 0);
    let server = async {
        let call = peer.expect(AUTH_LIST).await;
        peer.reply(&call, words(&[0])).await;
        let call = peer.expect(OPEN).await;
        peer.refuse(&call, code::NO_CONNECT, "no connection driver available").await;
    };
    let (error, ()) = tokio::join!(Connection::open(Box::new(ours), uri.peer(), false, &uri, &options), server);
    let error = error.unwrap_err();
    assert_eq!(error.code(), Some(code::NO_CONNECT));
    assert!(error.to_string().starts_with("open bhyve:///system: no connection driver"), "{error}");
}

#[tokio::test]
async fn polkit_is_refused_with_a_way_out() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let mut peer = Peer::new(theirs);
    let uri: LibvirtUri = "qemu:///system".parse().unwrap();
    let options = ConnectOptions::new();
    let server = async {
        let call = peer.expect(AUTH_LIST).await;
        peer.reply(&call, words(&[1, 2])).await;
    };
    let (error, ()) = tokio::join!(Connection::open(Box::new(ours), uri.peer(), true, &uri, &options), server);
    let error = error.unwrap_err();
    assert_eq!(error.category(), "authentication");
    assert!(error.to_string().contains("polkit"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_accepts_and_says_nothing_is_a_timeout_that_names_the_step() {
    let (ours, _theirs) = tokio::io::duplex(1024);
    let uri: LibvirtUri = "qemu+tcp://node-1/system".parse().unwrap();
    let error = Connection::open(Box::new(ours), uri.peer(), false, &uri, &ConnectOptions::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "ask how to authenticate: no answer within 10 s");
}

#[tokio::test]
async fn a_daemon_that_hangs_up_while_opening_is_unreachable_with_its_address() {
    let (ours, theirs) = tokio::io::duplex(1024);
    drop(theirs);
    let uri: LibvirtUri = "qemu+tcp://node-1/system".parse().unwrap();
    let error = Connection::open(Box::new(ours), uri.peer(), false, &uri, &ConnectOptions::new()).await.unwrap_err();
    assert_eq!(error.category(), "connect");
    assert!(error.to_string().contains("at tcp node-1:16509"), "{error}");
    assert!(error.source().is_some());
}

#[tokio::test]
async fn replies_find_their_calls_in_any_order() {
    let (connection, mut peer) = opened(ConnectOptions::new().max_pending(5), false, 1 << 16).await;
    let calls: Vec<_> = (10..15).map(|procedure| calling(&connection, procedure)).collect();
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(peer.next().await.unwrap());
    }
    for call in seen.iter().rev() {
        peer.reply(call, words(&[call.header.procedure])).await;
    }
    for (procedure, call) in (10..15).zip(calls) {
        assert_eq!(call.await.unwrap().unwrap(), words(&[procedure]));
    }
}

#[tokio::test]
async fn an_event_before_the_reply_reaches_the_readers_and_not_the_call() {
    let (connection, mut peer) = pair().await;
    let mut events = connection.events();
    let call = calling(&connection, GET_TYPE);
    let frame = peer.expect(GET_TYPE).await;
    peer.send(Header::event(318), words(&[1, 2])).await;
    peer.reply(&frame, words(&[3])).await;
    assert_eq!(call.await.unwrap().unwrap(), words(&[3]));
    assert_eq!(events.recv().await.unwrap(), EventMessage { procedure: 318, payload: words(&[1, 2]) });
    peer.stream.shutdown().await.unwrap();
    assert_eq!(events.recv().await, Err(broadcast::error::RecvError::Closed));
}

#[tokio::test]
async fn a_reader_that_lags_is_told_and_holds_nobody_up() {
    let (connection, mut peer) = opened(ConnectOptions::new().event_capacity(4), false, 1 << 16).await;
    let mut events = connection.events();
    for number in 0..100 {
        peer.send(Header::event(318), words(&[number])).await;
    }
    let call = calling(&connection, GET_TYPE);
    let frame = peer.expect(GET_TYPE).await;
    peer.reply(&frame, Bytes::new()).await;
    call.await.unwrap().unwrap();
    assert_eq!(events.recv().await, Err(broadcast::error::RecvError::Lagged(96)));
    assert_eq!(events.recv().await.unwrap().payload, words(&[96]));
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_on_the_way_than_allowed() {
    let (connection, mut peer) = opened(ConnectOptions::new().max_pending(2), false, 1 << 16).await;
    let calls: Vec<_> = (0..3).map(|_| calling(&connection, GET_TYPE)).collect();
    let first = peer.expect(GET_TYPE).await;
    let second = peer.expect(GET_TYPE).await;
    let third = tokio::time::timeout(Duration::from_millis(50), peer.next()).await;
    assert!(third.is_err(), "a third call while two are unanswered");
    peer.reply(&second, Bytes::new()).await;
    let third = peer.expect(GET_TYPE).await;
    peer.reply(&third, Bytes::new()).await;
    peer.reply(&first, Bytes::new()).await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_call_that_was_given_up_drops_its_late_reply_quietly() {
    let (connection, mut peer) = pair().await;
    let call = calling(&connection, GET_TYPE);
    let frame = peer.expect(GET_TYPE).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    peer.reply(&frame, words(&[1])).await;
    let call = calling(&connection, GET_VERSION);
    let frame = peer.expect(GET_VERSION).await;
    peer.reply(&frame, words(&[2])).await;
    assert_eq!(call.await.unwrap().unwrap(), words(&[2]));
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_times_out_and_the_connection_goes_on() {
    let (connection, mut peer) = pair().await;
    let error =
        connection.call(GET_TYPE, Bytes::new(), "get the driver's type", Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(error.to_string(), "get the driver's type: no answer within 3 s");
    let late = peer.expect(GET_TYPE).await;
    peer.reply(&late, Bytes::new()).await;
    let call = calling(&connection, GET_VERSION);
    let frame = peer.expect(GET_VERSION).await;
    peer.reply(&frame, words(&[2])).await;
    assert!(call.await.unwrap().is_ok());
}

#[tokio::test]
async fn an_error_reply_is_the_daemons_error_also_when_its_text_is_not_utf8() {
    let (connection, mut peer) = pair().await;
    let call = calling(&connection, 23);
    let frame = peer.expect(23).await;
    let mut payload = error_payload(code::NO_DOMAIN, "xxxx").to_vec();
    payload[16..20].copy_from_slice(b"\xff\xfea\xfd");
    peer.send(frame.header.reply(Status::Error), payload).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(error.is_no_domain());
    assert!(error.to_string().starts_with("call 23: \u{fffd}"), "{error}");

    let call = calling(&connection, 23);
    let frame = peer.expect(23).await;
    peer.send(frame.header.reply(Status::Error), words(&[1])).await;
    assert_eq!(call.await.unwrap().unwrap_err().category(), "protocol");
    let call = calling(&connection, 23);
    let frame = peer.expect(23).await;
    peer.send(frame.header.reply(Status::Continue), words(&[1])).await;
    assert_eq!(call.await.unwrap().unwrap_err().category(), "protocol");
    assert!(!connection.is_closed());
}

/// What the daemon does to a pending call, and the reason everybody then gets.
async fn broken_by(misdeed: impl AsyncFnOnce(&mut Peer, Frame)) -> Arc<CloseReason> {
    let (connection, mut peer) = pair().await;
    let calls = [calling(&connection, GET_TYPE), calling(&connection, GET_TYPE)];
    let frame = peer.expect(GET_TYPE).await;
    peer.expect(GET_TYPE).await;
    misdeed(&mut peer, frame).await;
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(error.is_closed() && error.is_transient(), "{error}");
    }
    let reason = connection.closed().await;
    assert!(connection.is_closed());
    let again = connection.call(GET_TYPE, Bytes::new(), "try again", LONG).await.unwrap_err();
    assert!(again.is_closed());
    assert_eq!(connection.events().recv().await, Err(broadcast::error::RecvError::Closed));
    reason
}

#[tokio::test]
async fn whatever_ends_the_connection_fails_every_pending_call_with_the_reason() {
    let reason = broken_by(async |peer, _| peer.stream.shutdown().await.unwrap()).await;
    assert!(matches!(*reason, CloseReason::Peer), "{reason:?}");

    let reason = broken_by(async |peer, frame| {
        let reply = Frame::new(frame.header.reply(Status::Ok), words(&[1, 2, 3])).to_bytes();
        peer.raw(&reply[..33]).await;
        peer.stream.shutdown().await.unwrap();
    })
    .await;
    assert!(matches!(&*reason, CloseReason::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof));

    let reason = broken_by(async |peer, _| peer.raw(&33_554_437_u32.to_be_bytes()).await).await;
    let expected = FrameError::TooLong { length: 33_554_437, limit: MAX_FRAME };
    assert!(matches!(&*reason, CloseReason::Frame(error) if *error == expected), "{reason:?}");

    let reason = broken_by(async |peer, _| peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n").await).await;
    assert!(matches!(*reason, CloseReason::Frame(FrameError::TooLong { .. })), "{reason:?}");

    let reason = broken_by(async |peer, _| peer.raw(&[0, 0, 0, 4]).await).await;
    assert!(matches!(*reason, CloseReason::Frame(FrameError::TooShort { length: 4 })), "{reason:?}");
}

#[tokio::test]
async fn a_message_that_answers_nothing_we_asked_breaks_the_connection() {
    type Bend = fn(&mut Header);
    let bends: [(Bend, &str); 5] = [
        (|header| header.serial = 4711, "serial 4711, which no call waits for"),
        (|header| header.procedure = 99, "a reply of procedure 99 to call"),
        (|header| header.program = 7, "program 0x7"),
        (|header| header.kind = MessageType::Stream, "type Stream"),
        (|header| header.kind = MessageType::Call, "type Call"),
    ];
    for (bend, part) in bends {
        let reason = broken_by(async |peer, frame| {
            let mut header = frame.header.reply(Status::Ok);
            bend(&mut header);
            peer.send(header, Bytes::new()).await;
        })
        .await;
        assert!(matches!(*reason, CloseReason::Violation(_)), "{reason:?}");
        assert!(reason.to_string().contains(part), "{reason}");
    }
}

#[tokio::test]
async fn a_smaller_size_limit_holds_for_what_arrives_and_libvirts_for_what_is_sent() {
    let (connection, mut peer) = opened(ConnectOptions::new().max_message(1000), false, 1 << 16).await;
    let error = connection.call(GET_TYPE, vec![0; MAX_FRAME], "send too much", LONG).await.unwrap_err();
    assert_eq!(error.to_string(), "send too much: the call has 33554464 bytes, the limit is 33554436");
    let call = calling(&connection, GET_TYPE);
    let frame = peer.expect(GET_TYPE).await;
    peer.reply(&frame, vec![0; 1000 - 27]).await;
    assert!(call.await.unwrap().unwrap_err().is_closed());
    assert!(matches!(*connection.closed().await, CloseReason::Frame(FrameError::TooLong { limit: 1000, .. })));
}

#[tokio::test]
async fn large_messages_pass_a_narrow_pipe_both_ways() {
    let (connection, mut peer) = opened(ConnectOptions::new(), false, 1000).await;
    let payload: Bytes = (0..3_000_000_u32).map(|n| n.to_be_bytes()[3]).collect::<Vec<_>>().into();
    let (sent, echo) = (payload.clone(), async {
        let frame = peer.expect(GET_TYPE).await;
        peer.reply(&frame, frame.payload.clone()).await;
    });
    let (answer, ()) = tokio::join!(connection.call(GET_TYPE, sent, "echo", LONG), echo);
    assert!(answer.unwrap() == payload);
}

#[tokio::test]
async fn closing_says_goodbye_and_fails_what_is_pending() {
    let (connection, mut peer) = pair().await;
    let pending = calling(&connection, GET_TYPE);
    peer.expect(GET_TYPE).await;
    let server = async {
        let goodbye = peer.expect(CONNECT_CLOSE).await;
        peer.reply(&goodbye, Bytes::new()).await;
        peer.stream.shutdown().await.unwrap();
        assert_eq!(peer.next().await, None);
    };
    tokio::join!(connection.close(), server);
    assert!(matches!(*connection.closed().await, CloseReason::Requested));
    let error = pending.await.unwrap().unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "closed by this client");
    // Once more does no harm.
    connection.close().await;
}

#[tokio::test(start_paused = true)]
async fn closing_waits_neither_for_a_free_slot_nor_for_a_daemon_that_does_not_answer() {
    let (connection, mut peer) = opened(ConnectOptions::new().max_pending(1), false, 1 << 16).await;
    let pending = calling(&connection, GET_TYPE);
    peer.expect(GET_TYPE).await;
    let start = tokio::time::Instant::now();
    connection.close().await;
    assert!(start.elapsed() < Duration::from_secs(5));
    peer.expect(CONNECT_CLOSE).await;
    assert_eq!(peer.next().await, None);
    assert!(pending.await.unwrap().unwrap_err().is_closed());
}

#[tokio::test]
async fn dropping_the_last_handle_says_goodbye() {
    let (connection, mut peer) = pair().await;
    let second = connection.clone();
    drop(connection);
    let call = calling(&second, GET_TYPE);
    let frame = peer.expect(GET_TYPE).await;
    peer.reply(&frame, Bytes::new()).await;
    call.await.unwrap().unwrap();
    drop(second);
    peer.expect(CONNECT_CLOSE).await;
    assert_eq!(peer.next().await, None);
}
