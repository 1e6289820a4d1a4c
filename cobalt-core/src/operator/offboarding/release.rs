//! Letting Hypervisors and Evictions go.

use std::fmt;

use k8s_openapi::ClusterResourceScope;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    Result,
    api::{Eviction, Hypervisor, labels},
    operator::{FIELD_MANAGER, kubernetes},
    runtime::api_category,
};

/// How often an object that changes under our hands is tried.
const ATTEMPTS: usize = 5;

/// How many are read at once.
const PAGE: u32 = 500;

/// Whether our finalizer is on an object.
pub(in crate::operator) fn is_held(hypervisor: &Hypervisor) -> bool {
    hypervisor.finalizers().iter().any(|finalizer| finalizer == labels::FINALIZER)
}

/// Takes our finalizer off a Hypervisor, whoever put it there. Answers whether there was one.
pub(in crate::operator) async fn remove_finalizer(
    api: &Api<Hypervisor>,
    hypervisor: &Hypervisor,
) -> Result<bool, kube::Error> {
    remove(api, hypervisor, labels::FINALIZER).await
}

async fn remove<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<bool, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + fmt::Debug,
{
    let Some(place) = object.finalizers().iter().position(|one| one == finalizer) else {
        return Ok(false);
    };
    let path = format!("/metadata/finalizers/{place}");
    let patch = json!([
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]);
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(&object.name_any(), &params, &Patch::<()>::Json(patch)).await {
        Ok(_) => Ok(true),
        Err(error) if api_category(&error) == "not_found" => Ok(false),
        Err(error) => Err(error),
    }
}

/// How many objects had a finalizer of this operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Hypervisors whose host is in Nova.
    pub hypervisors: usize,
    /// Evictions with something under way.
    pub evictions: usize,
}

/// Takes this operator's finalizers off every Hypervisor and every Eviction, and answers how many had one.
///
/// For the way back to programs that do not know them: without this, an object they work with could never be deleted. Stop
/// the operator first; it puts its finalizers back on what it works on. Nothing else is changed, neither in the
/// cluster nor in Nova.
///
/// ```no_run
/// # async fn example(client: kube::Client) -> cobalt_core::Result<()> {
/// let released = cobalt_core::operator::release_finalizers(client).await?;
/// println!("{} Hypervisors can be deleted by anybody again", released.hypervisors);
/// # Ok(()) }
/// ```
pub async fn release_finalizers(client: Client) -> Result<Released> {
    Ok(Released {
        hypervisors: release_all::<Hypervisor>(client.clone(), labels::FINALIZER).await?,
        evictions: release_all::<Eviction>(client, labels::EVICTION_FINALIZER).await?,
    })
}

async fn release_all<K>(client: Client, finalizer: &str) -> Result<usize>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + DeserializeOwned + fmt::Debug,
{
    let api: Api<K> = Api::all(client);
    let mut released = 0;
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list =
            api.list(&page).await.map_err(|error| kubernetes::failed(format!("list {}", K::plural(&())), error))?;
        for object in &list.items {
            released += usize::from(release(&api, object, finalizer).await?);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(released),
        }
    }
}

async fn release<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    let name = object.name_any();
    let failed = |error| kubernetes::failed(format!("release {} {name}", K::kind(&())), error);
    let mut answer = remove(api, object, finalizer).await;
    for _ in 1..ATTEMPTS {
        // A finalizer in another place fails the test, which is 422.
        let Err(error) = &answer else { break };
        if !matches!(api_category(error), "invalid" | "conflict") {
            break;
        }
        let Some(now) = api.get_opt(&name).await.map_err(failed)? else { return Ok(false) };
        answer = remove(api, &now, finalizer).await;
    }
    answer.map_err(failed)
}
