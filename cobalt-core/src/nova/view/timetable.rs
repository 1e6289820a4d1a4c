//! What is to be asked next: a pure function of what was asked before and the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{Part, ViewOptions};
use crate::ids::ProviderId;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Task {
    /// A listing, and which one it is.
    List(Part, u64),
    Traits(ProviderId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    Do(Task),
    /// Nothing before this moment.
    At(Instant),
}

#[derive(Debug)]
struct Slot {
    part: Part,
    /// How many listings have begun.
    begun: u64,
    due: Instant,
    /// Somebody wrote since the last listing began.
    touched: bool,
    /// Not before, whatever was touched: the cloud is in trouble.
    not_before: Option<Instant>,
    retry: Duration,
}

#[derive(Debug, Default)]
struct Reading {
    /// When to read again; `None` is now.
    due: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Timetable {
    options: ViewOptions,
    slots: [Slot; 3],
    traits: BTreeMap<ProviderId, Reading>,
    next_trait: Instant,
    trait_retry: Duration,
}

impl Timetable {
    pub(super) fn new(options: ViewOptions, now: Instant) -> Self {
        let retry = options.retry;
        let slot = |part| Slot { part, begun: 0, due: now, touched: false, not_before: None, retry };
        Self { slots: Part::ALL.map(slot), traits: BTreeMap::new(), next_trait: now, trait_retry: retry, options }
    }

    fn slot(&mut self, part: Part) -> &mut Slot {
        &mut self.slots[part as usize]
    }

    /// Wants a listing that has not begun yet, and answers its number.
    pub(super) fn touch(&mut self, part: Part) -> u64 {
        let slot = self.slot(part);
        slot.touched = true;
        slot.begun + 1
    }

    pub(super) fn touch_traits(&mut self, id: &ProviderId) {
        if let Some(reading) = self.traits.get_mut(id) {
            reading.due = None;
        }
    }

    /// The providers there are: new ones are due at once, those that are gone are forgotten.
    pub(super) fn set_providers(&mut self, known: &BTreeSet<ProviderId>) {
        self.traits.retain(|id, _| known.contains(id));
        for id in known {
            self.traits.entry(id.clone()).or_default();
        }
    }

    /// What to do now, or when to ask again. A task that is handed out has begun.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let mut earliest = now + self.options.interval;
        for slot in &mut self.slots {
            let time = if slot.touched { now } else { slot.due };
            let time = slot.not_before.map_or(time, |limit| time.max(limit));
            if time <= now {
                slot.touched = false;
                slot.begun += 1;
                return Next::Do(Task::List(slot.part, slot.begun));
            }
            earliest = earliest.min(time);
        }
        // Never read comes before read long ago.
        if let Some((id, reading)) = self.traits.iter().min_by_key(|(_, reading)| reading.due) {
            let time = reading.due.unwrap_or(now).max(self.next_trait);
            if time <= now {
                return Next::Do(Task::Traits(id.clone()));
            }
            earliest = earliest.min(time);
        }
        Next::At(earliest)
    }

    /// A task is over; `failed` is the wait that the other side asked for, if it asked for one.
    #[expect(clippy::option_option, reason = "failed or not, and then with a wish or without")]
    pub(super) fn done(&mut self, task: &Task, now: Instant, failed: Option<Option<Duration>>) {
        let (interval, first) = (self.options.interval, self.options.retry);
        match task {
            Task::List(part, _) => {
                let slot = self.slot(*part);
                match failed {
                    None => {
                        slot.due = now + interval;
                        slot.not_before = None;
                        slot.retry = first;
                    }
                    Some(wish) => {
                        slot.not_before = Some(now + wish.unwrap_or_default().max(slot.retry));
                        slot.due = now;
                        slot.retry = (slot.retry * 2).min(interval.max(first));
                    }
                }
            }
            Task::Traits(id) => {
                if failed.is_none() {
                    self.trait_retry = first;
                    self.next_trait = now + self.options.trait_interval;
                } else {
                    let wish = failed.flatten().unwrap_or_default();
                    self.next_trait = now + wish.max(self.trait_retry).max(self.options.trait_interval);
                    self.trait_retry = (self.trait_retry * 2).min(interval.max(first));
                }
                // A provider whose read fails goes to the back, so that it cannot keep the others from being read.
                let age = self.options.trait_age;
                if let Some(reading) = self.traits.get_mut(id) {
                    reading.due = Some(now + age);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn table() -> (Timetable, Instant) {
        let now = Instant::now();
        (Timetable::new(ViewOptions::default(), now), now)
    }

    fn drain(table: &mut Timetable, now: Instant) -> (Vec<Task>, Instant) {
        let mut tasks = Vec::new();
        loop {
            match table.next(now) {
                Next::Do(task) => {
                    table.done(&task, now, None);
                    tasks.push(task);
                }
                Next::At(time) => return (tasks, time),
            }
        }
    }

    #[test]
    fn everything_is_listed_at_first_and_again_after_the_interval() {
        let (mut table, now) = table();
        let (tasks, next) = drain(&mut table, now);
        assert_eq!(tasks, Part::ALL.map(|part| Task::List(part, 1)));
        assert_eq!(next, now + ViewOptions::default().interval);
        assert_eq!(drain(&mut table, next).0, Part::ALL.map(|part| Task::List(part, 2)));
    }

    #[test]
    fn a_write_during_a_listing_asks_for_another_one() {
        let (mut table, now) = table();
        drain(&mut table, now);
        assert_eq!(table.touch(Part::Aggregates), 2);
        let Next::Do(begun) = table.next(now) else { panic!("nothing to do") };
        assert_eq!(begun, Task::List(Part::Aggregates, 2));
        assert_eq!(table.touch(Part::Aggregates), 3, "the listing that runs may have missed the write");
        table.done(&begun, now, None);
        assert_eq!(drain(&mut table, now).0, [Task::List(Part::Aggregates, 3)]);
    }

    #[test]
    fn a_failing_part_is_asked_more_and_more_seldom_and_as_the_cloud_wishes() {
        let (mut table, mut now) = table();
        let mut waits = Vec::new();
        for wish in [None, None, Some(Duration::from_secs(90)), None, None, None] {
            let Next::Do(task) = table.next(now) else { panic!("nothing to do") };
            assert!(matches!(task, Task::List(Part::Services, _)));
            table.done(&task, now, Some(wish));
            table.touch(Part::Services);
            // The other parts do not wait for it.
            drain(&mut table, now);
            let slot = table.slot(Part::Services);
            let then = slot.not_before.unwrap();
            waits.push((then - now).as_secs());
            now = then;
        }
        assert_eq!(waits, [2, 4, 90, 16, 30, 30]);
    }

    #[test]
    fn traits_are_read_one_by_one_the_oldest_first_and_never_faster_than_allowed() {
        let (mut table, start) = table();
        drain(&mut table, start);
        let ids = ["a", "b", "c"].map(ProviderId::from);
        table.set_providers(&ids.clone().into());
        let mut read = Vec::new();
        let mut now = start;
        while read.len() < 6 {
            let (tasks, next) = drain(&mut table, now);
            let traits = tasks.into_iter().filter(|task| matches!(task, Task::Traits(_)));
            read.extend(traits.map(|task| (task, (now - start).as_secs())));
            now = next;
        }
        let expected = [("a", 0), ("b", 1), ("c", 2), ("a", 300), ("b", 301), ("c", 302)];
        assert_eq!(read, expected.map(|(id, second)| (Task::Traits(id.into()), second)));

        table.touch_traits(&ids[1]);
        table.set_providers(&ids[1..].iter().cloned().collect());
        let (tasks, _) = drain(&mut table, now + Duration::from_secs(1));
        assert!(tasks.contains(&Task::Traits(ids[1].clone())), "{tasks:?}");
    }

    #[test]
    fn a_provider_that_cannot_be_read_does_not_hold_the_others_up() {
        let (mut table, now) = table();
        drain(&mut table, now);
        table.set_providers(&["a", "b"].map(ProviderId::from).into());
        let Next::Do(first) = table.next(now) else { panic!("nothing to do") };
        table.done(&first, now, Some(None));
        let later = now + ViewOptions::default().retry;
        let Next::Do(second) = table.next(later) else { panic!("nothing to do") };
        assert_ne!(first, second);
    }
}
