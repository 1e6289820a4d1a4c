//! The cloud above the hosts: compute services, servers, migrations, aggregates, and Placement.
//!
//! Nova knows only what it is told. A compute service that falls silent is up until
//! [`Timing::service_down`](crate::Timing::service_down) has passed; a server keeps its status while its host is
//! dead; allocations of an evacuated server stay on the dead provider until the host's agent returns or its service
//! is deleted. Programs that rely on more than that fail here as they would in a real cloud.

mod client;
mod compute;
mod evacuate;
mod groups;
mod migrate;
mod placement;
mod scheduler;
mod servers;
mod test_bed;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cobalt_core::{
    ids::{ProviderId, ServiceId},
    nova::{Inventory, MigrationKind, MigrationPhase, ServerStatus, TaskState},
};
use tokio::time::Instant;
use uuid::Uuid;

pub use client::SimNova;
pub use placement::SimPlacement;
pub use test_bed::SimTestBed;

use crate::world::HostId;

/// A size of server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavor {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory.
    pub memory_mb: u64,
    /// Local disk; 0 boots from a volume.
    pub disk_gb: u64,
    /// Traits a host must have.
    pub traits: BTreeSet<String>,
    /// NUMA cells it is bound to; 0 leaves it free.
    pub cells: u32,
}

impl Flavor {
    /// A flavor without local disk and without wishes, bound to one NUMA cell.
    pub fn new(id: &str, name: &str, vcpus: u32, memory_mb: u64) -> Self {
        Self { id: id.into(), name: name.into(), vcpus, memory_mb, disk_gb: 0, traits: BTreeSet::new(), cells: 1 }
    }

    pub(crate) fn amounts(&self) -> Amounts {
        Amounts { vcpus: u64::from(self.vcpus), memory_mb: self.memory_mb, disk_gb: self.disk_gb }
    }
}

/// What a server takes of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) vcpus: u64,
    pub(crate) memory_mb: u64,
    pub(crate) disk_gb: u64,
}

impl Amounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.vcpus += other.vcpus;
        self.memory_mb += other.memory_mb;
        self.disk_gb += other.disk_gb;
    }

    pub(crate) fn sub(&mut self, other: Self) {
        self.vcpus = self.vcpus.saturating_sub(other.vcpus);
        self.memory_mb = self.memory_mb.saturating_sub(other.memory_mb);
        self.disk_gb = self.disk_gb.saturating_sub(other.disk_gb);
    }

    pub(crate) fn fits(self, room: Self) -> bool {
        self.vcpus <= room.vcpus && self.memory_mb <= room.memory_mb && self.disk_gb <= room.disk_gb
    }
}

/// One compute service.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    pub(crate) enabled: bool,
    pub(crate) reason: Option<String>,
    pub(crate) forced_down: bool,
    /// Since when nothing was heard of it; `None` while it reports.
    pub(crate) silent_since: Option<Instant>,
}

/// One resource provider.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) id: ProviderId,
    pub(crate) generation: u64,
    pub(crate) traits: BTreeSet<String>,
    pub(crate) vcpu: Inventory,
    pub(crate) memory: Inventory,
    pub(crate) disk: Inventory,
    /// By consumer: a server, or a migration that keeps the old place.
    pub(crate) allocations: BTreeMap<Uuid, Amounts>,
    /// The sum of them.
    pub(crate) used: Amounts,
}

impl Provider {
    pub(crate) fn capacity(&self) -> Amounts {
        Amounts { vcpus: self.vcpu.capacity(), memory_mb: self.memory.capacity(), disk_gb: self.disk.capacity() }
    }

    pub(crate) fn room(&self) -> Amounts {
        let mut room = self.capacity();
        room.sub(self.used);
        room
    }

    pub(crate) fn allocate(&mut self, consumer: Uuid, amounts: Amounts) {
        self.release(consumer);
        self.allocations.insert(consumer, amounts);
        self.used.add(amounts);
        self.generation += 1;
    }

    /// Gives back what a consumer has here.
    pub(crate) fn release(&mut self, consumer: Uuid) -> Option<Amounts> {
        let amounts = self.allocations.remove(&consumer)?;
        self.used.sub(amounts);
        self.generation += 1;
        Some(amounts)
    }
}

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) project: Arc<str>,
    pub(crate) flavor: Arc<Flavor>,
    pub(crate) status: ServerStatus,
    pub(crate) task: Option<TaskState>,
    pub(crate) host: Option<HostId>,
    /// What Nova last heard from the hypervisor.
    pub(crate) powered: bool,
    pub(crate) locked: bool,
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) fault: Option<String>,
    pub(crate) launched: Option<Instant>,
}

/// One migration record.
#[derive(Debug)]
pub(crate) struct MigrationRecord {
    /// Holds the old place while the server has the new one.
    pub(crate) consumer: Uuid,
    pub(crate) server: Uuid,
    pub(crate) kind: MigrationKind,
    pub(crate) phase: MigrationPhase,
    pub(crate) source: HostId,
    pub(crate) destination: Option<HostId>,
    pub(crate) created: Instant,
    pub(crate) updated: Instant,
    /// Counts the steps, so that what was planned for an earlier one does nothing.
    pub(crate) step: u32,
    /// It will fail when it should end.
    pub(crate) doomed: Option<String>,
    /// The server ran before, and shall run after.
    pub(crate) run_after: bool,
    /// An evacuation whose source has not been cleaned up.
    pub(crate) leftover: bool,
    /// Its compute service has forgotten it, and nobody will close it.
    pub(crate) forgotten: bool,
}

/// A named set of hosts.
#[derive(Debug)]
pub(crate) struct AggregateRecord {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) zone: Option<String>,
    pub(crate) hosts: BTreeSet<HostId>,
    pub(crate) metadata: BTreeMap<String, String>,
}

