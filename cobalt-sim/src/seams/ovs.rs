//! The switch of one simulated host.
//!
//! Three bridges: `br-int` with a port per VM and a tunnel to each of the host's two neighbours, `br-ex` with a bond
//! of two cards, `br-provider` with one card.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    ids::HostName,
    ovs::{
        Binding, Bond, BondKind, BondMember, Bridge, CaptureRequest, Controller, ControllerConfiguration, Daemon,
        DatapathCounters, Device, FdbEntry, Flow, Interface, InterfaceRole, OvsChange, OvsCounters, OvsFeatures,
        OvsInspector, OvsSnapshot, PmdCounters, ReceiveQueue, Trace, TraceRequest, TraceStep, Verdict,
    },
};
use futures::{StreamExt, stream, stream::BoxStream};
use uuid::Uuid;

use crate::{
    faults::{CALL_TIMEOUT, Faults},
    topic::Delivery,
    world::{DaemonState, Host, HostId, Orphan, Os, State, Switch, World},
};

const INTEGRATION: &str = "br-int";
const EXTERNAL: &str = "br-ex";
const PROVIDER: &str = "br-provider";
const BOND: &str = "bond0";
const KERNEL_BOND: &str = "bond1";
/// The switch at the other end of the bond.
const PARTNER: &str = "02:00:00:00:00:01";
/// Flows of OVN that are there without any VM, and those that each VM adds.
const BASE_FLOWS: u64 = 160;
const FLOWS_PER_PORT: u64 = 24;
/// Bits per second of each card.
const CARD_SPEED: u64 = 100_000_000_000;
const STALE_COOKIE: u64 = 0xdead_beef;

/// The switch of one simulated host. Clones share their faults; a new one from
/// [`Region::switch`](crate::Region::switch) has its own.
#[derive(Debug, Clone)]
pub struct SimSwitch {
    world: World,
    host: HostId,
    name: HostName,
    faults: Faults,
    southbound: bool,
}

/// The name of a VM's port.
pub(super) fn tap(vm: Uuid) -> String {
    let bytes = vm.as_bytes();
    format!("tap{:02x}{:02x}{:02x}{:02x}-{:02x}", bytes[0], bytes[1], bytes[2], bytes[3], bytes[4])
}

