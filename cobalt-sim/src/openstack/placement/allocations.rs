//! Who uses what, and who could.
//!
//! The region keeps no generations of consumers. One is made of what a consumer uses: it changes exactly when that does,
//! which is all that a write needs to know.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use cobalt_core::{
    ids::InstanceId,
    nova::{PlacementClient, Resources},
};
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BAD_VALUE, CLASSES, CONCURRENT_UPDATE, MISSING_VALUE, resources, room};
use crate::{
    nova::Amounts,
    openstack::{
        answer::{Answer, Refusal},
        call::Call,
    },
    world::{State, parse},
};

/// What a consumer uses, by provider.
type Held = BTreeMap<String, Amounts>;

/// The type of consumers that Nova writes.
const NO_TYPE: &str = "unknown";

fn held(state: &State, consumer: Uuid) -> Held {
    let providers = state.nova.providers.values();
    let mine = providers.filter_map(|one| Some((one.id.to_string(), *one.allocations.get(&consumer)?)));
    mine.collect()
}

/// `None` for a consumer of nothing: the first write names none either.
fn generation(held: &Held) -> Option<u32> {
    if held.is_empty() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    for (provider, amounts) in held {
        (provider, amounts.vcpus, amounts.memory_mb, amounts.disk_gb).hash(&mut hasher);
    }
    // Thirty-one bits, as in a database.
    u32::try_from(hasher.finish() >> 33).ok()
}

fn consumer(call: &Call<'_>) -> Result<Uuid, Refusal> {
    let wanted = call.parameter(0);
    let wrong = || Refusal::bad(format!("Malformed consumer uuid: {wanted}"));
    parse(&InstanceId::from(wanted)).ok_or_else(wrong)
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let consumer = parse(&InstanceId::from(call.parameter(0)));
    let body = call
        .world(call.api.placement.faults(), "release", |state| {
            let Some(consumer) = consumer else { return Ok(json!({"allocations": {}})) };
            let held = held(state, consumer);
            let Some(number) = generation(&held) else { return Ok(json!({"allocations": {}})) };
            let generations = |id: &str| {
                let found = state.nova.providers.values().find(|provider| provider.id.as_str() == id);
                found.map_or(0, |provider| provider.generation)
            };
            let show = |(id, amounts): (&String, &Amounts)| {
                (id.clone(), json!({"generation": generations(id), "resources": resources(*amounts)}))
            };
            let shown: serde_json::Map<String, Value> = held.iter().map(show).collect();
            let server = state.nova.servers.get(&consumer);
            let project = server.map_or_else(|| state.nova.own_project.clone(), |server| server.project.clone());
            let mut body = json!({"allocations": shown});
            if call.at_least(12) {
                body["project_id"] = (*project).into();
                body["user_id"] = "operator".into();
            }
            if call.at_least(28) {
                body["consumer_generation"] = number.into();
            }
            if call.at_least(38) {
                body["consumer_type"] = NO_TYPE.into();
            }
            Ok(body)
        })
        .await?;
    Ok(Answer::ok(&body))
}

/// Amounts by class, as a body says them.
fn amounts(resources: &Value) -> Result<Amounts, Refusal> {
    let wrong = || Refusal::bad("JSON does not validate: resources are amounts by class");
    let mut amounts = Amounts::default();
    for (class, amount) in resources.as_object().filter(|all| !all.is_empty()).ok_or_else(wrong)? {
        let amount = amount.as_u64().filter(|amount| *amount > 0).ok_or_else(wrong)?;
        match class.as_str() {
            "VCPU" => amounts.vcpus = amount,
            "MEMORY_MB" => amounts.memory_mb = amount,
            "DISK_GB" => amounts.disk_gb = amount,
            other => return Err(Refusal::bad(format!("Unable to allocate inventory: no such class {other}"))),
        }
    }
    Ok(amounts)
}

/// What a consumer shall use from now on, and the generation it was decided on.
fn wanted(call: &Call<'_>, body: &Value) -> Result<(Held, Option<u64>), Refusal> {
    let missing = |key: &str| Refusal::bad(format!("JSON does not validate: '{key}' is a required property"));
    for key in ["project_id", "user_id"] {
        if body[key].as_str().is_none_or(str::is_empty) {
            return Err(missing(key));
        }
    }
    let generation = match body.get("consumer_generation") {
        Some(Value::Null) => None,
        Some(number) => Some(number.as_u64().ok_or_else(|| missing("consumer_generation"))?),
        None => return Err(missing("consumer_generation")),
    };
    if call.at_least(38) {
        let legal = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let kind = body["consumer_type"].as_str().filter(|kind| !kind.is_empty() && kind.chars().all(legal));
        kind.ok_or_else(|| missing("consumer_type"))?;
    }
    let all = body["allocations"].as_object().ok_or_else(|| missing("allocations"))?;
    let read = |(id, one): (&String, &Value)| Ok((id.clone(), amounts(&one["resources"])?));
    Ok((all.iter().map(read).collect::<Result<Held, Refusal>>()?, generation))
}

