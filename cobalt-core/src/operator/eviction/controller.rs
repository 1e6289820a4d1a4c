//! The loop around the decision.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    act::Act,
    counts::Counts,
    decide::{DrainPlan, Step, decide, elapsed, in_flight},
    observe::{Asked, observe},
    say,
    seen::{DrainSeen, HostSeen, InFlight, is_held, is_over},
    settings::{DrainSettings, stop_again},
};
use crate::{
    api::{
        Condition, EvictedInstance, Eviction, EvictionStatus, Hypervisor, InstanceState, condition_types, conditions,
        labels, reasons,
    },
    ids::{HostName, InstanceId, MigrationId},
    operator::{Action, AgentSeen, Cloud, Hand, Outcome, Progress, acting, controller::FIELD_MANAGER, lives::Lives},
    publish::{self, newer},
    runtime::{
        apply::{Applied, Applier, ApplyError, Target},
        clock::Clock,
        events::{Event, Recorder},
        lock,
        metrics::Metrics,
        queue::{self, Next, Queue},
        shutdown::{Chain, Shutdown},
        takeover::TakeOver,
        watch::{Lookup, ObjectKey, Store},
    },
};

/// When to look again while we may not act.
const NOT_NOW: Duration = Duration::from_secs(10);

/// When to look again for a Hypervisor that is not there, or cannot be read.
const NO_HOST: Duration = Duration::from_secs(60);

/// How many Evictions are worked on at once.
const WORKERS: usize = 8;

/// What earlier programs wrote by patch, and is ours now.
pub(in crate::operator) fn take_over() -> TakeOver {
    TakeOver::from(["eviction", "manager", "openstack-hypervisor-operator", "unknown"]).only(["status"])
}

/// What the controller is made of.
pub(in crate::operator) struct Drains {
    pub(in crate::operator) client: Client,
    pub(in crate::operator) settings: DrainSettings,
    pub(in crate::operator) cloud: Cloud,
    pub(in crate::operator) evictions: Store<Eviction>,
    pub(in crate::operator) hypervisors: Store<Hypervisor>,
    /// The lives of the hosts' agents, if they are followed.
    pub(in crate::operator) agents: Option<Lives>,
    /// Names of Evictions that were touched, and of Hypervisors, which their Evictions share.
    pub(in crate::operator) queue: Queue<String>,
    pub(in crate::operator) clock: Clock,
    pub(in crate::operator) metrics: Arc<Metrics>,
    pub(in crate::operator) recorder: Recorder,
    pub(in crate::operator) hand: Hand,
}

impl Drains {
    /// Works until `stop`, then finishes what is in flight.
    pub(in crate::operator) async fn run(self, stop: Shutdown) {
        let queue = self.queue.clone();
        let context = Arc::new(Context {
            api: Api::all(self.client.clone()),
            applier: Applier::new(FIELD_MANAGER, self.metrics.clone()).taking_over(take_over()),
            counts: Counts::registered(&self.metrics),
            memories: Mutex::default(),
            flights: Mutex::default(),
            drains: self,
        });
        queue::run(&queue, WORKERS, stop, move |name| {
            let context = context.clone();
            async move { context.reconcile(&name).await }
        })
        .await;
    }
}

/// What is remembered of a drain from one pass to the next. Losing it costs a few calls, nothing more.
#[derive(Default)]
struct Memory {
    written: Option<Arc<Eviction>>,
    empty_since: Option<Timestamp>,
    asked: Asked,
    /// The migrations to the host that were asked to stop: when first, and not before when again.
    stopping: BTreeMap<MigrationId, [Timestamp; 2]>,
    /// When to look again, unless one of these versions of the Eviction and the Hypervisor has changed.
    rest: Option<(Instant, [Option<String>; 2])>,
}

struct Context {
    drains: Drains,
    api: Api<Eviction>,
    applier: Applier,
    counts: Counts,
    memories: Mutex<BTreeMap<String, Memory>>,
    /// What moves, by Eviction: decided and taken under one lock, so that two drains cannot take the last place.
    flights: Mutex<BTreeMap<String, InFlight>>,
}

