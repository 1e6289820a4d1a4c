//! libvirt's documents: capabilities, domain capabilities, domains.
//!
//! Three parsers, [`HostXml`], [`DomainCapabilitiesXml`] and [`DomainXml`], and one decision: what a domain takes from
//! which NUMA cell of the host, [`DomainXml::shares`]. All are plain functions of text.
//!
//! ```
//! use cobalt_libvirt::xml::{DomainXml, HostXml};
//!
//! let host = HostXml::parse("<capabilities><host><cpu><arch>x86_64</arch></cpu></host></capabilities>")?
//!     .or_one_cell(64 << 30, 16);
//! let domain = DomainXml::parse(
//!     "<domain type='kvm'>
//!        <memory unit='GiB'>4</memory>
//!        <vcpu placement='static' cpuset='0-7'>2</vcpu>
//!        <numatune><memory mode='strict' nodeset='0'/></numatune>
//!      </domain>",
//! )?;
//!
//! let shares = domain.shares(&host.cells);
//! assert_eq!(shares.cells[0].memory_bytes, 4 << 30);
//! assert_eq!(shares.cells[0].cpu_millis, 2000);
//! # Ok::<(), cobalt_libvirt::xml::XmlError>(())
//! ```
//!
//! # What is tolerated
//!
//! Everything but a document that is not one. A part that is missing, unknown or makes no sense is `None` or empty:
//! guests without pinning, without NUMA, with devices from the future are all normal. What is refused, by
//! [`XmlError`], is text that is not well-formed, has another root, is larger or deeper than [`Limits`], has a document
//! type, or has an entity that XML itself does not define where a text is wanted; nothing is ever expanded.
//!
//! # Why streaming
//!
//! A host may have hundreds of domains with several kilobytes each, and an inventory reads them all. For the recorded
//! running domain of 5.6 kB, callgrind counts 390 000 instructions for building and walking roxmltree's tree, 203 000
//! for going through all of quick-xml's events and attributes, and 173 000 for [`DomainXml::parse`], which is on top of
//! quick-xml, looks only at the attributes it wants and includes making the result.

mod accounting;
mod cpuset;
mod domain;
mod domain_capabilities;
mod error;
mod host;
mod nova;
mod reader;
mod units;

pub use accounting::{Shares, Unplaced};
pub use cpuset::{CpuSet, CpuSetError};
pub use domain::{
    Disk, DiskSource, DomainXml, GuestCell, Interface, MemoryBinding, MemoryMode, NumaTune, Vcpus, Watchdog,
};
pub use domain_capabilities::DomainCapabilitiesXml;
pub use error::XmlError;
pub use host::{HostCellXml, HostXml};
pub use nova::{NovaPort, NovaXml};
pub use units::size_in_bytes;

/// How much of a document is read at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Its size. The largest documents, capabilities of hosts with hundreds of CPUs, have some hundred kilobytes.
    pub bytes: usize,
    /// How many elements may be open inside of each other. libvirt's documents need about ten, and foreign metadata in
    /// them may need some more.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 4 << 20, depth: 64 }
    }
}
