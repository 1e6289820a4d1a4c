//! From the names people have to the ports and addresses a switch has. Pure.
//!
//! Everything that goes to the switch as text has passed here: ports and bridges are names the snapshot has, hardware
//! addresses are parsed and written anew. Nothing a caller wrote reaches a control socket as it was written.

use std::{fmt::Write, net::IpAddr};

use super::wire::{Protocol, TraceQuestion};
use crate::ovs::{Interface, OvsSnapshot, TraceRequest, Transport};

/// How many candidates a message names.
const NAMED: usize = 8;

/// Why a question cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unclear {
    /// Nothing here has this name.
    #[error("{field}: no port, VM or logical port {name:?} on this host")]
    Unknown {
        /// The field of the question.
        field: &'static str,
        /// What it says.
        name: String,
    },
    /// The name stands for several ports.
    #[error("{field}: {name:?} has several ports, name one of them: {candidates}")]
    Ambiguous {
        /// The field of the question.
        field: &'static str,
        /// What it says.
        name: String,
        /// The ports.
        candidates: String,
    },
    /// A field does not make sense, alone or with the others.
    #[error("{field}: {problem}")]
    Field {
        /// The field of the question.
        field: &'static str,
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

impl Unclear {
    fn field(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Field { field, problem: problem.into() }
    }

    /// Whether something named does not exist, rather than being wrong.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// Finds the one port a name stands for: its own name first, then that of a logical port, then that of a VM.
pub fn port<'a>(snapshot: &'a OvsSnapshot, field: &'static str, name: &str) -> Result<&'a Interface, Unclear> {
    let ports = &snapshot.interfaces;
    if let Some(found) = ports.iter().find(|port| port.name == name) {
        return Ok(found);
    }
    let by_logical = |port: &&Interface| port.logical_port.as_deref() == Some(name);
    let by_instance = |port: &&Interface| port.instance.as_deref() == Some(name);
    let logical: Vec<_> = ports.iter().filter(by_logical).collect();
    let found = if logical.is_empty() { ports.iter().filter(by_instance).collect() } else { logical };
    match found.as_slice() {
        [] => Err(Unclear::Unknown { field, name: shortened(name) }),
        [one] => Ok(one),
        several => {
            let mut candidates =
                several.iter().take(NAMED).map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
            if several.len() > NAMED {
                let _ = write!(candidates, " and {} more", several.len() - NAMED); // a String takes everything
            }
            Err(Unclear::Ambiguous { field, name: shortened(name), candidates })
        }
    }
}

/// A bridge the switch has; its name as the switch writes it.
pub fn bridge<'a>(snapshot: &'a OvsSnapshot, name: &str) -> Result<&'a str, Unclear> {
    let found = snapshot.bridges.iter().find(|bridge| bridge.name == name);
    found.map(|bridge| bridge.name.as_str()).ok_or_else(|| {
        let known: Vec<&str> = snapshot.bridges.iter().take(NAMED).map(|bridge| bridge.name.as_str()).collect();
        Unclear::field("bridge", format!("there is no bridge {:?}; there are: {}", shortened(name), known.join(", ")))
    })
}

