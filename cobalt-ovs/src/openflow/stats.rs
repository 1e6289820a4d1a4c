//! What a bridge counts, entry by entry.

use std::{collections::BTreeMap, time::Duration};

use cobalt_core::ovs::Flow;

use super::{Version, action, matching, wire::Reader};

/// What a bridge counts about one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: u8,
    /// Flows in it now.
    pub active: u32,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that met a flow.
    pub matched: u64,
}

/// Flows by table, tables without any left out.
pub fn flow_counts(tables: &[TableStats]) -> BTreeMap<u8, u64> {
    tables.iter().filter(|table| table.active > 0).map(|table| (table.table, u64::from(table.active))).collect()
}

/// What a bridge counts about one port. What a port does not count is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortStats {
    /// The port's number; the reserved ones are near [`u32::MAX`].
    pub port: u32,
    /// How long it has been there.
    pub age: Duration,
    /// Packets received.
    pub rx_packets: Option<u64>,
    /// Packets sent.
    pub tx_packets: Option<u64>,
    /// Bytes received.
    pub rx_bytes: Option<u64>,
    /// Bytes sent.
    pub tx_bytes: Option<u64>,
    /// Packets received and dropped.
    pub rx_dropped: Option<u64>,
    /// Packets dropped instead of sent.
    pub tx_dropped: Option<u64>,
    /// Errors while receiving.
    pub rx_errors: Option<u64>,
    /// Errors while sending.
    pub tx_errors: Option<u64>,
}

/// What a bridge counts about one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group: u32,
    /// How many flows and groups refer to it; 0 also where the switch does not count.
    pub references: u32,
    /// Packets that met it.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// How long it has been there.
    pub age: Duration,
    /// Packets and bytes of each of its buckets.
    pub buckets: Vec<(u64, u64)>,
}

/// A counter that the switch does not keep is all ones on the wire.
fn counted(value: u64) -> Option<u64> {
    (value != u64::MAX).then_some(value)
}

fn duration(from: &mut Reader<'_>) -> Option<Duration> {
    let (seconds, nanos) = (from.u32()?, from.u32()?);
    Some(Duration::from_secs(seconds.into()).saturating_add(Duration::from_nanos(nanos.into())))
}

/// Takes an entry that begins with its own length.
fn sized<'a>(from: &mut Reader<'a>, least: u16) -> Option<Reader<'a>> {
    let length = Reader::new(from.rest()).u16()?;
    (length >= least).then_some(())?;
    let mut entry = Reader::new(from.take(usize::from(length))?);
    entry.skip(2)?;
    Some(entry)
}

impl TableStats {
    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let table = from.u8()?;
        from.skip(3)?;
        Some(Self { table, active: from.u32()?, lookups: from.u64()?, matched: from.u64()? })
    }
}

impl PortStats {
    pub(crate) fn read(from: &mut Reader<'_>, version: Version) -> Option<Self> {
        if version == Version::V1_3 {
            let mut entry = Reader::new(from.take(112)?);
            let port = entry.u32()?;
            entry.skip(4)?;
            let mut stats = Self::counters(&mut entry)?;
            entry.skip(4 * 8)?;
            stats.age = duration(&mut entry)?;
            stats.port = port;
            return Some(stats);
        }
        let mut entry = sized(from, 80)?;
        entry.skip(2)?;
        let port = entry.u32()?;
        let age = duration(&mut entry)?;
        Some(Self { port, age, ..Self::counters(&mut entry)? })
    }

    fn counters(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            rx_packets: counted(from.u64()?),
            tx_packets: counted(from.u64()?),
            rx_bytes: counted(from.u64()?),
            tx_bytes: counted(from.u64()?),
            rx_dropped: counted(from.u64()?),
            tx_dropped: counted(from.u64()?),
            rx_errors: counted(from.u64()?),
            tx_errors: counted(from.u64()?),
            ..Self::default()
        })
    }
}

impl GroupStats {
    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let mut entry = sized(from, 40)?;
        entry.skip(2)?;
        let (group, references) = (entry.u32()?, entry.u32()?);
        entry.skip(4)?;
        let (packets, bytes) = (entry.u64()?, entry.u64()?);
        let age = duration(&mut entry)?;
        let mut buckets = Vec::new();
        while !entry.is_empty() {
            buckets.push((entry.u64()?, entry.u64()?));
        }
        Some(Self { group, references, packets, bytes, age, buckets })
    }
}

/// Takes one flow off the front of a dump.
pub(crate) fn read_flow(from: &mut Reader<'_>, version: Version) -> Option<Flow> {
    let mut entry = sized(from, 8)?;
    let mut flow = Flow {
        table: 0,
        priority: 0,
        cookie: 0,
        age: Duration::ZERO,
        packets: 0,
        bytes: 0,
        matched: String::new(),
        actions: String::new(),
    };
    if version == Version::V1_5 {
        entry.skip(2)?;
        flow.table = entry.u8()?;
        entry.skip(1)?;
        flow.priority = entry.u16()?;
        // Timeouts, flags, importance.
        entry.skip(8)?;
        flow.cookie = entry.u64()?;
        flow.matched = matching::read(&mut entry)?;
        read_oxs(&mut entry, &mut flow)?;
    } else {
        flow.table = entry.u8()?;
        entry.skip(1)?;
        flow.age = duration(&mut entry)?;
        flow.priority = entry.u16()?;
        // Timeouts, flags, and importance or nothing.
        entry.skip(10)?;
        flow.cookie = entry.u64()?;
        flow.packets = counted(entry.u64()?).unwrap_or(0);
        flow.bytes = counted(entry.u64()?).unwrap_or(0);
        flow.matched = matching::read(&mut entry)?;
    }
    action::format_instructions(entry.rest(), &mut flow.actions);
    Some(flow)
}

/// The counters of 1.5: fields with headers like those of a match. What we do not know is left out.
fn read_oxs(from: &mut Reader<'_>, flow: &mut Flow) -> Option<()> {
    const BASIC: u16 = 0x8002;
    from.skip(2)?;
    let length = usize::from(from.u16()?);
    let mut fields = Reader::new(from.take(length.checked_sub(4)?)?);
    from.skip(length.next_multiple_of(8) - length)?;
    while !fields.is_empty() {
        let (class, number) = (fields.u16()?, fields.u8()? >> 1);
        let size = usize::from(fields.u8()?);
        let mut value = Reader::new(fields.take(size)?);
        match (class, number) {
            (BASIC, 0) => flow.age = duration(&mut value)?,
            (BASIC, 4) => flow.packets = counted(value.u64()?).unwrap_or(0),
            (BASIC, 5) => flow.bytes = counted(value.u64()?).unwrap_or(0),
            _ => {}
        }
    }
    Some(())
}
