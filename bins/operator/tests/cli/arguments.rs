//! What it says about itself, and about input it cannot work with.

use std::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{Scratch, help_is, run},
};

#[test]
fn the_help_is_as_in_the_snapshot() {
    help_is(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), "help", PROGRAM, &["--help"]);
}

#[test]
fn the_version_names_the_program() {
    let said = run(PROGRAM, &["--version"]);
    assert_eq!(said.out, concat!("cobalt-operator ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_unknown_flag_is_named() {
    run(PROGRAM, &["--leader-elected"]).refused(2, &["--leader-elected", "--leader-elect", "--help"]);
}

#[test]
fn a_malformed_value_is_named_with_what_was_expected() {
    run(PROGRAM, &["--workers", "many"]).refused(2, &["many", "--workers"]);
    run(PROGRAM, &["--admin-bind-address", "8081"]).refused(2, &["8081", "--admin-bind-address", "IP:PORT"]);
    run(PROGRAM, &["--shutdown-grace-period", "soon"]).refused(2, &["soon", "15s"]);
}

#[test]
fn a_log_filter_that_is_none_is_named() {
    run(PROGRAM, &["--log-level", "cobalt=loud", "--admin-bind-address", "0"])
        .refused(1, &["error: ", "cobalt=loud", "--log-level"]);
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let said = run(PROGRAM, &["--admin-bind-address", "0", "--kubeconfig", "/nowhere/kubeconfig"]);
    said.refused(1, &["error: ", "/nowhere/kubeconfig", "No such file"]);
}

#[test]
fn a_kubeconfig_that_is_no_yaml_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file("kubeconfig", "clusters: [unclosed\n");
    run(PROGRAM, &["--admin-bind-address", "0", "--kubeconfig", &path]).refused(1, &["error: ", &path]);
}

#[test]
fn an_empty_kubeconfig_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file("kubeconfig", "\n");
    run(PROGRAM, &["--admin-bind-address", "0", "--kubeconfig", &path]).refused(1, &["error: ", &path, "empty"]);
}

#[test]
fn an_unknown_context_is_named() {
    let scratch = Scratch::new();
    let path = scratch.file(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: here\nclusters:\n- name: here\n  cluster: {server: 'http://127.0.0.1:1'}\n\
         contexts:\n- name: here\n  context: {cluster: here, user: me}\nusers:\n- name: me\n  user: {}\n",
    );
    let said = run(PROGRAM, &["--admin-bind-address", "0", "--kubeconfig", &path, "--context", "there"]);
    said.refused(1, &["error: ", &path, "\"there\"", "no such context"]);
}

#[test]
fn no_way_to_the_api_at_all_says_where_it_was_looked_for() {
    let said = run(PROGRAM, &["--admin-bind-address", "0"]);
    said.refused(1, &["error: ", "--kubeconfig", "$KUBECONFIG", "service account"]);
}

#[test]
fn an_admin_port_in_use_is_named_with_the_flag_to_change_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = run(PROGRAM, &["--admin-bind-address", &address, "--kubeconfig", "/nowhere"]);
    said.refused(1, &["error: ", &address, "--admin-bind-address", "in use"]);
}
