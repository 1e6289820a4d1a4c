//! `cobaltctl demo`.

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
};

use crate::{
    PROGRAM,
    testing::{Running, command, get, run},
};

/// One sentence of every chapter, and of the end.
const SENTENCES: [&str; 16] = [
    "a region in one process",
    "joined the cluster",
    "Their lifecycle is off",
    "had reported",
    "its Hypervisor had the label and the aggregates general-purpose, nvme",
    "later no aggregate was left",
    "A VM was started",
    "as not active",
    "LibVirtConnection was False, reason LibVirtServiceNotRunning",
    "The field is owned by cortex alone",
    "that is the smoke test",
    "in service. No HA service is configured",
    "its compute service was disabled in Nova",
    "garbage collector took it",
    "0 writes by the operator and the agents",
    "At rest: none.",
];

/// Of drains that came to their end, and of the host that could leave thereby.
const DRAINED: [&str; 4] = [
    "after the wish the host was empty: Nova has no server there and libvirt no guest",
    "servers went to hv-0",
    "after that the host was empty",
    "took the host out of its aggregates and deleted its compute service and its provider",
];

/// Of hosts whose servers cannot be moved anywhere.
const STUCK: [&str; 2] = ["There is no other host for its servers", "Its servers have nowhere to go"];

/// The story has all its chapters, and these sentences.
#[track_caller]
fn told(out: &str, besides: &[&str]) {
    // Lines are broken for reading; sentences are not.
    let text = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in SENTENCES.iter().chain(besides) {
        assert!(text.contains(sentence), "{sentence:?} is not in: {text}");
    }
}

#[test]
fn the_story_comes_to_its_end() {
    let said = run(PROGRAM, &["demo", "--fast"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    told(&said.out, &DRAINED);
    told(&said.out, &["hv-000: 6 of 6 servers moved", "and none of them is hv-003"]);
    assert!(!said.out.contains('█'), "bars are for terminals");
    assert!(said.out.contains("\nSummary\n") && said.out.contains("cobaltctl demo --hold"));
    assert!(!said.out.chars().any(|char| char.is_control() && char != '\n'), "no control codes in a pipe");
    for column in ["NAME", "READY", "REASON", "LIFECYCLE", "VMS", "CPU", "MEMORY", "LIBVIRT", "ZONE"] {
        assert!(said.out.contains(column), "{column}");
    }
}

#[test]
fn one_host_without_vms_is_a_story_too() {
    let said = run(PROGRAM, &["demo", "--fast", "--nodes", "1", "--vms", "0"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    told(&said.out, &STUCK);
}

#[test]
fn many_hosts_are_a_table_of_the_first() {
    let said = run(PROGRAM, &["demo", "--fast", "--nodes", "40", "--vms", "100", "--seed", "1"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    told(&said.out, &DRAINED);
    assert!(said.out.contains("… and 28 more"), "{}", said.out);
}

#[test]
fn verbose_shows_the_logs_of_the_programs() {
    let said = run(PROGRAM, &["demo", "--fast", "--verbose"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("created from its node"), "{}", said.err);
}

#[test]
fn bad_numbers_are_named() {
    run(PROGRAM, &["demo", "--nodes", "0"]).refused(2, &["'0'", "--nodes", "1..=500"]);
    run(PROGRAM, &["demo", "--nodes", "four"]).refused(2, &["four", "--nodes"]);
    run(PROGRAM, &["demo", "--vms", "-1"]).refused(2, &["-1"]);
    run(PROGRAM, &["demo", "--hold", "--port", "70000"]).refused(2, &["70000", "--port"]);
}

#[test]
fn a_port_is_of_use_with_hold_only() {
    run(PROGRAM, &["demo", "--port", "8001"]).refused(2, &["--hold"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = run(PROGRAM, &["demo", "--fast", "--hold", "--port", &port]);
    said.refused(1, &["error: ", &format!("127.0.0.1:{port}"), "--port", "in use"]);
}

#[test]
fn hold_serves_the_region_until_it_is_interrupted() {
    let mut demo = Running::start(command(PROGRAM).args(["demo", "--fast", "--hold", "--nodes", "2", "--vms", "4"]));
    let kubeconfig = demo.until("a kubeconfig", |out, _| {
        let line = out.lines().find(|line| line.contains("; kubectl get hypervisors"))?;
        let (_, rest) = line.split_once("export KUBECONFIG=")?;
        rest.split_once(';').map(|(path, _)| path.to_owned())
    });
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let (_, server) = text.split_once("http://").unwrap();
    let address: SocketAddr = server.lines().next().unwrap().parse().unwrap();
    let list = get(address, "/apis/kvm.cloud.sap/v1/hypervisors");
    assert!(list.contains("hv-000") && !list.contains("hv-001"), "what the story has left: {list}");
    demo.signal("INT");
    assert_eq!(demo.wait().code(), Some(0), "{}", demo.err());
    assert!(!Path::new(&kubeconfig).exists(), "the file goes with the region");
    told(&demo.out(), &DRAINED);
}

#[test]
fn an_interrupted_story_says_so() {
    let mut demo = Running::start(command(PROGRAM).args(["demo"]));
    demo.until("first chapter", |out, _| out.contains("1. Nodes appear").then_some(()));
    demo.signal("INT");
    assert_eq!(demo.wait().code(), Some(1), "{}", demo.err());
    assert!(demo.err().contains("error: interrupted"), "{}", demo.err());
}
