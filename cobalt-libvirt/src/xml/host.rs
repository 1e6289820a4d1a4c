//! What the host has: `virsh capabilities`.

use cobalt_core::backend::{HostCapabilities, HostCell};

use super::{
    CpuSet, Limits, XmlError,
    reader::{Element, Reader},
    units::size_in_bytes,
};

/// The host, as libvirt describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostXml {
    /// The host's own UUID, by which two daemons know whether they share a machine.
    pub uuid: Option<String>,
    /// The CPU architecture, such as `x86_64`.
    pub cpu_arch: Option<String>,
    /// The CPU model that libvirt finds nearest.
    pub cpu_model: Option<String>,
    /// The CPU's vendor.
    pub cpu_vendor: Option<String>,
    /// Whether running guests can be moved.
    pub live_migration: bool,
    /// How the memory of a guest can travel, such as `tcp`, in the host's order.
    pub migration_transports: Vec<String>,
    /// The NUMA cells in order of their id, each id once. Empty if libvirt tells no topology; see
    /// [`or_one_cell`](Self::or_one_cell).
    pub cells: Vec<HostCellXml>,
}

/// One NUMA cell of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCellXml {
    /// The host's number for it.
    pub id: u32,
    /// Its memory; none for a cell of CPUs only.
    pub memory_bytes: u64,
    /// How many CPUs it has.
    pub cpus: u32,
    /// Which ones.
    pub cpu_ids: CpuSet,
}

impl HostXml {
    /// Reads a `<capabilities>` document.
    pub fn parse(text: &str) -> Result<Self, XmlError> {
        Self::parse_within(text, Limits::default())
    }

    /// Reads a `<capabilities>` document within limits of one's own.
    pub fn parse_within(text: &str, limits: Limits) -> Result<Self, XmlError> {
        let (mut reader, root) = Reader::open(text, "capabilities", limits)?;
        let reader = &mut reader;
        let mut host = Self::default();
        while let Some(part) = reader.child(&root)? {
            if part.name() == "host" {
                host.read(reader, &part)?;
            }
        }
        host.cells.sort_by_key(|cell| cell.id);
        host.cells.dedup_by_key(|cell| cell.id);
        Ok(host)
    }

    /// If libvirt told no topology, one cell with everything the host has, by other accounts such as node info.
    pub fn or_one_cell(mut self, memory_bytes: u64, cpus: u32) -> Self {
        if self.cells.is_empty() {
            let mut cpu_ids = CpuSet::default();
            if let Some(last) = cpus.checked_sub(1) {
                cpu_ids.insert(0, last);
            }
            self.cells.push(HostCellXml { id: 0, memory_bytes, cpus, cpu_ids });
        }
        self
    }

    /// The same in the terms of the seam.
    pub fn capabilities(&self) -> HostCapabilities {
        let cell = |cell: &HostCellXml| HostCell { id: cell.id, memory_bytes: cell.memory_bytes, cpus: cell.cpus };
        HostCapabilities { cpu_arch: self.cpu_arch.clone(), cells: self.cells.iter().map(cell).collect() }
    }

    fn read<'a>(&mut self, reader: &mut Reader<'a>, host: &Element<'a>) -> Result<(), XmlError> {
        while let Some(part) = reader.child(host)? {
            match part.name() {
                "uuid" => self.uuid = reader.string(&part)?,
                "cpu" => {
                    while let Some(fact) = reader.child(&part)? {
                        match fact.name() {
                            "arch" => self.cpu_arch = reader.string(&fact)?,
                            "model" => self.cpu_model = reader.string(&fact)?,
                            "vendor" => self.cpu_vendor = reader.string(&fact)?,
                            _ => {}
                        }
                    }
                }
                "migration_features" => self.read_migration(reader, &part)?,
                "topology" => {
                    while let Some(cells) = reader.child(&part)? {
                        if cells.name() == "cells" {
                            self.read_cells(reader, &cells)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_migration<'a>(&mut self, reader: &mut Reader<'a>, features: &Element<'a>) -> Result<(), XmlError> {
        while let Some(feature) = reader.child(features)? {
            match feature.name() {
                "live" => self.live_migration = true,
                "uri_transports" => {
                    while let Some(transport) = reader.child(&feature)? {
                        if transport.name() == "uri_transport" {
                            self.migration_transports.extend(reader.string(&transport)?);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_cells<'a>(&mut self, reader: &mut Reader<'a>, cells: &Element<'a>) -> Result<(), XmlError> {
        while let Some(element) = reader.child(cells)? {
            let Some(id) = element.parse("id").filter(|_| element.name() == "cell") else { continue };
            let mut cell = HostCellXml { id, ..HostCellXml::default() };
            while let Some(part) = reader.child(&element)? {
                match part.name() {
                    "memory" => {
                        let text = reader.text(&part)?;
                        cell.memory_bytes = size_in_bytes(&text, part.attribute("unit").as_deref(), 1024).unwrap_or(0);
                    }
                    "cpus" => {
                        let count: Option<u32> = part.parse("num");
                        let mut listed = 0;
                        while let Some(cpu) = reader.child(&part)? {
                            if let Some(id) = cpu.parse("id").filter(|_| cpu.name() == "cpu") {
                                cell.cpu_ids.insert(id, id);
                                listed += 1;
                            }
                        }
                        cell.cpus = count.unwrap_or(listed);
                    }
                    _ => {}
                }
            }
            self.cells.push(cell);
        }
        Ok(())
    }
}
