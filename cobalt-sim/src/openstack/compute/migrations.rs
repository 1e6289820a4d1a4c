//! Migrations.

use cobalt_core::{
    ids::{HostName, InstanceId, MigrationId},
    nova::{Migration, MigrationKind, MigrationPhase, NovaClient},
};
use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{action, servers::unknown, time};
use crate::openstack::{
    answer::{Answer, Refusal},
    call::Call,
    page::Page,
};

/// Migrations, the newest first: of one host, or of all.
async fn all(call: &Call<'_>, host: Option<&str>) -> Result<Vec<Migration>, Refusal> {
    let hosts = match host {
        Some(host) => vec![HostName::from(host)],
        None => call.api.world.hosts(),
    };
    let mut found = call
        .nova("migrations", |nova| async move {
            let mut found = Vec::new();
            for host in &hosts {
                found.extend(nova.migrations(host).await?);
            }
            Ok(found)
        })
        .await?;
    found.sort_by_key(|one| std::cmp::Reverse(number(&one.id)));
    // Those between two hosts are found with both.
    found.dedup_by(|a, b| a.id == b.id);
    Ok(found)
}

fn number(id: &MigrationId) -> u64 {
    id.as_str().parse().unwrap_or(0)
}

/// Nova's own id of a migration from 2.59 on; ours have numbers only.
fn uuid(migration: &Migration) -> String {
    Uuid::from_u128(u128::from(number(&migration.id))).to_string()
}

pub(super) async fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let query = &call.query;
    let mut found = all(call, query.get("host")).await?;
    found.retain(|one| {
        query.admits("instance_uuid", one.server.as_str())
            && query.admits("source_compute", one.source.as_str())
            && query.admits("status", phase(one))
            && query.admits("migration_type", kind(&one.kind))
    });
    if !call.at_least(59) {
        let shown: Vec<Value> = found.iter().map(|one| show(call, one)).collect();
        return Ok(Answer::ok(&json!({"migrations": shown})));
    }
    let page = Page::asked(call)?;
    let (found, next) = page.cut(found, uuid)?;
    let shown: Vec<Value> = found.iter().map(|one| show(call, one)).collect();
    Ok(Answer::ok(&page.body(call, "/compute/v2.1/os-migrations", "migrations", &shown, next.as_deref())))
}

fn show(call: &Call<'_>, one: &Migration) -> Value {
    let mut shown = json!({
        "id": number(&one.id), "instance_uuid": one.server.as_str(), "status": phase(one),
        "source_compute": one.source.as_str(), "source_node": one.source.as_str(),
        "dest_compute": one.destination.as_ref().map(HostName::as_str),
        "dest_node": one.destination.as_ref().map(HostName::as_str), "dest_host": null,
        "old_instance_type_id": 1, "new_instance_type_id": 1,
        "created_at": one.created_at.map(time), "updated_at": one.updated_at.map(time),
    });
    if call.at_least(23) {
        shown["migration_type"] = kind(&one.kind).into();
    }
    if call.at_least(59) {
        shown["uuid"] = uuid(one).into();
    }
    shown
}

fn kind(kind: &MigrationKind) -> &str {
    match kind {
        MigrationKind::Live => "live-migration",
        MigrationKind::Cold => "migration",
        MigrationKind::Evacuation => "evacuation",
        MigrationKind::Resize => "resize",
        MigrationKind::Other(word) => word,
        _ => "unknown",
    }
}

