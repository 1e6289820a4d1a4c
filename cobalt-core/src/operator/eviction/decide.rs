//! What to do next about a drain, and what to say about it: a pure function.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    movability::{self, Movability},
    say,
    seen::{DrainSeen, HostSeen, HostState, InFlight, Moves, Room, has_moved, is_disabled, is_over},
    settings::{DrainSettings, stop_again},
    targets,
};
use crate::{
    api::{EvictedInstance, EvictionStatus, InstanceState, MoveKind},
    ids::{HostName, InstanceId, MigrationId},
    nova::{Migration, MigrationKind, MigrationPhase, Server, ServerStatus, TaskState},
    operator::Outcome,
};

/// The longest text about one instance.
const TEXT: usize = 160;

/// How many instances are told of. Those that have left long ago are forgotten first; what is still there never is.
const KEPT: usize = 512;

/// What is said of a server that Nova has been moving for too long without a migration.
const STUCK: &str = "Nova says that it moves, and nothing moves it: its state has to be reset";

/// What is said of a server whose move takes too long and cannot be stopped.
const OVERDUE: &str = "its move takes too long and cannot be stopped; it is waited for";

/// The same where Nova takes the wish to stop it, and nothing happens.
const DEAF: &str = "its move takes too long and does not stop, although Nova was asked to; it is waited for";

/// What is said of a server whose move is over, but for the cleaning up.
const UNCLEAN: &str = "its move is being confirmed for too long; the log of nova-compute on the host it left says why";

/// How long a move that was asked to stop may go on before it loses its place to the others. Nova stops one within
/// seconds, or never.
const STOPS_WITHIN: Duration = Duration::from_secs(120);

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask a server to move.
    Start {
        /// The server.
        server: InstanceId,
        /// How.
        how: MoveKind,
        /// To this host; to one of the scheduler's choice otherwise.
        target: Option<HostName>,
    },
    /// Say yes to a move that has happened.
    Confirm {
        /// The server.
        server: InstanceId,
    },
    /// Stop a move.
    Abort {
        /// The server.
        server: InstanceId,
        /// Its migration.
        migration: MigrationId,
        /// It was on its way to this host, not from it.
        incoming: bool,
    },
}

impl Step {
    /// What makes a step the same as another one.
    pub fn key(&self) -> String {
        match self {
            Self::Start { server, .. } => format!("move {server}"),
            Self::Confirm { server } => format!("confirm {server}"),
            Self::Abort { server, migration, .. } => format!("abort {server} {migration}"),
        }
    }
}

/// What is wanted of a drain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrainPlan {
    /// The whole status.
    pub status: EvictionStatus,
    /// What to do, in this order.
    pub steps: Vec<Step>,
    /// When to look again, if nothing happens before.
    pub again: Option<Duration>,
    /// Whether the Eviction is to be kept from going: it has moves under way.
    pub hold: bool,
    /// Whether Nova has nothing on the host and nothing on the way to it.
    pub empty: bool,
}

/// Decides. See the module above for the states and what leads from one to the other.
pub fn decide(seen: &DrainSeen, settings: &DrainSettings, now: Timestamp) -> DrainPlan {
    let mut plan = DrainPlan { status: seen.eviction.status.clone().unwrap_or_default(), ..DrainPlan::default() };
    if seen.is_leaving() {
        leaving(seen, settings, now, &mut plan);
        return plan;
    }
    if is_over(seen) {
        return plan;
    }
    if let Some(other) = &seen.stands_back_for {
        say::stands_back(other, now, &mut plan.status);
        plan.again = Some(settings.idle_poll);
        return plan;
    }
    if seen.is_expected() && !is_disabled(&seen.hypervisor) {
        say::not_disabled("hypervisor not disabled", now, &mut plan.status);
        plan.hold = seen.is_held();
        plan.again = Some(settings.poll * 2);
        return plan;
    }
    plan.hold = seen.is_held();
    match &seen.cloud {
        HostSeen::NotAsked => {
            say::begun(now, &mut plan.status);
            plan.again = Some(settings.poll);
        }
        HostSeen::Unknown(why) => {
            say::unknown(why, now, &mut plan.status);
            plan.again = Some(settings.poll * 2);
        }
        HostSeen::Absent(why) => {
            say::absent(seen, why, now, &mut plan.status);
            plan.hold = false;
            plan.again = plan.status.conditions.iter().any(say::is_running).then_some(settings.idle_poll);
        }
        HostSeen::Known(state) if state.service.as_ref().is_some_and(|service| service.enabled) => {
            // Whatever we move away would be replaced by what the scheduler sends.
            say::not_disabled("hypervisor not disabled: Nova has its service enabled", now, &mut plan.status);
            plan.again = Some(settings.poll * 2);
        }
        HostSeen::Known(state) => drain(seen, state, settings, now, &mut plan),
    }
    plan
}

