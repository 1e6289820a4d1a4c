//! Bringing back the servers of a dead host.
//!
//! Nova believes what it is told: it evacuates as soon as the service is down, whether or not the host still runs
//! its guests. Nobody but the caller keeps a VM from running twice.

use cobalt_core::{
    Error,
    backend::{DomainState, Lifecycle},
    nova::{AfterEvacuation, MigrationKind, MigrationPhase, ServerStatus, ServiceState, TaskState},
};
use uuid::Uuid;

use super::MigrationRecord;
use crate::world::{HostId, State};

impl State {
    pub(crate) fn begin_evacuation(
        &mut self,
        operation: &str,
        id: Uuid,
        wanted: Option<HostId>,
        after: AfterEvacuation,
    ) -> cobalt_core::Result<()> {
        let server = self.nova.servers.get(&id).ok_or_else(|| Error::not_found(operation))?;
        if let Some(task) = &server.task {
            return Err(Error::conflict(operation, format!("the server is in task {task:?}")));
        }
        if ![ServerStatus::Active, ServerStatus::ShutOff, ServerStatus::Error].contains(&server.status) {
            return Err(Error::conflict(operation, format!("the server is {:?}", server.status)));
        }
        let source = server.host.ok_or_else(|| Error::conflict(operation, "the server has no host"))?;
        if self.service_state(source) == ServiceState::Up {
            let name = &self.host(source).name;
            return Err(Error::refused(operation, format!("compute service of {name} is still in use")));
        }
        if wanted == Some(source) {
            return Err(Error::refused(operation, "the server is on this host"));
        }
        let ran = server.powered && server.status != ServerStatus::ShutOff;
        let amounts = server.flavor.amounts();
        let destination = self.wish_for(id, Some(source), wanted).and_then(|wish| self.schedule(&wish));
        let consumer = self.random_uuid();
        if let Some(provider) = destination.and_then(|host| self.nova.providers.get_mut(&host)) {
            provider.allocate(id, amounts);
        }
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.status = ServerStatus::Rebuild;
            server.task = Some(TaskState::Rebuilding);
            server.fault = None;
        }
        let number = self.nova.add_migration(MigrationRecord {
            consumer,
            server: id,
            kind: MigrationKind::Evacuation,
            phase: MigrationPhase::Queued,
            source,
            destination,
            created: self.now,
            updated: self.now,
            step: 0,
            doomed: None,
            run_after: ran && after == AfterEvacuation::Run,
            leftover: false,
            forgotten: false,
        });
        self.advance(number, MigrationPhase::Running, self.timing.evacuate);
        Ok(())
    }

    pub(super) fn evacuation_due(&mut self, number: u64) {
        let Some(record) = self.nova.migrations.get(&number) else { return };
        let (id, source, run_after) = (record.server, record.source, record.run_after);
        let Some(destination) = record.destination else {
            self.fail_evacuation(number, "No valid host was found.");
            return;
        };
        let ready = self.host(destination).answers() && self.service_state(destination) == ServiceState::Up;
        if !ready {
            self.fail_evacuation(number, "the new host does not answer");
            return;
        }
        let now = self.now;
        if let Some(record) = self.nova.migrations.get_mut(&number) {
            record.phase = MigrationPhase::Completed;
            record.updated = now;
            record.step += 1;
            record.leftover = true;
        }
        self.nova.move_server(id, Some(destination));
        self.spawn(id, destination);
        if !run_after {
            self.enter(destination, id, DomainState::ShutOff);
            self.lifecycle(destination, id, Lifecycle::Stopped);
        }
        let text = format!(
            "{} evacuated from {} to {}{}",
            self.vm_name(id),
            self.host(source).name,
            self.host(destination).name,
            if run_after { "" } else { ", shut off" }
        );
        self.note(text);
        self.tidy_returned_source(number, source, id);
    }

    /// A source that came back during the evacuation has looked for leftovers already, and found none yet. Whether its
    /// libvirt daemon answers at this moment makes no difference: its agent would try until it does.
    fn tidy_returned_source(&mut self, number: u64, source: HostId, id: Uuid) {
        let host = self.host(source);
        let idle = host.domains.get(&id).is_none_or(|domain| !domain.state.is_active());
        if !host.compute_running || !idle {
            return;
        }
        if host.domains.contains_key(&id) {
            self.undefine(source, id);
        }
        if let Some(provider) = self.nova.providers.get_mut(&source) {
            provider.release(id);
        }
        if let Some(record) = self.nova.migrations.get_mut(&number) {
            record.leftover = false;
        }
    }

    pub(super) fn fail_evacuation(&mut self, number: u64, why: &str) {
        let now = self.now;
        let Some(record) = self.nova.migrations.get_mut(&number) else { return };
        record.phase = MigrationPhase::Failed;
        record.updated = now;
        record.step += 1;
        let (id, destination) = (record.server, record.destination);
        if let Some(provider) = destination.and_then(|host| self.nova.providers.get_mut(&host)) {
            provider.release(id);
        }
        self.server_fails(id, why);
    }
}
