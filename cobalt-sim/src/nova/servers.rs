//! Servers come and go.

use std::{collections::BTreeSet, sync::Arc};

use cobalt_core::{
    Error,
    backend::{DomainState, Lifecycle},
    ids::{HostName, InstanceId},
    nova::{MigrationPhase, NewServer, ServerStatus, ServiceState, TaskState},
};
use uuid::Uuid;

use super::{
    Flavor, Server,
    scheduler::{Allowed, Wish},
};
use crate::{
    error::{Result, SimError},
    world::{HostId, State, World, instance, parse, time::Due},
};

impl World {
    /// Puts a server on a host, running, at once: for the population of a region.
    pub fn boot(&self, host: &HostName, flavor: &str) -> Result<InstanceId> {
        self.with(|state| {
            let operation = || format!("boot a {flavor} server on {host}");
            let unknown = || SimError::UnknownHost { operation: operation(), host: host.clone() };
            let id = state.host_id(host).ok_or_else(unknown)?;
            let known = state.nova.flavors.get(flavor).cloned();
            let flavor = known.ok_or_else(|| SimError::not_now(operation(), "there is no such flavor"))?;
            state
                .boot(id, &flavor)
                .map(instance)
                .ok_or_else(|| SimError::not_now(operation(), "no valid host was found"))
        })
    }

    /// Removes a server at once, wherever it is.
    pub fn delete(&self, vm: &InstanceId) -> Result<()> {
        self.with(|state| {
            let known = parse(vm).filter(|id| state.nova.servers.contains_key(id));
            let unknown = || SimError::UnknownVm { operation: "delete a server".into(), vm: vm.clone() };
            let id = known.ok_or_else(unknown)?;
            for host in state.host_ids() {
                if state.host(host).domains.contains_key(&id) {
                    state.undefine(host, id);
                }
            }
            state.forget_server(id);
            Ok(())
        })
    }

    /// Locks a server, or unlocks it.
    pub fn lock(&self, vm: &InstanceId, locked: bool) -> Result<()> {
        self.with(|state| {
            let server = parse(vm).and_then(|id| state.nova.servers.get_mut(&id));
            let unknown = || SimError::UnknownVm { operation: "lock a server".into(), vm: vm.clone() };
            server.ok_or_else(unknown)?.locked = locked;
            Ok(())
        })
    }

    /// Adds a flavor, or replaces the one with this id.
    pub fn add_flavor(&self, flavor: Flavor) {
        self.with(|state| {
            let traits = flavor.traits.iter().cloned();
            state.nova.traits.extend(traits);
            state.nova.flavors.insert(flavor.id.clone(), Arc::new(flavor));
        });
    }

    /// The servers of the region, ordered by id.
    pub fn servers(&self) -> Vec<InstanceId> {
        self.with(|state| state.nova.servers.keys().copied().map(instance).collect())
    }
}

impl State {
    /// A running server from nothing, if the host takes it.
    pub(crate) fn boot(&mut self, host: HostId, flavor: &Arc<Flavor>) -> Option<Uuid> {
        let wish = Wish {
            amounts: flavor.amounts(),
            traits: flavor.traits.clone(),
            zone: None,
            driver: None,
            only: Some(host),
            not: None,
            group: Allowed::All,
        };
        if !self.host(host).answers() || self.schedule(&wish).is_none() {
            return None;
        }
        let id = self.random_uuid();
        let number = self.nova.servers.len();
        let server = self.blank_server(format!("vm-{number:05}"), flavor);
        self.nova.servers.insert(id, server);
        self.claim(id, host);
        self.spawn(id, host);
        Some(id)
    }

    fn blank_server(&self, name: String, flavor: &Arc<Flavor>) -> Server {
        let projects = &self.nova.projects;
        Server {
            name,
            project: projects[self.nova.servers.len() % projects.len()].clone(),
            flavor: flavor.clone(),
            status: ServerStatus::Build,
            task: Some(TaskState::Other("spawning".into())),
            host: None,
            powered: false,
            locked: false,
            zone: None,
            fault: None,
            launched: None,
        }
    }

    /// Reserves the place of a server on a host.
    pub(crate) fn claim(&mut self, id: Uuid, host: HostId) {
        let Some(amounts) = self.nova.servers.get(&id).map(|server| server.flavor.amounts()) else { return };
        if let Some(provider) = self.nova.providers.get_mut(&host) {
            provider.allocate(id, amounts);
        }
        self.nova.move_server(id, Some(host));
    }

