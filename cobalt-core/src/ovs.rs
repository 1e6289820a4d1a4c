//! Open vSwitch (and OVN's controller) on one host.
//!
//! An [`OvsInspector`] answers three kinds of question: what is configured and does it work
//! ([`snapshot`](OvsInspector::snapshot)), what changed ([`changes`](OvsInspector::changes)), and why does this
//! packet not arrive ([`trace`](OvsInspector::trace), [`capture`](OvsInspector::capture)). It observes: nothing here
//! deletes a port or a flow.
//!
//! A daemon that does not answer is a finding, not a failed snapshot: the snapshot says for each daemon how it was
//! reached ([`Daemon`]), and what could not be read is `None`.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::{Error, Result};

/// What this inspector can do here and now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OvsFeatures {
    /// [`OvsInspector::trace`] works.
    pub trace: bool,
    /// [`OvsInspector::capture`] works.
    pub capture: bool,
    /// [`OvsInspector::flows`] works.
    pub flows: bool,
    /// [`OvsInspector::counters`] works.
    pub counters: bool,
    /// It is told to read the OVN southbound database, by which stale flows are told from live ones. Whether that
    /// database answers is another question.
    pub southbound: bool,
}

/// How a daemon answered its control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Daemon {
    /// It answered, with its version.
    Responsive {
        /// Its version, such as `3.1.0`; `None` if it would not say.
        version: Option<String>,
    },
    /// It has a socket and does not answer in time: it hangs.
    Unresponsive,
    /// It has a socket that we cannot use.
    Inaccessible {
        /// What the operating system says, such as `permission denied`.
        why: String,
    },
    /// Nobody listens: it is dead, or was never started.
    Absent,
}

impl Daemon {
    /// Whether it answered.
    pub fn is_responsive(&self) -> bool {
        matches!(self, Self::Responsive { .. })
    }

    /// Its version, if it told.
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Responsive { version } => version.as_deref(),
            Self::Unresponsive | Self::Inaccessible { .. } | Self::Absent => None,
        }
    }
}

/// Everything about the switch at one moment. Lists are ordered by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OvsSnapshot {
    /// When it was taken.
    pub at: Timestamp,
    /// Whether the configuration database is connected. If not, the rest is what was last known, or nothing.
    pub database_connected: bool,
    /// `ovsdb-server`.
    pub database: Daemon,
    /// `ovs-vswitchd`.
    pub switch: Daemon,
    /// DPDK's version where the switch runs on it.
    pub dpdk: Option<String>,
    /// The bridges.
    pub bridges: Vec<Bridge>,
    /// The interfaces of all bridges.
    pub interfaces: Vec<Interface>,
    /// The bonds. Those of the switch tell the truth about their members only while it is responsive.
    pub bonds: Vec<Bond>,
    /// OVN's controller, where the host has one.
    pub controller: Option<Controller>,
    /// The database has a change that the switch has not taken up.
    pub configuration_pending: bool,
}

/// One bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// How many ports it has; a bond is one.
    pub ports: u32,
    /// `system` or `netdev`.
    pub datapath_type: String,
    /// Flows per table, tables without flows left out; `None` if the bridge does not answer.
    pub flows: Option<BTreeMap<u8, u64>>,
}

impl Bridge {
    /// Flows in all tables; `None` if the bridge does not answer.
    pub fn total_flows(&self) -> Option<u64> {
        self.flows.as_ref().map(|tables| tables.values().fold(0, |sum: u64, flows| sum.saturating_add(*flows)))
    }
}

/// What an interface is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterfaceRole {
    /// A network card.
    Physical,
    /// A VM's port.
    Instance,
    /// A tunnel to another host.
    Tunnel,
    /// A patch between bridges.
    Patch,
    /// The bridge's own port.
    Internal,
}

/// One interface of the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The bridge it belongs to.
    pub bridge: String,
    /// What it is for.
    pub role: InterfaceRole,
    /// Whether somebody wants it to work (`admin_state`); `None` if the switch does not say.
    pub admin_up: Option<bool>,
    /// Whether the link is up; `None` if the switch does not say.
    pub link_up: Option<bool>,
    /// Its speed in bits per second.
    pub speed_bps: Option<u64>,
    /// The bond it is a member of.
    pub bond: Option<String>,
    /// The switch's complaint about it.
    pub error: Option<String>,
    /// The kernel's number for the device; 0 once the device has vanished.
    pub ifindex: Option<u32>,
    /// The OpenFlow port; -1 if the device could never be opened.
    pub ofport: Option<i64>,
    /// The hardware address of the device at the other end: that of the VM's card (`attached-mac`), or the device's own.
    pub mac: Option<String>,
    /// The VM it belongs to (`vm-uuid`).
    pub instance: Option<String>,
    /// The logical port it claims to be (`iface-id`).
    pub logical_port: Option<String>,
    /// What OVN makes of that claim; `None` without one, or without a controller to ask.
    pub binding: Option<Binding>,
    /// The host at the other end of a tunnel, by its name in OVN.
    pub remote_chassis: Option<String>,
    /// Whether OVN still has that host; `None` without the southbound database.
    pub remote_known: Option<bool>,
    /// What is said of its device.
    pub device: Device,
    /// Counters under the switch's own names. The set of names is open.
    pub statistics: BTreeMap<String, u64>,
}

