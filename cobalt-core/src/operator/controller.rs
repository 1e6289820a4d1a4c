//! The loop around the pass: watches feed a queue of names, each name is observed, decided, acted on and published.
//!
//! ```text
//!   Node ───────┐                    ┌─ decide ─▶ actions? ── none ──▶ publish (≤ 2 writes, none if unchanged)
//!               ├─▶ queue ─▶ observe ┤     ▲          │ run, note outcomes
//!   Hypervisor ─┤   (by name)        └─────┴──────────┘ a few rounds at most
//!   OVSNode ────┘
//! ```

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, ResourceExt, runtime::watcher};

use super::{
    Outcome, Plan, Snapshot, Stage, pass,
    switches::{self, Switches},
};
use crate::{
    api::{Condition, Hypervisor, condition_types, labels},
    publish::{self, newer},
    runtime::{
        apply::{Applied, Applier, ApplyError, Target},
        clock::Clock,
        events::{Event, Recorder},
        metrics::Metrics,
        queue::{self, Next, Queue},
        shutdown::{Shutdown, StopError, TaskGroup},
        state::Status,
        takeover::{TakeOver, compact_managed_fields},
        watch::{Lookup, ObjectKey, Store, watched_store},
    },
};

/// The field manager of the operator.
pub const FIELD_MANAGER: &str = "cobalt-operator";

/// Field managers under which earlier operators wrote, one per controller of theirs.
const EARLIER_CONTROLLERS: [&str; 10] = [
    "hypervisor",
    "onboarding",
    "offboarding",
    "HypervisorMaintenance",
    "traits",
    "aggregates",
    "HypervisorTaint",
    "maintenance",
    "eviction",
    "ready",
];

/// Field managers of earlier programs as a whole. Agents used the same, so only what an operator writes is taken.
const EARLIER_PROGRAMS: [&str; 3] = ["manager", "openstack-hypervisor-operator", "unknown"];

/// The fields outside of the status that the stages write. Nothing else is taken over: neither what the scheduler owns,
/// nor what this version does not know, nor what a person or another program wants.
const SPEC_FIELDS: [&str; 8] = [
    "metadata.ownerReferences",
    "spec.lifecycleEnabled",
    "spec.skipTests",
    "spec.aggregates",
    "spec.customTraits",
    "spec.highAvailability",
    "spec.installCertificate",
    "spec.evacuateOnReboot",
];

/// The fields of the status that are an operator's. Earlier agents may have used the same names of managers.
const STATUS_FIELDS: [&str; 7] = [
    "status.hypervisorId",
    "status.serviceId",
    "status.traits",
    "status.aggregates",
    "status.internalIp",
    "status.evicted",
    "status.conditions",
];

/// How long to wait for the cache to show what we know to exist.
const CATCH_UP: Duration = Duration::from_millis(500);

/// When to try again what was not done in a pass, if no stage says so.
const UNFINISHED: Duration = Duration::from_secs(10);

/// How often decide → act → decide may go round in one pass.
const ROUNDS: usize = 4;

/// What the controller is made of.
#[derive(Clone)]
pub(super) struct Controller {
    pub(super) client: Client,
    pub(super) stages: Arc<[Arc<dyn Stage>]>,
    pub(super) workers: usize,
    /// Where to look for OVSNodes, if at all.
    pub(super) ovs_namespace: Option<String>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) status: Status,
    pub(super) recorder: Recorder,
    /// Whether we may write and act: a leader asks, in case it has been frozen and replaced.
    pub(super) may_act: Arc<dyn Fn() -> bool + Send + Sync>,
}

struct Context {
    controller: Controller,
    api: Api<Hypervisor>,
    nodes: Store<Node>,
    hypervisors: Store<Hypervisor>,
    switches: Option<Switches>,
    status_applier: Applier,
}

