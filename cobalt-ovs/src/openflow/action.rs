//! What a flow does, as text: the actions of the standard, and the instructions around them.
//!
//! An action that nobody here knows, or one that is not whole, is shown with its numbers and its bytes. A dump is for
//! people who look for what is wrong: it must not end where it gets interesting.

use std::fmt::Write as _;

use super::{
    field::{self, Header},
    nicira,
    wire::{Reader, dotted},
};

/// How deep actions may lie in actions (`clone(clone(…))`); what lies deeper is shown as bytes.
pub(crate) const MAX_DEPTH: u8 = 8;

/// The maker of the extensions, as an experimenter.
pub(crate) const NICIRA: u32 = 0x2320;

/// The standard's own extensions.
const ONF: u32 = 0x4f4e_4600;

/// Writes `actions`, with commas between.
pub(crate) fn format_list(actions: &[u8], depth: u8, out: &mut String) {
    let mut first = true;
    each(actions, |action| {
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        match action {
            Ok(action) => action.format(depth, out),
            Err(rest) => {
                out.push_str("malformed(");
                dotted(rest, out);
                out.push(')');
            }
        }
    });
}

/// One action, cut out.
#[derive(Clone, Copy)]
pub(crate) struct Action<'a> {
    kind: u16,
    /// After type and length.
    body: &'a [u8],
}

/// Calls `visit` for each action, at last with the bytes that are none.
pub(crate) fn each<'a>(actions: &'a [u8], mut visit: impl FnMut(Result<Action<'a>, &'a [u8]>)) {
    let mut from = Reader::new(actions);
    while !from.is_empty() {
        let start = from.rest();
        let Some(action) = Action::read(&mut from) else {
            visit(Err(start));
            return;
        };
        visit(Ok(action));
    }
}

impl<'a> Action<'a> {
    fn read(from: &mut Reader<'a>) -> Option<Self> {
        let kind = from.u16()?;
        let length = usize::from(from.u16()?);
        // A shorter one would be read for ever.
        let body = from.take(length.checked_sub(4).filter(|body| *body >= 4)?)?;
        Some(Self { kind, body })
    }

    /// Its bytes on the wire.
    pub(crate) fn wire_len(self) -> usize {
        self.body.len() + 4
    }

    /// The number and the body of an extension.
    pub(crate) fn extension(self) -> Option<(u16, &'a [u8])> {
        let mut from = Reader::new(self.body);
        (self.kind == 0xffff && from.u32()? == NICIRA).then_some(())?;
        Some((from.u16()?, from.rest()))
    }

    pub(crate) fn format(self, depth: u8, out: &mut String) {
        let start = out.len();
        let done = match self.extension() {
            Some((subtype, body)) => nicira::format(subtype, body, depth, out),
            None => standard(self.kind, self.body, out),
        };
        if done.is_none() {
            out.truncate(start);
            self.format_unknown(out);
        }
    }

    fn format_unknown(self, out: &mut String) {
        let mut from = Reader::new(self.body);
        let parts = (self.kind == 0xffff).then(|| Some((from.u32()?, from.u16()?))).flatten();
        if let Some((vendor, subtype)) = parts {
            let _ = write!(out, "experimenter(vendor={vendor:#x},type={subtype},");
        } else {
            let _ = write!(out, "action(type={},", self.kind);
            from = Reader::new(self.body);
        }
        dotted(from.rest(), out);
        out.push(')');
    }
}

/// The actions of the standard; `None` for one that we do not know or that is not whole.
fn standard(kind: u16, body: &[u8], out: &mut String) -> Option<()> {
    let mut from = Reader::new(body);
    let _ = match kind {
        0 => {
            let (port, max_len) = (from.u32()?, from.u16()?);
            output(u64::from(port), true, max_len, out);
            Ok(())
        }
        11 => write!(out, "copy_ttl_out"),
        12 => write!(out, "copy_ttl_in"),
        15 => write!(out, "set_mpls_ttl({})", from.u8()?),
        16 => write!(out, "dec_mpls_ttl"),
        17 => write!(out, "push_vlan:{:#06x}", from.u16()?),
        18 => write!(out, "pop_vlan"),
        19 => write!(out, "push_mpls:{:#06x}", from.u16()?),
        20 => write!(out, "pop_mpls:{:#06x}", from.u16()?),
        21 => write!(out, "set_queue:{}", from.u32()?),
        22 => write!(out, "group:{}", from.u32()?),
        23 => write!(out, "mod_nw_ttl:{}", from.u8()?),
        24 => write!(out, "dec_ttl"),
        25 => {
            set_field(&mut from, out)?;
            Ok(())
        }
        28 => return copy_field(&mut from, out),
        29 => write!(out, "meter:{}", from.u32()?),
        // What became of copying in 1.5, as 1.4 has it.
        0xffff => {
            (from.u32()? == ONF && from.u16()? == 3200).then_some(())?;
            from.skip(2)?;
            return copy_field(&mut from, out);
        }
        _ => return None,
    };
    Some(())
}

