//! How the ordinary types look on the wire.

use uuid::Uuid;

use super::{Decode, Encode, MAX_LENGTH, Reader, Result, Writer};

macro_rules! scalar {
    ($($kind:ident),*) => {$(
        impl Encode for $kind {
            fn encode(&self, out: &mut Writer) {
                out.$kind(*self);
            }
        }

        impl Decode for $kind {
            #[inline]
            fn decode(from: &mut Reader<'_>) -> Result<Self> {
                from.$kind()
            }
        }
    )*};
}

scalar!(u32, i32, u64, i64, f64, bool);

macro_rules! tuple {
    ($($part:ident)*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<$($part: Encode),*> Encode for ($($part,)*) {
            fn encode(&self, out: &mut Writer) {
                let ($($part,)*) = self;
                $($part.encode(out);)*
            }
        }

        #[allow(unused_variables)]
        impl<$($part: Decode),*> Decode for ($($part,)*) {
            fn decode(from: &mut Reader<'_>) -> Result<Self> {
                Ok(($($part::decode(from)?,)*))
            }
        }
    };
}

tuple!();
tuple!(A);
tuple!(A B);
tuple!(A B C);

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Writer) {
        (**self).encode(out);
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Writer) {
        out.string(self);
    }
}

impl Encode for String {
    fn encode(&self, out: &mut Writer) {
        out.string(self);
    }
}

impl Decode for String {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.string()
    }
}

/// Text as it came, which need not be UTF-8. [`String`] replaces what is not; this keeps it, for those who pass it on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Encode for Text {
    fn encode(&self, out: &mut Writer) {
        out.opaque(&self.0);
    }
}

impl Decode for Text {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.opaque(MAX_LENGTH).map(|bytes| Self(bytes.to_vec()))
    }
}

/// Bytes with their length in front (`opaque<>`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opaque(pub Vec<u8>);

impl Encode for Opaque {
    fn encode(&self, out: &mut Writer) {
        out.opaque(&self.0);
    }
}

impl Decode for Opaque {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.opaque(MAX_LENGTH).map(|bytes| Self(bytes.to_vec()))
    }
}

/// A C string in a fixed field of `N` characters (`char[N]`), where each character takes a whole word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CharArray<const N: usize>(pub [u8; N]);

impl<const N: usize> CharArray<N> {
    /// The text up to the first zero.
    pub fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

impl<const N: usize> Default for CharArray<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> From<&str> for CharArray<N> {
    /// Cut to what fits with a zero after it.
    fn from(text: &str) -> Self {
        let mut chars = [0; N];
        for (to, from) in chars.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
            *to = from;
        }
        Self(chars)
    }
}

impl<const N: usize> Encode for CharArray<N> {
    fn encode(&self, out: &mut Writer) {
        for byte in self.0 {
            // A C `char` is signed where libvirt runs, and is widened as such.
            out.i32(i32::from(byte.cast_signed()));
        }
    }
}

impl<const N: usize> Decode for CharArray<N> {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        let mut chars = [0; N];
        for byte in &mut chars {
            *byte = from.u32()?.to_be_bytes()[3];
        }
        Ok(Self(chars))
    }
}

impl Encode for Uuid {
    fn encode(&self, out: &mut Writer) {
        out.fixed(self.as_bytes());
    }
}

impl Decode for Uuid {
    #[inline]
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        from.array().map(Self::from_bytes)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Writer) {
        out.bool(self.is_some());
        if let Some(value) = self {
            value.encode(out);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        if from.bool()? { T::decode(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, out: &mut Writer) {
        out.length(self.len());
        for value in self {
            value.encode(out);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Writer) {
        self.as_slice().encode(out);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(from: &mut Reader<'_>) -> Result<Self> {
        // Every element takes a word at least, so the count is bounded by the bytes at hand. An element may be far
        // larger in memory than on the wire, so only a modest part of that is reserved in advance.
        let count = from.count(MAX_LENGTH, 4)?;
        let mut values = Self::with_capacity(count.min(1024));
        for _ in 0..count {
            values.push(T::decode(from)?);
        }
        Ok(values)
    }
}
