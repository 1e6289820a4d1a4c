//! One look at a region, shared by everybody who needs one.
//!
//! A controller that asks Nova about each of its hosts makes as many calls as there are hosts, at rest, for ever. A
//! [`RegionView`] asks once for all: services, hypervisors and aggregates are listed for the whole region at an interval
//! and after our own writes. Traits have no regional listing; they are read one provider after the other, the oldest
//! knowledge first, at a bounded rate. So the number of calls at rest does not depend on the number of hosts.
//!
//! Which servers a host has is in no listing either: Nova would read them host by host to answer it, each time. They are
//! read, in turn too, of those hosts only about which somebody wants to know ([`RegionView::follow_servers`]): those that
//! are being emptied, and those that have to stay empty.
//!
//! ```text
//!             interval over, or touched          answer
//!   listing ─────────────────────────▶ asking ───────────▶ snapshot: new items, new age
//!      ▲                                 │ error
//!      └──── retry, doubled each time ◀──┘            the old items stay, and grow old
//! ```
//!
//! With the feature `runtime` a view is a `Source` of metrics that tells its age.
//!
//! What is seen may be old: a [`Snapshot`] says how old each part is, and an act is to be checked with the cloud
//! itself right before it is done.
//!
//! ```
//! use std::sync::Arc;
//!
//! use cobalt_core::{ids::HostName, nova::{NovaClient, PlacementClient, view::{Part, RegionView, ViewOptions}}};
//!
//! async fn disable(
//!     nova: Arc<dyn NovaClient>,
//!     placement: Arc<dyn PlacementClient>,
//!     host: &HostName,
//! ) -> cobalt_core::Result<()> {
//!     let view = RegionView::new(nova.clone(), placement, ViewOptions::default());
//!     let watch = tokio::spawn(view.clone().run());
//!     let seen = view.relisted(Part::Services).await;
//!     if let Some(service) = seen.service_on(host) {
//!         nova.disable_service(&service.id, "maintenance").await?;
//!         view.touch(Part::Services);
//!     }
//!     watch.abort();
//!     Ok(())
//! }
//! ```

mod learned;
#[cfg(feature = "runtime")]
mod metrics;
mod snapshot;
mod timetable;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use learned::Learned;
pub use snapshot::{Listing, Snapshot};
use timetable::{Next, Task, Timetable};

use super::{ComputeService, NovaClient, NovaHypervisor, PlacementClient, Traits};
use crate::{
    Error, Result,
    ids::{AggregateId, HostName, ProviderId, ServiceId},
};

/// What a view lists for the whole region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Compute services.
    Services,
    /// Hypervisors.
    Hypervisors,
    /// Aggregates.
    Aggregates,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Services, Part::Hypervisors, Part::Aggregates];

    /// A short, bounded name for metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Services => "services",
            Part::Hypervisors => "hypervisors",
            Part::Aggregates => "aggregates",
        }
    }
}

/// How often a view looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewOptions {
    /// From the end of one listing to the beginning of the next, and so for the servers of a host that are followed.
    pub interval: Duration,
    /// The shortest time between two reads of traits, and between two of servers.
    pub trait_interval: Duration,
    /// How old the traits of a provider become before they are read again. With more providers than
    /// `trait_age / trait_interval` they become older.
    pub trait_age: Duration,
    /// The first wait after an error; it doubles up to the interval.
    pub retry: Duration,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            trait_interval: Duration::from_secs(1),
            trait_age: Duration::from_secs(5 * 60),
            retry: Duration::from_secs(2),
        }
    }
}

/// The region as we saw it last. Held as an [`Arc`] by everybody; one task runs it.
pub struct RegionView {
    nova: Arc<dyn NovaClient>,
    placement: Arc<dyn PlacementClient>,
    timetable: Mutex<Timetable>,
    learned: Mutex<Learned>,
    /// Why each part could not be listed the last time.
    trouble: Mutex<BTreeMap<Part, String>>,
    wake: Notify,
    seen: watch::Sender<Arc<Snapshot>>,
}

impl std::fmt::Debug for RegionView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionView").field("timetable", &self.timetable).finish_non_exhaustive()
    }
}

