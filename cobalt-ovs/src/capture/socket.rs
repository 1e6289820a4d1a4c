//! A packet socket, asynchronously and without unsafe code of ours.
//!
//! `nix` is the wrapper: of the maintained ones it alone offers addresses, times, drops and truncation of packet sockets
//! by safe functions. It has no constructor for such an address, but lists those of all devices, and the kernel takes
//! one from that list.

use std::{
    io::IoSliceMut,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use nix::{
    cmsg_space,
    errno::Errno,
    ifaddrs::getifaddrs,
    libc, setsockopt_impl, sockopt_impl,
    sys::{
        socket::{
            AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvmsg,
            setsockopt, socket, sockopt,
        },
        time::TimeSpec,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    Error,
    pcap::{LinkType, Tag},
};

/// What the kernel may keep for us while nobody reads, if it allows that much.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;

/// Bytes of what the kernel adds to each packet: `struct tpacket_auxdata`.
const AUXILIARY: usize = 20;
/// The tag is in there.
const VLAN_VALID: u32 = 1 << 4;
/// Which of its protocols it is, is in there, too.
const VLAN_PROTOCOL_VALID: u32 = 1 << 6;

sockopt_impl!(
    /// Add to each packet what was taken out of it: a VLAN's tag.
    AuxiliaryData,
    SetOnly,
    libc::SOL_PACKET,
    libc::PACKET_AUXDATA,
    bool
);

/// Listens on one device.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: AsyncFd<OwnedFd>,
    device: String,
    index: usize,
    link: LinkType,
    packet: Vec<u8>,
    control: Vec<u8>,
    /// As the kernel counts them.
    dropped: u64,
}

/// One packet.
pub(crate) struct Received<'a> {
    /// When the kernel saw it, since 1970.
    pub(crate) at: Duration,
    /// What was kept of it.
    pub(crate) bytes: &'a [u8],
    /// How long it was.
    pub(crate) length: usize,
    /// A tag that was taken out of it.
    pub(crate) tag: Option<Tag>,
    /// Packets that were dropped so far.
    pub(crate) dropped: u64,
}

impl Socket {
    pub(crate) fn open(device: &str, snap_len: u32) -> Result<Self, Error> {
        let os = |step: &'static str| move |errno: Errno| Error::os(device, step, errno);
        let address = address(device)?;
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let protocol = SockProtocol::EthAll;
        let fd = socket(AddressFamily::Packet, SockType::Raw, flags, protocol).map_err(os("open a packet socket"))?;
        setsockopt(&fd, sockopt::ReceiveTimestampns, &true).map_err(os("ask for times"))?;
        setsockopt(&fd, sockopt::RxqOvfl, &1).map_err(os("ask for drops"))?;
        setsockopt(&fd, AuxiliaryData, &true).map_err(os("ask for tags"))?;
        // Less is no failure: what is dropped is counted.
        let _ = setsockopt(&fd, sockopt::RcvBuf, &RECEIVE_BUFFER);
        bind(fd.as_raw_fd(), &address).map_err(os("bind to the device"))?;
        #[expect(deprecated, reason = "unsound only for types that swap or close the descriptor; an OwnedFd does not")]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE | Interest::ERROR)
            .map_err(|cause| Error::os(device, "wait for packets", cause))?;
        Ok(Self {
            fd,
            device: device.to_owned(),
            index: address.ifindex(),
            link: link_type(&address),
            packet: vec![0; usize::try_from(snap_len).unwrap_or(usize::MAX)],
            control: cmsg_space!(TimeSpec, u32, [u8; AUXILIARY]),
            dropped: 0,
        })
    }

    pub(crate) fn link_type(&self) -> LinkType {
        self.link
    }

    /// Waits until there may be a packet.
    pub(crate) async fn readable(&self) -> Result<(), Error> {
        // Readiness is cleared by who finds the socket empty.
        let waited = self.fd.ready(Interest::READABLE | Interest::ERROR).await;
        waited.map(|mut ready| ready.retain_ready()).map_err(|cause| Error::os(&self.device, "wait for packets", cause))
    }

