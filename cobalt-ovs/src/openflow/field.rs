//! The fields of a packet that matches and actions speak of, by their numbers on the wire.
//!
//! The numbers, widths and names are those of `ovs-fields(7)`. A field has one name in a match (`dl_src`), one in
//! `set_field` and `learn` (`eth_src`) and one where actions name a part of it (`NXM_OF_ETH_SRC[]`).

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
    sync::LazyLock,
};

use super::wire::Reader;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Decimal,
    Hex,
    Ipv4,
    Ipv6,
    Ethernet,
    Port,
    CtState,
    Frag,
    TcpFlags,
    TunFlags,
}

/// One row of the table, or one family of fields (`reg0` to `reg15`).
#[derive(Debug)]
pub(crate) struct Row {
    /// The name in `set_field`.
    pub(crate) name: &'static str,
    /// The name in a match.
    pub(crate) matched: &'static str,
    /// The name where a part of it is meant.
    pub(crate) label: &'static str,
    /// How many bits a value has.
    pub(crate) bits: u16,
    /// How a value is written.
    pub(crate) format: Format,
    /// Where it stands in a match, as the switch's tools order it.
    pub(crate) rank: u8,
    /// The fields of the family; 1 for a field alone.
    family: u8,
    /// Where it is on the wire: experimenter (0 for none), class, number of the first.
    codes: &'static [(u32, u16, u8)],
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) row: &'static Row,
    /// Which of the family.
    pub(crate) index: u8,
}

/// The first word, or two, of a field on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) experimenter: u32,
    pub(crate) class: u16,
    pub(crate) number: u8,
    pub(crate) masked: bool,
    /// The bytes after the header: value, and mask if there is one.
    pub(crate) length: usize,
}

/// Fields whose meaning an experimenter defines.
const EXPERIMENTER: u16 = 0xffff;
const NX0: u16 = 0;
const NX1: u16 = 1;
const OXM: u16 = 0x8000;
const REGISTERS: u16 = 0x8001;
const ONF: u32 = 0x4f4e_4600;
const NSH: u32 = 0x005a_d650;
const NICIRA: u32 = 0x2320;
const ERICSSON: u16 = 0x1000;

macro_rules! rows {
    ($($rank:literal $name:literal $matched:literal $label:literal $bits:literal $format:ident
       $(x $family:literal)? [$(($experimenter:expr, $class:expr, $number:literal)),+];)+) => {
        /// Ordered by rank, which a test holds.
        static ROWS: &[Row] = &[$(Row {
            name: $name,
            matched: $matched,
            label: $label,
            bits: $bits,
            format: Format::$format,
            rank: $rank,
            family: 1 $(+ $family - 1)?,
            codes: &[$(($experimenter, $class, $number)),+],
        }),+];
    };
}

