//! A small cloud in which anything may happen at any time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use cobalt_core::{
    api::{EvictedInstance, Eviction, EvictionStatus, InstanceState, MoveKind, conditions, labels, testing},
    ids::HostName,
    nova::{Migration, MigrationKind, MigrationPhase, ServerStatus, TaskState},
    operator::{
        Outcome,
        eviction::{DrainPlan, DrainSeen, DrainSettings, HostSeen, HostState, InFlight, Moves, Room, Step, decide},
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::{at, migration, room, seen, server, settings};

/// A server in the small cloud.
#[derive(Clone, Debug)]
struct Guest {
    status: ServerStatus,
    host: HostName,
    /// How often it has left the host for good.
    moves: usize,
}

/// A cloud of one host that is drained, its servers and their moves, and a few hosts around it.
#[derive(Clone, Debug, Default)]
struct Model {
    guests: BTreeMap<String, Guest>,
    migrations: Vec<Migration>,
    /// Those that nothing works on any more, and that nobody closes.
    forgotten: BTreeSet<usize>,
    /// Nobody hears that a migration is to stop.
    deaf: bool,
    now: u64,
    next: usize,
}

impl Guest {
    fn is_here(&self) -> bool {
        self.host.as_str() == "hv-1"
    }
}

impl Model {
    fn boot(&mut self, running: bool, host: &str) -> String {
        self.next += 1;
        let status = if running { ServerStatus::Active } else { ServerStatus::ShutOff };
        let id = format!("vm-{:03}", self.next);
        self.guests.insert(id.clone(), Guest { status, host: host.into(), moves: 0 });
        id
    }

    /// Begins to move a server, if it is as it has to be for that.
    fn begin(&mut self, id: &str, live: bool, to: &HostName) -> bool {
        let Some(guest) = self.guests.get_mut(id) else { return false };
        if guest.status != if live { ServerStatus::Active } else { ServerStatus::ShutOff } {
            return false;
        }
        guest.status = if live { ServerStatus::Migrating } else { ServerStatus::Resize };
        let kind = if live { MigrationKind::Live } else { MigrationKind::Cold };
        let mut record = migration(self.migrations.len(), id, kind, MigrationPhase::Queued);
        (record.source, record.destination) = (guest.host.clone(), Some(to.clone()));
        (record.created_at, record.updated_at) = (Some(at(self.now)), Some(at(self.now)));
        self.migrations.push(record);
        true
    }

    fn open(&self) -> Vec<usize> {
        let open = self.migrations.iter().enumerate().filter(|(_, one)| !one.phase.is_over());
        open.map(|(index, _)| index).filter(|index| !self.forgotten.contains(index)).collect()
    }

    /// The moves away from the host that go on.
    fn leaving(&self) -> impl Iterator<Item = &Migration> {
        self.open().into_iter().map(|index| &self.migrations[index]).filter(|one| one.source.as_str() == "hv-1")
    }

    fn look(&self, eviction: &Eviction) -> HostState {
        let show = |id: &String, guest: &Guest| {
            let mut shown = server(id, guest.status.clone());
            shown.host = Some(guest.host.clone());
            if guest.status == reverting() {
                shown.task = Some(TaskState::Other("resize_reverting".into()));
            }
            shown
        };
        let here = self.guests.iter().filter(|(_, guest)| guest.is_here());
        let records = eviction.status.iter().flat_map(|status| status.instances().to_vec());
        let open = records.filter(|record| !record.state.is_finished()).map(|record| record.id);
        let old =
            |one: &Migration| one.updated_at.is_some_and(|touched| touched + Duration::from_secs(60) <= at(self.now));
        let waiting = self.migrations.iter().filter(|one| !one.phase.is_over());
        let waiting = waiting.filter(|one| old(one) || one.phase == MigrationPhase::Unconfirmed);
        let ids = open.chain(waiting.map(|one| one.server.to_string()));
        let left = ids.filter(|id| self.guests.get(id).is_none_or(|guest| !guest.is_here()));
        let rooms: Vec<Arc<Room>> = ["hv-2", "hv-3"].map(|host| room(host, 9000)).into();
        HostState {
            room: here.clone().map(|(id, _)| (id.as_str().into(), rooms.clone())).collect(),
            servers: here.map(|(id, guest)| show(id, guest)).collect(),
            migrations: self.migrations.iter().rev().cloned().collect(),
            left: left.map(|id| (id.as_str().into(), self.guests.get(&id).map(|guest| show(&id, guest)))).collect(),
            ..HostState::default()
        }
    }

    /// What Nova does when it is asked; `false` for a conflict.
    fn perform(&mut self, step: &Step) -> bool {
        match step {
            Step::Start { server, how, target } => {
                let here = self.guests.get(server.as_str()).is_some_and(Guest::is_here);
                let to = target.clone().unwrap_or_else(|| "hv-2".into());
                here && self.begin(server.as_str(), *how == MoveKind::Live, &to)
            }
            Step::Confirm { server } => {
                let Some(guest) = self.guests.get_mut(server.as_str()) else { return false };
                if guest.status != ServerStatus::VerifyResize {
                    return false;
                }
                guest.status = ServerStatus::ShutOff;
                for one in self.migrations.iter_mut().filter(|one| one.server == *server && !one.phase.is_over()) {
                    one.phase = MigrationPhase::Completed;
                }
                true
            }
            Step::Abort { migration, .. } => {
                let index: usize = migration.as_str().parse().unwrap();
                self.deaf || self.forgotten.contains(&index) || self.end(index, MigrationPhase::Cancelled)
            }
        }
    }

    /// The compute service starts again: the server rests, and the record stays as it is.
    fn forget(&mut self, index: usize) {
        let before = self.migrations[index].clone();
        if self.end(index, MigrationPhase::Failed) {
            self.migrations[index] = before;
            self.forgotten.insert(index);
        }
    }

    fn end(&mut self, index: usize, phase: MigrationPhase) -> bool {
        let one = &mut self.migrations[index];
        if !matches!(one.phase, MigrationPhase::Queued | MigrationPhase::Running) {
            return false;
        }
        one.phase = phase;
        one.updated_at = Some(at(self.now));
        if let Some(guest) = self.guests.get_mut(one.server.as_str()) {
            guest.status = if one.kind == MigrationKind::Live { ServerStatus::Active } else { ServerStatus::ShutOff };
        }
        true
    }

    /// Nova works on a migration.
    fn advance(&mut self, index: usize) {
        let now = at(self.now);
        let one = &mut self.migrations[index];
        let Some(guest) = self.guests.get_mut(one.server.as_str()) else {
            one.phase = MigrationPhase::Failed;
            return;
        };
        one.updated_at = Some(now);
        let leaves = usize::from(one.source.as_str() == "hv-1");
        one.phase = match (&one.phase, &one.kind) {
            (MigrationPhase::Queued, _) => MigrationPhase::Running,
            (MigrationPhase::Running, kind) => {
                guest.host = one.destination.clone().unwrap();
                guest.moves += leaves;
                let live = *kind == MigrationKind::Live;
                guest.status = if live { ServerStatus::Active } else { ServerStatus::VerifyResize };
                if live { MigrationPhase::Completed } else { MigrationPhase::Unconfirmed }
            }
            (MigrationPhase::Finishing, _) => {
                (guest.host, guest.status) = (one.source.clone(), ServerStatus::ShutOff);
                guest.moves -= leaves;
                MigrationPhase::Completed
            }
            (phase, _) => phase.clone(),
        };
    }

    /// The owner of a server that has moved while it was shut off takes that back.
    fn revert(&mut self, index: usize) {
        let one = &mut self.migrations[index];
        if one.phase == MigrationPhase::Unconfirmed
            && let Some(guest) = self.guests.get_mut(one.server.as_str())
        {
            (one.phase, one.updated_at, guest.status) = (MigrationPhase::Finishing, Some(at(self.now)), reverting());
        }
    }
}

fn reverting() -> ServerStatus {
    ServerStatus::Other("REVERT_RESIZE".into())
}

/// What may happen between two passes, or to one.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Boot(bool),
    Delete(usize),
    Break(usize),
    Advance(usize),
    Fail(usize),
    Forget(usize),
    Deaf(bool),
    Wait(u64),
    /// A pass that dies after so many of its steps, before it writes anything down.
    Crash(usize),
    Pass,
    CloudAway,
    /// A server is moved to the host.
    Come(bool),
    /// A server is moved away from the host, by somebody else.
    Go(usize),
    Revert(usize),
    /// Somebody deletes the Eviction; when it has gone there is another one.
    CallOff,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        2 => any::<bool>().prop_map(Happening::Boot),
        1 => any::<usize>().prop_map(Happening::Delete),
        1 => any::<usize>().prop_map(Happening::Break),
        6 => any::<usize>().prop_map(Happening::Advance),
        2 => any::<usize>().prop_map(Happening::Fail),
        2 => any::<usize>().prop_map(Happening::Forget),
        1 => any::<bool>().prop_map(Happening::Deaf),
        3 => (1_u64..4000).prop_map(Happening::Wait),
        3 => (0_usize..4).prop_map(Happening::Crash),
        8 => Just(Happening::Pass),
        1 => Just(Happening::CloudAway),
    ]
}

