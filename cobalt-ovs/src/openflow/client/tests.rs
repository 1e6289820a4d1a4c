//! Conversations with a bridge that a test plays, on recorded replies where a real one said them.

use std::{future::Future, time::Duration};

use futures::StreamExt;
use tokio::io::{DuplexStream, duplex};

use super::*;

macro_rules! recorded {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/recorded/openflow/", $name))
    };
}

/// The other side.
struct Bridge {
    stream: DuplexStream,
    buffer: BytesMut,
}

impl Bridge {
    async fn receive(&mut self) -> Message {
        message::read(&mut self.stream, &mut self.buffer).await.unwrap().unwrap()
    }

    async fn send(&mut self, message: &Message) {
        let mut wire = BytesMut::new();
        message.encode(&mut wire);
        self.stream.write_all(&wire).await.unwrap();
    }

    /// Greets as a bridge that speaks `version` alone.
    async fn greet(&mut self, version: u8) {
        let hello = self.receive().await;
        assert_eq!((hello.version, hello.kind), (6, kind::HELLO));
        self.send(&Message::new(version, kind::HELLO, 9, Bytes::new())).await;
    }

    /// Sends recorded messages as answers to the request `xid`.
    async fn replay(&mut self, recorded: &[u8], xid: u32) {
        let mut buffer = BytesMut::from(recorded);
        while let Some(message) = message::decode(&mut buffer).unwrap() {
            self.send(&Message { xid, ..message }).await;
        }
    }
}

/// Runs both sides of a conversation to their ends.
async fn talk<T, C, P>(client: impl FnOnce(DuplexStream) -> C, bridge: impl FnOnce(Bridge) -> P) -> T
where
    C: Future<Output = T>,
    P: Future<Output = ()>,
{
    let (ours, theirs) = duplex(4096);
    let bridge = bridge(Bridge { stream: theirs, buffer: BytesMut::new() });
    tokio::join!(client(ours), bridge).0
}

async fn open(stream: DuplexStream) -> Result<OpenFlow<DuplexStream>> {
    OpenFlow::handshake(stream, "br-int", Options::default()).await
}

#[tokio::test]
async fn tables_are_counted_whichever_version_the_bridge_speaks() {
    for (wire, version, replies) in [
        (4, Version::V1_3, &recorded!("br-int-1.3.tables")[..]),
        (5, Version::V1_4, &recorded!("br-int-1.4.tables")[..]),
        (6, Version::V1_5, &recorded!("br-int-1.5.tables")[..]),
    ] {
        let client = |stream| async move {
            let mut bridge = open(stream).await.unwrap();
            assert_eq!(bridge.version(), version);
            bridge.table_stats().await.unwrap()
        };
        let tables = talk(client, |mut bridge| async move {
            bridge.greet(wire).await;
            let request = bridge.receive().await;
            assert_eq!((request.version, request.kind), (wire, kind::MULTIPART_REQUEST));
            assert_eq!(request.body[..2], [0, 3]);
            bridge.replay(replies, request.xid).await;
        })
        .await;
        assert_eq!(tables.len(), 254);
        let counts = super::super::flow_counts(&tables);
        assert!(counts.values().sum::<u64>() > 600 && counts.values().all(|count| *count > 0));
        assert!(tables[0].lookups >= tables[0].matched && tables[0].matched > 0);
    }
}

#[tokio::test]
async fn ports_and_groups_are_counted() {
    for (wire, ports, groups) in [
        (4, &recorded!("br-int-1.3.ports")[..], &recorded!("br-int-1.3.groups")[..]),
        (5, &recorded!("br-int-1.4.ports")[..], &recorded!("br-int-1.4.groups")[..]),
        (6, &recorded!("br-int-1.5.ports")[..], &recorded!("br-int-1.5.groups")[..]),
    ] {
        let client = |stream| async move {
            let mut bridge = open(stream).await.unwrap();
            (bridge.port_stats().await.unwrap(), bridge.group_stats().await.unwrap())
        };
        let (ports, groups) = talk(client, |mut bridge| async move {
            bridge.greet(wire).await;
            let request = bridge.receive().await;
            bridge.replay(ports, request.xid).await;
            let request = bridge.receive().await;
            bridge.replay(groups, request.xid).await;
        })
        .await;
        let numbers: Vec<u32> = ports.iter().map(|port| port.port).collect();
        for expected in [1, 2, 3, 4, 0xffff_fffe] {
            assert!(numbers.contains(&expected), "{numbers:?}");
        }
        let vm = ports.iter().find(|port| port.port == 1).unwrap();
        assert!(vm.rx_packets.unwrap() > 0 && vm.rx_bytes.unwrap() > 0 && vm.age > Duration::ZERO);
        let patch = ports.iter().find(|port| port.port == 4).unwrap();
        assert_eq!(patch.rx_dropped, None, "a patch does not count drops");
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[0].buckets.len(), 2);
    }
}

