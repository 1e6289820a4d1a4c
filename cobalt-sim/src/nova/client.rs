//! Nova through its seam.

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    ids::{AggregateId, HostName, InstanceId, MigrationId, ProviderId, ServiceId},
    nova::{
        AfterEvacuation, Aggregate, BlockMigration, ComputeService, Migration, MigrationKind, MigrationPhase,
        NewServer, NovaClient, NovaHypervisor, Server, ServerGroup, ServerName, ServerStatus, ServiceState,
        guest_hostname,
    },
};
use uuid::Uuid;

use super::MigrationRecord;
use crate::{
    faults::Faults,
    world::{HostId, State, World, instance, parse, time::Due},
};

/// Nova of the simulated region. Clones share their faults; a new one from
/// [`Region::nova`](crate::Region::nova) has its own.
#[derive(Debug, Clone)]
pub struct SimNova {
    world: World,
    faults: Faults,
}

impl SimNova {
    pub(crate) fn new(world: World) -> Self {
        Self { world, faults: Faults::default() }
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn call<T>(
        &self,
        method: &'static str,
        operation: String,
        act: impl FnOnce(&mut State, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let call = || async {
            self.world.with(|state| {
                available(state, &operation)?;
                act(state, &operation)
            })
        };
        self.faults.run(method, || operation.clone(), call).await
    }

    /// All hypervisors with their servers, for the API, where a client may ask for both.
    pub(crate) async fn hypervisors_with_servers(&self) -> Result<Vec<NovaHypervisor>> {
        self.call("hypervisors", "list hypervisors".into(), |state, _| {
            Ok(state.computes().into_iter().filter_map(|id| state.show_hypervisor(id)).collect())
        })
        .await
    }
}

/// Whether the region's OpenStack answers at all.
pub(super) fn available(state: &State, operation: &str) -> Result<()> {
    if state.nova.available {
        Ok(())
    } else {
        Err(Error::unavailable(operation, std::io::Error::other("the service endpoint does not answer")))
    }
}

fn service(state: &State, operation: &str, id: &ServiceId) -> Result<HostId> {
    let found = state.nova.services.iter().find(|(_, service)| service.id == *id);
    found.map(|(host, _)| *host).ok_or_else(|| Error::not_found(operation))
}

fn server_id(state: &State, operation: &str, id: &InstanceId) -> Result<Uuid> {
    let known = parse(id).filter(|id| state.nova.servers.contains_key(id));
    known.ok_or_else(|| Error::not_found(operation))
}

fn aggregate_id(state: &State, operation: &str, id: &AggregateId) -> Result<u64> {
    let known = id.as_str().parse().ok().filter(|id| state.nova.aggregates.contains_key(id));
    known.ok_or_else(|| Error::not_found(operation))
}

/// A host that a service runs on, by its exact name.
fn compute_host(state: &State, name: &HostName) -> Option<HostId> {
    state.host_id(name).filter(|id| state.nova.services.contains_key(id))
}

fn target(state: &State, operation: &str, name: Option<&HostName>) -> Result<Option<HostId>> {
    let Some(name) = name else { return Ok(None) };
    let missing = || Error::refused(operation, format!("compute host {name} could not be found"));
    compute_host(state, name).map(Some).ok_or_else(missing)
}

fn migration(state: &State, operation: &str, server: Uuid, id: &MigrationId) -> Result<u64> {
    let number = id.as_str().parse().ok();
    let known = number.filter(|number| state.nova.migrations.get(number).is_some_and(|record| record.server == server));
    known.ok_or_else(|| Error::not_found(operation))
}

impl State {
    fn show_server(&self, id: Uuid, server: &super::Server) -> Server {
        Server {
            id: instance(id),
            name: server.name.clone(),
            project: server.project.to_string(),
            status: server.status.clone(),
            task: server.task.clone(),
            host: server.host.map(|host| self.host(host).name.clone()),
            powered: server.powered,
            locked: server.locked,
            memory_mb: server.flavor.memory_mb,
            vcpus: server.flavor.vcpus,
            // A flavor without a disk is one for servers that boot from a volume.
            local_disk: server.flavor.disk_gb > 0,
            local_disk_gb: server.flavor.disk_gb,
            volumes: if server.flavor.disk_gb == 0 { vec![format!("volume-{id}")] } else { Vec::new() },
            required_traits: server.flavor.traits.iter().cloned().collect(),
            zone: server.host.and_then(|host| self.nova.zone_of(host)).map(str::to_owned),
            fault: server.fault.clone().filter(|_| server.status == ServerStatus::Error),
            created_at: Some(self.timestamp_of(server.created)),
            launched_at: server.launched.map(|moment| self.timestamp_of(moment)),
        }
    }

    fn show_migration(&self, number: u64, record: &MigrationRecord) -> Migration {
        Migration {
            id: MigrationId::new(number.to_string()),
            server: instance(record.server),
            kind: record.kind.clone(),
            phase: record.phase.clone(),
            source: self.host(record.source).name.clone(),
            destination: record.destination.map(|host| self.host(host).name.clone()),
            created_at: Some(self.timestamp_of(record.created)),
            updated_at: Some(self.timestamp_of(record.updated)),
        }
    }

    fn show_service(&self, id: HostId) -> Option<ComputeService> {
        let service = self.nova.services.get(&id)?;
        Some(ComputeService {
            id: service.id.clone(),
            host: self.host(id).name.clone(),
            zone: Some(self.nova.zone_of(id).unwrap_or("nova").to_owned()),
            enabled: service.enabled,
            disabled_reason: service.reason.clone(),
            state: self.service_state(id),
            forced_down: service.forced_down,
        })
    }

    fn show_hypervisor(&self, id: HostId) -> Option<NovaHypervisor> {
        let (service, provider) = (self.nova.services.get(&id)?, self.nova.providers.get(&id)?);
        let name = self.host(id).name.clone();
        Some(NovaHypervisor {
            id: provider.id.clone(),
            hostname: name.to_string(),
            host: name,
            service: service.id.clone(),
            kind: self.host(id).driver.kind().to_owned(),
            state: self.service_state(id),
            servers: Some(self.nova.servers_of(id).map(instance).collect()),
        })
    }

    /// Hosts with a compute service, by name.
    fn computes(&self) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = self.nova.services.keys().copied().collect();
        hosts.sort_by(|a, b| self.host(*a).name.cmp(&self.host(*b).name));
        hosts
    }

    fn set_enabled(&mut self, id: HostId, enabled: bool, reason: Option<&str>) {
        let Some(service) = self.nova.services.get_mut(&id) else { return };
        let changed = service.enabled != enabled;
        service.enabled = enabled;
        service.reason = reason.map(str::to_owned);
        if let Some(provider) = self.nova.providers.get_mut(&id) {
            let marked =
                if enabled { provider.traits.remove(DISABLED) } else { provider.traits.insert(DISABLED.to_owned()) };
            provider.generation += u64::from(marked);
        }
        if changed {
            let text = format!("{} is {} in Nova", self.host(id).name, if enabled { "enabled" } else { "disabled" });
            self.note(text);
        }
    }

    fn remove_service(&mut self, operation: &str, id: HostId) -> Result<()> {
        if self.nova.servers_of(id).next().is_some() {
            return Err(Error::conflict(operation, "servers are on the host"));
        }
        let moving = |record: &MigrationRecord| {
            !record.phase.is_over() && (record.source == id || record.destination == Some(id))
        };
        if self.nova.migrations.values().any(moving) {
            return Err(Error::conflict(operation, "migrations of the host are in progress"));
        }
        self.nova.services.remove(&id);
        for aggregate in self.nova.aggregates.values_mut() {
            aggregate.hosts.remove(&id);
        }
        // Placement keeps a provider on which something is booked still, as of servers that were evacuated from it.
        if self.nova.providers.get(&id).is_none_or(|provider| provider.allocations.is_empty()) {
            self.nova.providers.remove(&id);
            for record in self.nova.migrations.values_mut().filter(|record| record.source == id) {
                record.leftover = false;
            }
        }
        let (epoch, running) = (self.host(id).epoch, self.host(id).compute_running);
        if running {
            self.plan(self.timing.compute_periodic, Due::ComputePeriodic(id, epoch));
        }
        let text = format!("{} is no longer in Nova", self.host(id).name);
        self.note(text);
        Ok(())
    }

    fn reset(&mut self, id: Uuid, status: ServerStatus) {
        self.settle_moves(id);
        if let Some(server) = self.nova.servers.get_mut(&id) {
            server.status = status;
            server.task = None;
        }
    }
}

/// The trait by which Placement keeps disabled hosts out of the scheduler's sight.
const DISABLED: &str = "COMPUTE_STATUS_DISABLED";

#[async_trait]
impl NovaClient for SimNova {
    async fn services(&self) -> Result<Vec<ComputeService>> {
        self.call("services", "list compute services".into(), |state, _| {
            Ok(state.computes().into_iter().filter_map(|id| state.show_service(id)).collect())
        })
        .await
    }

