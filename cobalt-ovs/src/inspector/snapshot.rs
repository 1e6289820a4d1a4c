//! Everything at one moment, put together from all sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, PoisonError},
    time::Duration,
};

use cobalt_core::ovs::{
    Binding, Bond, BondKind, Bridge, Controller, Daemon, Interface, InterfaceRole, OvsCounters, OvsSnapshot,
};
use futures::{StreamExt, stream};
use jiff::Timestamp;

use super::{
    Inner, OvsSwitch,
    answers::{ControllerAnswers, Daemons, SwitchAnswers, told},
    connections,
    inventory::{self, Inventory},
    kernel::{self, KernelBond},
    southbound::{self, Known},
};
use crate::{
    error,
    openflow::{OpenFlow, Options, flow_counts},
    ovsdb::{Datum, Operation, Ovsdb, Replica, Row, Tables},
    remote::Remote,
    show::{self, LocalBinding},
};

/// How many bridges are asked at a time.
const BRIDGES: usize = 4;
/// How long the kernel may take for a few files.
const KERNEL: Duration = Duration::from_secs(2);
/// How often the switch is asked for its connections while ours come and go, and how long to wait in between.
const COUNTS: u32 = 8;
const COUNT_AGAIN: Duration = Duration::from_millis(50);
/// After so many answers without a change of ours the next one counts none that we have closed, and all we have opened:
/// between two answers the switch looks after its connections, and it takes two such looks to let go of one.
const SETTLED: u32 = 2;
/// How often the southbound database is asked while others ask for other rows.
const NARROWINGS: u32 = 3;

pub(super) async fn take(switch: &OvsSwitch) -> OvsSnapshot {
    let inner = &switch.inner;
    let at = Timestamp::now();
    let mut found = inner.database.read(inventory::read);
    let southbound = switch.southbound();
    let (database, (answers, openflow_connected), controller, mut counted, known, responsive, kernel) = tokio::join!(
        inner.daemons.database.daemon(),
        ask_switch(switch, found.configured_controllers),
        inner.daemons.ask_controller(),
        counted(&inner.database),
        ask_southbound(southbound.as_ref(), &found, inner.options.control_timeout),
        is_responsive(switch, &found),
        kernel_bonds(switch, &found),
    );
    if answers.daemon.is_responsive() {
        count_flows(switch, &mut found.bridges).await;
    }
    for interface in &mut found.interfaces {
        let counted = counted.remove(&interface.name).unwrap_or_default();
        (interface.statistics, interface.device.link_resets) = (counted.statistics, counted.link_resets);
    }
    fill_bonds(switch, &answers, &mut found.bonds);
    let local = controller.bindings.as_deref().map(show::bindings);
    fill_bindings(&mut found.interfaces, known.as_ref(), local.as_deref());
    add_kernel_bonds(&mut found, kernel);
    OvsSnapshot {
        at,
        database_connected: inner.database.is_connected(),
        database,
        dpdk: found.dpdk.clone(),
        configuration_pending: found.configuration_pending,
        controller: describe_controller(&found, controller, known).map(|controller| Controller {
            openflow_connected,
            southbound_responsive: responsive,
            ..controller
        }),
        switch: answers.daemon,
        bridges: found.bridges,
        interfaces: found.interfaces,
        bonds: found.bonds,
    }
}

/// What is counted of an interface.
#[derive(Debug, Default)]
struct Counted {
    statistics: BTreeMap<String, u64>,
    link_resets: Option<u64>,
}

/// What is counted of all interfaces, by name. It is asked for and not followed: it changes all the time.
async fn counted(database: &Replica) -> BTreeMap<String, Counted> {
    let Ok(client) = database.client() else { return BTreeMap::new() };
    let wanted = Operation::select("Interface", []).columns(["name", "statistics", "link_resets"]);
    let mut all = BTreeMap::new();
    let take = |row: Row| {
        let counters = row.get("statistics").map(Datum::pairs).unwrap_or_default();
        let counters = counters.iter().filter_map(|(name, value)| {
            // What is not counted is written as -1.
            Some((name.as_str()?.to_owned(), u64::try_from(value.as_i64()?).ok()?))
        });
        if let Some(name) = row.str("name") {
            let link_resets = row.integer("link_resets").and_then(|resets| u64::try_from(resets).ok());
            all.insert(name.to_owned(), Counted { statistics: counters.collect(), link_resets });
        }
    };
    if let Err(error) = client.select_each(inventory::DATABASE, &wanted, take).await {
        tracing::debug!(error = error::chain(&error), "no statistics");
        return BTreeMap::new();
    }
    all
}

