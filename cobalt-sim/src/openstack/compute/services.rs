//! Compute services.

use cobalt_core::{
    ids::{HostName, ServiceId},
    nova::{ComputeService, NovaClient},
};
use http::StatusCode;
use serde_json::{Value, json};

use super::{state, status, time};
use crate::openstack::{
    answer::{Answer, Refusal},
    call::Call,
};

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let host = call.query.get("host");
    let method = if host.is_some() { "service_on" } else { "services" };
    let all = call.nova(method, |nova| async move { nova.services().await }).await?;
    let meant = |service: &&ComputeService| {
        call.query.admits("binary", "nova-compute") && host.is_none_or(|host| service.host.as_str() == host)
    };
    let found: Vec<Value> = all.iter().filter(meant).map(|service| show(call, service)).collect();
    Ok(Answer::ok(&json!({"services": found})))
}

fn show(call: &Call<'_>, service: &ComputeService) -> Value {
    let mut shown = json!({
        "binary": "nova-compute", "host": service.host.as_str(), "zone": service.zone,
        "status": status(service.enabled), "state": state(service.state), "disabled_reason": service.disabled_reason,
        "updated_at": time(call.api.world.now()),
    });
    shown["id"] = id(call, &service.host, &service.id);
    if call.at_least(11) {
        shown["forced_down"] = service.forced_down.into();
    }
    shown
}

/// Numbers for those who do not ask for UUIDs.
pub(super) fn id(call: &Call<'_>, host: &HostName, uuid: &ServiceId) -> Value {
    if call.at_least(53) { uuid.as_str().into() } else { call.api.number_of(host).into() }
}

/// Which service is meant.
async fn find(call: &Call<'_>) -> Result<ComputeService, Refusal> {
    let wanted = call.parameter(0);
    // Without a fault of its own: the change that follows has one.
    let all = call.api.plain_nova().services().await?;
    let found = all.into_iter().find(|service| {
        let id = id(call, &service.host, &service.id);
        id.as_str().map_or_else(|| id.to_string(), str::to_owned) == wanted
    });
    found.ok_or_else(|| Refusal::missing(format!("Service {wanted} could not be found.")))
}

pub(super) async fn update(call: &Call<'_>) -> Result<Answer, Refusal> {
    if !call.at_least(53) {
        return Err(Refusal::missing("The resource could not be found."));
    }
    let body = call.json()?;
    let wanted = match &body["status"] {
        Value::Null => None,
        Value::String(word) if word == "enabled" => Some(true),
        Value::String(word) if word == "disabled" => Some(false),
        other => return Err(Refusal::bad(format!("Invalid input for field/attribute status. Value: {other}."))),
    };
    let reason = body["disabled_reason"].as_str();
    if reason.is_some() && wanted != Some(false) {
        return Err(Refusal::bad("Specifying disabled_reason requires that status is disabled."));
    }
    let forced = body.get("forced_down").map(|value| {
        let wrong = || Refusal::bad(format!("Invalid input for field/attribute forced_down. Value: {value}."));
        value.as_bool().ok_or_else(wrong)
    });
    let forced = forced.transpose()?;
    if wanted.is_none() && forced.is_none() {
        return Err(Refusal::bad("No updates were requested. Fields 'status' or 'forced_down' should be specified."));
    }
    let found = find(call).await?;
    let id = found.id.clone();
    if let Some(enabled) = wanted {
        let method = if enabled { "enable_service" } else { "disable_service" };
        let act = |nova: crate::SimNova| {
            let id = id.clone();
            async move {
                if enabled {
                    nova.enable_service(&id).await
                } else {
                    nova.disable_service(&id, reason.unwrap_or_default()).await
                }
            }
        };
        call.nova(method, act).await?;
    }
    if let Some(down) = forced {
        let id = id.clone();
        call.nova("force_service_down", |nova| async move { nova.force_service_down(&id, down).await }).await?;
    }
    let after = call.api.plain_nova().service_on(&found.host).await?;
    Ok(Answer::ok(&json!({"service": show(call, &after)})))
}

pub(super) async fn delete(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.parameter(0);
    let id = match find(call).await {
        Ok(service) => service.id,
        // The seam says the same, and its faults come first.
        Err(refusal) if refusal.status() == Some(StatusCode::NOT_FOUND) => ServiceId::from(wanted),
        Err(refusal) => return Err(refusal),
    };
    call.nova("delete_service", |nova| async move { nova.delete_service(&id).await }).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}
