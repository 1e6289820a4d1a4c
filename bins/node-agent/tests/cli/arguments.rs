//! What it says about itself, and about input it cannot work with.

use std::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{Said, Scratch, help_is, run},
};

fn run_simulated(args: &[&str]) -> Said {
    let mut all = vec!["--backend", "simulated", "--node-name", "node-1"];
    all.extend(args);
    run(PROGRAM, &all)
}

#[test]
fn the_help_is_as_in_the_snapshot() {
    help_is(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), "help", PROGRAM, &["--help"]);
}

#[test]
fn the_version_names_the_program() {
    let said = run(PROGRAM, &["--version"]);
    assert_eq!(said.out, concat!("cobalt-node-agent ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_backend_must_be_chosen() {
    run(PROGRAM, &["--node-name", "node-1"]).refused(2, &["--backend", "--help"]);
}

#[test]
fn a_backend_that_does_not_exist_is_refused_with_those_that_do() {
    run(PROGRAM, &["--backend", "libvirt", "--node-name", "node-1"]).refused(2, &["libvirt", "simulated"]);
}

#[test]
fn the_node_must_be_named() {
    run(PROGRAM, &["--backend", "simulated"]).refused(2, &["--node-name"]);
}

#[test]
fn an_unknown_flag_is_named() {
    run_simulated(&["--simulated-disks", "3"]).refused(2, &["--simulated-disks", "--help"]);
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let said = run_simulated(&["--admin-bind-address", "0", "--kubeconfig", "/nowhere/kubeconfig"]);
    said.refused(1, &["error: ", "/nowhere/kubeconfig", "No such file"]);
}

#[test]
fn a_kubeconfig_that_is_no_yaml_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file("kubeconfig", "clusters: [unclosed\n");
    run_simulated(&["--admin-bind-address", "0", "--kubeconfig", &path]).refused(1, &["error: ", &path]);
}

#[test]
fn an_admin_port_in_use_is_named_with_the_flag_to_change_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = run_simulated(&["--admin-bind-address", &address, "--kubeconfig", "/nowhere"]);
    said.refused(1, &["error: ", &address, "--admin-bind-address", "in use"]);
}