impl Context {
    async fn reconcile(&self, name: &str) -> Result<Next, ApplyError> {
        let drains = &self.drains;
        if !drains.hand.may_act() {
            return Ok(Next::After(NOT_NOW));
        }
        let eviction = match drains.evictions.lookup(&ObjectKey::cluster(name)) {
            Lookup::Found(eviction) => eviction,
            Lookup::Absent => {
                self.forget(name);
                // A Hypervisor of this name was touched: its Evictions may have other names.
                for key in drains.evictions.keys() {
                    if drains.evictions.get(&key).is_some_and(|one| one.spec.hypervisor == name) {
                        drains.queue.add(key.name);
                    }
                }
                return Ok(Next::Wait);
            }
            Lookup::Malformed(_) => return Ok(Next::Wait),
        };
        let mut memory = lock(&self.memories).remove(name).unwrap_or_default();
        let answer = self.pass(name, eviction, &mut memory).await;
        if answer.is_err() {
            // Our own last write may be what the server has moved on from.
            memory.written = None;
        }
        lock(&self.memories).insert(name.to_owned(), memory);
        answer
    }

    fn forget(&self, name: &str) {
        lock(&self.memories).remove(name);
        lock(&self.flights).remove(name);
        self.counts.progress(name, None);
        self.drains.hand.withhold(&about(name), []);
    }

    async fn pass(&self, name: &str, cached: Arc<Eviction>, memory: &mut Memory) -> Result<Next, ApplyError> {
        let drains = &self.drains;
        let Some(eviction) = newer(Some(cached), memory.written.clone()) else { return Ok(Next::Wait) };
        let hypervisor = match drains.hypervisors.lookup(&ObjectKey::cluster(&eviction.spec.hypervisor)) {
            Lookup::Found(hypervisor) => hypervisor,
            Lookup::Malformed(_) => return Ok(Next::After(NO_HOST)),
            Lookup::Absent => {
                // Nothing is known about the host, so nothing is done; but nothing is held back either.
                lock(&self.flights).remove(name);
                if eviction.metadata.deletion_timestamp.is_some() && is_held(&eviction) && !drains.hand.is_observing() {
                    self.release_orphan(&eviction).await?;
                }
                return Ok(Next::After(NO_HOST));
            }
        };
        let versions = [eviction.resource_version(), hypervisor.resource_version()];
        if let Some((until, looked_at)) = memory.rest.take()
            && looked_at == versions
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            // Our own write has woken us. The cloud is looked at in its own time.
            memory.rest = Some((until, looked_at));
            return Ok(Next::After(left));
        }
        let mut seen = DrainSeen {
            agent: self.agent_of(&eviction.spec.hypervisor),
            host: HostName::new(&eviction.spec.hypervisor),
            stands_back_for: self.older(&eviction),
            eviction,
            hypervisor,
            cloud: HostSeen::NotAsked,
            elsewhere: InFlight::default(),
            empty_since: memory.empty_since,
            stopping: memory.stopping.iter().map(|(id, [_, again])| (id.clone(), *again)).collect(),
            outcomes: BTreeMap::new(),
        };
        if seen.wants_cloud() {
            let now = drains.clock.now();
            seen.cloud = observe(&drains.cloud, &drains.settings, &mut seen, &mut memory.asked, now).await;
        }
        if let HostSeen::Known(state) = &seen.cloud {
            memory.stopping.retain(|id, _| state.migrations.iter().any(|one| one.id == *id && !one.phase.is_over()));
        }
        let now = drains.clock.now();
        let mut plan = self.decide_and_take_places(name, &mut seen, now);
        memory.empty_since = plan.empty.then(|| memory.empty_since.unwrap_or(now));
        let acts = self.acts(&seen, &plan);
        if drains.hand.is_observing() {
            drains.hand.withhold(&about(name), acts.iter().map(|act| act as &dyn Action));
            return Ok(plan.again.map_or(Next::Wait, Next::After));
        }
        let before = seen.eviction.clone();
        if plan.hold && !seen.is_held() && !seen.is_leaving() {
            // Before the first move: an Eviction that is deleted in the next moment must not take it with it.
            seen.eviction = Arc::new(self.hold(&seen.eviction, true).await?);
            memory.written = Some(seen.eviction.clone());
        }
        if starts_unrecorded(&seen.eviction, &plan) {
            // Likewise: whoever calls the drain off before this pass has written anything must find what is its own.
            self.publish(&mut seen, &plan, memory).await?;
        }
        for act in acts {
            if !drains.hand.may_act() {
                return Ok(Next::After(NOT_NOW));
            }
            let answer = acting::perform(&act).await;
            match &answer {
                Ok(Progress::Done) => tracing::info!(eviction = name, action = act.describe(), "done"),
                Ok(Progress::Underway(_)) => {}
                Err(error) => tracing::warn!(
                    eviction = name, action = act.describe(), category = error.category(), error = %Chain(error),
                    "not done"
                ),
            }
            if let Step::Abort { migration, incoming: true, .. } = &act.step {
                let [first, again] = memory.stopping.entry(migration.clone()).or_insert([now; 2]);
                *again = now + stop_again(elapsed(*first, now));
            }
            seen.outcomes.insert(act.key(), Outcome::of(&answer));
        }
        if !seen.outcomes.is_empty() {
            let decided = decide(&seen, &drains.settings, now);
            let steps = std::mem::take(&mut plan.steps);
            plan = DrainPlan { again: decided.again.or(plan.again), ..decided };
            name_targets(&mut plan, &steps);
            lock(&self.flights).insert(name.to_owned(), in_flight(&plan));
        }
        self.publish(&mut seen, &plan, memory).await?;
        self.tell(&before, &seen, &plan);
        if seen.is_held() && !plan.hold {
            if seen.is_leaving() {
                self.tell_of_release(&seen);
            }
            seen.eviction = Arc::new(self.hold(&seen.eviction, false).await?);
            memory.written = Some(seen.eviction.clone());
        }
        let versions = [seen.eviction.resource_version(), seen.hypervisor.resource_version()];
        memory.rest = plan.again.map(|again| (Instant::now() + again, versions));
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    fn agent_of(&self, host: &str) -> AgentSeen {
        self.drains.agents.as_ref().map_or(AgentSeen::Unknown, |agents| agents.of(host))
    }

