//! The hypervisor node agent.

mod backend;
mod look;

use std::process::ExitCode;

use clap::Parser;
use cobalt_core::{
    agent::program,
    runtime::{program::finish, shutdown::TaskError},
};

use self::backend::Kind;

/// Publishes how one host is: its versions, CPUs, memory, VMs and the state of its libvirt, as the status of its
/// Hypervisor.
#[derive(Parser, Clone, Debug)]
#[command(name = "cobalt-node-agent", version)]
struct Args {
    #[command(flatten)]
    look: look::LookArgs,
    #[command(flatten)]
    backend: backend::BackendArgs,
    #[command(flatten)]
    agent: program::Args,
}

async fn run(args: Args) -> Result<(), TaskError> {
    if args.look.once {
        return look::once(args).await;
    }
    let Args { backend, agent, .. } = args;
    let (libvirt, call_timeout) = (agent.libvirt.clone(), agent.call_timeout);
    let started = program::start(agent).await?;
    match backend.kind() {
        Kind::Simulated => {
            let (backend, host) = backend.simulated(started.node())?;
            started.run(backend, host, None).await?;
        }
        Kind::Libvirt => {
            let uri = started.libvirt_uri().await;
            let (backend, host) = backend.libvirt(&uri, &libvirt, call_timeout).await?;
            started.run(backend, host, Some(&uri)).await?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    // One agent runs on every host, beside paying guests: one thread is all it takes.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(args))))
}