impl RegionView {
    /// A view that has seen nothing yet. [`RegionView::run`] makes it look.
    pub fn new(nova: Arc<dyn NovaClient>, placement: Arc<dyn PlacementClient>, options: ViewOptions) -> Arc<Self> {
        Arc::new(Self {
            nova,
            placement,
            timetable: Mutex::new(Timetable::new(options, Instant::now())),
            learned: Mutex::default(),
            trouble: Mutex::default(),
            wake: Notify::new(),
            seen: watch::Sender::new(Arc::new(Snapshot::default())),
        })
    }

    /// What was seen last. Cheap.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.seen.borrow().clone()
    }

    /// Why a part could not be listed the last time, with all causes; `None` while all is well.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.values().next().cloned()
    }

    /// Tells of every new snapshot.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.seen.subscribe()
    }

    /// Lists this part again soon, because we changed something in it.
    pub fn touch(&self, part: Part) {
        self.timetable().touch(part);
        self.wake.notify_one();
    }

    /// Reads a provider's traits again soon, because we changed them. The bounded rate holds.
    pub fn touch_traits(&self, id: &ProviderId) {
        self.timetable().touch_traits(id);
        self.wake.notify_one();
    }

    /// Reads the servers of this hypervisor too from now on, or no longer.
    ///
    /// Between the two its [`servers`](NovaHypervisor::servers) are there once they were read, and as they were read last.
    pub fn follow_servers(&self, id: &ProviderId, wanted: bool) {
        if self.timetable().follow_servers(id, wanted) {
            self.wake.notify_one();
        }
    }

    /// Waits for a listing that began after this call. How long that may take is the caller's to limit: while the
    /// cloud does not answer, there is none.
    pub async fn relisted(&self, part: Part) -> Arc<Snapshot> {
        let mut seen = self.seen.subscribe();
        let wanted = self.timetable().touch(part);
        self.wake.notify_one();
        // The sender lives as long as we do.
        match seen.wait_for(|snapshot| snapshot.number(part) >= wanted).await {
            Ok(snapshot) => snapshot.clone(),
            Err(_) => self.snapshot(),
        }
    }

    /// Takes a service as the cloud has just told it to us: newer than any list that began before.
    pub fn learn_service(&self, service: ComputeService) {
        self.learn(|learned, seen, now| {
            if let Some(listing) = &mut seen.services {
                listing.change(|items| learned::settle_service(items, &service.id, Some(&service)));
            }
            learned.service(service.id.clone(), Some(service), now);
        });
    }

    /// Takes it that a service is gone, because we have just deleted it.
    pub fn forget_service(&self, id: &ServiceId) {
        self.learn(|learned, seen, now| {
            if let Some(listing) = &mut seen.services {
                listing.change(|items| learned::settle_service(items, id, None));
            }
            learned.service(id.clone(), None, now);
        });
    }

    /// Takes a hypervisor and its servers as the cloud has just told them to us: newer than any list that began before.
    pub fn learn_hypervisor(&self, hypervisor: NovaHypervisor) {
        self.learn(|learned, seen, now| {
            if let Some(listing) = &mut seen.hypervisors {
                listing.change(|items| learned::settle_hypervisor(items, &hypervisor.id, Some(&hypervisor)));
            }
            learned.hypervisor(hypervisor.id.clone(), Some(hypervisor), now);
        });
    }

    /// Takes it that a hypervisor is gone, because its service or its provider was deleted.
    pub fn forget_hypervisor(&self, id: &ProviderId) {
        self.learn(|learned, seen, now| {
            if let Some(listing) = &mut seen.hypervisors {
                listing.change(|items| learned::settle_hypervisor(items, id, None));
            }
            seen.traits.remove(id);
            learned.hypervisor(id.clone(), None, now);
        });
    }

    /// Takes it that a host is a member of an aggregate, or not, because we have just made it so.
    pub fn learn_member(&self, aggregate: &AggregateId, host: &HostName, member: bool) {
        self.learn(|learned, seen, now| {
            if let Some(listing) = &mut seen.aggregates {
                listing.change(|items| learned::settle_member(items, aggregate, host, member));
            }
            learned.member(aggregate.clone(), host.clone(), member, now);
        });
    }

    /// Takes a provider's traits as Placement has just told them to us.
    pub fn learn_traits(&self, id: &ProviderId, traits: Traits) {
        self.publish(|seen, now| drop(seen.traits.insert(id.clone(), (Some(Arc::new(traits)), now))));
    }

    fn learn(&self, change: impl FnOnce(&mut Learned, &mut Snapshot, Instant)) {
        // The same order of locks as in a listing: first what was learnt, then what is seen.
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        self.publish(|seen, now| change(&mut learned, seen, now));
    }

    /// Looks, for ever: one call at a time. Dropping the future ends it.
    pub async fn run(self: Arc<Self>) {
        loop {
            let next = self.timetable().next(Instant::now());
            match next {
                Next::Do(task) => self.perform(&task).await,
                Next::At(time) => tokio::select! {
                    () = tokio::time::sleep_until(time) => {}
                    () = self.wake.notified() => {}
                },
            }
        }
    }

    async fn perform(&self, task: &Task) {
        let outcome = match task {
            Task::List(part, number) => self.list(*part, *number).await,
            Task::Traits(id) => self.read_traits(id).await,
            Task::Servers(id) => self.read_servers(id).await,
        };
        if let Task::List(part, _) = task {
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            match &outcome {
                Ok(()) => drop(trouble.remove(part)),
                Err(error) => drop(trouble.insert(*part, chain(error))),
            }
        }
        let retry_after = match &outcome {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(
                    category = error.category(),
                    error = error as &dyn std::error::Error,
                    "cannot see the region"
                );
                Some(if let Error::Unavailable { retry_after, .. } = error { *retry_after } else { None })
            }
        };
        self.timetable().done(task, Instant::now(), retry_after);
    }

    async fn list(&self, part: Part, number: u64) -> Result<()> {
        let began = Instant::now();
        let learned = || self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        match part {
            Part::Services => {
                let mut items = self.nova.services().await?;
                let mut learned = learned();
                learned.correct_services(&mut items, began);
                self.publish(|seen, now| seen.services = Some(Listing::new(items, number, now)));
            }
            Part::Hypervisors => {
                let mut items = self.nova.hypervisors().await?;
                let mut learned = learned();
                learned.correct_hypervisors(&mut items, began);
                let providers: BTreeSet<ProviderId> = items.iter().map(|hypervisor| hypervisor.id.clone()).collect();
                let followed = {
                    let mut timetable = self.timetable();
                    timetable.set_providers(&providers);
                    timetable.followed()
                };
                self.publish(|seen, now| {
                    seen.traits.retain(|id, _| providers.contains(id));
                    for item in items.iter_mut().filter(|item| item.servers.is_none() && followed.contains(&item.id)) {
                        item.servers = seen.hypervisor(&item.id).and_then(|known| known.servers.clone());
                    }
                    seen.hypervisors = Some(Listing::new(items, number, now));
                });
            }
            Part::Aggregates => {
                let mut items = self.nova.aggregates().await?;
                let mut learned = learned();
                learned.correct_aggregates(&mut items, began);
                self.publish(|seen, now| seen.aggregates = Some(Listing::new(items, number, now)));
            }
        }
        Ok(())
    }

    async fn read_traits(&self, id: &ProviderId) -> Result<()> {
        let traits = match self.placement.traits(id).await {
            Ok(traits) => Some(traits),
            // Its host is leaving, or somebody removed its provider: that it has none is what we know now.
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        self.seen.send_if_modified(|seen| {
            let (all, now) = (&mut Arc::make_mut(seen).traits, Instant::now());
            match all.get_mut(id) {
                // Nobody has to be woken because it was looked: with a thousand hosts there is a look each second.
                Some((known, at)) if known.as_deref() == traits.as_ref() => {
                    *at = now;
                    false
                }
                _ => {
                    all.insert(id.clone(), (traits.map(Arc::new), now));
                    true
                }
            }
        });
        Ok(())
    }

    async fn read_servers(&self, id: &ProviderId) -> Result<()> {
        match self.nova.hypervisor(id).await {
            Ok(hypervisor) => self.learn_hypervisor(hypervisor),
            // The next listing knows.
            Err(error) if error.is_not_found() => self.touch(Part::Hypervisors),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn publish(&self, change: impl FnOnce(&mut Snapshot, Instant)) {
        self.seen.send_modify(|seen| change(Arc::make_mut(seen), Instant::now()));
    }

    fn timetable(&self) -> MutexGuard<'_, Timetable> {
        self.timetable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
