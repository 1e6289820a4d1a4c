//! What domains take from the cells of the host.

use cobalt_libvirt::xml::{DomainXml, HostCellXml, HostXml, Shares, Unplaced};
use proptest::prelude::*;

use crate::{FOUR_CELLS, recorded};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn four_cells() -> Vec<HostCellXml> {
    HostXml::parse(FOUR_CELLS).unwrap().cells
}

fn shares(domain: &str, host: &str) -> Shares {
    DomainXml::parse(domain).unwrap().shares(&HostXml::parse(host).unwrap().cells)
}

/// `(cell, bytes, millis)` of each cell.
fn table(shares: &Shares) -> Vec<(u32, u64, u64)> {
    shares.cells.iter().map(|share| (share.cell, share.memory_bytes, share.cpu_millis)).collect()
}

fn on_four_cells(inside: &str) -> Shares {
    DomainXml::parse(&format!("<domain>{inside}</domain>")).unwrap().shares(&four_cells())
}

#[test]
fn guests_without_pins_take_nothing_from_single_cells() {
    for domain in [
        recorded!("domain-unpinned-running-9.0-recorded"),
        recorded!("domain-ch-running-11.3-recorded"),
        recorded!("domain-test-running-9.0-recorded"),
        recorded!("domain-nova-metadata-9.0-handmade"),
    ] {
        assert_eq!(shares(domain, FOUR_CELLS), Shares::default());
    }
}

#[test]
fn a_pinned_guest_is_booked_where_its_cpus_and_its_memory_are() {
    let pinned = recorded!("domain-pinned-numatune-running-9.0-recorded");
    let found = shares(pinned, recorded!("capabilities-qemu-9.0-recorded"));
    assert_eq!(table(&found), [(0, 128 * MIB, 2000)]);
    assert!(found.unplaced.is_empty());

    // CPUs 8, 9 are in cell 1 and 24, 25 in cell 3; the memory is in cell 2. The guest calls its one cell 0.
    let spread = shares(recorded!("domain-pinned-kvm-nodeset-inactive-9.0-recorded"), FOUR_CELLS);
    assert_eq!(table(&spread), [(1, 0, 2000), (2, 128 * MIB, 0), (3, 0, 2000)]);
    assert!(spread.unplaced.is_empty());
}

#[test]
fn places_that_the_host_lacks_are_noted_and_left_out() {
    let domain = recorded!("domain-pinned-kvm-nodeset-inactive-9.0-recorded");
    let memory = Unplaced::Memory { cells: "2".parse().unwrap(), bytes: 128 * MIB };

    let two = shares(domain, recorded!("capabilities-2socket-2cell-handmade"));
    assert_eq!(table(&two), [(1, 0, 4000)]);
    assert_eq!(two.unplaced, vec![memory.clone()]);

    let without_threads = shares(domain, recorded!("capabilities-2socket-4cell-nosmt-handmade"));
    assert_eq!(table(&without_threads), [(1, 0, 2000), (2, 128 * MIB, 0)]);
    assert_eq!(without_threads.unplaced, [Unplaced::Cpu { millis: 2000 }]);

    let one = shares(domain, recorded!("capabilities-qemu-9.0-recorded"));
    assert!(one.cells.is_empty());
    assert_eq!(one.unplaced, [memory, Unplaced::Cpu { millis: 4000 }]);
}

#[test]
fn bound_memory_does_not_bind_vcpus() {
    let one = shares(recorded!("domain-hugepages-inactive-9.0-recorded"), FOUR_CELLS);
    assert_eq!(table(&one), [(0, 128 * MIB, 0)]);
    let two = shares(recorded!("domain-hugepages-2cells-inactive-9.0-recorded"), FOUR_CELLS);
    assert_eq!(table(&two), [(0, 4 * GIB, 0), (1, 4 * GIB, 0)]);
}

#[test]
fn a_missing_cell_takes_its_share_away() {
    let domain = recorded!("domain-hugepages-2cells-inactive-9.0-recorded");
    let found = shares(domain, recorded!("capabilities-qemu-9.0-recorded"));
    assert_eq!(table(&found), [(0, 4 * GIB, 0)]);
    assert_eq!(found.unplaced, [Unplaced::Memory { cells: "1".parse().unwrap(), bytes: 4 * GIB }]);
}

