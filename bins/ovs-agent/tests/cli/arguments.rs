//! What it says about itself, and about input it cannot work with.

use crate::{
    PROGRAM,
    testing::{help_is, run},
};

#[test]
fn the_help_is_as_in_the_snapshot() {
    help_is(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), "help", PROGRAM, &["--help"]);
}

#[test]
fn the_version_names_the_program() {
    let said = run(PROGRAM, &["--version"]);
    assert_eq!(said.out, concat!("cobalt-ovs-agent ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_inspector_that_does_not_exist_is_refused_with_those_that_do() {
    run(PROGRAM, &["--inspector", "vpp"]).refused(2, &["vpp", "ovs", "simulated"]);
}

#[test]
fn a_remote_that_is_none_is_named() {
    run(PROGRAM, &["--once", "--southbound", "nowhere"]).refused(1, &["error: ", "nowhere"]);
    run(PROGRAM, &["--once", "--ovs-database", "carrier-pigeon:1"]).refused(1, &["error: ", "carrier-pigeon"]);
}

#[test]
fn a_certificate_without_its_key_is_refused() {
    run(PROGRAM, &["--ssl-ca-cert", "ca.pem", "--ssl-certificate", "me.pem"]).refused(2, &["--ssl-private-key"]);
}

#[test]
fn a_missing_kubeconfig_is_named() {
    let args = ["--inspector", "simulated", "--admin-bind-address", "0", "--kubeconfig", "/nowhere/kubeconfig"];
    run(PROGRAM, &args).refused(1, &["error: ", "/nowhere/kubeconfig", "No such file"]);
}
