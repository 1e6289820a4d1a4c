//! The Deployments and budgets that hold Nodes back from Gardener, as they are.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::Deployment, policy::v1::PodDisruptionBudget};
use kube::{Api, Client, Resource, ResourceExt, runtime::watcher};

use super::{FIELD_MANAGER, KeeperSeen, gardener};
use crate::{
    api::labels,
    runtime::{
        clock::Clock,
        metrics::Metrics,
        queue::Queue,
        shutdown::Shutdown,
        state::Status,
        takeover::compact_managed_fields,
        watch::{Lookup, ObjectKey, Store, Touch, Watch, WatchEnded, watched_store},
    },
};

/// What is known about all of them. Cloned freely; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Keepers {
    namespace: String,
    deployments: Store<Deployment>,
    budgets: Store<PodDisruptionBudget>,
}

/// The watches behind [`Keepers`].
pub(super) struct Follow {
    deployments: Watch<Deployment>,
    budgets: Watch<PodDisruptionBudget>,
}

/// Those in this namespace. Whose keeper is not what it was is put into the queue.
pub(super) fn follow(
    client: &Client,
    namespace: &str,
    queue: &Queue<String>,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    status: &Status,
) -> (Keepers, Follow) {
    let ours = || watcher::Config::default().labels(labels::MAINTENANCE_CONTROLLER);
    let wake = queue.clone();
    let (deployments, deployment_watch) =
        watched_store::<Deployment>("Deployment", Api::namespaced(client.clone(), namespace), ours(), metrics.clone())
            .clock(clock.clone())
            .modify(|deployment| {
                compact_managed_fields(deployment, FIELD_MANAGER, None);
                deployment.status = None;
            })
            .packed()
            .on_touch(move |touch| told(touch, &wake, |one| &one.spec))
            .build(status);
    let wake = queue.clone();
    let (budgets, budget_watch) = watched_store::<PodDisruptionBudget>(
        "PodDisruptionBudget",
        Api::namespaced(client.clone(), namespace),
        ours(),
        metrics.clone(),
    )
    .clock(clock.clone())
    .modify(|budget| {
        compact_managed_fields(budget, FIELD_MANAGER, None);
        budget.status = None;
    })
    .packed()
    .on_touch(move |touch| told(touch, &wake, |one| &one.spec))
    .build(status);
    let keepers = Keepers { namespace: namespace.to_owned(), deployments, budgets };
    (keepers, Follow { deployments: deployment_watch, budgets: budget_watch })
}

/// Wakes whoever the object is about, unless only what the cluster itself keeps in it has changed.
fn told<K: Resource, S: PartialEq>(touch: &Touch<K>, queue: &Queue<String>, spec: impl Fn(&K) -> &S) {
    let same = |before: &K, after: &K| {
        spec(before) == spec(after)
            && before.labels() == after.labels()
            && before.owner_references() == after.owner_references()
    };
    match (&touch.before, &touch.after) {
        (Some(before), Some(after)) if same(before, after) => {}
        (before, after) => {
            if let Some(host) = before.iter().chain(after).find_map(|object| host(object.as_ref())) {
                queue.add(host);
            }
        }
    }
}

/// The host that an object is about: its owner, or else the one after whom it is called.
fn host<K: Resource>(object: &K) -> Option<String> {
    let owner = object.owner_references().iter().find(|owner| owner.kind == "Node");
    let owner = owner.map(|owner| owner.name.clone());
    owner.or_else(|| object.meta().name.as_deref()?.strip_prefix(gardener::PREFIX).map(str::to_owned))
}

impl Keepers {
    /// What holds this Node back.
    pub(super) fn of(&self, node: &str) -> KeeperSeen {
        if !self.deployments.is_synced() || !self.budgets.is_synced() {
            return KeeperSeen::NotYet;
        }
        let key = ObjectKey::namespaced(&self.namespace, gardener::keeper_name(node));
        match (self.deployments.lookup(&key), self.budgets.lookup(&key)) {
            (Lookup::Malformed(_), _) | (_, Lookup::Malformed(_)) => KeeperSeen::NotYet,
            (deployment, budget) => KeeperSeen::Known { deployment: found(deployment), budget: found(budget) },
        }
    }

    /// Waits for the first listings.
    pub(super) async fn ready(&self) -> bool {
        self.deployments.ready().await && self.budgets.ready().await
    }
}

fn found<K>(lookup: Lookup<K>) -> Option<Arc<K>> {
    match lookup {
        Lookup::Found(object) => Some(object),
        Lookup::Malformed(_) | Lookup::Absent => None,
    }
}

impl Follow {
    /// Follows until `stop`.
    pub(super) async fn run(self, stop: Shutdown) -> Result<(), WatchEnded> {
        tokio::select! {
            ended = self.deployments.run(stop.clone()) => ended,
            ended = self.budgets.run(stop.clone()) => ended,
        }
    }
}
