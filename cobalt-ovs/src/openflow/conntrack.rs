//! Connection tracking and address translation, as text.

use std::{fmt::Write as _, net::IpAddr};

use super::{
    action::{MAX_DEPTH, Subfield, each, format_list},
    field,
    wire::Reader,
};

/// `ct(…)`. `body` follows the subtype.
pub(crate) fn format_ct(body: &[u8], depth: u8, out: &mut String) -> Option<()> {
    (depth < MAX_DEPTH).then_some(())?;
    let mut from = Reader::new(body);
    let flags = from.u16()?;
    // The zone is a part of a field, or a number where the field is zero.
    let zone = from;
    let source = from.u32()?;
    let number = from.u16()?;
    let table = from.u8()?;
    from.skip(3)?;
    let alg = from.u16()?;
    out.push_str("ct(");
    if flags & 1 != 0 {
        out.push_str("commit,");
    }
    if flags & 2 != 0 {
        out.push_str("force,");
    }
    if table != u8::MAX {
        let _ = write!(out, "table={table},");
    }
    if source != 0 {
        let _ = write!(out, "zone={},", Subfield::packed(&mut { zone }, number)?);
    } else if number != 0 {
        let _ = write!(out, "zone={number},");
    }
    format_nested(from.rest(), depth, out);
    match alg {
        0 => {}
        21 => out.push_str("alg=ftp,"),
        69 => out.push_str("alg=tftp,"),
        other => {
            let _ = write!(out, "alg={other},");
        }
    }
    if out.ends_with(',') {
        out.pop();
    }
    out.push(')');
    Some(())
}

/// Translation stands by itself, everything else in `exec(…)`.
fn format_nested(actions: &[u8], depth: u8, out: &mut String) {
    let mut executed = 0;
    let mut rest = actions;
    each(actions, |action| match action {
        Ok(action) if executed == 0 && action.extension().is_some_and(|(subtype, _)| subtype == 36) => {
            action.format(depth + 1, out);
            out.push(',');
            let length = actions.len() - rest.len() + action.wire_len();
            rest = actions.get(length..).unwrap_or_default();
        }
        _ => executed += 1,
    });
    if executed > 0 {
        out.push_str("exec(");
        format_list(rest, depth + 1, out);
        out.push_str("),");
    }
}

/// `nat(…)`. `body` follows the subtype.
pub(crate) fn format_nat(body: &[u8], out: &mut String) -> Option<()> {
    let mut from = Reader::new(body);
    from.skip(2)?;
    let (flags, present) = (from.u16()?, from.u16()?);
    let has = |bit: u16| present >> bit & 1 == 1;
    out.push_str("nat");
    let direction = match flags & 3 {
        1 => "src",
        2 => "dst",
        _ => return Some(()),
    };
    let _ = write!(out, "({direction}");
    let mut low = if has(0) { Some(IpAddr::V4(from.ipv4()?)) } else { None };
    let mut high = if has(1) { Some(IpAddr::V4(from.ipv4()?)) } else { None };
    if has(2) {
        low = Some(IpAddr::V6(from.ipv6()?));
    }
    if has(3) {
        high = Some(IpAddr::V6(from.ipv6()?));
    }
    let ports = if has(4) { Some(from.u16()?) } else { None };
    let last_port = if has(5) { Some(from.u16()?) } else { None };
    if low.is_some() || ports.is_some() {
        out.push('=');
    }
    if let Some(low) = low {
        let six = low.is_ipv6() && ports.is_some();
        out.push_str(if six { "[" } else { "" });
        address(low, out);
        if let Some(high) = high.filter(|high| *high != low) {
            out.push('-');
            address(high, out);
        }
        out.push_str(if six { "]" } else { "" });
    }
    if let Some(first) = ports {
        let _ = write!(out, ":{first}");
        if let Some(last) = last_port.filter(|last| *last != first) {
            let _ = write!(out, "-{last}");
        }
    }
    for (bit, word) in [(4, ",persistent"), (8, ",hash"), (16, ",random")] {
        out.push_str(if flags & bit != 0 { word } else { "" });
    }
    out.push(')');
    Some(())
}

fn address(address: IpAddr, out: &mut String) {
    match address {
        IpAddr::V4(address) => {
            let _ = write!(out, "{address}");
        }
        IpAddr::V6(address) => out.push_str(&field::ipv6(address)),
    }
}