    /// Lets an Eviction go whose Hypervisor does not exist. That it is not in our cache is not enough: it may be of another
    /// partition, and then its moves are another operator's.
    async fn release_orphan(&self, eviction: &Eviction) -> Result<(), ApplyError> {
        let hypervisors: Api<Hypervisor> = Api::all(self.drains.client.clone());
        let host = &eviction.spec.hypervisor;
        let found = hypervisors.get_opt(host).await.map_err(|cause| ApplyError::Request {
            what: format!("look for Hypervisor {host}"),
            cause: Box::new(cause),
        })?;
        if found.is_none() {
            self.hold(eviction, false).await?;
            let note = match under_way(eviction) {
                0 => format!("The drain was called off after Hypervisor {host} had gone"),
                moving => format!(
                    "The drain was called off after Hypervisor {host} had gone; {moving} instances may still move, and \
                     nobody watches them"
                ),
            };
            self.drains.recorder.publish(Event::warning(eviction, "Drain", "WithdrawnUnseen", note));
        }
        Ok(())
    }

    /// Another Eviction of the same host that is older and not over. One that is being deleted and has moves under way would
    /// stop what we begin meanwhile.
    fn older(&self, mine: &Eviction) -> Option<String> {
        let age = |one: &Eviction| (one.metadata.creation_timestamp.as_ref().map(|at| at.0), one.name_any());
        let over = |one: &Eviction| {
            let evicting = one.condition(condition_types::EVICTING);
            evicting.is_some_and(|one| one.is_false() && one.reason != reasons::FAILED)
        };
        let others = self.drains.evictions.keys().into_iter().filter_map(|key| self.drains.evictions.get(&key));
        let same =
            others.filter(|one| one.spec.hypervisor == mine.spec.hypervisor && one.name_any() != mine.name_any());
        let works = |one: &Arc<Eviction>| one.metadata.deletion_timestamp.is_none() && !over(one);
        let ends = |one: &Arc<Eviction>| one.metadata.deletion_timestamp.is_some() && is_held(one);
        let older = same.filter(|one| (works(one) || ends(one)) && age(one) < age(mine));
        older.min_by_key(|one| age(one)).map(|one| one.name_any())
    }

