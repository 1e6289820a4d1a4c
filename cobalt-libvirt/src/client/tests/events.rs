use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use uuid::Uuid;

use super::peer::{Peer, Script, error, ok};
use crate::{
    ConnectOptions, DomainRef, EventSubscription, Notice,
    event::{Event, EventId, EventKind, Message},
    rpc::{self, Procedure},
    xdr,
};

const REGISTER: u32 = <rpc::ConnectDomainEventCallbackRegisterAny as Procedure>::NUMBER;
const DEREGISTER: u32 = <rpc::ConnectDomainEventCallbackDeregisterAny as Procedure>::NUMBER;

/// As the daemon does it: numbers that start anywhere, and each kind only once.
fn daemon() -> Script {
    let mut registered = Vec::new();
    Box::new(move |procedure, payload| match procedure {
        REGISTER => {
            let (kind, _) = xdr::from_bytes::<(i32, Option<DomainRef>)>(payload).unwrap();
            if registered.contains(&kind) {
                return error(8, "event callback already tracked");
            }
            if kind == 999 {
                return error(1, "unsupported event ID 999");
            }
            registered.push(kind);
            ok(&(kind + 100,))
        }
        DEREGISTER => {
            let (callback,) = xdr::from_bytes::<(i32,)>(payload).unwrap();
            registered.retain(|kind| kind + 100 != callback);
            ok(&())
        }
        _ => ok(&(String::from("here"),)),
    })
}

fn iteration(iteration: i32) -> Message {
    let domain = DomainRef { name: "web-1".into(), uuid: Uuid::nil(), id: Some(1) };
    Message::Event(Event { callback: 120, domain, kind: EventKind::MigrationIteration { iteration } })
}

fn reboot() -> Message {
    let domain = DomainRef { name: "web-1".into(), uuid: Uuid::nil(), id: Some(1) };
    Message::Event(Event { callback: 101, domain, kind: EventKind::Reboot })
}

fn send(peer: &Peer, message: &Message) {
    peer.event(message.procedure(), message);
}

async fn next(events: &mut EventSubscription) -> Option<Notice> {
    tokio::time::timeout(Duration::from_secs(60), events.next()).await.expect("something within a minute")
}

/// Waits for a condition that another task brings about.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("the condition within a minute");
}

#[tokio::test]
async fn a_subscription_yields_events_of_its_kinds_only() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    let mut rounds = libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    let mut reboots = libvirt.subscribe(&[EventId::Reboot, EventId::Reboot]).await.unwrap();
    send(&peer, &reboot());
    send(&peer, &iteration(1));
    assert_eq!(next(&mut rounds).await, Some(Notice::Message(iteration(1))));
    assert_eq!(next(&mut reboots).await, Some(Notice::Message(reboot())));
}

#[tokio::test]
async fn subscriptions_to_the_same_kind_share_one_registration() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    let mut first = libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    let mut second = libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    assert_eq!(peer.count(REGISTER), 1);
    send(&peer, &iteration(1));
    assert_eq!(next(&mut first).await, Some(Notice::Message(iteration(1))));
    assert_eq!(next(&mut second).await, Some(Notice::Message(iteration(1))));
    first.close().await;
    assert_eq!(peer.count(DEREGISTER), 0, "the second still wants it");
    second.close().await;
    assert_eq!(peer.count(DEREGISTER), 1);
    libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    assert_eq!(peer.count(REGISTER), 2, "and it can be had again");
}

#[tokio::test]
async fn a_dropped_subscription_is_deregistered_in_the_background() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    drop(libvirt.subscribe(&[EventId::Lifecycle]).await.unwrap());
    until(|| peer.count(DEREGISTER) == 1).await;
}

#[tokio::test]
async fn a_refused_kind_fails_the_subscription_and_gives_the_others_back() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    let error = libvirt.subscribe(&[EventId::Reboot, EventId::Other(999)]).await.unwrap_err();
    assert!(error.to_string().starts_with("register for events Other(999): unsupported event ID 999"), "{error}");
    until(|| peer.count(DEREGISTER) == 1).await;
    libvirt.subscribe(&[EventId::Reboot]).await.unwrap();
}

#[tokio::test]
async fn a_subscription_given_up_halfway_leaves_nothing_registered() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    {
        let mut subscribing = Box::pin(libvirt.subscribe(&[EventId::Reboot]));
        assert!(futures::poll!(subscribing.as_mut()).is_pending());
    }
    until(|| peer.count(DEREGISTER) == 1).await;
    libvirt.subscribe(&[EventId::Reboot]).await.unwrap();
}

#[tokio::test]
async fn an_unknown_event_of_ours_is_passed_on_and_a_broken_one_left_out() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    let mut events = libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    peer.event(359, &(120,));
    peer.event(9999, &(120, 5));
    let payload = Bytes::from_static(&[0, 0, 0, 120, 0, 0, 0, 5]);
    assert_eq!(next(&mut events).await, Some(Notice::Message(Message::Unknown { procedure: 9999, payload })));
}

#[tokio::test]
async fn a_slow_reader_is_told_how_much_it_lost() {
    let (libvirt, peer) = Peer::connect_with(daemon(), &ConnectOptions::new().event_capacity(4)).await;
    let mut events = libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    for round in 1..=10 {
        send(&peer, &iteration(round));
    }
    // The answer comes after the events, so they have all arrived.
    libvirt.hostname().await.unwrap();
    assert_eq!(next(&mut events).await, Some(Notice::Lagged(6)));
    assert_eq!(next(&mut events).await, Some(Notice::Message(iteration(7))));
}

#[tokio::test]
async fn the_end_of_the_connection_is_the_end_of_the_events() {
    let (libvirt, peer) = Peer::connect(daemon()).await;
    let mut events = libvirt.subscribe(&[EventId::MigrationIteration]).await.unwrap();
    send(&peer, &iteration(1));
    libvirt.hostname().await.unwrap();
    libvirt.close().await;
    assert_eq!(next(&mut events).await, Some(Notice::Message(iteration(1))), "what came before is not lost");
    assert_eq!(next(&mut events).await, None);
}
