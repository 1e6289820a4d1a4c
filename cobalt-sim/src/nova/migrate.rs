//! Moving servers whose host lives.
//!
//! ```text
//!             slot free       prepared        copied           settled
//!   Queued ─────────────▶ Preparing ──▶ Running ──▶ Finishing ────────▶ Completed
//!      │                      │            │ (point of return)
//!      └──────────────────────┴────────────┴──▶ Failed, Cancelled: the server is where it was
//! ```
//!
//! A cold migration takes the same way and rests in *Unconfirmed* instead; once confirmed it is *Confirming* until its
//! old place is cleaned up, and the server shows nothing of that. A migration whose source loses its power stays where it
//! is, as a real one does, until somebody resets the server or the host returns.

use std::time::Duration;

use cobalt_core::{
    Error,
    backend::{DomainEvent, DomainState, JobOutcome, Lifecycle},
    ids::InstanceId,
    nova::{BlockMigration, MigrationKind, MigrationPhase, ServerStatus, ServiceState, TaskState},
};
use uuid::Uuid;

use super::MigrationRecord;
use crate::world::{DomainJob, HostId, State, World, instance, parse, time::Due};

impl World {
    /// Makes the next `count` live migrations fail after their memory was copied.
    pub fn fail_migrations(&self, count: u64, why: &str) {
        self.with(|state| state.nova.doom = (count > 0).then(|| (count, why.to_owned())));
    }

    /// Whether hosts hear that a live migration is to stop. If not, the request is accepted, and nothing happens.
    pub fn set_aborts_heard(&self, heard: bool) {
        self.with(|state| state.nova.deaf = !heard);
    }

    /// What a compute service does to a server that it finds moving when it starts: the server rests again, and a record
    /// that is not yet *running* is left open.
    pub fn forget_migration(&self, server: &InstanceId) {
        self.with(|state| {
            let Some((id, number)) = parse(server).and_then(|id| Some((id, state.nova.current_migration(id)?))) else {
                return;
            };
            let before = state.nova.migrations.get(&number).map(|record| record.phase.clone());
            state.undo_migration(number, MigrationPhase::Failed);
            if let (Some(phase), Some(record)) = (before, state.nova.migrations.get_mut(&number))
                && phase != MigrationPhase::Running
            {
                (record.phase, record.forgotten) = (phase, true);
            }
            state.note(format!("the migration of {} was forgotten", state.vm_name(id)));
        });
    }

    /// How many live migrations one host sends at a time; the others queue.
    pub fn set_parallel_migrations(&self, count: usize) {
        self.with(|state| {
            state.nova.parallel_migrations = count.max(1);
            for id in state.host_ids() {
                state.start_queued(id);
            }
        });
    }

    /// The servers that are moving now.
    pub fn migrating(&self) -> Vec<InstanceId> {
        self.with(|state| {
            let open = state.nova.migrations.values().filter(|record| !record.phase.is_over());
            let moving = open.filter(|record| !record.forgotten);
            moving.map(|record| instance(record.server)).collect()
        })
    }
}

impl State {
    /// Accepts a request for a live migration.
    pub(crate) fn begin_live(
        &mut self,
        operation: &str,
        id: Uuid,
        wanted: Option<HostId>,
        block: BlockMigration,
    ) -> cobalt_core::Result<()> {
        let source = self.movable(operation, id, &[ServerStatus::Active, ServerStatus::Paused])?;
        if wanted == Some(source) {
            return Err(Error::refused(operation, "the server is on this host already"));
        }
        let local = self.nova.servers.get(&id).is_some_and(|server| server.flavor.disk_gb > 0);
        let doomed = (local && block == BlockMigration::No)
            .then(|| "the server has local disks, and they shall not be copied".to_owned());
        self.begin_move(id, source, wanted, MigrationKind::Live, doomed);
        self.start_queued(source);
        Ok(())
    }

    /// Accepts a request for a cold migration.
    pub(crate) fn begin_cold(&mut self, operation: &str, id: Uuid, wanted: Option<HostId>) -> cobalt_core::Result<()> {
        let source = self.movable(operation, id, &[ServerStatus::Active, ServerStatus::ShutOff])?;
        if wanted == Some(source) {
            return Err(Error::refused(operation, "the server is on this host already"));
        }
        let number = self.begin_move(id, source, wanted, MigrationKind::Cold, None);
        self.advance(number, MigrationPhase::Preparing, self.timing.prepare);
        Ok(())
    }