/// The same, and others have a hand in it.
fn happening_among_others() -> impl Strategy<Value = Happening> {
    prop_oneof![
        20 => happening(),
        2 => any::<bool>().prop_map(Happening::Come),
        2 => any::<usize>().prop_map(Happening::Go),
        2 => any::<usize>().prop_map(Happening::Revert),
        1 => Just(Happening::CallOff),
    ]
}

/// A drain in the small cloud.
struct Drain {
    model: Model,
    eviction: Eviction,
    empty_since: Option<Timestamp>,
    elsewhere: InFlight,
    settings: DrainSettings,
}

impl Drain {
    fn new(settings: DrainSettings, guests: Vec<bool>) -> Self {
        let mut model = Model::default();
        for running in guests {
            model.boot(running, "hv-1");
        }
        let eviction = testing::eviction("hv-1").running().build();
        Self { model, eviction, empty_since: None, elsewhere: InFlight::default(), settings }
    }

    fn is_over(&self) -> bool {
        conditions::is_false(self.eviction.conditions(), "Evicting")
    }

    fn seen(&self) -> DrainSeen {
        let mut seen = seen(self.eviction.clone(), self.model.look(&self.eviction));
        (seen.empty_since, seen.elsewhere) = (self.empty_since, self.elsewhere.clone());
        seen
    }