rows! {
    1 "pkt_mark" "pkt_mark" "NXM_NX_PKT_MARK" 32 Hex [(0, NX1, 33)];
    2 "recirc_id" "recirc_id" "NXM_NX_RECIRC_ID" 32 Hex [(0, NX1, 36)];
    3 "dp_hash" "dp_hash" "NXM_NX_DP_HASH" 32 Hex [(0, NX1, 35)];
    4 "conj_id" "conj_id" "NXM_NX_CONJ_ID" 32 Decimal [(0, NX1, 37)];
    6 "actset_output" "actset_output" "ONFOXM_ET_ACTSET_OUTPUT" 32 Port [(ONF, EXPERIMENTER, 43), (0, OXM, 43)];
    7 "ct_state" "ct_state" "NXM_NX_CT_STATE" 32 CtState [(0, NX1, 105)];
    8 "ct_zone" "ct_zone" "NXM_NX_CT_ZONE" 16 Hex [(0, NX1, 106)];
    9 "ct_mark" "ct_mark" "NXM_NX_CT_MARK" 32 Hex [(0, NX1, 107)];
    10 "ct_label" "ct_label" "NXM_NX_CT_LABEL" 128 Hex [(0, NX1, 108)];
    11 "ct_nw_src" "ct_nw_src" "NXM_NX_CT_NW_SRC" 32 Ipv4 [(0, NX1, 120)];
    12 "ct_ipv6_src" "ct_ipv6_src" "NXM_NX_CT_IPV6_SRC" 128 Ipv6 [(0, NX1, 122)];
    13 "ct_nw_dst" "ct_nw_dst" "NXM_NX_CT_NW_DST" 32 Ipv4 [(0, NX1, 121)];
    14 "ct_ipv6_dst" "ct_ipv6_dst" "NXM_NX_CT_IPV6_DST" 128 Ipv6 [(0, NX1, 123)];
    15 "ct_nw_proto" "ct_nw_proto" "NXM_NX_CT_NW_PROTO" 8 Decimal [(0, NX1, 119)];
    16 "ct_tp_src" "ct_tp_src" "NXM_NX_CT_TP_SRC" 16 Decimal [(0, NX1, 124)];
    17 "ct_tp_dst" "ct_tp_dst" "NXM_NX_CT_TP_DST" 16 Decimal [(0, NX1, 125)];
    18 "packet_type" "packet_type" "OXM_OF_PACKET_TYPE" 32 Hex [(0, OXM, 44)];
    // 20 is the protocol in a word.
    30 "reg" "reg" "NXM_NX_REG" 32 Hex x 16 [(0, NX1, 0)];
    31 "xreg" "xreg" "OXM_OF_PKT_REG" 64 Hex x 8 [(0, REGISTERS, 0)];
    32 "xxreg" "xxreg" "NXM_NX_XXREG" 128 Hex x 4 [(0, NX1, 111)];
    40 "tun_id" "tun_id" "NXM_NX_TUN_ID" 64 Hex [(0, NX1, 16), (0, OXM, 38)];
    41 "tun_src" "tun_src" "NXM_NX_TUN_IPV4_SRC" 32 Ipv4 [(0, NX1, 31)];
    42 "tun_dst" "tun_dst" "NXM_NX_TUN_IPV4_DST" 32 Ipv4 [(0, NX1, 32)];
    43 "tun_ipv6_src" "tun_ipv6_src" "NXM_NX_TUN_IPV6_SRC" 128 Ipv6 [(0, NX1, 109)];
    44 "tun_ipv6_dst" "tun_ipv6_dst" "NXM_NX_TUN_IPV6_DST" 128 Ipv6 [(0, NX1, 110)];
    45 "tun_gbp_id" "tun_gbp_id" "NXM_NX_TUN_GBP_ID" 16 Decimal [(0, NX1, 38)];
    46 "tun_gbp_flags" "tun_gbp_flags" "NXM_NX_TUN_GBP_FLAGS" 8 Hex [(0, NX1, 39)];
    47 "tun_erspan_ver" "tun_erspan_ver" "NXOXM_ET_ERSPAN_VER" 4 Decimal [(NICIRA, EXPERIMENTER, 12)];
    48 "tun_erspan_idx" "tun_erspan_idx" "NXOXM_ET_ERSPAN_IDX" 20 Hex [(NICIRA, EXPERIMENTER, 11)];
    49 "tun_erspan_dir" "tun_erspan_dir" "NXOXM_ET_ERSPAN_DIR" 1 Decimal [(NICIRA, EXPERIMENTER, 13)];
    50 "tun_erspan_hwid" "tun_erspan_hwid" "NXOXM_ET_ERSPAN_HWID" 6 Hex [(NICIRA, EXPERIMENTER, 14)];
    51 "tun_gtpu_flags" "tun_gtpu_flags" "NXOXM_ET_GTPU_FLAGS" 8 Hex [(NICIRA, EXPERIMENTER, 15)];
    52 "tun_gtpu_msgtype" "tun_gtpu_msgtype" "NXOXM_ET_GTPU_MSGTYPE" 8 Decimal [(NICIRA, EXPERIMENTER, 16)];
    53 "tun_flags" "tun_flags" "NXM_NX_TUN_FLAGS" 1 TunFlags [(0, NX1, 104)];
    54 "tun_metadata" "tun_metadata" "NXM_NX_TUN_METADATA" 992 Hex x 64 [(0, NX1, 40)];
    60 "metadata" "metadata" "OXM_OF_METADATA" 64 Hex [(0, OXM, 2)];
    61 "in_port" "in_port" "NXM_OF_IN_PORT" 16 Port [(0, NX0, 0)];
    61 "in_port_oxm" "in_port" "OXM_OF_IN_PORT" 32 Port [(0, OXM, 0)];
    62 "vlan_tci" "vlan_tci" "NXM_OF_VLAN_TCI" 16 Hex [(0, NX0, 4)];
    63 "vlan_vid" "dl_vlan" "OXM_OF_VLAN_VID" 12 Decimal [(0, OXM, 6)];
    64 "vlan_pcp" "dl_vlan_pcp" "OXM_OF_VLAN_PCP" 3 Decimal [(0, OXM, 7)];
    65 "eth_src" "dl_src" "NXM_OF_ETH_SRC" 48 Ethernet [(0, NX0, 2), (0, OXM, 4)];
    66 "eth_dst" "dl_dst" "NXM_OF_ETH_DST" 48 Ethernet [(0, NX0, 1), (0, OXM, 3)];
    67 "eth_type" "dl_type" "NXM_OF_ETH_TYPE" 16 Hex [(0, NX0, 3), (0, OXM, 5)];
    70 "ipv6_src" "ipv6_src" "NXM_NX_IPV6_SRC" 128 Ipv6 [(0, NX1, 19), (0, OXM, 26)];
    71 "ipv6_dst" "ipv6_dst" "NXM_NX_IPV6_DST" 128 Ipv6 [(0, NX1, 20), (0, OXM, 27)];
    72 "ipv6_label" "ipv6_label" "NXM_NX_IPV6_LABEL" 20 Hex [(0, NX1, 27), (0, OXM, 28)];
    73 "arp_spa" "arp_spa" "NXM_OF_ARP_SPA" 32 Ipv4 [(0, NX0, 16), (0, OXM, 22)];
    74 "arp_tpa" "arp_tpa" "NXM_OF_ARP_TPA" 32 Ipv4 [(0, NX0, 17), (0, OXM, 23)];
    75 "nsh_flags" "nsh_flags" "NXOXM_NSH_FLAGS" 8 Decimal [(NSH, EXPERIMENTER, 1)];
    75 "nsh_ttl" "nsh_ttl" "NXOXM_NSH_TTL" 8 Decimal [(NSH, EXPERIMENTER, 10)];
    75 "nsh_mdtype" "nsh_mdtype" "NXOXM_NSH_MDTYPE" 8 Decimal [(NSH, EXPERIMENTER, 2)];
    75 "nsh_np" "nsh_np" "NXOXM_NSH_NP" 8 Decimal [(NSH, EXPERIMENTER, 3)];
    75 "nsh_spi" "nsh_spi" "NXOXM_NSH_SPI" 24 Hex [(NSH, EXPERIMENTER, 4)];
    75 "nsh_si" "nsh_si" "NXOXM_NSH_SI" 8 Decimal [(NSH, EXPERIMENTER, 5)];
    75 "nsh_c1" "nsh_c1" "NXOXM_NSH_C1" 32 Hex [(NSH, EXPERIMENTER, 6)];
    75 "nsh_c2" "nsh_c2" "NXOXM_NSH_C2" 32 Hex [(NSH, EXPERIMENTER, 7)];
    75 "nsh_c3" "nsh_c3" "NXOXM_NSH_C3" 32 Hex [(NSH, EXPERIMENTER, 8)];
    75 "nsh_c4" "nsh_c4" "NXOXM_NSH_C4" 32 Hex [(NSH, EXPERIMENTER, 9)];
    76 "ip_src" "nw_src" "NXM_OF_IP_SRC" 32 Ipv4 [(0, NX0, 7), (0, OXM, 11)];
    77 "ip_dst" "nw_dst" "NXM_OF_IP_DST" 32 Ipv4 [(0, NX0, 8), (0, OXM, 12)];
    78 "arp_op" "arp_op" "NXM_OF_ARP_OP" 16 Decimal [(0, NX0, 15), (0, OXM, 21)];
    79 "nw_proto" "nw_proto" "NXM_OF_IP_PROTO" 8 Decimal [(0, NX0, 6), (0, OXM, 10)];
    80 "arp_sha" "arp_sha" "NXM_NX_ARP_SHA" 48 Ethernet [(0, NX1, 17), (0, OXM, 24)];
    81 "arp_tha" "arp_tha" "NXM_NX_ARP_THA" 48 Ethernet [(0, NX1, 18), (0, OXM, 25)];
    82 "nw_tos" "nw_tos" "NXM_OF_IP_TOS" 8 Decimal [(0, NX0, 5)];
    82 "ip_dscp" "nw_tos" "OXM_OF_IP_DSCP" 6 Decimal [(0, OXM, 8)];
    83 "nw_ecn" "nw_ecn" "NXM_NX_IP_ECN" 2 Decimal [(0, NX1, 28), (0, OXM, 9)];
    84 "nw_ttl" "nw_ttl" "NXM_NX_IP_TTL" 8 Decimal [(0, NX1, 29)];
    85 "mpls_label" "mpls_label" "OXM_OF_MPLS_LABEL" 20 Decimal [(0, OXM, 34)];
    86 "mpls_tc" "mpls_tc" "OXM_OF_MPLS_TC" 3 Decimal [(0, OXM, 35)];
    87 "mpls_ttl" "mpls_ttl" "NXM_NX_MPLS_TTL" 8 Decimal [(0, NX1, 30)];
    88 "mpls_bos" "mpls_bos" "OXM_OF_MPLS_BOS" 1 Decimal [(0, OXM, 36)];
    89 "ip_frag" "nw_frag" "NXM_NX_IP_FRAG" 2 Frag [(0, NX1, 26)];
    90 "tcp_src" "tp_src" "NXM_OF_TCP_SRC" 16 Decimal [(0, NX0, 9), (0, OXM, 13)];
    90 "udp_src" "tp_src" "NXM_OF_UDP_SRC" 16 Decimal [(0, NX0, 11), (0, OXM, 15)];
    90 "sctp_src" "tp_src" "OXM_OF_SCTP_SRC" 16 Decimal [(0, OXM, 17)];
    91 "tcp_dst" "tp_dst" "NXM_OF_TCP_DST" 16 Decimal [(0, NX0, 10), (0, OXM, 14)];
    91 "udp_dst" "tp_dst" "NXM_OF_UDP_DST" 16 Decimal [(0, NX0, 12), (0, OXM, 16)];
    91 "sctp_dst" "tp_dst" "OXM_OF_SCTP_DST" 16 Decimal [(0, OXM, 18)];
    92 "icmp_type" "icmp_type" "NXM_OF_ICMP_TYPE" 8 Decimal [(0, NX0, 13), (0, OXM, 19)];
    92 "icmpv6_type" "icmp_type" "NXM_NX_ICMPV6_TYPE" 8 Decimal [(0, NX1, 21), (0, OXM, 29)];
    93 "icmp_code" "icmp_code" "NXM_OF_ICMP_CODE" 8 Decimal [(0, NX0, 14), (0, OXM, 20)];
    93 "icmpv6_code" "icmp_code" "NXM_NX_ICMPV6_CODE" 8 Decimal [(0, NX1, 22), (0, OXM, 30)];
    94 "nd_target" "nd_target" "NXM_NX_ND_TARGET" 128 Ipv6 [(0, NX1, 23), (0, OXM, 31)];
    95 "nd_sll" "nd_sll" "NXM_NX_ND_SLL" 48 Ethernet [(0, NX1, 24), (0, OXM, 32)];
    96 "nd_tll" "nd_tll" "NXM_NX_ND_TLL" 48 Ethernet [(0, NX1, 25), (0, OXM, 33)];
    97 "nd_reserved" "nd_reserved" "ERICOXM_OF_ICMPV6_ND_RESERVED" 32 Decimal [(0, ERICSSON, 1)];
    98 "nd_options_type" "nd_options_type" "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE" 8 Decimal [(0, ERICSSON, 2)];
    99 "tcp_flags" "tcp_flags" "NXM_NX_TCP_FLAGS" 12 TcpFlags [(0, NX1, 34), (ONF, EXPERIMENTER, 42), (0, OXM, 42)];
}