    /// Makes a server's domain on its host and starts it.
    pub(crate) fn spawn(&mut self, id: Uuid, host: HostId) {
        let Some(flavor) = self.nova.servers.get(&id).map(|server| server.flavor.clone()) else { return };
        self.define(host, id, flavor.vcpus, flavor.memory_mb, flavor.cells, true);
        let now = self.now;
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.status = ServerStatus::Active;
            server.task = None;
            server.launched = Some(now);
        }
        self.enter(host, id, DomainState::Running);
        self.lifecycle(host, id, Lifecycle::Resumed);
        self.lifecycle(host, id, Lifecycle::Started);
    }

    /// Accepts a request for a server; it is made after its build time.
    pub(crate) fn create(&mut self, operation: &str, new: &NewServer) -> cobalt_core::Result<Uuid> {
        let flavor = self.nova.flavors.get(&new.flavor).cloned();
        let flavor =
            flavor.ok_or_else(|| Error::refused(operation, format!("flavor {} could not be found", new.flavor)))?;
        if !self.nova.images.iter().any(|image| image.id.to_string() == new.image) {
            return Err(Error::refused(operation, format!("image {} could not be found", new.image)));
        }
        if let Some(network) = &new.network
            && !self.nova.networks.iter().any(|other| other.id.to_string() == *network)
        {
            return Err(Error::refused(operation, format!("network {network} could not be found")));
        }
        let flavor = if new.volume.is_some() && flavor.disk_gb > 0 {
            Arc::new(Flavor { disk_gb: 0, ..(*flavor).clone() })
        } else {
            flavor
        };
        let (zone, only) = match new.availability_zone.as_deref() {
            None => (None, None),
            Some(text) => match text.split_once(':') {
                None => (Some(text), None),
                Some((zone, host)) => {
                    let id = self.host_id(&HostName::from(host));
                    let id = id.filter(|id| self.nova.services.contains_key(id));
                    let missing = || Error::refused(operation, format!("compute host {host} could not be found"));
                    (Some(zone).filter(|zone| !zone.is_empty()), Some(id.ok_or_else(missing)?))
                }
            },
        };
        let wish = Wish {
            amounts: flavor.amounts(),
            traits: flavor.traits.clone(),
            zone: zone.map(str::to_owned),
            driver: None,
            only,
            not: None,
            group: Allowed::All,
        };
        let id = self.random_uuid();
        let mut server = self.blank_server(new.name.clone(), &flavor);
        server.zone = zone.map(Arc::from);
        server.project = self.nova.own_project.clone();
        self.nova.servers.insert(id, server);
        match self.schedule(&wish) {
            Some(host) => {
                self.claim(id, host);
                self.plan(self.timing.build, Due::ServerBuilt(id));
            }
            None => self.server_fails(id, "No valid host was found."),
        }
        Ok(id)
    }

    pub(crate) fn server_fails(&mut self, id: Uuid, fault: &str) {
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.status = ServerStatus::Error;
            server.task = None;
            server.fault = Some(fault.to_owned());
            let text = format!("{} is in error: {fault}", server.name);
            self.note(text);
        }
    }

    pub(crate) fn server_built(&mut self, id: Uuid) {
        let Some(server) = self.nova.servers.get(&id) else { return };
        let (Some(host), ServerStatus::Build) = (server.host, &server.status) else { return };
        if server.task == Some(TaskState::Deleting) {
            // Its owner has thought better of it.
            return;
        }
        if !self.host(host).answers() || self.service_state(host) == ServiceState::Down {
            self.server_fails(id, "the host did not answer");
            return;
        }
        self.spawn(id, host);
    }

    /// Accepts a request to delete a server.
    pub(crate) fn begin_delete(&mut self, id: Uuid) {
        let Some(server) = self.nova.servers.get(&id) else { return };
        if server.task == Some(TaskState::Deleting) {
            return;
        }
        self.settle_moves(id);
        let host = self.nova.servers.get(&id).and_then(|server| server.host);
        let reachable = host.is_some_and(|host| self.service_state(host) == ServiceState::Up);
        if !reachable {
            // Nova forgets it here and now; the domain is removed when the host's agent returns.
            self.forget_server(id);
            return;
        }
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.task = Some(TaskState::Deleting);
        }
        self.plan(self.timing.delete, Due::ServerDeleted(id));
    }

    pub(crate) fn server_deleted(&mut self, id: Uuid) {
        let Some(server) = self.nova.servers.get(&id).filter(|server| server.task == Some(TaskState::Deleting)) else {
            return;
        };
        if let Some(host) = server.host {
            if !self.host(host).answers() {
                self.server_fails(id, "the hypervisor did not answer");
                return;
            }
            if self.host(host).domains.contains_key(&id) {
                self.undefine(host, id);
            }
        }
        self.forget_server(id);
    }

    /// Nova forgets a server and everything it held.
    fn forget_server(&mut self, id: Uuid) {
        while let Some(number) = self.nova.current_migration(id) {
            self.undo_migration(number, MigrationPhase::Failed);
        }
        self.nova.remove_server(id);
    }

    /// What a server needs of another host.
    pub(crate) fn wish_for(&self, id: Uuid, not: Option<HostId>, only: Option<HostId>) -> Option<Wish> {
        let server = self.nova.servers.get(&id)?;
        let traits: BTreeSet<String> = server.flavor.traits.clone();
        let driver = server.host.map(|host| self.host(host).driver);
        let zone = server.zone.as_deref().map(str::to_owned);
        let group = self.allowed(id);
        Some(Wish { amounts: server.flavor.amounts(), traits, zone, driver, only, not, group })
    }
}
