//! Which version of the protocol both sides speak.

use bytes::{BufMut, Bytes, BytesMut};

use super::wire::Reader;

/// A version this client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// OpenFlow 1.3.
    V1_3,
    /// OpenFlow 1.4.
    V1_4,
    /// OpenFlow 1.5.
    V1_5,
}

impl Version {
    /// Newest first.
    pub const ALL: [Self; 3] = [Self::V1_5, Self::V1_4, Self::V1_3];

    /// Its number on the wire.
    pub fn wire(self) -> u8 {
        match self {
            Self::V1_3 => 4,
            Self::V1_4 => 5,
            Self::V1_5 => 6,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V1_3 => "1.3",
            Self::V1_4 => "1.4",
            Self::V1_5 => "1.5",
        })
    }
}

/// The body of our greeting. A bridge may be restricted to one version, and only the bitmap says that we have others.
pub(crate) fn hello() -> Bytes {
    let bitmap = Version::ALL.iter().fold(0_u32, |bits, version| bits | 1 << version.wire());
    let mut body = BytesMut::with_capacity(8);
    body.put_u16(1);
    body.put_u16(8);
    body.put_u32(bitmap);
    body.freeze()
}

/// The highest version of both sides, from the other's greeting: from its bitmap, or without one from its number, which
/// is then the highest it speaks.
pub(crate) fn agree(highest: u8, body: &[u8]) -> Result<Version, String> {
    let bitmap = bitmap(body);
    let speaks = |version: &Version| match bitmap {
        Some(bitmap) => bitmap >> version.wire() & 1 == 1,
        None => version.wire() <= highest,
    };
    Version::ALL.into_iter().find(speaks).ok_or_else(|| match bitmap {
        Some(bitmap) => format!("it offers the versions of bitmap {bitmap:#x}"),
        None => format!("it offers version {highest} on the wire"),
    })
}

fn bitmap(body: &[u8]) -> Option<u32> {
    let mut from = Reader::new(body);
    while !from.is_empty() {
        let kind = from.u16()?;
        let length = usize::from(from.u16()?);
        let mut element = Reader::new(from.take(length.checked_sub(4)?)?);
        if kind == 1 {
            return element.u32();
        }
        from.skip((length.next_multiple_of(8) - length).min(from.rest().len()))?;
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn our_greeting_offers_three_versions() {
        assert_eq!(&hello()[..], [0, 1, 0, 8, 0, 0, 0, 0x70]);
        assert_eq!(agree(6, &hello()), Ok(Version::V1_5));
    }

    #[test]
    fn the_bitmap_decides_where_there_is_one() {
        assert_eq!(agree(6, &[0, 1, 0, 8, 0, 0, 0, 0x10]), Ok(Version::V1_3));
        assert_eq!(agree(6, &[0, 1, 0, 8, 0, 0, 0, 0x22]), Ok(Version::V1_4));
        assert!(agree(6, &[0, 1, 0, 8, 0, 0, 0, 0x02]).unwrap_err().contains("0x2"));
    }

    #[test]
    fn without_a_bitmap_the_number_is_the_highest() {
        assert_eq!(agree(6, &[]), Ok(Version::V1_5));
        assert_eq!(agree(9, &[]), Ok(Version::V1_5));
        assert_eq!(agree(4, &[]), Ok(Version::V1_3));
        assert!(agree(1, &[]).is_err());
    }

    #[test]
    fn an_unknown_element_before_the_bitmap_is_passed_over() {
        let body = [0, 9, 0, 5, 1, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0x10];
        assert_eq!(agree(6, &body), Ok(Version::V1_3));
        assert_eq!(agree(5, &[0, 9, 0, 0]), Ok(Version::V1_4), "a broken element is none");
    }
}
