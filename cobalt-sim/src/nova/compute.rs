//! The compute agent of each host: how Nova hears of hosts and of what happens on them.

use cobalt_core::{
    backend::DomainState,
    ids::{HostName, ProviderId, ServiceId},
    nova::{Inventory, MigrationKind, MigrationPhase, ServerStatus, ServiceState, TaskState},
};
use uuid::Uuid;

use super::{Amounts, MigrationRecord, Provider, Service, migrate::has_crossed};
use crate::{
    error::{Result, SimError},
    world::{HostId, Os, State, World, time::Due},
};

/// Promised virtual CPUs per CPU.
const CPU_RATIO: f64 = 4.0;
/// Memory kept back for the host itself.
const RESERVED_MB: u64 = 8192;
const DISK_GB: u64 = 4096;

impl World {
    /// Starts the host's compute agent; it registers a service and a provider if Nova has none of it.
    pub fn start_compute(&self, host: &HostName) -> Result<()> {
        self.with(|state| {
            let id = state.host_id(host).ok_or_else(|| unknown("start compute agent", host))?;
            let node = state.host_mut(id);
            node.compute_wanted = true;
            let (up, running, epoch) = (node.os == Os::Up, node.compute_running, node.epoch);
            if up && !running {
                state.plan(state.timing.compute_start, Due::ComputeUp(id, epoch));
            }
            Ok(())
        })
    }

    /// Stops the host's compute agent for good. Its service stays in Nova and falls silent.
    pub fn stop_compute(&self, host: &HostName) -> Result<()> {
        self.with(|state| {
            let id = state.host_id(host).ok_or_else(|| unknown("stop compute agent", host))?;
            let node = state.host_mut(id);
            node.compute_wanted = false;
            node.compute_running = false;
            state.refresh_compute(id);
            Ok(())
        })
    }

    /// Makes Nova's and Placement's APIs answer, or not. What they have begun goes on.
    pub fn set_nova_available(&self, available: bool) {
        self.with(|state| state.nova.available = available);
    }
}

fn unknown(operation: &str, host: &HostName) -> SimError {
    SimError::UnknownHost { operation: operation.to_owned(), host: host.clone() }
}

impl State {
    /// Whether Nova hears from the host's compute agent at this moment.
    fn reports(&self, id: HostId) -> bool {
        let host = self.host(id);
        host.compute_running && host.os == Os::Up && !host.partitioned
    }

    /// Whether Nova talks to the host's compute agent, and the agent hears it. While a service is declared down Nova
    /// does not, although the agent may be well.
    pub(crate) fn obeys(&self, id: HostId) -> bool {
        self.reports(id) && self.nova.services.get(&id).is_some_and(|service| !service.forced_down)
    }

    /// Notes since when a compute agent is silent. To be called whenever that may have changed.
    pub(crate) fn refresh_compute(&mut self, id: HostId) {
        let (reports, now) = (self.reports(id), self.now);
        if let Some(service) = self.nova.services.get_mut(&id) {
            if reports {
                service.silent_since = None;
            } else if service.silent_since.is_none() {
                service.silent_since = Some(now);
            }
        }
        if reports {
            if self.obeys(id) {
                self.remove_deleted(id);
            }
            let here: Vec<Uuid> = self.host(id).domains.keys().copied().collect();
            for vm in here {
                self.power_seen(id, vm);
            }
        }
    }

    /// What Nova says of a service.
    pub(crate) fn service_state(&self, id: HostId) -> ServiceState {
        let Some(service) = self.nova.services.get(&id) else { return ServiceState::Down };
        let silent =
            service.silent_since.is_some_and(|since| self.now.duration_since(since) >= self.timing.service_down);
        if service.forced_down || silent { ServiceState::Down } else { ServiceState::Up }
    }

    /// The compute agent has started: it registers, and cleans up what an earlier life left behind.
    pub(crate) fn compute_up(&mut self, id: HostId, epoch: u32) {
        let host = self.host_mut(id);
        if host.epoch != epoch || !host.compute_wanted || host.compute_running || host.os != Os::Up {
            return;
        }
        if !self.nova.services.contains_key(&id) && self.nova.providers.contains_key(&id) {
            // The provider came back after its service had been deleted under a running agent.
            let name = self.host(id).name.clone();
            self.note(format!("{name}: the compute agent ends: duplicate compute node record"));
            return;
        }
        self.host_mut(id).compute_running = true;
        self.register(id);
        self.refresh_compute(id);
        self.clean_up(id);
    }

    /// Makes the service and the provider of a host known, if they are not.
    pub(crate) fn register(&mut self, id: HostId) {
        if !self.nova.services.contains_key(&id) {
            let service = Service {
                id: ServiceId::new(self.random_uuid().to_string()),
                enabled: self.nova.enable_new_services,
                reason: None,
                forced_down: false,
                silent_since: None,
            };
            self.nova.services.insert(id, service);
            let name = self.host(id).name.clone();
            self.note(format!("{name} registers with Nova"));
        }
        self.add_provider(id);
    }