    /// The host of a server that may be moved now.
    fn movable(&self, operation: &str, id: Uuid, states: &[ServerStatus]) -> cobalt_core::Result<HostId> {
        let server = self.nova.servers.get(&id).ok_or_else(|| Error::not_found(operation))?;
        if let Some(task) = &server.task {
            return Err(Error::conflict(operation, format!("the server is in task {task:?}")));
        }
        if !states.contains(&server.status) {
            return Err(Error::conflict(operation, format!("the server is {:?}", server.status)));
        }
        let host = server.host.ok_or_else(|| Error::conflict(operation, "the server has no host"))?;
        if self.service_state(host) == ServiceState::Down {
            return Err(Error::refused(operation, format!("the compute service of {} is down", self.host(host).name)));
        }
        Ok(host)
    }

    fn begin_move(
        &mut self,
        id: Uuid,
        source: HostId,
        wanted: Option<HostId>,
        kind: MigrationKind,
        doomed: Option<String>,
    ) -> u64 {
        let wish = self.wish_for(id, Some(source), wanted);
        let destination = wish.and_then(|wish| self.schedule(&wish));
        let doomed = if destination.is_none() { Some("No valid host was found.".to_owned()) } else { doomed };
        let consumer = self.random_uuid();
        if let Some(destination) = destination {
            let amounts = self.nova.providers.get_mut(&source).and_then(|provider| provider.release(id));
            if let (Some(amounts), Some(provider)) = (amounts, self.nova.providers.get_mut(&source)) {
                provider.allocate(consumer, amounts);
            }
            let wanted = self.nova.servers.get(&id).map(|server| server.flavor.amounts());
            if let (Some(amounts), Some(provider)) = (wanted, self.nova.providers.get_mut(&destination)) {
                provider.allocate(id, amounts);
            }
        }
        let mut run_after = false;
        if let Some(server) = self.nova.servers.get_mut(&id) {
            run_after = server.status != ServerStatus::ShutOff;
            server.task = Some(match kind {
                MigrationKind::Live => TaskState::Migrating,
                _ => TaskState::Other("resize_migrating".into()),
            });
            server.status = match kind {
                MigrationKind::Live => ServerStatus::Migrating,
                _ => ServerStatus::Resize,
            };
        }
        self.nova.add_migration(MigrationRecord {
            consumer,
            server: id,
            kind,
            phase: MigrationPhase::Queued,
            source,
            destination,
            created: self.now,
            updated: self.now,
            step: 0,
            doomed,
            run_after,
            leftover: false,
            forgotten: false,
        })
    }

    /// Starts as many queued live migrations of a host as may run at a time, oldest first.
    pub(crate) fn start_queued(&mut self, source: HostId) {
        let live = |record: &&MigrationRecord| record.source == source && record.kind == MigrationKind::Live;
        let mine: Vec<(u64, MigrationPhase)> = self
            .nova
            .migrations
            .iter()
            .filter(|(_, record)| live(record) && !record.phase.is_over() && !record.forgotten)
            .map(|(number, record)| (*number, record.phase.clone()))
            .collect();
        let (queued, busy): (Vec<_>, Vec<_>) =
            mine.into_iter().partition(|(_, phase)| *phase == MigrationPhase::Queued);
        let free = self.nova.parallel_migrations.saturating_sub(busy.len());
        for (number, _) in queued.into_iter().take(free) {
            self.advance(number, MigrationPhase::Preparing, self.timing.prepare);
        }
    }

    /// Puts a migration into a phase and plans its end.
    pub(super) fn advance(&mut self, number: u64, phase: MigrationPhase, length: Duration) {
        let now = self.now;
        if let Some(record) = self.nova.migrations.get_mut(&number) {
            record.phase = phase;
            record.updated = now;
            record.step += 1;
            let step = record.step;
            self.plan(length, Due::Migration(number, step));
        }
    }

    /// The end of a phase.
    pub(crate) fn migration_step(&mut self, number: u64, step: u32) {
        let Some(record) = self.nova.migrations.get(&number).filter(|record| record.step == step) else { return };
        let (kind, phase) = (record.kind.clone(), record.phase.clone());
        match (kind, phase) {
            (MigrationKind::Evacuation, _) => self.evacuation_due(number),
            (_, MigrationPhase::Preparing) => self.prepared(number),
            (_, MigrationPhase::Running) => self.copied(number),
            (MigrationKind::Live, MigrationPhase::Finishing) | (_, MigrationPhase::Confirming) => {
                self.finish_move(number);
            }
            _ => {}
        }
    }

