//! Which hypervisor and which service of Nova's a host is.

use crate::{
    ids::{HostName, ProviderId, ServiceId},
    operator::Snapshot,
};

/// A host as Nova knows it, against what was recorded of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The region was not seen yet.
    NotSeen,
    /// Nova knows nobody of that name, and nobody with the recorded UUIDs.
    Unregistered,
    /// Nova knows it by the recorded UUIDs.
    Known,
    /// Nova knows a host of exactly that name, and what was recorded of it is right but not all: these are its UUIDs.
    Incomplete { hypervisor: ProviderId, service: ServiceId },
    /// Nova knows a host of exactly that name, by these UUIDs, and others were recorded: it is a new one, or what was
    /// recorded is out of date.
    Registered { host: HostName, hypervisor: ProviderId, service: ServiceId },
}

impl Identity {
    pub(super) fn of(seen: &Snapshot) -> Self {
        let Some(region) = seen.region() else { return Self::NotSeen };
        if let (Some(hypervisor), Some(service)) = (seen.provider_id(), seen.service_id())
            && seen.nova_hypervisor().is_some_and(|known| known.id == hypervisor)
            && seen.service().is_some_and(|known| known.id == service)
        {
            return Self::Known;
        }
        let names = seen.names();
        let found = names.iter().find_map(|name| Some((region.hypervisor_on(name)?, region.service_on(name)?)));
        match found {
            // The two lists are not of the same moment. A hypervisor of another service is of an earlier life.
            Some((hypervisor, service)) if hypervisor.service == service.id => {
                let differs = seen.provider_id().is_some_and(|recorded| recorded != hypervisor.id)
                    || seen.service_id().is_some_and(|recorded| recorded != service.id);
                let (host, hypervisor, service) = (service.host.clone(), hypervisor.id.clone(), service.id.clone());
                if differs {
                    Self::Registered { host, hypervisor, service }
                } else {
                    Self::Incomplete { hypervisor, service }
                }
            }
            _ => Self::Unregistered,
        }
    }
}