    /// The next packet that is there; `None` if there is none.
    pub(crate) fn try_receive(&mut self) -> Result<Option<Received<'_>>, Error> {
        let Some(found) = self.find()? else { return Ok(None) };
        self.dropped = self.dropped.max(found.dropped);
        let bytes = &self.packet[..found.length.min(self.packet.len())];
        let Found { at, length, tag, .. } = found;
        Ok(Some(Received { at, bytes, length, tag, dropped: self.dropped }))
    }

    fn find(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let mut parts = [IoSliceMut::new(&mut self.packet)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
            let fd = self.fd.get_ref().as_raw_fd();
            match recvmsg::<LinkAddr>(fd, &mut parts, Some(&mut self.control), flags) {
                // Until it was bound, the socket heard all devices.
                Ok(message) if message.address.is_some_and(|from| from.ifindex() != self.index) => {}
                Ok(message) => {
                    let mut found = Found { length: message.bytes, ..Found::default() };
                    // Control messages that do not fit are cut off; the packet is there without them.
                    for control in message.cmsgs().into_iter().flatten() {
                        found.control(&control);
                    }
                    return Ok(Some(found));
                }
                Err(Errno::EAGAIN) => {
                    self.clear_readiness();
                    return Ok(None);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::ENETDOWN | Errno::ENXIO | Errno::ENODEV) => {
                    return Err(Error::Down { device: self.device.clone() });
                }
                Err(errno) => return Err(Error::os(&self.device, "receive", errno)),
            }
        }
    }

    /// So that the next wait is for the next packet.
    fn clear_readiness(&self) {
        use std::task::{Context, Poll, Waker};
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(Ok(mut ready)) = self.fd.poll_read_ready(&mut context) {
            ready.clear_ready();
        }
    }
}

#[derive(Default)]
struct Found {
    at: Duration,
    length: usize,
    tag: Option<Tag>,
    dropped: u64,
}

impl Found {
    fn control(&mut self, control: &ControlMessageOwned) {
        match control {
            ControlMessageOwned::ScmTimestampns(at) => self.at = Duration::from(*at),
            ControlMessageOwned::RxqOvfl(dropped) => self.dropped = u64::from(*dropped),
            ControlMessageOwned::Unknown(other)
                if (other.cmsg_header.cmsg_level, other.cmsg_header.cmsg_type)
                    == (libc::SOL_PACKET, libc::PACKET_AUXDATA) =>
            {
                self.tag = tag(&other.data_bytes);
            }
            _ => {}
        }
    }
}

/// From `struct tpacket_auxdata`, in the byte order of the host.
fn tag(data: &[u8]) -> Option<Tag> {
    let data = data.first_chunk::<AUXILIARY>()?;
    let status = u32::from_ne_bytes([data[0], data[1], data[2], data[3]]);
    let tci = u16::from_ne_bytes([data[16], data[17]]);
    let protocol = u16::from_ne_bytes([data[18], data[19]]);
    let protocol = if status & VLAN_PROTOCOL_VALID != 0 { protocol } else { 0x8100 };
    (status & VLAN_VALID != 0).then_some(Tag { protocol, tci })
}

/// The address of the device at the link layer.
fn address(device: &str) -> Result<LinkAddr, Error> {
    let all = getifaddrs().map_err(|errno| Error::os(device, "list the devices", errno))?;
    all.filter(|entry| entry.interface_name == device)
        .find_map(|entry| entry.address?.as_link_addr().copied())
        .ok_or_else(|| Error::NoDevice { device: device.to_owned() })
}

fn link_type(address: &LinkAddr) -> LinkType {
    // ARPHRD_NONE: a tunnel's device, without frames.
    if address.hatype() == 0xfffe { LinkType::Ip } else { LinkType::Ethernet }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_read_where_the_kernel_says_there_is_one() {
        let mut data = [0; AUXILIARY];
        data[16..18].copy_from_slice(&100_u16.to_ne_bytes());
        data[18..20].copy_from_slice(&0x88a8_u16.to_ne_bytes());
        assert_eq!(tag(&data), None);
        data[..4].copy_from_slice(&VLAN_VALID.to_ne_bytes());
        assert_eq!(tag(&data), Some(Tag { protocol: 0x8100, tci: 100 }));
        data[..4].copy_from_slice(&(VLAN_VALID | VLAN_PROTOCOL_VALID).to_ne_bytes());
        assert_eq!(tag(&data), Some(Tag { protocol: 0x88a8, tci: 100 }));
        assert_eq!(tag(&data[..19]), None);
    }

    #[tokio::test]
    async fn a_device_that_is_not_there_is_named() {
        let opened = Socket::open("cobalt-no-dev", 64);
        assert!(matches!(&opened, Err(Error::NoDevice { device }) if device == "cobalt-no-dev"), "{opened:?}");
    }
}