pub(super) async fn replace(call: &Call<'_>) -> Result<Answer, Refusal> {
    if !call.at_least(28) {
        return Err(Refusal::bad("allocations are written with their consumer's generation here: 1.28 or later"));
    }
    let consumer = consumer(call)?;
    let (wanted, named) = wanted(call, &call.json()?)?;
    call.world(call.api.placement.faults(), "release", |state| {
        let before = held(state, consumer);
        let current = generation(&before).map(u64::from);
        if named != current {
            let text = |number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string());
            let text = format!("consumer generation conflict - expected {} but got {}", text(current), text(named));
            return Err(Refusal::conflict(text).coded(CONCURRENT_UPDATE));
        }
        // Everything is looked at before anything is done.
        for (id, amounts) in &wanted {
            let provider = state.nova.providers.values().find(|provider| provider.id.as_str() == id);
            let no_provider = || Refusal::bad(format!("Allocation for resource provider '{id}' that does not exist."));
            let mut room = provider.ok_or_else(no_provider)?.room();
            if let Some(own) = before.get(id) {
                room.add(*own);
            }
            if !amounts.fits(room) {
                let text = format!("Unable to allocate inventory: there is not enough left of provider {id}");
                return Err(Refusal::conflict(text));
            }
        }
        for provider in state.nova.providers.values_mut() {
            match wanted.get(provider.id.as_str()) {
                Some(amounts) if before.get(provider.id.as_str()) == Some(amounts) => {}
                Some(amounts) => provider.allocate(consumer, *amounts),
                None => drop(provider.release(consumer)),
            }
        }
        Ok(())
    })
    .await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let id = InstanceId::from(call.parameter(0));
    let delete = |placement: crate::SimPlacement| async move { placement.delete_allocations(&id).await };
    let deleted = call.placement("delete_allocations", delete).await;
    deleted.map_err(|refusal| match refusal.status() {
        Some(StatusCode::NOT_FOUND) => Refusal::missing(format!("No allocations for consumer '{}'", call.parameter(0))),
        _ => refusal,
    })?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn candidates(call: &Call<'_>) -> Result<Answer, Refusal> {
    let text = call.query.get("resources").filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| Refusal::bad("'resources' is a required property").coded(MISSING_VALUE))?;
    let mut amounts = Resources::new();
    for part in text.split(',') {
        let wrong = || Refusal::bad(format!("Badly formed resources parameter: {part}")).coded(BAD_VALUE);
        let (class, amount) = part.split_once(':').ok_or_else(wrong)?;
        if !CLASSES.contains(&class) {
            return Err(
                Refusal::bad(format!("Invalid resource class in resources parameter: {class}")).coded(BAD_VALUE)
            );
        }
        amounts.insert(class.to_owned(), amount.parse().ok().filter(|amount| *amount > 0).ok_or_else(wrong)?);
    }
    let required = call.query.all("required").flat_map(|text| text.split(',')).filter(|name| !name.is_empty());
    let required: BTreeSet<String> = required.map(str::to_owned).collect();
    let unknown = call.api.world.with(|state| required.difference(&state.nova.traits).next().cloned());
    if let Some(name) = unknown {
        return Err(Refusal::bad(format!("No such trait(s): {name}.")).coded(BAD_VALUE));
    }
    let asked = amounts.clone();
    let find = |placement: crate::SimPlacement| async move { placement.candidates(&amounts, &required).await };
    let mut found = call.placement("candidates", find).await?;
    if let Some(text) = call.query.get("limit") {
        let limit = text.parse().ok().filter(|limit| *limit > 0);
        found.truncate(limit.ok_or_else(|| Refusal::bad(format!("Invalid query string parameters: {text}")))?);
    }
    let requests = found.iter().map(|one| {
        let mut request = json!({"allocations": {one.provider.as_str(): {"resources": asked}}});
        if call.at_least(34) {
            request["mappings"] = json!({"": [one.provider.as_str()]});
        }
        request
    });
    let requests: Vec<Value> = requests.collect();
    let summaries = call.api.world.with(|state| {
        let all = state.nova.providers.values().filter(|one| found.iter().any(|other| other.provider == one.id));
        let show = |one: &crate::nova::Provider| {
            let mut shown = json!({"resources": room(one)});
            if call.at_least(17) {
                shown["traits"] = json!(one.traits);
            }
            if call.at_least(29) {
                shown["root_provider_uuid"] = one.id.as_str().into();
                shown["parent_provider_uuid"] = Value::Null;
            }
            (one.id.to_string(), shown)
        };
        all.map(show).collect::<serde_json::Map<String, Value>>()
    });
    Ok(Answer::ok(&json!({"allocation_requests": requests, "provider_summaries": summaries})))
}