/// What is said of the device of an interface. What nobody says is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// What makes it, in the switch's words: `system`, `internal`, `geneve`, `dpdkvhostuserclient`.
    pub kind: Option<String>,
    /// How long its packets may be, in bytes.
    pub mtu: Option<u32>,
    /// Whether it sends and receives at the same time.
    pub full_duplex: Option<bool>,
    /// How often its link has come or gone.
    pub link_resets: Option<u64>,
    /// How much may come in by it, in bits per second; 0 is no bound.
    pub policing_bps: Option<u64>,
    /// And how many bits more for a moment.
    pub policing_burst_bits: Option<u64>,
}

/// What OVN makes of a port's claim to be a logical port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Binding {
    /// It is that port, here.
    Here,
    /// The logical port exists and is bound elsewhere: to that chassis, or to another interface of this host.
    Elsewhere(String),
    /// There is no such logical port.
    Unknown,
}

/// Who makes several interfaces one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BondKind {
    /// The switch.
    Ovs,
    /// The kernel; the switch sees one interface.
    Kernel,
}

/// One bond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bond {
    /// Its name.
    pub name: String,
    /// Who makes it.
    pub kind: BondKind,
    /// How it distributes, such as `balance-tcp`.
    pub mode: String,
    /// Whether it negotiates by LACP.
    pub lacp: bool,
    /// Its members, ordered by name.
    pub members: Vec<BondMember>,
}

impl Bond {
    /// Members that carry traffic.
    pub fn active_members(&self) -> usize {
        self.members.iter().filter(|member| member.enabled == Some(true)).count()
    }

    /// Whether of every member is known if it carries traffic.
    pub fn is_told(&self) -> bool {
        self.members.iter().all(|member| member.enabled.is_some())
    }

    /// Whether a member does its part: it carries traffic, or it waits with a link in a bond of the kernel's that uses one
    /// at a time.
    pub fn is_sound(&self, member: &BondMember) -> bool {
        let waits = self.kind == BondKind::Kernel && self.mode == "active-backup" && member.link_up == Some(true);
        member.enabled == Some(true) || (waits && self.active_members() > 0)
    }

    /// Whether a member is known not to do its part.
    pub fn is_unsound(&self, member: &BondMember) -> bool {
        member.enabled.is_some() && !self.is_sound(member)
    }
}

/// One leg of a bond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BondMember {
    /// The interface.
    pub name: String,
    /// Whether the bond sends over it, which a link that is up does not say; `None` if whoever makes the bond has not
    /// said. The kernel keeps how LACP fares from the unprivileged.
    pub enabled: Option<bool>,
    /// Whether its link is up; `None` if nobody says.
    pub link_up: Option<bool>,
    /// Its speed in bits per second. The members of a kernel's bond are no interfaces of the switch, so only this tells.
    pub speed_bps: Option<u64>,
    /// What LACP says: `current`, `expired`, `defaulted`; `None` without LACP.
    pub lacp: Option<String>,
    /// The partner's system, as LACP names it; `None` without LACP or without a partner.
    pub partner: Option<String>,
}

/// OVN's controller on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// How it answered.
    pub daemon: Daemon,
    /// Whether it says that it is connected to the southbound database.
    pub southbound_connected: bool,
    /// Whether that database answers. Over a UNIX socket a controller goes on saying that it is connected to one that
    /// hangs, so it is asked; `None` over TCP and TLS, where the controller itself asks (unless
    /// `ovn-remote-probe-interval` is 0), or if nobody could ask.
    pub southbound_responsive: Option<bool>,
    /// The southbound database it is configured for.
    pub southbound: Option<String>,
    /// Its name in OVN.
    pub chassis_id: Option<String>,
    /// Whether it has OpenFlow connections to the switch.
    pub openflow_connected: Option<bool>,
    /// How many configuration steps it is behind the northbound database; `None` if unknown.
    pub lag: Option<u64>,
    /// The configuration step it is to reach; `None` if unknown. In a busy cloud that one is another each time.
    pub wanted: Option<u64>,
    /// Logical ports that OVN has bound to this host and that no interface here claims; `None` without the southbound
    /// database.
    pub unplugged: Option<Vec<String>>,
    /// How it is configured.
    pub configuration: ControllerConfiguration,
}

