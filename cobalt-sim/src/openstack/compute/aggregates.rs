//! Aggregates.

use cobalt_core::{
    ids::{AggregateId, HostName},
    nova::{Aggregate, NovaClient},
};
use http::StatusCode;
use serde_json::{Value, json};

use super::{action, time};
use crate::openstack::{
    answer::{Answer, Refusal},
    call::Call,
};

/// The metadata that makes a zone.
const ZONE: &str = "availability_zone";

fn show(call: &Call<'_>, one: &Aggregate) -> Value {
    let hosts: Vec<&str> = one.hosts.iter().map(HostName::as_str).collect();
    let mut shown = json!({
        "id": one.id.as_str().parse::<u64>().unwrap_or(0), "name": one.name, "availability_zone": one.zone, "hosts": hosts,
        "metadata": one.metadata, "created_at": time(call.api.world.now()), "updated_at": null, "deleted": false,
        "deleted_at": null,
    });
    if call.at_least(41) {
        shown["uuid"] = one.uuid.as_str().into();
    }
    shown
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let all = call.nova("aggregates", |nova| async move { nova.aggregates().await }).await?;
    let shown: Vec<Value> = all.iter().map(|one| show(call, one)).collect();
    Ok(Answer::ok(&json!({"aggregates": shown})))
}

fn missing(call: &Call<'_>) -> Refusal {
    Refusal::missing(format!("Aggregate {} could not be found.", call.parameter(0)))
}

async fn find(call: &Call<'_>) -> Result<Aggregate, Refusal> {
    let all = call.api.plain_nova().aggregates().await?;
    all.into_iter().find(|one| one.id.as_str() == call.parameter(0)).ok_or_else(|| missing(call))
}

async fn shown(call: &Call<'_>) -> Result<Answer, Refusal> {
    Ok(Answer::ok(&json!({"aggregate": show(call, &find(call).await?)})))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.parameter(0);
    let all = call.nova("aggregates", |nova| async move { nova.aggregates().await }).await?;
    let found = all.iter().find(|one| one.id.as_str() == wanted).ok_or_else(|| missing(call))?;
    Ok(Answer::ok(&json!({"aggregate": show(call, found)})))
}

pub(super) async fn create(call: &Call<'_>) -> Result<Answer, Refusal> {
    let body = call.json()?;
    let wanted = &body["aggregate"];
    let name = wanted["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refusal::bad("'name' is a required property"))?.to_owned();
    let zone = wanted[ZONE].as_str().map(str::to_owned);
    let id = call
        .world(call.api.nova.faults(), "aggregates", |state| {
            if state.nova.aggregates.values().any(|other| other.name == name) {
                return Err(Refusal::conflict(format!("Aggregate {name} already exists.")));
            }
            let uuid = state.random_uuid();
            Ok(state.nova.add_aggregate(uuid, &name, zone.as_deref()))
        })
        .await?;
    let all = call.api.plain_nova().aggregates().await?;
    let made = all.iter().find(|one| one.id.as_str() == id.to_string()).ok_or_else(|| missing(call))?;
    Ok(Answer::ok(&json!({"aggregate": show(call, made)})))
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.parameter(0).parse::<u64>().ok();
    call.world(call.api.nova.faults(), "aggregates", |state| {
        let found = wanted.and_then(|id| state.nova.aggregates.get(&id));
        if !found.ok_or_else(|| missing(call))?.hosts.is_empty() {
            return Err(Refusal::bad("Cannot remove host aggregate: it is not empty"));
        }
        state.nova.aggregates.retain(|id, _| Some(*id) != wanted);
        Ok(())
    })
    .await?;
    Ok(Answer::empty(StatusCode::OK))
}

pub(super) async fn act(call: &Call<'_>) -> Result<Answer, Refusal> {
    let body = call.json()?;
    let (name, details) =
        action(&body).ok_or_else(|| Refusal::bad("There is no action in the request body, or several"))?;
    let id = AggregateId::from(call.parameter(0));
    match name {
        "add_host" | "remove_host" => {
            let host = details["host"].as_str().filter(|host| !host.is_empty());
            let host = HostName::from(host.ok_or_else(|| Refusal::bad("'host' is a required property"))?);
            if name == "add_host" {
                call.nova("add_to_aggregate", |nova| async move { nova.add_to_aggregate(&id, &host).await }).await?;
            } else {
                let remove = |nova: crate::SimNova| async move { nova.remove_from_aggregate(&id, &host).await };
                call.nova("remove_from_aggregate", remove).await?;
            }
        }
        "set_metadata" => set_metadata(call, &details["metadata"]).await?,
        other => return Err(Refusal::bad(format!("There is no such action: {other}"))),
    }
    shown(call).await
}

/// `null` takes a key away.
async fn set_metadata(call: &Call<'_>, metadata: &Value) -> Result<(), Refusal> {
    let wrong = || Refusal::bad("Invalid input for field/attribute metadata.");
    let changes = metadata.as_object().ok_or_else(wrong)?;
    if !changes.values().all(|value| value.is_string() || value.is_null()) {
        return Err(wrong());
    }
    let wanted = call.parameter(0).parse::<u64>().ok();
    call.world(call.api.nova.faults(), "aggregates", |state| {
        let found = wanted.and_then(|id| state.nova.aggregates.get_mut(&id)).ok_or_else(|| missing(call))?;
        for (key, value) in changes {
            match value.as_str() {
                Some(value) => drop(found.metadata.insert(key.clone(), value.to_owned())),
                None => drop(found.metadata.remove(key)),
            }
        }
        found.zone = found.metadata.get(ZONE).cloned();
        Ok(())
    })
    .await
}