/// Each kind of move has its own words for the same.
fn phase(one: &Migration) -> &str {
    match (&one.phase, &one.kind) {
        (MigrationPhase::Queued, MigrationKind::Live) => "queued",
        (MigrationPhase::Queued, _) => "accepted",
        (MigrationPhase::Preparing, MigrationKind::Live) => "preparing",
        (MigrationPhase::Running, MigrationKind::Live) => "running",
        (MigrationPhase::Preparing, _) | (MigrationPhase::Running, MigrationKind::Evacuation) => "pre-migrating",
        (MigrationPhase::Running, _) => "migrating",
        (MigrationPhase::Finishing, _) => "post-migrating",
        (MigrationPhase::Unconfirmed, _) => "finished",
        (MigrationPhase::Confirming, _) => "confirming",
        (MigrationPhase::Completed, MigrationKind::Live) => "completed",
        (MigrationPhase::Completed, MigrationKind::Evacuation) => "done",
        (MigrationPhase::Completed, _) => "confirmed",
        (MigrationPhase::Cancelled, _) => "cancelled",
        (MigrationPhase::Failed, MigrationKind::Evacuation) => "failed",
        (MigrationPhase::Failed, _) => "error",
        (MigrationPhase::Other(word), _) => word,
        _ => "unknown",
    }
}

/// The live migrations of a server that are under way: Nova shows no others here.
async fn under_way(call: &Call<'_>) -> Result<Vec<Migration>, Refusal> {
    let id = InstanceId::from(call.parameter(0));
    let known = call
        .nova("server", |nova| {
            let id = id.clone();
            async move { nova.server(&id).await }
        })
        .await;
    known.map_err(|no| unknown(call, no))?;
    let mut found = all(call, None).await?;
    found.retain(|one| one.server == id && one.kind == MigrationKind::Live && !one.phase.is_over());
    Ok(found)
}

pub(super) async fn of_server(call: &Call<'_>) -> Result<Answer, Refusal> {
    let shown: Vec<Value> = under_way(call).await?.iter().map(|one| show(call, one)).collect();
    Ok(Answer::ok(&json!({"migrations": shown})))
}

fn no_such_migration(call: &Call<'_>) -> Refusal {
    let (server, id) = (call.parameter(0), call.parameter(1));
    Refusal::missing(format!("Migration {id} for server {server} could not be found."))
}

pub(super) async fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let found = under_way(call).await?.into_iter().find(|one| one.id.as_str() == call.parameter(1));
    Ok(Answer::ok(&json!({"migration": show(call, &found.ok_or_else(|| no_such_migration(call))?)})))
}

fn named(call: &Call<'_>) -> (InstanceId, MigrationId) {
    (InstanceId::from(call.parameter(0)), MigrationId::from(call.parameter(1)))
}

/// A migration in the wrong state is a bad request to Nova.
fn refused(call: &Call<'_>, refusal: Refusal) -> Refusal {
    match refusal.status() {
        Some(StatusCode::NOT_FOUND) => no_such_migration(call),
        _ => refusal.conflict_as(StatusCode::BAD_REQUEST),
    }
}

pub(super) async fn abort(call: &Call<'_>) -> Result<Answer, Refusal> {
    if !call.at_least(24) {
        return Err(Refusal::missing("The resource could not be found."));
    }
    let (server, id) = named(call);
    if !call.at_least(65) {
        // Those that wait could not be aborted before.
        let mut waiting = under_way(call).await?.into_iter();
        if waiting.any(|one| one.id == id && one.phase == MigrationPhase::Queued) {
            return Err(Refusal::bad(format!("Migration {id} state of instance {server} is queued.")));
        }
    }
    let aborted = call.nova("abort_migration", |nova| async move { nova.abort_migration(&server, &id).await }).await;
    aborted.map_err(|no| refused(call, no))?;
    Ok(Answer::empty(StatusCode::ACCEPTED))
}

pub(super) async fn act(call: &Call<'_>) -> Result<Answer, Refusal> {
    let body = call.json()?;
    if !call.at_least(22) || action(&body).is_none_or(|(name, _)| name != "force_complete") {
        return Err(Refusal::bad("There is no such action"));
    }
    let (server, id) = named(call);
    let force = |nova: crate::SimNova| async move { nova.force_complete_migration(&server, &id).await };
    call.nova("force_complete_migration", force).await.map_err(|no| refused(call, no))?;
    Ok(Answer::empty(StatusCode::ACCEPTED))
}