    /// One pass over the model. With `dies_after`, it ends after so many steps and nothing is written.
    fn pass(&mut self, dies_after: Option<usize>) {
        let now = at(self.model.now);
        let mut seen = self.seen();
        let mut plan = decide(&seen, &self.settings, now);
        self.empty_since = plan.empty.then(|| self.empty_since.unwrap_or(now));
        if plan.hold && !seen.is_held() {
            self.eviction.metadata.finalizers = Some(vec![labels::EVICTION_FINALIZER.into()]);
            seen.eviction = Arc::new(self.eviction.clone());
        }
        for (number, step) in plan.steps.clone().into_iter().enumerate() {
            if dies_after == Some(number) {
                self.empty_since = None;
                return;
            }
            self.check(&seen, &step);
            let done = self.model.perform(&step);
            let conflict = Outcome::Failed { category: "conflict", message: "conflict".into() };
            seen.outcomes.insert(step.key(), if done { Outcome::Done } else { conflict });
        }
        self.check_limits(&plan);
        if dies_after.is_some() {
            self.empty_since = None;
            return;
        }
        if !seen.outcomes.is_empty() {
            plan = decide(&seen, &self.settings, now);
            assert!(plan.steps.is_empty(), "steps are decided once per pass");
        }
        self.check_words(&plan);
        self.eviction.status = Some(plan.status);
        if !plan.hold {
            self.eviction.metadata.finalizers = None;
            if seen.is_leaving() {
                self.eviction = testing::eviction("hv-1").running().build();
            }
        }
    }

