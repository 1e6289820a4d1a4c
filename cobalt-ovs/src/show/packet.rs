//! A packet, in the words that `ofproto/trace` takes.

use std::net::IpAddr;

use cobalt_core::ovs::{TraceRequest, Transport};

/// The longest name of a port or bridge. Devices have 15; the database takes any.
const MAX_NAME: usize = 64;

/// A packet that cannot be described.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// A name that is none.
    #[error("{what} {value:?}: a name has 1 to {MAX_NAME} letters, digits and `._-@:+`, the first a letter or digit")]
    Name {
        /// Whose name.
        what: &'static str,
        /// As given.
        value: String,
    },
    /// Not a hardware address.
    #[error("{value:?} is no hardware address such as fa:16:3e:00:00:01")]
    Mac {
        /// As given.
        value: String,
    },
    /// Not a VLAN.
    #[error("VLAN {0} is above 4095")]
    Vlan(u16),
    /// The parts do not make a packet.
    #[error("{0}")]
    Inconsistent(&'static str),
}

/// The flow that `ofproto/trace` is to follow.
///
/// Everything in it is of a known form, so that no part of a request can become another: the caller passes the text as
/// one parameter beside [`TraceRequest::bridge`], which is checked here too.
///
/// ```
/// use cobalt_core::ovs::{TraceRequest, Transport};
/// use cobalt_ovs::show::packet;
///
/// let mut request = TraceRequest {
///     bridge: "br-int".into(),
///     in_port: "tap0".into(),
///     ethernet: ("fa:16:3e:00:00:01".into(), "fa:16:3e:00:00:02".into()),
///     vlan: None,
///     ip: Some(("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())),
///     transport: Some(Transport::Tcp(40000, 22)),
/// };
/// let flow = packet(&request).unwrap();
/// assert!(flow.starts_with("in_port=tap0,tcp,dl_src=fa:16:3e:00:00:01,"));
/// request.in_port = "tap0,nw_ttl=0".into();
/// assert!(packet(&request).is_err());
/// ```
pub fn packet(request: &TraceRequest) -> Result<String, PacketError> {
    name("bridge", &request.bridge)?;
    name("port", &request.in_port)?;
    let (source, target) = (mac(&request.ethernet.0)?, mac(&request.ethernet.1)?);
    let mut words = vec![format!("in_port={}", request.in_port)];
    words.extend(protocol(request)?.map(str::to_owned));
    words.push(format!("dl_src={source}"));
    words.push(format!("dl_dst={target}"));
    if let Some(vlan) = request.vlan {
        if vlan > 4095 {
            return Err(PacketError::Vlan(vlan));
        }
        words.push(format!("dl_vlan={vlan}"));
    }
    match request.ip {
        Some((IpAddr::V4(from), IpAddr::V4(to))) => words.push(format!("nw_src={from},nw_dst={to}")),
        Some((IpAddr::V6(from), IpAddr::V6(to))) => words.push(format!("ipv6_src={from},ipv6_dst={to}")),
        Some(_) => return Err(PacketError::Inconsistent("one address is IPv4 and the other IPv6")),
        None => {}
    }
    if request.ip.is_some() {
        // A router drops what has none left, and without a word it is zero.
        words.push("nw_ttl=64".to_owned());
    }
    match request.transport {
        Some(Transport::Tcp(from, to)) => words.push(format!("tcp_src={from},tcp_dst={to}")),
        Some(Transport::Udp(from, to)) => words.push(format!("udp_src={from},udp_dst={to}")),
        Some(Transport::Sctp(from, to)) => words.push(format!("sctp_src={from},sctp_dst={to}")),
        Some(Transport::IcmpEcho) if is_ipv6(request) => words.push("icmpv6_type=128,icmpv6_code=0".to_owned()),
        Some(Transport::IcmpEcho) => words.push("icmp_type=8,icmp_code=0".to_owned()),
        _ => {}
    }
    Ok(words.join(","))
}

fn is_ipv6(request: &TraceRequest) -> bool {
    matches!(request.ip, Some((IpAddr::V6(_), _)))
}

fn protocol(request: &TraceRequest) -> Result<Option<&'static str>, PacketError> {
    if request.ip.is_none() {
        let missing = "TCP, UDP, SCTP and ICMP need IP addresses";
        return if request.transport.is_none() { Ok(None) } else { Err(PacketError::Inconsistent(missing)) };
    }
    let (four, six) = match request.transport {
        None => ("ip", "ipv6"),
        Some(Transport::Tcp(..)) => ("tcp", "tcp6"),
        Some(Transport::Udp(..)) => ("udp", "udp6"),
        Some(Transport::Sctp(..)) => ("sctp", "sctp6"),
        Some(Transport::IcmpEcho) => ("icmp", "icmp6"),
        Some(_) => return Err(PacketError::Inconsistent("this transport cannot be traced")),
    };
    Ok(Some(if is_ipv6(request) { six } else { four }))
}

/// Characters with a meaning in a flow, a list or a pattern are not in names.
fn name(what: &'static str, value: &str) -> Result<(), PacketError> {
    let allowed = |letter: u8| letter.is_ascii_alphanumeric() || b"._-@:+".contains(&letter);
    let good = (1..=MAX_NAME).contains(&value.len())
        && value.bytes().all(allowed)
        && value.as_bytes()[0].is_ascii_alphanumeric();
    if good { Ok(()) } else { Err(PacketError::Name { what, value: value.to_owned() }) }
}

/// An address in the one form that everybody reads alike.
fn mac(value: &str) -> Result<String, PacketError> {
    let parts: Vec<&str> = value.split(':').collect();
    let good = parts.len() == 6
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if good { Ok(value.to_ascii_lowercase()) } else { Err(PacketError::Mac { value: value.to_owned() }) }
}
