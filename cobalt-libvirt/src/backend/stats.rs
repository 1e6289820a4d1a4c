//! libvirt's statistics in the terms of the seam.

use std::collections::BTreeMap;

use cobalt_core::{
    backend::{BlockStats, DomainState, DomainStats, NetDirection, NetStats, VcpuState, VcpuStats},
    ids::InstanceId,
};

use super::state;
use crate::{rpc, typed::Value};

/// A domain whose statistics name more devices than this is told without the rest: the keys are the daemon's, the
/// memory is ours.
const MAX_DEVICES: u32 = 4096;

/// One domain's counters out of a bulk reply.
///
/// What is missing stays `None`, what has a surprising type is passed over: a driver that sends less, or sends it
/// differently, never makes the others' counters fail.
pub(super) fn domain_stats(record: &rpc::DomainStatsRecord) -> DomainStats {
    let id = InstanceId::from(record.domain.uuid.to_string());
    let mut stats = DomainStats::new(id, record.domain.name.clone(), DomainState::Unknown);
    let mut blocks: BTreeMap<u32, (Option<String>, BlockStats)> = BTreeMap::new();
    let mut nets: BTreeMap<u32, (Option<String>, NetStats)> = BTreeMap::new();
    for (name, value) in &record.params {
        let Some((group, rest)) = name.split_once('.') else { continue };
        match group {
            "cpu" => match rest {
                "time" => stats.cpu.time_ns = value.as_u64(),
                "user" => stats.cpu.user_ns = value.as_u64(),
                "system" => stats.cpu.system_ns = value.as_u64(),
                _ => {}
            },
            "balloon" => balloon(&mut stats, rest, value),
            "vcpu" if rest == "maximum" => stats.vcpus_maximum = value.as_u64().and_then(|max| max.try_into().ok()),
            "vcpu" => {
                if let Some((number, field)) = numbered(rest) {
                    vcpu(stats.vcpus.entry(number).or_default(), field, value);
                }
            }
            "block" => {
                if let Some((number, field)) = numbered(rest) {
                    let (name, block) = blocks.entry(number).or_default();
                    if field == "name" {
                        *name = value.as_str().map(Into::into);
                    } else {
                        block_field(block, field, value);
                    }
                }
            }
            "net" => {
                if let Some((number, field)) = numbered(rest) {
                    let (name, net) = nets.entry(number).or_default();
                    if field == "name" {
                        *name = value.as_str().map(Into::into);
                    } else {
                        net_field(net, field, value);
                    }
                }
            }
            _ => {}
        }
    }
    stats.state = status(record).map_or(DomainState::Unknown, |status| state::domain_state(&status));
    stats.blocks = blocks.into_values().filter_map(|(name, block)| Some((name?, block))).collect();
    stats.nets = nets.into_values().filter_map(|(name, net)| Some((name?, net))).collect();
    stats
}

/// State and reason, if the record has them.
pub(super) fn status(record: &rpc::DomainStatsRecord) -> Option<rpc::DomainStatus> {
    let number = |name| record.params.get_i64(name).and_then(|value| i32::try_from(value).ok());
    let state = number("state.state")?;
    Some(rpc::DomainStatus { state: state.into(), reason: number("state.reason").unwrap_or_default() })
}

fn numbered(rest: &str) -> Option<(u32, &str)> {
    let (number, field) = rest.split_once('.')?;
    Some((number.parse().ok().filter(|number| *number < MAX_DEVICES)?, field))
}

fn kib(value: Value<'_>) -> Option<u64> {
    value.as_u64().map(|kib| kib.saturating_mul(1024))
}

fn balloon(stats: &mut DomainStats, field: &str, value: Value<'_>) {
    let memory = &mut stats.memory;
    match field {
        "current" => memory.current_bytes = kib(value),
        "maximum" => memory.maximum_bytes = kib(value),
        "rss" => memory.resident_bytes = kib(value),
        "available" => memory.available_bytes = kib(value),
        "unused" => memory.unused_bytes = kib(value),
        "usable" => memory.usable_bytes = kib(value),
        "swap_in" => memory.swapped_in_bytes = kib(value),
        "swap_out" => memory.swapped_out_bytes = kib(value),
        "major_fault" => memory.major_faults = value.as_u64(),
        "minor_fault" => memory.minor_faults = value.as_u64(),
        _ => {}
    }
}

