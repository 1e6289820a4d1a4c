//! The extensions that Open vSwitch brings and OVN lives on.

use std::fmt::Write as _;

use super::{
    action::{MAX_DEPTH, Subfield, format_list, output, set_field},
    conntrack,
    field::{self, Header},
    learn,
    wire::{Reader, dotted},
};

/// Writes one extension; `None` for one that we do not know or that is not whole. `body` follows the subtype.
pub(crate) fn format(subtype: u16, body: &[u8], depth: u8, out: &mut String) -> Option<()> {
    let mut from = Reader::new(body);
    let _ = match subtype {
        1 | 14 | 44 => {
            let (port, table) = (from.u16()?, from.u8()?);
            resubmit(port, if subtype == 1 { u8::MAX } else { table }, subtype == 44, out);
            Ok(())
        }
        2 => {
            from.skip(2)?;
            write!(out, "set_tunnel:{:#x}", from.u32()?)
        }
        4 => {
            from.skip(2)?;
            write!(out, "set_queue:{}", from.u32()?)
        }
        5 => write!(out, "pop_queue"),
        6 => {
            let (bits, source_at, target_at) = (from.u16()?, from.u16()?, from.u16()?);
            let source = Subfield::read(&mut from, source_at, bits)?;
            let target = Subfield::read(&mut from, target_at, bits)?;
            write!(out, "move:{source}->{target}")
        }
        7 => {
            let packed = from.u16()?;
            let target = Subfield::packed(&mut from, packed)?;
            write!(out, "load:{}->{target}", Hex(from.u64()?))
        }
        8 => {
            out.push_str("note:");
            dotted(from.rest(), out);
            Ok(())
        }
        9 => {
            from.skip(6)?;
            write!(out, "set_tunnel64:{:#x}", from.u64()?)
        }
        10 => return multipath(&mut from, out),
        12 | 13 => return bundle(&mut from, subtype == 13, out),
        15 => {
            let packed = from.u16()?;
            write!(out, "output:{}", Subfield::packed(&mut from, packed)?)
        }
        16 | 45 => return learn::format(body, subtype == 45, out),
        17 => write!(out, "exit"),
        18 => write!(out, "dec_ttl"),
        19 => {
            let (idle, hard) = (from.u16()?, from.u16()?);
            out.push_str("fin_timeout(");
            if idle != 0 {
                let _ = write!(out, "idle_timeout={idle},");
            }
            if hard != 0 {
                let _ = write!(out, "hard_timeout={hard},");
            }
            close(out);
            Ok(())
        }
        20 => {
            let (max_len, id, reason) = (from.u16()?, from.u16()?, from.u8()?);
            Controller { max_len, id, reason, ..Controller::default() }.format(out);
            Ok(())
        }
        21 => {
            let count = from.u16()?;
            from.skip(4)?;
            out.push_str("dec_ttl(");
            for _ in 0..count {
                let _ = write!(out, "{},", from.u16()?);
            }
            close(out);
            Ok(())
        }
        22 => {
            from.skip(6)?;
            let (value, mask) = (from.u64()?, from.u64()?);
            write!(out, "write_metadata:{value:#x}")
                .and_then(|()| if mask == u64::MAX { Ok(()) } else { write!(out, "/{mask:#x}") })
        }
        23 => write!(out, "push_mpls:{:#06x}", from.u16()?),
        24 => write!(out, "pop_mpls:{:#06x}", from.u16()?),
        25 => write!(out, "set_mpls_ttl({})", from.u8()?),
        26 => write!(out, "dec_mpls_ttl"),
        27 | 28 => {
            let start = from.u16()?;
            let header = Header::read(&mut from)?;
            let part = Subfield::of(&header, start, from.u16()?);
            write!(out, "{}:{part}", if subtype == 27 { "push" } else { "pop" })
        }
        29 | 38 | 41 | 51 => return sample(&mut from, subtype, out),
        30 => {
            from.skip(2)?;
            write!(out, "set_mpls_label({})", from.u32()?)
        }
        31 => write!(out, "set_mpls_tc({})", from.u8()?),
        32 => {
            let (packed, _max_len) = (from.u16()?, from.u16()?);
            write!(out, "output:{}", Subfield::packed(&mut from, packed)?)
        }
        33 => {
            from.skip(6)?;
            return set_field(&mut from, out);
        }
        34 => {
            let (clause, clauses) = (from.u8()?, from.u8()?);
            write!(out, "conjunction({},{}/{clauses})", from.u32()?, u16::from(clause) + 1)
        }
        35 => return conntrack::format_ct(body, depth, out),
        36 => return conntrack::format_nat(body, out),
        37 => return controller2(&mut from, out),
        39 => {
            let (port, max_len) = (from.u16()?, from.u32()?);
            out.push_str("output(port=");
            field::port(u64::from(port), false, out);
            write!(out, ",max_len={max_len})")
        }
        42 => {
            from.skip(6)?;
            (depth < MAX_DEPTH).then_some(())?;
            out.push_str("clone(");
            if from.is_empty() {
                out.push_str("drop");
            }
            format_list(from.rest(), depth + 1, out);
            write!(out, ")")
        }
        43 => write!(out, "ct_clear"),
        46 => return encap(&mut from, out),
        47 => {
            from.skip(2)?;
            match from.u32()? {
                0xfffe => write!(out, "decap()"),
                kind => write!(out, "decap(packet_type(ns={},id={:#x}))", kind >> 16, kind & 0xffff),
            }
        }
        48 => write!(out, "dec_nsh_ttl"),
        49 => {
            let (larger, bit) = (from.u16()?, from.u16()?);
            write!(out, "check_pkt_larger({larger})->{}", Subfield::read(&mut from, bit, 1)?)
        }
        50 => {
            let header = Header::read(&mut from)?;
            let name = header.field().map_or_else(|| header.unknown(), |field| field.name().into_owned());
            write!(out, "delete_field:{name}")
        }
        _ => return None,
    };
    Some(())
}

