//! One consistent world: hosts, the VMs on them, the cloud above them and the switches between them.
//!
//! All of it is one [`State`] behind one lock. The seams ([`crate::seams`], [`crate::nova`]) are views of it, so
//! that they cannot disagree by accident: where two of them disagree (Nova still believes in a VM whose host has
//! lost its power), the world models that disagreement on purpose.

mod check;
mod host;
mod log;
mod switch;
pub(crate) mod time;
mod vm;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cobalt_core::ids::{HostName, InstanceId};
use jiff::Timestamp;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{sync::watch, time::Instant};
use uuid::{Builder, Uuid};

pub use check::Violation;
pub use host::{Driver, HostStatus};
pub(crate) use host::{Host, Os, Vitals};
pub use log::Note;
pub(crate) use switch::Switch;
pub use switch::{DaemonState, Orphan, SwitchFault};
pub use time::Timing;
pub use vm::VmSpec;
pub(crate) use vm::{Domain, DomainJob};

use crate::{
    error::{Result, SimError},
    nova::Nova,
};
use log::Log;
use time::{Agenda, Clock, Due, Wake};

/// A host's number in this world. Hosts are never removed from the list, so a number stays valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostId(u32);

impl HostId {
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Instant,
    pub(crate) timing: Timing,
    /// Readers further behind than this lose events.
    pub(crate) event_capacity: usize,
    pub(crate) hosts: Vec<Host>,
    pub(crate) nova: Nova,
    /// Counts changes in how hosts are.
    pub(crate) changes: watch::Sender<u64>,
    names: BTreeMap<HostName, HostId>,
    clock: Clock,
    rng: StdRng,
    agenda: Agenda,
    log: Log,
}

/// The shared world, in the only form in which others hold it.
#[derive(Debug)]
pub(crate) struct Inner {
    state: Mutex<State>,
    wake: Arc<Wake>,
}

/// A handle to the world, for those who make things happen in it. Clones are handles to the same world.
///
/// Every action takes effect at once, in full, before it returns; what takes time in reality is planned and happens
/// when its time has come.
#[derive(Debug, Clone)]
pub struct World {
    inner: Arc<Inner>,
}

impl World {
    pub(crate) fn new(seed: u64, start: Timestamp, timing: &Timing, event_capacity: usize) -> Self {
        let state = State {
            now: Instant::now(),
            timing: *timing,
            event_capacity,
            hosts: Vec::new(),
            nova: Nova::default(),
            changes: watch::Sender::new(0),
            names: BTreeMap::new(),
            clock: Clock::starting_at(start),
            rng: StdRng::seed_from_u64(seed),
            agenda: Agenda::default(),
            log: Log::default(),
        };
        let wake = Arc::new(Wake::default());
        let inner = Arc::new(Inner { state: Mutex::new(state), wake: wake.clone() });
        tokio::spawn(time::drive(Arc::downgrade(&inner), wake));
        Self { inner }
    }

    /// Looks at the world, or changes it, after everything that is due has happened.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.inner.with(act)
    }

    /// The world's own time.
    pub fn now(&self) -> Timestamp {
        self.with(|state| state.timestamp())
    }

    /// The names of all hosts, in order.
    pub fn hosts(&self) -> Vec<HostName> {
        self.with(|state| state.names.keys().cloned().collect())
    }

    /// What would be seen by standing in front of the host.
    pub fn host(&self, host: &HostName) -> Result<HostStatus> {
        self.with(|state| state.find("look at host", host).map(|id| state.host(id).status()))
    }

    /// Where a VM's CPUs or memory are right now, seen from above: more than one host is a split brain.
    pub fn whereabouts(&self, vm: &InstanceId) -> Vec<HostName> {
        let Some(vm) = parse(vm) else { return Vec::new() };
        self.with(|state| {
            let runs = |host: &&Host| host.domains.get(&vm).is_some_and(|domain| domain.state.is_active());
            state.hosts.iter().filter(runs).map(|host| host.name.clone()).collect()
        })
    }

    /// Every broken law of the world; empty in a healthy one.
    pub fn check(&self) -> Vec<Violation> {
        self.with(|state| state.check())
    }

    /// The latest things that happened, oldest first.
    pub fn log(&self) -> Vec<Note> {
        self.with(|state| state.log.all())
    }

    /// What happens from now on, in plain sentences. A slow reader misses the oldest.
    pub fn follow(&self) -> futures::stream::BoxStream<'static, Note> {
        self.with(|state| state.log.follow())
    }

    /// How many things are planned; at rest, with nothing under way, none.
    pub fn planned(&self) -> usize {
        self.with(|state| state.agenda.len())
    }
}

