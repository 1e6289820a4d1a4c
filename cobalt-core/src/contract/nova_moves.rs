//! The laws of moving servers.

use std::sync::Arc;

use super::{
    Provoked, Stop, Suite, ensure, eventually,
    nova::{NovaFixture, host, remove, service},
    rejects, same,
};
use crate::{
    Error,
    ids::{HostName, InstanceId, ServiceId},
    nova::{
        AfterEvacuation, BlockMigration, Migration, MigrationKind, MigrationPhase, NovaClient, ServerStatus,
        ServiceState,
    },
};

type Cloud = Arc<dyn NovaClient>;

pub(super) async fn run(suite: &mut Suite, fixture: &mut dyn NovaFixture) {
    suite.check("live", "a live-migrated server migrates and then runs elsewhere", live(fixture)).await;
    suite.check("live-target", "a live migration goes to the host it is told to", live_target(fixture)).await;
    suite.check("live-twice", "a second request meanwhile is a conflict", live_twice(fixture)).await;
    suite.check("live-abort", "an aborted migration leaves the server where it was", live_abort(fixture)).await;
    suite.check("live-force", "a forced migration completes", live_force(fixture)).await;
    suite.check("live-disabled", "no server goes to a disabled host", live_disabled(fixture)).await;
    suite
        .check("migrations", "migrations of a host are listed newest first, by its whole name", migrations(fixture))
        .await;
    suite.check("cold-target", "a cold migration goes to the host it is told to", cold_target(fixture)).await;
    suite.check("cold", "a cold-migrated server waits for a yes, and is then shut off elsewhere", cold(fixture)).await;
    suite.check("evacuate-up", "nothing is evacuated from a host whose service is up", evacuate_up(fixture)).await;
    suite
        .check("evacuate-run", "a server evacuated to run runs elsewhere", evacuate(fixture, AfterEvacuation::Run))
        .await;
    suite
        .check(
            "evacuate-off",
            "a server evacuated to stay off is shut off elsewhere",
            evacuate(fixture, AfterEvacuation::StayOff),
        )
        .await;
}

async fn settled(nova: &Cloud, id: &InstanceId, what: &str) -> Provoked<crate::nova::Server> {
    eventually(what, || async {
        let server = nova.server(id).await?;
        let moving = [ServerStatus::Migrating, ServerStatus::Resize, ServerStatus::Rebuild, ServerStatus::Build];
        Ok(server.task.is_none() && !moving.contains(&server.status))
    })
    .await?;
    Ok(nova.server(id).await?)
}

/// The record of this server's migration that is not over.
async fn current(nova: &Cloud, source: &HostName, id: &InstanceId) -> Provoked<Option<Migration>> {
    let all = nova.migrations(source).await?;
    Ok(all.into_iter().find(|migration| migration.server == *id && !migration.phase.is_over()))
}

/// Waits until this server's migration can be aborted.
async fn running(nova: &Cloud, source: &HostName, id: &InstanceId) -> Provoked<Migration> {
    eventually("a running migration", || async {
        let found = current(nova, source, id).await?;
        Ok(found.is_some_and(|migration| migration.phase == MigrationPhase::Running))
    })
    .await?;
    let found = current(nova, source, id).await?;
    found.map_or_else(|| Stop::cannot("see a migration while it runs: it is over too soon"), Ok)
}

async fn live(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    nova.live_migrate(&id, None, BlockMigration::Auto).await?;
    let server = settled(&nova, &id, "the end of the migration").await?;
    same("status", server.status, ServerStatus::Active)?;
    ensure(server.host.as_ref() != Some(&source), || "it is where it was".into())?;
    ensure(server.host.is_some() && server.powered, || "it does not run".into())?;
    remove(&*nova, &id).await
}

async fn live_target(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source, target) = (fixture.nova(), host(fixture, 0)?, host(fixture, 1)?);
    let id = fixture.add_server(&source).await?;
    let nowhere = HostName::from("no-such-host");
    let answer = nova.live_migrate(&id, Some(&nowhere), BlockMigration::Auto).await;
    ensure(answer.is_err(), || "a host nobody has was accepted".into())?;
    nova.live_migrate(&id, Some(&target), BlockMigration::Auto).await?;
    let server = settled(&nova, &id, "the end of the migration").await?;
    same("its host", server.host, Some(target))?;
    remove(&*nova, &id).await
}

async fn live_twice(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    fixture.migrations_last(true).await?;
    let outcome = twice(&nova, &id).await;
    fixture.migrations_last(false).await?;
    outcome?;
    settled(&nova, &id, "the end of the migration").await?;
    remove(&*nova, &id).await
}