/// A dump of a hundred thousand flows asks a million times.
static BY_CODE: LazyLock<HashMap<(u32, u16, u8), Field>> = LazyLock::new(|| {
    let members = |row: &'static Row| (0..row.family).map(move |index| Field { row, index });
    let codes = |field: Field| {
        field.row.codes.iter().map(move |&(who, class, first)| ((who, class, first + field.index), field))
    };
    ROWS.iter().flat_map(members).flat_map(codes).collect()
});

impl Header {
    /// Takes a header off the front; its value is still to be read.
    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let class = from.u16()?;
        let number = from.u8()?;
        let mut length = usize::from(from.u8()?);
        let mut experimenter = 0;
        if class == EXPERIMENTER {
            length = length.checked_sub(4)?;
            experimenter = from.u32()?;
        }
        Some(Self { experimenter, class, number: number >> 1, masked: number & 1 == 1, length })
    }

    /// The field, if we know it.
    pub(crate) fn field(&self) -> Option<Field> {
        BY_CODE.get(&(self.experimenter, self.class, self.number)).copied()
    }

    /// What is said of a field that we do not know.
    pub(crate) fn unknown(&self) -> String {
        let mut out = String::from("field(");
        if self.experimenter != 0 {
            let _ = write!(out, "experimenter={:#x},", self.experimenter);
        }
        let _ = write!(out, "class={:#x},type={})", self.class, self.number);
        out
    }

    /// How many bits of value the wire carries, for a field that we do not know.
    pub(crate) fn wire_bits(&self) -> usize {
        let bytes = if self.masked { self.length / 2 } else { self.length };
        bytes * 8
    }
}

