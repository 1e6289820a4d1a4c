//! Every metric of the exporter, one row each.

use crate::{
    backend::{BlockStats, DomainState, DomainStats, NetStats, VcpuState, VcpuStats},
    runtime::metrics::text::{Kind, Value},
};

/// Whose spelling a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    Both,
    Documented,
    Distributions,
}

/// One family; the name is without the `_total` of a counter.
pub(super) struct Row<T> {
    pub(super) set: Set,
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// The label that tells a domain's devices apart; empty for the domain itself.
    pub(super) label: &'static str,
    pub(super) value: fn(&T) -> Option<Value>,
}

const fn row<T>(
    set: Set,
    kind: Kind,
    name: &'static str,
    label: &'static str,
    help: &'static str,
    value: fn(&T) -> Option<Value>,
) -> Row<T> {
    Row { set, kind, name, help, label, value }
}

use Kind::{Counter, Gauge};
use Set::{Both, Distributions, Documented};
use Value::{Count, Nanoseconds};

fn vcpus(domain: &DomainStats) -> Option<Value> {
    let counted = u64::try_from(domain.vcpus.len()).ok().filter(|count| *count > 0);
    counted.or(domain.vcpus_maximum.map(u64::from)).map(Count)
}

fn maximum(domain: &DomainStats) -> Option<Value> {
    domain.memory.maximum_bytes.map(Count)
}

fn current(domain: &DomainStats) -> Option<Value> {
    domain.memory.current_bytes.map(Count)
}

fn resident(domain: &DomainStats) -> Option<Value> {
    domain.memory.resident_bytes.map(Count)
}

/// libvirt's own numbers.
#[expect(clippy::unnecessary_wraps, reason = "a row of a table in which others may have no value")]
fn state(domain: &DomainStats) -> Option<Value> {
    Some(Count(match domain.state {
        DomainState::Unknown => 0,
        DomainState::Running => 1,
        DomainState::Paused | DomainState::PausedOnIoError => 3,
        DomainState::ShuttingDown => 4,
        DomainState::ShutOff => 5,
        DomainState::Crashed => 6,
        DomainState::Suspended => 7,
    }))
}

pub(super) const DOMAIN: &[Row<DomainStats>] = &[
    row(Documented, Gauge, "libvirt_domain_info_vcpus", "", "Virtual CPUs of the domain", vcpus),
    row(Distributions, Gauge, "libvirt_domain_info_virtual_cpus", "", "Virtual CPUs of the domain", vcpus),
    row(Documented, Gauge, "libvirt_domain_info_memory_bytes", "", "Memory the domain may have at most", maximum),
    row(
        Distributions,
        Gauge,
        "libvirt_domain_info_maximum_memory_bytes",
        "",
        "Memory the domain may have at most",
        maximum,
    ),
    row(Documented, Gauge, "libvirt_domain_memory_usage_bytes", "", "Memory the domain occupies on the host", resident),
    row(
        Distributions,
        Gauge,
        "libvirt_domain_info_memory_usage_bytes",
        "",
        "Memory the balloon leaves the domain",
        current,
    ),
    row(
        Both,
        Counter,
        "libvirt_domain_info_cpu_time_seconds",
        "",
        "CPU time used by the domain and on its behalf",
        |d| d.cpu.time_ns.map(Nanoseconds),
    ),
    row(
        Both,
        Gauge,
        "libvirt_domain_info_vstate",
        "",
        "State of the domain: 0 unknown, 1 running, 2 blocked, 3 paused, 4 shutting down, 5 shut off, 6 crashed, 7 suspended",
        state,
    ),
    row(
        Both,
        Gauge,
        "libvirt_domain_memory_stats_actual_balloon_bytes",
        "",
        "Memory the balloon leaves the domain",
        current,
    ),
    row(Both, Gauge, "libvirt_domain_memory_stats_rss_bytes", "", "Memory the domain occupies on the host", resident),
    row(
        Both,
        Gauge,
        "libvirt_domain_memory_stats_available_bytes",
        "",
        "Memory the guest sees, by its own account",
        |d| d.memory.available_bytes.map(Count),
    ),
    row(
        Both,
        Gauge,
        "libvirt_domain_memory_stats_unused_bytes",
        "",
        "Memory the guest leaves unused, by its own account",
        |d| d.memory.unused_bytes.map(Count),
    ),
    row(
        Both,
        Gauge,
        "libvirt_domain_memory_stats_usable_bytes",
        "",
        "Memory the guest could use without swapping, by its own account",
        |d| d.memory.usable_bytes.map(Count),
    ),
    row(
        Both,
        Counter,
        "libvirt_domain_memory_stats_major_fault",
        "",
        "Page faults of the guest that needed a disk",
        |d| d.memory.major_faults.map(Count),
    ),
    row(
        Both,
        Counter,
        "libvirt_domain_memory_stats_minor_fault",
        "",
        "Page faults of the guest that needed none",
        |d| d.memory.minor_faults.map(Count),
    ),
    row(Both, Counter, "libvirt_domain_memory_stats_swap_in_bytes", "", "Read from the guest's swap", |d| {
        d.memory.swapped_in_bytes.map(Count)
    }),
    row(Both, Counter, "libvirt_domain_memory_stats_swap_out_bytes", "", "Written to the guest's swap", |d| {
        d.memory.swapped_out_bytes.map(Count)
    }),
];

