//! Typed parameters: libvirt's way to return numbers it had not thought of when the call was made.
//!
//! A list of them is a name and a value of one of seven types each, such as `cpu.time` or `block.0.rd.bytes`. Which
//! type a number has differs between drivers and versions, so access is by what is wanted, not by what was sent:
//! [`TypedParams::get_u64`] takes every integer that fits.
//!
//! A list stays in the memory of the message it came in. Reading one makes no allocation at all, and a bulk reply with
//! a hundred parameters for each of three hundred domains costs nothing for those nobody looks at.
//!
//! ```
//! use cobalt_libvirt::typed::TypedParams;
//!
//! let params = TypedParams::builder().with("cpu.time", 1200_u64).with("state.state", 1).with("net.0.name", "tap0").build();
//! assert_eq!(params.get_u64("cpu.time"), Some(1200));
//! assert_eq!(params.get_u64("state.state"), Some(1), "an int is a number, too");
//! assert_eq!(params.get_str("net.0.name").as_deref(), Some("tap0"));
//! assert_eq!(params.get_u64("net.0.name"), None);
//! assert_eq!(params.iter().count(), 3);
//! ```

#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt};

use bytes::Bytes;

use crate::xdr::{Decode, Encode, MAX_LENGTH, Reader, Result, Writer, XdrError};

/// One value, borrowed from its message.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// 32 bits, signed.
    Int(i32),
    /// 32 bits, unsigned.
    Uint(u32),
    /// 64 bits, signed.
    Llong(i64),
    /// 64 bits, unsigned.
    Ullong(u64),
    /// Floating point.
    Double(f64),
    /// Yes or no.
    Boolean(bool),
    /// Text, which need not be UTF-8: see [`Value::as_str`].
    String(&'a [u8]),
}

impl<'a> Value<'a> {
    /// As an unsigned number, if it is an integer and not negative.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Self::Int(value) => value.try_into().ok(),
            Self::Uint(value) => Some(value.into()),
            Self::Llong(value) => value.try_into().ok(),
            Self::Ullong(value) => Some(value),
            Self::Boolean(value) => Some(value.into()),
            Self::Double(_) | Self::String(_) => None,
        }
    }

    /// As a signed number, if it is an integer that fits.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value.into()),
            Self::Uint(value) => Some(value.into()),
            Self::Llong(value) => Some(value),
            Self::Ullong(value) => value.try_into().ok(),
            Self::Boolean(value) => Some(value.into()),
            Self::Double(_) | Self::String(_) => None,
        }
    }

    /// As a floating point number, if it is any number; large integers are rounded.
    #[allow(clippy::cast_precision_loss)]
    pub fn as_f64(self) -> Option<f64> {
        match self {
            Self::Double(value) => Some(value),
            Self::Ullong(value) => Some(value as f64),
            other => other.as_i64().map(|value| value as f64),
        }
    }

    /// As yes or no, if it is an integer.
    pub fn as_bool(self) -> Option<bool> {
        match self {
            Self::Ullong(value) => Some(value != 0),
            other => other.as_i64().map(|value| value != 0),
        }
    }

    /// As text, if it is text. What is not UTF-8 is replaced.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        match self {
            Self::String(bytes) => Some(String::from_utf8_lossy(bytes)),
            _ => None,
        }
    }

    /// Skips one value, checking that it is there.
    #[inline]
    fn skip(from: &mut Reader<'_>) -> Result<()> {
        let offset = from.offset();
        match from.i32()? {
            1 | 2 | 6 => from.fixed(4).map(drop),
            3..=5 => from.fixed(8).map(drop),
            7 => from.opaque(MAX_LENGTH).map(drop),
            kind => Err(XdrError::UnknownKind { offset, kind }),
        }
    }

    #[inline]
    fn read(from: &mut Reader<'a>) -> Result<Self> {
        let offset = from.offset();
        Ok(match from.i32()? {
            1 => Self::Int(from.i32()?),
            2 => Self::Uint(from.u32()?),
            3 => Self::Llong(from.i64()?),
            4 => Self::Ullong(from.u64()?),
            5 => Self::Double(from.f64()?),
            6 => Self::Boolean(from.bool()?),
            7 => Self::String(from.opaque(MAX_LENGTH)?),
            kind => return Err(XdrError::UnknownKind { offset, kind }),
        })
    }
}