/// One look at a host that is being drained.
fn drain(seen: &DrainSeen, state: &HostState, settings: &DrainSettings, now: Timestamp, plan: &mut DrainPlan) {
    let acting = seen.outcomes.is_empty();
    let mut vms = judge_all(seen, state, settings, now);
    if acting {
        plan.steps = follow_ups(vms.iter());
        plan.steps.extend(incoming_aborts(seen, state, now));
        plan.steps.extend(starts(&mut vms, seen, state, settings));
    }
    let outstanding: Vec<&Vm> = vms.values().filter(|vm| !vm.record.state.is_finished()).collect();
    let incoming = state.incoming(&seen.host, now).count();
    plan.empty = outstanding.is_empty() && state.servers.is_empty() && incoming == 0;
    plan.status.hypervisor_service_id =
        state.id.as_ref().map(ToString::to_string).or(plan.status.hypervisor_service_id.take());
    plan.status.outstanding_ram_mb =
        Some(outstanding.iter().map(|vm| i64::try_from(vm.memory_mb).unwrap_or(i64::MAX)).sum());
    plan.status.outstanding_instances = Some(outstanding.iter().map(|vm| vm.record.id.clone()).collect());
    let busy = outstanding.iter().any(|vm| vm.record.state.is_under_way());
    let waits = outstanding
        .iter()
        .any(|vm| matches!(vm.record.state, InstanceState::Pending | InstanceState::Waiting | InstanceState::Failed));
    plan.hold = busy || plan.steps.iter().any(|step| !matches!(step, Step::Abort { incoming: true, .. }));
    plan.hold |= seen.is_held() && waits;
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Failed { category, .. } if counts(category));
    let refused = seen.outcomes.values().any(refused);
    let retry = outstanding.iter().filter_map(|vm| vm.record.retry_at.as_ref()).map(|at| elapsed(now, at.0)).min();
    plan.status.instances = Some(kept(vms.into_values().map(|vm| vm.record)));
    say::look(seen, state, plan, settings, now);
    plan.again = plan.status.conditions.iter().any(say::is_running).then(|| {
        if refused && waits {
            Duration::from_secs(1)
        } else if busy || waits || incoming > 0 || plan.empty {
            settings.poll
        } else {
            // Whoever is blocked is tried when its time has come, not at the look after that.
            retry.unwrap_or(settings.idle_poll).clamp(settings.poll, settings.idle_poll.max(settings.poll))
        }
    });
}

