//! A host without systemd, or whose bus we cannot see.

use std::path::PathBuf;

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    host::{HostEvent, HostFeatures, HostSystem, OsFacts, Unit},
};
use futures::stream::BoxStream;
use tokio::sync::broadcast;

use crate::{events, facts, options::Options};

/// A host of which only the files are read: containers, other inits, development machines.
///
/// Its [features](HostSystem::features) are all false.
///
/// ```
/// use cobalt_core::host::HostSystem;
/// use cobalt_host::{Options, PlainHost};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cobalt_core::Result<()> {
/// let host = PlainHost::new(&Options::default());
/// let facts = host.facts().await?;
/// assert!(!host.features().units);
/// # let _ = facts;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PlainHost {
    root: PathBuf,
    // Never speaks; the streams end when it is dropped.
    events: broadcast::Sender<HostEvent>,
}

impl PlainHost {
    /// The host whose files are below the root of the options.
    pub fn new(options: &Options) -> Self {
        Self { root: options.root.clone(), events: events::channel() }
    }
}

#[async_trait]
impl HostSystem for PlainHost {
    fn features(&self) -> HostFeatures {
        HostFeatures::default()
    }

    async fn facts(&self) -> Result<OsFacts> {
        let root = self.root.clone();
        let read = move || facts::complete(facts::os_release(&root), facts::kernel_and_machine(&root));
        tokio::task::spawn_blocking(read).await.map_err(|error| Error::unavailable("read facts", error))
    }

    async fn units(&self, names: &[String]) -> Result<Vec<Unit>> {
        Err(Error::unsupported(format!("read units {}", names.join(", ")), "a host without systemd"))
    }

    fn events(&self) -> BoxStream<'static, HostEvent> {
        events::follow(self.events.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn its_events_end_with_it() {
        let host = PlainHost::new(&Options::default());
        let mut events = host.events();
        drop(host);
        assert_eq!(events.next().await, None);
    }

    #[tokio::test]
    async fn facts_are_read_anew_at_each_call() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join("proc/sys/kernel/osrelease");
        std::fs::create_dir_all(file.parent().expect("a parent")).expect("directories");
        let host = PlainHost::new(&Options::default().root(root.path()));
        for release in ["6.12.44", "6.12.50"] {
            std::fs::write(&file, release).expect("a file");
            assert_eq!(host.facts().await.expect("facts").kernel_release.as_deref(), Some(release));
        }
    }
}
