//! The region: a builder for the world, and the handles to its parts.

use std::{
    future::Future,
    sync::{Arc, OnceLock},
};

use cobalt_core::{
    backend::HostCell,
    ids::{AggregateId, HostName, InstanceId},
};
use jiff::Timestamp;
use tokio::{net::TcpListener, sync::OnceCell};

use crate::{
    cluster::Cluster,
    error::{ClusterCause, Result, SimError},
    nova::{Flavor, SimNova, SimPlacement, SimTestBed},
    openstack::OpenStackApi,
    seams::{SimBackend, SimFencer, SimHostSystem, SimSwitch},
    world::{Driver, Host, HostId, Timing, World},
};

const GIB: u64 = 1 << 30;

/// How a new region shall look.
#[derive(Debug, Clone)]
pub struct RegionBuilder {
    hosts: usize,
    names: Vec<HostName>,
    vms_per_host: usize,
    seed: u64,
    start: Timestamp,
    timing: Timing,
    driver: Driver,
    cells: Vec<(u32, u64)>,
    zones: Vec<String>,
    registered: bool,
    enable_new_services: bool,
    event_capacity: usize,
}

impl Default for RegionBuilder {
    fn default() -> Self {
        Self {
            hosts: 3,
            names: Vec::new(),
            vms_per_host: 0,
            seed: 0,
            // A fixed day, so that two runs of one seed are the same to the letter.
            start: Timestamp::constant(1_767_225_600, 0),
            timing: Timing::default(),
            driver: Driver::Qemu,
            cells: vec![(64, 512), (64, 512)],
            zones: vec!["zone-a".into()],
            registered: true,
            enable_new_services: true,
            event_capacity: 256,
        }
    }
}

impl RegionBuilder {
    /// So many hosts, named `hv-000`, `hv-001`, …
    pub fn hosts(mut self, hosts: usize) -> Self {
        self.hosts = hosts;
        self
    }

    /// These hosts instead.
    pub fn named(mut self, names: impl IntoIterator<Item = impl Into<HostName>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// So many running servers on each host, of sizes the seed decides.
    pub fn vms_per_host(mut self, vms: usize) -> Self {
        self.vms_per_host = vms;
        self
    }

    /// What all randomness comes from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What the world's clock shows at the beginning; a fixed day unless told.
    pub fn starting_at(mut self, start: Timestamp) -> Self {
        self.start = start;
        self
    }

    /// How long things take.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// The hypervisor of all hosts; [`Region::add_host`] can add others.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// The NUMA cells of each host: CPUs and GiB of memory.
    pub fn cells(mut self, cells: impl IntoIterator<Item = (u32, u64)>) -> Self {
        self.cells = cells.into_iter().collect();
        self
    }

    /// Availability zones, each an aggregate of its name; hosts go to them in turn.
    pub fn zones(mut self, zones: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// Leaves the hosts unknown to Nova, without VMs and in no zone, as new machines are.
    pub fn unregistered(mut self) -> Self {
        self.registered = false;
        self
    }

    /// Lets new compute services wait until somebody enables them.
    pub fn new_services_disabled(mut self) -> Self {
        self.enable_new_services = false;
        self
    }

    /// How far a reader of events may fall behind before it loses some.
    pub fn event_capacity(mut self, capacity: usize) -> Self {
        self.event_capacity = capacity.max(1);
        self
    }

    /// Makes the world and starts its clock. Needs a Tokio runtime with time.
    pub fn build(self) -> Region {
        let world = World::new(self.seed, self.start, &self.timing, self.event_capacity);
        let width = self.hosts.saturating_sub(1).to_string().len().max(3);
        let names = if self.names.is_empty() {
            (0..self.hosts).map(|n| HostName::new(format!("hv-{n:0width$}"))).collect()
        } else {
            self.names
        };
        world.with(|state| {
            let flavors = [
                Flavor::new("1", "m1.tiny", 1, 512),
                Flavor::new("2", "m1.small", 2, 4096),
                Flavor::new("3", "m1.medium", 4, 8192),
                Flavor::new("4", "m1.large", 8, 16384),
                Flavor { disk_gb: 40, ..Flavor::new("5", "m1.local", 4, 8192) },
                Flavor { cells: 2, ..Flavor::new("6", "m1.wide", 16, 32768) },
            ];
            for flavor in flavors {
                state.nova.flavors.insert(flavor.id.clone(), Arc::new(flavor));
            }
            state.nova.enable_new_services = true;
            let zones: Vec<u64> = self
                .zones
                .iter()
                .map(|zone| {
                    let uuid = state.random_uuid();
                    state.nova.add_aggregate(uuid, zone, Some(zone))
                })
                .collect();
            for (index, name) in names.into_iter().enumerate() {
                let id = add_host(state, name, self.driver, &self.cells);
                if !self.registered {
                    continue;
                }
                state.host_mut(id).compute_wanted = true;
                state.host_mut(id).compute_running = true;
                state.register(id);
                if let Some(zone) =
                    zones.get(index % zones.len().max(1)).and_then(|zone| state.nova.aggregates.get_mut(zone))
                {
                    zone.hosts.insert(id);
                }
                for _ in 0..self.vms_per_host {
                    let size = ["2", "2", "2", "3", "3", "4"][state.random_below(6)];
                    if let Some(flavor) = state.nova.flavors.get(size).cloned() {
                        // A host that is full stays as it is.
                        let _full = state.boot(id, &flavor);
                    }
                }
            }
            state.nova.enable_new_services = self.enable_new_services;
        });
        Region { world, seed: self.seed, cluster: Arc::default(), openstack: Arc::default() }
    }
}

fn add_host(state: &mut crate::world::State, name: HostName, driver: Driver, cells: &[(u32, u64)]) -> HostId {
    let cells =
        (0..).zip(cells).map(|(id, (cpus, gib))| HostCell { id, memory_bytes: gib * GIB, cpus: *cpus }).collect();
    let boot_id = state.random_uuid();
    state.add_host(Host::new(name, driver, cells, boot_id))
}

/// A region with everything in it. Clones are handles to the same one; it ends when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct Region {
    world: World,
    seed: u64,
    cluster: Arc<OnceCell<Cluster>>,
    openstack: Arc<OnceLock<OpenStackApi>>,
}

impl Region {
    /// Begins a region: three empty hosts, unless told otherwise.
    pub fn builder() -> RegionBuilder {
        RegionBuilder::default()
    }