/// An Eviction that somebody deletes: what it has begun is stopped or seen to its end, and nothing new is begun.
fn leaving(seen: &DrainSeen, settings: &DrainSettings, now: Timestamp, plan: &mut DrainPlan) {
    if !seen.is_held() {
        return;
    }
    let since = seen.eviction.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    if elapsed(since, now) >= settings.release {
        return;
    }
    plan.hold = true;
    plan.again = Some(settings.poll.min(Duration::from_secs(2)));
    let HostSeen::Known(state) = &seen.cloud else {
        plan.hold = !matches!(seen.cloud, HostSeen::Absent(_));
        return;
    };
    // Not what others begin now. One that was to be moved and moves since before may have been asked to by a pass that died
    // before it wrote that down.
    let began = |record: &EvictedInstance| {
        let mut open = state.migrations.iter().filter(|one| !one.phase.is_over());
        open.find(|one| one.server.as_str() == record.id).and_then(|one| one.created_at)
    };
    let is_ours = |record: &EvictedInstance| {
        !record.state.is_finished() && (record.state.is_under_way() || began(record).is_none_or(|at| at <= since))
    };
    let written = seen.eviction.status.iter().flat_map(EvictionStatus::instances).cloned();
    let (ours, others): (Vec<EvictedInstance>, Vec<EvictedInstance>) = written.partition(is_ours);
    let mut vms = judge_all(seen, state, settings, now);
    vms.retain(|id, _| ours.iter().any(|record| record.id == id.as_str()));
    plan.hold = vms.values().any(|vm| vm.record.state.is_under_way());
    if seen.outcomes.is_empty() {
        plan.steps = follow_ups(vms.iter());
    }
    plan.status.instances = Some(kept(others.into_iter().chain(vms.into_values().map(|vm| vm.record))));
}

/// What is wanted of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Want {
    Nothing,
    Start(MoveKind),
    Confirm,
    Abort(MigrationId),
}

/// One server: what is said of it, and what is wanted.
struct Vm {
    record: EvictedInstance,
    memory_mb: u64,
    want: Want,
}

fn judge_all(
    seen: &DrainSeen,
    state: &HostState,
    settings: &DrainSettings,
    now: Timestamp,
) -> BTreeMap<InstanceId, Vm> {
    let before: BTreeMap<InstanceId, &EvictedInstance> = seen
        .eviction
        .status
        .iter()
        .flat_map(EvictionStatus::instances)
        .map(|record| (InstanceId::new(&record.id), record))
        .collect();
    let here: BTreeMap<&InstanceId, &Server> = state.servers.iter().map(|server| (&server.id, server)).collect();
    let moving = state.migrations.iter().filter(|one| one.source == seen.host).map(|one| &one.server);
    let moving = moving.filter(|id| here.contains_key(id) || is_on_its_way(seen, state, id, now));
    let known = before.iter().filter(|(_, record)| !record.state.is_finished()).map(|(id, _)| id);
    let open: BTreeSet<&InstanceId> = here.keys().copied().chain(moving).chain(known).collect();
    let judge = Judge { seen, state, settings, now };
    let mut vms: BTreeMap<InstanceId, Vm> = BTreeMap::new();
    for id in open {
        // One that had left and is here again begins anew.
        let prev = before.get(id).filter(|record| !record.state.is_finished()).copied();
        let vm = judge.one(id, here.get(id).copied(), prev);
        vms.insert(id.clone(), vm);
    }
    for (id, record) in before {
        vms.entry(id).or_insert_with(|| Vm { record: record.clone(), memory_mb: 0, want: Want::Nothing });
    }
    vms
}

/// Whether a server that is not on the host any more has a move that is not at its end.
fn is_on_its_way(seen: &DrainSeen, state: &HostState, id: &InstanceId, now: Timestamp) -> bool {
    let Some(migration) = state.newest(&seen.host, id).filter(|one| !one.phase.is_over()) else { return false };
    if has_moved(migration) {
        // Not somebody's resize of long ago, confirmed or reverted since, whatever its record says.
        return state
            .left
            .get(id)
            .is_some_and(|server| server.as_ref().is_some_and(|server| server.status == ServerStatus::VerifyResize));
    }
    state.goes_on(migration, now) == Some(true)
}

struct Judge<'a> {
    seen: &'a DrainSeen,
    state: &'a HostState,
    settings: &'a DrainSettings,
    now: Timestamp,
}

