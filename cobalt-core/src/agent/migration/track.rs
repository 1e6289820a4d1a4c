//! Which migrations of this host are under way, and how they end: pure.
//!
//! ```text
//!   source                                               destination
//!   ──────                                               ───────────
//!   (none) ── iteration, or a job found ──▶ Leaving      (none) ── started by migration ──▶ Arriving
//!   Leaving ── job polled ──▶ Leaving (figures)          Arriving ── resumed by migration ──▶ arrived
//!   Leaving ── job completed ──▶ its outcome             Arriving ── failed, destroyed, gone ──▶ (none)
//!   Leaving ── migrated, then no job ──▶ completed
//!   Leaving ── no job twice, and still here ──▶ failed
//!   Leaving ── died ──▶ failed
//!   Leaving ── not here twice, nobody said why ──▶ lost
//! ```
//!
//! An aborted migration has no event of its own on the source: the job is gone and the domain is not. That is why a
//! missing job is asked for twice before it is believed: the last event of a good migration may be on its way.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::figures;
use crate::{
    api::MigrationStatus,
    backend::{DomainEvent, Job, JobOperation, JobOutcome, Lifecycle},
    ids::InstanceId,
};

/// How often a job may be missing before that is believed.
const MISSES: u32 = 2;

/// Which end of a migration this host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The instance leaves.
    Origin,
    /// The instance comes.
    Destination,
}

/// What is to be told.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Update {
    /// Whose migration.
    pub(super) id: InstanceId,
    /// Its name on this host.
    pub(super) name: String,
    /// As which end.
    pub(super) side: Side,
    /// How far it is.
    pub(super) phase: Phase,
    /// Everything this side has to say.
    pub(super) status: MigrationStatus,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It was not known before.
    Began,
    /// It goes on.
    Running,
    /// It is over, and how.
    Ended(JobOutcome),
}

/// The answer to a question for a domain's job.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Polled {
    /// There is one, or one is remembered.
    Job(Box<Job>),
    /// There is none.
    None,
    /// There is no such domain.
    Gone,
}

#[derive(Clone, Debug)]
struct Leaving {
    name: String,
    started: Timestamp,
    job: Job,
    /// The source was told that it has left.
    left: bool,
    /// Polls in a row that found no running job.
    misses: u32,
}

/// Every migration of one host.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    label: String,
    limit: usize,
    leaving: BTreeMap<InstanceId, Leaving>,
    arriving: BTreeMap<InstanceId, Timestamp>,
}

impl Tracker {
    /// Of the host with this name, and at most so many at once.
    pub(super) fn new(label: impl Into<String>, limit: usize) -> Self {
        Self { label: label.into(), limit, leaving: BTreeMap::new(), arriving: BTreeMap::new() }
    }

