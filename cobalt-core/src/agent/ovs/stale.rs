//! Looking for stale flows: rarely, because it takes a dump of all flows, and on demand.
//!
//! A flow may be newer than what was read of the southbound database, so what one look finds is only suspected; what a
//! second look a little later finds again is stale.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    Error,
    agent::Section,
    ovs::OvsInspector,
    runtime::{clock::Clock, shutdown::Shutdown},
};

/// From a suspicion to the second look.
const CONFIRM: Duration = Duration::from_secs(30);
/// While there are stale flows one wants to know when they are gone: a part of the usual pause, but not less than this.
const AGAIN: (u32, Duration) = (6, Duration::from_secs(60));
/// A dump of a hundred thousand flows takes seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// However often somebody asks, two looks are this far apart: whoever may read must not keep switch and southbound
/// database busy.
const BREATH: Duration = Duration::from_secs(60);

/// The first look after a start is not before this: a host that boots has other things to do.
const SETTLED: Duration = Duration::from_secs(60);

/// Asks for a look at once, and says how it went. Cloned freely; all clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Demand(Arc<Wishes>);

#[derive(Debug, Default)]
struct Wishes {
    wish: Notify,
    stands: watch::Sender<Stands>,
}

/// How looking for stale flows stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stands {
    /// Whether somebody is looking now.
    pub looking: bool,
    /// How many looks have ended. One that was asked for while another was under way is the one after that.
    pub looks: u64,
    /// When the last one ended.
    pub at: Option<Timestamp>,
    /// What it found: cookies, and how many flows each has.
    pub found: Found,
}

impl Demand {
    /// Asks for a look for stale flows. Asking again before it has begun is asking once.
    pub fn look(&self) {
        self.0.wish.notify_one();
    }

    /// How it stands.
    pub fn stands(&self) -> Stands {
        self.0.stands.borrow().clone()
    }
}

type Found = Section<BTreeMap<u64, u64>>;

pub(super) struct Looks {
    pub(super) inspector: Arc<dyn OvsInspector>,
    pub(super) bridge: String,
    pub(super) pause: Option<Duration>,
    pub(super) demand: Demand,
    pub(super) found: watch::Sender<Found>,
    pub(super) clock: Clock,
    /// A fraction from zero to one, another each time.
    pub(super) jitter: fn() -> f64,
}

impl Looks {
    pub(super) async fn run(self, stop: Shutdown) -> Result<(), std::convert::Infallible> {
        let mut pause = self.pause.map(|usual| first(usual, (self.jitter)()));
        let mut rested = Instant::now();
        loop {
            let waiting = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.triggered() => return Ok(()),
                () = self.wanted(rested) => {}
                () = waiting => {}
            }
            self.demand.0.stands.send_modify(|stands| stands.looking = true);
            let found = tokio::select! {
                () = stop.triggered() => return Ok(()),
                found = self.look() => found,
            };
            let clean = found.known().is_some_and(BTreeMap::is_empty) || found == Section::NotOffered;
            pause = self.pause.map(|usual| next(usual, clean, (self.jitter)()));
            rested = Instant::now() + BREATH;
            self.demand.0.stands.send_modify(|stands| {
                let looks = stands.looks.saturating_add(1);
                *stands = Stands { looking: false, looks, at: Some(self.clock.now()), found: found.clone() };
            });
            self.found.send_if_modified(|last| {
                let new = *last != found;
                *last = found;
                new
            });
        }
    }

    /// Waits for somebody who asks, and until the last look is a while ago.
    async fn wanted(&self, rested: Instant) {
        self.demand.0.wish.notified().await;
        sleep_until(rested).await;
    }

    async fn look(&self) -> Found {
        look(self.inspector.as_ref(), &self.bridge).await
    }
}

/// How long after its start an agent looks. All agents of a cloud read one southbound database, and are often started
/// together, so that they are spread over the whole of the usual pause.
fn first(usual: Duration, fraction: f64) -> Duration {
    let least = usual.min(SETTLED);
    least + usual.saturating_sub(least).mul_f64(fraction.clamp(0.0, 1.0))
}

/// How long until the next look: the usual pause or a part of it, a quarter more or less.
fn next(usual: Duration, clean: bool, fraction: f64) -> Duration {
    let pause = if clean { usual } else { (usual / AGAIN.0).max(AGAIN.1).min(usual) };
    pause.mul_f64(0.75 + fraction.clamp(0.0, 1.0) / 2.0)
}

/// Looks for stale flows on a bridge: cookies and how many flows each has. Where a first look suspects some, a second
/// one half a minute later has to find them too.
pub async fn look(inspector: &dyn OvsInspector, bridge: &str) -> Section<BTreeMap<u64, u64>> {
    let first = ask(inspector, bridge).await;
    let Section::Known(suspected) = &first else { return first };
    if suspected.is_empty() {
        return first;
    }
    sleep(CONFIRM).await;
    match ask(inspector, bridge).await {
        Section::Known(second) => Section::Known(confirmed(suspected, second)),
        other => other,
    }
}

async fn ask(inspector: &dyn OvsInspector, bridge: &str) -> Found {
    if !inspector.features().southbound {
        return Section::NotOffered;
    }
    let answer = timeout(LIMIT, inspector.stale_flows(bridge)).await;
    answer.unwrap_or_else(|_| Err(Error::timeout("look for stale flows", LIMIT))).into()
}

/// What both looks found, in the numbers of the second.
fn confirmed(first: &BTreeMap<u64, u64>, second: BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
    second.into_iter().filter(|(cookie, _)| first.contains_key(cookie)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_that_start_together_look_apart_and_stay_near_their_interval() {
        let (hour, seconds) = (Duration::from_secs(3600), Duration::from_secs);
        assert_eq!([0.0, 0.5, 1.0].map(|part| first(hour, part)), [60, 1830, 3600].map(seconds));
        assert_eq!(first(seconds(2), 1.0), seconds(2));
        assert_eq!([0.0, 0.5, 1.0].map(|part| next(hour, true, part)), [2700, 3600, 4500].map(seconds));
        assert_eq!(next(hour, false, 0.5), seconds(600), "sooner, while there is something to be gone");
    }

    #[test]
    fn only_what_two_looks_found_is_stale() {
        let (first, second) = (BTreeMap::from([(1, 3), (2, 1)]), BTreeMap::from([(1, 2), (9, 9)]));
        assert_eq!(confirmed(&first, second), BTreeMap::from([(1, 2)]));
    }
}
