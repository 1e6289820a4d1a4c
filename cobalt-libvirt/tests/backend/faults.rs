//! What goes wrong between a backend and its daemon, and how it ends well.

use std::{
    error::Error as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use cobalt_core::{
    Error,
    backend::{BackendEvent, HypervisorBackend},
    ids::InstanceId,
};
use cobalt_libvirt::{
    BackendOptions, ConnectOptions, LibvirtBackend,
    testing::{Accept, Answer, Event, Fault, Server},
};
use futures::future::join_all;

use super::fixture::{
    LIMIT, is_connected, is_disconnected, next, options, recording, replayed, replayed_with, until, uuid,
};

const LIST: u32 = 273;
const GET_TYPE: u32 = 3;
const GET_STATE: u32 = 212;
const REGISTER: u32 = 316;
const BULK: u32 = 344;

/// How many kinds of event a backend registers for.
const KINDS: usize = 13;

fn category<T: std::fmt::Debug>(answer: Result<T, Error>) -> &'static str {
    answer.expect_err("a failure").category()
}

/// A fault that ends the connection: the call fails, the end is told, and everything works again on the next one.
async fn loses_the_connection(fault: Fault) {
    let (server, backend) = replayed("qemu-9.0").await;
    server.start_domain("a", &uuid(1)).unwrap();
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    assert_eq!(server.callbacks(), KINDS);

    server.fault(LIST, fault.clone());
    assert_eq!(category(backend.inventory().await), "unavailable", "{fault:?}");
    until(&mut events, is_disconnected).await;
    until(&mut events, is_connected).await;
    server.until_clients(1).await;
    assert_eq!(server.callbacks(), KINDS, "{fault:?}: all callbacks are registered again");
    assert_eq!(backend.inventory().await.unwrap().len(), 1, "{fault:?}");
    let state = backend.connection_state();
    assert!(state.connected && state.reconnects == 1 && state.last_error.is_some(), "{fault:?}: {state:?}");
    server.start_domain("b", &uuid(2)).unwrap();
    until(&mut events, |event| format!("{event:?}").contains("Started")).await;
}

#[tokio::test]
async fn a_daemon_that_hangs_up_is_connected_to_again() {
    loses_the_connection(Fault::HangUp).await;
}

#[tokio::test]
async fn a_truncated_answer_is_the_end_of_a_connection_and_not_of_the_backend() {
    loses_the_connection(Fault::Truncated).await;
}

#[tokio::test]
async fn an_oversized_answer_is_the_end_of_a_connection_and_not_of_the_backend() {
    loses_the_connection(Fault::Oversized).await;
}

#[tokio::test]
async fn garbage_is_the_end_of_a_connection_and_not_of_the_backend() {
    loses_the_connection(Fault::Garbage).await;
}

#[tokio::test]
async fn an_answer_to_a_call_that_nobody_made_is_the_end_of_a_connection_and_not_of_the_backend() {
    loses_the_connection(Fault::WrongSerial).await;
}

#[tokio::test]
async fn answers_in_any_order_and_events_among_them_disturb_nobody() {
    let (server, backend) = replayed("ch-11.3").await;
    let domain = server.start_domain("a", &uuid(1)).unwrap();
    server.start_domain("b", &uuid(2)).unwrap();
    let mut events = backend.events();
    server.fault(GET_STATE, Fault::AfterNext);
    server.fault(LIST, Fault::EventFirst(Event::lifecycle(&domain, 4, 0)));
    assert_eq!(backend.inventory().await.unwrap().len(), 2);
    until(&mut events, |event| format!("{event:?}").contains("Resumed")).await;
    assert!(backend.connection_state().connected);
}

#[tokio::test]
async fn a_call_without_an_answer_times_out_and_the_connection_lives_on() {
    let connection = ConnectOptions::new().call_timeout(Duration::from_millis(200)).keepalive(None, 0);
    let (server, backend) = replayed_with("ch-11.3", options().connection(connection)).await;
    server.fault(LIST, Fault::Silent);
    assert_eq!(category(backend.inventory().await), "timeout");
    server.heal();
    assert!(backend.connection_state().connected);
    let patient = join_all((0..4).map(|_| backend.versions())).await;
    assert!(patient.iter().all(Result::is_ok), "{patient:?}");
}

