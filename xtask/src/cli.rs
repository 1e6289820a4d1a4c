//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Everything one does with this repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run every test: unit, documentation, simulated, and the real rigs that are available.
    ///
    /// Closes with `N passed, N failed, N skipped`; every skip is listed with its reason. Tests against a real
    /// Kubernetes API server run where KUBEBUILDER_ASSETS names a directory with `etcd` and `kube-apiserver`.
    Test(TestArguments),
    /// Do what CI does: format, lints, tests, documentation, snapshots, dependency rules.
    ///
    /// `.ci/run` calls exactly this.
    Ci,
    /// Start or stop a server to play with.
    Rig(RigArguments),
    /// Measure, and compare with peers.
    ///
    /// Every program and every criterion bench of the package `cobalt-benches` is one. Each figure is one object with `name`, `value`,
    /// `unit`, `against` and `ratio` (peer divided by ours: above 1 is better).
    Bench(BenchArguments),
    /// Check the generated files in the tree (CRDs, metrics, help texts), or write them anew.
    Snapshots(SnapshotArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TestArguments {
    /// Only the tests of one rig, with more output.
    ///
    /// `sim` is the simulated region: the conformance of its API server, in process and on a socket, and the
    /// programs that run on it. `kube` is the conformance of a real API server; without KUBEBUILDER_ASSETS
    /// nothing runs, which is said and ends with exit code 3. `libvirt` is everything that runs against hosts with a
    /// real libvirtd and QEMU, `ovs` against nodes with a real Open vSwitch and OVN, and `openstack` against a real
    /// Keystone, Placement, Glance and Nova.
    #[arg(long, value_name = "RIG")]
    pub(crate) rig: Option<RigName>,
}

#[derive(Debug, Args)]
pub(crate) struct RigArguments {
    #[command(subcommand)]
    pub(crate) action: RigAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RigAction {
    /// Start the rig in the background and print how to reach it.
    Up {
        /// Which one.
        rig: RigName,
    },
    /// Stop the rig that `up` started.
    Down {
        /// Which one.
        rig: RigName,
    },
}

/// The rigs that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RigName {
    /// A simulated region: its Kubernetes API and its OpenStack API, each on a socket.
    Sim,
    /// A real kube-apiserver with etcd, from KUBEBUILDER_ASSETS.
    Kube,
    /// Two hosts with a real libvirtd and QEMU each. Needs root.
    Libvirt,
    /// A node with a real Open vSwitch and OVN, a bond and two VMs. Needs root.
    Ovs,
    /// A real Keystone, Placement, Glance and Nova with three computes. Needs root.
    Openstack,
}

impl RigName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RigName::Sim => "sim",
            RigName::Kube => "kube",
            RigName::Libvirt => "libvirt",
            RigName::Ovs => "ovs",
            RigName::Openstack => "openstack",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Only this bench; without a name all of them.
    pub(crate) name: Option<String>,
    /// Print one JSON object per line and nothing else on the standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the names of the benches.
    #[arg(long, conflicts_with_all = ["name", "json"])]
    pub(crate) list: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotArguments {
    /// Write the files anew instead of comparing them.
    #[arg(long)]
    pub(crate) update: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_verb_has_help() {
        fn explained(command: &clap::Command) {
            for verb in command.get_subcommands() {
                assert!(verb.get_about().is_some(), "{} has no help", verb.get_name());
                explained(verb);
            }
            for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
                assert!(argument.get_help().is_some(), "{} has no help", argument.get_id());
            }
        }
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        explained(&command);
    }

    #[test]
    fn a_rig_that_does_not_exist_is_refused() {
        assert!(Cli::try_parse_from(["xtask", "test", "--rig", "sim"]).is_ok());
        assert!(Cli::try_parse_from(["xtask", "test", "--rig", "vmware"]).is_err());
        assert!(Cli::try_parse_from(["xtask", "frobnicate"]).is_err());
    }
}
