//! Placement: who has what, and who uses it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::{
    Result,
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

    /// Drops everything a consumer uses, on all providers. [`Error::NotFound`](crate::Error::NotFound) if that is
    /// nothing.
    async fn delete_allocations(&self, consumer: &InstanceId) -> Result<()>;

    /// Who could take this much and has these traits, ordered by provider.
    async fn candidates(&self, resources: &Resources, traits: &BTreeSet<String>) -> Result<Vec<Candidate>>;

    /// Removes a provider. [`Error::Conflict`](crate::Error::Conflict) while it is used.
    async fn delete_provider(&self, id: &ProviderId) -> Result<()>;
}