impl Row {
    /// The bytes of a value.
    pub(crate) fn bytes(&self) -> usize {
        match self.name {
            // Fields that are wider on the wire than their bits ask for.
            "ct_state" | "ipv6_label" | "mpls_label" | "tun_erspan_idx" | "nsh_spi" => 4,
            "tun_flags" => 2,
            _ => usize::from(self.bits).div_ceil(8),
        }
    }
}

impl Field {
    fn numbered(self, name: &'static str) -> Cow<'static, str> {
        if self.row.family > 1 { Cow::Owned(format!("{name}{}", self.index)) } else { Cow::Borrowed(name) }
    }

    /// The name in `set_field`.
    pub(crate) fn name(self) -> Cow<'static, str> {
        self.numbered(self.row.name)
    }

    /// The name in a match.
    pub(crate) fn matched(self) -> Cow<'static, str> {
        self.numbered(self.row.matched)
    }

    /// The name where a part of it is meant.
    pub(crate) fn label(self) -> Cow<'static, str> {
        self.numbered(self.row.label)
    }
}

/// A number of any length, in hexadecimal, as C's `%#x` writes it.
pub(crate) fn hex(bytes: &[u8], out: &mut String) {
    let Some(first) = bytes.iter().position(|byte| *byte != 0) else {
        out.push('0');
        return;
    };
    let _ = write!(out, "{:#x}", bytes[first]);
    for byte in &bytes[first + 1..] {
        let _ = write!(out, "{byte:02x}");
    }
}

