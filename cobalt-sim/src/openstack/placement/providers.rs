//! Resource providers and their traits.

use cobalt_core::{
    ids::ProviderId,
    nova::{PlacementClient, Provider, Traits},
};
use http::StatusCode;
use serde_json::{Value, json};

use super::{CONCURRENT_UPDATE, IN_USE, no_provider};
use crate::openstack::{
    answer::{Answer, Refusal},
    call::Call,
};

fn show(call: &Call<'_>, one: &Provider) -> Value {
    let path = format!("/resource_providers/{}", one.id);
    let below = ["", "/inventories", "/usages", "/aggregates", "/traits", "/allocations"];
    let link = |end: &str| {
        let rel = if end.is_empty() { "self" } else { end.trim_start_matches('/') };
        json!({"rel": rel, "href": format!("/placement{path}{end}")})
    };
    let mut shown = json!({
        "uuid": one.id.as_str(), "name": one.name, "generation": one.generation,
        "links": below.map(link),
    });
    if call.at_least(14) {
        shown["parent_provider_uuid"] = Value::Null;
        shown["root_provider_uuid"] = one.id.as_str().into();
    }
    shown
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let all = call.placement("providers", |placement| async move { placement.providers().await }).await?;
    let meant = |one: &&Provider| {
        call.query.admits("name", &one.name)
            && call.query.admits("uuid", one.id.as_str())
            && call.query.admits("in_tree", one.id.as_str())
    };
    let shown: Vec<Value> = all.iter().filter(meant).map(|one| show(call, one)).collect();
    Ok(Answer::ok(&json!({"resource_providers": shown})))
}

fn id(call: &Call<'_>) -> ProviderId {
    ProviderId::from(call.parameter(0))
}

/// The route's provider, for its generation.
async fn find(call: &Call<'_>) -> Result<Provider, Refusal> {
    let placement = crate::SimPlacement::new(call.api.world.clone());
    placement.provider(&id(call)).await.map_err(|error| no_provider(call, error.into()))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = id(call);
    let one = call.placement("provider", |placement| async move { placement.provider(&id).await }).await;
    Ok(Answer::ok(&show(call, &one.map_err(|no| no_provider(call, no))?)))
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = id(call);
    let deleted = call.placement("delete_provider", |placement| async move { placement.delete_provider(&id).await });
    deleted.await.map_err(|no| no_provider(call, no).coded_if(StatusCode::CONFLICT, IN_USE))?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

fn show_traits(traits: &Traits) -> Answer {
    Answer::ok(&json!({"traits": traits.names, "resource_provider_generation": traits.generation}))
}

pub(super) async fn traits(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = id(call);
    let traits = call.placement("traits", |placement| async move { placement.traits(&id).await }).await;
    Ok(show_traits(&traits.map_err(|no| no_provider(call, no))?))
}

pub(super) async fn set_traits(call: &Call<'_>) -> Result<Answer, Refusal> {
    let body = call.json()?;
    let wrong = |key: &str| Refusal::bad(format!("JSON does not validate: '{key}' is a required property"));
    let names = body["traits"].as_array().ok_or_else(|| wrong("traits"))?;
    let names: Option<_> = names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
    let generation = body["resource_provider_generation"].as_u64();
    let wanted = Traits {
        names: names.ok_or_else(|| wrong("traits"))?,
        generation: generation.ok_or_else(|| wrong("resource_provider_generation"))?,
    };
    // Who it is for is looked at before what is wanted of it.
    find(call).await?;
    let id = id(call);
    let after = call.placement("set_traits", |placement| async move {
        placement.set_traits(&id, &wanted).await?;
        placement.traits(&id).await
    });
    let after = after.await.map_err(|no| no_provider(call, no).coded_if(StatusCode::CONFLICT, CONCURRENT_UPDATE))?;
    Ok(show_traits(&after))
}

pub(super) async fn inventories(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = id(call);
    let all = call.placement("inventories", |placement| async move { placement.inventories(&id).await }).await;
    let all = all.map_err(|no| no_provider(call, no))?;
    let show = |(class, one): (&String, &cobalt_core::nova::Inventory)| {
        let shown = json!({"total": one.total, "reserved": one.reserved, "allocation_ratio": one.allocation_ratio,
                           "min_unit": 1, "max_unit": one.total, "step_size": 1});
        (class.clone(), shown)
    };
    let shown: serde_json::Map<String, Value> = all.iter().map(show).collect();
    let generation = find(call).await?.generation;
    Ok(Answer::ok(&json!({"inventories": shown, "resource_provider_generation": generation})))
}

pub(super) async fn usages(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = id(call);
    let used = call.placement("usages", |placement| async move { placement.usages(&id).await }).await;
    let used = used.map_err(|no| no_provider(call, no))?;
    Ok(Answer::ok(&json!({"usages": used, "resource_provider_generation": find(call).await?.generation})))
}

pub(super) async fn allocations(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = id(call);
    let all = call.placement("allocations", |placement| async move { placement.allocations(&id).await }).await;
    let all = all.map_err(|no| no_provider(call, no))?;
    let show = |one: &cobalt_core::nova::Allocation| (one.consumer.to_string(), json!({"resources": one.resources}));
    let shown: serde_json::Map<String, Value> = all.iter().map(show).collect();
    Ok(Answer::ok(&json!({"allocations": shown, "resource_provider_generation": find(call).await?.generation})))
}

/// Nova mirrors its aggregates here by their UUIDs.
pub(super) async fn aggregates(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = id(call);
    let found = call
        .world(call.api.placement.faults(), "provider", |state| {
            let known = state.nova.providers.iter().find(|(_, provider)| provider.id == wanted);
            let (host, provider) = known.ok_or_else(|| no_provider(call, Refusal::missing("")))?;
            let mine = state.nova.aggregates.values().filter(|aggregate| aggregate.hosts.contains(host));
            Ok((mine.map(|aggregate| aggregate.uuid.to_string()).collect::<Vec<_>>(), provider.generation))
        })
        .await?;
    let mut body = json!({"aggregates": found.0});
    if call.at_least(19) {
        body["resource_provider_generation"] = found.1.into();
    }
    Ok(Answer::ok(&body))
}

pub(super) async fn all_traits(call: &Call<'_>) -> Result<Answer, Refusal> {
    let faults = call.api.placement.faults();
    let all = call.world(faults, "ensure_trait", |state| Ok(state.nova.traits.clone())).await?;
    // `in:A,B` and `startswith:A`.
    let meant = |name: &&String| match call.query.get("name").and_then(|filter| filter.split_once(':')) {
        Some(("in", names)) => names.split(',').any(|other| other == *name),
        Some(("startswith", start)) => name.starts_with(start),
        _ => true,
    };
    Ok(Answer::ok(&json!({"traits": all.iter().filter(meant).collect::<Vec<_>>()})))
}

pub(super) async fn one_trait(call: &Call<'_>) -> Result<Answer, Refusal> {
    let name = call.parameter(0);
    let faults = call.api.placement.faults();
    let known = call.world(faults, "ensure_trait", |state| Ok(state.nova.traits.contains(name))).await?;
    if !known {
        return Err(Refusal::missing(format!("No such trait(s): {name}.")));
    }
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn ensure_trait(call: &Call<'_>) -> Result<Answer, Refusal> {
    let name = call.parameter(0).to_owned();
    let known = call.api.world.with(|state| state.nova.traits.contains(&name));
    call.placement("ensure_trait", |placement| async move { placement.ensure_trait(&name).await }).await?;
    Ok(Answer::empty(if known { StatusCode::NO_CONTENT } else { StatusCode::CREATED }))
}
