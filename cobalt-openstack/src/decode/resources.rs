//! Placement's bodies.

use std::collections::BTreeMap;

use cobalt_core::{
    ids::{InstanceId, ProviderId},
    nova::{Allocation, Candidate, Inventory, Provider, Resources, Traits},
};
use serde::{Deserialize, Serialize};

use super::json;

/// What each of these answers: the thing, or what is wrong with the body.
type Decoded<T> = Result<T, String>;

#[derive(Deserialize)]
struct ProviderEntry {
    uuid: String,
    name: String,
    generation: u64,
}

impl From<ProviderEntry> for Provider {
    fn from(entry: ProviderEntry) -> Self {
        Self { id: entry.uuid.into(), name: entry.name, generation: entry.generation }
    }
}

/// All providers, ordered by name.
pub fn providers(body: &[u8]) -> Decoded<Vec<Provider>> {
    #[derive(Deserialize)]
    struct Body {
        resource_providers: Vec<ProviderEntry>,
    }
    let mut all: Vec<Provider> = json::<Body>(body)?.resource_providers.into_iter().map(Into::into).collect();
    all.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    Ok(all)
}

/// One provider.
pub fn provider(body: &[u8]) -> Decoded<Provider> {
    Ok(json::<ProviderEntry>(body)?.into())
}

/// A provider's traits.
pub fn traits(body: &[u8]) -> Decoded<Traits> {
    #[derive(Deserialize)]
    struct Body {
        traits: Vec<String>,
        resource_provider_generation: u64,
    }
    let Body { traits, resource_provider_generation: generation } = json(body)?;
    Ok(Traits { names: traits.into_iter().collect(), generation })
}

/// What a provider offers.
pub fn inventories(body: &[u8]) -> Decoded<BTreeMap<String, Inventory>> {
    #[derive(Deserialize)]
    struct Body {
        inventories: BTreeMap<String, Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        total: u64,
        #[serde(default)]
        reserved: u64,
        #[serde(default = "one")]
        allocation_ratio: f64,
    }
    fn one() -> f64 {
        1.0
    }
    let read = |(class, entry): (String, Entry)| {
        let Entry { total, reserved, allocation_ratio } = entry;
        (class, Inventory { total, reserved, allocation_ratio })
    };
    Ok(json::<Body>(body)?.inventories.into_iter().map(read).collect())
}

/// What is used of a provider.
pub fn usages(body: &[u8]) -> Decoded<Resources> {
    #[derive(Deserialize)]
    struct Body {
        usages: Resources,
    }
    Ok(json::<Body>(body)?.usages)
}

#[derive(Deserialize, Serialize, Clone)]
pub(crate) struct Amounts {
    pub(crate) resources: Resources,
}

/// Who uses a provider, ordered by consumer.
pub fn allocations(body: &[u8]) -> Decoded<Vec<Allocation>> {
    #[derive(Deserialize)]
    struct Body {
        allocations: BTreeMap<String, Amounts>,
    }
    let read = |(consumer, Amounts { resources }): (String, Amounts)| Allocation {
        consumer: InstanceId::from(consumer),
        resources,
    };
    Ok(json::<Body>(body)?.allocations.into_iter().map(read).collect())
}

/// What one consumer uses of all providers, with what a write of it must name again.
#[derive(Deserialize)]
pub(crate) struct Consumer {
    #[serde(default)]
    pub(crate) allocations: BTreeMap<String, Amounts>,
    #[serde(default)]
    pub(crate) project_id: String,
    #[serde(default)]
    pub(crate) user_id: String,
    #[serde(default, rename = "consumer_generation")]
    pub(crate) generation: Option<u64>,
    #[serde(default, rename = "consumer_type")]
    pub(crate) kind: Option<String>,
}

pub(crate) fn consumer(body: &[u8]) -> Decoded<Consumer> {
    json(body)
}

/// Providers that could take a request, ordered by id, with what they have left.
pub fn candidates(body: &[u8]) -> Decoded<Vec<Candidate>> {
    #[derive(Deserialize)]
    struct Body {
        allocation_requests: Vec<Request>,
        provider_summaries: BTreeMap<String, Summary>,
    }
    #[derive(Deserialize)]
    struct Request {
        allocations: BTreeMap<String, Amounts>,
    }
    #[derive(Deserialize)]
    struct Summary {
        #[serde(default)]
        root_provider_uuid: Option<String>,
        resources: BTreeMap<String, Room>,
    }
    #[derive(Deserialize)]
    struct Room {
        capacity: u64,
        used: u64,
    }
    let Body { allocation_requests, provider_summaries } = json(body)?;
    let mut found: BTreeMap<ProviderId, Resources> = BTreeMap::new();
    for id in allocation_requests.into_iter().flat_map(|request| request.allocations.into_keys()) {
        let Some(summary) = provider_summaries.get(&id) else { continue };
        // A request may take from children (a NUMA cell, a GPU); the host is their root.
        let root = summary.root_provider_uuid.as_deref().unwrap_or(&id);
        let Some(summary) = provider_summaries.get(root) else { continue };
        let free =
            summary.resources.iter().map(|(class, room)| (class.clone(), room.capacity.saturating_sub(room.used)));
        found.insert(ProviderId::from(root), free.filter(|(_, free)| *free > 0).collect());
    }
    Ok(found.into_iter().map(|(provider, free)| Candidate { provider, free }).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_the_host_even_if_a_child_gives_the_resources() {
        let body = br#"{"allocation_requests": [{"allocations": {"child": {"resources": {"VCPU": 1}}}}],
            "provider_summaries": {
                "child": {"root_provider_uuid": "root", "resources": {"VCPU": {"capacity": 4, "used": 4}}},
                "root": {"root_provider_uuid": "root", "resources": {"MEMORY_MB": {"capacity": 100, "used": 40}}}}}"#;
        let all = candidates(body).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].provider.as_str(), "root");
        assert_eq!(all[0].free, [("MEMORY_MB".to_owned(), 60)].into());
    }

    #[test]
    fn nonsense_is_an_error_with_a_place() {
        for wrong in [&b"{}"[..], b"{\"traits\": [1], \"resource_provider_generation\": 1}", b"null"] {
            assert!(traits(wrong).unwrap_err().contains("line"));
        }
        assert!(usages(br#"{"usages": {"VCPU": -1}}"#).is_err());
    }
}
