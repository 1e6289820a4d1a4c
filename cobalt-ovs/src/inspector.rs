//! [`OvsInspector`] over the daemons of one host.

mod answers;
mod capture;
mod connections;
mod inventory;
mod kernel;
mod options;
mod snapshot;
mod southbound;
mod stale;
#[cfg(all(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
mod tests;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use cobalt_core::{
    Error as Seam, Result,
    ovs::{
        CaptureRequest, FdbEntry, Flow, OvsChange, OvsCounters, OvsFeatures, OvsInspector, OvsSnapshot, Trace,
        TraceRequest,
    },
};
use futures::{Stream, StreamExt, stream, stream::BoxStream};
use tokio::sync::{Semaphore, watch};

pub use self::options::{OvsOptions, Southbound};
use self::{answers::Daemons, connections::Connections, kernel::KernelBond};
use crate::{
    error::Error,
    ovsdb::{Replica, ReplicaEvent, ReplicaState},
    remote::Remote,
    show,
};

/// Open vSwitch, and OVN's controller, on one host.
///
/// It follows the switch's database by itself, connects again when the database goes, and asks the daemons on their
/// sockets whenever a snapshot is taken. Clones share all that.
///
/// ```no_run
/// use cobalt_ovs::{OvsInspector, OvsOptions, OvsSwitch};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let switch = OvsSwitch::connect(OvsOptions::new()).await?;
/// let snapshot = switch.snapshot().await?;
/// for bond in &snapshot.bonds {
///     println!("{}: {} of {} members carry traffic", bond.name, bond.active_members(), bond.members.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OvsSwitch {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: OvsOptions,
    daemons: Daemons,
    database: Replica,
    /// Watched by whoever follows changes: there may be none yet, and another later.
    southbound: watch::Sender<Option<SouthboundLink>>,
    /// Which members of which bonds carried traffic when the switch last said so.
    bonds: Mutex<BTreeMap<String, BTreeMap<String, bool>>>,
    /// Ours to the bridges.
    connections: Connections,
    /// Held by whoever has packets copied.
    copies: Arc<Semaphore>,
    /// What the kernel last said of its bonds.
    kernel: Mutex<Vec<KernelBond>>,
    /// Held by whoever asks the kernel: a question that hangs must not become many.
    asking_kernel: Arc<Semaphore>,
}

/// The southbound database, and where it was said to be.
#[derive(Debug, Clone)]
struct SouthboundLink {
    remotes: Vec<Remote>,
    replica: Replica,
}

impl OvsSwitch {
    /// The switch of this host. It returns after the first attempt to reach its database, whether that went well or not:
    /// a switch that is down is something to report. Only an address that cannot work is an error.
    pub async fn connect(options: OvsOptions) -> Result<Self, Error> {
        let remotes = vec![options.database_remote()];
        let database = Replica::connect(remotes, inventory::follow(), options.replica_options()).await?;
        let daemons = Daemons::new(&options);
        let (southbound, bonds, kernel) = (watch::Sender::new(None), Mutex::default(), Mutex::default());
        let (copies, asking_kernel) = (capture::copies(), Arc::new(Semaphore::new(1)));
        let connections = Connections::default();
        let inner = Inner { options, daemons, database, southbound, bonds, connections, copies, kernel, asking_kernel };
        let switch = Self { inner: Arc::new(inner) };
        if switch.inner.options.sweep {
            tokio::spawn(capture::sweep(Arc::downgrade(&switch.inner)));
        }
        if let Some(southbound) = switch.southbound() {
            // Worth a moment, so that the first snapshot knows; not more, since the switch is what this is about.
            let _ = tokio::time::timeout(switch.inner.options.connection.connect_timeout, southbound.attempted()).await;
        }
        Ok(switch)
    }

    /// Waits until nothing of a capture is left on the switch: the removal of a mirror begins when the capture's stream
    /// is dropped, and takes a moment. For the end of a program.
    pub async fn settled(&self) {
        // Whoever has packets copied holds this until the mirror is gone.
        let _ = self.inner.copies.acquire().await;
    }

