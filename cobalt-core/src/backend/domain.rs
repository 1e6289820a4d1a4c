//! A VM as the hypervisor sees it.

use std::collections::BTreeMap;

use crate::ids::InstanceId;

/// Whether a domain runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DomainState {
    /// Its CPUs run (or wait for a resource).
    Running,
    /// Its CPUs are stopped, its memory is kept.
    Paused,
    /// Paused because a disk failed; heals when the disk does.
    PausedOnIoError,
    /// It is being shut down.
    ShuttingDown,
    /// It does not run.
    ShutOff,
    /// It died.
    Crashed,
    /// The guest sleeps.
    Suspended,
    /// A state this version does not know.
    Unknown,
}

impl DomainState {
    /// Whether the domain occupies the host now. A state nobody knows counts as occupied: an empty host is a claim that
    /// wants proof.
    pub fn is_active(self) -> bool {
        !matches!(self, Self::ShutOff | Self::Crashed)
    }
}

/// What a domain takes from one NUMA cell of the *host*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellShare {
    /// The host's cell, never the guest's.
    pub cell: u32,
    /// Memory bound to this cell.
    pub memory_bytes: u64,
    /// CPU bound to this cell, in thousandths: a vCPU that may run in two cells counts half in each.
    pub cpu_millis: u64,
}

/// One VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its UUID, which is also Nova's id of the server.
    pub id: InstanceId,
    /// Its name on this host, such as `instance-0000002a`.
    pub name: String,
    /// Whether it runs.
    pub state: DomainState,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// Its memory.
    pub memory_bytes: u64,
    /// What is bound to cells of the host, ordered by cell. A VM without pinning has none of it, and counts in the
    /// host's totals only.
    pub cells: Vec<CellShare>,
    /// Nova's notes in the domain, if Nova made it.
    pub nova: Option<NovaMetadata>,
}

/// What Nova writes into the domains it makes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NovaMetadata {
    /// The name its owner gave it.
    pub name: Option<String>,
    /// The flavor's name.
    pub flavor: Option<String>,
    /// The project that owns it.
    pub project_id: Option<String>,
    /// The user who made it.
    pub user_id: Option<String>,
}

/// Counters of one running domain, all monotonic unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainStats {
    /// The domain.
    pub id: InstanceId,
    /// Whether it runs.
    pub state: DomainState,
    /// CPU time used by the whole domain, in nanoseconds.
    pub cpu_time_ns: Option<u64>,
    /// Memory the guest has now, in bytes; not monotonic.
    pub balloon_bytes: Option<u64>,
    /// CPU time per vCPU, in nanoseconds.
    pub vcpu_time_ns: BTreeMap<u32, u64>,
    /// Per disk, by its target name (`vda`).
    pub block: BTreeMap<String, DeviceStats>,
    /// Per network interface, by its host name (`tap1234`).
    pub net: BTreeMap<String, DeviceStats>,
}

/// Counters of a disk or a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Bytes read or received.
    pub read_bytes: u64,
    /// Bytes written or sent.
    pub written_bytes: u64,
    /// Requests or packets in.
    pub reads: u64,
    /// Requests or packets out.
    pub writes: u64,
    /// Errors, both ways.
    pub errors: u64,
    /// Drops, both ways; disks have none.
    pub drops: u64,
}
