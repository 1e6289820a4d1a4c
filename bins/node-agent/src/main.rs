//! The hypervisor node agent.

mod backend;

use std::process::ExitCode;

use clap::Parser;
use cobalt_core::{
    agent::program,
    runtime::{program::finish, shutdown::TaskError},
};

/// Publishes how one host is: its versions, CPUs, memory, VMs and the state of its libvirt, as the status of its
/// Hypervisor.
#[derive(Parser, Clone, Debug)]
#[command(name = "cobalt-node-agent", version)]
struct Args {
    #[command(flatten)]
    backend: backend::BackendArgs,
    #[command(flatten)]
    agent: program::Args,
}

async fn run(args: Args) -> Result<(), TaskError> {
    let (backend, host) = args.backend.open(&args.agent.node_name)?;
    Ok(program::run(args.agent, backend, host).await?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    // One agent runs on every host, beside paying guests: one thread is all it takes.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(args))))
}
