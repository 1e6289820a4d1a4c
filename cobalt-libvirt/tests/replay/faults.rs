use std::{io::ErrorKind, time::Duration};

use bytes::Bytes;
use cobalt_libvirt::{
    frame::{MessageType, Status},
    testing::{Accept, Answer, Event, Fault, Server, Writer},
};

use super::{Client, recording};

const GET_TYPE: u32 = 3;
const GET_VERSION: u32 = 4;
const REGISTER: u32 = 316;
const UUID: &str = "44444444-aaaa-4000-8000-00000000000a";

fn server() -> (Server, Client) {
    let server = Server::replay(recording("test-9.0"));
    let client = Client::new(server.duplex());
    (server, client)
}

#[tokio::test]
async fn a_truncated_answer_ends_the_connection_in_the_middle_of_a_frame() {
    let (server, mut client) = server();
    server.fault(GET_TYPE, Fault::Truncated);
    client.send(GET_TYPE, Bytes::new()).await;
    assert_eq!(client.read().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn oversized_frames_and_garbage_are_no_frames() {
    for fault in [Fault::Oversized, Fault::Garbage] {
        let (server, mut client) = server();
        server.fault(GET_TYPE, fault.clone());
        client.send(GET_TYPE, Bytes::new()).await;
        assert_eq!(client.read().await.unwrap_err().kind(), ErrorKind::InvalidData, "{fault:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_held_back_comes_after_the_next_one() {
    let (server, mut client) = server();
    server.fault(GET_TYPE, Fault::AfterNext);
    let (first, second) = (client.send(GET_TYPE, Bytes::new()).await, client.send(GET_VERSION, Bytes::new()).await);
    assert_eq!([client.frame().await.header.serial, client.frame().await.header.serial], [second, first]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_overtaken() {
    let (server, mut client) = server();
    server.fault(GET_TYPE, Fault::Slow(Duration::from_secs(60)));
    let (first, second) = (client.send(GET_TYPE, Bytes::new()).await, client.send(GET_VERSION, Bytes::new()).await);
    assert_eq!([client.frame().await.header.serial, client.frame().await.header.serial], [second, first]);
}

#[tokio::test]
async fn an_event_may_come_before_the_answer_and_only_to_who_asked_for_it() {
    let (server, mut client) = server();
    let domain = server.start_domain("a", UUID).unwrap();
    client.send(REGISTER, Writer::new().i32(1).u32(0).finish()).await;
    let callback = client.frame().await.payload;
    assert_ne!(&callback[..], [0; 4]);
    server.emit(&Event::watchdog(&domain, 2));
    server.fault(GET_TYPE, Fault::EventFirst(Event::reboot(&domain)));
    client.send(GET_TYPE, Bytes::new()).await;
    let event = client.frame().await;
    assert_eq!((event.header.kind, event.header.procedure), (MessageType::Event, 319));
    assert_eq!(event.payload[..4], callback[..]);
    assert_eq!(client.frame().await.header.kind, MessageType::Reply);
    assert_eq!(server.callbacks(), 1);
}

#[tokio::test]
async fn what_is_lacking_is_said_so_and_what_is_scripted_comes_first() {
    let (server, mut client) = server();
    server.lacks(&[GET_TYPE]);
    server.next(GET_TYPE, Answer::ok(Writer::new().string("Other").finish()));
    client.send(GET_TYPE, Bytes::new()).await;
    assert_eq!(client.frame().await.header.status, Status::Ok);
    client.send(GET_TYPE, Bytes::new()).await;
    let refused = client.frame().await;
    assert_eq!((refused.header.status, &refused.payload[..4]), (Status::Error, &[0, 0, 0, 3][..]));
    server.heal();
    client.send(GET_TYPE, Bytes::new()).await;
    assert_eq!(&client.frame().await.payload[4..8], b"TEST");
    assert_eq!(server.count(GET_TYPE), 3);
}

#[tokio::test]
async fn a_daemon_that_hangs_up_is_not_one_that_hangs() {
    let server = Server::replay(recording("test-9.0"));
    server.accept(Accept::HangUp);
    assert!(Client::new(server.duplex()).read().await.unwrap().is_none());
    server.accept(Accept::Silent);
    let mut client = Client::new(server.duplex());
    client.send(GET_TYPE, Bytes::new()).await;
    let nothing = tokio::time::timeout(Duration::from_millis(20), client.read()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    assert_eq!(server.count(GET_TYPE), 0);
}

#[tokio::test]
async fn a_stopped_daemon_refuses_and_a_started_one_has_its_domains_still() {
    let server = Server::replay(recording("test-9.0"));
    let address = server.listen_tcp().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("virtqemud-sock");
    server.listen_unix(&socket).unwrap();
    server.start_domain("a", UUID).unwrap();
    let client = tokio::net::TcpStream::connect(address).await.unwrap();
    server.until_clients(1).await;
    server.stop().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert!(tokio::net::UnixStream::connect(&socket).await.is_err());
    drop(client);
    server.start().await.unwrap();
    tokio::net::TcpStream::connect(address).await.unwrap();
    tokio::net::UnixStream::connect(&socket).await.unwrap();
    assert_eq!(server.domains().len(), 1);
}