    async fn service_on(&self, host: &HostName) -> Result<ComputeService> {
        self.call("service_on", format!("get compute service of {host}"), |state, operation| {
            let found = compute_host(state, host).and_then(|id| state.show_service(id));
            found.ok_or_else(|| Error::not_found(operation))
        })
        .await
    }

    async fn enable_service(&self, id: &ServiceId) -> Result<()> {
        self.call("enable_service", format!("enable service {id}"), |state, operation| {
            let host = service(state, operation, id)?;
            state.set_enabled(host, true, None);
            Ok(())
        })
        .await
    }

    async fn disable_service(&self, id: &ServiceId, reason: &str) -> Result<()> {
        self.call("disable_service", format!("disable service {id}: {reason}"), |state, operation| {
            let host = service(state, operation, id)?;
            state.set_enabled(host, false, Some(reason));
            Ok(())
        })
        .await
    }

    async fn force_service_down(&self, id: &ServiceId, down: bool) -> Result<()> {
        let what = format!("{} service {id} down", if down { "declare" } else { "do not declare" });
        self.call("force_service_down", what, |state, operation| {
            let host = service(state, operation, id)?;
            if let Some(service) = state.nova.services.get_mut(&host) {
                service.forced_down = down;
            }
            state.refresh_compute(host);
            Ok(())
        })
        .await
    }

