//! Follow all Hypervisors and print each change of `Ready`.
//!
//!     cargo run -p cobalt-examples --example hypervisor_watch              # on a simulated region, ends by itself
//!     cargo run -p cobalt-examples --example hypervisor_watch -- --cluster # on the cluster of your kubeconfig
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use cobalt_core::{api::Hypervisor, operator::Operator, runtime::shutdown::Shutdown};
use cobalt_sim::Region;
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher},
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if std::env::args().any(|argument| argument == "--cluster") {
        return follow(Client::try_default().await?, usize::MAX).await;
    }
    let region = Region::builder().hosts(3).build();
    let cluster = region.cluster().await?;
    cluster.join_all().await?;
    let stop = Shutdown::new();
    tokio::spawn(Operator::new(cluster.client("cobalt-operator")).run(stop.clone()));
    follow(cluster.client("watcher"), 3).await?;
    stop.trigger();
    Ok(())
}

/// Prints changes of `Ready` until so many hosts have been judged.
async fn follow(client: Client, enough: usize) -> anyhow::Result<()> {
    // The guard keeps one unreadable object from ending the watch for all.
    let api: Api<DeserializeGuard<Hypervisor>> = Api::all(client);
    let mut changes = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut known = BTreeMap::new();
    while let Some(DeserializeGuard(object)) = changes.try_next().await? {
        let hypervisor = match object {
            Ok(hypervisor) => hypervisor,
            Err(unreadable) => {
                println!("{}: cannot be read: {}", unreadable.metadata.name.unwrap_or_default(), unreadable.error);
                continue;
            }
        };
        let Some(ready) = hypervisor.condition("Ready") else { continue };
        let line = format!("Ready={} ({}) {}", ready.status, ready.reason, ready.message);
        if known.insert(hypervisor.name_any(), line.clone()).as_ref() != Some(&line) {
            println!("{}: {line}", hypervisor.name_any());
        }
        if known.len() >= enough {
            return Ok(());
        }
    }
    Ok(())
}
