//! Setting a device up, in one message to the kernel.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sys::{
        socket::{
            AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, setsockopt, socket,
            sockopt,
        },
        time::TimeVal,
    },
};

use super::Error;

/// The kernel answers at once; this is for one that does not.
const ANSWER_WITHIN: TimeVal = TimeVal::new(2, 0);

const RTM_NEWLINK: u16 = 16;
const NLMSG_ERROR: u16 = 2;
const REQUEST_WITH_ANSWER: u16 = 1 | 4;
const IFF_UP: u32 = 1;
const MESSAGE: usize = 32;

/// Sets the device `device` of this network namespace up, as a mirror's port must be before anything arrives there. It
/// needs `CAP_NET_ADMIN`. One that is up stays so.
pub fn bring_up(device: &str) -> Result<(), Error> {
    let os = |errno: Errno| Error::os(device, "set the device up", errno);
    let index = if_nametoindex(device).map_err(|_| Error::NoDevice { device: device.to_owned() })?;
    let socket = connect().map_err(os)?;
    let message = message(index);
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty()).map_err(os)?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).map_err(os)?;
    match refusal(answer.get(..length).unwrap_or(&answer)) {
        Some(0) => Ok(()),
        Some(errno) => Err(os(Errno::from_raw(errno))),
        None => Err(os(Errno::EPROTO)),
    }
}

fn connect() -> Result<OwnedFd, Errno> {
    let protocol = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    setsockopt(&socket, sockopt::ReceiveTimeout, &ANSWER_WITHIN)?;
    Ok(socket)
}

/// A header and a `struct ifinfomsg`, in the byte order of the host.
fn message(index: u32) -> [u8; MESSAGE] {
    let mut out = [0; MESSAGE];
    out[..4].copy_from_slice(&32_u32.to_ne_bytes());
    out[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
    out[6..8].copy_from_slice(&REQUEST_WITH_ANSWER.to_ne_bytes());
    out[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    out[20..24].copy_from_slice(&index.to_ne_bytes());
    // Which flags, and which of them are meant.
    out[24..28].copy_from_slice(&IFF_UP.to_ne_bytes());
    out[28..].copy_from_slice(&IFF_UP.to_ne_bytes());
    out
}

/// The error of an answer, 0 for none; `None` if it is no answer.
fn refusal(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    let errno = i32::from_ne_bytes(*answer.get(16..)?.first_chunk()?);
    (kind == NLMSG_ERROR).then(|| errno.saturating_neg())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_an_error_of_which_zero_is_none() {
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(refusal(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(refusal(&answer), Some(1));
        assert_eq!(refusal(&answer[..10]), None);
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        assert!(matches!(bring_up("cobalt-no-dev"), Err(Error::NoDevice { .. })));
    }
}
