//! `learn(…)`: a flow that makes flows.

use std::fmt::Write as _;

use super::{
    action::Subfield,
    field::{self, Header},
    wire::Reader,
};

/// The priority that is not mentioned.
const DEFAULT_PRIORITY: u16 = 0x8000;

/// `body` follows the subtype. The second form of the action has a limit and a place for the outcome.
pub(crate) fn format(body: &[u8], second: bool, out: &mut String) -> Option<()> {
    let mut from = Reader::new(body);
    let (idle, hard, priority) = (from.u16()?, from.u16()?, from.u16()?);
    let cookie = from.u64()?;
    let flags = from.u16()?;
    let table = from.u8()?;
    from.skip(1)?;
    let (fin_idle, fin_hard) = (from.u16()?, from.u16()?);
    let _ = write!(out, "learn(table={table}");
    for (name, seconds) in
        [("idle_timeout", idle), ("hard_timeout", hard), ("fin_idle_timeout", fin_idle), ("fin_hard_timeout", fin_hard)]
    {
        if seconds != 0 {
            let _ = write!(out, ",{name}={seconds}");
        }
    }
    if priority != DEFAULT_PRIORITY {
        let _ = write!(out, ",priority={priority}");
    }
    out.push_str(if flags & 1 != 0 { ",send_flow_rem" } else { "" });
    out.push_str(if flags & 2 != 0 { ",delete_learned" } else { "" });
    if cookie != 0 {
        let _ = write!(out, ",cookie={cookie:#x}");
    }
    if second {
        let limit = from.u32()?;
        let start = from.u16()?;
        from.skip(2)?;
        if limit != 0 {
            let _ = write!(out, ",limit={limit}");
        }
        if flags & 4 != 0 {
            let _ = write!(out, ",result_dst={}", Subfield::read(&mut from, start, 1)?);
        }
    }
    while from.rest().len() >= 2 {
        let spec = from.u16()?;
        if spec == 0 {
            break;
        }
        out.push(',');
        format_spec(spec, &mut from, out)?;
    }
    out.push(')');
    Some(())
}

fn format_spec(spec: u16, from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    let bits = spec & 0x3ff;
    let constant = spec >> 13 & 1 == 1;
    let (mut value, mut source) = (&[][..], None);
    if constant {
        value = from.take(usize::from(bits).div_ceil(16) * 2)?;
    } else {
        let header = Header::read(from)?;
        source = Some(Subfield::of(&header, from.u16()?, bits));
    }
    let kind = spec >> 11 & 3;
    if kind == 2 {
        let _ = write!(out, "output:{}", source?);
        return Some(());
    }
    let header = Header::read(from)?;
    let target = Subfield::of(&header, from.u16()?, bits);
    match (kind, source) {
        (0, None) => {
            if let Some(field) = header.field().filter(|_| target.is_whole()) {
                let _ = write!(out, "{}=", field.name());
                let bytes = field.row.bytes();
                field::value(field.row.format, &value[value.len().saturating_sub(bytes)..], None, out);
            } else {
                let _ = write!(out, "{target}=");
                field::hex(value, out);
            }
        }
        (0, Some(source)) if source == target => {
            let _ = write!(out, "{target}");
        }
        (0, Some(source)) => {
            let _ = write!(out, "{target}={source}");
        }
        (1, None) => {
            out.push_str("load:");
            field::hex(value, out);
            let _ = write!(out, "->{target}");
        }
        (1, Some(source)) => {
            let _ = write!(out, "load:{source}->{target}");
        }
        _ => return None,
    }
    Some(())
}