/// The last eight bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// A hardware address.
pub(crate) fn mac(bytes: &[u8], out: &mut String) {
    for (index, byte) in bytes.iter().enumerate() {
        let _ = write!(out, "{}{byte:02x}", if index == 0 { "" } else { ":" });
    }
}

/// A port, by its number or the name of its role. `wide` numbers have 32 bits, others 16.
pub(crate) fn port(number: u64, wide: bool, out: &mut String) {
    let reserved = if wide { number.checked_sub(0xffff_0000) } else { Some(number) };
    let name = match reserved {
        Some(0xfff7) => "UNSET",
        Some(0xfff8) => "IN_PORT",
        Some(0xfff9) => "TABLE",
        Some(0xfffa) => "NORMAL",
        Some(0xfffb) => "FLOOD",
        Some(0xfffc) => "ALL",
        Some(0xfffd) => "CONTROLLER",
        Some(0xfffe) => "LOCAL",
        Some(0xffff) => "ANY",
        _ => {
            let _ = write!(out, "{number}");
            return;
        }
    };
    out.push_str(name);
}

fn leading_ones(mask: &[u8]) -> Option<u32> {
    let ones: u32 = mask
        .iter()
        .map(|byte| byte.leading_ones())
        .take_while({
            let mut whole = true;
            move |ones| std::mem::replace(&mut whole, *ones == 8)
        })
        .sum();
    (mask.iter().map(|byte| byte.count_ones()).sum::<u32>() == ones).then_some(ones)
}

