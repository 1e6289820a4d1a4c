//! What is said over the wire: the JSON of questions and answers, for the server and for its clients.

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    agent::{Section, ovs::Stands},
    ovs,
};

/// A packet to be followed: where it comes from and where it shall go.
///
/// `from` and `to` are names a person has: of a port, a VM (`vm-uuid`), a logical port (`iface-id`); `to` may also be a
/// hardware or an IP address. Everything else is filled in from what the switch knows, unless it is given.
///
/// ```
/// use cobalt_core::agent::ovs::endpoints::wire::TraceQuestion;
///
/// let question: TraceQuestion = serde_json::from_str(r#"{"from": "tap-vm1", "to": "tap-vm2"}"#).unwrap();
/// assert_eq!(question.from, "tap-vm1");
/// assert!(serde_json::from_str::<TraceQuestion>(r#"{"from": "tap-vm1", "form": "tap-vm2"}"#).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TraceQuestion {
    /// The port it enters by, or the VM or logical port behind it.
    pub from: String,
    /// Where it shall go: a port, VM, logical port, hardware address or IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The bridge it enters; that of `from` unless given, and refused if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Its source at the link layer; that of `from` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its destination at the link layer; that of `to` unless given. For another subnet it is the gateway's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The VLAN it is tagged with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its source address, if it is an IP packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_address: Option<IpAddr>,
    /// Its destination address, if it is an IP packet; `to` if that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_address: Option<IpAddr>,
    /// What IP carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The port it comes from, of TCP, UDP or SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// The port it goes to, of TCP, UDP or SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
}

/// What an IP packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// An echo request.
    Icmp,
}

/// A packet's way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceAnswer {
    /// What became of it, in words.
    pub summary: String,
    /// What became of it, in a word.
    pub verdict: Verdict,
    /// The ports it leaves by.
    #[serde(default)]
    pub ports: Vec<PortName>,
    /// The bridge it entered.
    pub bridge: String,
    /// The port it entered by.
    pub in_port: String,
    /// Its source and destination at the link layer.
    pub source: String,
    /// Its destination at the link layer.
    pub destination: String,
    /// The rules it met, in order.
    pub steps: Vec<Step>,
    /// The switch's own words.
    pub text: String,
}

/// What becomes of a packet, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It leaves by some port.
    Forwarded,
    /// It is dropped.
    Dropped,
    /// It is sent to the controller.
    Controller,
    /// Something this version has no word for.
    #[serde(other)]
    Other,
}

/// A port, and what is behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortName {
    /// Its name.
    pub name: String,
    /// The VM behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The host behind it, by its name in OVN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chassis: Option<String>,
}

/// One rule met on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The bridge.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// What matched.
    pub matched: String,
    /// What was done.
    pub actions: Vec<String>,
}

/// What to capture. What is not given is the server's default; what is too much is refused with its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CaptureQuestion {
    /// The port, or the VM or logical port behind it.
    pub port: String,
    /// Stop after so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Stop after so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Keep so many bytes of each packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap_len: Option<u32>,
}

/// A capture that was started, and how it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureView {
    /// Its name.
    pub id: String,
    /// The port.
    pub port: String,
    /// When it was started.
    pub started_at: Timestamp,
    /// How long it lasts at most.
    pub seconds: u64,
    /// The bytes there are by now.
    pub bytes: u64,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// How looking for stale flows stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaleFlows {
    /// Whether somebody is looking now.
    pub looking: bool,
    /// How many looks have ended. Whoever asks for one waits for the next; while one is under way, for the one after.
    pub looks: u64,
    /// When the last look ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// How many flows nothing in OVN explains; absent if nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u64>,
    /// Their cookies, at most a hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cookies: Vec<StaleCookie>,
    /// Why nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// Stale flows of one cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StaleCookie {
    /// The cookie, as `ovs-ofctl` writes it.
    pub cookie: String,
    /// How many flows have it.
    pub flows: u64,
}