    /// Removes what is left of captures whose time is over, whoever made them, and tells how many mirrors there were. A
    /// program that is killed cannot remove its own. Where the switch is [swept](OvsOptions::sweep), that happens by itself.
    pub async fn remove_overdue(&self) -> Result<usize, Error> {
        capture::clean_overdue(&self.inner.database).await
    }

    /// How the connection to the switch's database fares.
    pub fn database_state(&self) -> ReplicaState {
        self.inner.database.state()
    }

    /// How the connection to the southbound database fares; `None` if none is configured, or not yet known where.
    pub fn southbound_state(&self) -> Option<ReplicaState> {
        self.southbound().map(|replica| replica.state())
    }

    /// The copy of the switch's database, for questions of one's own.
    pub fn database(&self) -> &Replica {
        &self.inner.database
    }

    /// Where the bridge's OpenFlow socket is; `None` for a name that would lead out of the run directory. The switch makes
    /// no such bridge, but its database takes any name.
    fn management(&self, bridge: &str) -> Option<PathBuf> {
        kernel::plain(bridge).map(|name| self.inner.options.run_dir.join(format!("{name}.mgmt")))
    }

    /// Where the southbound database is, as far as is known.
    fn southbound_remotes(&self) -> Option<Vec<Remote>> {
        let configured = self.inner.database.read(inventory::read_southbound)?;
        Remote::list(&configured).inspect_err(|error| tracing::debug!(%error, "no southbound database")).ok()
    }

    /// The copy of the southbound database, if it is known where that is.
    fn southbound(&self) -> Option<Replica> {
        self.southbound_link().map(|link| link.replica)
    }

    /// The same with its address. Where that has changed, a new copy begins.
    fn southbound_link(&self) -> Option<SouthboundLink> {
        let inner = &self.inner;
        let remotes = match &inner.options.southbound {
            Southbound::None => return None,
            Southbound::At(remotes) => Some(remotes.clone()),
            Southbound::AsController => self.southbound_remotes(),
        };
        inner.southbound.send_if_modified(|link| {
            if link.as_ref().map(|known| &known.remotes) == remotes.as_ref() {
                return false;
            }
            *link = remotes.and_then(|remotes| {
                let options = inner.options.replica_options();
                let replica = Replica::start(remotes.clone(), southbound::follow(), options)
                    .inspect_err(|error| tracing::debug!(%error, "no southbound database"))
                    .ok()?;
                Some(SouthboundLink { remotes, replica })
            });
            true
        });
        inner.southbound.borrow().clone()
    }

    /// The names of the ports, which the switch's own texts know by number only.
    async fn ports(&self) -> show::Ports {
        answers::told(&self.inner.daemons.switch, "dpif/show").await.map(|text| show::ports(&text)).unwrap_or_default()
    }

    /// Refuses a bridge that nobody has, before its name becomes part of a path.
    fn known_bridge(&self, bridge: &str, operation: impl FnOnce() -> String) -> Result<()> {
        let known =
            self.inner.database.read(|tables| tables.rows("Bridge").any(|(_, row)| row.str("name") == Some(bridge)));
        if known { Ok(()) } else { Err(Seam::not_found(operation())) }
    }
}

#[async_trait]
impl OvsInspector for OvsSwitch {
    fn features(&self) -> OvsFeatures {
        OvsFeatures {
            trace: true,
            capture: true,
            flows: true,
            counters: true,
            southbound: self.inner.options.southbound != Southbound::None,
        }
    }

    async fn snapshot(&self) -> Result<OvsSnapshot> {
        Ok(snapshot::take(self).await)
    }