/// A number as C's `%#x` writes it.
struct Hex(u64);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

/// Ends a list in brackets, the last comma of which is too much.
fn close(out: &mut String) {
    if out.ends_with(',') {
        out.pop();
    }
    out.push(')');
}

fn resubmit(port: u16, table: u8, ct: bool, out: &mut String) {
    const IN_PORT: u16 = 0xfff8;
    if port != IN_PORT && table == u8::MAX && !ct {
        out.push_str("resubmit:");
        field::port(u64::from(port), false, out);
        return;
    }
    out.push_str("resubmit(");
    if port != IN_PORT {
        field::port(u64::from(port), false, out);
    }
    out.push(',');
    if table != u8::MAX {
        let _ = write!(out, "{table}");
    }
    out.push_str(if ct { ",ct)" } else { ")" });
}

fn multipath(from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    let (fields, basis) = (from.u16()?, from.u16()?);
    from.skip(2)?;
    let (algorithm, max_link, argument) = (from.u16()?, from.u16()?, from.u32()?);
    from.skip(2)?;
    let packed = from.u16()?;
    let target = Subfield::packed(from, packed)?;
    let algorithm = match algorithm {
        0 => "modulo_n",
        1 => "hash_threshold",
        2 => "hrw",
        3 => "iter_hash",
        _ => "<unknown>",
    };
    let links = u32::from(max_link) + 1;
    let _ = write!(out, "multipath({},{basis},{algorithm},{links},{argument},{target})", hashed(fields));
    Some(())
}

fn bundle(from: &mut Reader<'_>, load: bool, out: &mut String) -> Option<()> {
    let (algorithm, fields, basis) = (from.u16()?, from.u16()?, from.u16()?);
    let (_member_type, count, packed) = (from.u32()?, from.u16()?, from.u16()?);
    let header = *from;
    let target = if load { Some(Subfield::packed(from, packed)?) } else { None };
    let mut from = header;
    from.skip(8)?;
    let algorithm = match algorithm {
        0 => "active_backup",
        1 => "hrw",
        _ => "<unknown>",
    };
    let _ = write!(out, "bundle{}({},{basis},{algorithm},ofport,", if load { "_load" } else { "" }, hashed(fields));
    if let Some(target) = target {
        let _ = write!(out, "{target},");
    }
    out.push_str("members:");
    for _ in 0..count {
        field::port(u64::from(from.u16()?), false, out);
        out.push(',');
    }
    close(out);
    Some(())
}

