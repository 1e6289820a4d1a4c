#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1::ObjectReference;

use super::*;
use crate::runtime::events::Severity;

fn event(object: &str, note: &str) -> Event {
    let regarding =
        ObjectReference { kind: Some("Hypervisor".into()), name: Some(object.into()), ..Default::default() };
    Event::new(Severity::Warning, regarding, "Drain", "MigrationFailed", note)
}

/// Observes, and plays a server that accepts everything.
fn publish(aggregator: &mut Aggregator, event: &Event, now: Instant) -> (Step, String) {
    let mut event = event.clone();
    let step = aggregator.observe(&mut event, now);
    if let Step::Create { key } = &step {
        aggregator.created(key, format!("object-of-{}", event.note));
    }
    (step, event.note)
}

#[test]
fn the_same_event_again_counts_the_first_one_up() {
    let (mut aggregator, now) = (Aggregator::new(Limits::default()), Instant::now());
    let same = event("node-1", "no valid host");
    assert!(matches!(publish(&mut aggregator, &same, now).0, Step::Create { .. }));
    for expected in 2..5 {
        match publish(&mut aggregator, &same, now).0 {
            Step::Repeat { name, count, .. } => {
                assert_eq!((name.as_str(), count), ("object-of-no valid host", expected));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn different_objects_and_messages_are_different_events() {
    let (mut aggregator, now) = (Aggregator::new(Limits::default()), Instant::now());
    for (object, note) in [("node-1", "a"), ("node-1", "b"), ("node-2", "a")] {
        assert!(matches!(publish(&mut aggregator, &event(object, note), now).0, Step::Create { .. }));
    }
}

#[test]
fn after_a_while_of_silence_an_event_begins_anew() {
    let (mut aggregator, now) = (Aggregator::new(Limits::default()), Instant::now());
    let same = event("node-1", "no valid host");
    publish(&mut aggregator, &same, now);
    let later = now + Limits::default().window + Duration::from_secs(1);
    assert!(matches!(publish(&mut aggregator, &same, later).0, Step::Create { .. }));
}

#[test]
fn many_similar_messages_are_combined_into_one() {
    let (mut aggregator, now) = (Aggregator::new(Limits::default()), Instant::now());
    for server in 0..10 {
        assert!(matches!(
            publish(&mut aggregator, &event("n", &format!("server {server}")), now).0,
            Step::Create { .. }
        ));
    }
    let (step, note) = publish(&mut aggregator, &event("n", "server 10"), now);
    assert!(matches!(step, Step::Create { .. }));
    assert_eq!(note, "(combined from similar events): server 10");
    let (step, _) = publish(&mut aggregator, &event("n", "server 11"), now);
    assert!(matches!(step, Step::Repeat { count: 2, .. }), "{step:?}");
    // One that is known keeps its own series.
    let (step, note) = publish(&mut aggregator, &event("n", "server 3"), now);
    assert!(matches!(step, Step::Repeat { count: 2, .. }), "{step:?}");
    assert_eq!(note, "server 3");
}

#[test]
fn one_object_cannot_flood_and_what_was_held_back_is_counted() {
    let limits = Limits { burst: 3, refill: Duration::from_secs(10), ..Limits::default() };
    let (mut aggregator, now) = (Aggregator::new(limits), Instant::now());
    let same = event("node-1", "a");
    let steps: Vec<bool> = (0..5).map(|_| publish(&mut aggregator, &same, now).0 != Step::Drop).collect();
    assert_eq!(steps, [true, true, true, false, false]);
    assert_ne!(publish(&mut aggregator, &event("node-2", "a"), now).0, Step::Drop, "others are not affected");
    match publish(&mut aggregator, &same, now + Duration::from_secs(10)).0 {
        Step::Repeat { count, .. } => assert_eq!(count, 6),
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let limits = Limits { remembered: 100, ..Limits::default() };
    let (mut aggregator, mut now) = (Aggregator::new(limits), Instant::now());
    for n in 0..2000 {
        publish(&mut aggregator, &event(&format!("node-{n}"), &format!("{n}")), now);
        now += Duration::from_millis(1);
        assert!(aggregator.series.len() <= 101 && aggregator.groups.len() <= 101 && aggregator.buckets.len() <= 101);
    }
}

#[test]
fn an_event_that_could_not_be_written_is_tried_as_new() {
    let (mut aggregator, now) = (Aggregator::new(Limits::default()), Instant::now());
    let mut lost = event("node-1", "a");
    let Step::Create { key } = aggregator.observe(&mut lost, now) else { panic!("not new") };
    aggregator.forget(&key);
    assert!(matches!(publish(&mut aggregator, &lost, now).0, Step::Create { .. }));
}