    async fn delete_service(&self, id: &ServiceId) -> Result<()> {
        self.call("delete_service", format!("delete service {id}"), |state, operation| {
            let host = service(state, operation, id)?;
            state.remove_service(operation, host)
        })
        .await
    }

    async fn hypervisors(&self) -> Result<Vec<NovaHypervisor>> {
        let all = self.hypervisors_with_servers().await?;
        Ok(all.into_iter().map(|one| NovaHypervisor { servers: None, ..one }).collect())
    }

    async fn hypervisor(&self, id: &ProviderId) -> Result<NovaHypervisor> {
        self.call("hypervisor", format!("get hypervisor {id}"), |state, operation| {
            let host = state.nova.providers.iter().find(|(_, provider)| provider.id == *id).map(|(host, _)| *host);
            host.and_then(|host| state.show_hypervisor(host)).ok_or_else(|| Error::not_found(operation))
        })
        .await
    }

    async fn hypervisor_named(&self, hostname: &str) -> Result<NovaHypervisor> {
        self.call("hypervisor_named", format!("get hypervisor named {hostname}"), |state, operation| {
            let host = state.host_id(&HostName::from(hostname));
            host.and_then(|host| state.show_hypervisor(host)).ok_or_else(|| Error::not_found(operation))
        })
        .await
    }

    async fn servers_on(&self, host: &HostName) -> Result<Vec<Server>> {
        self.call("servers_on", format!("list servers on {host}"), |state, _| {
            let Some(id) = state.host_id(host) else { return Ok(Vec::new()) };
            let servers = state.nova.servers_of(id);
            Ok(servers.filter_map(|id| Some(state.show_server(id, state.nova.servers.get(&id)?))).collect())
        })
        .await
    }

    async fn servers_named(&self, name: &ServerName) -> Result<Vec<Server>> {
        self.call("servers_named", format!("list our servers named {name}"), |state, _| {
            let nova = &state.nova;
            let own = nova.servers.iter().filter(|(_, server)| server.project == nova.own_project);
            let meant = own.filter(|(_, server)| name.fits(&server.name));
            Ok(meant.map(|(id, server)| state.show_server(*id, server)).collect())
        })
        .await
    }

    async fn server(&self, id: &InstanceId) -> Result<Server> {
        self.call("server", format!("get server {id}"), |state, operation| {
            let id = server_id(state, operation, id)?;
            let server = state.nova.servers.get(&id).ok_or_else(|| Error::not_found(operation))?;
            Ok(state.show_server(id, server))
        })
        .await
    }

    async fn create_server(&self, server: &NewServer) -> Result<InstanceId> {
        self.call("create_server", format!("create server {}", server.name), |state, operation| {
            state.create(operation, server).map(instance)
        })
        .await
    }

    async fn delete_server(&self, id: &InstanceId) -> Result<()> {
        self.call("delete_server", format!("delete server {id}"), |state, operation| {
            let id = server_id(state, operation, id)?;
            state.begin_delete(id);
            Ok(())
        })
        .await
    }

