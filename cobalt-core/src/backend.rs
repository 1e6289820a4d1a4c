//! The hypervisor of one host, behind libvirt or anything else.
//!
//! A [`HypervisorBackend`] is what the node agent needs to know of a host's VMs: what the host can run, which VMs
//! there are, how they fare, and what happens to them. Drivers differ. QEMU has statistics, job control and live
//! migration; Cloud Hypervisor behind libvirt has none of the three. The difference is data, [`Features`], and a call
//! outside of it is [`Error::Unsupported`]: nobody has to know which driver is behind the trait.
//!
//! The pattern of use is *list once, then follow*: subscribe to [`events`](HypervisorBackend::events), take the
//! [`inventory`](HypervisorBackend::inventory), then refresh single domains as their events arrive, and everything
//! again after [`BackendEvent::Connected`] or [`BackendEvent::Lagged`].

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{Error, Result, ids::InstanceId};

mod domain;
mod event;

pub use domain::{
    BlockStats, CellShare, CpuStats, Domain, DomainState, DomainStats, MemoryStats, NetDirection, NetStats,
    NovaMetadata, VcpuState, VcpuStats,
};
pub use event::{
    BackendEvent, DomainEvent, EventKind, IoErrorAction, Job, JobOperation, JobOutcome, Lifecycle, Progress,
    WatchdogAction,
};

/// What a driver can do. Everything is `false` (or empty) until a driver says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// [`HypervisorBackend::domain_capabilities`] answers.
    pub domain_capabilities: bool,
    /// [`HypervisorBackend::stats`] answers.
    pub stats: bool,
    /// [`HypervisorBackend::job`] and [`HypervisorBackend::abort_job`] answer.
    pub jobs: bool,
    /// [`HypervisorBackend::migrate`] works.
    pub migration: bool,
    /// [`HypervisorBackend::power`] works.
    pub power: bool,
    /// The kinds of domain event that this driver sends. What is missing here must be polled.
    pub events: Vec<EventKind>,
}

/// Versions of the parts below the seam. `None` where the driver does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Versions {
    /// The management library, such as libvirt `9.0.0`.
    pub library: Option<String>,
    /// The hypervisor itself, such as QEMU `7.2.22`.
    pub hypervisor: Option<String>,
}

/// What the host has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCapabilities {
    /// The CPU architecture, such as `x86_64`.
    pub cpu_arch: Option<String>,
    /// The host's NUMA cells, in order of their id. A host without NUMA has one.
    pub cells: Vec<HostCell>,
}

impl HostCapabilities {
    /// All CPUs of the host.
    pub fn cpus(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(cell.cpus)).sum()
    }

    /// All memory of the host.
    pub fn memory_bytes(&self) -> u64 {
        self.cells.iter().fold(0, |sum: u64, cell| sum.saturating_add(cell.memory_bytes))
    }
}

/// One NUMA cell of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCell {
    /// The host's number for it.
    pub id: u32,
    /// Memory in this cell.
    pub memory_bytes: u64,
    /// CPUs in this cell.
    pub cpus: u32,
}

/// What a VM may be made of on this host. Lists are sorted and free of duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainCapabilities {
    /// The guest architecture these capabilities hold for.
    pub arch: Option<String>,
    /// The kind of domain: `kvm`, `qemu`, `ch`.
    pub hypervisor_type: Option<String>,
    /// `<element>` and `<element>/<value>`, such as `disk`, `disk/virtio`.
    pub devices: Vec<String>,
    /// `mode/<name>` and `mode/<name>/<value>`.
    pub cpu_modes: Vec<String>,
    /// Features, such as `sev`.
    pub features: Vec<String>,
}

/// What to do with a domain's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PowerAction {
    /// Start a defined domain.
    Start,
    /// End it at once.
    Destroy,
    /// Press the reset button.
    Reset,
    /// Stop its CPUs.
    Suspend,
    /// Let its CPUs run on.
    Resume,
}

/// How to migrate a domain away, peer to peer: this host's daemon talks to the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrateRequest {
    /// The other daemon's address, as this host's daemon reaches it.
    pub destination: String,
    /// Keep the guest running meanwhile.
    pub live: bool,
    /// Copy local disks too.
    pub copy_storage: bool,
    /// Define the domain over there for good, and undefine it here.
    pub persist: bool,
}

/// The hypervisor of one host.
///
/// Implementations reconnect by themselves: a call while the connection is down is [`Error::Unavailable`], and the
/// event stream tells when it is back. Every call ends within a bounded time.
///
/// ```
/// use cobalt_core::backend::HypervisorBackend;
///
/// async fn summary(backend: &dyn HypervisorBackend) -> cobalt_core::Result<String> {
///     let domains = backend.inventory().await?;
///     let active = domains.iter().filter(|domain| domain.state.is_active()).count();
///     Ok(format!("{}: {active} of {} domains run", backend.driver(), domains.len()))
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait HypervisorBackend: Send + Sync {
    /// The driver's own name: `qemu`, `ch`, `test`. It is the type reported when there are no domain capabilities.
    fn driver(&self) -> String;

    /// What this driver can do.
    fn features(&self) -> Features;

    /// Versions of the library and of the hypervisor.
    async fn versions(&self) -> Result<Versions>;

    /// What the host has.
    async fn capabilities(&self) -> Result<HostCapabilities>;

    /// What a VM may be made of.
    async fn domain_capabilities(&self) -> Result<DomainCapabilities> {
        Err(Error::unsupported("get domain capabilities", self.driver()))
    }

    /// Every domain, running or not, ordered by id.
    async fn inventory(&self) -> Result<Vec<Domain>>;

    /// One domain as it is now; [`Error::NotFound`] once it is gone.
    async fn domain(&self, id: &InstanceId) -> Result<Domain>;

    /// Counters of all running domains, ordered by id. A domain that vanishes meanwhile is left out; it never fails
    /// the others.
    async fn stats(&self) -> Result<Vec<DomainStats>> {
        Err(Error::unsupported("get domain statistics", self.driver()))
    }

    /// What happens from now on. The stream is bounded: a slow reader gets [`BackendEvent::Lagged`] instead of a
    /// growing queue. It starts with [`BackendEvent::Connected`] if there is a connection at that moment.
    fn events(&self) -> BoxStream<'static, BackendEvent>;

    /// The job that runs on a domain now, or the last completed one if none runs and the driver remembers it.
    async fn job(&self, id: &InstanceId) -> Result<Option<Job>> {
        Err(Error::unsupported(format!("get job of domain {id}"), self.driver()))
    }

    /// Asks the running job to stop. [`Error::Conflict`] if there is none.
    async fn abort_job(&self, id: &InstanceId) -> Result<()> {
        Err(Error::unsupported(format!("abort job of domain {id}"), self.driver()))
    }

    /// Moves a domain to another host and returns when it has left, or why it has not. Dropping the future does not
    /// stop the migration; [`HypervisorBackend::abort_job`] does.
    async fn migrate(&self, id: &InstanceId, request: &MigrateRequest) -> Result<()> {
        Err(Error::unsupported(format!("migrate domain {id} to {}", request.destination), self.driver()))
    }

    /// Starts, stops or resets a domain.
    async fn power(&self, id: &InstanceId, action: PowerAction) -> Result<()> {
        Err(Error::unsupported(format!("{action:?} domain {id}"), self.driver()))
    }
}
