//! The database: every way to it, what it says of changes, and what becomes of connections when it dies or hangs.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use cobalt_ovs::{
    ConnectOptions, Remote,
    ovsdb::{Condition, Datum, Follow, Mutation, Operation, Ovsdb, Replica, ReplicaEvent, ReplicaOptions},
};
use cobalt_rig::ovs::{Daemon, Node, Way};
use futures::{Stream, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::rig::{LIMIT, options, own, pki, shared, until};

fn remote(node: &Node, way: Way) -> Remote {
    node.database(way).parse().unwrap()
}

/// The bridges, and what anybody wrote about the first VM's interface.
fn follow() -> Follow {
    Follow::new("Open_vSwitch").table("Bridge", ["name"]).table("Interface", ["name", "external_ids"])
}

async fn replica(node: &Node, way: Way, connection: ConnectOptions) -> Replica {
    let options =
        ReplicaOptions::new().connection(connection).reconnect(Duration::from_millis(50), Duration::from_millis(500));
    let replica = Replica::connect(vec![remote(node, way)], follow(), options).await.unwrap();
    assert!(replica.is_connected(), "{:?}", replica.state());
    replica
}

/// A value in the copy of the first VM's row.
fn note(replica: &Replica, key: &str) -> Option<String> {
    replica.read(|tables| {
        let row = tables.rows("Interface").find(|(_, row)| row.str("name") == Some("tap-vm1"))?.1;
        row.key("external_ids", key).map(str::to_owned)
    })
}

/// The same, as another client reads it.
fn set(node: &Node, key: &str, value: &str) {
    // In quotes, with those within escaped: the value is a string of the database's own notation.
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    node.vsctl(["set", "Interface", "tap-vm1", &format!("external_ids:{key}=\"{value}\"")]).unwrap();
}

async fn event(events: &mut (impl Stream<Item = ReplicaEvent> + Unpin), what: &str, wanted: fn(&ReplicaEvent) -> bool) {
    let waiting = async {
        while let Some(event) = events.next().await {
            if wanted(&event) {
                return;
            }
        }
        panic!("{what}: the stream ended");
    };
    assert!(tokio::time::timeout(LIMIT, waiting).await.is_ok(), "{what}: not within {LIMIT:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_database_answers_over_every_way() {
    let Some(node) = shared("the_database_answers_over_every_way") else { return };
    for way in [Way::Unix, Way::Tcp, Way::Ssl] {
        let db = Ovsdb::connect(&remote(&node, way), &options(&node)).await.unwrap();
        assert!(db.list_dbs().await.unwrap().contains(&"Open_vSwitch".to_owned()), "{way:?}");
        db.echo().await.unwrap();
        let bridges = Operation::select("Bridge", []).columns(["name"]);
        let found = db.transact("Open_vSwitch", &[bridges]).await.unwrap();
        let names: BTreeSet<&str> = found[0].rows.iter().filter_map(|row| row.str("name")).collect();
        assert_eq!(names, BTreeSet::from(["br-ex", "br-int", "br-provider"]), "{way:?}");
        db.close().await;
        let southbound: Remote = node.southbound(way).parse().unwrap();
        let db = Ovsdb::connect(&southbound, &options(&node)).await.unwrap();
        let schema = db.schema("OVN_Southbound").await.unwrap();
        let chassis = Operation::select("Chassis", [Condition::equal("name", Node::CHASSIS)]).columns(["name"]);
        assert_eq!(db.transact("OVN_Southbound", &[chassis]).await.unwrap()[0].rows.len(), 1, "{way:?}: {schema:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_needs_a_certificate_of_the_right_authority() {
    let Some(node) = shared("tls_needs_a_certificate_of_the_right_authority") else { return };
    let ask = async |options: ConnectOptions| {
        Ovsdb::connect(&remote(&node, Way::Ssl), &options).await?.list_dbs().await.map(drop)
    };
    ask(options(&node)).await.unwrap();
    // The name is right too, if somebody wants to look at it.
    let mut strict = pki(&node);
    strict.verify_name = true;
    ask(ConnectOptions::new().pki(strict)).await.unwrap();
    let mut nobody = pki(&node);
    nobody.identity = None;
    ask(ConnectOptions::new().pki(nobody)).await.expect_err("without a certificate");
    let mut stranger = pki(&node);
    stranger.ca = stranger.identity.as_ref().unwrap().0.clone();
    ask(ConnectOptions::new().pki(stranger)).await.expect_err("a server of somebody else's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_carried_out_or_refused_with_the_servers_words() {
    let Some(node) = shared("a_transaction_is_carried_out_or_refused_with_the_servers_words") else { return };
    let db = Ovsdb::connect(&remote(&node, Way::Unix), &options(&node)).await.unwrap();
    let this = || [Condition::equal("name", "tap-vm2")];
    let note = Datum::map([("cobalt", "was here")]);
    let add = Operation::mutate("Interface", this(), [Mutation::insert("external_ids", note)]);
    assert_eq!(db.transact("Open_vSwitch", &[add]).await.unwrap()[0].count, 1);
    let value = node.vsctl(["get", "Interface", "tap-vm2", "external_ids:cobalt"]).unwrap();
    assert_eq!(value.trim(), "\"was here\"");
    let error = db.transact("Open_vSwitch", &[Operation::select("Nothing", [])]).await.unwrap_err();
    assert!(format!("{error:?}").contains("Nothing"), "{error:?}");
    // The connection is as good as before.
    db.echo().await.unwrap();
    node.vsctl(["remove", "Interface", "tap-vm2", "external_ids", "cobalt"]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_follows_changes_whatever_is_written_in_them() {
    let Some(node) = shared("a_copy_follows_changes_whatever_is_written_in_them") else { return };
    for (number, way) in [Way::Unix, Way::Tcp, Way::Ssl].into_iter().enumerate() {
        let replica = replica(&node, way, options(&node)).await;
        let names = replica.read(|tables| tables.rows("Bridge").count());
        assert_eq!(names, 3, "{way:?}");
        let key = format!("odd-{number}");
        for value in ["5\" {", "}{", "\\\"[", "ünï", "plain"] {
            set(&node, &key, value);
            until("the value is in the copy", async || note(&replica, &key).as_deref() == Some(value)).await;
        }
        node.vsctl(["remove", "Interface", "tap-vm1", "external_ids", &key]).unwrap();
        until("the value is gone", async || note(&replica, &key).is_none()).await;
        assert_eq!(replica.state().reconnects, 0, "{:?}", replica.state());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_drops_its_clients_is_asked_for_what_was_missed() {
    let Some(node) = own("a_server_that_drops_its_clients_is_asked_for_what_was_missed") else { return };
    let replica = replica(&node, Way::Tcp, options(&node)).await;
    let mut events = replica.events().boxed();
    let control = format!("{}/ovsdb-server.ctl", node.directory().display());
    node.run(["ovs-appctl", "-t", &control, "ovsdb-server/reconnect"]).unwrap();
    set(&node, "missed", "no");
    event(&mut events, "the loss", |event| matches!(event, ReplicaEvent::Disconnected(_))).await;
    until("the change is in the copy", async || note(&replica, "missed").as_deref() == Some("no")).await;
    assert!(replica.is_connected() && replica.state().reconnects == 1, "{:?}", replica.state());
    // Told as a change of one row, not as a new database.
    let told = async {
        loop {
            if let Some(ReplicaEvent::Changed(rows)) = events.next().await {
                return rows.len();
            }
        }
    };
    assert_eq!(tokio::time::timeout(LIMIT, told).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_leaves_the_copy_as_it_was_and_returns_into_it() {
    let Some(node) = own("a_killed_server_leaves_the_copy_as_it_was_and_returns_into_it") else { return };
    for way in [Way::Unix, Way::Ssl] {
        let replica = replica(&node, way, options(&node)).await;
        let mut events = replica.events().boxed();
        node.kill(Daemon::Database).unwrap();
        event(&mut events, "the loss", |event| matches!(event, ReplicaEvent::Disconnected(_))).await;
        assert_eq!(replica.read(|tables| tables.rows("Bridge").count()), 3, "what was last known");
        let error = replica.client().expect_err("there is no connection");
        assert!(error.is_transient(), "{error:?}");
        node.start(Daemon::Database).unwrap();
        event(&mut events, "the return", |event| matches!(event, ReplicaEvent::Connected)).await;
        let value = format!("after {way:?}");
        set(&node, "returned", &value);
        until("the change is in the copy", async || note(&replica, "returned").as_ref() == Some(&value)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_server_is_noticed_by_its_silence() {
    let Some(node) = own("a_frozen_server_is_noticed_by_its_silence") else { return };
    let quick = options(&node).probe_interval(Some(Duration::from_secs(3))).call_timeout(Duration::from_secs(10));
    for way in [Way::Unix, Way::Tcp] {
        let replica = replica(&node, way, quick.clone()).await;
        let mut events = replica.events().boxed();
        node.freeze(Daemon::Database).unwrap();
        assert!(replica.is_connected() && replica.state().reconnects == 0, "{:?}", replica.state());
        event(&mut events, "the loss", |event| matches!(event, ReplicaEvent::Disconnected(_))).await;
        node.thaw(Daemon::Database).unwrap();
        event(&mut events, "the return", |event| matches!(event, ReplicaEvent::Connected)).await;
        assert_eq!(replica.read(|tables| tables.rows("Bridge").count()), 3);
    }
}

/// A port that leads to the server and counts its questions whether somebody is there.
async fn counting(target: String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&target).await else { continue };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                let mut piece = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from_server.read(&mut piece).await {
                    // A question is one small message, sent when nothing else is.
                    let text = String::from_utf8_lossy(&piece[..length]);
                    counter.fetch_add(text.matches("\"method\":\"echo\"").count(), Ordering::Relaxed);
                    to_client.write_all(&piece[..length]).await.unwrap();
                }
            });
        }
    });
    (port, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_whether_we_are_there_is_answered() {
    let Some(node) = own("a_server_that_asks_whether_we_are_there_is_answered") else { return };
    let Remote::Tcp { host, .. } = remote(&node, Way::Tcp) else { panic!("tcp") };
    node.vsctl(["set-manager", &format!("ptcp:6650:{host}"), "--", "set", "Manager", ".", "inactivity_probe=3000"])
        .unwrap();
    let (port, asked) = counting(format!("{host}:6650")).await;
    // We ask nothing of our own accord: all that keeps the connection is our answer.
    let options = ReplicaOptions::new().connection(options(&node).probe_interval(None));
    let at = Remote::Tcp { host: "127.0.0.1".into(), port };
    let replica = Replica::start(vec![at], follow(), options).unwrap();
    until("several questions of the server", async || asked.load(Ordering::Relaxed) >= 3).await;
    assert_eq!((replica.is_connected(), replica.state().reconnects), (true, 0), "{:?}", replica.state());
}