    fn add_provider(&mut self, id: HostId) {
        if self.nova.providers.contains_key(&id) {
            return;
        }
        let cells = &self.host(id).cells;
        let cpus = cells.iter().map(|cell| u64::from(cell.cpus)).sum();
        let memory_mb = cells.iter().map(|cell| cell.memory_bytes >> 20).sum();
        let inventory = |total, reserved, allocation_ratio| Inventory { total, reserved, allocation_ratio };
        let provider = Provider {
            id: ProviderId::new(self.random_uuid().to_string()),
            generation: 1,
            traits: ["COMPUTE_NODE", "HW_CPU_X86_AVX2"].into_iter().map(str::to_owned).collect(),
            vcpu: inventory(cpus, 0, CPU_RATIO),
            memory: inventory(memory_mb, RESERVED_MB.min(memory_mb / 8), 1.0),
            disk: inventory(DISK_GB, 0, 1.0),
            allocations: std::collections::BTreeMap::new(),
            used: Amounts::default(),
        };
        self.nova.providers.insert(id, provider);
    }

    /// What the agent does at its start with what it finds on its host.
    fn clean_up(&mut self, id: HostId) {
        let leftovers: Vec<(u64, Uuid)> = self
            .nova
            .migrations
            .iter()
            .filter(|(_, record)| record.source == id && record.leftover)
            .map(|(number, record)| (*number, record.server))
            .collect();
        for (number, server) in leftovers {
            if let Some(record) = self.nova.migrations.get_mut(&number) {
                record.leftover = false;
            }
            let here = self.nova.servers.get(&server).is_some_and(|server| server.host == Some(id));
            if !here && let Some(provider) = self.nova.providers.get_mut(&id) {
                provider.release(server);
            }
        }
        self.remove_strays(id);
        let stuck = |record: &MigrationRecord| {
            record.source == id
                && record.kind != MigrationKind::Evacuation
                && !record.phase.is_over()
                && !record.forgotten
                && !has_crossed(&record.phase)
        };
        let stuck: Vec<u64> =
            self.nova.migrations.iter().filter(|(_, record)| stuck(record)).map(|(number, _)| *number).collect();
        for number in stuck {
            self.undo_migration(number, MigrationPhase::Failed);
        }
        let here: Vec<Uuid> = self.nova.servers_of(id).collect();
        for server in here {
            self.settle_after_restart(id, server);
        }
    }

    /// Removes domains that Nova made and that it has elsewhere, or nowhere, by now.
    fn remove_strays(&mut self, id: HostId) {
        let managed = self.host(id).domains.iter().filter(|(_, domain)| domain.managed);
        let stray = |vm: &Uuid| {
            let server = self.nova.servers.get(vm);
            let moving = self.nova.current_migration(*vm).and_then(|number| self.nova.migrations.get(&number));
            let ours = moving.is_some_and(|record| record.source == id || record.destination == Some(id));
            !ours && server.is_none_or(|server| server.host != Some(id))
        };
        let strays: Vec<Uuid> = managed.map(|(vm, _)| *vm).filter(stray).collect();
        for vm in strays {
            self.undefine(id, vm);
        }
    }

    /// Removes domains whose servers were deleted while the host did not listen.
    fn remove_deleted(&mut self, id: HostId) {
        let managed = self.host(id).domains.iter().filter(|(_, domain)| domain.managed).map(|(vm, _)| *vm);
        let deleted: Vec<Uuid> = managed.filter(|vm| !self.nova.servers.contains_key(vm)).collect();
        for vm in deleted {
            self.undefine(id, vm);
        }
    }

    fn settle_after_restart(&mut self, id: HostId, vm: Uuid) {
        let runs = self.host(id).domains.get(&vm).is_some_and(|domain| domain.state.is_active());
        if self.nova.current_migration(vm).is_some() {
            return;
        }
        let Some(server) = self.nova.servers.get_mut(&vm) else { return };
        if server.task == Some(TaskState::Migrating) || server.status == ServerStatus::Migrating {
            server.task = None;
            server.status = ServerStatus::Active;
        }
        server.powered = runs;
        if !runs && server.task.is_none() && matches!(server.status, ServerStatus::Active | ServerStatus::Paused) {
            server.status = ServerStatus::ShutOff;
        }
        let failed_build = server.status == ServerStatus::Build && !self.host(id).domains.contains_key(&vm);
        if failed_build && let Some(server) = self.nova.servers.get_mut(&vm) {
            server.status = ServerStatus::Error;
            server.task = None;
            server.fault = Some("the host restarted while the server was made".into());
        }
    }

    /// The agent's periodic look at its host. One whose service was deleted makes its provider anew.
    pub(crate) fn compute_periodic(&mut self, id: HostId, epoch: u32) {
        if self.host(id).epoch == epoch && self.reports(id) && !self.nova.services.contains_key(&id) {
            self.add_provider(id);
        }
    }

    /// Nova hears how a domain is, if its host's agent can tell.
    pub(crate) fn power_seen(&mut self, id: HostId, vm: Uuid) {
        if !self.reports(id) {
            return;
        }
        let Some(state) = self.host(id).domains.get(&vm).map(|domain| domain.state) else { return };
        let Some(server) = self.nova.servers.get_mut(&vm) else { return };
        if server.host != Some(id) {
            return;
        }
        server.powered = state.is_active();
        if server.task.is_some() {
            return;
        }
        let seen = match state {
            DomainState::Running => ServerStatus::Active,
            DomainState::ShutOff | DomainState::Crashed => ServerStatus::ShutOff,
            // Nova notes a guest that stands still without being asked to, and does nothing about it.
            _ => return,
        };
        if [ServerStatus::Active, ServerStatus::ShutOff, ServerStatus::Paused].contains(&server.status) {
            server.status = seen;
        }
    }
}
