//! A small cloud in which anything may happen at any time.

use std::collections::{BTreeMap, BTreeSet};

use cobalt_core::{
    api::{EvictedInstance, Eviction, EvictionStatus, InstanceState, MoveKind, conditions, testing},
    nova::{Migration, MigrationKind, MigrationPhase, ServerStatus},
    operator::{
        Outcome,
        eviction::{DrainSettings, HostSeen, HostState, Step, decide},
    },
};
use jiff::Timestamp;
use proptest::prelude::*;

use super::{at, migration, seen, server, settings};

/// A server in the small cloud.
#[derive(Clone, Debug)]
struct Guest {
    status: ServerStatus,
    host: &'static str,
    moves: usize,
}

/// A cloud of one host, its servers and their moves.
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

impl Model {
    fn boot(&mut self, status: ServerStatus) {
        self.next += 1;
        self.guests.insert(format!("vm-{:03}", self.next), Guest { status, host: "hv-1", moves: 0 });
    }

    fn open(&self) -> Vec<usize> {
        let open = self.migrations.iter().enumerate().filter(|(_, one)| !one.phase.is_over());
        open.map(|(index, _)| index).filter(|index| !self.forgotten.contains(index)).collect()
    }

    fn look(&self, eviction: &Eviction) -> HostState {
        let show = |id: &String, guest: &Guest| {
            let mut shown = server(id, guest.status.clone());
            shown.host = Some(guest.host.into());
            shown
        };
        let here = self.guests.iter().filter(|(_, guest)| guest.host == "hv-1");
        let records = eviction.status.iter().flat_map(|status| status.instances().to_vec());
        let open = records.filter(|record| !record.state.is_finished()).map(|record| record.id);
        let waiting = self.migrations.iter().filter(|one| one.phase == MigrationPhase::Unconfirmed);
        let ids = open.chain(waiting.map(|one| one.server.to_string()));
        let left = ids.filter(|id| self.guests.get(id).is_none_or(|guest| guest.host != "hv-1"));
        HostState {
            servers: here.map(|(id, guest)| show(id, guest)).collect(),
            migrations: self.migrations.iter().rev().cloned().collect(),
            left: left.map(|id| (id.as_str().into(), self.guests.get(&id).map(|guest| show(&id, guest)))).collect(),
            ..HostState::default()
        }
    }

