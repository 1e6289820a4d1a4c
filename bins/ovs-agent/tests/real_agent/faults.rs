//! What is broken, and how the OVSNode says it.

use cobalt_core::api::{Condition, OVSNode};
use cobalt_rig::ovs::{Daemon, Node, Orphan};
use serde_json::{Value, json};

use crate::rig::{Rig, find};

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_node_is_published_with_its_bridges_bond_and_flows() {
    let Some(rig) = Rig::up("a_sound_node_is_published_with_its_bridges_bond_and_flows").await else { return };
    let found = rig.mended().await;
    let status = serde_json::to_value(found.status.as_ref().unwrap()).unwrap();
    let names: Vec<_> = status["bridges"].as_array().unwrap().iter().map(|bridge| &bridge["name"]).collect();
    assert_eq!(names, ["br-ex", "br-int", "br-provider"]);
    assert!(
        status["bridges"].as_array().unwrap().iter().all(|bridge| bridge["datapathType"] == "netdev"),
        "{status:#}"
    );
    let bond = &status["interfaces"]["bonds"][0];
    assert_eq!((&bond["name"], &bond["mode"]), (&"bond0".into(), &"balance-tcp".into()));
    assert_eq!((&bond["members"], &bond["activeMembers"]), (&2.into(), &2.into()));
    let cards: Vec<_> = status["interfaces"]["physical"].as_array().unwrap().iter().collect();
    let told: Vec<_> = cards.iter().map(|card| (&card["name"], &card["status"], &card["bond"])).collect();
    let (up, bond, none) = (json!("Up"), json!("bond0"), Value::Null);
    assert_eq!(
        told,
        [(&json!("eth1"), &up, &bond), (&json!("eth2"), &up, &bond), (&json!("eth3"), &up, &none)],
        "{cards:#?}"
    );
    assert_eq!(status["ovnController"]["connected"], true);
    assert_eq!(status["ovnController"]["chassisId"], Node::CHASSIS);
    assert_eq!(status["ovnController"]["sbConnection"], rig.node.ovn_remote());
    let version = rig.node.appctl(["version"]).unwrap();
    let version = version.split_whitespace().last().unwrap();
    assert_eq!((&status["ovsVersion"], &status["ovsdVersion"]), (&json!(version), &json!(version)));
    assert_eq!((&status["dpdkEnabled"], &status["dpdkVersion"]), (&json!(false), &Value::Null));
    for type_ in ["Ready", "OVSDBConnected", "OVNControllerConnected", "AllBridgesHealthy", "AllBondsHealthy"] {
        assert!(found.condition(type_).is_some_and(Condition::is_true), "{type_}: {status:#}");
    }
    // Numbers of flows that moved less than a hundred are not worth a write, so what is published may be that far off.
    let bridges = status["bridges"].as_array().unwrap().iter();
    let published: u64 = bridges.clone().map(|bridge| bridge["flows"].as_u64().unwrap()).sum();
    let dumped = |bridge: &Value| {
        let dump = rig.node.ofctl("dump-flows", bridge["name"].as_str().unwrap(), &[]).unwrap();
        dump.matches("cookie=").count() as u64
    };
    let there: u64 = bridges.map(dumped).sum();
    assert!(published > 100 && published.abs_diff(there) < 100, "{published} flows are published, {there} are there");
    let tables = status["flowStats"]["flowsPerTable"].as_array().unwrap();
    let by_table: u64 = tables.iter().map(|table| table["flows"].as_u64().unwrap()).sum();
    assert_eq!((&status["flowStats"]["totalFlows"], by_table), (&json!(published), published));
    for figure in ["packetsReceived", "packetsSent", "bytesReceived", "bytesSent"] {
        assert!(status["metrics"][figure].as_u64().is_some_and(|count| count > 0), "{figure}: {status:#}");
    }
    assert!(status["metrics"]["observedAt"].is_string(), "{status:#}");
}

