//! What a decision about a drain is made of.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::movability::{self, Movability};
use crate::{
    api::{
        Condition, ConditionStatus, EvictedInstance, Eviction, Hypervisor, InstanceState, condition_types, conditions,
        labels,
    },
    ids::{HostName, InstanceId, MigrationId, ProviderId},
    nova::{BlockMigration, ComputeService, Migration, MigrationPhase, Resources, Server, ServerStatus, ServiceState},
    operator::{AgentSeen, Outcome},
};

/// A record as young as this is believed alone: the server may have been read before the move began. An older one is
/// believed if the server says so too, however old it is: Nova does not touch the record of a move that is queued, nor that
/// of one that copies a large disk. A compute service that starts again takes the mark off the servers it finds moving,
/// and leaves their records open.
const YOUNG: Duration = Duration::from_secs(60);

/// Everything a [`decide`](super::decide) may base its decision on.
#[derive(Clone, Debug)]
pub struct DrainSeen {
    /// The Eviction.
    pub eviction: Arc<Eviction>,
    /// The Hypervisor it is about.
    pub hypervisor: Arc<Hypervisor>,
    /// Whether its agent gives signs of life.
    pub agent: AgentSeen,
    /// Its name in Nova, in whole.
    pub host: HostName,
    /// The host as the cloud has just told it.
    pub cloud: HostSeen,
    /// Another Eviction of the same host, which is older and works: this one only looks.
    pub stands_back_for: Option<String>,
    /// What moves in other drains.
    pub elsewhere: InFlight,
    /// Since when each look has found the host empty.
    pub empty_since: Option<Timestamp>,
    /// The migrations to the host that were asked to stop, and not before when they may be asked again.
    pub stopping: BTreeMap<MigrationId, Timestamp>,
    /// What became of the steps of this pass, by [key](super::Step::key). With any of them, no new one is decided.
    pub outcomes: BTreeMap<String, Outcome>,
}

/// What the cloud says of a host.
#[derive(Clone, Debug)]
pub enum HostSeen {
    /// It was not asked, because nothing depends on it.
    NotAsked,
    /// It does not answer; this is why.
    Unknown(String),
    /// Nova has no such hypervisor, in its own words.
    Absent(String),
    /// This.
    Known(Box<HostState>),
}

/// A host, and what is on it or on its way.
#[derive(Clone, Debug, Default)]
pub struct HostState {
    /// The hypervisor's UUID.
    pub id: Option<ProviderId>,
    /// Its compute service.
    pub service: Option<ComputeService>,
    /// The servers whose host it is.
    pub servers: Vec<Server>,
    /// Migrations from it and to it, newest first; read after the servers.
    pub migrations: Vec<Migration>,
    /// Servers that were looked for one by one because they are not in the list: they have left it, or a record says that
    /// they are on their way. `None` if they do not exist any more.
    pub left: BTreeMap<InstanceId, Option<Server>>,
    /// Who could take a server, by what it takes. A server that is not here was not asked for. Servers that take the same
    /// share what is known: in a large region it is many hosts for each of many servers.
    pub room: BTreeMap<InstanceId, Vec<Arc<Room>>>,
    /// Why a server has no room, in words, for those that have none.
    pub no_room: BTreeMap<InstanceId, String>,
    /// Why Placement did not say who has room for a server, for those of which it did not.
    pub room_unknown: BTreeMap<InstanceId, String>,
    /// Why a server finds no room once the others have gone where they would go, for those that have some now.
    pub short: BTreeMap<InstanceId, String>,
    /// The traits of its provider.
    pub traits: BTreeSet<String>,
}

/// A host that could take a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The host.
    pub host: HostName,
    /// Its availability zone.
    pub zone: Option<String>,
    /// What it has left.
    pub free: Resources,
}

/// What moves at one moment, in several drains together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// All moves.
    pub all: Moves,
    /// The moves whose target is known, by target.
    pub to: BTreeMap<HostName, Moves>,
}

/// Moves, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Those that have a place.
    pub placed: usize,
    /// Those that take too long.
    pub overdue: usize,
}

impl Moves {
    /// How many more may begin. Each that goes on counts, also one that takes too long. But where such ones have filled
    /// the limit, a single other goes on beside them: one that never ends must not be the end of all the others.
    ///
    /// ```
    /// use cobalt_core::operator::eviction::Moves;
    ///
    /// assert_eq!(Moves { placed: 1, overdue: 1 }.free(3), 1);
    /// assert_eq!(Moves { placed: 1, overdue: 2 }.free(3), 0);
    /// assert_eq!(Moves { placed: 0, overdue: 3 }.free(3), 1);
    /// assert_eq!(Moves { placed: 0, overdue: 4 }.free(3), 0);
    /// ```
    pub fn free(self, limit: usize) -> usize {
        let beside = usize::from(self.placed == 0 && self.overdue == limit);
        limit.saturating_sub(self.placed + self.overdue) + beside
    }