impl Controller {
    /// Reconciles until `stop`, then finishes what is in flight.
    pub(super) async fn run(self, stop: Shutdown) -> Result<(), StopError> {
        let queue = Queue::new("hypervisor", self.metrics.clone());
        queue.show(&self.status);
        let (touched_node, touched_hypervisor) = (queue.clone(), queue.clone());
        let (nodes, node_watch) = watched_store::<Node>(
            "Node",
            Api::all(self.client.clone()),
            watcher::Config::default().labels(labels::VIRT_DRIVER),
            self.metrics.clone(),
        )
        .clock(self.clock.clone())
        .modify(prune_node)
        .on_touch(move |touch| touched_node.add(touch.key.name.clone()))
        .build(&self.status);
        let everybody = TakeOver::from(EARLIER_CONTROLLERS.iter().chain(&EARLIER_PROGRAMS).copied());
        let (hypervisors, hypervisor_watch) = watched_store::<Hypervisor>(
            "Hypervisor",
            Api::all(self.client.clone()),
            watcher::Config::default(),
            self.metrics.clone(),
        )
        .clock(self.clock.clone())
        .modify(move |hypervisor| prune_hypervisor(hypervisor, &everybody))
        .on_touch(move |touch| touched_hypervisor.add(touch.key.name.clone()))
        .build(&self.status);

        let stop = stop.child();
        let watches = TaskGroup::new("operator watches", stop.clone());
        let watching = stop.clone();
        watches.spawn("watch nodes", node_watch.run(watching.clone()));
        watches.spawn("watch hypervisors", hypervisor_watch.run(watching.clone()));

        let switches = self.ovs_namespace.as_ref().map(|namespace| {
            let (switches, follow) =
                switches::follow(&self.client, namespace, &queue, &self.clock, &self.metrics, &self.status);
            let known = hypervisors.clone();
            let everybody = move || known.keys().into_iter().map(|key| key.name).collect();
            watches.spawn("watch switches", follow.run(everybody, watching.clone()));
            switches
        });

        // Nothing is decided before both caches are complete: a Hypervisor that is merely not listed yet must not be
        // created again, and a Node that is must not count as gone.
        let synced = async { nodes.ready().await && hypervisors.ready().await };
        tokio::select! {
            () = stop.triggered() => {}
            true = synced => {
                tracing::info!(nodes = nodes.len(), hypervisors = hypervisors.len(), "working");
                let context = Arc::new(Context {
                    api: Api::all(self.client.clone()),
                    status_applier: Applier::new(FIELD_MANAGER, self.metrics.clone())
                        .taking_over(TakeOver::from(EARLIER_CONTROLLERS).only(STATUS_FIELDS)),
                    nodes,
                    hypervisors,
                    switches,
                    controller: self.clone(),
                });
                queue::run(&queue, self.workers, stop.clone(), move |name| {
                    let context = context.clone();
                    async move { context.reconcile(&name).await }
                })
                .await;
            }
        }
        // A watch that died asks this part to end, and is the reason for it.
        watches.stop(tokio::time::Instant::now() + Duration::from_secs(5)).await
    }
}

impl Context {
    async fn reconcile(&self, name: &str) -> Result<Next, ApplyError> {
        if !(self.controller.may_act)() {
            return Ok(Next::After(UNFINISHED));
        }
        let mut written = None;
        let Some(mut seen) = self.observe(name, None) else {
            // Something of that name cannot be read. The watch has said so; acting on a guess could do harm.
            return Ok(Next::Wait);
        };
        let mut plan = pass::decide(&self.controller.stages, &seen);
        for _ in 0..ROUNDS {
            let pending: BTreeMap<_, _> = plan
                .actions()
                .iter()
                .filter(|(key, _)| !seen.outcomes.contains_key(*key))
                .map(|(key, action)| (key.clone(), action.clone()))
                .collect();
            if pending.is_empty() {
                break;
            }
            if pending.values().any(|action| action.is_irreversible()) {
                written = self.publish(&seen, &plan).await?.or(written);
            }
            for (key, action) in pending {
                if !(self.controller.may_act)() {
                    return Ok(Next::After(UNFINISHED));
                }
                let outcome = match action.run().await {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::failed(&error),
                };
                seen.outcomes.insert(key, outcome);
            }
            let Some(mut fresh) = self.observe(name, written.as_ref()) else { return Ok(Next::Wait) };
            fresh.outcomes = seen.outcomes;
            seen = fresh;
            plan = pass::decide(&self.controller.stages, &seen);
        }
        if seen.hypervisor.is_none() && plan.create && self.api.get_opt(name).await.map_err(looking)?.is_some() {
            // The cache has not heard of it yet. Creating it again would write the values of creation over what its
            // users have made of it.
            return Ok(Next::After(CATCH_UP));
        }
        self.publish(&seen, &plan).await?;
        let unfinished = plan.actions().keys().any(|key| !matches!(seen.outcomes.get(key), Some(Outcome::Done)));
        Ok(plan.requeue().or(unfinished.then_some(UNFINISHED)).map_or(Next::Wait, Next::After))
    }

    /// One snapshot; none if an object of that name exists and cannot be read. What we have just written ourselves
    /// counts until the cache has caught up with it.
    fn observe(&self, name: &str, written: Option<&Arc<Hypervisor>>) -> Option<Snapshot> {
        let key = ObjectKey::cluster(name);
        let mut seen = Snapshot::new(name, self.controller.clock.now());
        seen.node = known(self.nodes.lookup(&key))?;
        seen.hypervisor = newer(known(self.hypervisors.lookup(&key))?, written.cloned());
        if let Some(switches) = &self.switches {
            seen.switch = switches.of(name);
        }
        if let Some(hypervisor) = &seen.hypervisor {
            seen.owned = self.main_applier(&seen).owned(hypervisor.as_ref(), Target::Main);
            seen.owned_status = self.status_applier.owned(hypervisor.as_ref(), Target::Status);
        }
        Some(seen)
    }