#[tokio::test]
async fn a_backend_starts_while_its_daemon_is_down_and_connects_when_it_is_up() {
    let server = Server::replay(recording("ch-11.3"));
    let address = server.listen_tcp().await.unwrap();
    server.stop().await;
    let uri = format!("ch+tcp://{address}/system");
    let backend = LibvirtBackend::connect(&uri, options()).await.unwrap();
    assert_eq!((backend.driver().as_str(), backend.features().power), ("ch", true), "as the URI says");
    let refused = backend.inventory().await.unwrap_err();
    assert_eq!(refused.category(), "unavailable");
    let why = refused.source().map(ToString::to_string).unwrap_or_default();
    assert!(why.contains(&address.to_string()) && why.contains("refused"), "{why}");
    let state = backend.connection_state();
    assert!(!state.connected && state.failed_attempts > 0 && state.reconnects == 0, "{state:?}");

    let mut events = backend.events();
    server.start().await.unwrap();
    assert!(is_connected(&next(&mut events).await), "nothing comes before it");
    assert_eq!(backend.inventory().await.unwrap(), []);
    assert_eq!(backend.connection_state().reconnects, 0);
}

#[tokio::test]
async fn a_daemon_that_hangs_is_given_up_and_tried_again() {
    let server = Server::replay(recording("ch-11.3"));
    let address = server.listen_tcp().await.unwrap();
    server.accept(Accept::Silent);
    let connection = ConnectOptions::new().connect_timeout(Duration::from_millis(50)).call_timeout(LIMIT);
    let uri = format!("ch+tcp://{address}/system");
    let backend = LibvirtBackend::connect(&uri, options().connection(connection)).await.unwrap();
    assert_eq!(category(backend.versions().await), "unavailable");
    let mut events = backend.events();
    server.accept(Accept::Normal);
    assert!(is_connected(&next(&mut events).await));
}

#[tokio::test]
async fn a_daemon_that_falls_silent_is_noticed_by_its_missing_pongs() {
    let connection = ConnectOptions::new().call_timeout(LIMIT).keepalive(Some(Duration::from_millis(50)), 5);
    let (server, backend) = replayed_with("ch-11.3", options().connection(connection)).await;
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    server.mute();
    let BackendEvent::Disconnected(why) = next(&mut events).await else { panic!("the silence is told first") };
    assert!(why.contains("silent"), "{why}");
    assert!(is_connected(&next(&mut events).await));
}

#[tokio::test]
async fn a_failed_registration_is_a_failed_attempt_and_not_half_a_connection() {
    let server = Server::replay(recording("ch-11.3"));
    let address = server.listen_tcp().await.unwrap();
    server.fault(REGISTER, Fault::HangUp);
    server.fault(GET_TYPE, Fault::HangUp);
    let backend = LibvirtBackend::start(format!("ch+tcp://{address}/system").parse().unwrap(), options());
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await), "the first thing told");
    assert_eq!(server.callbacks(), KINDS);
    let state = backend.connection_state();
    assert_eq!((state.reconnects, state.connected), (0, true), "attempts are no connections");
}

#[tokio::test]
async fn an_older_daemon_that_knows_fewer_events_is_good_enough() {
    let server = Server::replay(recording("qemu-9.0"));
    let address = server.listen_tcp().await.unwrap();
    // No job-completed (21), no metadata-change (23), no memory-failure (25).
    server.knows_events(21);
    let backend = LibvirtBackend::connect(&format!("qemu+tcp://{address}/system"), options()).await.unwrap();
    assert!(backend.connection_state().connected);
    assert_eq!(server.callbacks(), KINDS - 3);
}

