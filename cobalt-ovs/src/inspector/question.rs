//! What a person asks about a packet, as `ofproto/trace` wants to hear it.
//!
//! Only numbers and addresses that were parsed here end up in the text: whatever a request holds, it describes a packet
//! and nothing else.

use std::{fmt::Write, net::IpAddr};

use cobalt_core::{
    Error, Result,
    ovs::{TraceRequest, Transport},
};

/// The packet as a flow. Routers of OVN drop what has no life left, so it gets some.
pub(super) fn flow(request: &TraceRequest, in_port: i64) -> Result<String> {
    let refused = |reason: String| Error::refused(describe(request), reason);
    let mac = |text: &str| mac(text).ok_or_else(|| refused(format!("{text:?} is no hardware address")));
    let (from, to) = (mac(&request.ethernet.0)?, mac(&request.ethernet.1)?);
    let mut flow = format!("in_port={in_port},dl_src={from},dl_dst={to}");
    match request.vlan {
        None => {}
        Some(vlan @ 1..=4094) => push(&mut flow, format_args!("dl_vlan={vlan}")),
        Some(vlan) => return Err(refused(format!("{vlan} is no VLAN"))),
    }
    let Some(ip) = request.ip else {
        return match request.transport {
            None => Ok(flow),
            Some(_) => Err(refused("a transport needs source and destination addresses".into())),
        };
    };
    let (v6, from, to) = match ip {
        (IpAddr::V4(from), IpAddr::V4(to)) => (false, from.to_string(), to.to_string()),
        (IpAddr::V6(from), IpAddr::V6(to)) => (true, from.to_string(), to.to_string()),
        (from, to) => return Err(refused(format!("{from} and {to} are not of the same family"))),
    };
    let (four, six, more) = match request.transport {
        None => ("ip", "ipv6", String::new()),
        Some(Transport::Tcp(from, to)) => ("tcp", "tcp6", format!(",tp_src={from},tp_dst={to}")),
        Some(Transport::Udp(from, to)) => ("udp", "udp6", format!(",tp_src={from},tp_dst={to}")),
        Some(Transport::Sctp(from, to)) => ("sctp", "sctp6", format!(",tp_src={from},tp_dst={to}")),
        Some(Transport::IcmpEcho) if v6 => ("", "icmp6", ",icmp_type=128,icmp_code=0".to_owned()),
        Some(Transport::IcmpEcho) => ("icmp", "", ",icmp_type=8,icmp_code=0".to_owned()),
        Some(_) => return Err(Error::unsupported(describe(request), "this switch")),
    };
    let family =
        if v6 { format!("{six},ipv6_src={from},ipv6_dst={to}") } else { format!("{four},nw_src={from},nw_dst={to}") };
    push(&mut flow, format_args!("{family},nw_ttl=64{more}"));
    Ok(flow)
}

fn push(flow: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = write!(flow, ",{more}");
}

pub(super) fn describe(request: &TraceRequest) -> String {
    format!("trace a packet on {} from {}", request.bridge, request.in_port)
}

/// Six pairs of hexadecimal digits, as the switch writes them.
fn mac(text: &str) -> Option<String> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|pair| {
            if pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                u8::from_str_radix(pair, 16).ok()
            } else {
                None
            }
        })
        .collect::<Option<_>>()?;
    let bytes: [u8; 6] = bytes.try_into().ok()?;
    Some(bytes.map(|byte| format!("{byte:02x}")).join(":"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request() -> TraceRequest {
        TraceRequest {
            bridge: "br-int".into(),
            in_port: "tap-vm1".into(),
            ethernet: ("00:00:00:00:00:0A".into(), "00:00:00:00:00:02".into()),
            vlan: None,
            ip: None,
            transport: None,
        }
    }

    fn addresses(from: &str, to: &str) -> Option<(IpAddr, IpAddr)> {
        Some((from.parse().unwrap(), to.parse().unwrap()))
    }

    #[test]
    fn packets_are_told_in_the_switch_s_own_words() {
        const START: &str = "in_port=5,dl_src=00:00:00:00:00:0a,dl_dst=00:00:00:00:00:02";
        let four = addresses("10.0.0.11", "10.0.0.12");
        let six = addresses("fd00::1", "fd00::2");
        for (ip, transport, vlan, rest) in [
            (None, None, None, ""),
            (None, None, Some(7), ",dl_vlan=7"),
            (four, None, None, ",ip,nw_src=10.0.0.11,nw_dst=10.0.0.12,nw_ttl=64"),
            (
                four,
                Some(Transport::IcmpEcho),
                None,
                ",icmp,nw_src=10.0.0.11,nw_dst=10.0.0.12,nw_ttl=64,icmp_type=8,icmp_code=0",
            ),
            (
                four,
                Some(Transport::Tcp(1024, 22)),
                None,
                ",tcp,nw_src=10.0.0.11,nw_dst=10.0.0.12,nw_ttl=64,tp_src=1024,tp_dst=22",
            ),
            (
                six,
                Some(Transport::Udp(1, 53)),
                None,
                ",udp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,tp_src=1,tp_dst=53",
            ),
            (
                six,
                Some(Transport::IcmpEcho),
                None,
                ",icmp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64,icmp_type=128,icmp_code=0",
            ),
        ] {
            let request = TraceRequest { ip, transport, vlan, ..request() };
            assert_eq!(flow(&request, 5).unwrap(), format!("{START}{rest}"));
        }
    }

    #[test]
    fn what_describes_no_packet_is_refused() {
        let with = |change: fn(&mut TraceRequest)| {
            let mut request = request();
            change(&mut request);
            flow(&request, 1).unwrap_err().to_string()
        };
        assert_eq!(
            with(|request| request.ethernet.0 = "00:00:00:00:00:01,actions=drop".into()),
            "trace a packet on br-int from tap-vm1: refused: \"00:00:00:00:00:01,actions=drop\" is no hardware address"
        );
        assert!(with(|request| request.ethernet.1 = "0:0:0:0:0:1".into()).contains("no hardware address"));
        assert!(with(|request| request.vlan = Some(4095)).contains("no VLAN"));
        assert!(with(|request| request.transport = Some(Transport::IcmpEcho)).contains("needs source"));
        assert!(with(|request| request.ip = addresses("10.0.0.1", "fd00::1")).contains("family"));
    }
}
