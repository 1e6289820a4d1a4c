use std::os::unix::net::UnixListener;

use super::*;
use crate::testing::UnixctlServer;

const SOON: Duration = Duration::from_millis(300);

fn daemon(dir: &Path) -> Unixctl {
    Unixctl::new(dir, "ovs-vswitchd").timeout(Duration::from_secs(30))
}

#[tokio::test]
async fn the_socket_is_the_one_the_pidfile_names_whatever_else_lies_around() {
    let dir = tempfile::tempdir().unwrap();
    // Dead, both of them: nobody accepts.
    drop(UnixListener::bind(dir.path().join("ovs-vswitchd.1.ctl")).unwrap());
    drop(UnixListener::bind(dir.path().join("ovs-vswitchd.ctl")).unwrap());
    assert_eq!(daemon(dir.path()).daemon().await, Daemon::Absent);
    std::fs::write(dir.path().join("ovs-vswitchd.pid"), "4711\n").unwrap();
    assert_eq!(daemon(dir.path()).daemon().await, Daemon::Absent);
    let server = UnixctlServer::listen(dir.path().join("ovs-vswitchd.4711.ctl")).unwrap();
    server.answer("version", "ovs-vswitchd (Open vSwitch) 3.1.0\n");
    assert_eq!(daemon(dir.path()).daemon().await, Daemon::Responsive { version: Some("3.1.0".into()) });
}

#[tokio::test]
async fn a_daemon_with_a_fixed_socket_is_found_without_a_pidfile() {
    let dir = tempfile::tempdir().unwrap();
    let server = UnixctlServer::listen(dir.path().join("ovs-vswitchd.ctl")).unwrap();
    server.answer("version", "ovn-controller 23.03.1\nOpen vSwitch Library 3.1.0\n");
    assert_eq!(daemon(dir.path()).daemon().await.version(), Some("23.03.1"));
    std::fs::write(dir.path().join("ovs-vswitchd.pid"), "no number").unwrap();
    assert!(daemon(dir.path()).daemon().await.is_responsive());
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_hangs_and_a_full_queue_is_no_other_thing() {
    let dir = tempfile::tempdir().unwrap();
    // Bound and never accepted, as a stopped process looks from outside.
    let stopped = UnixListener::bind(dir.path().join("ovs-vswitchd.ctl")).unwrap();
    let unixctl = daemon(dir.path()).timeout(SOON);
    assert_eq!(unixctl.daemon().await, Daemon::Unresponsive);
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(SOON, UnixStream::connect(dir.path().join("ovs-vswitchd.ctl"))).await
    {
        waiting.push(stream);
        if waiting.len() > 10_000 {
            break;
        }
    }
    assert_eq!(unixctl.daemon().await, Daemon::Unresponsive, "with {} waiting", waiting.len());
    assert_eq!(unixctl.call("version", &[]).await.unwrap_err().category(), "timeout");
    drop(stopped);
}

#[tokio::test]
async fn a_refusal_is_told_with_the_command_and_the_daemon_s_words() {
    let dir = tempfile::tempdir().unwrap();
    let server = UnixctlServer::listen(dir.path().join("ovs-vswitchd.ctl")).unwrap();
    server.refuse("bond/show", "no such bond\n");
    let error = daemon(dir.path()).call("bond/show", &["bond7"]).await.unwrap_err();
    assert_eq!(error.to_string(), "bond/show bond7 of ovs-vswitchd: no such bond");
    assert_eq!(server.calls(), ["bond/show bond7"]);
    assert!(daemon(dir.path()).daemon().await.is_responsive(), "a refusal is an answer");
}

#[tokio::test]
async fn an_answer_in_pieces_is_one_answer_and_one_above_the_limit_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let server = UnixctlServer::listen(dir.path().join("ovs-vswitchd.ctl")).unwrap();
    server.chunk(3);
    server.answer("fdb/show", "5\" {\n");
    assert_eq!(daemon(dir.path()).call("fdb/show", &[]).await.unwrap(), "5\" {\n");
    server.chunk(1 << 16);
    server.answer("fdb/show", &"x".repeat(5000));
    let error = daemon(dir.path()).max_reply(2000).call("fdb/show", &[]).await.unwrap_err();
    assert_eq!(error.to_string(), "fdb/show of ovs-vswitchd: a message is longer than 2000 bytes");
}

#[test]
fn whatever_a_result_is_it_is_text() {
    let read = |text: &str| read_reply(&Bytes::copy_from_slice(text.as_bytes()));
    assert_eq!(read(r#"{"id":0,"result":"a","error":null}"#).unwrap(), Ok("a".into()));
    assert_eq!(read(r#"{"id":0,"result":null}"#).unwrap(), Ok(String::new()));
    assert_eq!(read(r#"{"id":0,"result":{"a":1}}"#).unwrap(), Ok(r#"{"a":1}"#.into()));
    assert_eq!(read(r#"{"id":0,"error":"no"}"#).unwrap(), Err("no".into()));
    assert!(read(r#"{"method":"echo","params":[]}"#).is_err());
}

#[tokio::test]
async fn a_socket_that_cannot_be_used_is_not_called_a_daemon_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    // A file is no socket, and connecting to it is refused like to one that is dead; a name that is too long for a socket
    // is neither.
    let long = dir.path().join("x".repeat(120));
    std::fs::create_dir(&long).unwrap();
    let Daemon::Inaccessible { why } = daemon(&long).daemon().await else { panic!("not inaccessible") };
    assert!(!why.is_empty());
    let error = daemon(&long).call("version", &[]).await.unwrap_err();
    assert_eq!(error.category(), "socket");
    assert!(error.to_string().contains("version of ovs-vswitchd: cannot use the socket"), "{error}");
}