    /// The writer of spec and metadata. What it takes over depends on the Node: lists that an earlier program wrote from
    /// an annotation that is gone have no source any more, and owning them would mean emptying them.
    fn main_applier(&self, seen: &Snapshot) -> Applier {
        let unsourced = [
            (labels::AGGREGATES_ANNOTATION, "spec.aggregates"),
            (labels::CUSTOM_TRAITS_ANNOTATION, "spec.customTraits"),
        ];
        let left = unsourced.iter().filter(|(annotation, _)| seen.node_annotation(annotation).is_none());
        let take_over = TakeOver::from(EARLIER_CONTROLLERS.iter().chain(&EARLIER_PROGRAMS).copied())
            .only(SPEC_FIELDS)
            .only(labels::TRANSFERRED.map(|label| ["metadata", "labels", label]))
            .except(left.map(|(_, field)| *field));
        Applier::new(FIELD_MANAGER, self.controller.metrics.clone()).taking_over(take_over)
    }

    /// Writes what the plan wants and is not there yet; gives the object as the server answered it, if it did.
    async fn publish(&self, seen: &Snapshot, plan: &Plan) -> Result<Option<Arc<Hypervisor>>, ApplyError> {
        let before = seen.hypervisor.as_deref();
        if before.is_none() && !plan.create {
            return Ok(None);
        }
        if before.is_some_and(|hypervisor| hypervisor.metadata.deletion_timestamp.is_some()) {
            // On its way out: nothing we write now would last.
            return Ok(None);
        }
        let main = pass::main_body(seen, plan);
        let applier = self.main_applier(seen);
        let written = match before {
            Some(_) if pass::is_empty(&main) && seen.owned.is_empty() => Applied::Unchanged,
            Some(observed) => applier.main_unless_changed(&self.api, observed, &main).await?,
            None => applier.main(&self.api, &seen.name, None, &main).await?,
        };
        let current = match &written {
            Applied::Written(object) => Some(object.as_ref()),
            Applied::Unchanged => before,
        };
        let Some(current) = current else { return Ok(None) };
        if before.is_none() {
            tracing::info!(hypervisor = %seen.name, "created from its node");
            let note = format!("Created Hypervisor {} from its Node", seen.name);
            self.controller.recorder.publish(Event::normal(current, "Create", "Created", note));
        }
        let status = self.status_applier.status(&self.api, current, &pass::status_body(seen, plan)).await?;
        self.tell(current, before, plan);
        Ok(match (status, written) {
            (Applied::Written(object), _) | (Applied::Unchanged, Applied::Written(object)) => Some(Arc::new(*object)),
            (Applied::Unchanged, Applied::Unchanged) => None,
        })
    }

    /// An Event and a line of log per transition, after it has been written.
    fn tell(&self, about: &Hypervisor, before: Option<&Hypervisor>, plan: &Plan) {
        for condition in plan.transitions(before) {
            tracing::info!(
                hypervisor = %about.name_any(), condition = %condition.type_, status = %condition.status,
                reason = %condition.reason, "condition changed"
            );
            self.controller.recorder.publish(transition_event(about, condition));
        }
    }
}

fn transition_event(about: &Hypervisor, condition: &Condition) -> Event {
    let note = publish::sentence(condition);
    let action = if condition.type_ == condition_types::READY { "Judge" } else { "Reconcile" };
    Event::normal(about, action, &condition.reason, note)
}

fn looking(cause: kube::Error) -> ApplyError {
    ApplyError::Request { what: "look for a Hypervisor before creating it".into(), cause: Box::new(cause) }
}

/// `Some(None)` if it is absent, `None` if it is there and cannot be read.
#[expect(clippy::option_option, reason = "absent and unreadable are different answers")]
fn known<K>(lookup: Lookup<K>) -> Option<Option<Arc<K>>> {
    match lookup {
        Lookup::Found(object) => Some(Some(object)),
        Lookup::Absent => Some(None),
        Lookup::Malformed(_) => None,
    }
}

/// Keeps of a Node what the stages read; its images alone are most of it.
fn prune_node(node: &mut Node) {
    node.metadata.managed_fields = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        status.capacity = None;
        status.allocatable = None;
        status.node_info = None;
    }
}

/// Keeps of a Hypervisor what the operator reads or owns. The instances are the agent's, and most of the object.
fn prune_hypervisor(hypervisor: &mut Hypervisor, take_over: &TakeOver) {
    compact_managed_fields(hypervisor, FIELD_MANAGER, Some(take_over));
    if let Some(status) = &mut hypervisor.status {
        status.instances = None;
        status.cells = None;
        status.domain_capabilities = None;
    }
}
