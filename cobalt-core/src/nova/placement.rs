//! Placement: who has what, and who uses it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::{
    Error, Result,
    ids::{InstanceId, ProviderId},
};

/// Amounts by resource class: `VCPU`, `MEMORY_MB`, `DISK_GB`, …
pub type Resources = BTreeMap<String, u64>;

/// A resource provider: a compute host, seen from Placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its UUID.
    pub id: ProviderId,
    /// Its name.
    pub name: String,
    /// Changes with every write; a write must name the one it was decided on.
    pub generation: u64,
}

/// A provider's traits at one generation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traits {
    /// The traits.
    pub names: BTreeSet<String>,
    /// The generation they were read at.
    pub generation: u64,
}

/// What a provider offers of one resource class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inventory {
    /// All of it.
    pub total: u64,
    /// Kept back for the host itself.
    pub reserved: u64,
    /// How far it may be promised beyond what is there.
    pub allocation_ratio: f64,
}

impl Inventory {
    /// What may be promised in all.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn capacity(&self) -> u64 {
        (self.total.saturating_sub(self.reserved) as f64 * self.allocation_ratio) as u64
    }
}

/// What one consumer uses of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The consumer, which is a server or a migration.
    pub consumer: InstanceId,
    /// The amounts.
    pub resources: Resources,
}

/// A provider that could take a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The provider.
    pub provider: ProviderId,
    /// What it has left.
    pub free: Resources,
}

/// OpenStack's Placement service.
///
/// ```
/// use cobalt_core::{ids::ProviderId, nova::PlacementClient};
///
/// async fn has_trait(placement: &dyn PlacementClient, id: &ProviderId, name: &str) -> cobalt_core::Result<bool> {
///     Ok(placement.traits(id).await?.names.contains(name))
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait PlacementClient: Send + Sync {
    /// All providers, ordered by name.
    async fn providers(&self) -> Result<Vec<Provider>>;

    /// One provider.
    async fn provider(&self, id: &ProviderId) -> Result<Provider>;

    /// A provider's traits with their generation.
    async fn traits(&self, id: &ProviderId) -> Result<Traits>;

    /// Makes a custom trait known. Repeating it changes nothing; a name without `CUSTOM_` is refused.
    async fn ensure_trait(&self, name: &str) -> Result<()>;

    /// Replaces a provider's traits. [`Error::Conflict`](crate::Error::Conflict) if the generation has moved on,
    /// [`Error::Refused`](crate::Error::Refused) if a trait is not known.
    async fn set_traits(&self, id: &ProviderId, traits: &Traits) -> Result<()>;

    /// What a provider offers, by resource class.
    async fn inventories(&self, id: &ProviderId) -> Result<BTreeMap<String, Inventory>>;

    /// What is used of a provider, by resource class.
    async fn usages(&self, id: &ProviderId) -> Result<Resources>;

    /// Who uses a provider, ordered by consumer.
    async fn allocations(&self, id: &ProviderId) -> Result<Vec<Allocation>>;

    /// Drops what a consumer uses of one provider and leaves the rest of it alone: the way to clean a dead host's
    /// provider of servers that were evacuated from it. [`Error::NotFound`](crate::Error::NotFound) if it uses
    /// nothing there.
    async fn release(&self, consumer: &InstanceId, provider: &ProviderId) -> Result<()>;

    /// Drops everything a consumer uses, on all providers. [`Error::NotFound`](crate::Error::NotFound) if that is
    /// nothing.
    async fn delete_allocations(&self, consumer: &InstanceId) -> Result<()>;

    /// Who could take this much and has these traits, ordered by provider. Where there are very many, not all of them.
    async fn candidates(&self, resources: &Resources, traits: &BTreeSet<String>) -> Result<Vec<Candidate>>;

    /// Removes a provider. [`Error::Conflict`](crate::Error::Conflict) while it is used.
    async fn delete_provider(&self, id: &ProviderId) -> Result<()>;
}

/// How often [`change_traits`] reads again after somebody else was faster. Nova itself writes a provider once a
/// minute and on a change of its service, so more than two in a row is already unlikely.
const ATTEMPTS: usize = 5;

/// What to do to a provider's traits. Traits in neither set stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraitChange {
    /// Wanted; custom ones are made known first.
    pub add: BTreeSet<String>,
    /// Not wanted any more.
    pub remove: BTreeSet<String>,
}

impl TraitChange {
    /// The traits afterwards; `None` if nothing would change.
    pub fn applied_to(&self, names: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        let kept = names.difference(&self.remove).cloned();
        let after: BTreeSet<String> = kept.chain(self.add.iter().cloned()).collect();
        (after != *names).then_some(after)
    }
}

/// Reads a provider's traits, changes them and writes them at the generation they were read at; reads again when
/// somebody else wrote meanwhile. Answers the traits as they are now, and writes nothing if nothing would change.
///
/// ```
/// use cobalt_core::{ids::ProviderId, nova::{PlacementClient, TraitChange, change_traits}};
///
/// async fn mark(placement: &dyn PlacementClient, id: &ProviderId) -> cobalt_core::Result<()> {
///     let change = TraitChange { add: ["CUSTOM_SPARE".to_owned()].into(), ..TraitChange::default() };
///     change_traits(placement, id, &change).await.map(drop)
/// }
/// ```
pub async fn change_traits(placement: &dyn PlacementClient, id: &ProviderId, change: &TraitChange) -> Result<Traits> {
    let mut left = ATTEMPTS;
    loop {
        let before = placement.traits(id).await?;
        let Some(names) = change.applied_to(&before.names) else { return Ok(before) };
        for name in names.difference(&before.names).filter(|name| name.starts_with("CUSTOM_")) {
            placement.ensure_trait(name).await?;
        }
        let wanted = Traits { names, generation: before.generation };
        left -= 1;
        match placement.set_traits(id, &wanted).await {
            Ok(()) => return placement.traits(id).await,
            Err(Error::Conflict { .. }) if left > 0 => {}
            Err(error) => return Err(error),
        }
    }
}
