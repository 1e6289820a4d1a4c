//! The file format: a header, then a record per packet, times in nanoseconds.

use std::time::Duration;

/// Bytes of the file's header.
pub(crate) const HEADER: usize = 24;
/// Bytes of a record's header.
const RECORD: usize = 16;
/// Where a VLAN's tag stands in a frame: behind the two addresses.
const TAG_AT: usize = 12;

/// What the first bytes of each packet are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkType {
    /// A frame of Ethernet.
    Ethernet,
    /// A packet of IP.
    Ip,
}

/// A VLAN's tag that the kernel has taken out of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) protocol: u16,
    pub(crate) tci: u16,
}

/// The first bytes of a file, in the byte order of the network.
pub(crate) fn header(link: LinkType, snap_len: u32) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_be_bytes());
    out[4..6].copy_from_slice(&2_u16.to_be_bytes());
    out[6..8].copy_from_slice(&4_u16.to_be_bytes());
    out[16..20].copy_from_slice(&snap_len.to_be_bytes());
    let link: u32 = match link {
        LinkType::Ethernet => 1,
        LinkType::Ip => 101,
    };
    out[20..].copy_from_slice(&link.to_be_bytes());
    out
}

/// One packet for the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    at: Duration,
    head: &'a [u8],
    tag: Option<Tag>,
    tail: &'a [u8],
    length: u32,
}

impl<'a> Packet<'a> {
    /// `bytes` are those received of a packet of `length`, without the tag.
    pub(crate) fn new(at: Duration, bytes: &'a [u8], length: usize, tag: Option<Tag>, snap_len: u32) -> Self {
        // A tag is put back only where it is whole and has a place.
        let snap = usize::try_from(snap_len).unwrap_or(usize::MAX);
        let tag = tag.filter(|_| bytes.len() >= TAG_AT);
        let room = match tag {
            Some(_) if snap >= TAG_AT + 4 => snap - 4,
            _ => snap,
        };
        let kept = &bytes[..bytes.len().min(room)];
        let added = if tag.is_some() { 4 } else { 0 };
        let length = u32::try_from(length.saturating_add(added)).unwrap_or(u32::MAX);
        match tag.filter(|_| snap >= TAG_AT + 4) {
            Some(tag) => Self { at, head: &kept[..TAG_AT], tag: Some(tag), tail: &kept[TAG_AT..], length },
            None => Self { at, head: kept, tag: None, tail: &[], length },
        }
    }

    fn kept(&self) -> usize {
        self.head.len() + self.tail.len() + if self.tag.is_some() { 4 } else { 0 }
    }

    /// Whether the packet was longer than what is kept.
    pub(crate) fn is_cut(&self) -> bool {
        self.kept() < usize::try_from(self.length).unwrap_or(usize::MAX)
    }

    /// Its bytes in the file.
    pub(crate) fn wire_len(&self) -> usize {
        RECORD + self.kept()
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let seconds = u32::try_from(self.at.as_secs()).unwrap_or(u32::MAX);
        let kept = u32::try_from(self.kept()).unwrap_or(u32::MAX);
        for word in [seconds, self.at.subsec_nanos(), kept, self.length] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(self.head);
        if let Some(tag) = self.tag {
            out.extend_from_slice(&tag.protocol.to_be_bytes());
            out.extend_from_slice(&tag.tci.to_be_bytes());
        }
        out.extend_from_slice(self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(packet: &Packet<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        packet.write(&mut out);
        assert_eq!(out.len(), packet.wire_len());
        out
    }

    #[test]
    fn the_header_names_the_format_the_bound_and_the_link() {
        let header = header(LinkType::Ethernet, 128);
        assert_eq!(header[..8], [0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4]);
        assert_eq!(header[16..], [0, 0, 0, 128, 0, 0, 0, 1]);
    }

    #[test]
    fn a_long_packet_is_cut_and_its_length_told() {
        let bytes = [7; 100];
        let packet = Packet::new(Duration::new(5, 6), &bytes[..64], 100, None, 60);
        assert!(packet.is_cut());
        let out = written(&packet);
        assert_eq!(out[..16], [0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 60, 0, 0, 0, 100]);
        assert_eq!(out.len(), 76);
        assert!(!Packet::new(Duration::ZERO, &bytes, 100, None, 100).is_cut());
    }

    #[test]
    fn a_tag_that_the_kernel_took_is_put_back() {
        let bytes: Vec<u8> = (0..20).collect();
        let tag = Some(Tag { protocol: 0x8100, tci: 5 });
        let packet = Packet::new(Duration::ZERO, &bytes, 20, tag, 1500);
        let out = written(&packet);
        assert_eq!(out[16 + 10..16 + 18], [10, 11, 0x81, 0, 0, 5, 12, 13]);
        assert_eq!((packet.kept(), packet.length, packet.is_cut()), (24, 24, false));
        // Where it has no room it is missing, and the packet is cut.
        let packet = Packet::new(Duration::ZERO, &bytes, 20, tag, 14);
        assert_eq!(written(&packet).len(), 16 + 14);
        assert!(packet.is_cut());
    }

    #[test]
    fn no_length_and_no_tag_breaks_a_record() {
        for length in [0, 5, 11, 12, 13, 300] {
            for snap in [1, 12, 15, 16, 17, 400] {
                for tag in [None, Some(Tag { protocol: 0x8100, tci: 1 })] {
                    let bytes = vec![1; length];
                    let out = written(&Packet::new(Duration::MAX, &bytes, length, tag, snap));
                    assert!(out.len() <= 16 + usize::try_from(snap).unwrap_or(0));
                }
            }
        }
    }
}