impl From<Stands> for StaleFlows {
    fn from(from: Stands) -> Self {
        /// So many cookies are named.
        const NAMED: usize = 100;
        let unknown = match &from.found {
            Section::Known(_) => None,
            Section::NotYet => Some("nobody has looked yet".to_owned()),
            Section::NotOffered => Some("the agent has no access to the southbound database (--southbound)".to_owned()),
            Section::Failed(why) => Some(why.clone()),
        };
        let found = from.found.known();
        let named = |(cookie, flows): (&u64, &u64)| StaleCookie { cookie: format!("{cookie:#x}"), flows: *flows };
        Self {
            looking: from.looking,
            looks: from.looks,
            at: from.at,
            flows: found.map(|found| found.values().fold(0, |sum: u64, flows| sum.saturating_add(*flows))),
            cookies: found.into_iter().flatten().take(NAMED).map(named).collect(),
            unknown,
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Traffic is or will be lost.
    Critical,
    /// Something is out of order, and traffic may still flow.
    Warning,
    /// Worth knowing.
    #[serde(other)]
    Info,
}

/// Something that was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What kind of thing it is, in a CamelCase word.
    pub kind: String,
    /// What it is about: a port, a bridge, a daemon.
    pub object: String,
    /// What was found, in words.
    pub message: String,
    /// What a person should do.
    pub advice: String,
}

/// Everything that is wrong with a switch at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// When it was looked at.
    pub at: Timestamp,
    /// The result in words.
    pub summary: String,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// How many more were found and are not listed.
    #[serde(default)]
    pub omitted: u64,
}

/// One port, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortAnswer {
    /// The port.
    pub port: Port,
    /// What was found.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
}

/// What is known of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its bridge.
    pub bridge: String,
    /// What it is for: `physical`, `instance`, `tunnel`, `patch`, `internal`.
    pub role: String,
    /// Whether its link is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_up: Option<bool>,
    /// Its speed in bits per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
    /// The bond it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<String>,
    /// Its number in OpenFlow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ofport: Option<i64>,
    /// The hardware address behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The VM behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The logical port it claims to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logical_port: Option<String>,
    /// The host at the other end of a tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chassis: Option<String>,
    /// Its counters.
    #[serde(default)]
    pub statistics: BTreeMap<String, u64>,
}

impl From<&ovs::Interface> for Port {
    fn from(from: &ovs::Interface) -> Self {
        Self {
            name: from.name.clone(),
            bridge: from.bridge.clone(),
            role: role(from.role).to_owned(),
            link_up: from.link_up,
            speed_bps: from.speed_bps,
            bond: from.bond.clone(),
            ofport: from.ofport,
            mac: from.mac.clone(),
            instance: from.instance.clone(),
            logical_port: from.logical_port.clone(),
            chassis: from.remote_chassis.clone(),
            statistics: from.statistics.clone(),
        }
    }
}

pub(super) fn role(role: ovs::InterfaceRole) -> &'static str {
    match role {
        ovs::InterfaceRole::Physical => "physical",
        ovs::InterfaceRole::Instance => "instance",
        ovs::InterfaceRole::Tunnel => "tunnel",
        ovs::InterfaceRole::Patch => "patch",
        ovs::InterfaceRole::Internal => "internal",
    }
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List<T> {
    /// What is in it.
    pub items: Vec<T>,
}

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// How many ports it has.
    pub ports: u32,
    /// `system` or `netdev`.
    pub datapath_type: String,
    /// Flows by table; absent if the bridge does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_per_table: Option<BTreeMap<u8, u64>>,
}

impl From<ovs::Bridge> for Bridge {
    fn from(from: ovs::Bridge) -> Self {
        let ovs::Bridge { name, ports, datapath_type, flows, .. } = from;
        Self { name, ports, datapath_type, flows_per_table: flows }
    }
}

/// A learned address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FdbEntry {
    /// The port it was seen on.
    pub port: String,
    /// The VLAN.
    pub vlan: u16,
    /// The address.
    pub mac: String,
    /// How many seconds ago.
    pub age_seconds: u64,
}

impl From<ovs::FdbEntry> for FdbEntry {
    fn from(from: ovs::FdbEntry) -> Self {
        Self { port: from.port, vlan: from.vlan, mac: from.mac, age_seconds: from.age.as_secs() }
    }
}

/// A bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bond {
    /// Its name.
    pub name: String,
    /// Who makes it: `ovs` or `kernel`.
    pub kind: String,
    /// How it distributes.
    pub mode: String,
    /// Whether it negotiates by LACP.
    pub lacp: bool,
    /// Its members.
    pub members: Vec<BondMember>,
}

