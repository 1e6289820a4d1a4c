//! XDR (RFC 4506), as far as libvirt uses it, in both directions.
//!
//! Everything takes a multiple of four bytes, big endian. [`Reader`] takes values off a slice and [`Writer`] appends
//! them; [`Decode`] and [`Encode`] say how a type does either. The bytes come from elsewhere, so reading never panics
//! and never reserves memory that the bytes at hand could not fill. Like libvirt itself the reader is lenient: padding
//! may hold anything, any non-zero word is `true`, and bytes after the last value are ignored.
//!
//! ```
//! use cobalt_libvirt::xdr::{self, Decode, Reader};
//!
//! let wire = xdr::to_bytes(&(String::from("web-1"), Some(7_u32)));
//! assert_eq!(wire.len(), 4 + 8 + 4 + 4);
//! let (name, id) = <(String, Option<u32>)>::decode(&mut Reader::new(&wire)).unwrap();
//! assert_eq!((name.as_str(), id), ("web-1", Some(7)));
//! ```

mod impls;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::impls::{CharArray, Opaque, Text};

/// The longest string, opaque or array we accept: libvirt's own limit for both is below that of a whole message.
pub const MAX_LENGTH: usize = 32 * 1024 * 1024;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XdrError {
    /// The bytes end too early.
    #[error("{wanted} more bytes expected at offset {offset}, {left} are left")]
    Truncated {
        /// Where, counted from the start of the payload.
        offset: usize,
        /// How many bytes were to come.
        wanted: usize,
        /// How many there are.
        left: usize,
    },
    /// A length is above what is allowed.
    #[error("length {length} at offset {offset} is above the limit of {limit}")]
    TooLong {
        /// Where, counted from the start of the payload.
        offset: usize,
        /// The length word.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A union is of a kind that we do not know, so that nothing after it can be read either.
    #[error("unknown kind {kind} of value at offset {offset}")]
    UnknownKind {
        /// Where, counted from the start of the payload.
        offset: usize,
        /// The discriminant.
        kind: i32,
    },
}

impl XdrError {
    /// A short, bounded name for metric labels.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "truncated",
            Self::TooLong { .. } => "too_long",
            Self::UnknownKind { .. } => "unknown_kind",
        }
    }

    /// Never: the same bytes stay wrong.
    pub fn is_transient(&self) -> bool {
        false
    }
}

/// The result of reading.
pub type Result<T, E = XdrError> = std::result::Result<T, E>;

/// Something that can be written.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, out: &mut Writer);
}

/// Something that can be read.
pub trait Decode: Sized {
    /// Takes the value off the front.
    fn decode(from: &mut Reader<'_>) -> Result<Self>;
}

/// A value's bytes.
pub fn to_bytes<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Writer::new();
    value.encode(&mut out);
    out.into_bytes()
}

/// The value at the start of a payload. Large parts of it may share the payload's memory.
pub fn from_bytes<T: Decode>(payload: &Bytes) -> Result<T> {
    T::decode(&mut Reader::shared(payload))
}

/// Takes values off a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
    shared: Option<&'a Bytes>,
}

impl<'a> Reader<'a> {
    /// Reads from plain memory; what has to outlive it is copied.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len(), shared: None }
    }

    /// Reads from counted memory; what has to outlive it can share it.
    pub fn shared(bytes: &'a Bytes) -> Self {
        Self { rest: bytes, total: bytes.len(), shared: Some(bytes) }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How much has been read.
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Takes `length` bytes and the padding after them.
    #[inline]
    pub fn fixed(&mut self, length: usize) -> Result<&'a [u8]> {
        // A padded length of an in-limit value cannot overflow; of any other it saturates, and is then too much.
        let padded = length.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        let Some((taken, rest)) = self.rest.split_at_checked(padded) else {
            return Err(XdrError::Truncated { offset: self.offset(), wanted: padded, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(&taken[..length])
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(XdrError::Truncated { offset: self.offset(), wanted: N, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned word.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A signed word.
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned double word.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A signed double word.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A floating point number.
    #[inline]
    pub fn f64(&mut self) -> Result<f64> {
        self.array().map(f64::from_be_bytes)
    }

    /// A word that is zero or not.
    #[inline]
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u32()? != 0)
    }

    /// A length word, at most `limit`.
    #[inline]
    pub fn length(&mut self, limit: usize) -> Result<usize> {
        let offset = self.offset();
        let length = self.u32()? as usize;
        if length > limit {
            return Err(XdrError::TooLong { offset, length, limit });
        }
        Ok(length)
    }

    /// Bytes with their length in front, at most `limit`.
    #[inline]
    pub fn opaque(&mut self, limit: usize) -> Result<&'a [u8]> {
        let length = self.length(limit)?;
        self.fixed(length)
    }

    /// Text with its length in front. libvirt echoes names as they came, so bytes that are not UTF-8 are replaced.
    pub fn string(&mut self) -> Result<String> {
        let bytes = self.opaque(MAX_LENGTH)?;
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        })
    }

    /// How many elements follow, refused at once if the bytes left could not hold them. `least` is the smallest size
    /// of one element on the wire.
    pub fn count(&mut self, limit: usize, least: usize) -> Result<usize> {
        let count = self.length(limit)?;
        let wanted = count.saturating_mul(least.max(4));
        if wanted > self.rest.len() {
            return Err(XdrError::Truncated { offset: self.offset(), wanted, left: self.rest.len() });
        }
        Ok(count)
    }

    /// The part of the input that `part` is, without copying it if the input is counted.
    pub fn share(&self, part: &'a [u8]) -> Bytes {
        match self.shared {
            Some(bytes) => bytes.slice_ref(part),
            None => Bytes::copy_from_slice(part),
        }
    }
}

/// Appends values to a buffer.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// What has been written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// How many bytes have been written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An unsigned word.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A signed word.
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned double word.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A signed double word.
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A floating point number.
    pub fn f64(&mut self, value: f64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A word that is zero or one.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// A length word. What is longer than the word can say is longer than any message may be, and the peer refuses it.
    pub fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Bytes and zeros up to the next multiple of four, without a length.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Bytes with their length in front.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.fixed(bytes);
    }

    /// Text with its length in front.
    pub fn string(&mut self, text: &str) {
        self.opaque(text.as_bytes());
    }

    /// Bytes that are XDR already.
    pub fn raw(&mut self, encoded: &[u8]) {
        self.bytes.extend_from_slice(encoded);
    }
}
