//! `--once`: what would be published, without a cluster.

use serde_json::Value;

use crate::{
    PROGRAM,
    testing::{Said, Scratch, run},
};

fn look(args: &[&str]) -> Said {
    let mut all = vec!["--once", "--node-name", "node-1"];
    all.extend(args);
    run(PROGRAM, &all)
}

fn condition<'a>(published: &'a Value, type_: &str) -> &'a Value {
    let list = published["status"]["conditions"].as_array().unwrap();
    list.iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

#[test]
fn a_simulated_switch_is_printed_as_its_ovsnode() {
    let said = look(&["--inspector", "simulated", "--simulated-vms", "4"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let seen: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&seen["kind"], &seen["metadata"]["name"]), (&"OVSNode".into(), &"node-1".into()));
    assert_eq!(seen["metadata"]["namespace"], "ovn-system");
    assert_eq!(condition(&seen, "Ready")["status"], "True");
    assert_eq!(seen["status"]["bridges"].as_array().unwrap().len(), 3);
}

#[test]
fn it_is_printed_as_tables_too() {
    let said = look(&["--inspector", "simulated", "--output", "table", "--required-bridges", "br-storage"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for words in ["BridgeMissing", "AllBondsHealthy", "br-provider", "bond0", "eth3", "100Gbps", "2/2"] {
        assert!(said.out.contains(words), "{words} is not in:\n{}", said.out);
    }
}

#[test]
fn how_to_print_makes_no_sense_without_something_to_print() {
    run(PROGRAM, &["--output", "table"]).refused(2, &["--once"]);
}

#[test]
fn a_switch_that_is_not_there_is_a_failure_that_still_says_what_is_known() {
    let scratch = Scratch::new();
    let nowhere = scratch.path("run").display().to_string();
    let said = look(&["--ovs-run-dir", &nowhere, "--ovn-run-dir", &nowhere, "--once-timeout", "200ms"]);
    said.refused(1, &["error: look at the switch"]);
    let seen: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(condition(&seen, "OVSDBConnected")["reason"], "DatabaseDisconnected");
    assert_eq!(condition(&seen, "Ready")["status"], "False");
    assert_eq!(condition(&seen, "AllBridgesHealthy")["status"], "Unknown");
}