fn mac(vm: Uuid) -> String {
    let bytes = vm.as_bytes();
    format!("fa:16:3e:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2])
}

impl SimSwitch {
    pub(crate) fn new(world: World, host: HostId) -> Self {
        let name = world.with(|state| state.host(host).name.clone());
        Self { world, host, name, faults: Faults::default(), southbound: true }
    }

    /// The same switch for somebody who may not read the southbound database.
    #[must_use]
    pub fn without_southbound(mut self) -> Self {
        self.southbound = false;
        self
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn call<T>(
        &self,
        method: &'static str,
        what: impl FnOnce() -> String + Send,
        act: impl FnOnce(&State, &Host, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let operation = format!("{} on {}", what(), self.name);
        let call = || async {
            match self.world.with(|state| state.host(self.host).os) {
                Os::Up => self.world.with(|state| act(state, state.host(self.host), &operation)),
                Os::Hung => {
                    tokio::time::sleep(CALL_TIMEOUT).await;
                    Err(Error::timeout(operation.clone(), CALL_TIMEOUT))
                }
                Os::Down | Os::Booting => {
                    Err(Error::unavailable(operation.clone(), std::io::Error::other("the host does not run")))
                }
            }
        };
        self.faults.run(method, || operation.clone(), call).await
    }

    /// For the calls that need a switch that answers.
    async fn ask<T>(
        &self,
        method: &'static str,
        what: impl FnOnce() -> String + Send,
        bridge: &str,
        act: impl FnOnce(&State, &Host, &str) -> Result<T> + Send,
    ) -> Result<T> {
        self.call(method, what, |state, host, operation| {
            match host.switch.vswitchd {
                DaemonState::Running => {}
                DaemonState::Hung => return Err(Error::timeout(operation, CALL_TIMEOUT)),
                DaemonState::Dead => {
                    return Err(Error::unavailable(operation, std::io::Error::other("connection refused")));
                }
            }
            if ![INTEGRATION, EXTERNAL, PROVIDER].contains(&bridge) {
                return Err(Error::not_found(operation));
            }
            if host.switch.bridges_silent.contains(bridge) {
                return Err(Error::timeout(operation, CALL_TIMEOUT));
            }
            act(state, host, operation)
        })
        .await
    }
}

fn daemon(state: DaemonState, version: &str) -> Daemon {
    match state {
        DaemonState::Running => Daemon::Responsive { version: Some(version.to_owned()) },
        DaemonState::Hung => Daemon::Unresponsive,
        DaemonState::Dead => Daemon::Absent,
    }
}

/// The VMs that have a port: those that run, in order of their ids.
fn guests(host: &Host) -> impl Iterator<Item = Uuid> + '_ {
    host.domains.iter().filter(|(_, domain)| domain.state.is_active()).map(|(id, _)| *id)
}

fn interface(name: &str, bridge: &str, role: InterfaceRole) -> Interface {
    Interface {
        name: name.to_owned(),
        bridge: bridge.to_owned(),
        role,
        admin_up: Some(true),
        link_up: Some(true),
        speed_bps: None,
        bond: None,
        error: None,
        ifindex: Some(1),
        ofport: Some(1),
        mac: None,
        instance: None,
        logical_port: None,
        binding: None,
        remote_chassis: None,
        remote_known: None,
        device: device(role),
        statistics: statistics(0, 0),
    }
}

fn device(role: InterfaceRole) -> Device {
    let kind = match role {
        InterfaceRole::Tunnel => "geneve",
        InterfaceRole::Patch => "patch",
        InterfaceRole::Internal => "internal",
        _ => "system",
    };
    Device {
        kind: Some(kind.to_owned()),
        mtu: Some(1500),
        full_duplex: Some(true),
        link_resets: Some(0),
        policing_bps: Some(0),
        policing_burst_bits: Some(0),
    }
}

/// What an interface counts after so many packets each way, and so many dropped.
fn statistics(packets: u64, dropped: u64) -> BTreeMap<String, u64> {
    let bytes = packets.saturating_mul(512);
    [
        ("rx_packets", packets),
        ("tx_packets", packets),
        ("rx_bytes", bytes),
        ("tx_bytes", bytes),
        ("rx_dropped", dropped),
        ("tx_dropped", 0),
        ("rx_errors", 0),
        ("tx_errors", 0),
        ("rx_crc_err", 0),
        ("collisions", 0),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn interfaces(state: &State, host: &Host) -> Vec<Interface> {
    let switch = &host.switch;
    let controls = switch.controller == DaemonState::Running;
    let mut all: Vec<Interface> =
        [INTEGRATION, EXTERNAL, PROVIDER].iter().map(|name| interface(name, name, InterfaceRole::Internal)).collect();
    let provider = if switch.kernel_bond { KERNEL_BOND } else { "eth3" };
    for (card, bridge, bond) in
        [("eth1", EXTERNAL, Some(BOND)), ("eth2", EXTERNAL, Some(BOND)), (provider, PROVIDER, None)]
    {
        let up = !switch.links_down.contains(card);
        all.push(Interface {
            link_up: Some(up),
            speed_bps: up.then_some(CARD_SPEED),
            bond: bond.map(str::to_owned),
            error: switch.errors.contains(card).then(|| format!("could not set configuration of {card}")),
            statistics: statistics(0, if bond.is_none() { switch.drops } else { 0 }),
            ..interface(card, bridge, InterfaceRole::Physical)
        });
    }
    for neighbour in neighbours(state, host) {
        let name = format!("ovn-{neighbour}-0");
        all.push(Interface {
            remote_chassis: Some(neighbour.to_string()),
            remote_known: Some(true),
            ..interface(&name, INTEGRATION, InterfaceRole::Tunnel)
        });
    }
    for gone in &switch.stale_tunnels {
        all.push(Interface {
            remote_chassis: Some(gone.clone()),
            remote_known: Some(false),
            ..interface(&format!("ovn-{gone}-0"), INTEGRATION, InterfaceRole::Tunnel)
        });
    }
    for vm in guests(host) {
        let millis = host.domains.get(&vm).map_or(0, |domain| domain.run_time(state.now).as_millis());
        let packets = u64::try_from(millis / 10).unwrap_or(u64::MAX);
        all.push(Interface {
            mac: Some(mac(vm)),
            instance: Some(vm.to_string()),
            logical_port: Some(vm.to_string()),
            binding: controls.then_some(Binding::Here),
            statistics: statistics(packets, 0),
            ..interface(&tap(vm), INTEGRATION, InterfaceRole::Instance)
        });
    }
    for (port, why) in &switch.orphans {
        all.push(orphan(host, port, *why, controls));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// A port that claims this logical port and should not.
fn orphan(host: &Host, port: &str, why: Orphan, controls: bool) -> Interface {
    let name = format!("tap{}", port.chars().take(11).collect::<String>());
    let logical = port;
    let port = |binding: Binding, logical: &str| Interface {
        logical_port: Some(logical.to_owned()),
        binding: controls.then_some(binding),
        statistics: BTreeMap::new(),
        ..interface(&name, INTEGRATION, InterfaceRole::Instance)
    };
    match why {
        Orphan::NeverOpened => Interface {
            link_up: Some(false),
            error: Some(format!("could not open network device {name} (No such device)")),
            ifindex: Some(0),
            ofport: Some(-1),
            ..port(Binding::Unknown, logical)
        },
        // The database goes on saying that all is well.
        Orphan::DeviceGone => Interface { ifindex: Some(0), ..port(Binding::Here, logical) },
        Orphan::NoLogicalPort => port(Binding::Unknown, logical),
        Orphan::Elsewhere => port(Binding::Elsewhere("another-chassis".into()), logical),
        Orphan::Duplicate => match guests(host).next() {
            Some(vm) => port(Binding::Elsewhere(tap(vm)), &vm.to_string()),
            None => port(Binding::Unknown, logical),
        },
    }
}

/// The hosts before and after this one in the list: a ring of tunnels.
fn neighbours(state: &State, host: &Host) -> Vec<HostName> {
    let count = state.hosts.len();
    let Some(here) = state.hosts.iter().position(|other| other.name == host.name) else { return Vec::new() };
    let mut names: Vec<HostName> = [(here + count - 1) % count, (here + 1) % count]
        .into_iter()
        .filter(|other| *other != here)
        .map(|other| state.hosts[other].name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn bridges(host: &Host, interfaces: &[Interface]) -> Vec<Bridge> {
    let switch = &host.switch;
    let answers = |name: &str| switch.vswitchd == DaemonState::Running && !switch.bridges_silent.contains(name);
    let bridge = |name: &str, flows: u64| {
        let members = interfaces.iter().filter(|interface| interface.bridge == name);
        let (bonded, single): (Vec<_>, Vec<_>) = members.partition(|interface| interface.bond.is_some());
        let ports = single.len() + usize::from(!bonded.is_empty());
        Bridge {
            name: name.to_owned(),
            ports: u32::try_from(ports).unwrap_or(u32::MAX),
            datapath_type: "system".into(),
            flows: answers(name).then(|| BTreeMap::from([(0, flows)])),
        }
    };
    let guests = guests(host).count() as u64;
    let integration = Bridge {
        flows: answers(INTEGRATION).then(|| {
            let more = switch.stale_flows + switch.more_flows;
            BTreeMap::from([(0, BASE_FLOWS), (8, guests * FLOWS_PER_PORT), (64, guests + more)])
                .into_iter()
                .filter(|(_, flows)| *flows > 0)
                .collect()
        }),
        ..bridge(INTEGRATION, 0)
    };
    vec![bridge(EXTERNAL, 1), integration, bridge(PROVIDER, 1)]
}

fn bonds(host: &Host) -> Vec<Bond> {
    let kernel = host.switch.kernel_bond.then(|| kernel_bond(&host.switch));
    std::iter::once(bond(host)).chain(kernel).collect()
}

/// The kernel knows how its members are, whatever the switch does. It uses the first that has a link.
fn kernel_bond(switch: &Switch) -> Bond {
    let is_up = |card: &str| !switch.links_down.contains(card);
    let active = ["eno1", "eno2"].into_iter().find(|card| is_up(card));
    let member = |card: &str| {
        let up = is_up(card);
        BondMember {
            name: card.to_owned(),
            enabled: Some(active == Some(card)),
            link_up: Some(up),
            speed_bps: up.then_some(CARD_SPEED),
            lacp: None,
            partner: None,
        }
    };
    let (name, mode) = (KERNEL_BOND.into(), "active-backup".into());
    Bond { name, kind: BondKind::Kernel, mode, lacp: false, members: vec![member("eno1"), member("eno2")] }
}

fn bond(host: &Host) -> Bond {
    let switch = &host.switch;
    let member = |card: &str| {
        let up = !switch.links_down.contains(card);
        BondMember {
            name: card.to_owned(),
            enabled: Some(up && !switch.lacp_silent && switch.vswitchd == DaemonState::Running),
            link_up: Some(up),
            speed_bps: Some(CARD_SPEED),
            lacp: Some(if switch.lacp_silent { "expired" } else { "current" }.to_owned()),
            partner: (!switch.lacp_silent).then(|| PARTNER.to_owned()),
        }
    };
    let (name, mode) = (BOND.into(), "balance-tcp".into());
    Bond { name, kind: BondKind::Ovs, mode, lacp: true, members: vec![member("eth1"), member("eth2")] }
}

#[async_trait]
impl OvsInspector for SimSwitch {
    fn features(&self) -> OvsFeatures {
        OvsFeatures { trace: true, capture: true, flows: true, counters: true, southbound: self.southbound }
    }

    async fn snapshot(&self) -> Result<OvsSnapshot> {
        let reads = self.southbound;
        self.call(
            "snapshot",
            || "inspect the switch".into(),
            |state, host, _| {
                let switch = &host.switch;
                let reads = reads && !switch.southbound_lost && !host.partitioned;
                let mut interfaces = interfaces(state, host);
                for tunnel in interfaces.iter_mut().filter(|_| !reads) {
                    tunnel.remote_known = None;
                }
                Ok(OvsSnapshot {
                    at: state.timestamp(),
                    database_connected: switch.database == DaemonState::Running,
                    database: daemon(switch.database, "3.5.0"),
                    switch: daemon(switch.vswitchd, "3.5.0"),
                    dpdk: None,
                    bridges: bridges(host, &interfaces),
                    interfaces,
                    bonds: bonds(host),
                    controller: Some(Controller {
                        daemon: daemon(switch.controller, "25.03.0"),
                        southbound_connected: switch.controller == DaemonState::Running
                            && !switch.southbound_lost
                            && !host.partitioned,
                        // By ssl the controller finds out by itself.
                        southbound_responsive: None,
                        southbound: Some("ssl:[fd00::10]:6642".into()),
                        chassis_id: Some(host.name.to_string()),
                        // Who is connected to it the switch tells; a controller that hangs keeps its connection.
                        openflow_connected: (switch.vswitchd == DaemonState::Running)
                            .then_some(switch.controller != DaemonState::Dead && !switch.openflow_lost),
                        unplugged: reads.then(|| switch.unplugged.iter().cloned().collect()),
                        configuration: ControllerConfiguration {
                            encap_ip: Some("fd00::1".into()),
                            encap_type: Some("geneve".into()),
                            bridge_mappings: Some(format!("physnet1:{PROVIDER}")),
                            ..ControllerConfiguration::default()
                        },
                        lag: (reads && switch.controller == DaemonState::Running).then_some(switch.lag),
                        // Nothing that the cloud wants is ever done while there is a lag.
                        wanted: reads.then_some(switch.lag),
                    }),
                    // Nobody has changed anything: a switch that is dead is not asked to take up anything.
                    configuration_pending: switch.pending,
                })
            },
        )
        .await
    }

    fn changes(&self) -> BoxStream<'static, OvsChange> {
        let reader = self.world.with(|state| {
            let capacity = state.event_capacity;
            state.host_mut(self.host).switch_changes.subscribe(capacity, [])
        });
        reader
            .map(|delivery| match delivery {
                Delivery::Item(change) => change,
                Delivery::Lost(_) => OvsChange::Changed,
            })
            .boxed()
    }

    async fn trace(&self, request: &TraceRequest) -> Result<Trace> {
        let what = || format!("trace a packet on {}", request.bridge);
        self.ask("trace", what, &request.bridge, |state, host, operation| {
            let ports = interfaces(state, host);
            let known = |port: &Interface| port.bridge == request.bridge && port.name == request.in_port;
            if !ports.iter().any(known) {
                return Err(Error::refused(operation, format!("there is no port {} on the bridge", request.in_port)));
            }
            let to = &request.ethernet.1;
            let owner = guests(host).find(|vm| mac(*vm) == *to).map(tap);
            let tunnel = ports.iter().find(|port| port.role == InterfaceRole::Tunnel).map(|port| port.name.clone());
            let (verdict, action) = match (owner, tunnel) {
                (Some(port), _) => (Verdict::Forwarded(vec![port.clone()]), format!("output:{port}")),
                (None, Some(port)) if to == "ff:ff:ff:ff:ff:ff" => {
                    (Verdict::Forwarded(vec![port.clone()]), format!("output:{port}"))
                }
                _ => (Verdict::Dropped, "drop".to_owned()),
            };
            let addresses = |(from, to): &(IpAddr, IpAddr)| format!(",ip_src={from},ip_dst={to}");
            let matched = format!(
                "in_port={},dl_dst={to}{}",
                request.in_port,
                request.ip.as_ref().map_or(String::new(), addresses)
            );
            let step = |table, matched: &str, action: &str| TraceStep {
                bridge: request.bridge.clone(),
                table,
                matched: matched.to_owned(),
                actions: vec![action.to_owned()],
            };
            let steps = vec![step(0, &matched, "resubmit(,8)"), step(8, &matched, &action)];
            let line =
                |step: &TraceStep| format!("{:>2}. {}\n    {}", step.table, step.matched, step.actions.join(","));
            let text = steps.iter().map(line).collect::<Vec<_>>().join("\n");
            Ok(Trace { steps, verdict, text })
        })
        .await
    }

    async fn capture(&self, request: &CaptureRequest) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let what = || format!("capture on {}", request.port);
        self.ask("capture", what, INTEGRATION, |state, host, operation| {
            if !interfaces(state, host).iter().any(|port| port.name == request.port) {
                return Err(Error::not_found(operation));
            }
            let chunks = pcap(state.timestamp().as_second(), request);
            Ok(stream::iter(chunks.into_iter().map(Ok)).boxed())
        })
        .await
    }

    async fn flows(&self, bridge: &str, table: Option<u8>) -> Result<BoxStream<'static, Result<Flow>>> {
        let what = || format!("read the flows of {bridge}");
        self.ask("flows", what, bridge, |state, host, _| {
            let ports = interfaces(state, host);
            let found = bridges(host, &ports).into_iter().find(|found| found.name == bridge);
            let tables = found.and_then(|bridge| bridge.flows).unwrap_or_default();
            let wanted = tables.into_iter().filter(move |(number, _)| table.is_none_or(|wanted| wanted == *number));
            let flows = wanted.flat_map(|(table, count)| (0..count).map(move |number| flow(table, number)));
            Ok(stream::iter(flows.map(Ok)).boxed())
        })
        .await
    }

    async fn counters(&self) -> Result<OvsCounters> {
        self.call(
            "counters",
            || "read the counters".into(),
            |state, host, _| {
                let mut counters = OvsCounters::default();
                if host.switch.vswitchd == DaemonState::Running {
                    let packets = |port: &Interface| port.statistics.get("rx_packets").copied().unwrap_or(0);
                    let hit = interfaces(state, host).iter().map(packets).sum();
                    let datapath = DatapathCounters {
                        hit,
                        missed: hit / 100,
                        lost: 0,
                        flows: 8,
                        flow_limit: Some(200_000),
                        dump: Some(Duration::from_millis(1)),
                        masks: Some(4),
                        mask_hits: Some(hit),
                        mask_cache_hits: Some(hit / 2),
                    };
                    counters.datapaths.insert("ovs-system".into(), datapath);
                    counters.pmds.push(PmdCounters { thread: "main".into(), received: Some(hit), ..pmd() });
                }
                let daemons = [
                    ("ovs-vswitchd", host.switch.vswitchd),
                    ("ovsdb-server", host.switch.database),
                    ("ovn-controller", host.switch.controller),
                ];
                for (daemon, _) in daemons.into_iter().filter(|(_, state)| *state == DaemonState::Running) {
                    let named = |name: &str, value: u64| BTreeMap::from([(name.to_owned(), value)]);
                    counters.coverage.insert(daemon.into(), named("util_xalloc", 1000));
                    counters.memory.insert(daemon.into(), named("cells", 200));
                }
                Ok(counters)
            },
        )
        .await
    }

    async fn fdb(&self, bridge: &str) -> Result<Vec<FdbEntry>> {
        self.ask(
            "fdb",
            || format!("read the forwarding table of {bridge}"),
            bridge,
            |_, host, _| {
                if bridge != INTEGRATION {
                    return Ok(Vec::new());
                }
                let learned = guests(host).map(|vm| FdbEntry {
                    port: tap(vm),
                    vlan: 0,
                    mac: mac(vm),
                    age: Duration::from_secs(u64::from(vm.as_bytes()[1])),
                });
                Ok(learned.collect())
            },
        )
        .await
    }

    async fn stale_flows(&self, bridge: &str) -> Result<BTreeMap<u64, u64>> {
        if !self.southbound {
            return Err(Error::unsupported(format!("look for stale flows on {bridge}"), "this switch"));
        }
        self.ask(
            "stale_flows",
            || format!("look for stale flows on {bridge}"),
            bridge,
            |_, host, operation| {
                if host.switch.southbound_lost || host.partitioned {
                    let cause = std::io::Error::other("the southbound database does not answer");
                    return Err(Error::unavailable(operation, cause));
                }
                let stale = host.switch.stale_flows;
                let found = (bridge == INTEGRATION && stale > 0).then_some((STALE_COOKIE, stale));
                Ok(found.into_iter().collect())
            },
        )
        .await
    }
}

/// A thread that has slept until now, with a queue.
fn pmd() -> PmdCounters {
    let queue = ReceiveQueue { interface: "eth1".into(), queue: 0, enabled: true, usage_percent: Some(0) };
    PmdCounters {
        idle_iterations: Some(0),
        busy_iterations: Some(0),
        sleep_iterations: Some(0),
        slept: Some(Duration::ZERO),
        isolated: Some(false),
        overhead_percent: Some(0),
        queues: vec![queue],
        ..PmdCounters::default()
    }
}

/// An invented flow: of each table, the one of that number.
fn flow(table: u8, number: u64) -> Flow {
    Flow {
        table,
        priority: 100,
        cookie: number,
        age: Duration::from_secs(60),
        packets: 0,
        bytes: 0,
        matched: format!("reg0={number:#x}"),
        actions: "drop".into(),
    }
}

/// A pcap file with a broadcast frame per second of the capture, within the request's bounds.
fn pcap(start: i64, request: &CaptureRequest) -> Vec<Vec<u8>> {
    const FRAME: usize = 60;
    let mut header = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, request.snap_len, 1] {
        header.extend(word.to_le_bytes());
    }
    let mut left = request.max_bytes.saturating_sub(header.len() as u64);
    if request.max_bytes < header.len() as u64 {
        return Vec::new();
    }
    let mut chunks = vec![header];
    let kept = FRAME.min(request.snap_len as usize);
    for second in 0..request.duration.as_secs().min(1024) {
        let size = (16 + kept) as u64;
        if size > left {
            break;
        }
        left -= size;
        let stamp = u32::try_from(start).unwrap_or(0).wrapping_add(u32::try_from(second).unwrap_or(0));
        let lengths = [u32::try_from(kept).unwrap_or(0), u32::try_from(FRAME).unwrap_or(0)];
        let mut record = Vec::with_capacity(16 + kept);
        for word in [stamp, 0, lengths[0], lengths[1]] {
            record.extend(word.to_le_bytes());
        }
        let mut frame = vec![0xff; 6];
        frame.resize(FRAME, 0);
        record.extend(&frame[..kept]);
        chunks.push(record);
    }
    chunks
}
