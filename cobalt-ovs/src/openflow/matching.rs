//! What a flow matches, as text.

use std::{borrow::Cow, fmt::Write as _};

use super::{
    field::{self, Field, Format, Header},
    wire::Reader,
};

/// More fields than a packet has; what follows is shown as bytes.
const MAX_FIELDS: usize = 256;

const IP: u64 = 0x0800;
const IPV6: u64 = 0x86dd;

struct Entry<'a> {
    field: Field,
    value: Cow<'a, [u8]>,
    mask: Option<Cow<'a, [u8]>>,
}

impl Entry<'_> {
    fn number(&self) -> u64 {
        field::number(&self.value)
    }

    fn mask(&self) -> Option<&[u8]> {
        self.mask.as_deref().filter(|mask| mask.iter().any(|byte| *byte != 0xff))
    }

    /// A field of which no bit is asked for is not there.
    fn asks(&self) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask.iter().any(|byte| *byte != 0))
    }
}

#[derive(Default)]
struct Fields<'a> {
    known: Vec<Entry<'a>>,
    vlan: Vlan,
    ether_type: Option<u64>,
    protocol: Option<u64>,
    /// Text of what we do not know.
    unknown: Vec<String>,
}

/// The tag and which bits of it are asked for; OpenFlow has three fields for its parts.
#[derive(Default, Clone, Copy)]
struct Vlan {
    tci: u16,
    mask: u16,
}

/// Takes a match off the front: a type, a length, fields, and padding to eight bytes. `None` if it is not whole.
pub(crate) fn read(from: &mut Reader<'_>) -> Option<String> {
    let kind = from.u16()?;
    let length = usize::from(from.u16()?);
    let fields = from.take(length.checked_sub(4)?)?;
    from.skip(length.next_multiple_of(8) - length)?;
    let mut out = String::new();
    if kind == 1 {
        format(fields, &mut out);
    } else {
        let _ = write!(out, "match(type={kind},0x");
        for byte in fields {
            let _ = write!(out, "{byte:02x}");
        }
        out.push(')');
    }
    Some(out)
}

/// Writes the fields in `bytes` as `ovs-ofctl` would.
pub(crate) fn format(bytes: &[u8], out: &mut String) {
    let mut fields = Fields::gather(bytes);
    fields.known.sort_by_key(|entry| (entry.field.row.rank, entry.field.index));
    let mut list = List { out, first: true };
    let mut word = false;
    let mut tagged = false;
    let shorthand = shorthand(fields.ether_type, fields.protocol);
    for entry in &fields.known {
        let rank = entry.field.row.rank;
        if rank > 20 && !std::mem::replace(&mut word, true) {
            list.word(shorthand.word);
        }
        if rank > 62 && !std::mem::replace(&mut tagged, true) {
            fields.vlan.format(&mut list);
        }
        match entry.field.row.name {
            "eth_type" if shorthand.word.is_some() => {}
            "nw_proto" if shorthand.protocol => {}
            _ => format_entry(entry, &mut list),
        }
    }
    if !word {
        list.word(shorthand.word);
    }
    if !tagged {
        fields.vlan.format(&mut list);
    }
    for unknown in &fields.unknown {
        list.word(Some(unknown));
    }
}

impl<'a> Fields<'a> {
    fn gather(bytes: &'a [u8]) -> Self {
        let mut fields = Self::default();
        let mut from = Reader::new(bytes);
        while !from.is_empty() {
            let start = from.rest();
            let room = fields.known.len() + fields.unknown.len() < MAX_FIELDS;
            if !room || fields.next(&mut from).is_none() {
                let mut text = String::from("malformed(");
                super::wire::dotted(start, &mut text);
                fields.unknown.push(text + ")");
                break;
            }
        }
        fields
    }

    fn next(&mut self, from: &mut Reader<'a>) -> Option<()> {
        let header = Header::read(from)?;
        let payload = from.take(header.length)?;
        let (value, mask) = if header.masked {
            let (value, mask) = payload.split_at(payload.len() / 2);
            (value, Some(mask))
        } else {
            (payload, None)
        };
        match header.field() {
            // A value of another length is another field, whatever its number says.
            Some(field) if field.row.bytes() == value.len() || field.row.name == "tun_metadata" => {
                self.put(Entry { field, value: value.into(), mask: mask.map(Into::into) });
            }
            _ => {
                let mut text = header.unknown() + "=";
                field::hex(value, &mut text);
                if let Some(mask) = mask {
                    text.push('/');
                    field::hex(mask, &mut text);
                }
                self.unknown.push(text);
            }
        }
        Some(())
    }

    fn put(&mut self, entry: Entry<'a>) {
        if !entry.asks() {
            return;
        }
        let (value, mask) = (entry.number(), entry.mask.as_deref().map(field::number));
        let low = |number: u64| u16::try_from(number & 0xffff).unwrap_or(u16::MAX);
        match entry.field.row.name {
            "xreg" => return self.registers(&entry, 2),
            "xxreg" => return self.registers(&entry, 4),
            "vlan_tci" => return self.vlan.put(low(value), mask.map_or(u16::MAX, low)),
            "vlan_vid" => return self.vlan.put(low(value), mask.map_or(0x1fff, low) & 0x1fff),
            "vlan_pcp" => return self.vlan.put(low(value) << 13 | 0x1000, 0xf000),
            // Frames of Ethernet are what everybody means.
            "packet_type" if value == 0 => return,
            "eth_type" => self.ether_type = Some(value),
            "nw_proto" => self.protocol = Some(value),
            _ => {}
        }
        self.known.push(entry);
    }

