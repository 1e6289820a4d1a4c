//! `cargo xtask ci`: everything a change must pass.
//!
//! The order is by speed of the answer. Lints, tests and documentation share one set of features, so the
//! dependencies are compiled twice in all: once as metadata (lints, documentation) and once as code (tests).

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::report::Report;
use crate::test::{self, EVERYTHING};
use crate::workspace::{self, cargo};
use crate::{needs, policy};

pub(crate) fn run() -> Result<ExitCode> {
    needs::ensure_with_openstack()?;
    let mut report = Report::default();

    // The names of the files say enough; `cargo fmt` is the remedy.
    report.command("format", cargo(["fmt", "--all", "--check", "--", "--files-with-diff"]))?;
    policy(&mut report)?;
    lock_file(&mut report)?;

    let mut clippy = cargo(["clippy", "--keep-going", "--all-targets"]);
    clippy.args(EVERYTHING).args(["--", "-D", "warnings"]);
    report.command("lints", clippy)?;

    let mut documentation = cargo(["doc", "--no-deps"]);
    documentation.args(EVERYTHING).env("RUSTDOCFLAGS", "-D warnings");
    report.command("documentation", documentation)?;

    // Snapshots of CRDs, metrics and help texts are compared by tests among these.
    report.tests("tests", test::unit(), false)?;
    report.tests("doc tests", test::documentation(), false)?;
    test::second_opinion(&mut report)?;

    // What `cargo add cobalt-core` gives must compile without what the binaries switch on.
    report.command(
        "default features",
        cargo(["check", "--package", "cobalt-core", "--package", "cobalt-apiserver", "--package", "cobalt-libvirt"]),
    )?;
    Ok(report.close())
}

/// A lock file that does not fit the manifests is mended by cargo in silence, on every machine anew. On CI the
/// tree is what was committed, so a change shows.
fn lock_file(report: &mut Report) -> Result<()> {
    if std::env::var_os("CI").is_none() || !needs::on_path("git") || !workspace::root().join(".git").exists() {
        return Ok(());
    }
    report.check("lock file", || {
        let mut command = Command::new("git");
        command.args(["diff", "--quiet", "--", "Cargo.lock"]).current_dir(workspace::root());
        // 1 is a difference; anything else is git's own trouble with the checkout, which is not ours to judge.
        let changed = command.status().context("cannot run git")?.code() == Some(1);
        Ok(changed.then(|| "Cargo.lock was changed by this build: commit the new one".to_owned()).into_iter().collect())
    })
}

/// The rules about dependencies.
///
/// Our own reading of `deny.toml` (licences, duplicate versions, sources) needs nothing but cargo. cargo-deny
/// checks the same and the advisories, where it is installed: building it takes more than two minutes on two
/// cores, and its advisory database comes from GitHub, so CI does not depend on it.
fn policy(report: &mut Report) -> Result<()> {
    let rules = policy::Rules::load()?;
    let tree = policy::Tree::load(&rules)?;
    report.check("minimum Rust version", || Ok(policy::rust_version(&tree)))?;
    report.check("licences", || Ok(policy::licences(&tree, &rules)))?;
    report.check("duplicate versions", || Ok(policy::duplicates(&tree, &rules)))?;
    report.check("sources", || Ok(policy::sources(&tree, &rules)))?;
    if needs::on_path("cargo-deny") {
        report.command("cargo-deny", cargo(["deny", "check", "bans", "licenses", "sources"]))?;
        let fetched = cargo(["deny", "fetch", "db"]).output().is_ok_and(|output| output.status.success());
        if fetched {
            report.command("advisories", cargo(["deny", "check", "--disable-fetch", "advisories"]))?;
        } else {
            report.skip("advisories", "the advisory database cannot be fetched from GitHub");
        }
    } else {
        report.skip("advisories", "cargo-deny is not installed (cargo install cargo-deny --locked)");
    }
    Ok(())
}