impl Encode for Value<'_> {
    fn encode(&self, out: &mut Writer) {
        match *self {
            Self::Int(value) => (1, value).encode(out),
            Self::Uint(value) => (2, value).encode(out),
            Self::Llong(value) => (3, value).encode(out),
            Self::Ullong(value) => (4, value).encode(out),
            Self::Double(value) => (5, value).encode(out),
            Self::Boolean(value) => (6, value).encode(out),
            Self::String(value) => {
                out.i32(7);
                out.opaque(value);
            }
        }
    }
}

macro_rules! value_from {
    ($($kind:ty => $variant:ident),*) => {$(
        impl From<$kind> for Value<'_> {
            fn from(value: $kind) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}

value_from!(i32 => Int, u32 => Uint, i64 => Llong, u64 => Ullong, f64 => Double, bool => Boolean);

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(text.as_bytes())
    }
}

/// A list of named values, in the order in which they were sent.
#[derive(Clone, Default)]
pub struct TypedParams {
    /// As on the wire, without the count; known to be well formed.
    data: Bytes,
    count: usize,
}

impl TypedParams {
    /// Starts a list of our own.
    pub fn builder() -> TypedParamsBuilder {
        TypedParamsBuilder::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, names and values. One pass with a `match` on the name is the cheapest way to get many.
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: Reader::new(&self.data) }
    }

    /// The first value of that name, whatever its type.
    pub fn get(&self, name: &str) -> Option<Value<'_>> {
        let mut reader = Reader::new(&self.data);
        while !reader.rest().is_empty() {
            if reader.opaque(MAX_LENGTH).ok()? == name.as_bytes() {
                return Value::read(&mut reader).ok();
            }
            Value::skip(&mut reader).ok()?;
        }
        None
    }

    /// The unsigned number of that name: every integer type will do, a negative one will not.
    pub fn get_u64(&self, name: &str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// The signed number of that name: every integer type will do.
    pub fn get_i64(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_i64()
    }

    /// The number of that name, of any type.
    pub fn get_f64(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }

    /// The yes or no of that name.
    pub fn get_bool(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// The text of that name.
    pub fn get_str(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name)?.as_str()
    }
}

impl fmt::Debug for TypedParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl PartialEq for TypedParams {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl Encode for TypedParams {
    fn encode(&self, out: &mut Writer) {
        out.length(self.count);
        out.raw(&self.data);
    }
}

impl Decode for TypedParams {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        // The smallest parameter is an empty name and an int.
        let count = from.count(MAX_LENGTH, 12)?;
        let start = from.rest();
        for _ in 0..count {
            from.opaque(MAX_LENGTH)?;
            Value::skip(from)?;
        }
        let used = start.len() - from.rest().len();
        Ok(Self { data: from.share(&start[..used]), count })
    }
}

impl<'a> IntoIterator for &'a TypedParams {
    type Item = (&'a str, Value<'a>);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Goes through the parameters of a list. One whose name is not UTF-8 has no name that anybody could ask for, and is
/// passed over.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.rest().is_empty() {
            let name = self.rest.opaque(MAX_LENGTH).ok()?;
            let value = Value::read(&mut self.rest).ok()?;
            if let Ok(name) = std::str::from_utf8(name) {
                return Some((name, value));
            }
        }
        None
    }
}

/// Puts a list together.
#[derive(Debug, Clone, Default)]
pub struct TypedParamsBuilder {
    data: Writer,
    count: usize,
}

impl TypedParamsBuilder {
    /// Adds a value at the end. Its type on the wire is that of the argument: `1` is an int, `1_u64` a ullong.
    #[must_use]
    pub fn with<'a>(mut self, name: &str, value: impl Into<Value<'a>>) -> Self {
        self.push(name, value);
        self
    }

    /// Adds a value at the end.
    pub fn push<'a>(&mut self, name: &str, value: impl Into<Value<'a>>) {
        self.data.string(name);
        value.into().encode(&mut self.data);
        self.count += 1;
    }

    /// The list.
    pub fn build(self) -> TypedParams {
        TypedParams { data: self.data.into_bytes().into(), count: self.count }
    }
}

impl<'a, N: AsRef<str>, V: Into<Value<'a>>> FromIterator<(N, V)> for TypedParams {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(params: I) -> Self {
        let mut builder = Self::builder();
        for (name, value) in params {
            builder.push(name.as_ref(), value);
        }
        builder.build()
    }
}
