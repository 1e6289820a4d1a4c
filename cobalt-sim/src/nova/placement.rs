//! Placement through its seam.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    ids::{InstanceId, ProviderId},
    nova::{Allocation, Candidate, Inventory, PlacementClient, Provider, Resources, Traits},
};

use super::{Amounts, client::available};
use crate::{
    faults::Faults,
    world::{HostId, State, World, instance, parse},
};

/// Placement of the simulated region. Clones share their faults; a new one from
/// [`Region::placement`](crate::Region::placement) has its own.
#[derive(Debug, Clone)]
pub struct SimPlacement {
    world: World,
    faults: Faults,
}

const VCPU: &str = "VCPU";
const MEMORY: &str = "MEMORY_MB";
const DISK: &str = "DISK_GB";

impl Amounts {
    /// By resource class; what is not used is left out.
    fn resources(self) -> Resources {
        let all = [(VCPU, self.vcpus), (MEMORY, self.memory_mb), (DISK, self.disk_gb)];
        all.into_iter().filter(|(_, amount)| *amount > 0).map(|(class, amount)| (class.to_owned(), amount)).collect()
    }

    /// `None` if something is asked for that no host here has.
    fn of(resources: &Resources) -> Option<Self> {
        let mut amounts = Self::default();
        for (class, amount) in resources {
            match class.as_str() {
                VCPU => amounts.vcpus = *amount,
                MEMORY => amounts.memory_mb = *amount,
                DISK => amounts.disk_gb = *amount,
                _ => return None,
            }
        }
        Some(amounts)
    }
}

