#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::track::{Phase, Polled, Side, Tracker, Update, forgotten, is_stale};
use crate::{
    api::MigrationStatus,
    backend::{DomainEvent, Job, JobOperation, JobOutcome, Lifecycle},
    ids::InstanceId,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn vm() -> InstanceId {
    InstanceId::from("6f2c0000-0000-4000-8000-000000000001")
}

fn running() -> Job {
    Job {
        operation: JobOperation::MigrationOut,
        elapsed: Some(Duration::from_secs(2)),
        memory_bps: Some(17_301_504),
        ..Job::default()
    }
}

fn done(outcome: JobOutcome) -> Job {
    Job { outcome, ..running() }
}

fn happens(tracker: &mut Tracker, event: &DomainEvent, second: i64) -> Option<Update> {
    tracker.event(&vm(), "instance-1", event, at(second))
}

fn leaving() -> Tracker {
    let mut tracker = Tracker::new("node-a", 8);
    let began = happens(&mut tracker, &DomainEvent::MigrationIteration(1), 0).unwrap();
    assert_eq!((began.phase, began.side), (Phase::Began, Side::Origin));
    assert_eq!(began.status.origin.as_deref(), Some("node-a"));
    tracker
}

fn life(step: Lifecycle) -> DomainEvent {
    DomainEvent::Lifecycle(step)
}

#[test]
fn a_migration_that_succeeds_is_followed_to_its_end() {
    let mut tracker = leaving();
    let update = tracker.answered(&vm(), Polled::Job(Box::new(running())), at(1)).unwrap();
    assert_eq!((update.phase, update.status.mem_bps.as_deref()), (Phase::Running, Some("16.5 MiB/s")));
    assert_eq!(tracker.answered(&vm(), Polled::Job(Box::new(running())), at(2)), None, "nothing new, nothing to write");
    assert_eq!(happens(&mut tracker, &life(Lifecycle::SuspendedByMigration), 3), None);
    assert_eq!(happens(&mut tracker, &life(Lifecycle::Migrated), 3), None);
    let end = happens(&mut tracker, &DomainEvent::JobCompleted(Box::new(done(JobOutcome::Completed))), 3).unwrap();
    assert_eq!(end.phase, Phase::Ended(JobOutcome::Completed));
    assert_eq!((end.status.type_.as_deref(), end.status.ended.as_ref()), (Some("completed"), Some(&Time(at(3)))));
    assert_eq!(end.status.started, Some(Time(at(0))));
    assert!(tracker.polled().is_empty());
}

#[test]
fn an_aborted_one_has_no_event_and_is_found_by_asking_twice() {
    let mut tracker = leaving();
    assert_eq!(tracker.answered(&vm(), Polled::None, at(1)), None);
    let end = tracker.answered(&vm(), Polled::None, at(2)).unwrap();
    assert_eq!(end.status.type_.as_deref(), Some("failed"));
    assert!(end.status.err_msg.unwrap().contains("stayed"));
}

#[test]
fn a_remembered_success_of_an_earlier_migration_is_not_this_one() {
    let mut tracker = leaving();
    let old = || Polled::Job(Box::new(done(JobOutcome::Completed)));
    assert_eq!(tracker.answered(&vm(), old(), at(1)), None);
    assert_eq!(tracker.answered(&vm(), old(), at(2)).unwrap().phase, Phase::Ended(JobOutcome::Failed));
}

#[test]
fn a_driver_that_tells_of_the_abort_is_believed_at_once() {
    for outcome in [JobOutcome::Cancelled, JobOutcome::Failed] {
        let mut tracker = leaving();
        let end = happens(&mut tracker, &DomainEvent::JobCompleted(Box::new(done(outcome))), 1).unwrap();
        assert_eq!(end.phase, Phase::Ended(outcome));
        let mut tracker = leaving();
        assert_eq!(
            tracker.answered(&vm(), Polled::Job(Box::new(done(outcome))), at(1)).unwrap().phase,
            Phase::Ended(outcome)
        );
    }
}

#[test]
fn the_last_event_may_be_lost() {
    let mut tracker = leaving();
    happens(&mut tracker, &life(Lifecycle::Migrated), 1);
    let end = tracker.answered(&vm(), Polled::Gone, at(2)).unwrap();
    assert_eq!(end.phase, Phase::Ended(JobOutcome::Completed));
    // Without even that one, nobody knows, and that is what is said.
    let mut tracker = leaving();
    assert_eq!(tracker.answered(&vm(), Polled::Gone, at(1)), None);
    let end = tracker.answered(&vm(), Polled::Gone, at(2)).unwrap();
    assert_eq!(end.status.type_.as_deref(), Some("bounded"));
    assert!(end.status.err_msg.is_some() && end.status.ended.is_some());
}

#[test]
fn an_instance_that_dies_on_its_way_has_not_migrated() {
    let mut tracker = leaving();
    assert_eq!(happens(&mut tracker, &life(Lifecycle::Failed), 1).unwrap().phase, Phase::Ended(JobOutcome::Failed));
}

#[test]
fn the_next_migration_of_the_same_instance_is_a_new_one() {
    let mut tracker = leaving();
    tracker.answered(&vm(), Polled::None, at(1));
    tracker.answered(&vm(), Polled::None, at(2)).unwrap();
    let again = happens(&mut tracker, &DomainEvent::MigrationIteration(1), 60).unwrap();
    assert_eq!((again.phase, again.status.started), (Phase::Began, Some(Time(at(60)))));
}

#[test]
fn one_that_began_before_the_agent_is_found_with_its_age() {
    let mut tracker = Tracker::new("node-a", 8);
    let found = tracker.found(&vm(), "instance-1", &running(), at(10)).unwrap();
    assert_eq!((found.phase, found.status.started), (Phase::Began, Some(Time(at(8)))));
    assert_eq!(tracker.found(&vm(), "instance-1", &running(), at(11)), None);
    let backup = Job { operation: JobOperation::Backup, ..Job::default() };
    assert_eq!(Tracker::new("node-a", 8).found(&vm(), "instance-1", &backup, at(1)), None);
}

#[test]
fn the_destination_says_that_it_is_the_destination() {
    let mut tracker = Tracker::new("node-b", 8);
    let since = happens(&mut tracker, &life(Lifecycle::StartedByMigration), 5).unwrap();
    assert_eq!((since.side, since.phase), (Side::Destination, Phase::Began));
    assert_eq!((since.status.destination.as_deref(), since.status.origin), (Some("node-b"), None));
    let there = happens(&mut tracker, &life(Lifecycle::ResumedByMigration), 9).unwrap();
    assert_eq!((there.status.receiving_since, there.status.arrived), (Some(Time(at(5))), Some(Time(at(9)))));
    assert_eq!(tracker.len(), 0);
}

#[test]
fn a_resume_at_the_origin_is_no_arrival() {
    let mut tracker = leaving();
    assert_eq!(happens(&mut tracker, &life(Lifecycle::ResumedByMigration), 1), None);
    assert_eq!(tracker.answered(&vm(), Polled::None, at(2)).unwrap().phase, Phase::Ended(JobOutcome::Failed));
}

#[test]
fn a_failed_arrival_leaves_nothing_behind() {
    let mut tracker = Tracker::new("node-b", 8);
    happens(&mut tracker, &life(Lifecycle::StartedByMigration), 1);
    assert_eq!(happens(&mut tracker, &life(Lifecycle::Failed), 2), None);
    assert_eq!(tracker.len(), 0);
}

#[test]
fn what_an_agent_missed_is_ended_by_the_evidence_there_is() {
    let open = MigrationStatus {
        origin: Some("node-a".into()),
        type_: Some("bounded".into()),
        started: Some(Time(at(0))),
        ..MigrationStatus::default()
    };
    assert_eq!(forgotten(&open, true, at(9)).type_.as_deref(), Some("failed"));
    let arrived = MigrationStatus { arrived: Some(Time(at(5))), destination: Some("node-b".into()), ..open.clone() };
    let ended = forgotten(&arrived, false, at(9));
    assert_eq!((ended.type_.as_deref(), ended.err_msg, ended.destination), (Some("completed"), None, None));
    let unknown = forgotten(&open, false, at(9));
    assert_eq!(unknown.type_.as_deref(), Some("bounded"));
    assert!(unknown.err_msg.is_some());
}

#[test]
fn only_the_destination_of_an_earlier_migration_is_cleared() {
    let earlier = |destination: &str, since: Option<i64>, ended: Option<i64>| MigrationStatus {
        destination: Some(destination.into()),
        receiving_since: since.map(|second| Time(at(second))),
        ended: ended.map(|second| Time(at(second))),
        ..MigrationStatus::default()
    };
    // B came here from A, and goes on from here: the old destination is this host.
    assert!(is_stale(&earlier("node-a", Some(1), Some(2)), "node-a"));
    // It went to B, came back by other means, and goes to C, which has not spoken yet.
    assert!(is_stale(&earlier("node-b", Some(1), Some(2)), "node-a"));
    // C has spoken before our first iteration.
    assert!(!is_stale(&earlier("node-c", Some(3), Some(2)), "node-a"));
    // And in the second in which the earlier one ended, which is as fine as times are kept.
    assert!(!is_stale(&earlier("node-c", Some(2), Some(2)), "node-a"));
    assert!(is_stale(&earlier("node-a", Some(2), Some(2)), "node-a"));
    assert!(!is_stale(&earlier("node-c", Some(3), None), "node-a"));
    assert!(!is_stale(&MigrationStatus::default(), "node-a"));
}

fn anything() -> impl Strategy<Value = (u8, u8)> {
    (0..14_u8, 0..3_u8)
}

proptest! {
    /// Whatever happens in whatever order: no more is tracked than allowed, a begin comes before its end, and every
    /// end has a time and a type.
    #[test]
    fn every_walk_is_a_begin_and_then_at_most_one_end(steps in proptest::collection::vec(anything(), 0..60)) {
        let mut tracker = Tracker::new("node-a", 2);
        let mut open = std::collections::BTreeSet::new();
        for (second, (what, whose)) in steps.into_iter().enumerate() {
            let id = InstanceId::from(format!("vm-{whose}").as_str());
            let now = at(i64::try_from(second).unwrap());
            let event = |event| Some(event);
            let event = match what {
                0 => event(DomainEvent::MigrationIteration(1)),
                1 => event(DomainEvent::JobCompleted(Box::new(done(JobOutcome::Completed)))),
                2 => event(DomainEvent::JobCompleted(Box::default())),
                3 => event(life(Lifecycle::Migrated)),
                4 => event(life(Lifecycle::Failed)),
                5 => event(life(Lifecycle::StartedByMigration)),
                6 => event(life(Lifecycle::ResumedByMigration)),
                7 => event(life(Lifecycle::Undefined)),
                _ => None,
            };
            let update = match (event, what) {
                (Some(event), _) => tracker.event(&id, "name", &event, now),
                (None, 8) => tracker.answered(&id, Polled::None, now),
                (None, 9) => tracker.answered(&id, Polled::Gone, now),
                (None, 10) => tracker.answered(&id, Polled::Job(Box::new(running())), now),
                (None, 11) => tracker.answered(&id, Polled::Job(Box::new(done(JobOutcome::Cancelled))), now),
                (None, 12) => tracker.answered(&id, Polled::Job(Box::new(done(JobOutcome::Completed))), now),
                (None, _) => tracker.found(&id, "name", &running(), now),
            };
            prop_assert!(tracker.polled().len() <= 2);
            let Some(update) = update.filter(|update| update.side == Side::Origin) else { continue };
            prop_assert_eq!(update.status.origin.as_deref(), Some("node-a"));
            prop_assert!(update.status.type_.is_some() && update.status.started.is_some());
            match update.phase {
                Phase::Began => prop_assert!(open.insert(id)),
                Phase::Running => prop_assert!(open.contains(&id)),
                Phase::Ended(_) => {
                    // One that was over before it was told of begins and ends in one.
                    open.remove(&id);
                    prop_assert!(update.status.ended.is_some());
                }
            }
        }
    }
}