#[tokio::test]
async fn a_restarted_daemon_is_told_once_and_listed_again() {
    let (server, backend) = replayed("test-9.0").await;
    server.start_domain("a", &uuid(1)).unwrap();
    assert_eq!(backend.inventory().await.unwrap().len(), 1);
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    server.stop().await;
    assert!(is_disconnected(&next(&mut events).await));
    assert_eq!(category(backend.domain(&InstanceId::from(uuid(1))).await), "unavailable");
    server.start_domain("b", &uuid(2)).unwrap();
    server.start().await.unwrap();
    assert!(is_connected(&next(&mut events).await), "failed attempts are not told");
    assert_eq!(backend.inventory().await.unwrap().len(), 2);
}

#[tokio::test]
async fn calls_that_are_pending_when_the_daemon_goes_fail_at_once() {
    let (server, backend) = replayed("ch-11.3").await;
    for _ in 0..4 {
        server.fault(LIST, Fault::Silent);
    }
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let backend = backend.clone();
            tokio::spawn(async move { backend.inventory().await })
        })
        .collect();
    while server.count(LIST) < 4 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    for call in calls {
        let answer = tokio::time::timeout(LIMIT, call).await.expect("no hang").unwrap();
        assert_eq!(category(answer), "unavailable");
    }
}

#[tokio::test]
async fn a_bad_uri_is_the_only_thing_that_keeps_a_backend_from_starting() {
    for uri in ["", "qemu", "qemu+ssh://host/system", "qemu+tcp://host:99999/system"] {
        let error = LibvirtBackend::connect(uri, BackendOptions::new()).await.unwrap_err();
        assert_eq!(error.category(), "uri", "{uri}");
    }
}

#[tokio::test]
async fn the_last_handle_takes_the_connection_with_it() {
    let (server, backend) = replayed("ch-11.3").await;
    let other = backend.clone();
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    drop(backend);
    assert_eq!(server.clients(), 1);
    drop(other);
    tokio::time::timeout(LIMIT, server.until_clients(0)).await.unwrap();
    let end = tokio::time::timeout(LIMIT, futures::StreamExt::next(&mut events)).await.unwrap();
    assert_eq!(end, None, "the stream ends, it does not hang");
}

#[tokio::test(start_paused = true)]
async fn attempts_become_rarer_up_to_a_limit() {
    static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
    fn counted() -> f64 {
        ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        0.0
    }
    // Nobody listens there; each refusal is immediate, and time passes only in the waits between.
    let nowhere = tempfile::tempdir().unwrap();
    let socket = nowhere.path().join("nobody");
    let options = BackendOptions::new().reconnect(Duration::from_secs(1), Duration::from_secs(30)).jitter(counted);
    let uri = format!("qemu+unix:///system?socket={}", socket.display());
    let backend = LibvirtBackend::connect(&uri, options).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    // 1 + 2 + 4 + 8 + 16 s, then every 30 s.
    let attempts = ATTEMPTS.load(Ordering::Relaxed);
    assert!((22..=26).contains(&attempts), "{attempts}");
    assert_eq!(backend.connection_state().failed_attempts, attempts);
}

#[tokio::test]
async fn bulk_statistics_that_fail_as_a_whole_cost_nobody_but_the_domain_that_is_gone() {
    let (server, backend) = replayed("qemu-9.0").await;
    let (dying, _) = (server.start_domain("a", &uuid(1)).unwrap(), server.start_domain("b", &uuid(2)).unwrap());
    let lost = Answer::error(38, 10, "Unable to read from monitor: Connection reset by peer");
    server.next(BULK, lost.clone());
    assert_eq!(backend.stats().await.unwrap().len(), 2, "the second attempt works");
    assert_eq!(server.count(BULK), 2);

    server.next(BULK, lost.clone());
    server.next(BULK, lost.clone());
    server.reset_counts();
    server.take_domain(&dying);
    let left = backend.stats().await.unwrap();
    assert_eq!(left.iter().map(|stats| stats.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!((server.count(BULK), server.count(LIST)), (3, 1), "twice in bulk, then each alone");

    server.next(BULK, lost);
    server.reset_counts();
    assert_eq!(backend.inventory().await.unwrap().len(), 1);
    assert_eq!((server.count(BULK), server.count(GET_STATE)), (1, 1), "an inventory asks for states instead");
}