#[test]
fn guest_cells_never_stand_for_host_cells() {
    let found = on_four_cells(
        "<memory unit='GiB'>6</memory><vcpu>4</vcpu>
         <cputune>
           <vcpupin vcpu='0' cpuset='24'/><vcpupin vcpu='1' cpuset='56'/>
           <vcpupin vcpu='2' cpuset='8'/><vcpupin vcpu='3' cpuset='40'/>
         </cputune>
         <numatune>
           <memnode cellid='0' mode='strict' nodeset='3'/><memnode cellid='1' mode='strict' nodeset='1'/>
         </numatune>
         <cpu><numa>
           <cell id='0' cpus='0-1' memory='4' unit='GiB'/><cell id='1' cpus='2-3' memory='2' unit='GiB'/>
         </numa></cpu>",
    );
    assert_eq!(table(&found), [(1, 2 * GIB, 2000), (3, 4 * GIB, 2000)]);
}

#[test]
fn what_several_cells_share_adds_up() {
    // 1000003 = 3 * 333334 + 1, and 4000 = 3 * 1333 + 1.
    let found = on_four_cells(
        "<memory unit='b'>1000003</memory><vcpu cpuset='0,8,16'>4</vcpu>
         <numatune><memory mode='interleave' nodeset='0-2'/></numatune>",
    );
    assert_eq!(table(&found), [(0, 333_335, 1334), (1, 333_334, 1333), (2, 333_334, 1333)]);

    let half = on_four_cells("<vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='0,8'/></cputune>");
    assert_eq!(table(&half), [(0, 0, 500), (1, 0, 500)]);

    // One vCPU in each cell rather than three remainders in the first.
    let even = on_four_cells("<vcpu cpuset='7-8,16'>3</vcpu>");
    assert_eq!(table(&even), [(0, 0, 1000), (1, 0, 1000), (2, 0, 1000)]);
}

#[test]
fn vcpus_without_a_pin_follow_the_common_set() {
    let found = on_four_cells("<vcpu cpuset='16-17'>3</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/></cputune>");
    assert_eq!(table(&found), [(0, 0, 1000), (2, 0, 2000)]);
    let floating = on_four_cells("<vcpu>3</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/></cputune>");
    assert_eq!(table(&floating), [(0, 0, 1000)]);
}

#[test]
fn a_set_that_also_names_missing_cpus_counts_where_it_can_run() {
    let found = on_four_cells("<vcpu cpuset='24-31,64-999'>2</vcpu>");
    assert_eq!(table(&found), [(3, 0, 2000)]);
    assert!(found.unplaced.is_empty());
}

#[test]
fn automatic_placement_is_no_binding() {
    let found = on_four_cells(
        "<memory unit='GiB'>1</memory><vcpu placement='auto' cpuset='0-3'>2</vcpu>
         <numatune><memory mode='strict' placement='auto' nodeset='1'/></numatune>",
    );
    assert_eq!(found, Shares::default());
}

#[test]
fn memory_in_no_guest_cell_follows_the_rule_for_the_rest() {
    // 6 GiB, of which 1 GiB has a rule, 3 GiB are in a cell without one, and 2 GiB are in a slot.
    let found = on_four_cells(
        "<memory unit='GiB'>6</memory>
         <numatune><memory mode='strict' nodeset='0,2'/><memnode cellid='0' nodeset='3'/></numatune>
         <cpu><numa><cell id='0' memory='1' unit='GiB'/><cell id='1' memory='3' unit='GiB'/></numa></cpu>",
    );
    assert_eq!(table(&found), [(0, 5 * GIB / 2, 0), (2, 5 * GIB / 2, 0), (3, GIB, 0)]);
}

#[test]
fn rules_without_guest_cells_share_the_memory() {
    let found = on_four_cells(
        "<memory unit='b'>11</memory>
         <numatune><memnode cellid='0' nodeset='1'/><memnode cellid='1' nodeset='2'/></numatune>",
    );
    assert_eq!(table(&found), [(1, 6, 0), (2, 5, 0)]);
}

