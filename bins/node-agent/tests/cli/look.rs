//! `--once`: what would be published, without a cluster.

use std::path::Path;

use cobalt_libvirt::testing::{Recording, Server};
use serde_json::Value;

use crate::{
    PROGRAM,
    testing::{Running, Said, Scratch, command, run},
};

/// A daemon that answers as the recorded driver did.
fn daemon(recorded: &str) -> Server {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cobalt-libvirt/tests/recorded");
    let read = |name: String| Recording::parse(&std::fs::read_to_string(recordings.join(name)).unwrap()).unwrap();
    Server::replay(read(format!("{recorded}.jsonl")).and(read(format!("{recorded}-messages.jsonl"))))
}

/// Runs the program to its end, off the threads that serve it.
async fn look(env: &[(&str, &str)], args: &[&str]) -> Said {
    let mut command = command(PROGRAM);
    // A host of its own: whatever this machine has of systemd is not looked at.
    let root = Scratch::new();
    command.envs(env.iter().copied()).arg("--once").arg("--host-root").arg(root.path("")).args(args);
    tokio::task::spawn_blocking(move || {
        let mut running = Running::start(&mut command);
        let code = running.wait().code();
        drop(root);
        Said { code, out: running.out(), err: running.err() }
    })
    .await
    .unwrap()
}

fn published(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

fn condition<'a>(published: &'a Value, type_: &str) -> &'a Value {
    let list = published["status"]["conditions"].as_array().unwrap();
    list.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

#[test]
fn a_simulated_host_is_printed_as_its_hypervisor() {
    let said = run(PROGRAM, &["--backend", "simulated", "--node-name", "node-1", "--simulated-vms", "4", "--once"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let seen = published(&said);
    assert_eq!((&seen["kind"], &seen["metadata"]["name"]), (&"Hypervisor".into(), &"node-1".into()));
    assert_eq!(seen["status"]["numInstances"], 4);
    assert_eq!(condition(&seen, "LibVirtConnection")["status"], "True");
    assert_eq!(condition(&seen, "InstancesHealthy")["reason"], "Healthy");
    assert_eq!(condition(&seen, "libvirtd.service")["reason"], "Running");
}

#[test]
fn it_is_printed_as_yaml_too() {
    let said = run(PROGRAM, &["--backend", "simulated", "--node-name", "node-1", "--once", "--output", "yaml"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("kind: Hypervisor\n") && said.out.contains("  numInstances: 3\n"), "{}", said.out);
}

#[test]
fn how_to_print_makes_no_sense_without_something_to_print() {
    run(PROGRAM, &["--output", "yaml"]).refused(2, &["--once"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_is_printed_as_it_answers() {
    for (driver, path, kind) in
        [("test-9.0", "default", "test"), ("ch-11.3", "system", "ch"), ("qemu-9.0", "system", "")]
    {
        let server = daemon(driver);
        let address = server.listen_tcp().await.unwrap();
        let uri = format!("{}+tcp://{address}/{path}", driver.split('-').next().unwrap());
        let said = look(&[("LIBVIRT_DEFAULT_URI", &uri)], &["--hostname", "node-1"]).await;
        assert_eq!(said.code, Some(0), "{driver}: {said:?}");
        let seen = published(&said);
        assert_eq!(condition(&seen, "LibVirtConnection")["reason"], "Connected", "{driver}: {seen:#}");
        assert_eq!(condition(&seen, "LibVirtTransportSecure"), &Value::Null, "its own loopback");
        assert!(seen["status"]["libVirtVersion"].is_string() && seen["status"]["numInstances"].is_number());
        assert!(seen["status"]["capacity"]["memory"].is_string(), "{driver}: {seen:#}");
        let told = seen["status"]["domainCapabilities"]["hypervisorType"].as_str().unwrap();
        assert!(told == kind || kind.is_empty(), "{driver}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_by_the_environment_of_earlier_agents_is_used() {
    let scratch = Scratch::new();
    let socket = scratch.path("libvirt-sock").display().to_string();
    let server = daemon("ch-11.3");
    server.listen_unix(&socket).unwrap();
    for env in [
        &[("LIBVIRT_SOCKET", socket.as_str()), ("LIBVIRT_DEFAULT_URI", "ch:///system"), ("HOSTNAME", "node-1")][..],
        &[("LIBVIRT_SOCKET", socket.as_str()), ("NODE_IP", "192.0.2.1"), ("NODE_NAME", "node-1")][..],
    ] {
        let said = look(env, &["--driver", "ch"]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        let seen = published(&said);
        assert_eq!(seen["metadata"]["name"], "node-1");
        assert_eq!(seen["status"]["domainCapabilities"]["hypervisorType"], "ch");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_down_is_a_failure_that_still_says_what_is_known() {
    let said = look(&[], &["--libvirt-uri", "qemu:///system?socket=/nowhere/sock", "--once-timeout", "200ms"]).await;
    said.refused(1, &["error: reach the hypervisor", "/nowhere/sock"]);
    let seen = published(&said);
    assert_eq!(condition(&seen, "LibVirtConnection")["reason"], "ConnectFailed");
    assert!(seen["status"]["operatingSystem"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uri_that_cannot_work_is_named() {
    look(&[], &["--libvirt-uri", "qemu+ssh://node-1/system"])
        .await
        .refused(1, &["error: ", "qemu+ssh://node-1/system"]);
}