impl Judge<'_> {
    fn one(&self, id: &InstanceId, server: Option<&Server>, prev: Option<&EvictedInstance>) -> Vm {
        let mut record = prev.cloned().unwrap_or_else(|| EvictedInstance { id: id.to_string(), ..Default::default() });
        let known = server.or_else(|| self.state.left.get(id).and_then(Option::as_ref));
        if let Some(server) = known {
            record.name = cut(&server.name);
        }
        let mut vm = Vm { record, memory_mb: known.map_or(0, |server| server.memory_mb), want: Want::Nothing };
        let outgoing = self.state.outgoing(&self.seen.host, id, self.now);
        match (server, outgoing) {
            (Some(server), Some(migration)) if server.status != ServerStatus::VerifyResize => {
                self.moves(&mut vm, migration);
            }
            (Some(server), _) => self.rests(&mut vm, server),
            (None, outgoing) => self.left(&mut vm, id, outgoing),
        }
        self.heed_outcomes(&mut vm, id);
        vm
    }

    /// It is here and has a migration.
    fn moves(&self, vm: &mut Vm, migration: &Migration) {
        let record = &mut vm.record;
        record.how = Some(kind(migration));
        record.target = migration.destination.as_ref().map(ToString::to_string);
        record.attempts = record.attempts.max(1);
        if !record.state.is_under_way() {
            record.requested_at = migration.created_at.map(time).or(Some(time(self.now)));
            (record.started_at, record.finished_at, record.error) = (None, None, None);
            (record.aborted_at, record.retry_at) = (None, None);
        }
        let queued = migration.phase == MigrationPhase::Queued;
        let long = !queued && self.takes_too_long(record);
        if (long || self.seen.is_leaving()) && can_abort(migration) {
            self.stop(vm, migration);
        } else if long {
            overdue(record, OVERDUE);
        } else {
            record.state = if queued { InstanceState::Queued } else { InstanceState::Migrating };
            (record.error, record.retry_at) = (None, None);
        }
    }

    /// Whether a move that has begun takes longer than it may. It begins when it is first seen to.
    fn takes_too_long(&self, record: &mut EvictedInstance) -> bool {
        let began = record.started_at.get_or_insert_with(|| time(self.now)).0;
        elapsed(began, self.now) >= self.settings.timeout
    }

    /// It is to be stopped. Asked once that is Nova's business; asked in vain it is asked again, but less and less often.
    fn stop(&self, vm: &mut Vm, migration: &Migration) {
        let record = &mut vm.record;
        match record.aborted_at.as_ref().map(|at| elapsed(at.0, self.now)) {
            None => (record.state, record.error) = (InstanceState::Aborting, Some(self.why_stopped())),
            Some(since) if since < STOPS_WITHIN => record.state = InstanceState::Aborting,
            Some(_) => {
                record.state = InstanceState::Overdue;
                // What Nova said to the wish tells more.
                if record.error.as_ref().is_none_or(|error| *error == self.why_stopped()) {
                    record.error = Some(DEAF.into());
                }
            }
        }
        if record.retry_at.as_ref().is_none_or(|at| at.0 <= self.now) {
            vm.want = Want::Abort(migration.id.clone());
        }
    }

    fn why_stopped(&self) -> String {
        if self.seen.is_leaving() {
            return "the drain was called off".into();
        }
        format!("it took longer than {} s", self.settings.timeout.as_secs())
    }

    /// It is here and has no migration.
    fn rests(&self, vm: &mut Vm, server: &Server) {
        let now = self.now;
        let known = vm.record.state.is_under_way() || vm.record.error.as_deref() == Some(STUCK);
        let movability = match movability::of(server, self.settings.block_migration) {
            Movability::Moving if !known && self.comes(server) => Movability::Busy("it has just come here".into()),
            other => other,
        };
        match movability {
            Movability::Moving => {
                let record = &mut vm.record;
                if !known {
                    record.attempts = record.attempts.max(1);
                    record.requested_at = Some(time(now));
                    (record.started_at, record.error, record.finished_at) = (None, None, None);
                    record.aborted_at = None;
                }
                record.retry_at = None;
                let asked = record.requested_at.get_or_insert_with(|| time(now)).0;
                // Nova sets the state before it answers, and the record comes later; but it comes.
                if elapsed(asked, now) >= self.settings.timeout {
                    record.state = InstanceState::Blocked;
                    record.error = Some(STUCK.into());
                } else {
                    record.state = InstanceState::Queued;
                }
            }
            Movability::ToConfirm => self.to_confirm(vm, self.state.moved(&server.id)),
            _ if was_to_move(&vm.record) && server.task != Some(TaskState::Deleting) => {
                let error = self.why_not(&vm.record, server);
                self.fail(&mut vm.record, &error);
            }
            Movability::Busy(why) => {
                let record = &mut vm.record;
                let waits = matches!(record.state, InstanceState::Waiting | InstanceState::Blocked);
                let since = if waits { record.started_at.clone() } else { None }.unwrap_or_else(|| time(now));
                let long = elapsed(since.0, now) >= self.settings.timeout;
                record.state = if long { InstanceState::Blocked } else { InstanceState::Waiting };
                record.started_at = Some(since);
                (record.retry_at, record.error) = (None, Some(cut(&why)));
            }
            Movability::Not(why) => {
                let record = &mut vm.record;
                record.state = InstanceState::Blocked;
                record.how = Some(MoveKind::None);
                (record.retry_at, record.started_at, record.error) = (None, None, Some(cut(&why)));
            }
            Movability::Ready(how) => self.ready(vm, server, how),
        }
    }

    /// Whether a server that moves does so because it was moved to this host, and that is not at its end.
    fn comes(&self, server: &Server) -> bool {
        let late = |one: &Migration| matches!(one.phase, MigrationPhase::Running | MigrationPhase::Finishing);
        let to_here =
            |one: &Migration| one.destination.as_ref() == Some(&self.seen.host) && one.source != self.seen.host;
        self.state.migrations.iter().any(|one| one.server == server.id && late(one) && to_here(one))
    }

    fn ready(&self, vm: &mut Vm, server: &Server, how: MoveKind) {
        let record = &mut vm.record;
        let tried = matches!(record.state, InstanceState::Failed | InstanceState::Blocked);
        let waits = record.retry_at.as_ref().filter(|_| tried).map(|at| at.0);
        record.how = Some(how.clone());
        let room = self.state.room.get(&server.id);
        let none = room.is_some_and(Vec::is_empty);
        // Placement had no room for it, and has some now: then there is nothing to wait for.
        let room_came =
            record.state == InstanceState::Blocked && record.attempts == 0 && room.is_some_and(|room| !room.is_empty());
        // Without room no target can be chosen for it, whatever the time is.
        let nowhere = none && self.settings.target_concurrency > 0;
        if waits.is_some_and(|at| at > self.now) && !room_came && !nowhere {
            return;
        }
        // Once its time has come it is asked even if Placement still says no: the scheduler may know better.
        if nowhere || (waits.is_none() && none && record.attempts == 0) {
            record.state = InstanceState::Blocked;
            let why = self.state.no_room.get(&server.id).cloned();
            record.error = Some(cut(&why.unwrap_or_else(|| targets::nobody(server, std::iter::empty()))));
            record.retry_at = (!nowhere).then(|| time(self.now + self.settings.blocked_retry));
            return;
        }
        if !tried {
            record.error = None;
        }
        (record.state, record.retry_at, record.started_at) = (InstanceState::Pending, None, None);
        vm.want = Want::Start(how);
    }

    /// It has moved. The yes is said once: as long as that one is being worked on Nova refuses another.
    fn to_confirm(&self, vm: &mut Vm, migration: Option<&Migration>) {
        let record = &mut vm.record;
        if let Some(migration) = migration.filter(|one| one.phase == MigrationPhase::Confirming) {
            (record.how, record.retry_at) = (Some(MoveKind::Cold), None);
            let since = migration.updated_at.or(migration.created_at);
            if since.is_some_and(|since| elapsed(since, self.now) >= self.settings.timeout) {
                overdue(record, UNCLEAN);
            } else {
                (record.state, record.error) = (InstanceState::Confirming, None);
            }
            return;
        }
        // A yes that was refused is said again after a pause. What failed before it moved has nothing to do with that.
        let moved = migration.and_then(|one| one.updated_at);
        let refused = record.finished_at.as_ref().is_some_and(|at| moved.is_none_or(|moved| at.0 > moved));
        let waits = record.retry_at.as_ref().is_some_and(|at| at.0 > self.now);
        if matches!(record.state, InstanceState::Failed | InstanceState::Blocked) && refused && waits {
            return;
        }
        record.how = Some(MoveKind::Cold);
        (record.state, record.retry_at) = (InstanceState::Confirming, None);
        vm.want = Want::Confirm;
    }

    /// It is not here any more.
    fn left(&self, vm: &mut Vm, id: &InstanceId, outgoing: Option<&Migration>) {
        let now = self.now;
        let Some(answer) = self.state.left.get(id) else {
            if let Some(migration) = outgoing {
                vm.record.target = migration.destination.as_ref().map(ToString::to_string);
                self.arrives(&mut vm.record);
            }
            return;
        };
        let record = &mut vm.record;
        let Some(server) = answer else {
            record.state = InstanceState::Gone;
            (record.error, record.retry_at, record.finished_at) = (None, None, Some(time(now)));
            return;
        };
        if let Some(host) = &server.host
            && *host == self.seen.host
        {
            // It came back between two questions. The next look tells.
            return;
        }
        record.target = server.host.as_ref().map(ToString::to_string);
        if server.status == ServerStatus::VerifyResize {
            self.to_confirm(vm, outgoing);
            return;
        }
        let ends = outgoing.is_some_and(|migration| migration.kind == MigrationKind::Live);
        // It may be on its way back as well.
        let settles = ends || movability::of(server, self.settings.block_migration) == Movability::Moving;
        if settles && (record.state.is_under_way() || outgoing.is_some()) {
            self.arrives(record);
            return;
        }
        record.state = InstanceState::Moved;
        record.retry_at = None;
        record.finished_at = Some(time(now));
        record.error = (server.status == ServerStatus::Error).then(|| {
            cut(&format!("it is in ERROR there: {}", server.fault.as_deref().unwrap_or("Nova does not say why")))
        });
    }

    /// It is over there, and its move is not at its end.
    fn arrives(&self, record: &mut EvictedInstance) {
        if self.takes_too_long(record) {
            overdue(record, OVERDUE);
        } else {
            (record.state, record.error, record.retry_at) = (InstanceState::Migrating, None, None);
        }
    }

    /// What became of this pass's steps about it.
    fn heed_outcomes(&self, vm: &mut Vm, id: &InstanceId) {
        let outcome = |step: &Step| self.seen.outcomes.get(&step.key());
        let start = Step::Start { server: id.clone(), how: MoveKind::Live, target: None };
        match outcome(&start) {
            Some(Outcome::Done) => {
                vm.record.attempts = vm.record.attempts.saturating_add(1);
                vm.record.state = InstanceState::Queued;
                vm.record.requested_at = Some(time(self.now));
                (vm.record.started_at, vm.record.finished_at, vm.record.target) = (None, None, None);
                (vm.record.aborted_at, vm.record.error) = (None, None);
            }
            Some(Outcome::Failed { category, message }) if *category != NOT_FOUND => {
                vm.record.requested_at = Some(time(self.now));
                self.refused(&mut vm.record, category, message);
            }
            _ => {}
        }
        match outcome(&Step::Confirm { server: id.clone() }) {
            Some(Outcome::Failed { category, message }) if *category != NOT_FOUND => {
                self.refused(&mut vm.record, category, message);
            }
            _ => {}
        }
        if let Want::Abort(migration) = &vm.want
            && let Some(answer) =
                outcome(&Step::Abort { server: id.clone(), migration: migration.clone(), incoming: false })
        {
            let record = &mut vm.record;
            let first = record.aborted_at.get_or_insert_with(|| time(self.now)).0;
            record.retry_at = Some(time(self.now + stop_again(elapsed(first, self.now))));
            record.error = Some(match answer {
                Outcome::Done if record.state == InstanceState::Overdue => DEAF.into(),
                Outcome::Done => self.why_stopped(),
                Outcome::Underway(why) | Outcome::Failed { message: why, .. } => {
                    cut(&format!("{}, and is not stopped: {why}", self.why_stopped()))
                }
            });
        }
    }

    /// A call about it failed. If the cloud was away that is no attempt of its own; but it is said, and others have their
    /// turn before it is asked again: one whose call fails each time must not keep the only place.
    fn refused(&self, record: &mut EvictedInstance, category: &str, error: &str) {
        record.attempts = record.attempts.saturating_add(i32::from(counts(category)));
        self.fail(record, error);
    }

    /// Why a move that is over did not happen.
    fn why_not(&self, record: &EvictedInstance, server: &Server) -> String {
        let ended = self.state.ended(&self.seen.host, &server.id);
        match ended.map(|migration| &migration.phase) {
            _ if record.aborted_at.is_some() => format!("{}, and was stopped", self.why_stopped()),
            Some(MigrationPhase::Completed) => "its move was taken back".into(),
            Some(MigrationPhase::Cancelled) => "somebody stopped its migration".into(),
            Some(MigrationPhase::Failed) => match &server.fault {
                Some(fault) => format!("its migration failed: {fault}"),
                None => "its migration failed; Nova's instance actions say why".into(),
            },
            _ => "it did not move, and Nova has no record of why: most likely no host was found".into(),
        }
    }

    fn fail(&self, record: &mut EvictedInstance, error: &str) {
        let attempts = u32::try_from(record.attempts).unwrap_or(0);
        let blocked = attempts >= self.settings.attempts;
        let pause = if blocked { self.settings.blocked_retry } else { self.settings.retry.after(attempts) };
        record.state = if blocked { InstanceState::Blocked } else { InstanceState::Failed };
        record.error = Some(cut(error));
        record.finished_at = Some(time(self.now));
        record.retry_at = Some(time(self.now + pause));
    }
}

