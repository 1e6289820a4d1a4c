//! A domain: `virsh dumpxml`.

use std::collections::BTreeMap;

use cobalt_core::{
    backend::{Domain, DomainState},
    ids::InstanceId,
};

use super::{CpuSet, HostCellXml, Limits, NovaXml, XmlError};

mod device;
mod parse;

pub use device::{Disk, DiskSource, Interface, Watchdog};

/// A domain, as libvirt describes it.
///
/// What the document does not say is `None` or empty; see the [module](super) for what is tolerated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainXml {
    /// How it is run: `kvm`, `qemu`, `test`.
    pub kind: Option<String>,
    /// The number it has while it runs. The ch driver takes the VMM's process id.
    pub id: Option<u32>,
    /// Its name on this host.
    pub name: Option<String>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// The guest's architecture.
    pub arch: Option<String>,
    /// The machine type.
    pub machine: Option<String>,
    /// The memory it may have at most without further slots: what it takes from the host.
    pub memory_bytes: Option<u64>,
    /// What the balloon leaves it.
    pub current_memory_bytes: Option<u64>,
    /// Its virtual CPUs.
    pub vcpus: Option<Vcpus>,
    /// The host CPUs a single vCPU may run on, by vCPU.
    pub pins: BTreeMap<u32, CpuSet>,
    /// Where its memory comes from.
    pub numatune: NumaTune,
    /// The NUMA cells that the *guest* sees. Their ids have nothing to do with those of the host.
    pub guest_cells: Vec<GuestCell>,
    /// Its disks.
    pub disks: Vec<Disk>,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// Its watchdogs.
    pub watchdogs: Vec<Watchdog>,
    /// Nova's notes, if Nova made it.
    pub nova: Option<NovaXml>,
}

/// The `<vcpu>` element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vcpus {
    /// How many it may have.
    pub maximum: u32,
    /// How many are plugged in.
    pub current: u32,
    /// The host CPUs that vCPUs without a pin of their own may run on. `None` for any, and for placement `auto`, where
    /// the host decides anew at each start.
    pub cpuset: Option<CpuSet>,
}

/// The `<numatune>` element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaTune {
    /// For all memory without a rule of its own. `None` also for placement `auto`.
    pub memory: Option<MemoryBinding>,
    /// By *guest* cell.
    pub cells: BTreeMap<u32, MemoryBinding>,
}

/// From which host cells memory comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBinding {
    /// How strictly.
    pub mode: MemoryMode,
    /// The *host's* cells.
    pub nodeset: CpuSet,
}

/// How strictly memory is bound to its cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryMode {
    /// From these cells or not at all; also what libvirt takes when nothing is said.
    #[default]
    Strict,
    /// From these cells in turn.
    Interleave,
    /// From these cells while they have some.
    Preferred,
    /// From these cells, by the cgroup alone.
    Restrictive,
    /// A mode this version does not know.
    Unknown,
}

/// One NUMA cell that the guest sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestCell {
    /// The guest's number for it.
    pub id: u32,
    /// The vCPUs in it.
    pub vcpus: CpuSet,
    /// Its memory.
    pub memory_bytes: u64,
}

impl DomainXml {
    /// Reads a `<domain>` document.
    ///
    /// ```
    /// use cobalt_libvirt::xml::DomainXml;
    ///
    /// let domain = DomainXml::parse(
    ///     "<domain type='kvm' id='7'><name>web-1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu></domain>",
    /// )?;
    /// assert_eq!(domain.name.as_deref(), Some("web-1"));
    /// assert_eq!(domain.memory_total_bytes(), 512 << 20);
    /// assert_eq!(domain.vcpus_total(), 2);
    /// # Ok::<(), cobalt_libvirt::xml::XmlError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, XmlError> {
        Self::parse_within(text, Limits::default())
    }

    /// Reads a `<domain>` document within limits of one's own.
    pub fn parse_within(text: &str, limits: Limits) -> Result<Self, XmlError> {
        parse::domain(text, limits)
    }

    /// How many vCPUs it is promised: the maximum, as for memory. If the document does not say, as many as are pinned,
    /// and at least libvirt's default of one.
    pub fn vcpus_total(&self) -> u32 {
        match &self.vcpus {
            Some(vcpus) => vcpus.maximum,
            None => u32::try_from(self.pins.len()).unwrap_or(u32::MAX).max(1),
        }
    }

    /// How much memory it is promised. If the document does not say, what the guest's cells have together.
    pub fn memory_total_bytes(&self) -> u64 {
        let cells = || self.guest_cells.iter().fold(0_u64, |sum, cell| sum.saturating_add(cell.memory_bytes));
        self.memory_bytes.unwrap_or_else(cells)
    }

    /// The domain in the terms of the seam. Its identity and state are what the daemon's list said: a document may be
    /// older than that, and need not repeat it.
    pub fn to_domain(
        &self,
        id: InstanceId,
        name: impl Into<String>,
        state: DomainState,
        host: &[HostCellXml],
    ) -> Domain {
        Domain {
            id,
            name: name.into(),
            state,
            vcpus: self.vcpus_total(),
            memory_bytes: self.memory_total_bytes(),
            cells: self.shares(host).cells,
            nova: self.nova.as_ref().map(|nova| nova.metadata.clone()),
        }
    }
}
