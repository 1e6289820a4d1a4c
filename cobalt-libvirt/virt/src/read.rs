//! What the library says, in the terms of the seam.

use cobalt_core::{
    backend::{BlockStats, CpuStats, Domain, DomainState, DomainStats, MemoryStats, NetDirection, NetStats},
    ids::InstanceId,
};
use cobalt_libvirt::xml::{DomainXml, HostXml};
use virt::enumutil::Enum;
use virt::{
    connect::Connect,
    domain::{Domain as VirtDomain, DomainPausedReason, DomainState as VirtState, DomainStateReason},
    error::{Error as VirtError, ErrorNumber, ErrorNumberEnum},
};

use crate::Failure;

type Result<T> = std::result::Result<T, Failure>;

pub(crate) fn is_gone(error: &VirtError) -> bool {
    matches!(error.code(), ErrorNumberEnum::Known(ErrorNumber::NoDomain | ErrorNumber::OperationInvalid))
}

pub(crate) fn host(connection: &Connect) -> Result<HostXml> {
    let text = connection.capabilities()?;
    let host = HostXml::parse(&text).map_err(|error| Failure::Seam(error.into_seam("get capabilities")))?;
    let node = connection.node_info()?;
    Ok(host.or_one_cell(node.memory.saturating_mul(1024), node.cpus))
}

pub(crate) fn domain(domain: &VirtDomain, host: &HostXml) -> Result<Domain> {
    let state = state(domain)?;
    let xml = xml(domain)?;
    Ok(xml.to_domain(InstanceId::from(domain.uuid_string()?), domain.name()?, state, &host.cells))
}

fn xml(domain: &VirtDomain) -> Result<DomainXml> {
    let text = domain.xml_desc(0)?;
    DomainXml::parse(&text).map_err(|error| Failure::Seam(error.into_seam("get XML of a domain")))
}

fn state(domain: &VirtDomain) -> Result<DomainState> {
    // Asked first: `Domain::state` answers even for a domain that is gone.
    domain.info()?;
    let (state, reason) = domain.state()?;
    let on_io_error =
        matches!(reason, Enum::Known(DomainStateReason::Paused(Enum::Known(DomainPausedReason::IOError))));
    let Enum::Known(state) = state else { return Ok(DomainState::Unknown) };
    Ok(match state {
        VirtState::Running | VirtState::Blocked => DomainState::Running,
        VirtState::Paused if on_io_error => DomainState::PausedOnIoError,
        VirtState::Paused => DomainState::Paused,
        VirtState::Shutdown => DomainState::ShuttingDown,
        VirtState::Shutoff => DomainState::ShutOff,
        VirtState::Crashed => DomainState::Crashed,
        VirtState::PMSuspended => DomainState::Suspended,
        VirtState::NoState => DomainState::Unknown,
    })
}

pub(crate) fn stats(domain: &VirtDomain) -> Result<DomainStats> {
    let state = state(domain)?;
    let info = domain.info()?;
    let xml = xml(domain)?;
    let mut stats = DomainStats {
        cpu: CpuStats { time_ns: Some(info.cpu_time), ..CpuStats::default() },
        memory: MemoryStats {
            maximum_bytes: Some(info.max_mem.saturating_mul(1024)),
            current_bytes: Some(info.memory.saturating_mul(1024)),
            ..MemoryStats::default()
        },
        vcpus_maximum: Some(xml.vcpus_total()),
        ..DomainStats::new(InstanceId::from(domain.uuid_string()?), domain.name()?, state)
    };
    // A device of which nothing is counted is left out, and keeps nobody from the others.
    for target in xml.disks.iter().filter_map(|disk| disk.target.as_deref()) {
        if let Ok(found) = domain.block_stats(target) {
            let block = BlockStats {
                reads: counter(found.rd_req),
                read_bytes: counter(found.rd_bytes),
                writes: counter(found.wr_req),
                written_bytes: counter(found.wr_bytes),
                errors: counter(found.errs),
                ..BlockStats::default()
            };
            stats.blocks.insert(target.to_owned(), block);
        }
    }
    for target in xml.interfaces.iter().filter_map(|interface| interface.target.as_deref()) {
        if let Ok(found) = domain.interface_stats(target) {
            let rx = NetDirection {
                bytes: counter(found.rx_bytes),
                packets: counter(found.rx_packets),
                errors: counter(found.rx_errs),
                drops: counter(found.rx_drop),
            };
            let tx = NetDirection {
                bytes: counter(found.tx_bytes),
                packets: counter(found.tx_packets),
                errors: counter(found.tx_errs),
                drops: counter(found.tx_drop),
            };
            stats.nets.insert(target.to_owned(), NetStats { rx, tx });
        }
    }
    Ok(stats)
}

/// The library says -1 for what it does not know.
fn counter(value: i64) -> Option<u64> {
    u64::try_from(value).ok()
}