impl Inner {
    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.catch_up(Instant::now());
        let before = state.agenda.next_at();
        let result = act(&mut state);
        let after = state.agenda.next_at();
        drop(state);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.wake.sooner.notify_one();
        }
        result
    }

    /// Lets everything happen that is due, and tells when the next thing is.
    pub(crate) fn catch_up(&self) -> Option<Instant> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.catch_up(Instant::now());
        state.agenda.next_at()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wake.over.cancel();
    }
}

/// A VM's id as the world keeps it; a text that is no UUID names no VM.
pub(crate) fn parse(id: &InstanceId) -> Option<Uuid> {
    Uuid::try_parse(id.as_str()).ok()
}

/// A VM's id as the seams speak of it.
pub(crate) fn instance(id: Uuid) -> InstanceId {
    InstanceId::new(id.to_string())
}

impl State {
    fn catch_up(&mut self, now: Instant) {
        while let Some((at, due)) = self.agenda.pop(now) {
            self.now = at;
            self.happen(due);
        }
        self.now = now;
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::PowerOff(host, epoch) => self.power_off_due(host, epoch),
            Due::OsUp(host, epoch) => self.os_up(host, epoch),
            Due::ComputeUp(host, epoch) => self.compute_up(host, epoch),
            Due::DaemonUp(host, epoch) => self.daemon_up(host, epoch),
            Due::ComputePeriodic(host, epoch) => self.compute_periodic(host, epoch),
            Due::ShutdownNow(host, epoch) => self.shutdown_due(host, epoch),
            Due::UnitDone(host, epoch, unit) => self.unit_done(host, epoch, &unit),
            Due::ServerBuilt(server) => self.server_built(server),
            Due::ServerDeleted(server) => self.server_deleted(server),
            Due::Migration(id, step) => self.migration_step(id, step),
            Due::Iteration(id, step) => self.migration_iteration(id, step),
            Due::DirectMigration(host, vm, epoch) => self.direct_migration_done(host, vm, epoch),
        }
    }

    pub(crate) fn plan(&mut self, after: Duration, due: Due) {
        self.agenda.add(self.now + after, due);
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        self.clock.at(self.now)
    }

    pub(crate) fn timestamp_of(&self, moment: Instant) -> Timestamp {
        self.clock.at(moment)
    }

    /// Writes a sentence into the world's log.
    pub(crate) fn note(&mut self, text: String) {
        let at = self.timestamp();
        self.log.add(Note { at, text });
    }

    /// A UUID that only the seed and the order of events decide.
    pub(crate) fn random_uuid(&mut self) -> Uuid {
        Builder::from_random_bytes(self.rng.random()).into_uuid()
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn random_below(&mut self, bound: usize) -> usize {
        self.rng.random_range(0..bound)
    }

    pub(crate) fn add_host(&mut self, host: Host) -> HostId {
        let id = HostId(u32::try_from(self.hosts.len()).unwrap_or(u32::MAX));
        self.names.insert(host.name.clone(), id);
        self.hosts.push(host);
        id
    }

    pub(crate) fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0 as usize]
    }

    pub(crate) fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0 as usize]
    }

    pub(crate) fn host_id(&self, name: &HostName) -> Option<HostId> {
        self.names.get(name).copied()
    }

    pub(crate) fn host_ids(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..u32::try_from(self.hosts.len()).unwrap_or(u32::MAX)).map(HostId)
    }

    fn find(&self, operation: &str, name: &HostName) -> Result<HostId> {
        self.host_id(name).ok_or_else(|| SimError::UnknownHost { operation: operation.to_owned(), host: name.clone() })
    }
}
