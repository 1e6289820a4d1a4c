//! Daemons that hang, die and come back, as snapshots show them.

use cobalt_core::ovs::{Daemon as Answer, OvsChange, OvsInspector};
use cobalt_rig::ovs::Daemon;
use futures::StreamExt;

use crate::rig::{LIMIT, controller, own, seen, switch};

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_hangs_is_told_from_one_that_died() {
    let Some(node) = own("a_switch_that_hangs_is_told_from_one_that_died") else { return };
    let switch = switch(&node).await;
    node.freeze(Daemon::Switch).unwrap();
    let hung = switch.snapshot().await.unwrap();
    assert_eq!(hung.switch, Answer::Unresponsive);
    assert!(hung.database_connected && hung.bridges.len() == 3, "{hung:?}");
    assert!(hung.bridges.iter().all(|bridge| bridge.flows.is_none()), "{:?}", hung.bridges);
    node.thaw(Daemon::Switch).unwrap();
    seen(&switch, "an answer", |found| found.switch.is_responsive()).await;

    node.kill(Daemon::Switch).unwrap();
    assert_eq!(switch.snapshot().await.unwrap().switch, Answer::Absent);
    // A change that nobody takes up. The tool would wait for that.
    node.vsctl(["--timeout=1", "set", "Bridge", "br-ex", "external_ids:changed=true"]).expect_err("nobody takes it up");
    seen(&switch, "a change that waits", |found| found.configuration_pending).await;
    node.start(Daemon::Switch).unwrap();
    let found = seen(&switch, "a switch that is up to date", |found| {
        found.switch.is_responsive() && !found.configuration_pending
    })
    .await;
    assert!(found.bridges.iter().all(|bridge| bridge.flows.is_some()), "{:?}", found.bridges);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_hangs_is_told_from_one_that_died() {
    let Some(node) = own("a_controller_that_hangs_is_told_from_one_that_died") else { return };
    let switch = switch(&node).await;
    node.freeze(Daemon::Controller).unwrap();
    let hung = switch.snapshot().await.unwrap();
    assert_eq!(controller(&hung).daemon, Answer::Unresponsive);
    // One more step of the configuration, which it does not follow.
    node.nbctl(["--wait=sb", "sync"]).unwrap();
    seen(&switch, "the lag", |found| controller(found).lag.is_some_and(|lag| lag > 0)).await;
    node.thaw(Daemon::Controller).unwrap();
    seen(&switch, "no lag", |found| controller(found).daemon.is_responsive() && controller(found).lag == Some(0)).await;

    node.kill(Daemon::Controller).unwrap();
    let found =
        seen(&switch, "no connection to the switch", |found| controller(found).openflow_connected == Some(false)).await;
    assert_eq!(controller(&found).daemon, Answer::Absent);
    assert!(!controller(&found).southbound_connected, "{found:?}");
    node.start(Daemon::Controller).unwrap();
    let found = seen(&switch, "its return", |found| {
        controller(found).southbound_connected && controller(found).openflow_connected == Some(true)
    })
    .await;
    assert!(controller(&found).daemon.is_responsive());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_southbound_database_that_is_gone_or_hangs_is_seen() {
    let Some(node) = own("a_southbound_database_that_is_gone_or_hangs_is_seen") else { return };
    let switch = switch(&node).await;
    node.kill(Daemon::Southbound).unwrap();
    let found = seen(&switch, "the loss", |found| !controller(found).southbound_connected).await;
    assert!(controller(&found).daemon.is_responsive(), "{found:?}");
    node.start(Daemon::Southbound).unwrap();
    seen(&switch, "the return", |found| controller(found).southbound_connected && controller(found).lag == Some(0))
        .await;
    // The controller calls itself connected to one that hangs; a snapshot does not hang with it, and asks it.
    node.freeze(Daemon::Southbound).unwrap();
    let hung = tokio::time::timeout(LIMIT, switch.snapshot()).await.unwrap().unwrap();
    assert!(controller(&hung).southbound_connected, "{hung:?}");
    assert_eq!(controller(&hung).southbound_responsive, Some(false));
    node.thaw(Daemon::Southbound).unwrap();
    seen(&switch, "the return", |found| controller(found).lag == Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_dies_leaves_what_was_known_and_its_return_is_told() {
    let Some(node) = own("a_database_that_dies_leaves_what_was_known_and_its_return_is_told") else { return };
    let switch = switch(&node).await;
    let mut changes = switch.changes();
    let mut told = async |wanted: OvsChange| {
        let waiting = async {
            while let Some(change) = changes.next().await {
                if change == wanted {
                    return;
                }
            }
            panic!("the stream ended");
        };
        assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "{wanted:?}: not within {LIMIT:?}");
    };
    node.kill(Daemon::Database).unwrap();
    told(OvsChange::Connected(false)).await;
    let found = switch.snapshot().await.unwrap();
    assert_eq!((found.database_connected, &found.database), (false, &Answer::Absent));
    assert_eq!(found.bridges.len(), 3);
    assert!(found.switch.is_responsive(), "{found:?}");
    node.start(Daemon::Database).unwrap();
    told(OvsChange::Connected(true)).await;
    seen(&switch, "the connection", |found| found.database_connected && found.database.is_responsive()).await;

    node.freeze(Daemon::Database).unwrap();
    seen(&switch, "a database that hangs", |found| found.database == Answer::Unresponsive).await;
    node.thaw(Daemon::Database).unwrap();
    seen(&switch, "the connection", |found| found.database_connected && found.database.is_responsive()).await;
    node.add_port("tap-after", None).unwrap();
    seen(&switch, "a port that came after", |found| {
        found.interfaces.iter().any(|interface| interface.name == "tap-after")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_connections_are_not_taken_for_the_controllers() {
    let Some(node) = own("our_own_connections_are_not_taken_for_the_controllers") else { return };
    let switch = switch(&node).await;
    // Somebody reads flows, slowly, and others look at the same time.
    let mut flows = switch.flows("br-int", None).await.unwrap();
    flows.next().await.unwrap().unwrap();
    let together = async || {
        let all = futures::future::join_all((0..6).map(|_| switch.snapshot())).await;
        all.into_iter().map(|found| controller(&found.unwrap()).openflow_connected).collect::<Vec<_>>()
    };
    for _ in 0..5 {
        let said = together().await;
        assert!(said.iter().all(|connected| *connected != Some(false)), "{said:?}");
    }
    node.kill(Daemon::Controller).unwrap();
    seen(&switch, "its loss", |found| controller(found).openflow_connected == Some(false)).await;
    for _ in 0..5 {
        let said = together().await;
        assert!(said.iter().all(|connected| *connected != Some(true)), "those are ours: {said:?}");
    }
    // Alone, with a stream of flows still open, it can be told.
    seen(&switch, "its loss", |found| controller(found).openflow_connected == Some(false)).await;
    drop(flows);
}