    fn decide_and_take_places(&self, name: &str, seen: &mut DrainSeen, now: Timestamp) -> DrainPlan {
        let mut flights = lock(&self.flights);
        seen.elsewhere = self.elsewhere(name, &flights);
        let plan = decide(seen, &self.drains.settings, now);
        let mine = in_flight(&plan);
        if mine == InFlight::default() {
            flights.remove(name);
        } else {
            flights.insert(name.to_owned(), mine);
        }
        plan
    }

    /// What moves in other drains: by what they took here, or else by what they have written before we were started.
    fn elsewhere(&self, name: &str, flights: &BTreeMap<String, InFlight>) -> InFlight {
        let settings = &self.drains.settings;
        let mut sum = InFlight::default();
        if settings.region_concurrency == 0 && settings.target_concurrency == 0 {
            return sum;
        }
        let known = lock(&self.memories);
        for key in self.drains.evictions.keys().into_iter().filter(|key| key.name != name) {
            match (flights.get(&key.name), self.drains.evictions.get(&key)) {
                (Some(flight), _) => sum.add(flight),
                (None, Some(eviction)) if !known.contains_key(&key.name) => {
                    let status = eviction.status.clone().unwrap_or_default();
                    sum.add(&in_flight(&DrainPlan { status, ..DrainPlan::default() }));
                }
                _ => {}
            }
        }
        sum
    }

    fn acts(&self, seen: &DrainSeen, plan: &DrainPlan) -> Vec<Act> {
        let act = |step: &Step| Act {
            cloud: self.drains.cloud.clone(),
            host: seen.host.clone(),
            block: self.drains.settings.block_migration,
            step: step.clone(),
        };
        plan.steps.iter().map(act).collect()
    }