    /// The domains whose jobs are to be asked for.
    pub(super) fn polled(&self) -> Vec<InstanceId> {
        self.leaving.keys().cloned().collect()
    }

    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.leaving.len() + self.arriving.len()
    }

    /// A job found on a domain, after a (re)start or a gap in the events.
    pub(super) fn found(&mut self, id: &InstanceId, name: &str, job: &Job, now: Timestamp) -> Option<Update> {
        let running = job.operation == JobOperation::MigrationOut && job.outcome.is_running();
        if !running || self.leaving.contains_key(id) {
            return None;
        }
        self.begin(id, name, job.clone(), now)
    }

    /// Something happened to a domain.
    pub(super) fn event(&mut self, id: &InstanceId, name: &str, event: &DomainEvent, now: Timestamp) -> Option<Update> {
        match event {
            DomainEvent::MigrationIteration(iteration) => {
                let iteration = Some(u64::from(*iteration));
                if let Some(leaving) = self.leaving.get_mut(id) {
                    leaving.job.memory_iteration = iteration;
                    leaving.misses = 0;
                    return None; // the next poll tells, with all the other figures
                }
                let job = Job { operation: JobOperation::MigrationOut, memory_iteration: iteration, ..Job::default() };
                self.begin(id, name, job, now)
            }
            DomainEvent::JobCompleted(job) => self.completed(id, name, job, now),
            DomainEvent::Lifecycle(step) => self.step(id, name, *step, now),
            _ => None,
        }
    }

    /// What came of asking for the job of a domain that leaves.
    pub(super) fn answered(&mut self, id: &InstanceId, answer: Polled, now: Timestamp) -> Option<Update> {
        let leaving = self.leaving.get_mut(id)?;
        match answer {
            Polled::Job(job) if job.outcome.is_running() => {
                leaving.misses = 0;
                let changed = leaving.job != *job;
                leaving.job = Job { operation: JobOperation::MigrationOut, ..*job };
                return changed.then(|| self.running(id)).flatten();
            }
            // Remembered from this migration, or from one before it: only the failure of this one is told so.
            Polled::Job(job)
                if job.operation == JobOperation::MigrationOut
                    && matches!(job.outcome, JobOutcome::Failed | JobOutcome::Cancelled) =>
            {
                leaving.job = *job;
                let outcome = leaving.job.outcome;
                return self.end(id, outcome, None, now);
            }
            Polled::Job(job) if leaving.left && job.operation == JobOperation::MigrationOut => leaving.job = *job,
            _ if leaving.left => {}
            Polled::Gone => {
                leaving.misses += 1;
                let lost = leaving.misses >= MISSES;
                let why = "the instance is not here any more, and libvirt did not say how it left";
                return lost.then(|| self.lose(id, why, now)).flatten();
            }
            Polled::Job(_) | Polled::None => {
                leaving.misses += 1;
                let over = leaving.misses >= MISSES;
                let why = "the migration was aborted or failed, the instance stayed";
                return over.then(|| self.end(id, JobOutcome::Failed, Some(why), now)).flatten();
            }
        }
        self.end(id, JobOutcome::Completed, None, now)
    }

    fn begin(&mut self, id: &InstanceId, name: &str, job: Job, now: Timestamp) -> Option<Update> {
        if self.leaving.len() >= self.limit {
            return None;
        }
        let started = started(&job, now);
        self.leaving.insert(id.clone(), Leaving { name: name.to_owned(), started, job, left: false, misses: 0 });
        self.running(id).map(|update| Update { phase: Phase::Began, ..update })
    }

    fn running(&self, id: &InstanceId) -> Option<Update> {
        let leaving = self.leaving.get(id)?;
        Some(Update {
            id: id.clone(),
            name: leaving.name.clone(),
            side: Side::Origin,
            phase: Phase::Running,
            status: self.status(leaving),
        })
    }

    fn status(&self, leaving: &Leaving) -> MigrationStatus {
        let mut status = MigrationStatus {
            origin: Some(self.label.clone()),
            started: Some(Time(leaving.started)),
            ..MigrationStatus::default()
        };
        figures::write(&leaving.job, &mut status);
        status
    }

    fn end(&mut self, id: &InstanceId, outcome: JobOutcome, why: Option<&str>, now: Timestamp) -> Option<Update> {
        let mut leaving = self.leaving.remove(id)?;
        leaving.job.outcome = outcome;
        leaving.job.remaining = None;
        leaving.job.error = leaving.job.error.or_else(|| why.map(str::to_owned));
        let mut status = self.status(&leaving);
        status.ended = Some(Time(now));
        let name = leaving.name;
        Some(Update { id: id.clone(), name, side: Side::Origin, phase: Phase::Ended(outcome), status })
    }

    /// The end of what nobody saw: its type stays what it was last.
    fn lose(&mut self, id: &InstanceId, why: &str, now: Timestamp) -> Option<Update> {
        let last = self.leaving.get(id)?.job.outcome;
        self.end(id, last, Some(why), now)
    }

    fn completed(&mut self, id: &InstanceId, name: &str, job: &Job, now: Timestamp) -> Option<Update> {
        let known = self.leaving.contains_key(id);
        let ours = job.operation == JobOperation::MigrationOut || (known && job.operation == JobOperation::Unknown);
        if !ours {
            return None;
        }
        if !known {
            // So fast that there was no iteration to be told of.
            self.begin(id, name, job.clone(), now)?;
        }
        let leaving = self.leaving.get_mut(id)?;
        leaving.job = Job { operation: JobOperation::MigrationOut, ..job.clone() };
        let outcome = if job.outcome.is_running() { JobOutcome::Completed } else { job.outcome };
        self.end(id, outcome, None, now)
    }

    fn step(&mut self, id: &InstanceId, name: &str, step: Lifecycle, now: Timestamp) -> Option<Update> {
        let leaving = self.leaving.get_mut(id);
        match (step, leaving) {
            (Lifecycle::Migrated, Some(leaving)) => {
                leaving.left = true;
                None
            }
            // A failed migration resumes the domain where it was; that is no arrival.
            (Lifecycle::ResumedByMigration, Some(leaving)) => {
                leaving.misses += 1;
                None
            }
            (Lifecycle::Crashed | Lifecycle::Failed | Lifecycle::Destroyed | Lifecycle::Stopped, Some(leaving))
                if !leaving.left =>
            {
                self.end(id, JobOutcome::Failed, Some("the instance died on its way"), now)
            }
            (Lifecycle::StartedByMigration, None) => {
                if self.arriving.len() < self.limit {
                    self.arriving.insert(id.clone(), now);
                }
                Some(self.arrival(id, name, Some(now), None))
            }
            (Lifecycle::ResumedByMigration, None) => {
                let since = self.arriving.remove(id);
                Some(self.arrival(id, name, since, Some(now)))
            }
            (
                Lifecycle::Crashed
                | Lifecycle::Failed
                | Lifecycle::Destroyed
                | Lifecycle::Stopped
                | Lifecycle::Undefined,
                None,
            ) => {
                self.arriving.remove(id);
                None
            }
            _ => None,
        }
    }

    fn arrival(&self, id: &InstanceId, name: &str, since: Option<Timestamp>, arrived: Option<Timestamp>) -> Update {
        let status = MigrationStatus {
            destination: Some(self.label.clone()),
            receiving_since: since.map(Time),
            arrived: arrived.map(Time),
            ..MigrationStatus::default()
        };
        let phase = if arrived.is_some() { Phase::Ended(JobOutcome::Completed) } else { Phase::Began };
        Update { id: id.clone(), name: name.to_owned(), side: Side::Destination, phase, status }
    }
}

