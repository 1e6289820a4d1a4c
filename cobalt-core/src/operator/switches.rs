//! The OVSNodes of a cluster, where there are such, and whether their agents live.
//!
//! ```text
//!   is the kind there? ──no──▶ ask again after a while
//!        │ yes
//!        ▼
//!   watch OVSNodes ──▶ Ready, bridges ──────┐
//!   watch Leases ────▶ a renewal ──▶ alive ─┼──▶ the host's name into the queue
//!   sweep ───────────▶ no renewal for long ─┘
//! ```
//!
//! Whether an agent lives is judged in [`lives`](super::lives).

use std::sync::{Arc, Mutex};

use kube::{Api, Client, runtime::watcher};

use super::{
    AgentSeen, SwitchSeen,
    installed::until_installed,
    lives::{self, FollowLives, Lives},
};
use crate::{
    api::{Bridge, Condition, OVSNode, OVSNodeStatus, condition_types},
    runtime::{
        clock::Clock,
        lock,
        metrics::Metrics,
        queue::Queue,
        shutdown::Shutdown,
        state::Status,
        watch::{ObjectKey, Store, Watch, WatchEnded, watched_store},
    },
};

/// Where OVSNodes usually are.
pub(super) const NAMESPACE: &str = "ovn-system";

/// What is known about all switches. Cloned freely; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Switches {
    namespace: String,
    nodes: Store<OVSNode>,
    agents: Lives,
    installed: Arc<Mutex<Option<bool>>>,
}

/// The watches behind [`Switches`].
pub(super) struct Follow {
    client: Client,
    switches: Switches,
    queue: Queue<String>,
    nodes: Watch<OVSNode>,
    agents: FollowLives,
}

pub(super) fn follow(
    client: &Client,
    namespace: &str,
    queue: &Queue<String>,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    status: &Status,
) -> (Switches, Follow) {
    let touched = queue.clone();
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
        let read = |node: &Option<Arc<OVSNode>>| node.as_ref().map(|node| (ready(node).cloned(), bridges(node)));
        if read(&touch.before) != read(&touch.after) {
            touched.add(touch.key.name.clone());
        }
    })
    .build(status);
    let (agents, follow_agents) = lives::follow(lives::OVS_AGENTS, client, namespace, queue, clock, metrics, status);
    let switches = Switches { namespace: namespace.to_owned(), nodes, agents, installed: Arc::default() };
    let follow = Follow {
        client: client.clone(),
        switches: switches.clone(),
        queue: queue.clone(),
        nodes: node_watch,
        agents: follow_agents,
    };
    (switches, follow)
}

/// All that is read of an OVSNode here is its `Ready`, and how its bridges are.
fn prune(node: &mut OVSNode) {
    node.metadata.managed_fields = None;
    let ready = ready(node).cloned();
    let bridges = node.status.take().and_then(|status| status.bridges);
    let pruned = |bridge: Bridge| Bridge { name: bridge.name, status: bridge.status, ..Bridge::default() };
    node.status = Some(OVSNodeStatus {
        conditions: ready.into_iter().collect(),
        bridges: bridges.map(|bridges| bridges.into_iter().map(pruned).collect()),
        ..OVSNodeStatus::default()
    });
}

fn bridges(node: &OVSNode) -> Option<Vec<Bridge>> {
    node.status.as_ref()?.bridges.clone()
}

fn ready(node: &OVSNode) -> Option<&Condition> {
    node.condition(condition_types::READY)
}

impl Switches {
    /// What is known about the switch of a host.
    pub(super) fn of(&self, host: &str) -> SwitchSeen {
        let installed = *lock(&self.installed);
        match installed {
            None => SwitchSeen::NotYet,
            Some(false) => SwitchSeen::NotInstalled,
            Some(true) if !self.nodes.is_synced() || !self.agents.is_synced() => SwitchSeen::NotYet,
            Some(true) => SwitchSeen::Known {
                node: self.nodes.get(&ObjectKey::namespaced(&self.namespace, host)),
                fresh: matches!(self.agents.of(host), AgentSeen::Alive | AgentSeen::NotYet),
            },
        }
    }
}

impl Follow {
    /// Follows until `stop`. `everybody` names all hosts that are concerned when the kind turns out to be there, or not.
    pub(super) async fn run(self, everybody: impl Fn() -> Vec<String>, stop: Shutdown) -> Result<(), WatchEnded> {
        let Self { client, switches, queue, nodes, agents } = self;
        let wake = || everybody().into_iter().for_each(|host| queue.add(host));
        let tell = |installed: Option<bool>| {
            let before = std::mem::replace(&mut *lock(&switches.installed), installed);
            if before != installed && installed != Some(true) {
                wake();
            }
        };
        let api: Api<OVSNode> = Api::namespaced(client, &switches.namespace);
        if !until_installed(&api, "no Hypervisor says OVSHealthy", tell, &stop).await {
            return Ok(());
        }
        let told = async {
            if switches.nodes.ready().await && switches.agents.ready().await {
                wake();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = nodes.run(stop.clone()) => ended,
            ended = agents.run(stop.clone()) => ended,
            () = told => Ok(()),
        }
    }
}
