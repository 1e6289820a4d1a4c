//! The OVSNodes of a cluster, where there are such, and whether their agents live.
//!
//! ```text
//!   is the kind there? ──no──▶ ask again after a while
//!        │ yes
//!        ▼
//!   watch OVSNodes ──▶ Ready changed ───────┐
//!   watch Leases ────▶ a renewal ──▶ alive ─┼──▶ the host's name into the queue
//!   sweep ───────────▶ no renewal for long ─┘
//! ```
//!
//! A Lease is dead when it was not renewed for as long as it lasts *by our own clock*: the agent's may be wrong.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::ListParams, runtime::watcher};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::SwitchSeen;
use crate::{
    api::{Condition, OVSNode, OVSNodeStatus, condition_types},
    runtime::{
        clock::Clock,
        lock,
        metrics::Metrics,
        queue::Queue,
        shutdown::{Chain, Shutdown},
        state::Status,
        watch::{ObjectKey, Store, Watch, WatchEnded, watched_store},
    },
};

/// Where OVSNodes usually are.
pub(super) const NAMESPACE: &str = "ovn-system";

/// What the Leases of OVS agents are called, before the name of the host.
const LEASE_PREFIX: &str = "cobalt-ovs-agent-";

/// How often to ask for a kind that is not there.
const NOT_THERE: Duration = Duration::from_secs(600);
/// How often to ask after an answer that was none.
const NO_ANSWER: Duration = Duration::from_secs(15);
/// How often to look for those that have fallen silent.
const SWEEP: Duration = Duration::from_secs(5);
/// How long a Lease lasts that does not say so.
const USUAL: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, Debug)]
struct Life {
    renewed: Instant,
    lasts: Duration,
    told: bool,
}

impl Life {
    fn is_fresh(&self, now: Instant) -> bool {
        now < self.renewed + self.lasts
    }
}

#[derive(Debug, Default)]
struct Known {
    installed: Option<bool>,
    lives: HashMap<String, Life>,
}

/// What is known about all switches. Cloned freely; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Switches {
    namespace: String,
    nodes: Store<OVSNode>,
    leases: Store<Lease>,
    known: Arc<Mutex<Known>>,
}

/// The watches behind [`Switches`].
pub(super) struct Follow {
    client: Client,
    switches: Switches,
    queue: Queue<String>,
    nodes: Watch<OVSNode>,
    leases: Watch<Lease>,
}

pub(super) fn follow(
    client: &Client,
    namespace: &str,
    queue: &Queue<String>,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    status: &Status,
) -> (Switches, Follow) {
    let known: Arc<Mutex<Known>> = Arc::default();
    let (touched, renewed, lives) = (queue.clone(), queue.clone(), known.clone());
    let (nodes, node_watch) = watched_store::<OVSNode>(
        "OVSNode",
        Api::namespaced(client.clone(), namespace),
        watcher::Config::default(),
        metrics.clone(),
    )
    .clock(clock.clone())
    .optional()
    .modify(prune)
    .on_touch(move |touch| {
        let ready = |node: &Option<Arc<OVSNode>>| node.as_ref().map(|node| ready(node).cloned());
        if ready(&touch.before) != ready(&touch.after) {
            touched.add(touch.key.name.clone());
        }
    })
    .build(status);
    let (leases, lease_watch) = watched_store::<Lease>(
        "Lease",
        Api::namespaced(client.clone(), namespace),
        watcher::Config::default(),
        metrics.clone(),
    )
    .clock(clock.clone())
    .optional()
    .modify(|lease| lease.metadata.managed_fields = None)
    .on_touch(move |touch| {
        let Some(host) = touch.key.name.strip_prefix(LEASE_PREFIX) else { return };
        let renewal = |lease: &Option<Arc<Lease>>| lease.as_ref()?.spec.as_ref()?.renew_time.clone();
        let mut known = lock(&lives);
        let alive = match &touch.after {
            Some(lease) if renewal(&touch.before) != renewal(&touch.after) => {
                let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
                let lasts = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(USUAL, Duration::from_secs);
                let life = Life { renewed: Instant::now(), lasts, told: true };
                known.lives.insert(host.to_owned(), life).is_some_and(|life| life.told)
            }
            Some(_) => return,
            None => known.lives.remove(host).is_none(),
        };
        drop(known);
        if !alive {
            renewed.add(host.to_owned());
        }
    })
    .build(status);
    let switches = Switches { namespace: namespace.to_owned(), nodes, leases, known };
    let follow = Follow {
        client: client.clone(),
        switches: switches.clone(),
        queue: queue.clone(),
        nodes: node_watch,
        leases: lease_watch,
    };
    (switches, follow)
}