/// One leg of a bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BondMember {
    /// The interface.
    pub name: String,
    /// Whether the bond sends over it; left out if nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether its link is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_up: Option<bool>,
    /// What LACP says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacp: Option<String>,
    /// The partner's system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
}

impl From<ovs::Bond> for Bond {
    fn from(from: ovs::Bond) -> Self {
        let kind = match from.kind {
            ovs::BondKind::Ovs => "ovs",
            ovs::BondKind::Kernel => "kernel",
        };
        let member = |member: &ovs::BondMember| BondMember {
            name: member.name.clone(),
            enabled: member.enabled,
            link_up: member.link_up,
            lacp: member.lacp.clone(),
            partner: member.partner.clone(),
        };
        let members = from.members.iter().map(member).collect();
        Self { name: from.name, kind: kind.into(), mode: from.mode, lacp: from.lacp, members }
    }
}

/// A line of the answer to `flows`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FlowLine {
    /// A flow.
    Flow(Flow),
    /// The last line. An answer without it was cut off.
    End {
        /// What there is to say at the end.
        end: FlowsEnd,
    },
}

/// The last line of the answer to `flows`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsEnd {
    /// How many flows came before.
    pub flows: u64,
    /// Whether there are more.
    pub truncated: bool,
    /// Why it ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Who put it there, as a hexadecimal number.
    pub cookie: String,
    /// How long it has been there.
    pub age_seconds: u64,
    /// Packets that met it.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// What it matches.
    pub matched: String,
    /// What it does.
    pub actions: String,
}

impl From<ovs::Flow> for Flow {
    fn from(from: ovs::Flow) -> Self {
        Self {
            table: from.table,
            priority: from.priority,
            cookie: format!("{:#x}", from.cookie),
            age_seconds: from.age.as_secs(),
            packets: from.packets,
            bytes: from.bytes,
            matched: from.matched,
            actions: from.actions,
        }
    }
}

impl TraceAnswer {
    /// The answer for this packet, with what the snapshot knows of the ports it leaves by.
    pub fn new(request: &ovs::TraceRequest, trace: ovs::Trace, snapshot: &ovs::OvsSnapshot) -> Self {
        let named = |name: &String| {
            let known = snapshot.interfaces.iter().find(|port| port.name == *name);
            let instance = known.and_then(|port| port.instance.clone());
            let chassis = known.and_then(|port| port.remote_chassis.clone());
            PortName { name: name.clone(), instance, chassis }
        };
        let (verdict, ports) = match &trace.verdict {
            ovs::Verdict::Forwarded(ports) => (Verdict::Forwarded, ports.iter().map(named).collect()),
            ovs::Verdict::Dropped => (Verdict::Dropped, Vec::new()),
            ovs::Verdict::Controller => (Verdict::Controller, Vec::new()),
        };
        let steps: Vec<Step> = trace
            .steps
            .into_iter()
            .map(|step| Step { bridge: step.bridge, table: step.table, matched: step.matched, actions: step.actions })
            .collect();
        let summary = summary(verdict, &ports, steps.last());
        Self {
            summary,
            verdict,
            ports,
            bridge: request.bridge.clone(),
            in_port: request.in_port.clone(),
            source: request.ethernet.0.clone(),
            destination: request.ethernet.1.clone(),
            steps,
            text: trace.text,
        }
    }
}

fn summary(verdict: Verdict, ports: &[PortName], last: Option<&Step>) -> String {
    let place = last.map_or_else(String::new, |step| format!(" in table {} of {}", step.table, step.bridge));
    match verdict {
        Verdict::Forwarded if ports.is_empty() => "the packet is forwarded".to_owned(),
        Verdict::Forwarded => {
            let name = |port: &PortName| match (&port.instance, &port.chassis) {
                (Some(instance), _) => format!("{} (VM {instance})", port.name),
                (None, Some(chassis)) => format!("{} (tunnel to {chassis})", port.name),
                (None, None) => port.name.clone(),
            };
            let names: Vec<String> = ports.iter().map(name).collect();
            format!("the packet leaves by {}", names.join(", "))
        }
        Verdict::Dropped => {
            let rule = last.filter(|step| !step.matched.is_empty());
            let rule = rule.map_or_else(String::new, |step| format!(", where it meets {}", step.matched));
            format!("the packet is dropped{place}{rule}")
        }
        Verdict::Controller => format!("the packet is sent to the controller{place}"),
        Verdict::Other => "see the switch's own words".to_owned(),
    }
}