    /// What Nova does when it is asked; `false` for a conflict.
    fn perform(&mut self, step: &Step) -> bool {
        let now = at(self.now);
        match step {
            Step::Start { server, how, .. } => {
                let Some(guest) = self.guests.get_mut(server.as_str()) else { return false };
                let live = *how == MoveKind::Live;
                let wanted = if live { ServerStatus::Active } else { ServerStatus::ShutOff };
                if guest.status != wanted || guest.host != "hv-1" {
                    return false;
                }
                guest.status = if live { ServerStatus::Migrating } else { ServerStatus::Resize };
                let kind = if live { MigrationKind::Live } else { MigrationKind::Cold };
                let mut record = migration(self.migrations.len(), server.as_str(), kind, MigrationPhase::Queued);
                (record.created_at, record.updated_at) = (Some(now), Some(now));
                self.migrations.push(record);
                true
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
        if one.phase.is_over() || one.phase == MigrationPhase::Unconfirmed {
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
        one.phase = match (&one.phase, &one.kind) {
            (MigrationPhase::Queued, _) => MigrationPhase::Running,
            (MigrationPhase::Running, MigrationKind::Live) => {
                (guest.host, guest.status) = ("hv-2", ServerStatus::Active);
                guest.moves += 1;
                MigrationPhase::Completed
            }
            (MigrationPhase::Running, _) => {
                (guest.host, guest.status) = ("hv-2", ServerStatus::VerifyResize);
                guest.moves += 1;
                MigrationPhase::Unconfirmed
            }
            (phase, _) => phase.clone(),
        };
    }
}

/// What may happen between two passes, or to one.
#[derive(Clone, Debug)]
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

/// One pass over the model. With `dies_after`, it ends after so many steps and nothing is written.
fn pass(
    model: &mut Model,
    eviction: &mut Eviction,
    empty_since: &mut Option<Timestamp>,
    settings: &DrainSettings,
    dies_after: Option<usize>,
) {
    let now = at(model.now);
    let mut seen = seen(eviction.clone(), model.look(eviction));
    seen.empty_since = *empty_since;
    let mut plan = decide(&seen, settings, now);
    *empty_since = plan.empty.then(|| empty_since.unwrap_or(now));
    for (number, step) in plan.steps.clone().into_iter().enumerate() {
        if dies_after == Some(number) {
            *empty_since = None;
            return;
        }
        if let Step::Start { server, .. } = &step {
            let moves = model.open().into_iter().any(|index| model.migrations[index].server == *server);
            assert!(!moves, "{server} moves already");
        }
        let done = model.perform(&step);
        let conflict = Outcome::Failed { category: "conflict", message: "conflict".into() };
        seen.outcomes.insert(step.key(), if done { Outcome::Done } else { conflict });
    }
    // Who has lost its place may go on beside whoever took it, and has it again when it does: then nobody begins.
    let count = |test: fn(&EvictedInstance) -> bool| plan.status.instances().iter().filter(|one| test(one)).count();
    let late = count(|one| one.state == InstanceState::Overdue).min(settings.concurrency);
    if plan.steps.iter().any(|step| matches!(step, Step::Start { .. })) {
        assert!(model.open().len() <= settings.concurrency + late, "more in flight than allowed");
    }
    if dies_after.is_some() {
        *empty_since = None;
        return;
    }
    if !seen.outcomes.is_empty() {
        plan = decide(&seen, settings, now);
        assert!(plan.steps.is_empty(), "steps are decided once per pass");
    }
    let evicting = conditions::find(&plan.status.conditions, "Evicting").unwrap();
    if evicting.is_false() {
        assert!(model.guests.values().all(|guest| guest.host != "hv-1"), "evicted, and not empty");
        assert!(model.open().is_empty(), "evicted, and something moves");
    }
    for record in plan.status.instances() {
        if matches!(record.state, InstanceState::Blocked | InstanceState::Failed) {
            assert!(record.error.is_some(), "{record:?}");
        }
    }
    assert!(plan.again.is_some() || evicting.is_false(), "nobody would look again");
    eviction.status = Some(plan.status);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_moves_twice_and_nothing_is_forgotten(
        concurrency in 1_usize..5,
        guests in prop::collection::vec(any::<bool>(), 0..8),
        happenings in prop::collection::vec(happening(), 0..60),
    ) {
        let settings = settings(concurrency);
        let mut model = Model::default();
        for running in guests {
            model.boot(if running { ServerStatus::Active } else { ServerStatus::ShutOff });
        }
        let mut eviction = testing::eviction("hv-1").running().build();
        let mut empty_since = None;
        for one in happenings {
            let over = conditions::is_false(eviction.conditions(), "Evicting");
            match one {
                // After the end nobody looks, unless libvirt tells; the host is disabled, so nothing comes.
                Happening::Boot(running) if !over => {
                    model.boot(if running { ServerStatus::Active } else { ServerStatus::ShutOff });
                    empty_since = None;
                }
                Happening::Delete(which) if !model.guests.is_empty() => {
                    let id = model.guests.keys().nth(which % model.guests.len()).unwrap().clone();
                    model.guests.remove(&id);
                    // With a server go its moves.
                    for one in model.migrations.iter_mut().filter(|one| one.server.as_str() == id && !one.phase.is_over()) {
                        one.phase = MigrationPhase::Failed;
                    }
                }
                Happening::Break(which) if !model.guests.is_empty() => {
                    let id = model.guests.keys().nth(which % model.guests.len()).unwrap().clone();
                    let guest = model.guests.get_mut(&id).unwrap();
                    if guest.status == ServerStatus::Active {
                        guest.status = ServerStatus::Suspended;
                    }
                }
                Happening::Advance(which) => {
                    let open = model.open();
                    if !open.is_empty() {
                        model.advance(open[which % open.len()]);
                    }
                }
                Happening::Fail(which) => {
                    let open = model.open();
                    if !open.is_empty() {
                        model.end(open[which % open.len()], MigrationPhase::Failed);
                    }
                }
                Happening::Forget(which) => {
                    let open = model.open();
                    if !open.is_empty() {
                        model.forget(open[which % open.len()]);
                    }
                }
                Happening::Deaf(deaf) => model.deaf = deaf,
                Happening::Wait(seconds) => model.now += seconds,
                Happening::Crash(after) => {
                    pass(&mut model, &mut eviction, &mut empty_since, &settings, Some(after));
                }
                Happening::Pass => pass(&mut model, &mut eviction, &mut empty_since, &settings, None),
                Happening::CloudAway => {
                    let mut seen = seen(eviction.clone(), HostState::default());
                    seen.cloud = HostSeen::Unknown("it does not answer".into());
                    let plan = decide(&seen, &settings, at(model.now));
                    prop_assert!(plan.steps.is_empty());
                    prop_assert_eq!(
                        plan.status.instances, eviction.status.clone().unwrap_or_default().instances,
                        "nothing is forgotten"
                    );
                }
                _ => {}
            }
        }
        // Peace: everything that can move does, and what cannot is named.
        for _ in 0..400 {
            model.now += 700;
            pass(&mut model, &mut eviction, &mut empty_since, &settings, None);
            for index in model.open() {
                model.advance(index);
            }
        }
        for (id, guest) in &model.guests {
            prop_assert!(guest.moves <= 1, "{} has moved {} times", id, guest.moves);
            let record = eviction.status.iter().flat_map(EvictionStatus::instances).find(|one| one.id == *id).cloned();
            match (&guest.status, guest.host) {
                (ServerStatus::Suspended, "hv-1") => {
                    prop_assert_eq!(record.map(|one| one.state), Some(InstanceState::Blocked));
                }
                (status, host) => prop_assert_eq!(host, "hv-2", "{} is {:?}: {:?}", id, status, record),
            }
        }
        let stuck = model.guests.values().any(|guest| guest.host == "hv-1");
        let evicting = conditions::find(eviction.conditions(), "Evicting").unwrap();
        prop_assert_eq!((evicting.is_false(), evicting.reason.as_str()), (!stuck, if stuck { "Blocked" } else { "Succeeded" }));
        prop_assert!(model.open().is_empty());
    }
}
