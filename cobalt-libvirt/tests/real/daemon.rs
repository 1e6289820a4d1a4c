//! A daemon that dies, hangs or comes back, as a connection sees it.

use std::time::Duration;

use cobalt_libvirt::{ConnectOptions, Libvirt, error::CloseReason, event::EventId};
use cobalt_rig::Guest;
use futures::StreamExt;

use crate::rig::{LIMIT, Rig, connect, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_ends_connections_and_guests_run_on() {
    let Some(rig) = Rig::own("a_killed_daemon_ends_connections_and_guests_run_on", 1) else { return };
    start(rig.host(), &Guest::new("survives"));
    for uri in [rig.host().tcp(), rig.host().tls(), rig.host().unix()] {
        let libvirt = connect(&uri).await;
        let mut events = libvirt.subscribe(&[EventId::Lifecycle]).await.unwrap();
        rig.host().kill_daemon().unwrap();
        let reason = tokio::time::timeout(LIMIT, libvirt.closed()).await.unwrap();
        assert!(matches!(*reason, CloseReason::Peer | CloseReason::Io(_)), "{uri}: {reason:?}");
        assert!(tokio::time::timeout(LIMIT, events.next()).await.unwrap().is_none(), "{uri}");
        let error = libvirt.hostname().await.unwrap_err();
        assert!(error.is_closed() && error.is_transient(), "{uri}: {error:?}");
        let error = Libvirt::connect(&uri).await.unwrap_err();
        assert!(error.is_transient(), "{uri}: {error:?}");
        rig.host().start_daemon().unwrap();
        let again = connect(&uri).await;
        let domain = again.domain_by_name("survives").await.unwrap();
        assert!(again.is_active(&domain).await.unwrap(), "{uri}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_daemon_is_noticed_by_its_silence() {
    let Some(rig) = Rig::own("a_frozen_daemon_is_noticed_by_its_silence", 1) else { return };
    let options = ConnectOptions::new().keepalive(Some(Duration::from_millis(200)), 2);
    let libvirt = Libvirt::connect_with(&rig.host().tcp().parse().unwrap(), &options).await.unwrap();
    rig.host().freeze_daemon().unwrap();
    let reason = tokio::time::timeout(LIMIT, libvirt.closed()).await.unwrap();
    assert!(matches!(*reason, CloseReason::Silent { .. }), "{reason:?}");
    rig.host().thaw_daemon().unwrap();
    assert_eq!(connect(&rig.host().tcp()).await.hostname().await.unwrap(), rig.host().name());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_frozen_daemon_ends_in_time() {
    let Some(rig) = Rig::own("a_call_to_a_frozen_daemon_ends_in_time", 1) else { return };
    let options = ConnectOptions::new().keepalive(None, 0).call_timeout(Duration::from_millis(500));
    let libvirt = Libvirt::connect_with(&rig.host().unix().parse().unwrap(), &options).await.unwrap();
    rig.host().freeze_daemon().unwrap();
    let error = tokio::time::timeout(LIMIT, libvirt.capabilities()).await.unwrap().unwrap_err();
    assert_eq!(error.category(), "timeout", "{error:?}");
    rig.host().thaw_daemon().unwrap();
    // The late answer is nobody's any more, and the connection is as good as before, once the daemon is awake.
    let answered = async {
        loop {
            match libvirt.hostname().await {
                Ok(name) => return name,
                Err(error) => assert_eq!(error.category(), "timeout", "{error:?}"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, answered).await.unwrap(), rig.host().name());
}
