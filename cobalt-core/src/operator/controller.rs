//! The loop around the pass: watches feed a queue of names, each name is observed, decided, acted on and published.
//!
//! ```text
//!   Node ───────┐                    ┌─ decide ─▶ actions? ── none ──▶ publish (≤ 2 writes, none if unchanged)
//!   Hypervisor ─┤                    │     ▲          │ run, note outcomes
//!   Eviction ───┼─▶ queue ─▶ observe ┤     │          │
//!   OVSNode ────┤   (by name)        └─────┴──────────┘ a few rounds at most
//!   agents ─────┤
//!   keepers ────┤
//!   the region ─┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kube::{Api, Client, ResourceExt, runtime::watcher};

use super::{
    AbsentNode, Cloud, CloudSeen, Hand, HypervisorSync, Outcome, Plan, PodsSeen, Progress, Settings, Snapshot, Stage,
    absence, acting, agent_pods,
    certificate::Certificates,
    eviction::{self, Drains},
    hand::Withheld,
    keepers::{self, Keepers},
    lives::{self, Lives},
    offboarding, pass,
    selector::{self, Selector},
    switches::{self, Switches},
    taint, wake,
};
use crate::{
    api::{Condition, Eviction, Hypervisor, condition_types, labels, reasons},
    publish::{self, newer},
    runtime::{
        apply::{Applied, Applier, ApplyError, Decision, Target},
        clock::Clock,
        events::{Event, Recorder},
        lock,
        metrics::Metrics,
        queue::{self, Next, Queue},
        shutdown::{Chain, Shutdown, StopError, TaskGroup},
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

/// Sources that ask nobody.
const AT_ONCE: Duration = Duration::from_secs(1);

/// When to go on with a pass that has used up its rounds.
const MORE_TO_DO: Duration = Duration::from_millis(500);

/// How often decide → act → decide may go round in one pass.
const ROUNDS: usize = 4;

/// What the controller is made of.
#[derive(Clone)]
pub(super) struct Controller {
    pub(super) client: Client,
    pub(super) stages: Arc<[Arc<dyn Stage>]>,
    pub(super) workers: usize,
    /// Whether Evictions are worked on here.
    pub(super) drains: bool,
    /// OpenStack, if there is one.
    pub(super) cloud: Option<Cloud>,
    pub(super) settings: Arc<Settings>,
    /// Where to look for OVSNodes, if at all.
    pub(super) ovs_namespace: Option<String>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) status: Status,
    pub(super) recorder: Recorder,
    /// Whether we may write and act.
    pub(super) hand: Hand,
}

struct Context {
    controller: Controller,
    api: Api<Hypervisor>,
    nodes: Store<Node>,
    hypervisors: Store<Hypervisor>,
    evictions: Option<Store<Eviction>>,
    switches: Option<Switches>,
    agents: Option<Lives>,
    keepers: Option<Keepers>,
    /// How Hypervisors are kept in step with their Nodes.
    sync: HypervisorSync,
    selector: Selector,
    status_applier: Applier,
    /// Those whose fields may become ours.
    everybody: TakeOver,
    /// What the server answered to our last writes, until the cache has caught up with them. A pass on what was before
    /// would do again in the cloud what is done, or undo it, long before its own write is refused.
    written: Mutex<BTreeMap<String, Arc<Hypervisor>>>,
    /// What was wrong with whom in their last passes, and has been told.
    warned: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Controller {
    /// Reconciles until `stop`, then finishes what is in flight.
    pub(super) async fn run(self, stop: Shutdown) -> Result<(), StopError> {
        self.show();
        let queue = Queue::new("hypervisor", self.metrics.clone());
        queue.show(&self.status);
        let drains = Queue::new("eviction", self.metrics.clone());
        let certificates = Queue::new("certificate", self.metrics.clone());
        let (touched_node, certified) =
            (queue.clone(), self.settings.certificates.is_some().then(|| certificates.clone()));
        let (touched_hypervisor, drained) = (queue.clone(), self.cloud.is_some().then(|| drains.clone()));
        let (nodes, node_watch) = watched_store::<Node>(
            "Node",
            Api::all(self.client.clone()),
            watcher::Config::default().labels(&selector::both(labels::VIRT_DRIVER, &self.settings.label_selector)),
            self.metrics.clone(),
        )
        .clock(self.clock.clone())
        .modify(prune_node)
        .packed()
        .on_touch(move |touch| {
            touched_node.add(touch.key.name.clone());
            if let Some(certified) = &certified {
                certified.add(touch.key.name.clone());
            }
        })
        .build(&self.status);
        let everybody = TakeOver::from(EARLIER_CONTROLLERS.iter().chain(&EARLIER_PROGRAMS).copied());
        let pruning = everybody.clone();
        let (hypervisors, hypervisor_watch) = watched_store::<Hypervisor>(
            "Hypervisor",
            Api::all(self.client.clone()),
            selected(&self.settings.label_selector),
            self.metrics.clone(),
        )
        .clock(self.clock.clone())
        .modify(move |hypervisor| prune_hypervisor(hypervisor, &pruning))
        .packed()
        .on_touch(move |touch| {
            touched_hypervisor.add(touch.key.name.clone());
            if let Some(drained) = &drained {
                drained.add(touch.key.name.clone());
            }
        })
        .build(&self.status);

        let stop = stop.child();
        let watches = TaskGroup::new("operator watches", stop.clone());
        let watching = stop.clone();
        watches.spawn("watch nodes", node_watch.run(watching.clone()));
        watches.spawn("watch hypervisors", hypervisor_watch.run(watching.clone()));

        let evictions = self.cloud.as_ref().map(|cloud| {
            let (touched, drained) = (queue.clone(), drains.clone());
            let (evictions, watch) = watched_store::<Eviction>(
                "Eviction",
                Api::all(self.client.clone()),
                watcher::Config::default(),
                self.metrics.clone(),
            )
            .clock(self.clock.clone())
            .modify(|eviction| compact_managed_fields(eviction, FIELD_MANAGER, Some(&eviction::take_over())))
            .on_touch(move |touch| {
                touched.add(touch.key.name.clone());
                drained.add(touch.key.name.clone());
            })
            .build(&self.status);
            watches.spawn("watch evictions", watch.run(watching.clone()));
            let (view, stop) = (cloud.view.clone(), watching.clone());
            watches.spawn("look at the region", async move {
                tokio::select! {
                    () = stop.triggered() => {}
                    () = view.run() => {}
                }
                Ok::<(), std::convert::Infallible>(())
            });
            let follow = wake::follow(cloud.view.clone(), hypervisors.clone(), queue.clone(), watching.clone());
            watches.spawn("follow the region", async move {
                follow.await;
                Ok::<(), std::convert::Infallible>(())
            });
            evictions
        });

        let switches = self.ovs_namespace.as_ref().map(|namespace| {
            let (switches, follow) =
                switches::follow(&self.client, namespace, &queue, &self.clock, &self.metrics, &self.status);
            let known = hypervisors.clone();
            let everybody = move || known.keys().into_iter().map(|key| key.name).collect();
            watches.spawn("watch switches", follow.run(everybody, watching.clone()));
            switches
        });

        let agents = self.settings.heartbeat_namespace.as_ref().map(|namespace| {
            let (agents, follow) = lives::follow(
                lives::NODE_AGENTS,
                &self.client,
                namespace,
                &queue,
                &self.clock,
                &self.metrics,
                &self.status,
            );
            watches.spawn("watch node agents", follow.run(watching.clone()));
            agents
        });

        let gardener = self.settings.gardener.as_ref().filter(|_| self.cloud.is_some());
        let keepers = gardener.map(|gardener| {
            let (keepers, follow) =
                keepers::follow(&self.client, &gardener.namespace, &queue, &self.clock, &self.metrics, &self.status);
            watches.spawn("watch keepers", follow.run(watching.clone()));
            let (listed, known, wake) = (keepers.clone(), hypervisors.clone(), queue.clone());
            watches.spawn("wait for keepers", async move {
                // Nothing could be decided about them before.
                if listed.ready().await {
                    known.keys().into_iter().for_each(|key| wake.add(key.name));
                }
                Ok::<(), std::convert::Infallible>(())
            });
            keepers
        });

        // Nothing is decided before the caches are complete: a Hypervisor that is merely not listed yet must not be
        // created again, and a Node that is must not count as gone.
        let synced = async {
            let evictions = async {
                match &evictions {
                    Some(evictions) => evictions.ready().await,
                    None => true,
                }
            };
            nodes.ready().await && hypervisors.ready().await && evictions.await
        };
        tokio::select! {
            () = stop.triggered() => {}
            true = synced => {
                tracing::info!(nodes = nodes.len(), hypervisors = hypervisors.len(), "working");
                let drains = self.drains(drains, evictions.as_ref(), &hypervisors, agents.as_ref());
                let certificates = self.certificates(certificates, &nodes);
                let context = Arc::new(Context {
                    api: Api::all(self.client.clone()),
                    status_applier: Applier::new(FIELD_MANAGER, self.metrics.clone())
                        .taking_over(TakeOver::from(EARLIER_CONTROLLERS).only(STATUS_FIELDS)),
                    nodes,
                    hypervisors,
                    evictions,
                    switches,
                    agents,
                    keepers,
                    sync: self.settings.sync(),
                    selector: self.settings.selector(),
                    everybody,
                    written: Mutex::default(),
                    warned: Mutex::default(),
                    controller: self.clone(),
                });
                let passes = queue::run(&queue, self.workers, stop.clone(), move |name| {
                    let context = context.clone();
                    async move { context.reconcile(&name).await }
                });
                let drains = async {
                    if let Some(drains) = drains {
                        drains.run(stop.clone()).await;
                    }
                };
                let certificates = async {
                    if let Some(certificates) = certificates {
                        certificates.run(&watches, stop.clone()).await;
                    }
                };
                tokio::join!(passes, drains, certificates);
            }
        }
        // A watch that died asks this part to end, and is the reason for it.
        watches.stop(tokio::time::Instant::now() + Duration::from_secs(5)).await
    }

    /// Lets people see what there is to be seen besides watches and queues.
    fn show(&self) {
        if let Some(cloud) = &self.cloud {
            self.metrics.source("openstack view", AT_ONCE, cloud.view.clone());
            let view = cloud.view.clone();
            self.status.ready_check("openstack", move || {
                if view.snapshot().is_complete() {
                    return Ok(());
                }
                let why = view.trouble().map(|trouble| format!(": {trouble}"));
                Err(format!("the region was not seen yet{}", why.unwrap_or_default()))
            });
        }
        if self.hand.is_observing() {
            tracing::warn!("only observes: nothing is written and nothing is done; /debug/state says what would be");
            let hand = self.hand.clone();
            self.status.section("observing", move || hand.report());
            self.metrics.source("withheld actions", AT_ONCE, self.hand.clone());
        }
    }

    fn drains(
        &self,
        queue: Queue<String>,
        evictions: Option<&Store<Eviction>>,
        hypervisors: &Store<Hypervisor>,
        agents: Option<&Lives>,
    ) -> Option<Drains> {
        if !self.drains {
            return None;
        }
        Some(Drains {
            client: self.client.clone(),
            settings: self.settings.drain.clone(),
            cloud: self.cloud.clone()?,
            evictions: evictions?.clone(),
            hypervisors: hypervisors.clone(),
            agents: agents.cloned(),
            queue,
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            recorder: self.recorder.clone(),
            hand: self.hand.clone(),
        })
    }

    fn certificates(&self, queue: Queue<String>, nodes: &Store<Node>) -> Option<Certificates> {
        Some(Certificates {
            client: self.client.clone(),
            settings: self.settings.certificates.clone()?,
            nodes: nodes.clone(),
            queue,
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            status: self.status.clone(),
            recorder: self.recorder.clone(),
            hand: self.hand.clone(),
        })
    }
}

impl Context {
    async fn reconcile(&self, name: &str) -> Result<Next, ApplyError> {
        let hand = &self.controller.hand;
        if !hand.may_act() {
            return Ok(Next::After(UNFINISHED));
        }
        let Some(mut seen) = self.observe(name, None).await else {
            // Something of that name cannot be read. The watch has said so; acting on a guess could do harm.
            return Ok(Next::Wait);
        };
        let mut plan = pass::decide(&self.controller.stages, &seen);
        if seen.hypervisor.is_none()
            && plan.create
            && let Some(found) = self.api.get_opt(name).await.map_err(looking)?
        {
            if self.selector.matches(found.labels()) {
                // The cache has not heard of it yet. Creating it again would write the values of creation over what
                // its users have made of it.
                return Ok(Next::After(CATCH_UP));
            }
            // It lacks the labels by which we would know it. Its Node has them, so it is ours, and gets them now.
            seen.hypervisor = Some(Arc::new(found));
            self.note_owned(&mut seen);
            plan = Plan::new(&seen);
            self.sync.decide(&seen, &mut plan);
            if !hand.is_observing() {
                self.publish(&seen, &mut plan).await?;
                return Ok(Next::Wait);
            }
        }
        if hand.is_observing() {
            let actions = plan.actions().values().map(|action| Withheld {
                key: action.key(),
                kind: action.kind(),
                words: action.describe(),
            });
            hand.withhold_all(name, actions.chain(self.unwritten(&seen, &plan)));
            return Ok(plan.requeue().map_or(Next::Wait, Next::After));
        }
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
                self.publish(&seen, &mut plan).await?;
            }
            for (key, action) in pending {
                if !hand.may_act() {
                    return Ok(Next::After(UNFINISHED));
                }
                let answer = acting::perform(action.as_ref()).await;
                match &answer {
                    Ok(Progress::Done) => tracing::info!(hypervisor = name, action = action.describe(), "done"),
                    Ok(Progress::Underway(_)) => {}
                    // With the id of the request, which the condition leaves out.
                    Err(error) => tracing::warn!(
                        hypervisor = name, action = action.describe(), category = error.category(),
                        error = %Chain(error), "not done, will be tried again"
                    ),
                }
                let outcome = Outcome::of(&answer);
                seen.outcomes.insert(key, outcome);
            }
            let Some(mut fresh) = self.observe(name, Some(&seen)).await else {
                return Ok(Next::Wait);
            };
            fresh.outcomes = seen.outcomes;
            seen = fresh;
            plan = pass::decide(&self.controller.stages, &seen);
        }
        self.publish(&seen, &mut plan).await?;
        self.warn(&seen, &plan);
        if plan.actions().keys().any(|key| !seen.outcomes.contains_key(key)) {
            // More steps than rounds: it is somebody else's turn first.
            return Ok(Next::After(MORE_TO_DO));
        }
        let unfinished = plan.actions().keys().any(|key| seen.outcomes.get(key) != Some(&Outcome::Done));
        Ok(plan.requeue().or(unfinished.then_some(UNFINISHED)).map_or(Next::Wait, Next::After))
    }

    /// One snapshot; none if an object of that name exists and cannot be read. What we have just written ourselves
    /// counts until the cache has caught up with it; in the rounds of one pass, what was asked is not asked again.
    async fn observe(&self, name: &str, before: Option<&Snapshot>) -> Option<Snapshot> {
        let key = ObjectKey::cluster(name);
        let mut seen = Snapshot::new(name, self.controller.clock.now());
        seen.node = known(self.nodes.lookup(&key))?;
        seen.hypervisor = self.newest(name, known(self.hypervisors.lookup(&key))?);
        if let Some(evictions) = &self.evictions {
            seen.eviction = known(evictions.lookup(&key))?;
        }
        if let Some(cloud) = &self.controller.cloud {
            seen.cloud = CloudSeen::Known(cloud.view.snapshot());
        }
        if let Some(switches) = &self.switches {
            seen.switch = switches.of(name);
        }
        if let Some(agents) = &self.agents {
            seen.agent = agents.of(name);
        }
        if let Some(keepers) = &self.keepers {
            seen.keeper = keepers.of(name);
        }
        if let (Some(cloud), Some(id)) = (&self.controller.cloud, seen.nova_hypervisor().map(|one| &one.id)) {
            cloud.view.follow_servers(id, seen.wants_servers());
        }
        self.note_owned(&mut seen);
        if absence::is_asked(&seen) {
            let asked = before.map(|before| before.absent_node.clone()).filter(|node| *node != AbsentNode::NotAsked);
            seen.absent_node = match asked {
                Some(known) => known,
                None => absence::look(&self.controller.client, name).await,
            };
        }
        if agent_pods::is_asked(&seen) {
            let asked = before.map(|before| before.agent_pods.clone()).filter(|pods| *pods != PodsSeen::NotAsked);
            seen.agent_pods = if let Some(pods) = asked {
                pods
            } else {
                let controller = &self.controller;
                agent_pods::look(&controller.client, &controller.settings.agent_namespaces, name).await
            };
        }
        Some(seen)
    }

    /// What the cache has, or what we have written since.
    fn newest(&self, name: &str, cached: Option<Arc<Hypervisor>>) -> Option<Arc<Hypervisor>> {
        let mut all = lock(&self.written);
        let written = all.get(name).cloned();
        let newest = newer(cached, written.clone());
        let ahead = newest.as_ref().zip(written.as_ref()).is_some_and(|(newest, written)| Arc::ptr_eq(newest, written));
        if !ahead {
            all.remove(name);
        }
        newest
    }

    /// Notes what of the Hypervisor is ours.
    fn note_owned(&self, seen: &mut Snapshot) {
        if let Some(hypervisor) = seen.hypervisor.clone() {
            seen.owned = self.main_applier(seen).owned(hypervisor.as_ref(), Target::Main);
            seen.owned_status = self.status_applier.owned(hypervisor.as_ref(), Target::Status);
        }
    }

    /// What would be written to the Hypervisor.
    fn unwritten(&self, seen: &Snapshot, plan: &Plan) -> Vec<Withheld> {
        let write = |key: &str, words: String| Withheld { key: key.to_owned(), kind: "WriteHypervisor", words };
        let Some(observed) = seen.hypervisor.as_deref() else {
            let create = plan.create.then(|| write("write", format!("create the Hypervisor {}", seen.name)));
            return create.into_iter().collect();
        };
        let value = serde_json::to_value(observed).unwrap_or_default();
        let managed = observed.metadata.managed_fields.as_deref().unwrap_or_default();
        let differs = |applier: &Applier, body: &serde_json::Value, target| {
            applier.decide(&value, managed, body, target) != Decision::Unchanged
        };
        let mut unwritten = Vec::new();
        let main = pass::main_body(seen, plan);
        let nothing = pass::is_empty(&main) && seen.owned.is_empty();
        if !nothing && differs(&self.main_applier(seen), &main, Target::Main) {
            unwritten.push(write("write", "write labels, owner and spec of the Hypervisor from its Node".to_owned()));
        }
        if differs(&self.status_applier, &pass::status_body(seen, plan), Target::Status) {
            let turned = plan.transitions(Some(observed));
            let turned: Vec<_> = turned.map(|one| format!("{} {} ({})", one.type_, one.status, one.reason)).collect();
            let words = if turned.is_empty() { "nothing that is news".to_owned() } else { turned.join(", ") };
            unwritten.push(write("write status", format!("write the status of the Hypervisor: {words}")));
        }
        unwritten
    }

    /// The writer of spec and metadata. What it takes over depends on the Node: what an earlier program wrote from an
    /// annotation or a label that is gone has no source any more, and owning it would mean emptying it, or ending the
    /// management of a host in service.
    fn main_applier(&self, seen: &Snapshot) -> Applier {
        let (annotated, labelled) = (|key| seen.node_annotation(key).is_some(), |key| seen.node_label(key).is_some());
        let sourced = [
            (annotated(labels::AGGREGATES_ANNOTATION), "spec.aggregates"),
            (annotated(labels::CUSTOM_TRAITS_ANNOTATION), "spec.customTraits"),
            (labelled(labels::LIFECYCLE), "spec.lifecycleEnabled"),
            (labelled(labels::LIFECYCLE), "spec.skipTests"),
        ];
        let left = sourced.iter().filter(|(sourced, _)| !sourced);
        let take_over = TakeOver::from(EARLIER_CONTROLLERS.iter().chain(&EARLIER_PROGRAMS).copied())
            .only(SPEC_FIELDS)
            .only(self.sync.transferred_labels.iter().map(|label| ["metadata", "labels", label.as_str()]))
            .except(left.map(|(_, field)| *field));
        Applier::new(FIELD_MANAGER, self.controller.metrics.clone()).taking_over(take_over)
    }

    /// Writes what the plan wants and is not there yet.
    async fn publish(&self, seen: &Snapshot, plan: &mut Plan) -> Result<(), ApplyError> {
        let before = seen.hypervisor.as_deref();
        if before.is_none() && !plan.create {
            return Ok(());
        }
        let leaving = before.is_some_and(|hypervisor| hypervisor.metadata.deletion_timestamp.is_some());
        if leaving && !seen.is_held() {
            // On its way out, and not by our will still here: nothing we write now would last.
            return Ok(());
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
        let Some(current) = current else { return Ok(()) };
        let let_go = plan.held().map_or(leaving, |held| !held);
        if let_go && offboarding::is_held(current) {
            // Another manager has put our finalizer there too, so that our apply does not take it away.
            offboarding::remove_finalizer(&self.api, current).await.map_err(letting_go)?;
        }
        if leaving && let_go {
            // It is gone now, or held by others.
            return Ok(());
        }
        if before.is_none() {
            tracing::info!(hypervisor = %seen.name, "created from its node");
            let note = format!("Created Hypervisor {} from its Node", seen.name);
            self.controller.recorder.publish(Event::normal(current, "Create", "Created", note));
        }
        plan.written_as(current.metadata.generation);
        let status = self.status_applier.status(&self.api, current, &pass::status_body(seen, plan)).await?;
        self.tell(current, before, plan);
        match (status, written) {
            (Applied::Written(mut object), _) | (Applied::Unchanged, Applied::Written(mut object)) => {
                // As the cache would keep it: when a thousand hosts are new, each of them waits here for its turn.
                prune_hypervisor(&mut object, &self.everybody);
                lock(&self.written).insert(seen.name.clone(), Arc::new(*object));
            }
            (Applied::Unchanged, Applied::Unchanged) => {}
        }
        Ok(())
    }

    /// An Event for what has begun to be wrong since the last pass.
    fn warn(&self, seen: &Snapshot, plan: &Plan) {
        let Some(about) = seen.hypervisor.as_deref() else {
            lock(&self.warned).remove(&seen.name);
            return;
        };
        let now = plan.warnings();
        let before = {
            let mut warned = lock(&self.warned);
            if now.is_empty() { warned.remove(&seen.name) } else { warned.insert(seen.name.clone(), now.clone()) }
        };
        for note in now.difference(&before.unwrap_or_default()) {
            self.controller.recorder.publish(Event::warning(about, "Reconcile", reasons::FAILED, note.clone()));
        }
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
    if [reasons::FAILED, reasons::BLOCKED, reasons::LEFT_BEHIND].contains(&condition.reason.as_str()) {
        return Event::warning(about, action, &condition.reason, note);
    }
    Event::normal(about, action, &condition.reason, note)
}

fn letting_go(cause: kube::Error) -> ApplyError {
    ApplyError::Request { what: "remove the finalizer of a Hypervisor".into(), cause: Box::new(cause) }
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

/// A watch of what these labels choose.
fn selected(selector: &str) -> watcher::Config {
    let config = watcher::Config::default();
    if selector.is_empty() { config } else { config.labels(selector) }
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
        status.daemon_endpoints = None;
        status.features = None;
        status.runtime_handlers = None;
        // The kubelet's own conditions are not asked for.
        let told = status.conditions.take().into_iter().flatten();
        status.conditions = Some(told.filter(|it| it.type_ == condition_types::TERMINATING).collect());
    }
}

/// Keeps of a Hypervisor what the operator reads or owns. The instances are the agent's, and most of the object.
fn prune_hypervisor(hypervisor: &mut Hypervisor, take_over: &TakeOver) {
    let by_hand = hypervisor
        .managed_fields()
        .iter()
        .find(|entry| entry.manager.as_deref().is_some_and(|manager| manager.starts_with(taint::MANAGER)));
    // That there was such a one is all that is asked of it.
    let by_hand = by_hand.map(|entry| ManagedFieldsEntry { manager: entry.manager.clone(), ..Default::default() });
    compact_managed_fields(hypervisor, FIELD_MANAGER, Some(take_over));
    hypervisor.managed_fields_mut().extend(by_hand);
    if let Some(status) = &mut hypervisor.status {
        status.operating_system = None;
        status.instances = None;
        status.cells = None;
        status.capabilities = None;
        status.domain_capabilities = None;
        status.allocation = None;
        status.capacity = None;
        status.effective_capacity = None;
    }
}