/// The fields a hash is made of.
fn hashed(fields: u16) -> &'static str {
    match fields {
        0 => "eth_src",
        1 => "symmetric_l4",
        2 => "symmetric_l3l4",
        3 => "symmetric_l3l4+udp",
        4 => "nw_src",
        5 => "nw_dst",
        6 => "symmetric_l3",
        _ => "<unknown>",
    }
}

fn sample(from: &mut Reader<'_>, subtype: u16, out: &mut String) -> Option<()> {
    let (probability, set, domain) = (from.u16()?, from.u32()?, from.u32()?);
    let _ = write!(out, "sample(probability={probability},collector_set_id={set},");
    if subtype == 51 {
        return None;
    }
    let _ = write!(out, "obs_domain_id={domain},obs_point_id={}", from.u32()?);
    if subtype != 29 {
        let (port, direction) = (from.u16()?, from.u8()?);
        if port != u16::MAX {
            out.push_str(",sampling_port=");
            field::port(u64::from(port), false, out);
        }
        out.push_str(match direction {
            1 => ",ingress",
            2 => ",egress",
            _ => "",
        });
    }
    out.push(')');
    Some(())
}

fn encap(from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    from.skip(2)?;
    match from.u32()? {
        0 => out.push_str("encap(ethernet)"),
        0x1_8847 => out.push_str("encap(mpls)"),
        0x1_8848 => out.push_str("encap(mpls_mc)"),
        0x1_894f => {
            out.push_str("encap(nsh(");
            while from.rest().len() >= 4 {
                let (class, kind, length) = (from.u16()?, from.u8()?, usize::from(from.u8()?));
                let value = from.take(length.checked_sub(4)?)?;
                from.skip((length.next_multiple_of(8) - length).min(from.rest().len()))?;
                let ((4, 1), [md_type]) = ((class, kind), value) else { return None };
                let _ = write!(out, "md_type={md_type},");
            }
            close(out);
            out.push(')');
        }
        _ => return None,
    }
    Some(())
}

/// A packet for the controller.
struct Controller<'a> {
    max_len: u16,
    id: u16,
    reason: u8,
    userdata: Option<&'a [u8]>,
    pause: bool,
    meter: Option<u32>,
}

impl Default for Controller<'_> {
    fn default() -> Self {
        Self { max_len: u16::MAX, id: 0, reason: 1, userdata: None, pause: false, meter: None }
    }
}

impl Controller<'_> {
    fn format(&self, out: &mut String) {
        let plain = self.reason == 1 && self.id == 0 && self.userdata.is_none() && !self.pause && self.meter.is_none();
        if plain {
            return output(0xfffd, false, self.max_len, out);
        }
        out.push_str("controller(");
        match self.reason {
            0 => out.push_str("reason=no_match,"),
            1 => {}
            2 => out.push_str("reason=invalid_ttl,"),
            3 => out.push_str("reason=action_set,"),
            4 => out.push_str("reason=group,"),
            5 => out.push_str("reason=packet_out,"),
            other => {
                let _ = write!(out, "reason={other},");
            }
        }
        if self.max_len != u16::MAX {
            let _ = write!(out, "max_len={},", self.max_len);
        }
        if self.id != 0 {
            let _ = write!(out, "id={},", self.id);
        }
        if let Some(userdata) = self.userdata {
            out.push_str("userdata=");
            dotted(userdata, out);
            out.push(',');
        }
        if self.pause {
            out.push_str("pause,");
        }
        if let Some(meter) = self.meter {
            let _ = write!(out, "meter_id={meter},");
        }
        close(out);
    }
}

fn controller2(from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    from.skip(6)?;
    let mut controller = Controller::default();
    while !from.is_empty() {
        let kind = from.u16()?;
        let length = usize::from(from.u16()?);
        let mut value = Reader::new(from.take(length.checked_sub(4)?)?);
        // The last one may come without its padding.
        let padding = length.next_multiple_of(8) - length;
        from.skip(padding.min(from.rest().len()))?;
        match kind {
            0 => controller.max_len = value.u16()?,
            1 => controller.id = value.u16()?,
            2 => controller.reason = value.u8()?,
            3 => controller.userdata = Some(value.rest()),
            4 => controller.pause = true,
            5 => controller.meter = Some(value.u32()?),
            _ => return None,
        }
    }
    controller.format(out);
    Some(())
}