/// What `ovs-vswitchd` says, and whether OVN's controller is connected to it; `None` if nobody can tell.
///
/// The controller calls on the bridge by itself, so no row of the database tells of its connections. The switch counts
/// all there are, ours among them.
async fn ask_switch(switch: &OvsSwitch, configured: u64) -> (SwitchAnswers, Option<bool>) {
    let Inner { daemons, connections, .. } = switch.inner.as_ref();
    let mut before = connections.now();
    let mut answers = daemons.ask_switch().await;
    let mut settled = 0;
    for _ in 0..COUNTS {
        let Some(memory) = answers.memory.as_deref() else { break };
        let counted = show::memory(memory).get("ofconns").copied().unwrap_or(0);
        match connections::others(counted, configured, before, connections.now()) {
            Some(others) if settled == SETTLED || (counted == 0 && !others) => return (answers, Some(others)),
            Some(_) => settled += 1,
            None => {
                tokio::time::sleep(COUNT_AGAIN).await;
                (before, settled) = (connections.now(), 0);
            }
        }
        answers.memory = told(&daemons.switch, "memory/show").await;
    }
    (answers, None)
}

/// What the southbound database knows; `None` if it cannot be read now.
async fn ask_southbound(southbound: Option<&Replica>, found: &Inventory, limit: Duration) -> Option<Known> {
    let replica = southbound.filter(|replica| replica.is_connected())?;
    let ports: BTreeSet<&str> = found.interfaces.iter().filter_map(|port| port.logical_port.as_deref()).collect();
    let chassis = found.chassis_id.as_deref();
    // A database that hangs must not make the whole look hang.
    let asked = tokio::time::timeout(limit, async {
        // Another look may want other rows at the same time: what is read then is not what was asked for.
        for _ in 0..NARROWINGS {
            let clauses = southbound::narrow(replica, chassis, &ports).await?;
            let read = |tables: &Tables| southbound::read(tables, chassis, &found.interfaces);
            let known = match &clauses {
                Some(clauses) => replica.read_followed(southbound::PORTS, clauses, read),
                None => Some(replica.read(read)),
            };
            if known.is_some() {
                return Ok(known);
            }
        }
        Ok::<_, error::Error>(None)
    });
    match asked.await {
        Ok(Ok(known)) => known,
        Ok(Err(error)) => {
            tracing::debug!(error = error::chain(&error), "no answer of the southbound database");
            None
        }
        Err(_) => {
            tracing::debug!("the southbound database takes too long");
            None
        }
    }
}

/// Whether the southbound database behind a UNIX socket answers: over one the controller asks nobody. Over TCP and TLS it
/// asks by itself, every few seconds unless `external_ids:ovn-remote-probe-interval` is 0; a host that switched that off
/// learns of a database that hangs there by nothing but the lag. Asking in its place would be a connection more of every
/// host, each time.
async fn is_responsive(switch: &OvsSwitch, found: &Inventory) -> Option<bool> {
    let remotes = Remote::list(found.southbound.as_deref()?).ok()?;
    if !remotes.iter().all(|remote| matches!(remote, Remote::Unix(_))) {
        return None;
    }
    let limit = switch.inner.options.control_timeout;
    // A probe of the connection's own could give it up before the limit, and then nobody could tell.
    let options =
        switch.inner.options.connection.clone().call_timeout(limit).connect_timeout(limit).probe_interval(None);
    let mut hangs = None;
    for remote in &remotes {
        // One that is not there, or not to be used from here, is the controller's to tell.
        let Ok(database) = Ovsdb::connect(remote, &options).await else { continue };
        match database.echo().await {
            Ok(()) => return Some(true),
            Err(error::Error::Timeout { .. }) => hangs = Some(false),
            Err(error) => tracing::debug!(error = error::chain(&error), "no echo of the southbound database"),
        }
    }
    hangs
}