async fn twice(nova: &Cloud, id: &InstanceId) -> Provoked<()> {
    nova.live_migrate(id, None, BlockMigration::Auto).await?;
    same("status", nova.server(id).await?.status, ServerStatus::Migrating)?;
    rejects("a second request", "conflict", nova.live_migrate(id, None, BlockMigration::Auto).await)?;
    rejects("a cold one", "conflict", nova.cold_migrate(id, None).await)
}

async fn live_abort(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    fixture.migrations_last(true).await?;
    let outcome = aborted(&nova, &source, &id).await;
    fixture.migrations_last(false).await?;
    outcome?;
    remove(&*nova, &id).await
}

async fn aborted(nova: &Cloud, source: &HostName, id: &InstanceId) -> Provoked<()> {
    nova.live_migrate(id, None, BlockMigration::Auto).await?;
    let migration = running(nova, source, id).await?;
    nova.abort_migration(id, &migration.id).await?;
    let server = settled(nova, id, "the end of the migration").await?;
    same("its host", server.host.as_ref(), Some(source))?;
    same("status", server.status, ServerStatus::Active)?;
    eventually("the record to be cancelled", || async {
        let all = nova.migrations(source).await?;
        let mine = all.into_iter().find(|other| other.id == migration.id);
        Ok(mine.is_some_and(|mine| mine.phase == MigrationPhase::Cancelled))
    })
    .await?;
    let again = nova.abort_migration(id, &migration.id).await;
    ensure(again.is_err(), || "what is over was aborted".into())
}

async fn live_force(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    fixture.migrations_last(true).await?;
    let outcome = forced(&nova, &source, &id).await;
    fixture.migrations_last(false).await?;
    outcome?;
    remove(&*nova, &id).await
}

async fn forced(nova: &Cloud, source: &HostName, id: &InstanceId) -> Provoked<()> {
    nova.live_migrate(id, None, BlockMigration::Auto).await?;
    let migration = running(nova, source, id).await?;
    nova.force_complete_migration(id, &migration.id).await?;
    let server = settled(nova, id, "the end of the migration").await?;
    ensure(server.host.as_ref() != Some(source), || "it is where it was".into())?;
    let again = nova.force_complete_migration(id, &migration.id).await;
    ensure(again.is_err(), || "what is over was forced".into())
}

async fn live_disabled(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    let others = nova.services().await?.into_iter().filter(|service| service.enabled && service.host != source);
    let others: Vec<ServiceId> = others.map(|service| service.id).collect();
    for other in &others {
        nova.disable_service(other, "nobody may come").await?;
    }
    // Accepted and then failed, or refused at once: both happen in real clouds.
    let answer = nova.live_migrate(&id, None, BlockMigration::Auto).await;
    let outcome = settled(&nova, &id, "the end of the migration").await;
    for other in &others {
        nova.enable_service(other).await?;
    }
    same("its host", outcome?.host, Some(source.clone()))?;
    if answer.is_ok() {
        eventually("the record to say so", || async {
            let all = nova.migrations(&source).await?;
            let mine = all.into_iter().find(|migration| migration.server == id);
            Ok(mine.is_some_and(|mine| mine.phase == MigrationPhase::Failed))
        })
        .await?;
    }
    remove(&*nova, &id).await
}

async fn migrations(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let mut moved = Vec::new();
    for _ in 0..2 {
        let id = fixture.add_server(&source).await?;
        nova.live_migrate(&id, None, BlockMigration::Auto).await?;
        settled(&nova, &id, "the end of the migration").await?;
        moved.push(id);
    }
    // A server settles a moment before its record does.
    eventually("the records to be over", || async {
        let all = nova.migrations(&source).await?;
        let mut mine = all.iter().filter(|migration| moved.contains(&migration.server));
        Ok(mine.all(|migration| migration.phase.is_over()))
    })
    .await?;
    let all = nova.migrations(&source).await?;
    let foreign = all.iter().find(|other| other.source != source && other.destination.as_ref() != Some(&source));
    ensure(foreign.is_none(), || format!("a migration of another host is listed: {foreign:?}"))?;
    let mine: Vec<&Migration> = all.iter().filter(|migration| moved.contains(&migration.server)).collect();
    let order: Vec<&InstanceId> = mine.iter().map(|migration| &migration.server).collect();
    same("newest first", order, vec![&moved[1], &moved[0]])?;
    for migration in mine {
        same("kind", &migration.kind, &MigrationKind::Live)?;
        same("phase", &migration.phase, &MigrationPhase::Completed)?;
        let destination = migration.destination.clone();
        same("destination", destination, nova.server(&migration.server).await?.host)?;
    }
    for id in &moved {
        remove(&*nova, id).await?;
    }
    Ok(())
}