    fn prepared(&mut self, number: u64) {
        let Some(record) = self.nova.migrations.get_mut(&number) else { return };
        let (source, server) = (record.source, record.server);
        let doomed = record.doomed.take();
        if let Some(why) = doomed.or_else(|| self.blocked(number)) {
            self.fail_migration(number, &why);
            return;
        }
        let memory = self.host(source).domains.get(&server).map_or(0, |domain| domain.memory_mb);
        let length = self.copy_time(memory).max(Duration::from_millis(1));
        let record = self.nova.migrations.get_mut(&number);
        let live = record.is_some_and(|record| record.kind == MigrationKind::Live);
        self.advance(number, MigrationPhase::Running, length);
        if live {
            self.doom_if_planned(number);
            let (now, driver) = (self.now, self.host(source).driver);
            if let Some(domain) = self.host_mut(source).domains.get_mut(&server)
                && driver.features().jobs
            {
                domain.job = Some(Box::new(DomainJob::new(now, length)));
            }
            self.emit(source, server, DomainEvent::MigrationIteration(1));
            let step = self.nova.migrations.get(&number).map_or(0, |record| record.step);
            self.plan(length / 2, Due::Iteration(number, step));
        }
    }

    fn doom_if_planned(&mut self, number: u64) {
        if let Some((left, why)) = &mut self.nova.doom {
            let why = why.clone();
            *left -= 1;
            if *left == 0 {
                self.nova.doom = None;
            }
            if let Some(record) = self.nova.migrations.get_mut(&number) {
                record.doomed = Some(why);
            }
        }
    }

    pub(crate) fn migration_iteration(&mut self, number: u64, step: u32) {
        if let Some(record) = self.nova.migrations.get(&number).filter(|record| record.step == step) {
            self.emit(record.source, record.server, DomainEvent::MigrationIteration(2));
        }
    }

    /// Why two hosts cannot work on a migration now.
    fn blocked(&self, number: u64) -> Option<String> {
        let record = self.nova.migrations.get(&number)?;
        let works = |id: HostId| self.host(id).answers() && !self.host(id).partitioned;
        let Some(destination) = record.destination else { return Some("No valid host was found.".into()) };
        if !works(record.source) {
            return Some(format!("{} does not answer", self.host(record.source).name));
        }
        if !works(destination) {
            return Some(format!("{} does not answer", self.host(destination).name));
        }
        let present = self.host(record.source).domains.get(&record.server);
        let runs = present.is_some_and(|domain| domain.state.is_active());
        match record.kind {
            MigrationKind::Live if !runs => Some("the guest does not run any more".into()),
            _ if present.is_none() => Some("the guest is gone".into()),
            _ => None,
        }
    }

