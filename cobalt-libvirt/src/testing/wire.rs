//! What the scripted daemon reads and writes, in XDR.
//!
//! This is written apart from the client's own codec on purpose: a mistake in one of them must not be hidden by the
//! same mistake in the other. It knows only the few shapes that a libvirt daemon needs.

use bytes::{BufMut, Bytes, BytesMut};

/// The identity of a domain as libvirt sends it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its number while it runs, else -1.
    pub id: i32,
}

impl Identity {
    /// An identity with a UUID in its usual text form; `None` if that is no UUID.
    pub fn new(name: impl Into<String>, uuid: &str, id: i32) -> Option<Self> {
        Some(Self { name: name.into(), uuid: parse_uuid(uuid)?, id })
    }

    /// The UUID in its usual text form.
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.uuid)
    }
}

/// A UUID in its usual text form.
pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*uuid).to_string()
}

/// A UUID from its text form.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hex: String = text.trim().chars().filter(|c| *c != '-').collect();
    parse_hex(&hex)?.try_into().ok()
}

/// Bytes from hexadecimal digits.
pub(super) fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.is_ascii() || !hex.len().is_multiple_of(2) {
        return None;
    }
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok()).collect()
}

/// Builds a payload from its front to its end.
///
/// ```
/// use cobalt_libvirt::testing::Writer;
///
/// let payload = Writer::new().string("QEMU").i32(1).finish();
/// assert_eq!(&payload[..], b"\0\0\0\x04QEMU\0\0\0\x01");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Writer(BytesMut);

impl Writer {
    /// An empty payload.
    pub fn new() -> Self {
        Self::default()
    }

    /// A signed number.
    pub fn i32(mut self, value: i32) -> Self {
        self.0.put_i32(value);
        self
    }

    /// An unsigned number, or a length.
    pub fn u32(mut self, value: u32) -> Self {
        self.0.put_u32(value);
        self
    }

    /// A long unsigned number.
    pub fn u64(mut self, value: u64) -> Self {
        self.0.put_u64(value);
        self
    }

    /// A string, padded.
    pub fn string(mut self, value: &str) -> Self {
        self.0.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.put_slice(value.as_bytes());
        self.0.put_bytes(0, value.len().wrapping_neg() % 4);
        self
    }

    /// A string that may be absent.
    pub fn optional(self, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.u32(1).string(value),
            None => self.u32(0),
        }
    }

    /// The identity of a domain.
    pub fn domain(self, domain: &Identity) -> Self {
        self.string(&domain.name).raw(&domain.uuid).i32(domain.id)
    }

    /// Bytes that are XDR already.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.put_slice(bytes);
        self
    }

    /// A typed parameter of signed type, as in statistics.
    pub fn param_i32(self, name: &str, value: i32) -> Self {
        self.string(name).u32(1).i32(value)
    }

    /// A typed parameter of long unsigned type, as in statistics.
    pub fn param_u64(self, name: &str, value: u64) -> Self {
        self.string(name).u32(4).u64(value)
    }

    /// The payload.
    pub fn finish(self) -> Bytes {
        self.0.freeze()
    }
}

/// Takes a payload apart. Every method is `None` once something is missing.
#[derive(Debug, Clone)]
pub(super) struct Reader(Bytes);

impl Reader {
    pub(super) fn new(payload: &Bytes) -> Self {
        Self(payload.clone())
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<Bytes> {
        (self.0.len() >= count).then(|| self.0.split_to(count))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?;
        Some(u32::from_be_bytes(bytes.as_ref().try_into().ok()?))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.u32().map(u32::cast_signed)
    }

    pub(super) fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        let bytes = self.bytes(length)?;
        self.bytes(length.wrapping_neg() % 4)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A string that may be absent; a missing one and an absent one are the same here.
    pub(super) fn optional(&mut self) -> Option<String> {
        if self.u32()? == 0 { None } else { self.string() }
    }

    pub(super) fn domain(&mut self) -> Option<Identity> {
        let name = self.string()?;
        let uuid = self.bytes(16)?.as_ref().try_into().ok()?;
        Some(Identity { name, uuid, id: self.i32()? })
    }

    pub(super) fn domains(&mut self) -> Option<Vec<Identity>> {
        let count = self.u32()?;
        (0..count).map(|_| self.domain()).collect()
    }

    /// Typed parameters, each as its name and its own bytes (name included).
    pub(super) fn params(&mut self) -> Option<Vec<(String, Bytes)>> {
        let count = self.u32()?;
        (0..count)
            .map(|_| {
                let whole = self.0.clone();
                let name = self.string()?;
                match self.u32()? {
                    1 | 2 | 6 => drop(self.bytes(4)?),
                    3..=5 => drop(self.bytes(8)?),
                    _ => drop(self.string()?),
                }
                let used = whole.len() - self.0.len();
                Some((name, whole.slice(..used)))
            })
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_survives_the_way_there_and_back() {
        let domain = Identity::new("vm-é", "44444444-aaaa-4000-8000-000000000001", -1).unwrap();
        let payload = Writer::new().domain(&domain).optional(None).optional(Some("x")).finish();
        let mut reader = Reader::new(&payload);
        assert_eq!(reader.domain(), Some(domain.clone()));
        assert_eq!(reader.optional(), None);
        assert_eq!(reader.optional(), Some("x".into()));
        assert_eq!(reader.u32(), None);
        assert_eq!(domain.uuid_text(), "44444444-aaaa-4000-8000-000000000001");
    }

    #[test]
    fn a_length_beyond_the_payload_is_none_and_not_a_panic() {
        assert_eq!(Reader::new(&Bytes::from_static(b"\xff\xff\xff\xff")).string(), None);
        assert_eq!(Reader::new(&Bytes::from_static(b"\0\0\0\x09")).domains(), None);
        assert_eq!(parse_uuid("not a uuid"), None);
    }
}