#[test]
fn pins_of_vcpus_that_do_not_exist_do_not_count() {
    let found =
        on_four_cells("<vcpu>1</vcpu><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='8'/></cputune>");
    assert_eq!(table(&found), [(0, 0, 1000)]);
}

#[test]
fn every_cell_there_could_be_is_no_work() {
    let found = on_four_cells(
        "<memory unit='b'>4294967297</memory><vcpu cpuset='0-4294967295'>4294967295</vcpu>
         <numatune><memory nodeset='0-4294967295'/></numatune>",
    );
    // One byte for each of 2^32 cells, and the remaining byte goes to the first.
    let millis = 4_294_967_295_000 / 4;
    assert_eq!(table(&found), [(0, 2, millis), (1, 1, millis), (2, 1, millis), (3, 1, millis)]);
    let missing = "4-4294967295".parse().unwrap();
    assert_eq!(found.unplaced, [Unplaced::Memory { cells: missing, bytes: 4_294_967_292 }]);
}

fn set() -> impl Strategy<Value = String> {
    prop::collection::btree_set(0..8_u32, 1..5)
        .prop_map(|numbers| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

proptest! {
    /// Whatever is bound is in a cell or noted as unplaced, to the last byte and thousandth.
    #[test]
    fn nothing_is_lost(
        cells in prop::collection::vec((0..1_000_000_u64, prop::option::of(set())), 0..4),
        extra in 0..1_000_000_u64,
        rest in set(),
        pins in prop::collection::vec(set(), 0..6),
        unpinned in 0..4_u64,
        common in set(),
        host in prop::collection::btree_map(0..6_u32, prop::collection::btree_set(0..8_u32, 0..4), 0..5),
    ) {
        // CPUs are in one cell each: the first that claims them.
        let mut taken = std::collections::BTreeSet::new();
        let host: Vec<_> = host.into_iter().map(|(id, cpus)| {
            let cpu_ids = cpus.into_iter().filter(|cpu| taken.insert(*cpu)).collect();
            HostCellXml { id, cpu_ids, ..HostCellXml::default() }
        }).collect();
        let memory = cells.iter().map(|(bytes, _)| bytes).sum::<u64>() + extra;
        let vcpus = pins.len() as u64 + unpinned;
        let mut text = vec![format!("<domain><memory unit='b'>{memory}</memory>")];
        text.push(format!("<vcpu cpuset='{common}'>{vcpus}</vcpu><cputune>"));
        text.extend(pins.iter().zip(0_u32..).map(|(cpus, vcpu)| format!("<vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>")));
        text.push(format!("</cputune><numatune><memory mode='strict' nodeset='{rest}'/>"));
        let rules = cells.iter().zip(0_u32..).filter_map(|((_, nodes), cell)| Some((nodes.as_ref()?, cell)));
        text.extend(rules.map(|(nodes, cell)| format!("<memnode cellid='{cell}' nodeset='{nodes}'/>")));
        text.push("</numatune><cpu><numa>".to_owned());
        let sizes = cells.iter().zip(0_u32..);
        text.extend(sizes.map(|((bytes, _), cell)| format!("<cell id='{cell}' memory='{bytes}' unit='b'/>")));
        text.push("</numa></cpu></domain>".to_owned());
        let text = text.concat();

        let shares = DomainXml::parse(&text).unwrap().shares(&host);
        let (mut bytes, mut millis) = (0, 0);
        for share in &shares.cells {
            prop_assert!(host.iter().any(|cell| cell.id == share.cell));
            bytes += share.memory_bytes;
            millis += share.cpu_millis;
        }
        for unplaced in &shares.unplaced {
            match unplaced {
                Unplaced::Memory { bytes: more, cells } => {
                    prop_assert!(host.iter().all(|cell| !cells.contains(cell.id)));
                    bytes += more;
                }
                Unplaced::Cpu { millis: more } => millis += more,
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(bytes, memory);
        prop_assert_eq!(millis, vcpus * 1000);
        prop_assert!(shares.cells.is_sorted_by(|one, other| one.cell < other.cell));
    }
}
