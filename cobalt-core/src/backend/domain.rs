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

/// Counters of one running domain. They only grow unless they say otherwise, and what the driver does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainStats {
    /// The domain.
    pub id: InstanceId,
    /// Its name on this host.
    pub name: String,
    /// Whether it runs.
    pub state: DomainState,
    /// CPU time used by the whole domain.
    pub cpu: CpuStats,
    /// Its memory.
    pub memory: MemoryStats,
    /// How many vCPUs it may have at most.
    pub vcpus_maximum: Option<u32>,
    /// Per vCPU, by its number.
    pub vcpus: BTreeMap<u32, VcpuStats>,
    /// Per disk, by its target name (`vda`).
    pub blocks: BTreeMap<String, BlockStats>,
    /// Per network interface, by its host name (`tap1234`).
    pub nets: BTreeMap<String, NetStats>,
}

impl DomainStats {
    /// A domain of which nothing is counted yet.
    pub fn new(id: InstanceId, name: impl Into<String>, state: DomainState) -> Self {
        Self {
            id,
            name: name.into(),
            state,
            cpu: CpuStats::default(),
            memory: MemoryStats::default(),
            vcpus_maximum: None,
            vcpus: BTreeMap::new(),
            blocks: BTreeMap::new(),
            nets: BTreeMap::new(),
        }
    }
}

/// CPU time of a whole domain, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuStats {
    /// Everything: the guest and what runs on its behalf.
    pub time_ns: Option<u64>,
    /// In user space.
    pub user_ns: Option<u64>,
    /// In the kernel.
    pub system_ns: Option<u64>,
}

/// Memory of a domain, in bytes; none of the sizes is a counter, the swap and fault figures are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// What it may have at most.
    pub maximum_bytes: Option<u64>,
    /// What the balloon leaves it now.
    pub current_bytes: Option<u64>,
    /// What its process occupies on the host.
    pub resident_bytes: Option<u64>,
    /// What the guest sees, by its own account.
    pub available_bytes: Option<u64>,
    /// What the guest leaves unused, by its own account.
    pub unused_bytes: Option<u64>,
    /// What the guest could use without swapping, by its own account.
    pub usable_bytes: Option<u64>,
    /// Read from the guest's swap.
    pub swapped_in_bytes: Option<u64>,
    /// Written to the guest's swap.
    pub swapped_out_bytes: Option<u64>,
    /// Page faults that needed a disk.
    pub major_faults: Option<u64>,
    /// Page faults that did not.
    pub minor_faults: Option<u64>,
}

/// One virtual CPU, times in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VcpuStats {
    /// Whether it runs; not a counter.
    pub state: Option<VcpuState>,
    /// Time it ran.
    pub time_ns: Option<u64>,
    /// Time it waited for I/O.
    pub wait_ns: Option<u64>,
    /// Time it could have run and was not let: what the guest sees as stolen.
    pub delay_ns: Option<u64>,
    /// Whether the guest has halted it; not a counter.
    pub halted: Option<bool>,
}

/// Whether a virtual CPU runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VcpuState {
    /// Switched off.
    Offline,
    /// Runs, or could.
    Running,
    /// Waits for a resource.
    Blocked,
}

/// Counters of one disk; times in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockStats {
    /// Where its data lies on the host, if that is a path.
    pub source: Option<String>,
    /// Requests to read.
    pub reads: Option<u64>,
    /// Bytes read.
    pub read_bytes: Option<u64>,
    /// Time spent reading.
    pub read_ns: Option<u64>,
    /// Requests to write.
    pub writes: Option<u64>,
    /// Bytes written.
    pub written_bytes: Option<u64>,
    /// Time spent writing.
    pub write_ns: Option<u64>,
    /// Requests to flush.
    pub flushes: Option<u64>,
    /// Time spent flushing.
    pub flush_ns: Option<u64>,
    /// Requests that failed.
    pub errors: Option<u64>,
    /// Highest offset written; not a counter.
    pub allocation_bytes: Option<u64>,
    /// Its size as the guest sees it; not a counter.
    pub capacity_bytes: Option<u64>,
    /// What it occupies on the host; not a counter.
    pub physical_bytes: Option<u64>,
}

/// Counters of one network interface, as the host sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Received.
    pub rx: NetDirection,
    /// Sent.
    pub tx: NetDirection,
}

/// One direction of a network interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetDirection {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Errors.
    pub errors: Option<u64>,
    /// Drops.
    pub drops: Option<u64>,
}