    async fn console_output(&self, id: &InstanceId, lines: u32) -> Result<String> {
        self.call("console_output", format!("get console of server {id}"), |state, operation| {
            let id = server_id(state, operation, id)?;
            let server = state.nova.servers.get(&id).ok_or_else(|| Error::not_found(operation))?;
            let host = server.host.filter(|host| state.host(*host).answers());
            let host = host.ok_or_else(|| Error::conflict(operation, "the server is not ready"))?;
            let up = state.host(host).domains.get(&id).and_then(|domain| domain.up_time(state.now));
            let booted = up.is_some_and(|up| up >= state.timing.guest_boot);
            let text = if booted {
                vec![
                    "[    0.000000] Linux version 6.12.0".to_owned(),
                    format!("{} login:", guest_hostname(&server.name)),
                ]
            } else {
                vec!["SeaBIOS (version 1.16.3)".to_owned()]
            };
            let skip = text.len().saturating_sub(lines as usize);
            Ok(text[skip..].join("\n"))
        })
        .await
    }

    async fn live_migrate<'a>(
        &self,
        id: &InstanceId,
        to: Option<&'a HostName>,
        block_migration: BlockMigration,
    ) -> Result<()> {
        let what = format!("live-migrate server {id} to {}", to.map_or("any host", HostName::as_str));
        self.call("live_migrate", what, |state, operation| {
            let id = server_id(state, operation, id)?;
            let to = target(state, operation, to)?;
            state.begin_live(operation, id, to, block_migration)
        })
        .await
    }

