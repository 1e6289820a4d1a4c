//! Our side of the comparison, a process of its own.

use std::path::Path;

use anyhow::Context;
use cobalt_ovs::{
    OvsInspector, OvsOptions, OvsSwitch,
    openflow::{OpenFlow, Options, flow_counts},
};
use futures::TryStreamExt;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum What {
    /// A whole snapshot.
    Inventory,
    /// Flows, from the tables' statistics.
    Count,
    /// Flows, from a dump.
    Dump,
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Inventory => "inventory",
            What::Count => "count",
            What::Dump => "dump",
        }
    }
}

/// The client: one thread, as in the agent.
#[expect(clippy::print_stdout, reason = "standard output is the interface of these programs")]
pub(crate) async fn client(directory: &Path, what: What) -> anyhow::Result<()> {
    let bridge = async || OpenFlow::connect(directory.join("br-int.mgmt"), Options::default()).await;
    let found = match what {
        What::Inventory => {
            let options = OvsOptions::new().run_dir(directory).ovn_run_dir(directory);
            let switch = OvsSwitch::connect(options).await.context("connect")?;
            let snapshot = switch.snapshot().await?;
            // Kept until the memory has been looked at.
            let count = snapshot.interfaces.len();
            println!("done {count}");
            return wait().await;
        }
        What::Count => flow_counts(&bridge().await?.table_stats().await?).values().sum::<u64>(),
        What::Dump => bridge().await?.flows(None).try_fold(0, async |count, _flow| Ok(count + 1)).await?,
    };
    println!("done {found}");
    wait().await
}

async fn wait() -> anyhow::Result<()> {
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await?;
    Ok(())
}
