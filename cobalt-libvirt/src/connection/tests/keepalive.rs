use super::*;

const PING_HEADER: Header = Header::keepalive(PING);
const PONG_HEADER: Header = Header::keepalive(PONG);

#[tokio::test]
async fn a_ping_is_answered_by_a_pong_with_serial_zero() {
    let (_connection, mut peer) = pair().await;
    peer.send(Header { serial: 7, ..PING_HEADER }, Bytes::new()).await;
    assert_eq!(peer.next().await.unwrap().header, PONG_HEADER);
}

#[tokio::test]
async fn pongs_nobody_asked_for_and_unknown_keepalive_messages_are_ignored() {
    let (connection, mut peer) = pair().await;
    peer.send(PONG_HEADER, Bytes::new()).await;
    peer.send(Header::keepalive(3), Bytes::new()).await;
    peer.send(PING_HEADER, Bytes::new()).await;
    assert_eq!(peer.next().await.unwrap().header, PONG_HEADER);
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_daemon_is_pinged_and_then_given_up() {
    let (connection, mut peer) = opened(ConnectOptions::new(), true, 1 << 16).await;
    let start = tokio::time::Instant::now();
    for number in 1..=5 {
        let ping = peer.next().await.unwrap();
        assert_eq!(ping.header, PING_HEADER);
        assert_eq!(start.elapsed().as_secs(), 5 * number);
    }
    let reason = connection.closed().await;
    assert!(matches!(*reason, CloseReason::Silent { .. }), "{reason:?}");
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(reason.to_string().split('.').next(), Some("the daemon has been silent for 30 s"));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_answers_pings_is_kept() {
    let (connection, mut peer) = opened(ConnectOptions::new(), true, 1 << 16).await;
    for _ in 0..20 {
        assert_eq!(peer.next().await.unwrap().header.program, PROGRAM_KEEPALIVE);
        peer.send(PONG_HEADER, Bytes::new()).await;
    }
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_does_not_know_pings_is_not_pinged() {
    let (connection, mut peer) = opened(ConnectOptions::new(), false, 1 << 16).await;
    let heard = tokio::time::timeout(Duration::from_secs(3600), peer.next()).await;
    assert!(heard.is_err());
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_reads_nothing_is_given_up_although_it_talks() {
    let (connection, mut peer) = opened(ConnectOptions::new(), true, 256).await;
    let call = calling(&connection, GET_TYPE);
    let large = {
        let connection = connection.clone();
        tokio::spawn(async move { connection.call(GET_VERSION, vec![0; 10_000], "send much", LONG).await })
    };
    let talk = async {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let event = Frame::new(Header::event(318), Bytes::new()).to_bytes();
            if peer.stream.write_all(&event).await.is_err() {
                break;
            }
        }
    };
    let (reason, ()) = tokio::join!(connection.closed(), talk);
    assert!(matches!(*reason, CloseReason::Stuck { .. }), "{reason:?}");
    assert!(call.await.unwrap().unwrap_err().is_closed());
    assert!(large.await.unwrap().unwrap_err().is_closed());
}

#[tokio::test]
async fn a_daemon_that_pings_and_never_reads_costs_no_memory() {
    let (connection, mut peer) = opened(ConnectOptions::new(), false, 64).await;
    for _ in 0..10_000 {
        peer.send(PING_HEADER, Bytes::new()).await;
    }
    // All pings were read although nobody took the pongs; what waits is what fits the pipe, not 10 000.
    let call = calling(&connection, GET_TYPE);
    let mut pongs = 0;
    let frame = loop {
        let frame = peer.next().await.unwrap();
        if frame.header != PONG_HEADER {
            break frame;
        }
        pongs += 1;
    };
    assert!((1..10).contains(&pongs), "{pongs}");
    peer.reply(&frame, Bytes::new()).await;
    call.await.unwrap().unwrap();
}