impl SimPlacement {
    pub(crate) fn new(world: World) -> Self {
        Self { world, faults: Faults::default() }
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn call<T>(
        &self,
        method: &'static str,
        operation: String,
        act: impl FnOnce(&mut State, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let call = || async {
            self.world.with(|state| {
                available(state, &operation)?;
                act(state, &operation)
            })
        };
        self.faults.run(method, || operation.clone(), call).await
    }

    async fn on<T>(
        &self,
        method: &'static str,
        operation: String,
        id: &ProviderId,
        act: impl FnOnce(&mut super::Provider, &str) -> Result<T> + Send,
    ) -> Result<T> {
        self.call(method, operation, |state, operation| {
            let provider = state.nova.providers.values_mut().find(|provider| provider.id == *id);
            act(provider.ok_or_else(|| Error::not_found(operation))?, operation)
        })
        .await
    }
}

fn show(state: &State, host: HostId, provider: &super::Provider) -> Provider {
    Provider { id: provider.id.clone(), name: state.host(host).name.to_string(), generation: provider.generation }
}

#[async_trait]
impl PlacementClient for SimPlacement {
    async fn providers(&self) -> Result<Vec<Provider>> {
        self.call("providers", "list resource providers".into(), |state, _| {
            let mut all: Vec<Provider> =
                state.nova.providers.iter().map(|(host, provider)| show(state, *host, provider)).collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(all)
        })
        .await
    }

    async fn provider_named(&self, name: &str) -> Result<Option<Provider>> {
        self.call("provider_named", format!("get resource provider named {name}"), |state, _| {
            let mut all = state.nova.providers.iter().map(|(host, provider)| show(state, *host, provider));
            Ok(all.find(|provider| provider.name == name))
        })
        .await
    }

    async fn provider(&self, id: &ProviderId) -> Result<Provider> {
        self.call("provider", format!("get resource provider {id}"), |state, operation| {
            let found = state.nova.providers.iter().find(|(_, provider)| provider.id == *id);
            found.map(|(host, provider)| show(state, *host, provider)).ok_or_else(|| Error::not_found(operation))
        })
        .await
    }

    async fn traits(&self, id: &ProviderId) -> Result<Traits> {
        self.on("traits", format!("get traits of provider {id}"), id, |provider, _| {
            Ok(Traits { names: provider.traits.clone(), generation: provider.generation })
        })
        .await
    }

    async fn ensure_trait(&self, name: &str) -> Result<()> {
        self.call("ensure_trait", format!("create trait {name}"), |state, operation| {
            let legal = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let custom = name.strip_prefix("CUSTOM_").is_some_and(|rest| !rest.is_empty() && rest.chars().all(legal));
            if !custom {
                return Err(Error::refused(operation, "a trait's name is CUSTOM_ and capitals, digits, underscores"));
            }
            state.nova.traits.insert(name.to_owned());
            Ok(())
        })
        .await
    }

    async fn set_traits(&self, id: &ProviderId, traits: &Traits) -> Result<()> {
        self.call("set_traits", format!("set traits of provider {id}"), |state, operation| {
            let unknown: Vec<&str> = traits.names.difference(&state.nova.traits).map(String::as_str).collect();
            if !unknown.is_empty() {
                return Err(Error::refused(operation, format!("no such trait: {}", unknown.join(", "))));
            }
            let provider = state.nova.providers.values_mut().find(|provider| provider.id == *id);
            let provider = provider.ok_or_else(|| Error::not_found(operation))?;
            if provider.generation != traits.generation {
                let (named, current) = (traits.generation, provider.generation);
                return Err(Error::conflict(operation, format!("generation {named} is stale, it is {current}")));
            }
            provider.traits.clone_from(&traits.names);
            provider.generation += 1;
            Ok(())
        })
        .await
    }

    async fn inventories(&self, id: &ProviderId) -> Result<BTreeMap<String, Inventory>> {
        self.on("inventories", format!("get inventories of provider {id}"), id, |provider, _| {
            let all = [(VCPU, provider.vcpu), (MEMORY, provider.memory), (DISK, provider.disk)];
            Ok(all.into_iter().map(|(class, inventory)| (class.to_owned(), inventory)).collect())
        })
        .await
    }

    async fn usages(&self, id: &ProviderId) -> Result<Resources> {
        self.on("usages", format!("get usages of provider {id}"), id, |provider, _| {
            let used = provider.used;
            let all = [(VCPU, used.vcpus), (MEMORY, used.memory_mb), (DISK, used.disk_gb)];
            Ok(all.into_iter().map(|(class, amount)| (class.to_owned(), amount)).collect())
        })
        .await
    }

    async fn allocations(&self, id: &ProviderId) -> Result<Vec<Allocation>> {
        self.on("allocations", format!("get allocations of provider {id}"), id, |provider, _| {
            let show = |(consumer, amounts): (&uuid::Uuid, &Amounts)| Allocation {
                consumer: instance(*consumer),
                resources: amounts.resources(),
            };
            Ok(provider.allocations.iter().map(show).collect())
        })
        .await
    }

    async fn release(&self, consumer: &InstanceId, provider: &ProviderId) -> Result<()> {
        let operation = format!("release what {consumer} uses of provider {provider}");
        self.on("release", operation, provider, |provider, operation| {
            let released = parse(consumer).and_then(|consumer| provider.release(consumer));
            released.map(drop).ok_or_else(|| Error::not_found(operation))
        })
        .await
    }

    async fn delete_allocations(&self, consumer: &InstanceId) -> Result<()> {
        self.call("delete_allocations", format!("delete allocations of {consumer}"), |state, operation| {
            let missing = || Error::not_found(operation);
            let consumer = parse(consumer).ok_or_else(missing)?;
            let mut gone = false;
            for provider in state.nova.providers.values_mut() {
                gone |= provider.release(consumer).is_some();
            }
            if gone { Ok(()) } else { Err(missing()) }
        })
        .await
    }

    async fn candidates(&self, resources: &Resources, traits: &BTreeSet<String>) -> Result<Vec<Candidate>> {
        let what = format!("find candidates for {resources:?} with {traits:?}");
        self.call("candidates", what, |state, _| {
            let Some(amounts) = Amounts::of(resources) else { return Ok(Vec::new()) };
            let fits =
                |provider: &&super::Provider| amounts.fits(provider.room()) && traits.is_subset(&provider.traits);
            let mut found: Vec<Candidate> = state
                .nova
                .providers
                .values()
                .filter(fits)
                .map(|provider| Candidate { provider: provider.id.clone(), free: provider.room().resources() })
                .collect();
            found.sort_by(|a, b| a.provider.cmp(&b.provider));
            Ok(found)
        })
        .await
    }

    async fn delete_provider(&self, id: &ProviderId) -> Result<()> {
        self.call("delete_provider", format!("delete resource provider {id}"), |state, operation| {
            let found = state.nova.providers.iter().find(|(_, provider)| provider.id == *id);
            let (host, used) = found
                .map(|(host, provider)| (*host, !provider.allocations.is_empty()))
                .ok_or_else(|| Error::not_found(operation))?;
            if used {
                return Err(Error::conflict(operation, "it has allocations"));
            }
            state.nova.providers.remove(&host);
            Ok(())
        })
        .await
    }
}
