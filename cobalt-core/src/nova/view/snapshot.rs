//! What a view has seen.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::Part;
use crate::{
    ids::{HostName, ProviderId, ServiceId},
    nova::{Aggregate, ComputeService, NovaHypervisor, Traits},
};

/// A whole list, and when it was complete.
#[derive(Debug)]
pub struct Listing<T> {
    items: Arc<[T]>,
    number: u64,
    at: Instant,
}

// Not derived: a list is shared, whatever is in it.
impl<T> Clone for Listing<T> {
    fn clone(&self) -> Self {
        Self { items: self.items.clone(), number: self.number, at: self.at }
    }
}

impl<T> Listing<T> {
    pub(super) fn new(items: Vec<T>, number: u64, at: Instant) -> Self {
        Self { items: items.into(), number, at }
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Vec<T>))
    where
        T: Clone,
    {
        let mut items = self.items.to_vec();
        change(&mut items);
        self.items = items.into();
    }

    /// What was listed, in the order of the seam.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The shared list itself.
    pub fn into_items(self) -> Arc<[T]> {
        self.items
    }

    /// How long ago that was.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

/// The region at some moments not long ago. A part that was never seen is `None`, which is not the same as empty.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Compute services.
    pub services: Option<Listing<ComputeService>>,
    /// Hypervisors, with their servers where those are followed.
    pub hypervisors: Option<Listing<NovaHypervisor>>,
    /// Aggregates.
    pub aggregates: Option<Listing<Aggregate>>,
    /// `None` where there is no such provider. Shared: each new look is a copy of the last one with one thing changed.
    pub(super) traits: BTreeMap<ProviderId, (Option<Arc<Traits>>, Instant)>,
}

impl Snapshot {
    pub(super) fn number(&self, part: Part) -> u64 {
        let number = match part {
            Part::Services => self.services.as_ref().map(|listing| listing.number),
            Part::Hypervisors => self.hypervisors.as_ref().map(|listing| listing.number),
            Part::Aggregates => self.aggregates.as_ref().map(|listing| listing.number),
        };
        number.unwrap_or(0)
    }

    /// How old a part is; `None` if it was never seen.
    pub fn age(&self, part: Part, now: Instant) -> Option<Duration> {
        match part {
            Part::Services => self.services.as_ref().map(|listing| listing.age(now)),
            Part::Hypervisors => self.hypervisors.as_ref().map(|listing| listing.age(now)),
            Part::Aggregates => self.aggregates.as_ref().map(|listing| listing.age(now)),
        }
    }

    /// How long ago the traits were looked for that wait longest; `None` if a known hypervisor's never were.
    pub fn trait_age(&self, now: Instant) -> Option<Duration> {
        let hypervisors = self.hypervisors.as_ref()?.items();
        let age = |(_, at): &(Option<Arc<Traits>>, Instant)| now.saturating_duration_since(*at);
        let ages = hypervisors.iter().map(|hypervisor| self.traits.get(&hypervisor.id).map(age));
        ages.collect::<Option<Vec<_>>>().map(|ages| ages.into_iter().max().unwrap_or_default())
    }

    /// Whether every part was seen.
    pub fn is_complete(&self) -> bool {
        self.services.is_some() && self.hypervisors.is_some() && self.aggregates.is_some()
    }

    /// The compute service of exactly this host.
    pub fn service_on(&self, host: &HostName) -> Option<&ComputeService> {
        let items = self.services.as_ref()?.items();
        // Ordered by host: a region has a thousand, and a thousand hosts ask.
        items.binary_search_by(|service| service.host.cmp(host)).ok().map(|index| &items[index])
    }

    /// The hypervisor of exactly this host.
    pub fn hypervisor_on(&self, host: &HostName) -> Option<&NovaHypervisor> {
        let items = self.hypervisors.as_ref()?.items();
        items.binary_search_by(|hypervisor| hypervisor.host.cmp(host)).ok().map(|index| &items[index])
    }

    /// The compute service with this UUID.
    pub fn service(&self, id: &ServiceId) -> Option<&ComputeService> {
        self.services.as_ref()?.items().iter().find(|service| service.id == *id)
    }

    /// The hypervisor with this UUID.
    pub fn hypervisor(&self, id: &ProviderId) -> Option<&NovaHypervisor> {
        self.hypervisors.as_ref()?.items().iter().find(|hypervisor| hypervisor.id == *id)
    }

    /// The aggregate of exactly this name.
    pub fn aggregate(&self, name: &str) -> Option<&Aggregate> {
        self.aggregates.as_ref()?.items().iter().find(|aggregate| aggregate.name == name)
    }

    /// The aggregates this host is a member of.
    pub fn aggregates_of<'a>(&'a self, host: &'a HostName) -> impl Iterator<Item = &'a Aggregate> {
        let items = self.aggregates.iter().flat_map(Listing::items);
        items.filter(move |aggregate| aggregate.hosts.contains(host))
    }

    /// The same as [`Snapshot::traits_of`], as they are shared between looks.
    pub(crate) fn shared_traits_of(&self, id: &ProviderId) -> Option<&Arc<Traits>> {
        self.traits.get(id)?.0.as_ref()
    }

    /// A provider's traits as they were read last; `None` if they were not, or there is no such provider.
    pub fn traits_of(&self, id: &ProviderId) -> Option<&Traits> {
        self.shared_traits_of(id).map(Arc::as_ref)
    }

    /// The same, and how long ago they were read.
    pub fn aged_traits_of(&self, id: &ProviderId, now: Instant) -> Option<(&Traits, Duration)> {
        let (traits, at) = self.traits.get(id)?;
        traits.as_deref().map(|traits| (traits, now.saturating_duration_since(*at)))
    }
}