/// How OVN's controller is configured, in the words of whoever did: the `external_ids` of the switch that begin with
/// `ovn-`. What is not there is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControllerConfiguration {
    /// `ovn-encap-ip`: the addresses of its tunnels.
    pub encap_ip: Option<String>,
    /// `ovn-encap-type`: what the tunnels are, such as `geneve`.
    pub encap_type: Option<String>,
    /// `ovn-bridge-mappings`: physical networks, and the bridges that lead to them.
    pub bridge_mappings: Option<String>,
    /// `ovn-monitor-all`: whether it follows the whole southbound database.
    pub monitor_all: Option<String>,
    /// `ovn-remote-probe-interval`: how often it asks the southbound database whether it is there, in milliseconds.
    pub remote_probe_interval: Option<String>,
    /// `ovn-openflow-probe-interval`: how often it asks the switch, in seconds.
    pub openflow_probe_interval: Option<String>,
}

/// Something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OvsChange {
    /// The configuration or the state of a part changed; take a new snapshot.
    Changed,
    /// The database connection is there again, or gone.
    Connected(bool),
}

/// A packet to be followed through the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceRequest {
    /// The bridge it enters.
    pub bridge: String,
    /// The port it enters by.
    pub in_port: String,
    /// Source and destination at the link layer.
    pub ethernet: (String, String),
    /// The VLAN it is tagged with.
    pub vlan: Option<u16>,
    /// Source and destination addresses, if it is an IP packet.
    pub ip: Option<(IpAddr, IpAddr)>,
    /// What IP carries.
    pub transport: Option<Transport>,
}

/// What an IP packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// TCP, from port, to port.
    Tcp(u16, u16),
    /// UDP, from port, to port.
    Udp(u16, u16),
    /// SCTP, from port, to port.
    Sctp(u16, u16),
    /// An echo request.
    IcmpEcho,
}

/// A packet's way through the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The rules it met, in order.
    pub steps: Vec<TraceStep>,
    /// What became of it.
    pub verdict: Verdict,
    /// The switch's own words.
    pub text: String,
}

/// One rule met on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// The bridge.
    pub bridge: String,
    /// The table.
    pub table: u8,
    /// What matched.
    pub matched: String,
    /// What was done.
    pub actions: Vec<String>,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It leaves by these ports.
    Forwarded(Vec<String>),
    /// It is dropped.
    Dropped,
    /// It is sent to the controller.
    Controller,
}

/// What to capture, within bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureRequest {
    /// The port.
    pub port: String,
    /// Stop after this time.
    pub duration: Duration,
    /// Stop after this many bytes.
    pub max_bytes: u64,
    /// Keep this much of each packet.
    pub snap_len: u32,
}

/// One flow of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its table.
    pub table: u8,
    /// Its priority; the highest that matches wins.
    pub priority: u16,
    /// Who put it there, by a number of their own.
    pub cookie: u64,
    /// How long it has been there.
    pub age: Duration,
    /// Packets that met it.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// What it matches, as `ovs-ofctl` would write it; empty matches everything.
    pub matched: String,
    /// What it does, as `ovs-ofctl` would write it; `drop` if nothing.
    pub actions: String,
}

/// What the daemons count about themselves. The sets of names are open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OvsCounters {
    /// The datapaths, by name (`ovs-netdev`, `ovs-system`).
    pub datapaths: BTreeMap<String, DatapathCounters>,
    /// The threads that forward packets in userspace; none with the kernel's datapath.
    pub pmds: Vec<PmdCounters>,
    /// Events since the start, by daemon (`ovs-vswitchd`, `ovsdb-server`, `ovn-controller`) and name.
    pub coverage: BTreeMap<String, BTreeMap<String, u64>>,
    /// What takes memory, by daemon and name.
    pub memory: BTreeMap<String, BTreeMap<String, u64>>,
}

/// What a datapath counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatapathCounters {
    /// Packets that met a cached flow.
    pub hit: u64,
    /// Packets that had to be asked about.
    pub missed: u64,
    /// Packets that were lost on the way to being asked about.
    pub lost: u64,
    /// Cached flows now.
    pub flows: u64,
    /// How many may be cached; the switch lowers it when it cannot keep up. `None` if it does not say.
    pub flow_limit: Option<u64>,
    /// How long its last look through the cached flows took.
    pub dump: Option<Duration>,
    /// Masks by which cached flows are found; `None` if it does not say, as in userspace.
    pub masks: Option<u64>,
    /// Masks that packets were compared with, each packet with one or several.
    pub mask_hits: Option<u64>,
    /// Packets whose mask was known before.
    pub mask_cache_hits: Option<u64>,
}

