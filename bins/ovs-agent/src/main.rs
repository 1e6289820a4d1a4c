//! The OVS agent.

mod inspector;
mod look;
mod table;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use cobalt_core::{
    agent::ovs::program,
    runtime::{program::finish, shutdown::TaskError},
};

/// Publishes how the virtual switch of one host is: its bridges, cards, bonds and flows, ovn-controller, and what is
/// wrong, as its OVSNode.
///
/// It observes. No port and no flow is ever removed.
#[derive(Parser, Clone, Debug)]
#[command(name = "cobalt-ovs-agent", version)]
struct Args {
    #[command(flatten)]
    look: look::LookArgs,
    #[command(flatten)]
    inspector: inspector::InspectorArgs,
    #[command(flatten)]
    agent: program::Args,
}

/// How long the removal of a capture's mirror may take at the end.
const TIDYING: Duration = Duration::from_secs(30);

async fn run(args: Args) -> Result<(), TaskError> {
    if args.look.once {
        return look::once(args).await;
    }
    let Args { inspector, agent, .. } = args;
    let started = program::start(agent).await?;
    let (switch, real) = inspector.follow(started.node()).await?;
    let ended = started.run(switch).await;
    if let Some(real) = real
        && tokio::time::timeout(TIDYING, real.settled()).await.is_err()
    {
        tracing::warn!("the mirror of a capture may be left on the switch; the next agent removes it");
    }
    Ok(ended?)
}

fn main() -> ExitCode {
    let args = Args::parse();
    // One agent runs on every host, beside paying guests: one thread is all it takes.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(args))))
}