    fn check(&self, seen: &DrainSeen, step: &Step) {
        let called_off = seen.eviction.metadata.deletion_timestamp.as_ref().map(|at| at.0);
        match step {
            Step::Start { server, .. } => {
                let moves = self.model.open().into_iter().any(|index| self.model.migrations[index].server == *server);
                assert!(!moves, "{server} moves already");
                assert_eq!(called_off, None, "nothing begins any more");
            }
            Step::Abort { server, migration, incoming: false } if called_off.is_some() => {
                let records = seen.eviction.status.iter().flat_map(EvictionStatus::instances);
                let mut under_way = records.filter(|one| one.state.is_under_way());
                let index: usize = migration.as_str().parse().unwrap();
                assert!(
                    under_way.any(|one| one.id == server.as_str())
                        || self.model.migrations[index].created_at <= called_off,
                    "others' moves are not stopped"
                );
            }
            _ => {}
        }
    }

    /// After a start: who has lost its place may go on beside whoever took it, and has it again when it does.
    fn check_limits(&self, plan: &DrainPlan) {
        let late = |test: &dyn Fn(&EvictedInstance) -> bool| {
            plan.status.instances().iter().filter(|one| one.state == InstanceState::Overdue && test(one)).count()
        };
        for step in &plan.steps {
            let Step::Start { target, .. } = step else { continue };
            let (moves, places) = (self.model.leaving().count(), self.settings.concurrency);
            let late_ones = late(&|_| true);
            assert!(moves <= places + late_ones.min(places), "more in flight than allowed");
            if self.settings.region_concurrency > 0 {
                let most = self.settings.region_concurrency.max(late_ones + 1);
                assert!(moves + self.elsewhere.all.placed <= most, "more in the region than allowed");
            }
            if let Some(target) = target {
                let to = self.model.leaving().filter(|one| one.destination.as_ref() == Some(target)).count();
                let late = late(&|one| one.target.as_deref() == Some(target.as_str()));
                assert!(to <= self.settings.target_concurrency.max(late + 1), "more to {target} than allowed");
            }
        }
    }

    fn check_words(&self, plan: &DrainPlan) {
        let evicting = conditions::find(&plan.status.conditions, "Evicting").unwrap();
        if evicting.is_false() {
            assert!(self.model.guests.values().all(|guest| !guest.is_here()), "evicted, and not empty");
            assert!(self.model.open().is_empty(), "evicted, and something moves");
        }
        for record in plan.status.instances() {
            if matches!(record.state, InstanceState::Blocked | InstanceState::Failed) {
                assert!(record.error.is_some(), "{record:?}");
            }
        }
        let ends = self.eviction.metadata.deletion_timestamp.is_some() && !plan.hold;
        assert!(plan.again.is_some() || evicting.is_false() || ends, "nobody would look again");
    }