pub(super) const VCPU: &[Row<VcpuStats>] = &[
    row(Both, Counter, "libvirt_domain_vcpu_time_seconds", "vcpu", "Time the vCPU ran", |v| v.time_ns.map(Nanoseconds)),
    row(Both, Counter, "libvirt_domain_vcpu_wait_seconds", "vcpu", "Time the vCPU waited for I/O", |v| {
        v.wait_ns.map(Nanoseconds)
    }),
    row(
        Both,
        Counter,
        "libvirt_domain_vcpu_delay_seconds",
        "vcpu",
        "Time the vCPU could have run and was not let: stolen, as the guest sees it",
        |v| v.delay_ns.map(Nanoseconds),
    ),
    row(Both, Gauge, "libvirt_domain_vcpu_state", "vcpu", "State of the vCPU: 0 offline, 1 running, 2 blocked", |v| {
        v.state.map(|state| {
            Count(match state {
                VcpuState::Offline => 0,
                VcpuState::Running => 1,
                VcpuState::Blocked => 2,
            })
        })
    }),
];

fn read_bytes(block: &BlockStats) -> Option<Value> {
    block.read_bytes.map(Count)
}

fn reads(block: &BlockStats) -> Option<Value> {
    block.reads.map(Count)
}

fn written_bytes(block: &BlockStats) -> Option<Value> {
    block.written_bytes.map(Count)
}

fn writes(block: &BlockStats) -> Option<Value> {
    block.writes.map(Count)
}

const DEVICE: &str = "device";
const TARGET: &str = "target_device";

