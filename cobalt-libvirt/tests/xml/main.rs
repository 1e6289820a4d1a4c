//! libvirt's documents, against recordings and against everything else.
#![allow(clippy::unwrap_used)]

mod accounting;
mod any_text;
mod domains;
mod hosts;
mod tolerance;

/// A recorded document.
macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("../recorded/xml/", $name, ".xml"))
    };
}
pub(crate) use recorded;

/// Every recorded document.
pub(crate) const ALL: [&str; 20] = [
    recorded!("capabilities-2socket-2cell-handmade"),
    recorded!("capabilities-2socket-4cell-nosmt-handmade"),
    recorded!("capabilities-2socket-4cell-snc2-handmade"),
    recorded!("capabilities-ch-11.3-recorded"),
    recorded!("capabilities-qemu-9.0-recorded"),
    recorded!("capabilities-test-9.0-recorded"),
    recorded!("domain-ch-inactive-11.3-recorded"),
    recorded!("domain-ch-running-11.3-recorded"),
    recorded!("domain-hugepages-2cells-inactive-9.0-recorded"),
    recorded!("domain-hugepages-inactive-9.0-recorded"),
    recorded!("domain-nova-metadata-9.0-handmade"),
    recorded!("domain-pinned-kvm-nodeset-inactive-9.0-recorded"),
    recorded!("domain-pinned-numatune-inactive-9.0-recorded"),
    recorded!("domain-pinned-numatune-running-9.0-recorded"),
    recorded!("domain-test-running-9.0-recorded"),
    recorded!("domain-unpinned-inactive-9.0-recorded"),
    recorded!("domain-unpinned-running-9.0-recorded"),
    recorded!("domcapabilities-qemu-defaults-9.0-recorded"),
    recorded!("domcapabilities-qemu-kvm-q35-9.0-recorded"),
    recorded!("domcapabilities-qemu-tcg-q35-9.0-recorded"),
];

/// Two sockets of two cells each, with threads: 0-7,32-39; 8-15,40-47; 16-23,48-55; 24-31,56-63.
pub(crate) const FOUR_CELLS: &str = recorded!("capabilities-2socket-4cell-snc2-handmade");