    /// The world itself, to make things happen in it.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The names of all hosts, in order.
    pub fn hosts(&self) -> Vec<HostName> {
        self.world.hosts()
    }

    fn id(&self, operation: &str, host: &HostName) -> Result<HostId> {
        let missing = || SimError::UnknownHost { operation: operation.to_owned(), host: host.clone() };
        self.world.with(|state| state.host_id(host)).ok_or_else(missing)
    }

    /// The hypervisor of a host.
    pub fn backend(&self, host: &HostName) -> Result<SimBackend> {
        Ok(SimBackend::new(self.world.clone(), self.id("open backend", host)?))
    }

    /// The operating system of a host.
    pub fn host_system(&self, host: &HostName) -> Result<SimHostSystem> {
        Ok(SimHostSystem::new(self.world.clone(), self.id("open host system", host)?))
    }

    /// The switch of a host.
    pub fn switch(&self, host: &HostName) -> Result<SimSwitch> {
        Ok(SimSwitch::new(self.world.clone(), self.id("open switch", host)?))
    }

    /// Nova.
    pub fn nova(&self) -> SimNova {
        SimNova::new(self.world.clone())
    }

    /// Placement.
    pub fn placement(&self) -> SimPlacement {
        SimPlacement::new(self.world.clone())
    }

    /// What a smoke test is made of. There is an image `cirros` and a network `private` from the beginning.
    pub fn test_bed(&self) -> SimTestBed {
        SimTestBed::new(self.world.clone())
    }

    /// The BMCs.
    pub fn fencer(&self) -> SimFencer {
        SimFencer::new(self.world.clone())
    }

    /// The Kubernetes side, started at the first call: an API server that knows Cobalt's kinds and no Nodes yet.
    pub async fn cluster(&self) -> Result<Cluster> {
        let started = self.cluster.get_or_try_init(|| Cluster::start(self.world.clone(), self.seed)).await;
        started.cloned()
    }

    /// A client of the region's API server, in process, known to it by this name.
    pub async fn client(&self, name: &str) -> Result<kube::Client> {
        Ok(self.cluster().await?.client(name))
    }

    /// Serves the region's API server on a socket until `shutdown` is ready. Time is real there.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<()> {
        let served = self.cluster().await?.serve(listener, shutdown).await;
        let operation = || "serve the API".to_owned();
        served.map_err(|error| SimError::Cluster { operation: operation(), cause: ClusterCause(error.to_string()) })
    }

    /// The region's cloud as an OpenStack API. There is one; its settings, tokens, faults and counts are shared.
    pub fn openstack(&self) -> OpenStackApi {
        self.openstack.get_or_init(|| OpenStackApi::new(&self.world, self.seed)).clone()
    }

    /// Serves the region's OpenStack API on a socket until `shutdown` is ready. Time is real there.
    pub async fn serve_openstack(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> Result<()> {
        let served = self.openstack().serve(listener, shutdown).await;
        let operation = || "serve the OpenStack API".to_owned();
        served.map_err(|error| SimError::Cluster { operation: operation(), cause: ClusterCause(error.to_string()) })
    }

    /// Adds a host that is up and unknown to Nova. [`World::start_compute`] registers it.
    pub fn add_host(&self, name: impl Into<HostName>, driver: Driver, cells: &[(u32, u64)]) -> Result<HostName> {
        let name = name.into();
        self.world.with(|state| {
            if state.host_id(&name).is_some() {
                return Err(SimError::not_now(format!("add host {name}"), "there is a host of this name"));
            }
            add_host(state, name.clone(), driver, cells);
            Ok(name)
        })
    }

    /// Adds an aggregate, which makes an availability zone if `zone` is given.
    pub fn add_aggregate(&self, name: &str, zone: Option<&str>) -> AggregateId {
        self.world.with(|state| {
            let uuid = state.random_uuid();
            AggregateId::new(state.nova.add_aggregate(uuid, name, zone).to_string())
        })
    }

    /// Puts a running server of this flavor on a host, at once.
    pub fn boot(&self, host: &HostName, flavor: &str) -> Result<InstanceId> {
        self.world.boot(host, flavor)
    }
}