    fn add(&mut self, more: Self) {
        self.placed += more.placed;
        self.overdue += more.overdue;
    }
}

impl InFlight {
    /// What moves to a host.
    pub fn to(&self, host: &HostName) -> Moves {
        self.to.get(host).copied().unwrap_or_default()
    }

    /// Counts a move that has a place.
    pub(super) fn place(&mut self, target: Option<&HostName>) {
        self.count(target, Moves { placed: 1, overdue: 0 });
    }

    /// Counts what an instance says of its move, if it has one.
    pub(super) fn record(&mut self, record: &EvictedInstance) {
        if record.state.is_under_way() {
            let overdue = usize::from(record.state == InstanceState::Overdue);
            let target = record.target.as_deref().map(HostName::from);
            self.count(target.as_ref(), Moves { placed: 1 - overdue, overdue });
        }
    }

    fn count(&mut self, target: Option<&HostName>, moves: Moves) {
        self.all.add(moves);
        if let Some(target) = target {
            self.to.entry(target.clone()).or_default().add(moves);
        }
    }

    /// Counts what moves elsewhere too.
    pub(super) fn add(&mut self, other: &Self) {
        self.all.add(other.all);
        for (host, moves) in &other.to {
            self.to.entry(host.clone()).or_default().add(*moves);
        }
    }
}

/// What libvirt says of the number of instances, through the host's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibvirtWord {
    /// None.
    Empty,
    /// So many.
    Has(i32),
    /// The agent cannot reach it.
    Unreachable,
    /// The agent has stopped to give signs of life: what it said last may be old.
    AgentSilent,
    /// Whether the agent lives is not known yet.
    NotYet,
    /// No agent has ever said anything about it.
    NoAgent,
}

impl DrainSeen {
    /// The conditions as they were written.
    pub fn conditions(&self) -> &[Condition] {
        self.eviction.conditions()
    }

    /// Whether Nova should know the host: both its ids were recorded.
    pub fn is_expected(&self) -> bool {
        is_expected(&self.hypervisor)
    }

    /// What libvirt says. A number that nobody has ever counted is the default of the CRD, and no word of libvirt's.
    pub fn libvirt(&self) -> LibvirtWord {
        match self.agent {
            AgentSeen::Silent => LibvirtWord::AgentSilent,
            AgentSeen::NotYet => LibvirtWord::NotYet,
            AgentSeen::Alive | AgentSeen::Unknown => self.written_word(),
        }
    }

    /// What libvirt said when its agent wrote last.
    pub(super) fn written_word(&self) -> LibvirtWord {
        let count = self.hypervisor.status.as_ref().map_or(0, crate::api::HypervisorStatus::num_instances);
        match self.hypervisor.condition(condition_types::LIBVIRT_CONNECTION).map(|condition| condition.status) {
            Some(ConditionStatus::True) | None if count > 0 => LibvirtWord::Has(count),
            Some(ConditionStatus::True) => LibvirtWord::Empty,
            None => LibvirtWord::NoAgent,
            Some(_) => LibvirtWord::Unreachable,
        }
    }

    /// Whether Nova does not hear from the host either.
    pub(super) fn is_down(&self) -> bool {
        match &self.cloud {
            HostSeen::Known(state) => state.service.as_ref().is_none_or(|one| one.state == ServiceState::Down),
            _ => false,
        }
    }

    /// Whether the Eviction is being deleted.
    pub fn is_leaving(&self) -> bool {
        self.eviction.metadata.deletion_timestamp.is_some()
    }

    /// Whether the Eviction is kept from going by this operator.
    pub fn is_held(&self) -> bool {
        is_held(&self.eviction)
    }

    /// Whether the cloud has to be asked before anything can be decided.
    pub fn wants_cloud(&self) -> bool {
        if self.is_leaving() {
            return self.is_held();
        }
        let waits = self.stands_back_for.is_some();
        !waits && !is_over(self) && (!self.is_expected() || is_disabled(&self.hypervisor))
    }
}

