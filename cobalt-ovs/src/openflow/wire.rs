//! Big-endian numbers off the front of a slice.

/// What is left to read. Everything that would go past the end is `None`, and what comes of that is the caller's
/// choice: a broken message is refused, a broken action is shown as bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn skip(&mut self, length: usize) -> Option<()> {
        self.take(length).map(|_| ())
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn ipv4(&mut self) -> Option<std::net::Ipv4Addr> {
        self.array::<4>().map(Into::into)
    }

    pub(crate) fn ipv6(&mut self) -> Option<std::net::Ipv6Addr> {
        self.array::<16>().map(Into::into)
    }
}

/// Bytes as the switch's tools write them: two digits each, dots between.
pub(crate) fn dotted(bytes: &[u8], out: &mut String) {
    use std::fmt::Write as _;
    for (index, byte) in bytes.iter().enumerate() {
        let _ = write!(out, "{}{byte:02x}", if index == 0 { "" } else { "." });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_past_the_end() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u16(), Some(0x0102));
        assert_eq!(reader.u16(), None);
        assert_eq!(reader.u8(), Some(3), "a refused read takes nothing");
        assert!(reader.is_empty());
    }

    #[test]
    fn bytes_are_written_with_dots() {
        let mut out = String::new();
        dotted(&[0, 10, 255], &mut out);
        assert_eq!(out, "00.0a.ff");
    }
}
