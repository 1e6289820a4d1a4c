//! Where a server may go: filters, then the host with the most free memory, ties by name.

use std::{cmp::Reverse, collections::BTreeSet};

use cobalt_core::nova::ServiceState;

use super::Amounts;
use crate::world::{Driver, HostId, State};

/// What a server needs of a host.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) amounts: Amounts,
    pub(crate) traits: BTreeSet<String>,
    pub(crate) zone: Option<String>,
    /// A VM cannot change its hypervisor on the way.
    pub(crate) driver: Option<Driver>,
    /// Only this host, if it passes.
    pub(crate) only: Option<HostId>,
    /// Never this one.
    pub(crate) not: Option<HostId>,
    /// What its server group allows.
    pub(crate) group: Allowed,
}

/// The hosts that a server group leaves to a member of it.
#[derive(Debug, Clone, Default)]
pub(crate) enum Allowed {
    #[default]
    All,
    Only(BTreeSet<HostId>),
    AllBut(BTreeSet<HostId>),
}

impl Allowed {
    fn admits(&self, host: HostId) -> bool {
        match self {
            Self::All => true,
            Self::Only(hosts) => hosts.contains(&host),
            Self::AllBut(hosts) => !hosts.contains(&host),
        }
    }
}

impl State {
    /// The host for it, or `None`: *no valid host was found*.
    pub(crate) fn schedule(&self, wish: &Wish) -> Option<HostId> {
        let candidates: Box<dyn Iterator<Item = HostId>> = match wish.only {
            Some(host) => Box::new(std::iter::once(host)),
            None => Box::new(self.host_ids()),
        };
        candidates.filter(|id| self.passes(*id, wish)).max_by_key(|id| {
            let room = self.nova.providers.get(id).map_or(0, |provider| provider.room().memory_mb);
            (room, Reverse(self.host(*id).name.clone()))
        })
    }

    fn passes(&self, id: HostId, wish: &Wish) -> bool {
        let (Some(service), Some(provider)) = (self.nova.services.get(&id), self.nova.providers.get(&id)) else {
            return false;
        };
        wish.not != Some(id)
            && service.enabled
            && self.service_state(id) == ServiceState::Up
            && wish.driver.is_none_or(|driver| driver == self.host(id).driver)
            && wish.amounts.fits(provider.room())
            && wish.traits.is_subset(&provider.traits)
            && wish.zone.as_deref().is_none_or(|zone| self.nova.zone_of(id) == Some(zone))
            && self.aggregates_admit(id, wish)
            && wish.group.admits(id)
    }

    /// An aggregate that demands a trait (`trait:CUSTOM_X=required`) takes only servers that ask for it.
    fn aggregates_admit(&self, id: HostId, wish: &Wish) -> bool {
        let mine = self.nova.aggregates.values().filter(|aggregate| aggregate.hosts.contains(&id));
        let mut demands = mine.flat_map(|aggregate| &aggregate.metadata).filter(|(_, value)| *value == "required");
        demands.all(|(key, _)| key.strip_prefix("trait:").is_none_or(|name| wish.traits.contains(name)))
    }
}
