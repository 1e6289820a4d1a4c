//! The demo's own eyes: watches on the Hypervisors and Evictions, and waiting for what it shows.
//!
//! Nothing is told that was not seen here, so that the story is what any other client of the API server sees too.

use std::{fmt::Display, sync::Arc, time::Duration};

use cobalt_core::{
    api::{Eviction, Hypervisor},
    runtime::{
        metrics::Metrics,
        shutdown::TaskGroup,
        state::Status,
        watch::{ObjectKey, Store, watched_store},
    },
};
use kube::{Api, Client, runtime::watcher};
use tokio::sync::watch;

use super::DemoError;

/// Longer than anything in the story takes, with many hosts on a slow machine that does other things too.
pub(super) const LIMIT: Duration = Duration::from_secs(300);

/// What the API server shows of the Hypervisors and Evictions.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    store: Store<Hypervisor>,
    evictions: Store<Eviction>,
    changed: watch::Receiver<()>,
}

impl Observer {
    /// Starts to watch, as one of the tasks of `group`.
    pub(super) fn start(client: Client, status: &Status, metrics: Arc<Metrics>, group: &TaskGroup) -> Self {
        let (sender, changed) = watch::channel(());
        let drained = sender.clone();
        let (evictions, eviction_watch) = watched_store::<Eviction>(
            "Eviction",
            Api::all(client.clone()),
            watcher::Config::default(),
            metrics.clone(),
        )
        .on_touch(move |_| {
            let _ = drained.send(());
        })
        .build(status);
        group.spawn("watch evictions", eviction_watch.run(group.stopping()));
        let (store, watch) =
            watched_store::<Hypervisor>("Hypervisor", Api::all(client), watcher::Config::default(), metrics)
                .on_touch(move |_| {
                    // Nobody listens any more once the story is over.
                    let _ = sender.send(());
                })
                .build(status);
        group.spawn("watch hypervisors", watch.run(group.stopping()));
        Self { store, evictions, changed }
    }

    /// All Hypervisors.
    pub(super) fn all(&self) -> Vec<Arc<Hypervisor>> {
        self.store.list()
    }

    /// One Hypervisor.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Hypervisor>> {
        self.store.get(&ObjectKey::cluster(name))
    }

    /// All Evictions, by name.
    pub(super) fn evictions(&self) -> Vec<Arc<Eviction>> {
        let mut evictions = self.evictions.list();
        evictions.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        evictions
    }

    /// One Eviction.
    pub(super) fn eviction(&self, name: &str) -> Option<Arc<Eviction>> {
        self.evictions.get(&ObjectKey::cluster(name))
    }

    /// Waits for the next change.
    pub(super) async fn changed(&mut self) -> Result<(), DemoError> {
        self.changed.changed().await.map_err(|_| DemoError::WatchEnded)
    }

    /// Waits until `look` finds what it looks for; `what` completes the sentence "waited for".
    pub(super) async fn until<T>(
        &self,
        what: impl Display,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> Result<T, DemoError> {
        let mut watching = self.clone();
        let search = async {
            loop {
                // Marked as seen before looking, so that a change during the look is not slept through.
                watching.changed.mark_unchanged();
                if let Some(found) = look(&watching) {
                    return Ok(found);
                }
                watching.changed().await?;
            }
        };
        tokio::time::timeout(LIMIT, search)
            .await
            .unwrap_or_else(|_| Err(DemoError::NotSeen { what: what.to_string(), limit: LIMIT }))
    }

    /// Waits until one Hypervisor is as `is` wants it.
    pub(super) async fn until_one(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Hypervisor) -> bool,
    ) -> Result<Arc<Hypervisor>, DemoError> {
        self.until(format!("Hypervisor {name} {what}"), |seen| seen.get(name).filter(|found| is(found))).await
    }
}