    async fn cold_migrate<'a>(&self, id: &InstanceId, to: Option<&'a HostName>) -> Result<()> {
        let what = format!("cold-migrate server {id}{}", to.map(|host| format!(" to {host}")).unwrap_or_default());
        self.call("cold_migrate", what, |state, operation| {
            let id = server_id(state, operation, id)?;
            let to = target(state, operation, to)?;
            state.begin_cold(operation, id, to)
        })
        .await
    }

    async fn confirm_migration(&self, id: &InstanceId) -> Result<()> {
        self.call("confirm_migration", format!("confirm migration of server {id}"), |state, operation| {
            let id = server_id(state, operation, id)?;
            let waiting = state.nova.servers.get(&id).is_some_and(|server| server.status == ServerStatus::VerifyResize);
            let current = state.nova.current_migration(id).filter(|_| waiting);
            let number = current.ok_or_else(|| Error::conflict(operation, "the server waits for no confirmation"))?;
            if state.nova.migrations.get(&number).is_some_and(|record| record.phase == MigrationPhase::Confirming) {
                return Err(Error::refused(operation, "Instance has not been resized."));
            }
            state.advance(number, MigrationPhase::Confirming, state.timing.confirm);
            Ok(())
        })
        .await
    }

    async fn evacuate<'a>(&self, id: &InstanceId, to: Option<&'a HostName>, after: AfterEvacuation) -> Result<()> {
        let what = format!("evacuate server {id} to {}", to.map_or("any host", HostName::as_str));
        self.call("evacuate", what, |state, operation| {
            let id = server_id(state, operation, id)?;
            let to = target(state, operation, to)?;
            state.begin_evacuation(operation, id, to, after)
        })
        .await
    }

    async fn reset_state(&self, id: &InstanceId, status: ServerStatus) -> Result<()> {
        self.call("reset_state", format!("reset server {id} to {status:?}"), |state, operation| {
            let id = server_id(state, operation, id)?;
            if !matches!(status, ServerStatus::Active | ServerStatus::Error) {
                return Err(Error::refused(operation, "a server can be reset to active or error only"));
            }
            state.reset(id, status.clone());
            Ok(())
        })
        .await
    }

    async fn migrations(&self, host: &HostName) -> Result<Vec<Migration>> {
        self.call("migrations", format!("list migrations of {host}"), |state, _| {
            let Some(id) = state.host_id(host) else { return Ok(Vec::new()) };
            let mine = |record: &MigrationRecord| record.source == id || record.destination == Some(id);
            let newest_first = state.nova.migrations.iter().rev().filter(|(_, record)| mine(record));
            Ok(newest_first.map(|(number, record)| state.show_migration(*number, record)).collect())
        })
        .await
    }

    async fn abort_migration(&self, server: &InstanceId, id: &MigrationId) -> Result<()> {
        self.call("abort_migration", format!("abort migration {id} of server {server}"), |state, operation| {
            let server = server_id(state, operation, server)?;
            let number = migration(state, operation, server, id)?;
            let record = state.nova.migrations.get(&number).ok_or_else(|| Error::not_found(operation))?;
            if record.kind != MigrationKind::Live {
                return Err(Error::refused(operation, "it is no live migration"));
            }
            match &record.phase {
                MigrationPhase::Queued | MigrationPhase::Preparing | MigrationPhase::Running => {
                    if state.service_state(record.source) == ServiceState::Down {
                        return Err(Error::conflict(operation, "the source does not answer"));
                    }
                    if !state.nova.deaf && !record.forgotten {
                        state.undo_migration(number, MigrationPhase::Cancelled);
                    }
                    Ok(())
                }
                phase => Err(Error::conflict(operation, format!("it is {phase:?}"))),
            }
        })
        .await
    }

    async fn force_complete_migration(&self, server: &InstanceId, id: &MigrationId) -> Result<()> {
        let what = format!("force migration {id} of server {server} to complete");
        self.call("force_complete_migration", what, |state, operation| {
            let server = server_id(state, operation, server)?;
            let number = migration(state, operation, server, id)?;
            let record = state.nova.migrations.get(&number).ok_or_else(|| Error::not_found(operation))?;
            if record.kind != MigrationKind::Live || record.phase != MigrationPhase::Running {
                return Err(Error::conflict(operation, format!("it is {:?}", record.phase)));
            }
            let step = record.step;
            state.migration_step(number, step);
            Ok(())
        })
        .await
    }

    async fn server_groups(&self) -> Result<Vec<ServerGroup>> {
        self.call("server_groups", "list server groups".into(), |state, _| Ok(state.show_groups())).await
    }

    async fn aggregates(&self) -> Result<Vec<Aggregate>> {
        self.call("aggregates", "list aggregates".into(), |state, _| {
            let mut all: Vec<Aggregate> = state
                .nova
                .aggregates
                .iter()
                .map(|(id, record)| {
                    let mut hosts: Vec<HostName> = record.hosts.iter().map(|id| state.host(*id).name.clone()).collect();
                    hosts.sort();
                    Aggregate {
                        id: AggregateId::new(id.to_string()),
                        uuid: record.uuid.to_string(),
                        name: record.name.clone(),
                        zone: record.zone.clone(),
                        hosts,
                        metadata: record.metadata.clone(),
                    }
                })
                .collect();
            all.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(all)
        })
        .await
    }

    async fn add_to_aggregate(&self, id: &AggregateId, host: &HostName) -> Result<()> {
        self.call("add_to_aggregate", format!("add {host} to aggregate {id}"), |state, operation| {
            let id = aggregate_id(state, operation, id)?;
            let host = compute_host(state, host).ok_or_else(|| Error::not_found(operation))?;
            let aggregate = state.nova.aggregates.get(&id).ok_or_else(|| Error::not_found(operation))?;
            if aggregate.hosts.contains(&host) {
                return Err(Error::conflict(operation, "the host is a member"));
            }
            let (zone, old) = (aggregate.zone.as_deref(), state.nova.zone_of(host));
            if zone.is_some() && zone != old {
                if old.is_some() {
                    return Err(Error::conflict(operation, "the host is in another availability zone"));
                }
                if state.nova.servers_of(host).next().is_some() {
                    return Err(Error::conflict(operation, "the availability zone of its servers would change"));
                }
            }
            if let Some(aggregate) = state.nova.aggregates.get_mut(&id) {
                aggregate.hosts.insert(host);
            }
            Ok(())
        })
        .await
    }

    async fn remove_from_aggregate(&self, id: &AggregateId, host: &HostName) -> Result<()> {
        self.call("remove_from_aggregate", format!("remove {host} from aggregate {id}"), |state, operation| {
            let id = aggregate_id(state, operation, id)?;
            let host = state.host_id(host).ok_or_else(|| Error::not_found(operation))?;
            let zone = state.nova.aggregates.get(&id).and_then(|aggregate| aggregate.zone.clone());
            let member = state.nova.aggregates.get(&id).is_some_and(|aggregate| aggregate.hosts.contains(&host));
            if !member {
                return Err(Error::not_found(operation));
            }
            if zone.is_some() && state.nova.servers_of(host).next().is_some() {
                return Err(Error::conflict(operation, "the availability zone of its servers would change"));
            }
            if let Some(aggregate) = state.nova.aggregates.get_mut(&id) {
                aggregate.hosts.remove(&host);
            }
            Ok(())
        })
        .await
    }
}