async fn cold(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    rejects("confirm nothing", "conflict", nova.confirm_migration(&id).await)?;
    fixture.stop_server(&id).await?;
    let off = || async { Ok(nova.server(&id).await?.status == ServerStatus::ShutOff) };
    eventually("the server to be shut off", off).await?;
    nova.cold_migrate(&id, None).await?;
    let server = settled(&nova, &id, "the end of the migration").await?;
    same("status", server.status, ServerStatus::VerifyResize)?;
    ensure(server.host.as_ref() != Some(&source), || "it is where it was".into())?;
    nova.confirm_migration(&id).await?;
    eventually("the server to be shut off", off).await?;
    remove(&*nova, &id).await
}

async fn cold_target(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source, target) = (fixture.nova(), host(fixture, 0)?, host(fixture, 1)?);
    let id = fixture.add_server(&source).await?;
    fixture.stop_server(&id).await?;
    let off = || async { Ok(nova.server(&id).await?.status == ServerStatus::ShutOff) };
    eventually("the server to be shut off", off).await?;
    let nowhere = HostName::from("no-such-host");
    ensure(nova.cold_migrate(&id, Some(&nowhere)).await.is_err(), || "a host nobody has was accepted".into())?;
    nova.cold_migrate(&id, Some(&target)).await?;
    let server = settled(&nova, &id, "the end of the migration").await?;
    same("its host", server.host, Some(target))?;
    nova.confirm_migration(&id).await?;
    eventually("the server to be shut off", off).await?;
    remove(&*nova, &id).await
}

async fn evacuate_up(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&source).await?;
    rejects("evacuate", "refused", nova.evacuate(&id, None, AfterEvacuation::Run).await)?;
    let server = nova.server(&id).await?;
    same("status", (server.status, server.host), (ServerStatus::Active, Some(source)))?;
    remove(&*nova, &id).await
}

async fn evacuate(fixture: &mut dyn NovaFixture, after: AfterEvacuation) -> Provoked<()> {
    let (nova, source) = (fixture.nova(), host(fixture, 2)?);
    let id = fixture.add_server(&source).await?;
    fixture.kill_host(&source).await?;
    let outcome = evacuated(&nova, &source, &id, after).await;
    // Also if it went wrong: the checks that follow count on their hosts.
    fixture.revive_host(&source).await?;
    let service_id = service(&*nova, &source).await?.id;
    // Not before the host's agent has cleaned up.
    eventually("the declaration to be taken back", || async {
        match nova.force_service_down(&service_id, false).await {
            Err(Error::Conflict { .. }) => Ok(false),
            answer => Ok(answer.map(|()| true)?),
        }
    })
    .await?;
    eventually("the service to be up", || async { Ok(service(&*nova, &source).await?.state == ServiceState::Up) })
        .await?;
    same("its host", nova.server(&id).await?.host, outcome?)?;
    remove(&*nova, &id).await
}

/// Evacuates a server from a dead host, and answers where it is then.
async fn evacuated(
    nova: &Cloud,
    source: &HostName,
    id: &InstanceId,
    after: AfterEvacuation,
) -> Provoked<Option<HostName>> {
    nova.force_service_down(&service(&**nova, source).await?.id, true).await?;
    same("state", service(&**nova, source).await?.state, ServiceState::Down)?;
    nova.evacuate(id, None, after).await?;
    // A conflict while the first one runs; refused when it is over already and the server's new host is up.
    let again = nova.evacuate(id, None, after).await;
    let rejected = again.as_ref().err().is_some_and(|error| ["conflict", "refused"].contains(&error.category()));
    ensure(rejected, || format!("evacuate twice: wanted conflict or refused, got {again:?}"))?;
    // The server alone does not tell: one that is to stay off is seen running, and on its old host, for a moment.
    let record = || async {
        let all = nova.migrations(source).await?;
        Ok::<_, Stop>(all.into_iter().find(|migration| migration.server == *id))
    };
    eventually("the end of the evacuation", || async {
        Ok(record().await?.is_some_and(|record| record.phase.is_over()))
    })
    .await?;
    let record = record().await?.map(|record| (record.kind, record.phase));
    same("record", record, Some((MigrationKind::Evacuation, MigrationPhase::Completed)))?;
    let server = nova.server(id).await?;
    let wanted = if after == AfterEvacuation::Run { ServerStatus::Active } else { ServerStatus::ShutOff };
    same("status", (server.status, server.task), (wanted, None))?;
    ensure(server.host.is_some() && server.host.as_ref() != Some(source), || "it is where it was".into())?;
    Ok(server.host)
}
