//! From the document to [`DomainXml`].

use super::{
    super::{
        Limits, NovaXml, XmlError, nova,
        reader::{Element, Reader},
        units::size_in_bytes,
    },
    Disk, DomainXml, GuestCell, Interface, MemoryBinding, MemoryMode, NumaTune, Vcpus, Watchdog,
};

pub(super) fn domain(text: &str, limits: Limits) -> Result<DomainXml, XmlError> {
    let (mut reader, root) = Reader::open(text, "domain", limits)?;
    let reader = &mut reader;
    let mut domain = DomainXml { kind: root.string("type"), id: root.parse("id"), ..DomainXml::default() };
    while let Some(part) = reader.child(&root)? {
        match part.name() {
            "name" => domain.name = reader.string(&part)?,
            "uuid" => domain.uuid = reader.string(&part)?,
            "memory" => domain.memory_bytes = memory(reader, &part)?,
            "currentMemory" => domain.current_memory_bytes = memory(reader, &part)?,
            "vcpu" => domain.vcpus = vcpus(reader, &part)?,
            "cputune" => {
                while let Some(tune) = reader.child(&part)? {
                    if tune.name() == "vcpupin"
                        && let (Some(vcpu), Some(cpus)) = (tune.parse("vcpu"), tune.parse("cpuset"))
                    {
                        domain.pins.insert(vcpu, cpus);
                    }
                }
            }
            "numatune" => domain.numatune = numatune(reader, &part)?,
            "os" => {
                while let Some(fact) = reader.child(&part)? {
                    if fact.name() == "type" {
                        domain.arch = fact.string("arch");
                        domain.machine = fact.string("machine");
                    }
                }
            }
            "cpu" => {
                while let Some(numa) = reader.child(&part)? {
                    if numa.name() == "numa" {
                        guest_cells(reader, &numa, &mut domain.guest_cells)?;
                    }
                }
            }
            "devices" => devices(reader, &part, &mut domain)?,
            "metadata" => {
                while let Some(note) = reader.child(&part)? {
                    if note.local_name() == "instance" && is_nova(&[&note, &part, &root]) {
                        domain.nova = Some(NovaXml::read(reader, &note)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(domain)
}

/// A size in the element's text, in KiB unless it says otherwise.
fn memory<'a>(reader: &mut Reader<'a>, element: &Element<'a>) -> Result<Option<u64>, XmlError> {
    Ok(size_in_bytes(&reader.text(element)?, element.attribute("unit").as_deref(), 1024))
}

fn vcpus<'a>(reader: &mut Reader<'a>, element: &Element<'a>) -> Result<Option<Vcpus>, XmlError> {
    let cpuset = if element.is("placement", "auto") { None } else { element.parse("cpuset") };
    let maximum: Option<u32> = reader.parse(element)?;
    Ok(maximum.map(|maximum| Vcpus {
        maximum,
        current: element.parse("current").map_or(maximum, |current: u32| current.min(maximum)),
        cpuset,
    }))
}

fn numatune<'a>(reader: &mut Reader<'a>, element: &Element<'a>) -> Result<NumaTune, XmlError> {
    let mut tune = NumaTune::default();
    while let Some(rule) = reader.child(element)? {
        match rule.name() {
            "memory" if !rule.is("placement", "auto") => tune.memory = binding(&rule),
            "memnode" => {
                if let (Some(cell), Some(binding)) = (rule.parse("cellid"), binding(&rule)) {
                    tune.cells.insert(cell, binding);
                }
            }
            _ => {}
        }
    }
    Ok(tune)
}

fn binding(rule: &Element<'_>) -> Option<MemoryBinding> {
    let mode = match rule.attribute("mode").as_deref() {
        None | Some("strict") => MemoryMode::Strict,
        Some("interleave") => MemoryMode::Interleave,
        Some("preferred") => MemoryMode::Preferred,
        Some("restrictive") => MemoryMode::Restrictive,
        Some(_) => MemoryMode::Unknown,
    };
    Some(MemoryBinding { mode, nodeset: rule.parse("nodeset")? })
}

fn guest_cells<'a>(reader: &mut Reader<'a>, numa: &Element<'a>, cells: &mut Vec<GuestCell>) -> Result<(), XmlError> {
    while let Some(cell) = reader.child(numa)? {
        if cell.name() != "cell" {
            continue;
        }
        let memory = cell.attribute("memory");
        let memory = memory.and_then(|text| size_in_bytes(&text, cell.attribute("unit").as_deref(), 1024));
        cells.push(GuestCell {
            // libvirt numbers cells without an id by their place.
            id: cell.parse("id").unwrap_or_else(|| u32::try_from(cells.len()).unwrap_or(u32::MAX)),
            vcpus: cell.parse("cpus").unwrap_or_default(),
            memory_bytes: memory.unwrap_or(0),
        });
    }
    Ok(())
}

fn devices<'a>(reader: &mut Reader<'a>, devices: &Element<'a>, domain: &mut DomainXml) -> Result<(), XmlError> {
    while let Some(device) = reader.child(devices)? {
        match device.name() {
            "disk" => domain.disks.push(Disk::read(reader, &device)?),
            "interface" => domain.interfaces.push(Interface::read(reader, &device)?),
            "watchdog" => domain.watchdogs.push(Watchdog::read(reader, &device)?),
            _ => {}
        }
    }
    Ok(())
}

/// Whether the first element is in Nova's namespace, which it or one of its ancestors (in order) declares.
fn is_nova(path: &[&Element<'_>]) -> bool {
    let Some(prefix) = path.first().map(|element| element.prefix()) else { return false };
    path.iter().find_map(|element| element.declares(prefix)).is_some_and(|name| name.starts_with(nova::NAMESPACE))
}
