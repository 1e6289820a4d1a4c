//! The connection and the replica against a server that misbehaves.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::time::timeout;
use uuid::Uuid;

use super::*;
use crate::{ConnectOptions, Error, Remote, testing::OvsdbServer};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn options() -> ConnectOptions {
    ConnectOptions::new().call_timeout(LIMIT).connect_timeout(LIMIT).probe_interval(None)
}

async fn connected(server: &OvsdbServer, options: &ConnectOptions) -> Ovsdb {
    let remote = server.listen_tcp().await.unwrap();
    Ovsdb::connect(&remote, options).await.unwrap()
}

fn bridge(name: &str) -> Row {
    Row::new().with("name", name)
}

async fn names(db: &Ovsdb) -> Vec<String> {
    let select = Operation::select("Bridge", []).columns(["name"]);
    let outcomes = db.transact("Open_vSwitch", &[select]).await.unwrap();
    outcomes[0].rows.iter().map(|row| row.str("name").unwrap().to_owned()).collect()
}

mod connection {
    use super::*;

    #[tokio::test]
    async fn answers_in_pieces_with_odd_quotes_are_read() {
        let server = OvsdbServer::switch();
        server.chunk(1);
        server.insert("Bridge", bridge("5\" {"));
        server.insert("Bridge", bridge("}]\\"));
        let db = connected(&server, &options()).await;
        assert_eq!(names(&db).await, ["5\" {", "}]\\"]);
        assert_eq!(db.list_dbs().await.unwrap(), ["Open_vSwitch", "_Server"]);
        assert_eq!(db.schema("Open_vSwitch").await.unwrap().version, "8.3.1");
    }

    #[tokio::test]
    async fn an_echo_of_the_server_is_answered_also_behind_another_message() {
        let server = OvsdbServer::switch();
        let db = connected(&server, &options()).await;
        db.echo().await.unwrap();
        let echo = |id: &str| json!({ "id": id, "method": "echo", "params": ["x"] }).to_string();
        server.send(format!("{}{}", echo("a"), echo("b")));
        timeout(LIMIT, server.until(|server| server.replies().len() == 2)).await.unwrap();
        assert_eq!(server.replies()[1], json!({ "id": "b", "result": ["x"], "error": null }));
        server.send(json!({ "id": 3, "method": "steal", "params": [] }).to_string());
        timeout(LIMIT, server.until(|server| server.replies().len() == 3)).await.unwrap();
        assert_eq!(server.replies()[2]["error"], "unknown method");
        assert!(!db.is_closed());
    }

    #[tokio::test]
    async fn many_calls_at_once_get_their_own_answers() {
        let server = OvsdbServer::switch();
        server.chunk(7);
        server.insert("Bridge", bridge("br-int"));
        let db = connected(&server, &options().max_pending(3)).await;
        let calls = (0..20).map(|call| {
            let db = db.clone();
            async move { if call % 2 == 0 { names(&db).await.len() } else { db.list_dbs().await.unwrap().len() } }
        });
        let answers = futures::future::join_all(calls).await;
        assert!(answers.chunks(2).all(|pair| pair == [1, 2]));
    }

