//! Any bytes as any of libvirt's documents: read or refused, never a panic.
#![no_main]

use cobalt_libvirt::xml::{DomainCapabilitiesXml, DomainXml, HostXml};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    // One input may hold a host and a domain on it, so that the accounting meets hosts of every shape too.
    let (first, second) = text.split_once('\0').unwrap_or((&text, &text));
    let host = HostXml::parse(first).unwrap_or_default().or_one_cell(1 << 30, 8);
    let _ = (host.capabilities(), DomainCapabilitiesXml::parse(first));
    if let Ok(domain) = DomainXml::parse(second) {
        let shares = domain.shares(&host.cells);
        assert!(shares.cells.is_sorted_by(|one, other| one.cell < other.cell));
    }
});