pub(super) async fn kernel_bonds(switch: &OvsSwitch, found: &Inventory) -> Vec<KernelBond> {
    let inner = &switch.inner;
    let root = inner.options.host_root.clone();
    let physical = found.interfaces.iter().filter(|interface| interface.role == InterfaceRole::Physical);
    let mut devices = found.egress.clone();
    devices.extend(physical.map(|interface| (interface.name.clone(), interface.bridge.clone())));
    // Reading a device's speed waits for the kernel's configuration lock. Until it answers, what it said last holds: a
    // broken bond must not look mended because nobody could look.
    let last = || inner.kernel.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = async {
        let turn = Arc::clone(&inner.asking_kernel).acquire_owned().await.ok()?;
        let reading = tokio::task::spawn_blocking(move || {
            let bonds = kernel::bonds(&root, &devices);
            drop(turn);
            bonds
        });
        reading.await.ok()
    };
    if let Ok(Some(bonds)) = tokio::time::timeout(KERNEL, answer).await {
        last().clone_from(&bonds);
        bonds
    } else {
        tracing::debug!("the kernel does not tell of its bonds");
        last().clone()
    }
}

async fn count_flows(switch: &OvsSwitch, bridges: &mut [Bridge]) {
    let timeout = switch.inner.options.openflow_timeout;
    let paths: Vec<_> = bridges.iter().map(|bridge| switch.management(&bridge.name)).collect();
    let counts = stream::iter(paths).map(|path| async move {
        let path = path?;
        let _held = switch.inner.connections.one();
        flows(&path, timeout).await
    });
    let counts: Vec<_> = counts.buffered(BRIDGES).collect().await;
    for (bridge, flows) in bridges.iter_mut().zip(counts) {
        bridge.flows = flows;
    }
}

/// Flows per table; `None` if the bridge does not answer.
async fn flows(management: &Path, timeout: Duration) -> Option<BTreeMap<u8, u64>> {
    let counts = async {
        let mut bridge = OpenFlow::connect(management, Options { timeout }).await?;
        bridge.table_stats().await
    };
    match counts.await {
        Ok(tables) => Some(flow_counts(&tables)),
        Err(error) => {
            tracing::debug!(error = error::chain(&error), "no flow counts");
            None
        }
    }
}

/// Which members carry traffic is known to the switch alone. While it does not answer at all, what it said last holds;
/// while it answers and does not say this, nobody knows.
fn fill_bonds(switch: &OvsSwitch, answers: &SwitchAnswers, bonds: &mut [Bond]) {
    let mut known = switch.inner.bonds.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = &answers.bonds {
        let bonds = show::bonds(text).into_iter();
        *known = bonds
            .map(|bond| (bond.name, bond.members.into_iter().map(|member| (member.name, member.enabled)).collect()))
            .collect();
    }
    if answers.daemon.is_responsive() && answers.bonds.is_none() {
        known.clear();
    }
    let lacp = answers.lacp.as_deref().map(show::lacp).unwrap_or_default();
    for bond in bonds.iter_mut().filter(|bond| bond.kind == BondKind::Ovs) {
        let lacp = lacp.iter().find(|report| report.name == bond.name);
        for member in &mut bond.members {
            if let Some(enabled) = known.get(&bond.name).and_then(|bond| bond.get(&member.name)) {
                member.enabled = Some(*enabled);
            }
            let told = lacp.and_then(|report| report.members.iter().find(|told| told.name == member.name));
            if let Some(told) = told {
                member.lacp.clone_from(&told.state);
                member.partner.clone_from(&told.partner);
            }
        }
    }
}