/// All that is read of an OVSNode here is its `Ready`.
fn prune(node: &mut OVSNode) {
    node.metadata.managed_fields = None;
    let ready = ready(node).cloned();
    node.status = Some(OVSNodeStatus { conditions: ready.into_iter().collect(), ..OVSNodeStatus::default() });
}

fn ready(node: &OVSNode) -> Option<&Condition> {
    node.condition(condition_types::READY)
}

impl Switches {
    /// What is known about the switch of a host.
    pub(super) fn of(&self, host: &str) -> SwitchSeen {
        let known = lock(&self.known);
        match known.installed {
            None => SwitchSeen::NotYet,
            Some(false) => SwitchSeen::NotInstalled,
            Some(true) if !self.nodes.is_synced() || !self.leases.is_synced() => SwitchSeen::NotYet,
            Some(true) => SwitchSeen::Known {
                node: self.nodes.get(&ObjectKey::namespaced(&self.namespace, host)),
                fresh: known.lives.get(host).is_some_and(|life| life.is_fresh(Instant::now())),
            },
        }
    }

    /// Those that have fallen silent since the last sweep.
    fn silent(&self, now: Instant) -> Vec<String> {
        let mut known = lock(&self.known);
        let silent = known.lives.iter_mut().filter(|(_, life)| life.told && !life.is_fresh(now));
        silent
            .map(|(host, life)| {
                life.told = false;
                host.clone()
            })
            .collect()
    }
}

impl Follow {
    /// Follows until `stop`. `everybody` names all hosts that are concerned when the kind turns out to be there, or not.
    pub(super) async fn run(self, everybody: impl Fn() -> Vec<String>, stop: Shutdown) -> Result<(), WatchEnded> {
        let Self { client, switches, queue, nodes, leases } = self;
        let api: Api<OVSNode> = Api::namespaced(client, &switches.namespace);
        loop {
            let (installed, pause) = match api.list_metadata(&ListParams::default().limit(1)).await {
                Ok(_) => (Some(true), Duration::ZERO),
                Err(kube::Error::Api(status)) if status.code == 404 => (Some(false), NOT_THERE),
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    tracing::warn!(
                        namespace = switches.namespace,
                        "may not list OVSNodes: no Hypervisor says OVSHealthy"
                    );
                    (Some(false), NOT_THERE)
                }
                Err(error) => {
                    tracing::debug!(error = %Chain(&error), "could not find out whether there are OVSNodes");
                    (None, NO_ANSWER)
                }
            };
            let before = std::mem::replace(&mut lock(&switches.known).installed, installed);
            if installed == Some(true) {
                break;
            }
            if before != installed {
                for host in everybody() {
                    queue.add(host);
                }
            }
            tokio::select! {
                () = stop.triggered() => return Ok(()),
                () = sleep(pause) => {}
            }
        }
        let sweeping = async {
            if switches.nodes.ready().await && switches.leases.ready().await {
                for host in everybody() {
                    queue.add(host);
                }
            }
            let mut ticks = interval(SWEEP);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for host in switches.silent(Instant::now()) {
                    queue.add(host);
                }
            }
        };
        tokio::select! {
            ended = nodes.run(stop.clone()) => ended,
            ended = leases.run(stop.clone()) => ended,
            () = sweeping => Ok(()),
        }
    }
}
