//! What we were told about single things since the last listing.
//!
//! Whoever changes something reads it back, and that answer is newer than any list that began before it. So it is laid
//! over such lists until one comes that began later: what we have just done is never unlearnt by an old list, and no
//! list of the whole region is needed for one host.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{
    ids::{AggregateId, HostName, ProviderId, ServiceId},
    nova::{Aggregate, ComputeService, NovaHypervisor},
};

/// A fact and the moment it was learnt.
type At<T> = (T, Instant);

/// Facts about single things, by what they are about. `None` is: it is gone.
#[derive(Debug, Default)]
pub(super) struct Learned {
    services: BTreeMap<ServiceId, At<Option<ComputeService>>>,
    hypervisors: BTreeMap<ProviderId, At<Option<NovaHypervisor>>>,
    members: BTreeMap<(AggregateId, HostName), At<bool>>,
}

/// Puts one item where it belongs in a list that is ordered by host.
fn settle<T>(items: &mut Vec<T>, fact: Option<&T>, is_it: impl Fn(&T) -> bool, host: impl Fn(&T) -> &HostName)
where
    T: Clone,
{
    items.retain(|item| !is_it(item));
    if let Some(fact) = fact {
        let place = items.partition_point(|item| host(item) < host(fact));
        items.insert(place, fact.clone());
    }
}

pub(super) fn settle_service(items: &mut Vec<ComputeService>, id: &ServiceId, fact: Option<&ComputeService>) {
    settle(items, fact, |item| item.id == *id, |item| &item.host);
}

pub(super) fn settle_hypervisor(items: &mut Vec<NovaHypervisor>, id: &ProviderId, fact: Option<&NovaHypervisor>) {
    settle(items, fact, |item| item.id == *id, |item| &item.host);
}

pub(super) fn settle_member(items: &mut [Aggregate], id: &AggregateId, host: &HostName, member: bool) {
    for aggregate in items.iter_mut().filter(|aggregate| aggregate.id == *id) {
        match (aggregate.hosts.binary_search(host), member) {
            (Err(place), true) => aggregate.hosts.insert(place, host.clone()),
            (Ok(place), false) => drop(aggregate.hosts.remove(place)),
            _ => {}
        }
    }
}

impl Learned {
    pub(super) fn service(&mut self, id: ServiceId, fact: Option<ComputeService>, now: Instant) {
        self.services.insert(id, (fact, now));
    }

    pub(super) fn hypervisor(&mut self, id: ProviderId, fact: Option<NovaHypervisor>, now: Instant) {
        self.hypervisors.insert(id, (fact, now));
    }

    pub(super) fn member(&mut self, aggregate: AggregateId, host: HostName, member: bool, now: Instant) {
        self.members.insert((aggregate, host), (member, now));
    }

    /// Corrects a list that began then by what was learnt since, and forgets what it knows itself.
    pub(super) fn correct_services(&mut self, items: &mut Vec<ComputeService>, began: Instant) {
        self.services.retain(|_, (_, at)| *at >= began);
        for (id, (fact, _)) in &self.services {
            settle_service(items, id, fact.as_ref());
        }
    }

    pub(super) fn correct_hypervisors(&mut self, items: &mut Vec<NovaHypervisor>, began: Instant) {
        self.hypervisors.retain(|_, (_, at)| *at >= began);
        for (id, (fact, _)) in &self.hypervisors {
            settle_hypervisor(items, id, fact.as_ref());
        }
    }

    pub(super) fn correct_aggregates(&mut self, items: &mut [Aggregate], began: Instant) {
        self.members.retain(|_, (_, at)| *at >= began);
        for ((id, host), (member, _)) in &self.members {
            settle_member(items, id, host, *member);
        }
    }
}
