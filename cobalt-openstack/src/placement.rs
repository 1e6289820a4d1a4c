//! Placement over its API.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use cobalt_core::{
    Error as Seam, Result,
    ids::{InstanceId, ProviderId},
    nova::{Allocation, Candidate, Inventory, PlacementClient, Provider, Resources, Traits},
};
use http::Method;
use serde_json::json;

use crate::{
    decode,
    nova::segment,
    session::{Call, Service, Session},
};

/// The version of Placement's API that all calls ask for: errors have codes (1.23), allocations have generations
/// (1.28), candidates show their roots (1.29). Rocky and later have it.
pub const MICROVERSION: &str = "1.29";

/// Consumers have types from here on, and a write must name the one they have.
const CONSUMER_TYPES: &str = "1.38";

/// The type of a consumer that was written without one, as Nova does. It can be read but not written; a write of an
/// older version leaves it as it is.
const NO_TYPE: &str = "unknown";

/// How many candidates are asked for: as many as Nova's own scheduler asks for unless told otherwise
/// (`max_placement_results`). Each comes with all it has, and without a limit a large region's answer is many megabytes.
const CANDIDATES: &str = "1000";

/// How often a write is decided anew after somebody else was faster.
const ATTEMPTS: u32 = 5;

/// [`PlacementClient`] over Placement's API. Cheap to clone; from
/// [`OpenStack::placement`](crate::OpenStack::placement).
#[derive(Debug, Clone)]
pub struct Placement {
    session: Arc<Session>,
}

impl Placement {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    fn call(name: &'static str, operation: String, method: Method, path: String) -> Call {
        let (service, query) = (Service::Placement, Vec::new());
        Call { service, name, operation, method, path, query, microversion: MICROVERSION, body: None }
    }

    async fn decoded<T>(&self, call: &Call, decode: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T> {
        let answer = self.session.send(call).await?;
        decode(&answer.body).map_err(|detail| Seam::malformed(call.operation.clone(), detail))
    }

    /// Reads something of one provider.
    async fn of<T>(
        &self,
        name: &'static str,
        id: &ProviderId,
        what: &str,
        decode: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T> {
        let path = format!("/resource_providers/{}/{what}", segment(id.as_str()));
        self.decoded(&Self::call(name, format!("get {what} of provider {id}"), Method::GET, path), decode).await
    }

    /// What a consumer uses, at the highest version that this Placement has.
    async fn consumer(&self, operation: &str, consumer: &InstanceId) -> Result<(decode::Consumer, &'static str)> {
        let path = format!("/allocations/{}", segment(consumer.as_str()));
        let mut call = Self::call("release", operation.to_owned(), Method::GET, path);
        call.microversion = CONSUMER_TYPES;
        match self.decoded(&call, decode::consumer).await {
            Err(error) if error.is_unsupported() => {
                call.microversion = MICROVERSION;
                Ok((self.decoded(&call, decode::consumer).await?, MICROVERSION))
            }
            answer => Ok((answer?, CONSUMER_TYPES)),
        }
    }
}

#[async_trait]
impl PlacementClient for Placement {
    async fn providers(&self) -> Result<Vec<Provider>> {
        let path = "/resource_providers".to_owned();
        self.decoded(&Self::call("providers", "list resource providers".into(), Method::GET, path), decode::providers)
            .await
    }

    async fn provider(&self, id: &ProviderId) -> Result<Provider> {
        let path = format!("/resource_providers/{}", segment(id.as_str()));
        let call = Self::call("provider", format!("get resource provider {id}"), Method::GET, path);
        self.decoded(&call, decode::provider).await
    }

    async fn traits(&self, id: &ProviderId) -> Result<Traits> {
        self.of("traits", id, "traits", decode::traits).await
    }

    async fn ensure_trait(&self, name: &str) -> Result<()> {
        let path = format!("/traits/{}", segment(name));
        let call = Self::call("ensure_trait", format!("create trait {name}"), Method::PUT, path);
        self.session.send(&call).await.map(drop)
    }

    async fn set_traits(&self, id: &ProviderId, traits: &Traits) -> Result<()> {
        let path = format!("/resource_providers/{}/traits", segment(id.as_str()));
        let mut call = Self::call("set_traits", format!("set traits of provider {id}"), Method::PUT, path);
        call.body = Some(json!({"traits": traits.names, "resource_provider_generation": traits.generation}));
        self.session.send(&call).await.map(drop)
    }

    async fn inventories(&self, id: &ProviderId) -> Result<BTreeMap<String, Inventory>> {
        self.of("inventories", id, "inventories", decode::inventories).await
    }

    async fn usages(&self, id: &ProviderId) -> Result<Resources> {
        self.of("usages", id, "usages", decode::usages).await
    }

    async fn allocations(&self, id: &ProviderId) -> Result<Vec<Allocation>> {
        self.of("allocations", id, "allocations", decode::allocations).await
    }

    async fn release(&self, consumer: &InstanceId, provider: &ProviderId) -> Result<()> {
        let operation = format!("release what {consumer} uses of provider {provider}");
        let path = format!("/allocations/{}", segment(consumer.as_str()));
        let mut left = ATTEMPTS;
        loop {
            let (mut held, version) = self.consumer(&operation, consumer).await?;
            if held.allocations.remove(provider.as_str()).is_none() {
                return Err(Seam::not_found(operation));
            }
            // Also when nothing else is left: a write at a generation loses against somebody else's, a delete does not.
            let mut body = json!({
                "allocations": held.allocations,
                "project_id": held.project_id,
                "user_id": held.user_id,
                "consumer_generation": held.generation,
            });
            let kind = held.kind.filter(|kind| version == CONSUMER_TYPES && kind != NO_TYPE);
            let mut call = Self::call("release", operation.clone(), Method::PUT, path.clone());
            if let Some(kind) = kind {
                body["consumer_type"] = kind.into();
                call.microversion = CONSUMER_TYPES;
            }
            call.body = Some(body);
            left -= 1;
            match self.session.send(&call).await {
                Err(Seam::Conflict { .. }) if left > 0 => {}
                answer => return answer.map(drop),
            }
        }
    }

    async fn delete_allocations(&self, consumer: &InstanceId) -> Result<()> {
        let path = format!("/allocations/{}", segment(consumer.as_str()));
        let operation = format!("delete allocations of {consumer}");
        let call = Self::call("delete_allocations", operation, Method::DELETE, path);
        self.session.send(&call).await.map(drop)
    }

    async fn candidates(&self, resources: &Resources, traits: &BTreeSet<String>) -> Result<Vec<Candidate>> {
        let operation = format!("find candidates for {resources:?} with {traits:?}");
        let path = "/allocation_candidates".to_owned();
        let mut call = Self::call("candidates", operation, Method::GET, path);
        let listed = |items: Vec<String>| items.join(",");
        let amounts = resources.iter().map(|(class, amount)| format!("{class}:{amount}")).collect();
        call.query.push(("resources", listed(amounts)));
        call.query.push(("limit", CANDIDATES.to_owned()));
        if !traits.is_empty() {
            call.query.push(("required", listed(traits.iter().cloned().collect())));
        }
        self.decoded(&call, decode::candidates).await
    }

    async fn delete_provider(&self, id: &ProviderId) -> Result<()> {
        let path = format!("/resource_providers/{}", segment(id.as_str()));
        let operation = format!("delete resource provider {id}");
        let call = Self::call("delete_provider", operation, Method::DELETE, path);
        self.session.send(&call).await.map(drop)
    }
}
