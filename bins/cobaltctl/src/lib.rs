//! The command line of Cobalt as a library: [`Args`] is what a person typed, [`Args::run`] does it.

pub mod crds;
pub mod demo;
pub mod ovs;
pub mod plan;

use std::{io, process::ExitCode};

use clap::{Parser, Subcommand};
use cobalt_core::runtime::{program::finish, shutdown::TaskError};

/// Shows and helps to run Cobalt, the compute side of an OpenStack cloud on Kubernetes.
#[derive(Parser, Clone, Debug)]
#[command(name = "cobaltctl", version, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Tell the story of a simulated region, live: no cluster, no root, one process
    Demo(demo::Args),
    /// Print the CustomResourceDefinitions as YAML
    Crds(crds::Args),
    /// Look into the virtual switch of one host: its status, a packet's way, a capture, what is wrong
    Ovs(Box<ovs::Args>),
    /// Say what the drain of a host would do, and do nothing
    Plan(plan::Args),
}

impl Args {
    /// Does what was asked for. Errors are on standard error and in the exit code.
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Demo(args) => demo::main(args).map_err(TaskError::from),
            Command::Crds(args) => crds::run(&args, &mut io::stdout().lock()).map_err(TaskError::from),
            Command::Ovs(args) => return ovs::main(*args),
            Command::Plan(args) => return plan::main(args),
        };
        match result {
            Err(error) if is_closed_pipe(error.as_ref()) => ExitCode::SUCCESS,
            result => finish(result),
        }
    }
}

/// Whoever reads our output has seen enough (`| head`), which is no failure.
fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        next = error.source();
    }
    false
}