/// A move that goes on, but not at the cost of the others: it has no place any more.
fn overdue(record: &mut EvictedInstance, why: &str) {
    (record.state, record.error, record.retry_at) = (InstanceState::Overdue, Some(why.into()), None);
}

/// Whether an instance that rests should have moved. One that was resized to this host has come, and need not; neither need
/// one that has come back from a resize that was begun before.
fn was_to_move(record: &EvictedInstance) -> bool {
    match record.state {
        _ if record.attempts == 0 => false,
        InstanceState::Queued | InstanceState::Migrating | InstanceState::Aborting => true,
        InstanceState::Overdue => record.error.as_deref() != Some(UNCLEAN),
        _ => false,
    }
}

/// The server is gone, or somebody else was faster: the next look shows it.
const NOT_FOUND: &str = "not_found";

/// Whether a failed call is an attempt: not if the cloud was away.
fn counts(category: &str) -> bool {
    !matches!(category, "unavailable" | "timeout" | NOT_FOUND)
}

/// Confirmations and stops, which need no place.
fn follow_ups<'a>(vms: impl Iterator<Item = (&'a InstanceId, &'a Vm)>) -> Vec<Step> {
    let step = |(id, vm): (&InstanceId, &Vm)| match &vm.want {
        Want::Confirm => Some(Step::Confirm { server: id.clone() }),
        Want::Abort(migration) => {
            Some(Step::Abort { server: id.clone(), migration: migration.clone(), incoming: false })
        }
        Want::Nothing | Want::Start(_) => None,
    };
    vms.filter_map(step).collect()
}

