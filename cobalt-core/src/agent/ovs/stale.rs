//! Looking for stale flows: rarely, because it takes a dump of all flows, and on demand.
//!
//! A flow may be newer than what was read of the southbound database, so what one look finds is only suspected; what a
//! second look a little later finds again is stale.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use crate::{Error, agent::Section, ovs::OvsInspector, runtime::shutdown::Shutdown};

/// From a suspicion to the second look.
const CONFIRM: Duration = Duration::from_secs(30);
/// While there are stale flows one wants to know when they are gone: a part of the usual pause, but not less than this.
const AGAIN: (u32, Duration) = (6, Duration::from_secs(60));
/// A dump of a hundred thousand flows takes seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Asks for a look at once. Cloned freely.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<Notify>);

impl Demand {
    /// Asks for a look for stale flows. Asking again before it has begun is asking once.
    pub fn look(&self) {
        self.0.notify_one();
    }
}

type Found = Section<BTreeMap<u64, u64>>;

pub(super) struct Looks {
    pub(super) inspector: Arc<dyn OvsInspector>,
    pub(super) bridge: String,
    pub(super) pause: Option<Duration>,
    pub(super) demand: Demand,
    pub(super) found: watch::Sender<Found>,
}

impl Looks {
    pub(super) async fn run(self, stop: Shutdown) -> Result<(), std::convert::Infallible> {
        // Not at the start: a host that boots has other things to do, and so has its southbound database.
        let mut pause = self.pause.map(|pause| pause.min(Duration::from_secs(60)));
        loop {
            let waiting = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.triggered() => return Ok(()),
                () = self.demand.0.notified() => {}
                () = waiting => {}
            }
            let found = tokio::select! {
                () = stop.triggered() => return Ok(()),
                found = self.look() => found,
            };
            let clean = found.known().is_some_and(BTreeMap::is_empty) || found == Section::NotOffered;
            pause = self.pause.map(|usual| if clean { usual } else { (usual / AGAIN.0).max(AGAIN.1).min(usual) });
            self.found.send_if_modified(|last| {
                let new = *last != found;
                *last = found;
                new
            });
        }
    }

    async fn look(&self) -> Found {
        let first = self.ask().await;
        let Section::Known(suspected) = &first else { return first };
        if suspected.is_empty() {
            return first;
        }
        sleep(CONFIRM).await;
        match self.ask().await {
            Section::Known(second) => Section::Known(confirmed(suspected, second)),
            other => other,
        }
    }

    async fn ask(&self) -> Found {
        if !self.inspector.features().southbound {
            return Section::NotOffered;
        }
        let answer = timeout(LIMIT, self.inspector.stale_flows(&self.bridge)).await;
        answer.unwrap_or_else(|_| Err(Error::timeout("look for stale flows", LIMIT))).into()
    }
}

/// What both looks found, in the numbers of the second.
fn confirmed(first: &BTreeMap<u64, u64>, second: BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
    second.into_iter().filter(|(cookie, _)| first.contains_key(cookie)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_two_looks_found_is_stale() {
        let (first, second) = (BTreeMap::from([(1, 3), (2, 1)]), BTreeMap::from([(1, 2), (9, 9)]));
        assert_eq!(confirmed(&first, second), BTreeMap::from([(1, 2)]));
    }
}