/// Makes a packet of a question.
///
/// ```
/// use cobalt_core::agent::ovs::endpoints::{resolve, wire::TraceQuestion};
/// # use cobalt_core::{jiff::Timestamp, ovs::{Daemon, OvsSnapshot}};
/// # let snapshot = OvsSnapshot {
/// #     at: Timestamp::UNIX_EPOCH, database_connected: true, database: Daemon::Absent, switch: Daemon::Absent,
/// #     dpdk: None, bridges: vec![], interfaces: vec![], bonds: vec![], controller: None, configuration_pending: false,
/// # };
///
/// let question = TraceQuestion { from: "tap-vm9".into(), ..TraceQuestion::default() };
/// let unclear = resolve::packet(&snapshot, &question).unwrap_err();
/// assert_eq!(unclear.to_string(), r#"from: no port, VM or logical port "tap-vm9" on this host"#);
/// ```
pub fn packet(snapshot: &OvsSnapshot, question: &TraceQuestion) -> Result<TraceRequest, Unclear> {
    let from = port(snapshot, "from", &question.from)?;
    if let Some(wanted) = &question.bridge
        && *bridge(snapshot, wanted)? != from.bridge
    {
        return Err(Unclear::field("bridge", format!("{} is a port of {}", from.name, from.bridge)));
    }
    let source = match (&question.source, &from.mac) {
        (Some(given), _) => mac("source", given)?,
        (None, Some(known)) => mac("source", known)?,
        (None, None) => {
            let problem = format!("the hardware address behind {} is not known; give one", from.name);
            return Err(Unclear::field("source", problem));
        }
    };
    let mut destination = question.destination.as_deref().map(|given| mac("destination", given)).transpose()?;
    let mut to_address = question.destination_address;
    if let Some(to) = &question.to {
        if let Ok(address) = to.parse::<IpAddr>() {
            if to_address.is_some_and(|given| given != address) {
                return Err(Unclear::field("destinationAddress", format!("to is another address, {address}")));
            }
            to_address = Some(address);
        } else if let Some(parsed) = parse_mac(to) {
            destination.get_or_insert(parsed);
        } else {
            let port = port(snapshot, "to", to)?;
            if destination.is_none() {
                let known = port.mac.as_deref().and_then(parse_mac);
                let problem =
                    || format!("the hardware address behind {} is not known; give it as destination", port.name);
                destination = Some(known.ok_or_else(|| Unclear::field("to", problem()))?);
            }
        }
    }
    let destination = destination.ok_or_else(|| {
        let problem = if to_address.is_some() {
            "the switch knows no IP addresses: give the hardware address the packet is sent to as destination, that of \
             the VM, or of the gateway for another subnet"
        } else {
            "name a port, VM, logical port or hardware address"
        };
        Unclear::field(if to_address.is_some() { "destination" } else { "to" }, problem)
    })?;
    let ip = addresses(question.source_address, to_address)?;
    let transport = transport(question, ip.is_some())?;
    if question.vlan.is_some_and(|vlan| vlan > 4094) {
        return Err(Unclear::field("vlan", "expected a number from 0 to 4094"));
    }
    Ok(TraceRequest {
        bridge: from.bridge.clone(),
        in_port: from.name.clone(),
        ethernet: (source, destination),
        vlan: question.vlan,
        ip,
        transport,
    })
}

fn addresses(from: Option<IpAddr>, to: Option<IpAddr>) -> Result<Option<(IpAddr, IpAddr)>, Unclear> {
    match (from, to) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) if from.is_ipv4() == to.is_ipv4() => Ok(Some((from, to))),
        (Some(_), Some(_)) => Err(Unclear::field("destinationAddress", "one address is IPv4 and the other IPv6")),
        (None, Some(_)) => Err(Unclear::field("sourceAddress", "an IP packet needs one; give that of the VM")),
        (Some(_), None) => Err(Unclear::field("destinationAddress", "an IP packet needs one")),
    }
}

fn transport(question: &TraceQuestion, is_ip: bool) -> Result<Option<Transport>, Unclear> {
    let Some(protocol) = question.protocol else {
        if question.source_port.or(question.destination_port).is_some() {
            return Err(Unclear::field("protocol", "ports need one: tcp, udp or sctp"));
        }
        return Ok(None);
    };
    if !is_ip {
        return Err(Unclear::field("protocol", "it needs sourceAddress and destinationAddress"));
    }
    if protocol == Protocol::Icmp {
        if question.source_port.or(question.destination_port).is_some() {
            return Err(Unclear::field("protocol", "icmp has no ports"));
        }
        return Ok(Some(Transport::IcmpEcho));
    }
    let Some(to) = question.destination_port else {
        return Err(Unclear::field("destinationPort", "tcp, udp and sctp need one"));
    };
    // Any port of those that programs are given for a connection of theirs.
    let from = question.source_port.unwrap_or(49152);
    Ok(Some(match protocol {
        Protocol::Tcp => Transport::Tcp(from, to),
        Protocol::Udp => Transport::Udp(from, to),
        Protocol::Sctp | Protocol::Icmp => Transport::Sctp(from, to),
    }))
}

fn mac(field: &'static str, text: &str) -> Result<String, Unclear> {
    let problem = || format!("{:?} is no hardware address such as fa:16:3e:00:00:01", shortened(text));
    parse_mac(text).ok_or_else(|| Unclear::field(field, problem()))
}

/// Six pairs of hexadecimal digits, written anew in lower case.
fn parse_mac(text: &str) -> Option<String> {
    let mut pairs = Vec::with_capacity(6);
    for pair in text.split(':') {
        if pair.len() != 2 || pairs.len() == 6 || !pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        pairs.push(pair.to_ascii_lowercase());
    }
    (pairs.len() == 6).then(|| pairs.join(":"))
}

/// What a person wrote, short enough for a message.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