/// What a thread that forwards packets counts. What it does not say is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PmdCounters {
    /// The number of its core, or `main` for the switch's own thread.
    pub thread: String,
    /// The number of its NUMA node.
    pub numa: Option<u32>,
    /// Packets received.
    pub received: Option<u64>,
    /// Packets that went through the tables once more.
    pub recirculated: Option<u64>,
    /// Packets that the exact-match cache knew.
    pub emc_hits: Option<u64>,
    /// Packets that the signature-match cache knew.
    pub smc_hits: Option<u64>,
    /// Packets that a cached flow knew.
    pub megaflow_hits: Option<u64>,
    /// Packets that had to be asked about.
    pub upcalls: Option<u64>,
    /// Those that were lost by that.
    pub failed_upcalls: Option<u64>,
    /// Cycles of the core spent on waiting.
    pub idle_cycles: Option<u64>,
    /// And on packets.
    pub busy_cycles: Option<u64>,
    /// Rounds over its queues that found nothing.
    pub idle_iterations: Option<u64>,
    /// And that found packets.
    pub busy_iterations: Option<u64>,
    /// Rounds after which it slept.
    pub sleep_iterations: Option<u64>,
    /// How long it slept in all.
    pub slept: Option<Duration>,
    /// Whether it serves only the queues that somebody gave it.
    pub isolated: Option<bool>,
    /// How much of its last minute it spent on no queue, in percent.
    pub overhead_percent: Option<u64>,
    /// The queues it serves.
    pub queues: Vec<ReceiveQueue>,
}

/// A queue of received packets, and what serving it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveQueue {
    /// The interface.
    pub interface: String,
    /// The number of the queue.
    pub queue: u32,
    /// Whether packets may come by it.
    pub enabled: bool,
    /// How much of the thread's last minute it took, in percent; `None` if nobody knows yet.
    pub usage_percent: Option<u64>,
}

/// A learned address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbEntry {
    /// The port it was seen on.
    pub port: String,
    /// The VLAN.
    pub vlan: u16,
    /// The address.
    pub mac: String,
    /// How long ago.
    pub age: Duration,
}

/// Open vSwitch on one host.
///
/// ```
/// use cobalt_core::ovs::OvsInspector;
///
/// async fn silent_bonds(switch: &dyn OvsInspector) -> cobalt_core::Result<Vec<String>> {
///     let snapshot = switch.snapshot().await?;
///     Ok(snapshot.bonds.into_iter().filter(|bond| bond.active_members() == 0).map(|bond| bond.name).collect())
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait OvsInspector: Send + Sync {
    /// What this inspector can do here.
    fn features(&self) -> OvsFeatures;

    /// Everything at this moment, from table statistics and control sockets, never from a flow dump.
    async fn snapshot(&self) -> Result<OvsSnapshot>;

    /// What changes from now on; bounded, changes may be merged.
    fn changes(&self) -> BoxStream<'static, OvsChange>;

    /// Follows a packet through the tables.
    async fn trace(&self, request: &TraceRequest) -> Result<Trace> {
        Err(Error::unsupported(format!("trace a packet on {}", request.bridge), "this switch"))
    }

    /// Captures packets of one port, as the bytes of a pcap file, within the request's bounds.
    async fn capture(&self, request: &CaptureRequest) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        Err(Error::unsupported(format!("capture on {}", request.port), "this switch"))
    }

    /// The flows of a bridge, of one table or of all, as they are read: there may be a hundred thousand.
    async fn flows(&self, bridge: &str, table: Option<u8>) -> Result<BoxStream<'static, Result<Flow>>> {
        let which = table.map_or_else(String::new, |table| format!(" in table {table}"));
        Err(Error::unsupported(format!("read the flows{which} of {bridge}"), "this switch"))
    }

    /// What the daemons count about themselves; a daemon that does not answer is left out.
    async fn counters(&self) -> Result<OvsCounters> {
        Err(Error::unsupported("read the counters", "this switch"))
    }

    /// The addresses a bridge has learned.
    async fn fdb(&self, bridge: &str) -> Result<Vec<FdbEntry>> {
        Err(Error::unsupported(format!("read the forwarding table of {bridge}"), "this switch"))
    }

    /// Cookies and counts of flows that no row of the southbound database explains: cookie → flows.
    async fn stale_flows(&self, bridge: &str) -> Result<BTreeMap<u64, u64>> {
        Err(Error::unsupported(format!("look for stale flows on {bridge}"), "this switch"))
    }
}
