//! `cargo xtask test`.

use std::process::{Command, ExitCode};

use anyhow::Result;
use serde_json::Value;

use crate::cli::{RigName, TestArguments};
use crate::report::Report;
use crate::workspace::{self, cargo};
use crate::{needs, rig};

/// One set of features for tests, lints and documentation, so that dependencies are compiled once.
pub(crate) const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

/// The integration test that holds servers to the recorded behaviour.
const CONFORMANCE: &str = "conformance";

/// The packages that make the simulated region.
const SIMULATED: [&str; 2] = ["cobalt-apiserver", "cobalt-sim"];

/// The integration tests on hosts with a real libvirtd: the hosts themselves, and what talks to them.
const LIBVIRT: [&str; 2] = ["hosts", "real"];

/// The integration tests on nodes with a real Open vSwitch: the nodes themselves, the clients, the agent, and the command
/// line.
const OVS: [&str; 4] = ["nodes", "real_switch", "real_agent", "real_ctl"];

/// The integration tests on a real OpenStack control plane, likewise: the plane, the clients, and the operator.
const OPENSTACK: [&str; 3] = ["openstack", "openstack-real", "operator-real"];

/// The seed of the property tests, which `cobalt-sim`'s laws have too.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "2026");

/// Nothing was run: neither success nor failure.
const NOTHING_RUN: u8 = 3;

pub(crate) fn run(arguments: &TestArguments) -> Result<ExitCode> {
    match arguments.rig {
        None | Some(RigName::Openstack) => needs::ensure_with_openstack()?,
        Some(_) => needs::ensure()?,
    }
    let mut report = Report::default();
    match arguments.rig {
        None => {
            report.tests("tests", unit(), false)?;
            report.tests("doc tests", documentation(), false)?;
            second_opinion(&mut report)?;
        }
        Some(RigName::Kube) if !rig::assets_are_configured() => {
            report.skip("rig kube", "neither KUBEBUILDER_ASSETS nor TEST_ASSET_KUBE_APISERVER is set");
            report.close();
            return Ok(ExitCode::from(NOTHING_RUN));
        }
        Some(RigName::Kube) => report.tests("conformance of a real server", conformance("real"), true)?,
        Some(RigName::Sim) => {
            report.tests("conformance of the simulated server", conformance("simulated"), true)?;
            let others = simulated(&workspace::metadata()?);
            report.tests("programs on the simulated region", named(&others), false)?;
        }
        Some(RigName::Libvirt) => {
            report.tests("hosts with a real libvirtd", named(&LIBVIRT.map(str::to_owned)), true)?;
            second_opinion(&mut report)?;
        }
        Some(RigName::Ovs) => {
            report.tests("nodes with a real Open vSwitch", named(&OVS.map(str::to_owned)), true)?;
        }
        Some(RigName::Openstack) => {
            report.tests("a real OpenStack control plane", named(&OPENSTACK.map(str::to_owned)), true)?;
        }
    }
    Ok(report.close())
}

/// All tests but those in documentation.
///
/// Plain `cargo test`, also where nextest is installed: one runner everywhere means one set of results, and
/// most time goes into compiling anyway.
pub(crate) fn unit() -> Command {
    let mut command = cargo(["test", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"]);
    seed(&mut command).args(EVERYTHING);
    command
}

/// The same cases in every run: a change is judged by what it changes, not by what chance finds. A seed of the caller's
/// own stands.
fn seed(command: &mut Command) -> &mut Command {
    let (name, value) = SEED;
    if std::env::var_os(name).is_none() {
        command.env(name, value);
    }
    command
}

pub(crate) fn documentation() -> Command {
    let mut command = cargo(["test", "--no-fail-fast", "--doc"]);
    command.args(EVERYTHING);
    command
}

/// The tests of the backend on libvirt's C library, which is a workspace of its own and needs the library's headers.
pub(crate) fn second_opinion(report: &mut Report) -> Result<()> {
    const NAME: &str = "libvirt's C library beside our client";
    if !needs::is_there(needs::LIBVIRT_HEADERS) {
        report.skip(NAME, "libvirt's headers are not installed (Debian: libvirt-dev)");
        return Ok(());
    }
    let mut command = cargo(["test", "--no-fail-fast", "--locked", "--manifest-path"]);
    command.arg(workspace::root().join("cobalt-libvirt/virt/Cargo.toml"));
    // Another lock file, so other versions: side by side in one directory they would push each other out.
    command.env("CARGO_TARGET_DIR", workspace::target().join("virt"));
    report.tests(NAME, command, false)
}

/// The conformance suite on one kind of server, with its table.
fn conformance(filter: &str) -> Command {
    let mut command = named(&[CONFORMANCE.to_owned()]);
    command.args([filter, "--", "--nocapture", "--test-threads=1"]);
    command
}

/// Some integration tests by name. All features of the whole workspace again: with fewer, everything below
/// would be compiled a second time.
fn named(tests: &[String]) -> Command {
    let mut command = cargo(["test", "--no-fail-fast"]);
    seed(&mut command).args(EVERYTHING).args(tests.iter().flat_map(|name| ["--test", name]));
    command
}

/// The integration tests of the simulated region, without the conformance suite.
fn simulated(metadata: &Value) -> Vec<String> {
    let ours = |package: &&Value| SIMULATED.iter().any(|name| package["name"] == *name);
    let packages = metadata["packages"].as_array().into_iter().flatten().filter(ours);
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test").filter_map(|target| target["name"].as_str());
    tests.filter(|name| *name != CONFORMANCE).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn property_tests_draw_the_same_cases_in_every_run() {
        for command in [unit(), named(&["loop".to_owned()])] {
            let mut set = command.get_envs();
            let seeded = set.any(|(name, value)| name == SEED.0 && value.is_some_and(|value| value == SEED.1));
            assert!(seeded || std::env::var_os(SEED.0).is_some(), "{command:?}");
        }
    }

    #[test]
    fn the_simulated_rig_is_every_integration_test_of_its_packages() {
        let metadata = json!({"packages": [
            {"name": "cobalt-core", "targets": [{"name": "api", "kind": ["test"]}]},
            {"name": "cobalt-sim", "targets": [
                {"name": "cobalt_sim", "kind": ["lib"]},
                {"name": "loop", "kind": ["test"]},
            ]},
            {"name": "cobalt-apiserver", "targets": [
                {"name": "conformance", "kind": ["test"]},
                {"name": "server", "kind": ["test"]},
            ]},
        ]});
        assert_eq!(simulated(&metadata), ["loop", "server"]);
    }
}