    fn changes(&self) -> BoxStream<'static, OvsChange> {
        let own = self.inner.database.events().map(|event| match event {
            ReplicaEvent::Connected => OvsChange::Connected(true),
            ReplicaEvent::Disconnected(_) => OvsChange::Connected(false),
            ReplicaEvent::Changed(_) | ReplicaEvent::Lagged(_) => OvsChange::Changed,
        });
        if self.inner.options.southbound == Southbound::None {
            return own.boxed();
        }
        let _ = self.southbound();
        stream::select(own, southbound_changes(self.inner.southbound.subscribe())).boxed()
    }

    async fn trace(&self, request: &TraceRequest) -> Result<Trace> {
        let operation = || format!("trace a packet on {} from {}", request.bridge, request.in_port);
        self.known_bridge(&request.bridge, operation)?;
        let packet = show::packet(request).map_err(|error| Seam::Refused {
            operation: operation(),
            reason: error.to_string(),
            cause: Some(error.into()),
        })?;
        let switch = self.inner.daemons.switch.clone().timeout(self.inner.options.trace_timeout);
        let arguments = [request.bridge.as_str(), &packet];
        let (text, ports) = tokio::join!(switch.call("ofproto/trace", &arguments), self.ports());
        Ok(show::trace(&text?, &ports))
    }

    async fn capture(&self, request: &CaptureRequest) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        capture::start(self, request).await
    }

    async fn flows(&self, bridge: &str, table: Option<u8>) -> Result<BoxStream<'static, Result<Flow>>> {
        self.known_bridge(bridge, || format!("read the flows of {bridge}"))?;
        let Some(management) = self.management(bridge) else {
            return Err(Seam::not_found(format!("read the flows of {bridge}")));
        };
        let held = self.inner.connections.one();
        stale::dump(&management, table, self.inner.options.openflow_timeout, held).await
    }

    async fn counters(&self) -> Result<OvsCounters> {
        Ok(snapshot::counters(&self.inner.daemons).await)
    }

    async fn fdb(&self, bridge: &str) -> Result<Vec<FdbEntry>> {
        self.known_bridge(bridge, || format!("read the forwarding table of {bridge}"))?;
        let arguments = [bridge];
        let (text, ports) = tokio::join!(self.inner.daemons.switch.call("fdb/show", &arguments), self.ports());
        Ok(show::fdb(&text?, bridge, &ports))
    }

    async fn stale_flows(&self, bridge: &str) -> Result<BTreeMap<u64, u64>> {
        let operation = || format!("look for stale flows on {bridge}");
        let Some(link) = self.southbound_link() else {
            return Err(Seam::unsupported(operation(), "a switch without the southbound database"));
        };
        self.known_bridge(bridge, operation)?;
        let Some(management) = self.management(bridge) else { return Err(Seam::not_found(operation())) };
        let southbound = stale::connect(&link.remotes, &self.inner.options.connection).await?;
        let held = self.inner.connections.one();
        stale::find(&southbound, &management, self.inner.options.openflow_timeout, held).await
    }
}

/// What happens in the southbound database, wherever it is at the time. That there is another one is a change by itself:
/// what has happened there until now, nobody was told.
fn southbound_changes(links: watch::Receiver<Option<SouthboundLink>>) -> impl Stream<Item = OvsChange> + Send {
    fn events(links: &mut watch::Receiver<Option<SouthboundLink>>) -> Option<BoxStream<'static, ReplicaEvent>> {
        links.borrow_and_update().as_ref().map(|link| link.replica.events().boxed())
    }
    let mut links = links;
    let following = events(&mut links);
    stream::unfold((links, following), |(mut links, mut following)| async move {
        loop {
            let event = async {
                match &mut following {
                    Some(events) => events.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = links.changed() => {
                    changed.ok()?;
                    following = events(&mut links);
                    return Some((OvsChange::Changed, (links, following)));
                }
                event = event => match event {
                    Some(event) => if let Some(change) = concerns(&event) {
                        return Some((change, (links, following)));
                    },
                    // Its copy is gone; word of the next one comes.
                    None => following = None,
                },
            }
        }
    })
}

/// Of the southbound database only what changes a port's fate is news: its counters go up all the time.
fn concerns(event: &ReplicaEvent) -> Option<OvsChange> {
    match event {
        ReplicaEvent::Changed(changes) => changes
            .iter()
            .any(|change| ["Port_Binding", "Chassis"].contains(&change.table.as_ref()))
            .then_some(OvsChange::Changed),
        ReplicaEvent::Connected | ReplicaEvent::Disconnected(_) | ReplicaEvent::Lagged(_) => Some(OvsChange::Changed),
    }
}
