//! What is done to one server.

use cobalt_core::{
    ids::{HostName, InstanceId},
    nova::{AfterEvacuation, BlockMigration, NovaClient, ServerStatus},
};
use http::StatusCode;
use serde_json::{Value, json};

use super::{action, servers::unknown};
use crate::openstack::{
    answer::{Answer, Refusal},
    call::Call,
};

pub(super) async fn act(call: &Call<'_>) -> Result<Answer, Refusal> {
    let body = call.json()?;
    let id = InstanceId::from(call.parameter(0));
    let (name, details) =
        action(&body).ok_or_else(|| Refusal::bad("There is no action in the request body, or several"))?;
    let done = match name {
        "os-migrateLive" => live(call, id, details).await,
        "migrate" => cold(call, id, details).await,
        "confirmResize" => call
            .nova("confirm_migration", |nova| async move { nova.confirm_migration(&id).await })
            .await
            .map(|()| Answer::empty(StatusCode::NO_CONTENT)),
        "evacuate" => evacuate(call, id, details).await,
        "os-resetState" => reset(call, id, details).await,
        "os-getConsoleOutput" => console(call, id, details).await,
        "os-stop" => stop(call, id).await,
        "lock" | "unlock" => lock(call, id, name == "lock").await,
        other => Err(Refusal::bad(format!("There is no such action: {other}"))),
    };
    done.map_err(|refusal| unknown(call, refusal))
}

fn accepted() -> Answer {
    Answer::empty(StatusCode::ACCEPTED)
}

/// The host an action names, if it names one.
fn target(details: &Value) -> Result<Option<HostName>, Refusal> {
    match &details["host"] {
        Value::Null => Ok(None),
        Value::String(host) if !host.is_empty() => Ok(Some(HostName::from(host.as_str()))),
        other => Err(Refusal::bad(format!("Invalid input for field/attribute host. Value: {other}."))),
    }
}

fn object(details: &Value) -> Result<(), Refusal> {
    if details.is_object() { Ok(()) } else { Err(Refusal::bad("Invalid input for the action: it is no object.")) }
}

/// The body is null, or an object that may name a host: from 2.56 on.
async fn cold(call: &Call<'_>, id: InstanceId, details: &Value) -> Result<Answer, Refusal> {
    let host = if details.is_null() || !call.at_least(56) { None } else { target(details)? };
    let migrate = |nova: crate::SimNova| async move { nova.cold_migrate(&id, host.as_ref()).await };
    call.nova("cold_migrate", migrate).await.map(|()| accepted())
}

async fn live(call: &Call<'_>, id: InstanceId, details: &Value) -> Result<Answer, Refusal> {
    object(details)?;
    let block = match &details["block_migration"] {
        Value::Bool(true) => BlockMigration::Yes,
        Value::Bool(false) => BlockMigration::No,
        Value::String(word) if word == "auto" && call.at_least(25) => BlockMigration::Auto,
        other => {
            return Err(Refusal::bad(format!("Invalid input for field/attribute block_migration. Value: {other}.")));
        }
    };
    no_force(call, details)?;
    let host = target(details)?;
    call.nova("live_migrate", |nova| async move { nova.live_migrate(&id, host.as_ref(), block).await }).await?;
    Ok(accepted())
}

/// A target cannot be forced any more since 2.68.
fn no_force(call: &Call<'_>, details: &Value) -> Result<(), Refusal> {
    if call.at_least(68) && details.get("force").is_some() {
        return Err(Refusal::bad("Additional properties are not allowed ('force' was unexpected)"));
    }
    Ok(())
}

async fn evacuate(call: &Call<'_>, id: InstanceId, details: &Value) -> Result<Answer, Refusal> {
    object(details)?;
    no_force(call, details)?;
    let host = target(details)?;
    let after = if call.at_least(95) { AfterEvacuation::StayOff } else { AfterEvacuation::Run };
    call.nova("evacuate", |nova| async move { nova.evacuate(&id, host.as_ref(), after).await }).await?;
    Ok(if call.at_least(14) { Answer::empty(StatusCode::OK) } else { Answer::ok(&json!({"adminPass": "simulated"})) })
}

async fn reset(call: &Call<'_>, id: InstanceId, details: &Value) -> Result<Answer, Refusal> {
    let status = match details["state"].as_str() {
        Some("active") => ServerStatus::Active,
        Some("error") => ServerStatus::Error,
        _ => {
            return Err(Refusal::bad(format!("Invalid input for field/attribute state. Value: {}.", details["state"])));
        }
    };
    call.nova("reset_state", |nova| async move { nova.reset_state(&id, status).await }).await?;
    Ok(accepted())
}

async fn console(call: &Call<'_>, id: InstanceId, details: &Value) -> Result<Answer, Refusal> {
    // Everything, unless a number of lines is given, as a number or as its digits.
    let lines = match &details["length"] {
        Value::Null => u32::MAX,
        value => {
            let number = value.as_i64().or_else(|| value.as_str()?.parse().ok());
            let wrong = || Refusal::bad(format!("Invalid input for field/attribute length. Value: {value}."));
            match number.ok_or_else(wrong)? {
                -1 => u32::MAX,
                number => u32::try_from(number).map_err(|_| wrong())?,
            }
        }
    };
    let text = call.nova("console_output", |nova| async move { nova.console_output(&id, lines).await }).await?;
    Ok(Answer::ok(&json!({"output": text})))
}

async fn stop(call: &Call<'_>, id: InstanceId) -> Result<Answer, Refusal> {
    let server = call
        .nova("server", |nova| {
            let id = id.clone();
            async move { nova.server(&id).await }
        })
        .await?;
    let conflict = |text: &str| Refusal::conflict(format!("Cannot 'stop' instance {id} while {text}"));
    if server.task.is_some() || ![ServerStatus::Active, ServerStatus::Error].contains(&server.status) {
        return Err(conflict("it is in this state"));
    }
    call.api.world.guest_shutdown(&id).map_err(|_| conflict("it does not run"))?;
    Ok(accepted())
}

async fn lock(call: &Call<'_>, id: InstanceId, locked: bool) -> Result<Answer, Refusal> {
    call.nova("server", |nova| {
        let id = id.clone();
        async move { nova.server(&id).await }
    })
    .await?;
    call.api.world.lock(&id, locked).map_err(|error| Refusal::missing(error.to_string()))?;
    Ok(accepted())
}