    fn happens(&mut self, one: Happening) {
        let model = &mut self.model;
        let open = model.open();
        let moving = |which: usize| (!open.is_empty()).then(|| open[which % open.len()]);
        let id = |model: &Model, which: usize| {
            (!model.guests.is_empty()).then(|| model.guests.keys().nth(which % model.guests.len()).unwrap().clone())
        };
        match one {
            Happening::Delete(which) => {
                let Some(id) = id(model, which) else { return };
                model.guests.remove(&id);
                // With a server go its moves.
                for one in model.migrations.iter_mut().filter(|one| one.server.as_str() == id && !one.phase.is_over()) {
                    one.phase = MigrationPhase::Failed;
                }
            }
            Happening::Break(which) => {
                let Some(guest) = id(model, which).and_then(|id| model.guests.get_mut(&id)) else { return };
                if guest.status == ServerStatus::Active {
                    guest.status = ServerStatus::Suspended;
                }
            }
            Happening::Advance(which) => moving(which).into_iter().for_each(|index| model.advance(index)),
            Happening::Fail(which) => {
                moving(which).map(|index| model.end(index, MigrationPhase::Failed));
            }
            Happening::Forget(which) => moving(which).into_iter().for_each(|index| model.forget(index)),
            Happening::Revert(which) => moving(which).into_iter().for_each(|index| model.revert(index)),
            Happening::Deaf(deaf) => model.deaf = deaf,
            Happening::Wait(seconds) => model.now += seconds,
            Happening::Crash(after) => self.pass(Some(after)),
            Happening::Pass => self.pass(None),
            Happening::CloudAway => {
                let mut seen = self.seen();
                seen.cloud = HostSeen::Unknown("it does not answer".into());
                let plan = decide(&seen, &self.settings, at(self.model.now));
                assert!(plan.steps.is_empty());
                let before = self.eviction.status.clone().unwrap_or_default().instances;
                assert_eq!(plan.status.instances, before, "nothing is forgotten");
            }
            Happening::CallOff => {
                let now = Time(at(model.now));
                self.eviction.metadata.deletion_timestamp.get_or_insert(now);
            }
            // After the end nobody looks, unless libvirt tells; the host is disabled, so nothing comes.
            Happening::Boot(_) | Happening::Come(_) | Happening::Go(_) if self.is_over() => {}
            Happening::Boot(running) => {
                self.model.boot(running, "hv-1");
                self.empty_since = None;
            }
            Happening::Come(running) => {
                let id = self.model.boot(running, "hv-9");
                self.model.begin(&id, running, &"hv-1".into());
                self.empty_since = None;
            }
            Happening::Go(which) => {
                let Some(id) = id(&self.model, which) else { return };
                let guest = &self.model.guests[&id];
                if guest.is_here() {
                    let live = guest.status == ServerStatus::Active;
                    self.model.begin(&id, live, &"hv-3".into());
                }
            }
        }
    }

    /// Everything that can move does, and what cannot is named.
    fn peace(mut self) {
        self.elsewhere = InFlight::default();
        for _ in 0..400 {
            self.model.now += 700;
            self.pass(None);
            for index in self.model.open() {
                self.model.advance(index);
            }
        }
        for (id, guest) in &self.model.guests {
            assert!(guest.moves <= 1, "{id} has moved {} times", guest.moves);
            let records = self.eviction.status.iter().flat_map(EvictionStatus::instances);
            let record = records.into_iter().find(|one| one.id == *id).cloned();
            if guest.status == ServerStatus::Suspended && guest.is_here() {
                assert_eq!(record.map(|one| one.state), Some(InstanceState::Blocked));
            } else {
                assert!(!guest.is_here(), "{id} is {:?}: {record:?}", guest.status);
            }
        }
        let stuck = self.model.guests.values().any(Guest::is_here);
        let evicting = conditions::find(self.eviction.conditions(), "Evicting").unwrap();
        let wanted = (!stuck, if stuck { "Blocked" } else { "Succeeded" });
        assert_eq!((evicting.is_false(), evicting.reason.as_str()), wanted);
        assert!(self.model.open().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_moves_twice_and_nothing_is_forgotten(
        concurrency in 1_usize..5,
        guests in prop::collection::vec(any::<bool>(), 0..8),
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let mut drain = Drain::new(settings(concurrency), guests);
        for one in happenings {
            drain.happens(one);
        }
        drain.peace();
    }

    #[test]
    fn whatever_happens_among_others_no_limit_is_passed_and_nothing_of_theirs_is_stopped(
        concurrency in 1_usize..5,
        limits in (0_usize..3, 0_usize..5),
        elsewhere in 0_usize..3,
        guests in prop::collection::vec(any::<bool>(), 0..8),
        happenings in prop::collection::vec(happening_among_others(), 0..60),
    ) {
        let mut drain = Drain::new(settings(concurrency), guests);
        (drain.settings.target_concurrency, drain.settings.region_concurrency) = limits;
        drain.elsewhere.all = Moves { placed: elsewhere, overdue: 0 };
        for one in happenings {
            drain.happens(one);
        }
        drain.peace();
    }
}