fn incoming_aborts(seen: &DrainSeen, state: &HostState, now: Timestamp) -> Vec<Step> {
    let waits = |one: &Migration| seen.stopping.get(&one.id).is_some_and(|again| *again > now);
    // Nor those of which nobody knows yet whether they go on.
    let known = state.incoming(&seen.host, now).filter(|one| state.goes_on(one, now) == Some(true));
    let abortable = known.filter(|one| can_abort(one) && !waits(one));
    let step = |one: &Migration| Step::Abort { server: one.server.clone(), migration: one.id.clone(), incoming: true };
    abortable.map(step).collect()
}

/// As many moves as there are places for. Those that were tried least often come first, so that nobody waits behind one
/// that cannot move.
fn starts(
    vms: &mut BTreeMap<InstanceId, Vm>,
    seen: &DrainSeen,
    state: &HostState,
    settings: &DrainSettings,
) -> Vec<Step> {
    let mut flight = InFlight::default();
    for vm in vms.values() {
        flight.record(&vm.record);
    }
    let (mine, limit) = (flight.all, settings.concurrency_for(&state.traits));
    // Those that take too long have lost their places, but not more of them than there are places.
    let mut free = limit.saturating_sub(mine.placed).min((2 * limit).saturating_sub(mine.placed + mine.overdue));
    flight.add(&seen.elsewhere);
    if settings.region_concurrency > 0 {
        free = free.min(flight.all.free(settings.region_concurrency));
    }
    let mut wanted: Vec<(i32, InstanceId, MoveKind)> = vms
        .iter()
        .filter_map(|(id, vm)| match &vm.want {
            Want::Start(how) => Some((vm.record.attempts, id.clone(), how.clone())),
            _ => None,
        })
        .collect();
    wanted.sort();
    let zones: BTreeMap<&InstanceId, Option<&str>> =
        state.servers.iter().map(|server| (&server.id, server.zone.as_deref())).collect();
    let mut steps = Vec::new();
    for (attempts, server, how) in wanted {
        if steps.len() >= free {
            break;
        }
        let mut target = None;
        if settings.target_concurrency > 0 {
            let Some(room) = state.room.get(&server) else {
                // Who could take it was not answered: the scheduler knows, but then the limit could not be kept.
                continue;
            };
            let tries = usize::try_from(attempts).unwrap_or(0);
            let mut open = in_its_zone(room, zones.get(&server).copied().flatten());
            open.retain(|room| flight.to(&room.host).free(settings.target_concurrency) > 0);
            open.sort_by_key(|room| {
                let Moves { placed, overdue } = flight.to(&room.host);
                (placed + overdue, Reverse(room.free.get("MEMORY_MB").copied().unwrap_or(0)), &room.host)
            });
            if open.is_empty() {
                continue;
            }
            // After a failure another one, if there is another.
            target = Some(open[tries % open.len()].host.clone());
            flight.place(target.as_ref());
        }
        steps.push(Step::Start { server, how, target });
    }
    steps
}

