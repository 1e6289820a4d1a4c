//! `cobaltctl` as its users meet it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../testing.rs"]
mod testing;

mod crds;
mod demo;
mod forward;
mod ovs;
mod plan;

use testing::{help_is, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cobaltctl");

#[test]
fn the_help_is_as_in_the_snapshots() {
    let snapshots = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots");
    help_is(snapshots, "help", PROGRAM, &["--help"]);
    help_is(snapshots, "help-demo", PROGRAM, &["demo", "--help"]);
    help_is(snapshots, "help-crds", PROGRAM, &["crds", "--help"]);
    help_is(snapshots, "help-ovs", PROGRAM, &["ovs", "--help"]);
    help_is(snapshots, "help-plan", PROGRAM, &["plan", "--help"]);
    help_is(snapshots, "help-plan-evict", PROGRAM, &["plan", "evict", "--help"]);
    for verb in ["status", "trace", "capture", "doctor"] {
        help_is(snapshots, &format!("help-ovs-{verb}"), PROGRAM, &["ovs", verb, "--help"]);
    }
}

#[test]
fn the_version_names_the_program() {
    assert_eq!(run(PROGRAM, &["--version"]).out, concat!("cobaltctl ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_unknown_verb_or_flag_is_named() {
    run(PROGRAM, &["explode"]).refused(2, &["explode", "--help"]);
    run(PROGRAM, &["demo", "--colour"]).refused(2, &["--colour", "--help"]);
    run(PROGRAM, &[]).refused(2, &["demo", "crds"]);
}