    /// The memory is over there: the step that cannot be taken back.
    fn copied(&mut self, number: u64) {
        let doomed = self.nova.migrations.get_mut(&number).and_then(|record| record.doomed.take());
        if let Some(why) = doomed.or_else(|| self.blocked(number)) {
            self.fail_migration(number, &why);
            return;
        }
        let Some(record) = self.nova.migrations.get(&number) else { return };
        let (id, source, run_after) = (record.server, record.source, record.run_after);
        let Some(destination) = record.destination else { return };
        if record.kind == MigrationKind::Live {
            self.switch_over(source, id, destination);
            self.advance(number, MigrationPhase::Finishing, self.timing.finish);
            return;
        }
        self.undefine(source, id);
        self.nova.move_server(id, Some(destination));
        self.spawn(id, destination);
        if !run_after {
            self.enter(destination, id, DomainState::ShutOff);
            self.lifecycle(destination, id, Lifecycle::Stopped);
        }
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.status = ServerStatus::VerifyResize;
        }
        self.advance(number, MigrationPhase::Unconfirmed, Duration::ZERO);
    }

    /// The end of a live migration, or the yes to a cold one.
    pub(crate) fn finish_move(&mut self, number: u64) {
        let now = self.now;
        let Some(record) = self.nova.migrations.get_mut(&number) else { return };
        record.phase = MigrationPhase::Completed;
        record.updated = now;
        record.step += 1;
        let (id, source, consumer) = (record.server, record.source, record.consumer);
        let (Some(destination), run_after) = (record.destination, record.run_after) else { return };
        if let Some(provider) = self.nova.providers.get_mut(&source) {
            provider.release(consumer);
        }
        self.nova.move_server(id, Some(destination));
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.task = None;
            server.status = if run_after { ServerStatus::Active } else { ServerStatus::ShutOff };
        }
        self.power_seen(destination, id);
        let text =
            format!("{} moved from {} to {}", self.vm_name(id), self.host(source).name, self.host(destination).name);
        self.note(text);
        self.start_queued(source);
    }

    pub(crate) fn fail_migration(&mut self, number: u64, why: &str) {
        let Some(server) = self.nova.migrations.get(&number).map(|record| record.server) else { return };
        self.undo_migration(number, MigrationPhase::Failed);
        let text = format!("{} could not be moved: {why}", self.vm_name(server));
        self.note(text);
        if let Some(server) = self.nova.servers.get_mut(&server) {
            server.fault = Some(why.to_owned());
        }
    }

    /// Ends a migration that has not crossed the point of return; the server is where it was.
    pub(crate) fn undo_migration(&mut self, number: u64, phase: MigrationPhase) {
        let now = self.now;
        let Some(record) = self.nova.migrations.get_mut(&number) else { return };
        let crossed = has_crossed(&record.phase);
        let outcome = if phase == MigrationPhase::Cancelled { JobOutcome::Cancelled } else { JobOutcome::Failed };
        record.phase = phase;
        record.updated = now;
        record.step += 1;
        let (id, source, consumer, run_after) = (record.server, record.source, record.consumer, record.run_after);
        let (destination, kind) = (record.destination, record.kind.clone());
        if kind == MigrationKind::Evacuation || crossed {
            // What it reserved goes with the server, which is being forgotten or has failed.
            for host in [Some(source), destination].into_iter().flatten() {
                if let Some(provider) = self.nova.providers.get_mut(&host) {
                    provider.release(consumer);
                }
            }
        } else if let Some(destination) = destination {
            if let Some(provider) = self.nova.providers.get_mut(&destination) {
                provider.release(id);
            }
            if let Some(provider) = self.nova.providers.get_mut(&source)
                && let Some(amounts) = provider.release(consumer)
            {
                provider.allocate(id, amounts);
            }
        }
        self.end_copy(source, id, outcome);
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.task = None;
            if matches!(server.status, ServerStatus::Migrating | ServerStatus::Resize) {
                server.status = if run_after { ServerStatus::Active } else { ServerStatus::ShutOff };
            }
        }
        self.power_seen(source, id);
        if kind == MigrationKind::Live {
            self.start_queued(source);
        }
    }

    /// Ends whatever moves a server, one way or the other, because something stronger comes.
    pub(crate) fn settle_moves(&mut self, id: Uuid) {
        while let Some(number) = self.nova.current_migration(id) {
            let record = self.nova.migrations.get(&number).map(|record| (record.kind.clone(), record.phase.clone()));
            match record {
                Some((MigrationKind::Evacuation, _)) => self.fail_evacuation(number, "it was called off"),
                Some((_, phase)) if has_crossed(&phase) => self.finish_move(number),
                _ => self.undo_migration(number, MigrationPhase::Cancelled),
            }
        }
    }

    /// A host has gone dark with migrations under way.
    pub(crate) fn host_gone(&mut self, id: HostId) {
        let touched: Vec<u64> = self
            .nova
            .migrations
            .iter()
            .filter(|(_, record)| !record.phase.is_over() && !record.forgotten)
            .filter(|(_, record)| record.source == id || record.destination == Some(id))
            .map(|(number, _)| *number)
            .collect();
        for number in touched {
            let Some(record) = self.nova.migrations.get_mut(&number) else { continue };
            let crossed = has_crossed(&record.phase);
            match record.kind {
                MigrationKind::Evacuation if record.destination == Some(id) => {
                    self.fail_evacuation(number, "the new host died");
                }
                MigrationKind::Evacuation => {}
                MigrationKind::Live if crossed => self.finish_move(number),
                _ if crossed => {}
                _ if record.destination == Some(id) => self.fail_migration(number, "the destination died"),
                // Nobody is left to say how it ended.
                _ => record.step += 1,
            }
        }
    }
}

/// Whether a migration is past the point of return: its server is over there.
pub(super) fn has_crossed(phase: &MigrationPhase) -> bool {
    matches!(phase, MigrationPhase::Finishing | MigrationPhase::Unconfirmed | MigrationPhase::Confirming)
}