    /// A wide register is several narrow ones.
    fn registers(&mut self, wide: &Entry<'a>, width: u8) {
        for part in 0..width {
            let at = usize::from(part) * 4;
            let header = Header {
                experimenter: 0,
                class: 1,
                number: wide.field.index * width + part,
                masked: wide.mask.is_some(),
                length: 4,
            };
            let Some(field) = header.field() else { continue };
            let cut = |bytes: &[u8]| Cow::Owned(bytes.get(at..at + 4).unwrap_or_default().to_vec());
            self.put(Entry { field, value: cut(&wide.value), mask: wide.mask.as_deref().map(cut) });
        }
    }
}

impl Vlan {
    fn put(&mut self, tci: u16, mask: u16) {
        self.tci |= tci & mask;
        self.mask |= mask;
    }

    fn format(self, list: &mut List<'_>) {
        let (id, priority) = (self.mask & 0x0fff, self.mask & 0xe000);
        let whole = matches!(id, 0 | 0x0fff) && matches!(priority, 0 | 0xe000) && (id, priority) != (0, 0);
        if self.mask == 0 {
        } else if self.mask & self.tci & 0x1000 != 0 && whole {
            if id != 0 {
                let _ = write!(list.next(), "dl_vlan={}", self.tci & 0x0fff);
            }
            if priority != 0 {
                let _ = write!(list.next(), "dl_vlan_pcp={}", self.tci >> 13);
            }
        } else if self.mask == u16::MAX {
            let _ = write!(list.next(), "vlan_tci={:#06x}", self.tci);
        } else {
            let _ = write!(list.next(), "vlan_tci={:#06x}/{:#06x}", self.tci, self.mask);
        }
    }
}

struct Shorthand {
    word: Option<&'static str>,
    /// Whether the word says the protocol above IP, too.
    protocol: bool,
}

/// The word for a protocol that has one.
fn shorthand(ether_type: Option<u64>, protocol: Option<u64>) -> Shorthand {
    let (word, protocol) = match (ether_type, protocol) {
        (Some(IP), Some(1)) => ("icmp", true),
        (Some(IP), Some(6)) => ("tcp", true),
        (Some(IP), Some(17)) => ("udp", true),
        (Some(IP), Some(132)) => ("sctp", true),
        (Some(IP), _) => ("ip", false),
        (Some(IPV6), Some(58)) => ("icmp6", true),
        (Some(IPV6), Some(6)) => ("tcp6", true),
        (Some(IPV6), Some(17)) => ("udp6", true),
        (Some(IPV6), Some(132)) => ("sctp6", true),
        (Some(IPV6), _) => ("ipv6", false),
        (Some(0x0806), _) => ("arp", false),
        (Some(0x8035), _) => ("rarp", false),
        (Some(0x8847), _) => ("mpls", false),
        (Some(0x8848), _) => ("mplsm", false),
        _ => return Shorthand { word: None, protocol: false },
    };
    Shorthand { word: Some(word), protocol }
}

fn format_entry(entry: &Entry<'_>, list: &mut List<'_>) {
    let (row, number, mask) = (entry.field.row, entry.number(), entry.mask());
    let out = list.next();
    out.push_str(&entry.field.matched());
    out.push('=');
    match (row.name, row.format) {
        ("eth_type", _) => {
            let _ = write!(out, "{number:#06x}");
        }
        ("nw_tos", _) => {
            let _ = write!(out, "{}", number & 0xfc);
        }
        ("ip_dscp", _) => {
            let _ = write!(out, "{}", number << 2 & 0xfc);
        }
        ("ipv6_label", _) => {
            let _ = write!(out, "{number:#07x}");
            if let Some(mask) = mask.filter(|mask| field::number(mask) & 0xf_ffff != 0xf_ffff) {
                let _ = write!(out, "/{:#07x}", field::number(mask));
            }
        }
        ("packet_type", _) => {
            let _ = write!(out, "({},{:#x})", number >> 16, number & 0xffff);
        }
        (_, Format::Ipv4 | Format::Ipv6 | Format::Ethernet | Format::Port) => {
            field::value(row.format, &entry.value, mask, out);
        }
        (_, Format::CtState) => {
            field::flags(number, mask.map_or(u64::MAX, field::number), 0xff, &field::CT_STATES, out);
        }
        (_, Format::TcpFlags) => {
            field::flags(number, mask.map_or(0xfff, field::number), 0xfff, &field::TCP_FLAGS, out);
        }
        (_, Format::TunFlags) => field::flags(number, mask.map_or(1, field::number), u64::MAX, &field::TUN_FLAGS, out),
        (_, Format::Frag) => field::frag(number, mask.map_or(3, field::number), out),
        // A zone is the one number in hexadecimal that is written in decimal where it is whole.
        ("ct_zone", _) | (_, Format::Decimal) if mask.is_none() => {
            let _ = write!(out, "{number}");
        }
        (_, Format::Hex | Format::Decimal) => {
            field::hex(&entry.value, out);
            if let Some(mask) = mask {
                out.push('/');
                field::hex(mask, out);
            }
        }
    }
}

/// Words with commas between.
struct List<'a> {
    out: &'a mut String,
    first: bool,
}

impl List<'_> {
    fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.first) {
            self.out.push(',');
        }
        self.out
    }

    fn word(&mut self, word: Option<&str>) {
        if let Some(word) = word {
            self.next().push_str(word);
        }
    }
}