/// What a controller leaves that does not tidy up, although it lives and is connected.
#[tokio::test(flavor = "multi_thread")]
async fn a_logical_port_without_an_interface_and_a_tunnel_to_nobody_are_reported_until_they_are_gone() {
    const NAME: &str = "a_logical_port_without_an_interface_and_a_tunnel_to_nobody_are_reported_until_they_are_gone";
    let Some(rig) = Rig::up(NAME).await else { return };
    let tunnel = rig.node.tunnel().unwrap();
    rig.node.pause_controller(true).unwrap();
    rig.node.remove_port("tap-vm2").unwrap();
    rig.node.sbctl(["chassis-del", Node::OTHER_CHASSIS]).unwrap();
    let found = rig
        .until("both", |found| {
            find(found, "UnpluggedPort", "vm2").is_some() && find(found, "StaleTunnel", &tunnel).is_some()
        })
        .await;
    assert!(found.condition("Ready").is_some_and(Condition::is_true), "neither is critical: {found:#?}");
    rig.node.pause_controller(false).unwrap();
    rig.mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bond_without_partner_or_cables_is_reported_until_it_works_again() {
    let Some(rig) = Rig::up("a_bond_without_partner_or_cables_is_reported_until_it_works_again").await else { return };
    rig.node.silence_partner().unwrap();
    let found = rig.broken("BondDown", "bond0", "AllBondsHealthy").await;
    // A switch that hangs cannot tell whether that is still so.
    rig.node.freeze(Daemon::Switch).unwrap();
    let hung = rig.broken("DaemonUnresponsive", "ovs-vswitchd", "OVSDaemonResponsive").await;
    assert_eq!(find(&hung, "BondDown", "bond0"), find(&found, "BondDown", "bond0"));
    let cards = hung.status.unwrap().interfaces.unwrap().physical.unwrap();
    assert!(cards.iter().all(|card| card.status.as_deref() == Some("Unknown")), "{cards:?}");
    rig.node.thaw(Daemon::Switch).unwrap();
    rig.until("a switch that answers", |found| found.condition("OVSDaemonResponsive").is_some_and(Condition::is_true))
        .await;
    rig.node.wake_partner().unwrap();
    rig.mended().await;
    rig.node.cable("eth1", false).unwrap();
    let found = rig.broken("BondDegraded", "bond0", "AllBondsHealthy").await;
    assert!(find(&found, "BondDown", "bond0").is_none(), "{found:#?}");
    rig.node.cable("eth2", false).unwrap();
    rig.broken("BondDown", "bond0", "AllBondsHealthy").await;
    rig.node.cable("eth1", true).unwrap();
    rig.node.cable("eth2", true).unwrap();
    rig.mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_hangs_or_died_is_reported_until_it_answers_again() {
    let Some(rig) = Rig::up("a_switch_that_hangs_or_died_is_reported_until_it_answers_again").await else { return };
    rig.node.freeze(Daemon::Switch).unwrap();
    rig.broken("DaemonUnresponsive", "ovs-vswitchd", "OVSDaemonResponsive").await;
    rig.node.thaw(Daemon::Switch).unwrap();
    rig.mended().await;
    rig.node.kill(Daemon::Switch).unwrap();
    rig.broken("DaemonAbsent", "ovs-vswitchd", "OVSDaemonResponsive").await;
    rig.node.start(Daemon::Switch).unwrap();
    rig.mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_hangs_died_or_lost_its_database_is_reported_until_it_is_back() {
    const NAME: &str = "a_controller_that_hangs_died_or_lost_its_database_is_reported_until_it_is_back";
    let Some(rig) = Rig::up(NAME).await else { return };
    rig.node.freeze(Daemon::Controller).unwrap();
    rig.broken("DaemonUnresponsive", "ovn-controller", "OVNControllerConnected").await;
    rig.node.thaw(Daemon::Controller).unwrap();
    rig.mended().await;
    rig.node.kill(Daemon::Controller).unwrap();
    rig.broken("DaemonAbsent", "ovn-controller", "OVNControllerConnected").await;
    rig.node.start(Daemon::Controller).unwrap();
    rig.mended().await;
    rig.node.kill(Daemon::Southbound).unwrap();
    rig.broken("SouthboundDisconnected", "ovn-controller", "OVNControllerConnected").await;
    rig.node.start(Daemon::Southbound).unwrap();
    rig.mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_southbound_database_that_hangs_behind_a_unix_socket_is_reported_until_it_answers() {
    const NAME: &str = "a_southbound_database_that_hangs_behind_a_unix_socket_is_reported_until_it_answers";
    let Some(rig) = Rig::up(NAME).await else { return };
    assert!(rig.node.ovn_remote().starts_with("unix:"), "{}", rig.node.ovn_remote());
    rig.node.freeze(Daemon::Southbound).unwrap();
    let found = rig.broken("SouthboundUnresponsive", "ovn-controller", "OVNControllerConnected").await;
    // What misleads: the controller itself says that all is well.
    assert_eq!(found.status.unwrap().ovn_controller.unwrap().connected, Some(true));
    rig.node.thaw(Daemon::Southbound).unwrap();
    rig.mended().await;
}

/// The socket by which the controller programs the bridge is gone. It lives, is connected to its database, and can do
/// nothing of what is asked of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_cannot_program_the_switch_is_reported_until_it_can_and_has_caught_up() {
    const NAME: &str = "a_controller_that_cannot_program_the_switch_is_reported_until_it_can_and_has_caught_up";
    let Some(rig) = Rig::up(NAME).await else { return };
    let socket = rig.node.openflow("br-int");
    let away = socket.with_extension("away");
    rig.node.kill(Daemon::Controller).unwrap();
    std::fs::rename(&socket, &away).unwrap();
    rig.node.start(Daemon::Controller).unwrap();
    rig.broken("OpenFlowDisconnected", "ovn-controller", "OpenFlowConnected").await;
    rig.broken("BridgeUnresponsive", "br-int", "AllBridgesHealthy").await;
    rig.until("connected to its database", |found| {
        found.condition("OVNControllerConnected").is_some_and(Condition::is_true)
    })
    .await;
    // Something new in the cloud, which does not reach the flows.
    rig.node.nbctl(["--wait=sb", "sync"]).unwrap();
    let lags = |found: &OVSNode| find(found, "SouthboundLag", "ovn-controller").is_some();
    rig.until("behind the cloud", lags).await;
    std::fs::rename(&away, &socket).unwrap();
    rig.mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_switch_does_not_take_up_is_reported_until_it_does() {
    const NAME: &str = "a_change_that_the_switch_does_not_take_up_is_reported_until_it_does";
    let Some(rig) = Rig::up(NAME).await else { return };
    rig.node.freeze(Daemon::Switch).unwrap();
    // The change is in the database; whoever made it waits for the switch in vain.
    let asked = rig.node.vsctl(["--timeout=2", "set", "Bridge", "br-ex", "external_ids:asked=1"]);
    assert!(asked.is_err(), "{asked:?}");
    rig.broken("ConfigurationPending", "ovs-vswitchd", "OVSDaemonResponsive").await;
    rig.node.thaw(Daemon::Switch).unwrap();
    rig.mended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_killed_is_reported_and_followed_again() {
    let Some(rig) = Rig::up("a_database_that_was_killed_is_reported_and_followed_again").await else { return };
    rig.node.kill(Daemon::Database).unwrap();
    rig.until("without a database", |found| {
        found.condition("OVSDBConnected").is_some_and(|condition| !condition.is_true())
    })
    .await;
    rig.node.start(Daemon::Database).unwrap();
    rig.mended().await;
    // It follows the new server: a port that comes now is seen.
    let ports = |found: &OVSNode| {
        serde_json::to_value(found.status.as_ref().unwrap()).unwrap()["bridges"][1]["ports"].as_u64().unwrap()
    };
    let before = ports(&rig.mended().await);
    rig.node.add_bound_port("tap-new").unwrap();
    rig.until("the new port", |found| ports(found) == before + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_orphan_is_reported_until_it_is_gone() {
    let Some(rig) = Rig::up("every_kind_of_orphan_is_reported_until_it_is_gone").await else { return };
    for orphan in Orphan::ALL {
        rig.node.orphan(orphan).unwrap();
    }
    rig.until("all orphans", |found| {
        Orphan::ALL.into_iter().all(|orphan| {
            let is = |name: &str| find(found, "OrphanPort", name).is_some();
            // Of two that claim one port, the one that lost the claim.
            is(orphan.port()) || (orphan == Orphan::Duplicate && is("tap-vm1"))
        })
    })
    .await;
    for orphan in Orphan::ALL {
        rig.node.adopt(orphan).unwrap();
    }
    rig.mended().await;
    // They were reported, and nothing else was done about them.
    assert!(rig.node.vsctl(["list-ports", "br-int"]).unwrap().contains("tap-vm1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_left_over_flows_are_reported_until_they_are_gone() {
    let Some(rig) = Rig::up("foreign_and_left_over_flows_are_reported_until_they_are_gone").await else { return };
    rig.node.add_flow("br-int", "cookie=0xdeadbeef,table=200,priority=1,actions=drop").unwrap();
    rig.broken("StaleFlows", "br-int", "NoStaleFlows").await;
    rig.node.ofctl("del-flows", "br-int", &["cookie=0xdeadbeef/-1"]).unwrap();
    rig.mended().await;
    rig.node.leave_flows_behind(0).unwrap();
    rig.broken("StaleFlows", "br-int", "NoStaleFlows").await;
    rig.node.start(Daemon::Controller).unwrap();
    // Its port has no logical port any more, but no flow of it is left.
    rig.until("without stale flows", |found| find(found, "StaleFlows", "br-int").is_none()).await;
}
