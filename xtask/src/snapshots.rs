//! `cargo xtask snapshots`: generated files that are kept in the tree, so that a change shows in review.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::cli::SnapshotArguments;
use crate::report::Report;
use crate::test::EVERYTHING;
use crate::workspace::cargo;

/// Set while snapshots are to be written; the tests that compare them know it.
const UPDATE: &str = "COBALT_UPDATE_SNAPSHOTS";

/// A kind of kept files, and the test that compares them: its program and (part of) its name.
const KINDS: [(&str, &str, &str); 4] = [
    ("CRDs", "api", "the_files_in_deploy_crds_are_up_to_date"),
    ("metrics", "runtime", "the_metrics_are_the_documented_ones"),
    ("metrics of the programs", "cli", "the_metrics_are_as_in_the_snapshot"),
    ("help texts", "cli", "the_help_is_as_in_the_snapshot"),
];

pub(crate) fn run(arguments: &SnapshotArguments) -> Result<ExitCode> {
    let mut report = Report::default();
    for (what, program, test) in KINDS {
        let mut command = command(program, test);
        if arguments.update {
            // The second is insta's own.
            command.env(UPDATE, "1").env("INSTA_UPDATE", "always");
        }
        let verb = if arguments.update { "write" } else { "compare" };
        report.tests(&format!("{verb} {what}"), command, false)?;
    }
    Ok(report.close())
}

fn command(program: &str, test: &str) -> Command {
    let mut command = cargo(["test", "--no-fail-fast", "--test", program]);
    command.args(EVERYTHING).args(["--", test]);
    command
}