#[tokio::test]
async fn a_dump_in_pieces_is_read_to_its_end() {
    let client = |stream| async move { open(stream).await.unwrap().flows(None).collect::<Vec<_>>().await };
    let flows = talk(client, |mut bridge| async move {
        bridge.greet(6).await;
        let request = bridge.receive().await;
        assert_eq!((request.body.len(), request.body[8]), (48, 0xff));
        bridge.replay(recorded!("br-int-1.5.flows"), request.xid).await;
    })
    .await;
    assert!(flows.len() > 600);
    assert!(flows.iter().all(Result::is_ok));
}

#[tokio::test]
async fn what_the_bridge_says_unasked_is_answered_or_passed_over() {
    let client = |stream| async move { open(stream).await.unwrap().echo().await };
    let answered = talk(client, |mut bridge| async move {
        bridge.greet(6).await;
        let echo = bridge.receive().await;
        bridge.send(&Message::new(6, kind::ECHO_REQUEST, 77, &b"there?"[..])).await;
        bridge.send(&Message::new(6, 12, 0, &b"the state of a port"[..])).await;
        let reply = bridge.receive().await;
        assert_eq!((reply.kind, reply.xid, &reply.body[..]), (kind::ECHO_REPLY, 77, &b"there?"[..]));
        bridge.send(&Message::new(6, kind::ECHO_REPLY, echo.xid, Bytes::new())).await;
    })
    .await;
    answered.unwrap();
}

#[tokio::test]
async fn a_bridge_without_a_common_version_is_told_so() {
    let refused = talk(open, |mut bridge| async move { bridge.greet(1).await }).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.category(), "version");
    let refused = talk(open, |mut bridge| async move {
        bridge.receive().await;
        bridge.send(&Message::new(1, kind::ERROR, 1, &b"\0\0\0\0only 0x01 here"[..])).await;
    });
    let refused = refused.await.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("only 0x01 here"), "{refused}");
}

#[tokio::test]
async fn a_refusal_leaves_the_connection_usable() {
    let client = |stream| async move {
        let mut bridge = open(stream).await.unwrap();
        (bridge.group_stats().await.unwrap_err(), bridge.table_stats().await)
    };
    let (refused, tables) = talk(client, |mut bridge| async move {
        bridge.greet(6).await;
        let request = bridge.receive().await;
        bridge.send(&Message::new(6, kind::ERROR, request.xid, &[0, 1, 0, 2][..])).await;
        let request = bridge.receive().await;
        bridge.replay(recorded!("br-int-1.5.tables"), request.xid).await;
    })
    .await;
    assert!(matches!(refused, Error::Refused { kind: 1, code: 2, .. }), "{refused}");
    assert_eq!(tables.unwrap().len(), 254);
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_hangs_is_told_after_the_time_of_a_call() {
    let (ours, theirs) = duplex(64);
    let error = open(ours).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(cobalt_core::Error::from(error).is_transient());
    drop(theirs);
}

#[tokio::test(start_paused = true)]
async fn a_dump_that_stalls_ends_with_what_came_and_the_timeout() {
    let client = |stream| async move { open(stream).await.unwrap().flows(Some(3)).collect::<Vec<_>>().await };
    let flows = talk(client, |mut bridge| async move {
        bridge.greet(6).await;
        let request = bridge.receive().await;
        assert_eq!(request.body[8], 3);
        let (piece, _) = recorded!("br-int-1.5.flows").split_at(0xff60);
        bridge.replay(piece, request.xid).await;
        // Hang for as long as the client is there.
        let mut rest = [0];
        let _ = tokio::io::AsyncReadExt::read(&mut bridge.stream, &mut rest).await;
    })
    .await;
    let (last, came) = flows.split_last().unwrap();
    assert!(came.len() > 100 && came.iter().all(Result::is_ok));
    assert!(matches!(last, Err(Error::Timeout { .. })), "{last:?}");
}

#[tokio::test]
async fn a_bridge_that_goes_away_or_babbles_ends_the_call() {
    let error = talk(open, |_| async {}).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    let babble = |mut bridge: Bridge| async move { bridge.stream.write_all(&[6, 0, 0, 3, 0, 0, 0, 0]).await.unwrap() };
    let error = talk(open, babble).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    let client = |stream| async move { open(stream).await.unwrap().flows(None).collect::<Vec<_>>().await };
    let flows = talk(client, |mut bridge| async move {
        bridge.greet(6).await;
        let request = bridge.receive().await;
        bridge.send(&Message::new(6, kind::MULTIPART_REPLY, request.xid, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0][..])).await;
    });
    let flows = flows.await;
    assert_eq!(flows.len(), 1, "the stream ends after the first error");
    assert!(matches!(flows[0], Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn a_socket_that_nobody_listens_on_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("br-int.mgmt");
    let error = OpenFlow::connect(&path, Options::default()).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }));
    assert!(error.to_string().contains("br-int.mgmt"));
    // What a killed switch leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let error = OpenFlow::connect(&path, Options::default()).await.unwrap_err();
    assert_eq!(cobalt_core::Error::from(error).category(), "unavailable");
}
