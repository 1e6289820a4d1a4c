//! What a domain takes from which NUMA cell of the host.
//!
//! The rules, each from what libvirt does with the same words:
//!
//! - **Memory** of a guest cell comes from the `nodeset` of the `<memnode>` with that `cellid`; without one, and for all
//!   memory that is in no guest cell, from the `nodeset` of `<numatune><memory>`; without that, from anywhere. Several
//!   host cells share it evenly, whatever the mode.
//! - **A vCPU** runs on the CPUs of its `<vcpupin>`; without one, on those of `<vcpu cpuset>`; without that, anywhere.
//!   It counts in the host cells which have these CPUs, in equal parts. A domain's memory being bound does *not* bind its
//!   vCPUs: libvirt leaves their affinity alone, so they count nowhere.
//! - Guest cell ids never stand for host cells.
//! - What may come from anywhere is in the domain's totals only. What is bound to a host cell that does not exist is
//!   reported in [`Shares::unplaced`]. A CPU that no cell has is no place to run, so it takes no part of a vCPU unless
//!   the vCPU has no other.
//!
//! Nothing is lost by division: what is split is shared out to the last byte and the last thousandth.

use std::collections::BTreeMap;

use cobalt_core::backend::CellShare;

use super::{CpuSet, DomainXml, HostCellXml, MemoryBinding};

/// What a domain takes from the cells of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// Ordered by cell; only cells from which it takes anything.
    pub cells: Vec<CellShare>,
    /// What is bound to places that this host does not have. It happens to domains that were defined for another
    /// machine, and they do not start.
    pub unplaced: Vec<Unplaced>,
}

/// Something bound to a place that the host does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unplaced {
    /// Memory bound to cells that the host does not have.
    Memory {
        /// The cells that are missing.
        cells: CpuSet,
        /// How much.
        bytes: u64,
    },
    /// vCPUs that may run only on CPUs that the host does not have.
    Cpu {
        /// How much, in thousandths of a CPU.
        millis: u64,
    },
}

impl DomainXml {
    /// What the domain takes from the NUMA cells of the host; the [module](super) has an example.
    pub fn shares(&self, host: &[HostCellXml]) -> Shares {
        let mut book = Book { host, cells: BTreeMap::new(), unplaced: Vec::new() };
        for (bytes, binding) in self.bound_memory() {
            book.memory(bytes, binding);
        }
        book.vcpus(&self.bound_vcpus());
        Shares { cells: book.cells.into_values().collect(), unplaced: book.unplaced }
    }

    /// Every amount of memory that is bound, and where to.
    fn bound_memory(&self) -> Vec<(u64, &MemoryBinding)> {
        let (rules, rest) = (&self.numatune.cells, self.numatune.memory.as_ref());
        let total = self.memory_total_bytes();
        let mut bound = Vec::new();
        if self.guest_cells.is_empty() && !rules.is_empty() {
            // Rules for cells that are not described: libvirt would not take this, so equal cells are as good a
            // reading as any, and the sum stays right.
            let parts = rules.len() as u64;
            bound.extend(rules.values().zip(0..).map(|(binding, rank)| (part(total, parts, rank), binding)));
            return bound;
        }
        let mut unruled = total;
        for cell in &self.guest_cells {
            if let Some(binding) = rules.get(&cell.id) {
                bound.push((cell.memory_bytes, binding));
                unruled = unruled.saturating_sub(cell.memory_bytes);
            }
        }
        bound.extend(rest.map(|binding| (unruled, binding)));
        bound
    }

    /// How many vCPUs may run on each set of CPUs. vCPUs that may run anywhere are left out.
    fn bound_vcpus(&self) -> Vec<(&CpuSet, u64)> {
        let total = self.vcpus_total();
        // Without `<vcpu>` the pins themselves are the count.
        let counted = |vcpu: u32| self.vcpus.is_none() || vcpu < total;
        let pinned = self.pins.iter().filter(|&(&vcpu, cpus)| counted(vcpu) && !cpus.is_empty());
        let mut bound: Vec<_> = pinned.map(|(_, cpus)| (cpus, 1)).collect();
        let free = u64::from(total).saturating_sub(bound.len() as u64);
        let common = self.vcpus.as_ref().and_then(|vcpus| vcpus.cpuset.as_ref()).filter(|cpus| !cpus.is_empty());
        bound.extend(common.filter(|_| free > 0).map(|cpus| (cpus, free)));
        bound
    }
}

struct Book<'a> {
    host: &'a [HostCellXml],
    cells: BTreeMap<u32, CellShare>,
    unplaced: Vec<Unplaced>,
}

impl Book<'_> {
    fn memory(&mut self, bytes: u64, binding: &MemoryBinding) {
        let nodes = &binding.nodeset;
        if bytes == 0 || nodes.is_empty() {
            return;
        }
        let mut placed = 0;
        let mut missing = nodes.clone();
        for cell in self.host.iter().filter(|cell| nodes.contains(cell.id)) {
            let share = part(bytes, nodes.len(), nodes.rank(cell.id));
            placed = share.saturating_add(placed);
            missing.remove(cell.id, cell.id);
            let entry = self.share(cell.id);
            entry.memory_bytes = entry.memory_bytes.saturating_add(share);
        }
        if placed < bytes {
            self.unplaced.push(Unplaced::Memory { cells: missing, bytes: bytes - placed });
        }
    }

    fn vcpus(&mut self, bound: &[(&CpuSet, u64)]) {
        // All vCPUs with the same choice of cells are split in one go, so that three of them over three cells are one
        // in each rather than three times a third and a remainder.
        let mut choices: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        for &(cpus, count) in bound {
            let cells = self.host.iter().filter(|cell| cell.cpu_ids.intersects(cpus)).map(|cell| cell.id);
            *choices.entry(cells.collect()).or_default() += count * 1000;
        }
        for (cells, millis) in choices {
            if cells.is_empty() {
                self.unplaced.push(Unplaced::Cpu { millis });
            }
            for (cell, rank) in cells.iter().zip(0..) {
                self.share(*cell).cpu_millis += part(millis, cells.len() as u64, rank);
            }
        }
        self.cells.retain(|_, share| share.memory_bytes > 0 || share.cpu_millis > 0);
    }

    fn share(&mut self, cell: u32) -> &mut CellShare {
        self.cells.entry(cell).or_insert(CellShare { cell, memory_bytes: 0, cpu_millis: 0 })
    }
}

/// The part of `amount` for the one of `parts` receivers with this `rank`: even, and the remainder goes one by one to
/// the first of them, so that all parts together are `amount` again.
fn part(amount: u64, parts: u64, rank: u64) -> u64 {
    amount / parts + u64::from(rank < amount % parts)
}