fn vcpu(vcpu: &mut VcpuStats, field: &str, value: Value<'_>) {
    match field {
        "state" => {
            vcpu.state = match value.as_u64() {
                Some(0) => Some(VcpuState::Offline),
                Some(1) => Some(VcpuState::Running),
                Some(2) => Some(VcpuState::Blocked),
                _ => None,
            }
        }
        "time" => vcpu.time_ns = value.as_u64(),
        "wait" => vcpu.wait_ns = value.as_u64(),
        "delay" => vcpu.delay_ns = value.as_u64(),
        // A boolean in some versions, a word in others.
        "halted" => {
            vcpu.halted = value.as_bool().or_else(|| match value.as_str()?.as_ref() {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            });
        }
        _ => {}
    }
}

fn block_field(block: &mut BlockStats, field: &str, value: Value<'_>) {
    match field {
        "path" => block.source = value.as_str().map(Into::into),
        "rd.reqs" => block.reads = value.as_u64(),
        "rd.bytes" => block.read_bytes = value.as_u64(),
        "rd.times" => block.read_ns = value.as_u64(),
        "wr.reqs" => block.writes = value.as_u64(),
        "wr.bytes" => block.written_bytes = value.as_u64(),
        "wr.times" => block.write_ns = value.as_u64(),
        "fl.reqs" => block.flushes = value.as_u64(),
        "fl.times" => block.flush_ns = value.as_u64(),
        "errors" => block.errors = value.as_u64(),
        "allocation" => block.allocation_bytes = value.as_u64(),
        "capacity" => block.capacity_bytes = value.as_u64(),
        "physical" => block.physical_bytes = value.as_u64(),
        _ => {}
    }
}

fn net_field(net: &mut NetStats, field: &str, value: Value<'_>) {
    let Some((direction, counter)) = field.split_once('.') else { return };
    let direction: &mut NetDirection = match direction {
        "rx" => &mut net.rx,
        "tx" => &mut net.tx,
        _ => return,
    };
    match counter {
        "bytes" => direction.bytes = value.as_u64(),
        "pkts" => direction.packets = value.as_u64(),
        "errs" => direction.errors = value.as_u64(),
        "drop" => direction.drops = value.as_u64(),
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::typed::TypedParams;

    fn record(params: TypedParams) -> rpc::DomainStatsRecord {
        let domain = rpc::DomainRef { name: "vm1".into(), uuid: Uuid::nil(), id: Some(1) };
        rpc::DomainStatsRecord { domain, params }
    }

    #[test]
    fn devices_are_found_by_their_names_whatever_their_numbers() {
        let params = TypedParams::builder()
            .with("state.state", 3)
            .with("state.reason", 5)
            .with("cpu.time", 7_u64)
            .with("balloon.rss", 2_u64)
            .with("vcpu.maximum", 4_u32)
            .with("vcpu.1.state", 1)
            .with("vcpu.1.halted", "yes")
            .with("block.count", 2_u32)
            .with("block.1.name", "vdb")
            .with("block.1.rd.bytes", 512_u64)
            .with("block.7.rd.bytes", 9_u64)
            .with("net.0.name", "tap0")
            .with("net.0.tx.drop", 3_u64)
            .build();
        let stats = domain_stats(&record(params));
        assert_eq!(stats.state, DomainState::PausedOnIoError);
        assert_eq!(stats.cpu.time_ns, Some(7));
        assert_eq!(stats.memory.resident_bytes, Some(2048));
        assert_eq!(stats.vcpus_maximum, Some(4));
        assert_eq!(stats.vcpus[&1].halted, Some(true));
        assert_eq!(stats.blocks.len(), 1, "a disk without a name has no place");
        assert_eq!(stats.blocks["vdb"].read_bytes, Some(512));
        assert_eq!(stats.nets["tap0"].tx.drops, Some(3));
        assert_eq!(stats.nets["tap0"].rx, NetDirection::default());
    }

    #[test]
    fn surprising_types_and_numbers_are_passed_over() {
        let params = TypedParams::builder()
            .with("cpu.time", "soon")
            .with("cpu.user", -1)
            .with("vcpu.4294967295.time", 1_u64)
            .with("vcpu.x.time", 1_u64)
            .with("balloon.maximum", u64::MAX)
            .with("nonsense", 1)
            .build();
        let stats = domain_stats(&record(params));
        assert_eq!((stats.cpu.time_ns, stats.cpu.user_ns), (None, None));
        assert!(stats.vcpus.is_empty());
        assert_eq!(stats.memory.maximum_bytes, Some(u64::MAX));
        assert_eq!(stats.state, DomainState::Unknown);
    }
}