fn copy_field(from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    let (bits, source_at, target_at) = (from.u16()?, from.u16()?, from.u16()?);
    from.skip(2)?;
    let source = Subfield::read(from, source_at, bits)?;
    let target = Subfield::read(from, target_at, bits)?;
    let _ = write!(out, "move:{source}->{target}");
    Some(())
}

/// Sending to a port.
pub(crate) fn output(port: u64, wide: bool, max_len: u16, out: &mut String) {
    let mut name = String::new();
    field::port(port, wide, &mut name);
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        out.push_str("output:");
    }
    out.push_str(&name);
    if name == "CONTROLLER" {
        let _ = write!(out, ":{max_len}");
    }
}

/// A value put into a field, with a mask or without.
pub(crate) fn set_field(from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    let header = Header::read(from)?;
    let payload = from.take(header.length)?;
    let (value, mask) = if header.masked {
        let (value, mask) = payload.split_at(payload.len() / 2);
        (value, Some(mask))
    } else {
        (payload, None)
    };
    out.push_str("set_field:");
    if let Some(field) = header.field() {
        field::value(field.row.format, value, mask, out);
        let _ = write!(out, "->{}", field.name());
    } else {
        field::value(field::Format::Hex, value, mask, out);
        let _ = write!(out, "->{}", header.unknown());
    }
    Some(())
}

/// A part of a field.
pub(crate) struct Subfield {
    name: String,
    width: usize,
    start: u16,
    bits: u16,
}

impl Subfield {
    /// Takes the field's header; the part is named before it.
    pub(crate) fn read(from: &mut Reader<'_>, start: u16, bits: u16) -> Option<Self> {
        let header = Header::read(from)?;
        Some(Self::of(&header, start, bits))
    }

    pub(crate) fn of(header: &Header, start: u16, bits: u16) -> Self {
        match header.field() {
            Some(field) => Self { name: field.label().into_owned(), width: usize::from(field.row.bits), start, bits },
            None => Self { name: header.unknown(), width: header.wire_bits(), start, bits },
        }
    }

    /// With start and length in one word: ten bits and six.
    pub(crate) fn packed(from: &mut Reader<'_>, packed: u16) -> Option<Self> {
        Self::read(from, packed >> 6, (packed & 0x3f) + 1)
    }

    /// Whether it is the whole field.
    pub(crate) fn is_whole(&self) -> bool {
        self.start == 0 && usize::from(self.bits) == self.width
    }
}

impl std::fmt::Display for Subfield {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, start, bits, .. } = self;
        if self.is_whole() {
            write!(f, "{name}[]")
        } else if *bits == 1 {
            write!(f, "{name}[{start}]")
        } else {
            write!(f, "{name}[{start}..{}]", u32::from(*start) + u32::from(*bits).saturating_sub(1))
        }
    }
}

impl PartialEq for Subfield {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.start, self.bits) == (&other.name, other.start, other.bits)
    }
}

/// Writes the instructions of a flow. A flow without any drops.
pub(crate) fn format_instructions(instructions: &[u8], out: &mut String) {
    let start = out.len();
    let mut from = Reader::new(instructions);
    while !from.is_empty() {
        if out.len() > start && !out.ends_with(',') {
            out.push(',');
        }
        let rest = from.rest();
        if instruction(&mut from, out).is_none() {
            out.push_str("malformed(");
            dotted(rest, out);
            out.push(')');
            break;
        }
    }
    while out.len() > start && out.ends_with(',') {
        out.pop();
    }
    if out.len() == start {
        out.push_str("drop");
    }
}

fn instruction(from: &mut Reader<'_>, out: &mut String) -> Option<()> {
    let kind = from.u16()?;
    let length = usize::from(from.u16()?);
    let body = from.take(length.checked_sub(4).filter(|body| *body >= 4)?)?;
    let mut body = Reader::new(body);
    let _ = match kind {
        1 => write!(out, "goto_table:{}", body.u8()?),
        2 => {
            body.skip(4)?;
            let (value, mask) = (body.u64()?, body.u64()?);
            write!(out, "write_metadata:{value:#x}")
                .and_then(|()| if mask == u64::MAX { Ok(()) } else { write!(out, "/{mask:#x}") })
        }
        3 => {
            body.skip(4)?;
            out.push_str("write_actions(");
            format_list(body.rest(), 0, out);
            write!(out, ")")
        }
        4 => {
            body.skip(4)?;
            format_list(body.rest(), 0, out);
            Ok(())
        }
        5 => write!(out, "clear_actions"),
        6 => write!(out, "meter:{}", body.u32()?),
        _ => {
            let _ = write!(out, "instruction(type={kind},");
            dotted(body.rest(), out);
            write!(out, ")")
        }
    };
    Some(())
}