    #[tokio::test]
    async fn an_operation_that_fails_is_named_with_what_the_server_said() {
        let server = OvsdbServer::switch();
        let db = connected(&server, &options()).await;
        let operations = [Operation::comment("why"), Operation::delete("Mirror", [])];
        server.answer("transact", json!([{}, { "error": "constraint violation", "details": "no", "x": 1 }]));
        let error = db.transact("Open_vSwitch", &operations).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "delete from Mirror (2 of 2 operations on Open_vSwitch): constraint violation (no)"
        );
        server.answer("transact", json!([{}, {}, { "error": "aborted" }]));
        let error = db.transact("Open_vSwitch", &operations).await.unwrap_err();
        assert_eq!(error.to_string(), "commit (3 of 2 operations on Open_vSwitch): aborted");
        server.answer("transact", json!([{}]));
        assert_eq!(db.transact("Open_vSwitch", &operations).await.unwrap_err().category(), "protocol");
        server.refuse("transact", json!("not allowed"));
        let error = db.transact("Open_vSwitch", &operations[..1]).await.unwrap_err();
        assert_eq!(error.to_string(), "comment of Open_vSwitch: not allowed");
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_the_connection_whole() {
        let server = OvsdbServer::switch();
        let db = connected(&server, &options()).await;
        server.hang(true);
        let given_up = tokio::spawn({
            let db = db.clone();
            async move { db.list_dbs().await }
        });
        timeout(LIMIT, server.until(|server| !server.requests("list_dbs").is_empty())).await.unwrap();
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        server.hang(false);
        // The late answer is for nobody, and no reason to complain.
        let id = &server.requests("list_dbs")[0]["id"];
        server.send(json!({ "id": id, "result": [], "error": null }).to_string());
        assert_eq!(db.list_dbs().await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_message_above_the_limit_ends_the_connection_and_says_so() {
        let server = OvsdbServer::switch();
        let db = connected(&server, &options().max_message(2000)).await;
        server.insert("Bridge", bridge(&"x".repeat(3000)));
        let select = Operation::select("Bridge", []);
        let error = db.transact("Open_vSwitch", &[select]).await.unwrap_err();
        assert_eq!(
            crate::error::chain(&error),
            "select from Bridge of Open_vSwitch: the connection is closed: the server sent bytes that are no message: \
             a message is longer than 2000 bytes"
        );
    }

    #[tokio::test]
    async fn nonsense_ends_the_connection() {
        for nonsense in ["HTTP/1.1 400 Bad Request", "{]", "{}", r#"{"id":99,"result":1}"#, r#"{"id":"x","result":1}"#]
        {
            let server = OvsdbServer::switch();
            let db = connected(&server, &options()).await;
            db.echo().await.unwrap();
            server.send(nonsense);
            let reason = timeout(LIMIT, db.closed()).await.unwrap();
            assert!(["frame", "violation"].contains(&reason.category()), "{nonsense}: {reason}");
            assert!(db.list_dbs().await.unwrap_err().is_closed());
        }
    }

    #[tokio::test]
    async fn a_server_that_goes_in_the_middle_of_a_message_failed() {
        let server = OvsdbServer::switch();
        let db = connected(&server, &options()).await;
        db.echo().await.unwrap();
        server.send(r#"{"id":"#);
        server.cut();
        let reason = timeout(LIMIT, db.closed()).await.unwrap();
        // Both are what a cut can look like; the half message is never taken for a whole one.
        assert!(["io", "peer"].contains(&reason.category()), "{reason}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_asked_and_then_given_up() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = OvsdbServer::switch();
        server.serve(theirs);
        let options = ConnectOptions::new().probe_interval(Some(Duration::from_secs(5)));
        let db = Ovsdb::open(Box::new(ours), "pipe".into(), &options);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!db.is_closed(), "it answers our echoes");
        assert!(server.requests("echo").len() >= 11);
        server.hang(true);
        let reason = db.closed().await;
        assert_eq!(reason.to_string(), "the server has been silent for 10 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_read_is_given_up_and_makes_nothing_grow() {
        let (ours, theirs) = tokio::io::duplex(64);
        let options = ConnectOptions::new().probe_interval(None).call_timeout(Duration::from_secs(10));
        let db = Ovsdb::open(Box::new(ours), "pipe".into(), &options);
        let error = db.transact("Open_vSwitch", &[Operation::comment("x".repeat(1000))]).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. } | Error::Closed { .. }), "{error}");
        assert_eq!(db.closed().await.category(), "stuck");
        drop(theirs);
    }

    #[tokio::test]
    async fn the_last_handle_closes_the_connection() {
        let server = OvsdbServer::switch();
        let db = connected(&server, &options()).await;
        db.echo().await.unwrap();
        assert_eq!(server.clients(), 1);
        drop(db);
        timeout(LIMIT, async {
            while server.clients() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }
}

mod replica {
    use super::*;

    fn follow() -> Follow {
        Follow::new("Open_vSwitch")
            .table("Bridge", ["name", "ports", "external_ids", "a_column_of_tomorrow"])
            .table("A_Table_Of_Tomorrow", ["name"])
    }

    fn replica_options() -> ReplicaOptions {
        let soon = Duration::from_millis(10);
        ReplicaOptions::new().connection(options()).reconnect(soon, soon * 20)
    }

    async fn replica(server: &OvsdbServer) -> Replica {
        let remote = server.listen_tcp().await.unwrap();
        Replica::connect(vec![remote], follow(), replica_options()).await.unwrap()
    }

    fn bridges(replica: &Replica) -> Vec<String> {
        let mut names: Vec<String> = replica.read(|tables| {
            tables.rows("Bridge").filter_map(|(_, row)| row.str("name")).map(ToOwned::to_owned).collect()
        });
        names.sort();
        names
    }

    async fn until(replica: &Replica, holds: impl Fn(&Replica) -> bool) {
        let mut events = replica.events().boxed();
        let waiting = async {
            while !holds(replica) {
                events.next().await.unwrap();
            }
        };
        timeout(LIMIT, waiting).await.unwrap();
    }

    #[tokio::test]
    async fn the_copy_follows_the_database_with_every_generation_of_monitors() {
        for lacking in [&[][..], &["monitor_cond_since"], &["monitor_cond_since", "monitor_cond"]] {
            let server = OvsdbServer::switch();
            for method in lacking {
                server.lacks(method);
            }
            let row = bridge("br-int").with("ports", Datum::set([Uuid::from_u128(1), Uuid::from_u128(2)]));
            let first = server.insert("Bridge", row.with("external_ids", Datum::map([("a", "1"), ("b", "2")])));
            let replica = replica(&server).await;
            assert_eq!(bridges(&replica), ["br-int"], "without {lacking:?}");
            server.insert("Bridge", bridge("br-ex"));
            until(&replica, |replica| bridges(replica) == ["br-ex", "br-int"]).await;
            server.set("Bridge", first, "ports", Datum::set([Uuid::from_u128(2), Uuid::from_u128(3)]));
            server.set("Bridge", first, "external_ids", Datum::map([("b", "3"), ("c", "4")]));
            server.set("Bridge", first, "name", "br-new");
            until(&replica, |replica| bridges(replica) == ["br-ex", "br-new"]).await;
            replica.read(|tables| {
                let row = tables.row("Bridge", first).unwrap();
                assert_eq!(row.uuids("ports").collect::<Vec<_>>(), [Uuid::from_u128(2), Uuid::from_u128(3)]);
                assert_eq!(row.get("external_ids"), Some(&Datum::map([("b", "3"), ("c", "4")])));
            });
            server.delete("Bridge", first);
            until(&replica, |replica| bridges(replica) == ["br-ex"]).await;
        }
    }

    #[tokio::test]
    async fn what_was_missed_comes_after_a_cut_and_nothing_else() {
        let server = OvsdbServer::switch();
        server.insert("Bridge", bridge("br-int"));
        let replica = replica(&server).await;
        let mut events = replica.events().boxed();
        server.cut();
        server.insert("Bridge", bridge("br-ex"));
        let mut next = async || timeout(LIMIT, events.next()).await.unwrap().unwrap();
        assert!(matches!(next().await, ReplicaEvent::Disconnected(_)));
        assert!(matches!(next().await, ReplicaEvent::Connected));
        let ReplicaEvent::Changed(changes) = next().await else { panic!("the change") };
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].new.as_ref().unwrap().str("name"), Some("br-ex"));
        assert_eq!(bridges(&replica), ["br-ex", "br-int"]);
        let asked = server.requests("monitor_cond_since");
        assert_ne!(asked[1]["params"][3], asked[0]["params"][3], "asked since the last transaction");
        assert_eq!(replica.state().reconnects, 1);
    }

    #[tokio::test]
    async fn a_server_without_a_memory_tells_all_and_only_what_differs_is_a_change() {
        let server = OvsdbServer::switch();
        let gone = server.insert("Bridge", bridge("br-gone"));
        server.insert("Bridge", bridge("br-int"));
        let replica = replica(&server).await;
        let mut events = replica.events().boxed();
        server.stop();
        server.delete("Bridge", gone);
        server.forget();
        let away = timeout(LIMIT, events.next()).await.unwrap().unwrap();
        assert!(matches!(away, ReplicaEvent::Disconnected(_)));
        assert!(!replica.is_connected());
        assert_eq!(bridges(&replica), ["br-gone", "br-int"], "what was last known stays");
        assert_eq!(replica.client().unwrap_err().category(), "connect");
    }

    #[tokio::test]
    async fn the_replica_comes_back_when_the_server_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sock");
        let replica = Replica::connect(vec![Remote::unix(&path)], follow(), replica_options()).await.unwrap();
        assert!(!replica.is_connected());
        assert!(replica.state().last_error.unwrap().contains("db.sock"));
        let server = OvsdbServer::switch();
        server.insert("Bridge", bridge("br-int"));
        server.listen_unix(&path).unwrap();
        until(&replica, |replica| replica.is_connected() && bridges(replica) == ["br-int"]).await;
        assert_eq!(replica.state().schema_version.as_deref(), Some("8.3.1"));
        server.stop();
        until(&replica, |replica| !replica.is_connected()).await;
        let other = OvsdbServer::switch();
        other.insert("Bridge", bridge("br-ex"));
        other.listen_unix(&path).unwrap();
        until(&replica, |replica| bridges(replica) == ["br-ex"]).await;
    }

    #[tokio::test]
    async fn an_unreadable_update_starts_the_copy_anew() {
        let server = OvsdbServer::switch();
        server.insert("Bridge", bridge("br-int"));
        let replica = replica(&server).await;
        let mut events = replica.events().boxed();
        server.send(json!({ "id": null, "method": "update3", "params": ["cobalt-1", "x", {}] }).to_string());
        let told = timeout(LIMIT, events.next()).await.unwrap().unwrap();
        assert!(matches!(told, ReplicaEvent::Disconnected(why) if why.contains("cannot be read")));
        until(&replica, Replica::is_connected).await;
        assert_eq!(bridges(&replica), ["br-int"]);
    }

    #[tokio::test]
    async fn other_rows_are_there_when_the_call_for_them_returns() {
        let server = OvsdbServer::southbound();
        for port in ["vm1", "vm2", "vm3"] {
            server.insert("Port_Binding", Row::new().with("logical_port", port));
        }
        let follow = Follow::new("OVN_Southbound").clauses("Port_Binding", ["logical_port"], [Clause::Never]);
        let remote = server.listen_tcp().await.unwrap();
        let replica = Replica::connect(vec![remote], follow, replica_options()).await.unwrap();
        let ports = |replica: &Replica| replica.read(|tables| tables.rows("Port_Binding").count());
        assert_eq!(ports(&replica), 0);
        let wanted = |names: &[&str]| -> Vec<Clause> {
            names.iter().map(|name| Clause::Where(Condition::equal("logical_port", *name))).collect()
        };
        replica.follow_rows("Port_Binding", wanted(&["vm1", "vm2"])).await.unwrap();
        assert_eq!(ports(&replica), 2);
        replica.follow_rows("Port_Binding", wanted(&["vm3"])).await.unwrap();
        assert_eq!(ports(&replica), 1);
        replica.follow_rows("Port_Binding", wanted(&["vm3"])).await.unwrap();
        assert_eq!(server.requests("monitor_cond_change").len(), 2, "the same again asks nobody");
        server.cut();
        until(&replica, |replica| replica.state().reconnects == 1).await;
        assert_eq!(ports(&replica), 1, "a new connection begins with the last conditions");
    }

    #[tokio::test]
    async fn a_second_caller_for_the_same_rows_waits_for_them_as_the_first_does() {
        let server = OvsdbServer::southbound();
        server.insert("Port_Binding", Row::new().with("logical_port", "vm1"));
        let follow = Follow::new("OVN_Southbound").clauses("Port_Binding", ["logical_port"], [Clause::Never]);
        let remote = server.listen_tcp().await.unwrap();
        let replica = Replica::connect(vec![remote], follow, replica_options()).await.unwrap();
        let wanted = || vec![Clause::Where(Condition::equal("logical_port", "vm1"))];
        // Nothing else runs between the two: the first has asked, and the server has not even heard of it.
        let mut first = std::pin::pin!(replica.follow_rows("Port_Binding", wanted()));
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = std::pin::pin!(replica.follow_rows("Port_Binding", wanted()));
        assert!(futures::poll!(&mut second).is_pending(), "the rows are not there yet");
        assert_eq!(replica.read_followed("Port_Binding", &wanted(), |_| ()), None);
        let (first, second) = timeout(LIMIT, async { tokio::join!(first, second) }).await.unwrap();
        first.and(second).unwrap();
        assert_eq!(server.requests("monitor_cond_change").len(), 1, "one question is enough for both");
        let ports = replica.read_followed("Port_Binding", &wanted(), |tables| tables.rows("Port_Binding").count());
        assert_eq!(ports, Some(1));
        assert_eq!(replica.read_followed("Port_Binding", &[Clause::Never], |_| ()), None, "others are followed");
    }

    #[tokio::test]
    async fn a_reader_that_is_slow_is_told_what_it_lost() {
        let server = OvsdbServer::switch();
        let remote = server.listen_tcp().await.unwrap();
        let options = replica_options().event_capacity(2);
        let replica = Replica::connect(vec![remote], follow(), options).await.unwrap();
        let mut events = replica.events().boxed();
        for n in 0..10 {
            server.insert("Bridge", bridge(&format!("br-{n}")));
        }
        until(&replica, |replica| bridges(replica).len() == 10).await;
        assert!(matches!(events.next().await, Some(ReplicaEvent::Lagged(lost)) if lost >= 8));
        assert!(matches!(events.next().await, Some(ReplicaEvent::Changed(_))));
    }

    #[tokio::test]
    async fn the_next_server_of_a_cluster_is_tried_when_one_fails() {
        let server = OvsdbServer::switch();
        server.insert("Bridge", bridge("br-int"));
        let nobody = Remote::unix("/nonexistent/db.sock");
        let remotes = vec![nobody, server.listen_tcp().await.unwrap()];
        let replica = Replica::connect(remotes, follow(), replica_options()).await.unwrap();
        until(&replica, Replica::is_connected).await;
        assert_eq!(bridges(&replica), ["br-int"]);
    }
}