/// What becomes of the claims of interfaces, by the southbound database where it can be read, and by what OVN's
/// controller has bound here else. Two interfaces with the same claim are told apart by the controller alone.
fn fill_bindings(interfaces: &mut [Interface], known: Option<&Known>, local: Option<&[LocalBinding]>) {
    for interface in interfaces {
        if let (Some(chassis), Some(known)) = (&interface.remote_chassis, known) {
            interface.remote_known = Some(known.has_host(chassis));
        }
        let Some(port) = interface.logical_port.as_deref() else { continue };
        let here = local.and_then(|local| local.iter().find(|binding| binding.logical_port == port));
        interface.binding = match (known.map(|known| known.binding(port)), here) {
            (Some(Some(Binding::Here)), here) => Some(by_interface(&interface.name, here)),
            (Some(decided), _) => decided,
            (None, Some(binding)) if binding.bound > 0 => Some(by_interface(&interface.name, Some(binding))),
            (None, Some(_)) => Some(Binding::Unknown),
            (None, None) => None,
        };
    }
}

fn by_interface(name: &str, binding: Option<&LocalBinding>) -> Binding {
    match binding.and_then(|binding| binding.interface.as_deref()) {
        Some(other) if other != name => Binding::Elsewhere(other.to_owned()),
        _ => Binding::Here,
    }
}

fn add_kernel_bonds(found: &mut Inventory, kernel: Vec<KernelBond>) {
    if kernel.is_empty() {
        return;
    }
    for KernelBond { bond, interfaces } in kernel {
        found.bonds.push(bond);
        found.interfaces.extend(interfaces);
    }
    found.bonds.sort_by(|one, other| one.name.cmp(&other.name));
    found.interfaces.sort_by(|one, other| one.name.cmp(&other.name));
}

/// OVN's controller, where the host is configured for one or one is there.
fn describe_controller(found: &Inventory, answers: ControllerAnswers, known: Option<Known>) -> Option<Controller> {
    if found.southbound.is_none() && answers.daemon == Daemon::Absent {
        return None;
    }
    let (lag, wanted, unplugged) =
        known.map_or((None, None, None), |known| (known.lag, known.wanted, Some(known.unplugged)));
    Some(Controller {
        southbound_connected: answers.connected,
        daemon: answers.daemon,
        southbound: found.southbound.clone(),
        chassis_id: found.chassis_id.clone(),
        configuration: found.configuration.clone(),
        openflow_connected: None,
        southbound_responsive: None,
        lag,
        wanted,
        unplugged,
    })
}

/// What the daemons count about themselves.
pub(super) async fn counters(daemons: &Daemons) -> OvsCounters {
    let mut counters = OvsCounters::default();
    let each = daemons.all().map(|daemon| async move {
        let answers = tokio::join!(told(daemon, "coverage/show"), told(daemon, "memory/show"));
        (daemon.name().to_owned(), answers)
    });
    let threads = async {
        let switch = &daemons.switch;
        let (stats, queues, rounds) = tokio::join!(
            told(switch, "dpif-netdev/pmd-stats-show"),
            told(switch, "dpif-netdev/pmd-rxq-show"),
            told(switch, "dpif-netdev/pmd-perf-show"),
        );
        [stats, queues, rounds].into_iter().flatten().collect::<Vec<_>>().join("\n")
    };
    let (datapaths, upcalls, threads, all) = tokio::join!(
        daemons.switch.call("dpctl/show", &["-s"]),
        told(&daemons.switch, "upcall/show"),
        threads,
        futures::future::join_all(each)
    );
    for (name, (coverage, memory)) in all {
        if let Some(text) = coverage {
            counters.coverage.insert(name.clone(), show::coverage(&text));
        }
        if let Some(text) = memory {
            counters.memory.insert(name, show::memory(&text));
        }
    }
    if let Ok(text) = datapaths {
        counters.datapaths = show::datapaths(&text);
    }
    for (name, upcalls) in upcalls.map(|text| show::upcalls(&text)).unwrap_or_default() {
        if let Some(datapath) = counters.datapaths.get_mut(&name) {
            (datapath.flow_limit, datapath.dump) = (Some(upcalls.limit), Some(upcalls.dump));
        }
    }
    counters.pmds = show::pmds(&threads);
    counters
}