/// Whether the drain has ended and nothing asks for more. A failure of an earlier program is no end: the host may be full.
/// On a host that is in service again instances are no wonder, and nobody's request to drain it a second time.
pub(super) fn is_over(seen: &DrainSeen) -> bool {
    let evicting = conditions::find(seen.conditions(), condition_types::EVICTING);
    let ended = evicting.is_some_and(|one| one.is_false() && one.reason != crate::api::reasons::FAILED);
    ended && !(is_disabled(&seen.hypervisor) && matches!(seen.libvirt(), LibvirtWord::Has(_)))
}

/// Whether Nova should know a host: both its ids were recorded.
pub(super) fn is_expected(hypervisor: &Hypervisor) -> bool {
    let filled = |id: &Option<String>| id.as_deref().is_some_and(|id| !id.is_empty());
    hypervisor.status.as_ref().is_some_and(|status| filled(&status.hypervisor_id) && filled(&status.service_id))
}

/// Whether the host was taken out of the scheduler's sight, by its Hypervisor.
pub(super) fn is_disabled(hypervisor: &Hypervisor) -> bool {
    hypervisor.condition(condition_types::HYPERVISOR_DISABLED).is_some_and(Condition::is_true)
}

/// Whether an Eviction is kept from going by this operator.
pub(super) fn is_held(eviction: &Eviction) -> bool {
    let finalizers = eviction.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|finalizer| finalizer == labels::EVICTION_FINALIZER)
}

impl HostState {
    /// Migrations to the host that are not over. Those of which nobody knows yet whether they go on are among them.
    pub(super) fn incoming<'a>(&'a self, host: &'a HostName, now: Timestamp) -> impl Iterator<Item = &'a Migration> {
        let to_here = move |one: &&Migration| one.destination.as_ref() == Some(host) && one.source != *host;
        let open = self.migrations.iter().filter(to_here).filter(|one| !one.phase.is_over());
        open.filter(move |one| self.goes_on(one, now) != Some(false))
    }

    /// Whether an open record is about a move that goes on, by the word of its server, on the host or not; `None` if that
    /// was not asked yet.
    pub(super) fn goes_on(&self, migration: &Migration, now: Timestamp) -> Option<bool> {
        let here = self.servers.iter().find(|server| server.id == migration.server);
        match (here, self.left.get(&migration.server)) {
            (Some(server), _) | (None, Some(Some(server))) => Some(is_borne_out(migration, server, now)),
            (None, Some(None)) => Some(false),
            (None, None) => is_young(migration, now).then_some(true),
        }
    }

    /// The newest migration of a server away from the host, if it goes on.
    pub(super) fn outgoing(&self, host: &HostName, server: &InstanceId, now: Timestamp) -> Option<&Migration> {
        let newest = self.newest(host, server).filter(|one| !one.phase.is_over())?;
        (self.goes_on(newest, now) == Some(true)).then_some(newest)
    }

    /// The newest migration of a server away from the host, if it is over.
    pub(super) fn ended(&self, host: &HostName, server: &InstanceId) -> Option<&Migration> {
        self.newest(host, server).filter(|one| one.phase.is_over())
    }

    pub(super) fn newest(&self, host: &HostName, server: &InstanceId) -> Option<&Migration> {
        self.migrations.iter().find(|one| one.source == *host && one.server == *server)
    }

    /// The migration of a server, from here or to here, that has moved it and wants or has got a yes.
    pub(super) fn moved(&self, server: &InstanceId) -> Option<&Migration> {
        self.migrations.iter().find(|one| one.server == *server && has_moved(one))
    }
}

/// Whether a record says that a server has moved while it was shut off, and that its old place is still kept. Such a
/// record may be as old as it likes.
pub(super) fn has_moved(migration: &Migration) -> bool {
    matches!(migration.phase, MigrationPhase::Unconfirmed | MigrationPhase::Confirming)
}

/// Whether an open record is about a move that goes on: its server says so too, or it is too young to ask for that.
pub(super) fn is_borne_out(migration: &Migration, server: &Server, now: Timestamp) -> bool {
    bears_out(server, migration) || is_young(migration, now)
}

/// Whether a server says what an open record of it says: that it moves, or has moved and waits for a yes.
pub(super) fn bears_out(server: &Server, migration: &Migration) -> bool {
    if has_moved(migration) {
        return server.status == ServerStatus::VerifyResize;
    }
    movability::of(server, BlockMigration::Auto) == Movability::Moving
}

pub(super) fn is_young(migration: &Migration, now: Timestamp) -> bool {
    touched(migration).is_some_and(|touched| super::decide::elapsed(touched, now) < YOUNG)
}

fn touched(migration: &Migration) -> Option<Timestamp> {
    migration.updated_at.max(migration.created_at)
}
