//! Placement.

mod allocations;
mod providers;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    answer::{Answer, Refusal},
    call::Call,
};
use crate::nova::{Amounts, Provider};

pub(super) const ROUTES: &[&str] = &[
    "GET /placement/resource_providers",
    "GET /placement/resource_providers/{}",
    "DELETE /placement/resource_providers/{}",
    "GET /placement/resource_providers/{}/traits",
    "PUT /placement/resource_providers/{}/traits",
    "GET /placement/resource_providers/{}/inventories",
    "GET /placement/resource_providers/{}/usages",
    "GET /placement/resource_providers/{}/allocations",
    "GET /placement/resource_providers/{}/aggregates",
    "GET /placement/traits",
    "GET /placement/traits/{}",
    "PUT /placement/traits/{}",
    "GET /placement/allocations/{}",
    "PUT /placement/allocations/{}",
    "DELETE /placement/allocations/{}",
    "GET /placement/allocation_candidates",
];

/// Somebody else was faster.
const CONCURRENT_UPDATE: &str = "placement.concurrent_update";
const IN_USE: &str = "placement.resource_provider.inuse";
const NO_PROVIDER: &str = "placement.resource_provider.not_found";
const BAD_VALUE: &str = "placement.query.bad_value";
const MISSING_VALUE: &str = "placement.query.missing_value";

const CLASSES: [&str; 3] = ["VCPU", "MEMORY_MB", "DISK_GB"];

pub(super) async fn answer(route: &'static str, call: &Call<'_>) -> Result<Answer, Refusal> {
    match route.replace("/placement", "").as_str() {
        "GET /resource_providers" => providers::list(call).await,
        "GET /resource_providers/{}" => providers::one(call).await,
        "DELETE /resource_providers/{}" => providers::delete(call).await,
        "GET /resource_providers/{}/traits" => providers::traits(call).await,
        "PUT /resource_providers/{}/traits" => providers::set_traits(call).await,
        "GET /resource_providers/{}/inventories" => providers::inventories(call).await,
        "GET /resource_providers/{}/usages" => providers::usages(call).await,
        "GET /resource_providers/{}/allocations" => providers::allocations(call).await,
        "GET /resource_providers/{}/aggregates" => providers::aggregates(call).await,
        "GET /traits" => providers::all_traits(call).await,
        "GET /traits/{}" => providers::one_trait(call).await,
        "PUT /traits/{}" => providers::ensure_trait(call).await,
        "GET /allocations/{}" => allocations::one(call).await,
        "PUT /allocations/{}" => allocations::replace(call).await,
        "DELETE /allocations/{}" => allocations::delete(call).await,
        "GET /allocation_candidates" => allocations::candidates(call).await,
        other => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, other)),
    }
}

/// What is not there is the route's provider.
fn no_provider(call: &Call<'_>, refusal: Refusal) -> Refusal {
    match refusal.status() {
        Some(StatusCode::NOT_FOUND) => {
            Refusal::missing(format!("No resource provider with uuid {} found", call.parameter(0))).coded(NO_PROVIDER)
        }
        _ => refusal,
    }
}

/// By resource class; what is not used is left out.
fn resources(amounts: Amounts) -> Value {
    let all = CLASSES.into_iter().zip([amounts.vcpus, amounts.memory_mb, amounts.disk_gb]);
    let used = all.filter(|(_, amount)| *amount > 0).map(|(class, amount)| (class.to_owned(), amount.into()));
    Value::Object(used.collect())
}

/// Capacity and use by resource class, as candidates tell it.
fn room(provider: &Provider) -> Value {
    let (capacity, used) = (provider.capacity(), provider.used);
    json!({
        "VCPU": {"capacity": capacity.vcpus, "used": used.vcpus},
        "MEMORY_MB": {"capacity": capacity.memory_mb, "used": used.memory_mb},
        "DISK_GB": {"capacity": capacity.disk_gb, "used": used.disk_gb},
    })
}