/// The hosts of a server's own zone, or all if none of them has room. One that was made for its zone does not go elsewhere,
/// and Nova does not say of which that is true: so even a place that is taken just now is waited for.
fn in_its_zone<'a>(room: &'a [Arc<Room>], zone: Option<&str>) -> Vec<&'a Room> {
    let all = || room.iter().map(AsRef::as_ref);
    let near: Vec<&Room> = all().filter(|room| room.zone.as_deref() == zone).collect();
    if near.is_empty() { all().collect() } else { near }
}

/// What moves in a drain after these steps, for the limits of the others.
pub(super) fn in_flight(plan: &DrainPlan) -> InFlight {
    let mut flight = InFlight::default();
    for record in plan.status.instances() {
        flight.record(record);
    }
    for step in &plan.steps {
        if let Step::Start { target, .. } = step {
            flight.place(target.as_ref());
        }
    }
    flight
}

/// Those that are kept in the status, ordered by id.
fn kept(records: impl Iterator<Item = EvictedInstance>) -> Vec<EvictedInstance> {
    let (finished, open): (Vec<_>, Vec<_>) = records.partition(|record| record.state.is_finished());
    let mut finished = finished;
    finished.sort_by(|a, b| b.finished_at.as_ref().map(|at| at.0).cmp(&a.finished_at.as_ref().map(|at| at.0)));
    finished.truncate(KEPT.saturating_sub(open.len()));
    let mut all = open;
    all.extend(finished);
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

pub(super) fn can_abort(migration: &Migration) -> bool {
    let early = matches!(migration.phase, MigrationPhase::Queued | MigrationPhase::Preparing | MigrationPhase::Running);
    migration.kind == MigrationKind::Live && early
}

fn kind(migration: &Migration) -> MoveKind {
    if migration.kind == MigrationKind::Live { MoveKind::Live } else { MoveKind::Cold }
}

/// Whole seconds, as the API server keeps them.
pub(super) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// How long ago something was; nothing, if it is to come.
pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