pub(super) const BLOCK: &[Row<BlockStats>] = &[
    row(Documented, Counter, "libvirt_domain_block_read_bytes", DEVICE, "Bytes read from the disk", read_bytes),
    row(Documented, Counter, "libvirt_domain_block_read_requests", DEVICE, "Requests to read from the disk", reads),
    row(Documented, Counter, "libvirt_domain_block_write_bytes", DEVICE, "Bytes written to the disk", written_bytes),
    row(Documented, Counter, "libvirt_domain_block_write_requests", DEVICE, "Requests to write to the disk", writes),
    row(
        Distributions,
        Counter,
        "libvirt_domain_block_stats_read_bytes",
        TARGET,
        "Bytes read from the disk",
        read_bytes,
    ),
    row(
        Distributions,
        Counter,
        "libvirt_domain_block_stats_read_requests",
        TARGET,
        "Requests to read from the disk",
        reads,
    ),
    row(
        Distributions,
        Counter,
        "libvirt_domain_block_stats_write_bytes",
        TARGET,
        "Bytes written to the disk",
        written_bytes,
    ),
    row(
        Distributions,
        Counter,
        "libvirt_domain_block_stats_write_requests",
        TARGET,
        "Requests to write to the disk",
        writes,
    ),
    row(
        Both,
        Counter,
        "libvirt_domain_block_stats_read_time_seconds",
        TARGET,
        "Time spent reading from the disk",
        |b| b.read_ns.map(Nanoseconds),
    ),
    row(
        Both,
        Counter,
        "libvirt_domain_block_stats_write_time_seconds",
        TARGET,
        "Time spent writing to the disk",
        |b| b.write_ns.map(Nanoseconds),
    ),
    row(Both, Counter, "libvirt_domain_block_stats_flush_requests", TARGET, "Requests to flush the disk", |b| {
        b.flushes.map(Count)
    }),
    row(Both, Counter, "libvirt_domain_block_stats_flush_time_seconds", TARGET, "Time spent flushing the disk", |b| {
        b.flush_ns.map(Nanoseconds)
    }),
    row(Both, Counter, "libvirt_domain_block_stats_errors", TARGET, "Requests to the disk that failed", |b| {
        b.errors.map(Count)
    }),
    row(Both, Gauge, "libvirt_domain_block_stats_allocation", TARGET, "Highest offset written on the disk", |b| {
        b.allocation_bytes.map(Count)
    }),
    row(
        Both,
        Gauge,
        "libvirt_domain_block_stats_capacity_bytes",
        TARGET,
        "Size of the disk as the guest sees it",
        |b| b.capacity_bytes.map(Count),
    ),
    row(
        Both,
        Gauge,
        "libvirt_domain_block_stats_physicalsize_bytes",
        TARGET,
        "What the disk occupies on the host",
        |b| b.physical_bytes.map(Count),
    ),
];

/// A figure of an interface in both spellings.
macro_rules! interface {
    ($documented:literal, $distributions:literal, $help:literal, $direction:ident . $figure:ident) => {
        [
            row(Documented, Counter, $documented, "interface", $help, |n: &NetStats| n.$direction.$figure.map(Count)),
            row(Distributions, Counter, $distributions, TARGET, $help, |n: &NetStats| n.$direction.$figure.map(Count)),
        ]
    };
}

const INTERFACES: [[Row<NetStats>; 2]; 8] = [
    interface!(
        "libvirt_domain_net_receive_bytes",
        "libvirt_domain_interface_stats_receive_bytes",
        "Bytes received on the interface",
        rx.bytes
    ),
    interface!(
        "libvirt_domain_net_receive_packets",
        "libvirt_domain_interface_stats_receive_packets",
        "Packets received on the interface",
        rx.packets
    ),
    interface!(
        "libvirt_domain_net_receive_errors",
        "libvirt_domain_interface_stats_receive_errors",
        "Errors while receiving on the interface",
        rx.errors
    ),
    interface!(
        "libvirt_domain_net_receive_drops",
        "libvirt_domain_interface_stats_receive_drops",
        "Packets dropped while receiving on the interface",
        rx.drops
    ),
    interface!(
        "libvirt_domain_net_transmit_bytes",
        "libvirt_domain_interface_stats_transmit_bytes",
        "Bytes sent on the interface",
        tx.bytes
    ),
    interface!(
        "libvirt_domain_net_transmit_packets",
        "libvirt_domain_interface_stats_transmit_packets",
        "Packets sent on the interface",
        tx.packets
    ),
    interface!(
        "libvirt_domain_net_transmit_errors",
        "libvirt_domain_interface_stats_transmit_errors",
        "Errors while sending on the interface",
        tx.errors
    ),
    interface!(
        "libvirt_domain_net_transmit_drops",
        "libvirt_domain_interface_stats_transmit_drops",
        "Packets dropped while sending on the interface",
        tx.drops
    ),
];

pub(super) const INTERFACE: &[Row<NetStats>] = INTERFACES.as_flattened();