fn started(job: &Job, now: Timestamp) -> Timestamp {
    let elapsed = job.elapsed.unwrap_or_default();
    now.checked_sub(elapsed).unwrap_or(now)
}

/// How a migration ended that was under way when an agent stopped watching it.
pub(super) fn forgotten(status: &MigrationStatus, still_here: bool, now: Timestamp) -> MigrationStatus {
    let arrived = match (&status.arrived, &status.started) {
        (Some(arrived), Some(started)) => arrived.0 >= started.0,
        _ => false,
    };
    let (type_, why) = match (still_here, arrived) {
        (true, _) => (Some("failed".to_owned()), Some("it ended while no agent watched, the instance stayed")),
        (false, true) => (Some("completed".to_owned()), None),
        (false, false) => (status.type_.clone(), Some("it ended while no agent watched, nobody saw how")),
    };
    let err_msg = status.err_msg.clone().or_else(|| why.map(str::to_owned));
    let mine = MigrationStatus { destination: None, receiving_since: None, arrived: None, ..status.clone() };
    MigrationStatus { type_, err_msg, ended: Some(Time(now)), time_remaining: None, ..mine }
}

/// Whether a destination in an object from an earlier migration must go when a new one begins here.
pub(super) fn is_stale(earlier: &MigrationStatus, label: &str) -> bool {
    let Some(destination) = &earlier.destination else { return false };
    // The new destination may have spoken already: it receives before the first byte leaves. Within one second, which is as
    // fine as these times are kept, that is assumed: what it said is said again only when the instance arrives. A
    // migration that fails within a second of its beginning may leave its destination to the next one, which says its own
    // over it.
    let since = earlier.receiving_since.as_ref().or(earlier.arrived.as_ref());
    let spoken = match (since, &earlier.ended) {
        (Some(since), Some(ended)) => since.0 >= ended.0,
        (Some(_), None) => true,
        (None, _) => false,
    };
    destination == label || !spoken
}