fn address(bytes: &[u8], out: &mut String) {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        let _ = write!(out, "{}", Ipv4Addr::from(four));
    } else if let Ok(sixteen) = <[u8; 16]>::try_from(bytes) {
        out.push_str(&ipv6(Ipv6Addr::from(sixteen)));
    } else {
        hex(bytes, out);
    }
}

/// An address as C's `inet_ntop` writes it, which shows the last two words of a compatible address with dots.
pub(crate) fn ipv6(address: Ipv6Addr) -> String {
    let words = address.segments();
    if words[..6].iter().all(|word| *word == 0) && words[6] != 0 {
        let [.., a, b, c, d] = address.octets();
        return format!("::{a}.{b}.{c}.{d}");
    }
    address.to_string()
}

/// An address and the network it stands for.
pub(crate) fn network(value: &[u8], mask: Option<&[u8]>, out: &mut String) {
    address(value, out);
    let Some(mask) = mask.filter(|mask| mask.iter().any(|byte| *byte != 0xff)) else { return };
    out.push('/');
    match leading_ones(mask) {
        Some(ones) => {
            let _ = write!(out, "{ones}");
        }
        None => address(mask, out),
    }
}

/// A value as `set_field` and `learn` write it. A mask of ones is none.
pub(crate) fn value(format: Format, value: &[u8], mask: Option<&[u8]>, out: &mut String) {
    let mask = mask.filter(|mask| mask.iter().any(|byte| *byte != 0xff));
    match format {
        Format::Ipv4 | Format::Ipv6 => return network(value, mask, out),
        Format::Ethernet => {
            mac(value, out);
            if let Some(mask) = mask {
                out.push('/');
                mac(mask, out);
            }
            return;
        }
        Format::Port => port(number(value), value.len() > 2, out),
        Format::Decimal if value.len() <= 8 => {
            let _ = write!(out, "{}", number(value));
        }
        Format::Frag if mask.is_none() || mask == Some(&[3]) => return frag(number(value), 3, out),
        Format::TcpFlags => return flags(number(value), mask.map_or(0xfff, number), 0xfff, &TCP_FLAGS, out),
        Format::TunFlags => return flags(number(value), mask.map_or(1, number), 1, &TUN_FLAGS, out),
        Format::CtState => return flags(number(value), mask.map_or(u64::MAX, number), u64::MAX, &CT_STATES, out),
        Format::Hex | Format::Decimal | Format::Frag => hex(value, out),
    }
    if let Some(mask) = mask {
        out.push('/');
        hex(mask, out);
    }
}

/// States of a tracked connection, from the lowest bit.
pub(crate) static CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
/// TCP's flags, from the lowest bit.
pub(crate) static TCP_FLAGS: [&str; 12] =
    ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];
/// A tunnel's flags.
pub(crate) static TUN_FLAGS: [&str; 1] = ["oam"];

/// Flags: `a|b` where all are known, `+a-b` where only some are asked for.
pub(crate) fn flags(value: u64, mask: u64, all: u64, names: &[&str], out: &mut String) {
    if mask & all == all {
        if value == 0 {
            out.push('0');
            return;
        }
        let mut first = true;
        for (bit, name) in names.iter().enumerate().filter(|(bit, _)| value >> bit & 1 == 1) {
            let _ = bit;
            out.push_str(if std::mem::take(&mut first) { "" } else { "|" });
            out.push_str(name);
        }
        return;
    }
    for (bit, name) in names.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1) {
        out.push(if value >> bit & 1 == 1 { '+' } else { '-' });
        out.push_str(name);
    }
}

/// Which pieces of a packet are meant.
pub(crate) fn frag(value: u64, mask: u64, out: &mut String) {
    const ANY: u64 = 1;
    out.push_str(match (mask & 3, value & 3) {
        (3 | ANY, 0) => "no",
        (3, 1) => "first",
        (3, 2) => "<error>",
        (ANY, _) => "yes",
        (2, 0) => "not_later",
        (2 | 3, _) => "later",
        _ => "<error>",
    });
}
