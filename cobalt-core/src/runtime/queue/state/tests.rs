#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn queue() -> Inner<u8> {
    Inner::new(Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) })
}

#[test]
fn a_key_added_twice_is_worked_on_once() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(1, now);
    queue.add(1, now);
    assert_eq!(queue.take(now), Ok(1));
    assert_eq!(queue.take(now), Err(None));
}

#[test]
fn a_key_added_while_worked_on_is_worked_on_once_more() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(1, now);
    queue.take(now).unwrap();
    queue.add(1, now);
    queue.add(1, now);
    assert_eq!(queue.take(now), Err(None), "never two workers on one key");
    queue.done(&1, Outcome::Done, now);
    assert_eq!(queue.take(now), Ok(1));
    queue.done(&1, Outcome::Done, now);
    assert_eq!(queue.take(now), Err(None));
}

#[test]
fn an_event_brings_a_waiting_key_forward() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add_at(1, now + Duration::from_secs(60));
    assert_eq!(queue.take(now), Err(Some(now + Duration::from_secs(60))));
    queue.add(1, now);
    assert_eq!(queue.take(now), Ok(1));
    queue.done(&1, Outcome::Done, now);
    assert_eq!(queue.take(now + Duration::from_secs(61)), Err(None), "the later wish went with the earlier pass");
}

#[test]
fn the_earlier_of_two_wishes_stands() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add_at(1, now + Duration::from_secs(60));
    queue.add_at(1, now + Duration::from_secs(30));
    queue.add_at(1, now + Duration::from_secs(90));
    assert_eq!(queue.take(now), Err(Some(now + Duration::from_secs(30))));
    assert_eq!(queue.take(now + Duration::from_secs(30)), Ok(1));
}

#[test]
fn failures_double_the_pause_and_a_success_resets_it() {
    let (mut queue, mut now) = (queue(), Instant::now());
    queue.add(1, now);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        queue.take(now).unwrap();
        let pause = queue.done(&1, Outcome::Failed, now).unwrap();
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses[..3], [1, 2, 4]);
    assert!(pauses[7] >= 60 && pauses[7] <= 66, "limited, with a tenth of spread: {pauses:?}");
    queue.take(now).unwrap();
    queue.done(&1, Outcome::Done, now);
    queue.add(1, now);
    queue.take(now).unwrap();
    assert_eq!(queue.done(&1, Outcome::Failed, now).unwrap().as_secs(), 1);
}

#[test]
fn a_failing_key_does_not_hold_up_the_others() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(1, now);
    queue.add(2, now);
    queue.take(now).unwrap();
    queue.done(&1, Outcome::Failed, now);
    assert_eq!(queue.take(now), Ok(2));
}

#[test]
fn a_key_at_rest_takes_no_memory() {
    let (mut queue, now) = (queue(), Instant::now());
    for key in 0..200 {
        queue.add(key, now);
        queue.take(now).unwrap();
        queue.done(&key, Outcome::Done, now);
    }
    assert!(queue.entries.is_empty() && queue.ready.is_empty() && queue.delayed.is_empty());
}

#[test]
fn the_report_names_failing_keys_and_the_longest_wait() {
    let (mut queue, now) = (queue(), Instant::now());
    queue.add(7, now);
    queue.take(now).unwrap();
    queue.done(&7, Outcome::Failed, now);
    queue.add(8, now);
    let report = queue.report("test", now + Duration::from_millis(500));
    assert_eq!((report.depth, report.delayed, report.retries), (1, 1, 1));
    assert_eq!(report.oldest_seconds, Some(0.5));
    assert_eq!(report.failing, [("7".to_owned(), 1)]);
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u64),
    Take,
    Done(usize, Outcome),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let outcome = prop_oneof![
        Just(Outcome::Done),
        (1_u64..5000).prop_map(|ms| Outcome::Again(Duration::from_millis(ms))),
        Just(Outcome::Failed),
    ];
    let op = prop_oneof![
        (0_u8..6).prop_map(Op::Add),
        (0_u8..6, 0_u64..5000).prop_map(|(key, ms)| Op::AddAfter(key, ms)),
        Just(Op::Take),
        (any::<usize>(), outcome).prop_map(|(at, outcome)| Op::Done(at, outcome)),
        (0_u64..3000).prop_map(Op::Pass),
    ];
    proptest::collection::vec(op, 0..200)
}

proptest! {
    /// Whatever happens: one worker per key, nothing added is forgotten, and nothing is left once all is done.
    #[test]
    fn the_laws_hold_for_any_history(ops in ops()) {
        let (mut queue, mut now) = (queue(), Instant::now());
        let mut running: Vec<u8> = Vec::new();
        let mut owed: std::collections::HashSet<u8> = std::collections::HashSet::new();
        for op in ops {
            match op {
                Op::Add(key) => {
                    queue.add(key, now);
                    owed.insert(key);
                }
                Op::AddAfter(key, ms) => {
                    queue.add_at(key, now + Duration::from_millis(ms));
                    owed.insert(key);
                }
                Op::Take => if let Ok(key) = queue.take(now) {
                    prop_assert!(!running.contains(&key), "two workers on {key}");
                    running.push(key);
                    owed.remove(&key);
                },
                Op::Done(at, outcome) => if !running.is_empty() {
                    let key = running.swap_remove(at % running.len());
                    queue.done(&key, outcome, now);
                    if outcome != Outcome::Done {
                        owed.insert(key);
                    }
                },
                Op::Pass(ms) => now += Duration::from_millis(ms),
            }
            prop_assert_eq!(queue.counts().1, running.len());
            prop_assert!(queue.entries.len() <= 6);
        }
        for key in running.drain(..) {
            queue.done(&key, Outcome::Done, now);
        }
        now += Duration::from_secs(3600);
        while let Ok(key) = queue.take(now) {
            owed.remove(&key);
            queue.done(&key, Outcome::Done, now);
        }
        prop_assert!(owed.is_empty(), "forgotten: {owed:?}");
        prop_assert!(queue.entries.is_empty());
    }
}