    /// Puts the finalizer on this very version of the Eviction, or takes it off.
    async fn hold(&self, eviction: &Eviction, held: bool) -> Result<Eviction, ApplyError> {
        let name = eviction.name_any();
        let mut finalizers = eviction.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != labels::EVICTION_FINALIZER);
        if held {
            finalizers.push(labels::EVICTION_FINALIZER.to_owned());
        }
        // Not an apply: the creator of the Eviction may write under our own name, and would lose its fields.
        let patch = json!({"metadata": {"resourceVersion": eviction.resource_version(), "finalizers": finalizers}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let written = self.api.patch(&name, &params, &Patch::Merge(&patch)).await;
        written.map_err(|cause| {
            let what = format!("{} Eviction {name}", if held { "hold" } else { "let go of" });
            match crate::runtime::api_category(&cause) {
                "conflict" => ApplyError::Conflict { what, cause: Some(Box::new(cause)) },
                "not_found" => ApplyError::NotFound { what, cause: Box::new(cause) },
                _ => ApplyError::Request { what, cause: Box::new(cause) },
            }
        })
    }

    async fn publish(&self, seen: &mut DrainSeen, plan: &DrainPlan, memory: &mut Memory) -> Result<(), ApplyError> {
        if is_over(seen) {
            // Nobody has to touch what has ended, whoever wrote it.
            return Ok(());
        }
        let mut status = plan.status.clone();
        let conditions = std::mem::take(&mut status.conditions);
        let owned = self.applier.owned(seen.eviction.as_ref(), Target::Status);
        let body = publish::status_body(Some(seen.eviction.as_ref()), &owned, &status, conditions.iter(), |_| false);
        if let Applied::Written(object) = self.applier.status(&self.api, seen.eviction.as_ref(), &body).await? {
            seen.eviction = Arc::new(*object);
            memory.written = Some(seen.eviction.clone());
        }
        Ok(())
    }

    /// Events, log lines and figures of what is new, after it has been written.
    fn tell(&self, before: &Eviction, seen: &DrainSeen, plan: &DrainPlan) {
        let about = seen.eviction.as_ref();
        let name = about.name_any();
        for condition in &plan.status.conditions {
            let old = conditions::find(before.conditions(), &condition.type_);
            if old.is_some_and(|old| old.status == condition.status && old.reason == condition.reason) {
                continue;
            }
            tracing::info!(
                eviction = name, condition = %condition.type_, status = %condition.status,
                reason = %condition.reason, "condition changed"
            );
            // How single instances fare has Events of its own.
            if condition.type_ != condition_types::MIGRATING_INSTANCE {
                self.drains.recorder.publish(transition(about, condition));
            }
        }
        let old: BTreeMap<&str, &EvictedInstance> = before
            .status
            .iter()
            .flat_map(EvictionStatus::instances)
            .map(|record| (record.id.as_str(), record))
            .collect();
        for record in plan.status.instances() {
            let before = old.get(record.id.as_str());
            let again = before.is_some_and(|old| old.state == record.state && old.attempts == record.attempts);
            if again {
                continue;
            }
            self.counts.changed(record);
            tracing::info!(
                eviction = name, instance = record.id, state = %record.state, attempts = record.attempts,
                target = record.target, error = record.error, "instance"
            );
            if let Some(event) = instance_event(about, record) {
                self.drains.recorder.publish(event);
            }
        }
        // Of several Evictions of one host only the one that works counts.
        let running = seen.stands_back_for.is_none() && plan.status.conditions.iter().any(say::is_running);
        self.counts.progress(&name, running.then_some(&plan.status));
    }

    fn tell_of_release(&self, seen: &DrainSeen) {
        let about = seen.eviction.as_ref();
        let moving = under_way(about);
        let event = if moving == 0 {
            Event::normal(about, "Drain", "Withdrawn", "The drain was called off; nothing of it moves any more")
        } else {
            let note = format!("The drain was called off; {moving} instances still move, and nobody watches them");
            Event::warning(about, "Drain", "WithdrawnMoving", note)
        };
        self.drains.recorder.publish(event);
    }
}

/// Writes down where those go that were told where to: until Nova has a record of it, nobody else knows.
fn name_targets(plan: &mut DrainPlan, steps: &[Step]) {
    for record in plan.status.instances.iter_mut().flatten().filter(|one| one.state == InstanceState::Queued) {
        let told = steps.iter().find_map(|step| match step {
            Step::Start { server, target, .. } if server.as_str() == record.id => target.as_ref(),
            _ => None,
        });
        record.target = record.target.take().or(told.map(ToString::to_string));
    }
}

/// How many instances of a drain move, by what it says.
fn under_way(eviction: &Eviction) -> usize {
    let records = eviction.status.iter().flat_map(EvictionStatus::instances);
    records.filter(|record| record.state.is_under_way()).count()
}

/// What somebody should hear of one instance that has changed its state.
fn instance_event(about: &Eviction, record: &EvictedInstance) -> Option<Event> {
    let (id, name) = (&record.id, &record.name);
    let why = record.error.as_deref().unwrap_or("nobody said why");
    let (reason, what) = match record.state {
        InstanceState::Moved => {
            let to = record.target.as_deref().unwrap_or("another host");
            return Some(Event::normal(
                about,
                "Drain",
                "InstanceMoved",
                format!("Instance {id} ({name}) is on {to} now"),
            ));
        }
        InstanceState::Failed => ("MigrationFailed", "does not move"),
        InstanceState::Blocked => ("InstanceBlocked", "does not move"),
        InstanceState::Aborting => ("MigrationStopped", "is asked to stop moving"),
        InstanceState::Overdue => ("MigrationOverdue", "does not arrive"),
        _ => return None,
    };
    Some(Event::warning(about, "Drain", reason, format!("Instance {id} ({name}) {what}: {why}")))
}

fn about(name: &str) -> String {
    format!("eviction/{name}")
}

/// Whether a server is to be moved of which the Eviction does not say yet that it is on the host.
fn starts_unrecorded(eviction: &Eviction, plan: &DrainPlan) -> bool {
    let records = eviction.status.as_ref().map_or(&[][..], EvictionStatus::instances);
    let known = |id: &InstanceId| records.iter().any(|one| one.id == id.as_str() && !one.state.is_finished());
    plan.steps.iter().any(|step| matches!(step, Step::Start { server, .. } if !known(server)))
}

fn transition(about: &Eviction, condition: &Condition) -> Event {
    let note = publish::sentence(condition);
    if matches!(condition.reason.as_str(), reasons::FAILED | reasons::BLOCKED) {
        Event::warning(about, "Drain", &condition.reason, note)
    } else {
        Event::normal(about, "Drain", &condition.reason, note)
    }
}