/// An image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) id: Uuid,
    pub(crate) name: String,
}

/// A network. All are of the project we log in to.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) shared: bool,
}

/// Everything Nova and Placement know.
#[derive(Debug)]
pub(crate) struct Nova {
    /// The API answers.
    pub(crate) available: bool,
    pub(crate) services: BTreeMap<HostId, Service>,
    pub(crate) providers: BTreeMap<HostId, Provider>,
    pub(crate) flavors: BTreeMap<String, Arc<Flavor>>,
    pub(crate) servers: BTreeMap<Uuid, Server>,
    pub(crate) on_host: BTreeMap<HostId, BTreeSet<Uuid>>,
    pub(crate) migrations: BTreeMap<u64, MigrationRecord>,
    pub(crate) aggregates: BTreeMap<u64, AggregateRecord>,
    pub(crate) groups: BTreeMap<Uuid, groups::GroupRecord>,
    pub(crate) traits: BTreeSet<String>,
    /// Live migrations that one host sends at a time; the others queue.
    pub(crate) parallel_migrations: usize,
    /// New services wait for somebody to enable them.
    pub(crate) enable_new_services: bool,
    /// The next so many live migrations fail, with this text.
    pub(crate) doom: Option<(u64, String)>,
    /// Nobody hears that a live migration is to stop.
    pub(crate) deaf: bool,
    pub(crate) projects: Vec<Arc<str>>,
    /// The project that whoever uses the seam is logged in to.
    pub(crate) own_project: Arc<str>,
    /// The oldest first.
    pub(crate) images: Vec<Image>,
    pub(crate) networks: Vec<Network>,
    domain_number: u32,
    migration_number: u64,
    aggregate_number: u64,
}

/// Finished migration records are kept up to this number.
const KEPT_MIGRATIONS: usize = 10_000;

impl Default for Nova {
    fn default() -> Self {
        let standard =
            ["HW_CPU_X86_AVX2", "HW_CPU_X86_VMX", "COMPUTE_STATUS_DISABLED", "COMPUTE_NODE", "STORAGE_DISK_SSD"];
        Self {
            available: true,
            services: BTreeMap::new(),
            providers: BTreeMap::new(),
            flavors: BTreeMap::new(),
            servers: BTreeMap::new(),
            on_host: BTreeMap::new(),
            migrations: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            groups: BTreeMap::new(),
            traits: standard.into_iter().map(str::to_owned).collect(),
            parallel_migrations: 1,
            enable_new_services: true,
            doom: None,
            deaf: false,
            projects: (1..=8).map(|n| Arc::from(format!("project-{n}"))).collect(),
            own_project: Arc::from("operator"),
            // Not by chance: a region has them before anything happens in it.
            images: vec![Image { id: Uuid::from_u128(0x1111), name: "cirros".into() }],
            networks: vec![Network { id: Uuid::from_u128(0x2222), name: "private".into(), shared: false }],
            domain_number: 0,
            migration_number: 0,
            aggregate_number: 0,
        }
    }
}

impl Nova {
    pub(crate) fn next_domain_number(&mut self) -> u32 {
        self.domain_number += 1;
        self.domain_number
    }

    pub(crate) fn add_aggregate(&mut self, uuid: Uuid, name: &str, zone: Option<&str>) -> u64 {
        self.aggregate_number += 1;
        let metadata = zone.iter().map(|zone| ("availability_zone".to_owned(), (*zone).to_owned())).collect();
        let record = AggregateRecord {
            uuid,
            name: name.to_owned(),
            zone: zone.map(str::to_owned),
            hosts: BTreeSet::new(),
            metadata,
        };
        self.aggregates.insert(self.aggregate_number, record);
        self.aggregate_number
    }

    /// The availability zone a host's aggregates make.
    pub(crate) fn zone_of(&self, host: HostId) -> Option<&str> {
        let mut with_zone = self.aggregates.values().filter(|aggregate| aggregate.hosts.contains(&host));
        with_zone.find_map(|aggregate| aggregate.zone.as_deref())
    }

    pub(crate) fn servers_of(&self, host: HostId) -> impl Iterator<Item = Uuid> + '_ {
        self.on_host.get(&host).into_iter().flatten().copied()
    }

    /// Says where a server is, in both directions.
    pub(crate) fn move_server(&mut self, id: Uuid, to: Option<HostId>) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let from = std::mem::replace(&mut server.host, to);
        if let Some(servers) = from.and_then(|from| self.on_host.get_mut(&from)) {
            servers.remove(&id);
        }
        if let Some(to) = to {
            self.on_host.entry(to).or_default().insert(id);
        }
    }

    pub(crate) fn remove_server(&mut self, id: Uuid) {
        self.move_server(id, None);
        self.servers.remove(&id);
        for provider in self.providers.values_mut() {
            provider.release(id);
        }
    }

    pub(crate) fn add_migration(&mut self, record: MigrationRecord) -> u64 {
        self.migration_number += 1;
        self.migrations.insert(self.migration_number, record);
        if self.migrations.len() > KEPT_MIGRATIONS {
            let old = self.migrations.iter().find(|(_, record)| record.phase.is_over() && !record.leftover);
            if let Some(id) = old.map(|(id, _)| *id) {
                self.migrations.remove(&id);
            }
        }
        self.migration_number
    }

    /// The migration of this server that is not over.
    pub(crate) fn current_migration(&self, server: Uuid) -> Option<u64> {
        let mut newest_first = self.migrations.iter().rev();
        let open = |record: &MigrationRecord| !record.phase.is_over() && !record.forgotten;
        newest_first.find(|(_, record)| record.server == server && open(record)).map(|(id, _)| *id)
    }
}
