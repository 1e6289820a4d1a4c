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
    Servers(ProviderId),
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

/// Providers that are asked about one after the other, the oldest knowledge first, never faster than a pace.
#[derive(Debug)]
struct Round {
    /// When to read each again; `None` is now.
    due: BTreeMap<ProviderId, Option<Instant>>,
    /// No read before this.
    next: Instant,
    retry: Duration,
}

impl Round {
    fn new(now: Instant, retry: Duration) -> Self {
        Self { due: BTreeMap::new(), next: now, retry }
    }

    /// Whose turn it is, and when.
    fn turn(&self, now: Instant) -> Option<(&ProviderId, Instant)> {
        // Never read comes before read long ago.
        let (id, due) = self.due.iter().min_by_key(|(_, due)| **due)?;
        Some((id, due.unwrap_or(now).max(self.next)))
    }

    /// A read is over. A provider whose read fails goes to the back, so that it cannot keep the others from being read.
    #[expect(clippy::option_option, reason = "failed or not, and then with a wish or without")]
    fn done(
        &mut self,
        id: &ProviderId,
        now: Instant,
        age: Duration,
        failed: Option<Option<Duration>>,
        of: &ViewOptions,
    ) {
        let pace = of.trait_interval;
        match failed {
            None => (self.retry, self.next) = (of.retry, now + pace),
            Some(wish) => {
                self.next = now + wish.unwrap_or_default().max(self.retry).max(pace);
                self.retry = (self.retry * 2).min(of.interval.max(of.retry));
            }
        }
        if let Some(due) = self.due.get_mut(id) {
            *due = Some(now + age);
        }
    }
}

#[derive(Debug)]
pub(super) struct Timetable {
    options: ViewOptions,
    slots: [Slot; 3],
    traits: Round,
    servers: Round,
}

impl Timetable {
    pub(super) fn new(options: ViewOptions, now: Instant) -> Self {
        let retry = options.retry;
        let slot = |part| Slot { part, begun: 0, due: now, touched: false, not_before: None, retry };
        Self { slots: Part::ALL.map(slot), traits: Round::new(now, retry), servers: Round::new(now, retry), options }
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
        if let Some(due) = self.traits.due.get_mut(id) {
            *due = None;
        }
    }

    /// Reads a provider's servers too, or no longer; tells whether there is something new to be read.
    pub(super) fn follow_servers(&mut self, id: &ProviderId, wanted: bool) -> bool {
        if !wanted {
            self.servers.due.remove(id);
        } else if !self.servers.due.contains_key(id) {
            self.servers.due.insert(id.clone(), None);
            return true;
        }
        false
    }

    /// Those whose servers are read.
    pub(super) fn followed(&self) -> BTreeSet<ProviderId> {
        self.servers.due.keys().cloned().collect()
    }

    /// The providers there are: new ones are due at once, those that are gone are forgotten.
    pub(super) fn set_providers(&mut self, known: &BTreeSet<ProviderId>) {
        self.traits.due.retain(|id, _| known.contains(id));
        self.servers.due.retain(|id, _| known.contains(id));
        for id in known {
            self.traits.due.entry(id.clone()).or_default();
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
        // Somebody waits for these.
        if let Some((id, time)) = self.servers.turn(now) {
            if time <= now {
                return Next::Do(Task::Servers(id.clone()));
            }
            earliest = earliest.min(time);
        }
        if let Some((id, time)) = self.traits.turn(now) {
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
            Task::Traits(id) => self.traits.done(id, now, self.options.trait_age, failed, &self.options),
            Task::Servers(id) => self.servers.done(id, now, interval, failed, &self.options),
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
    fn servers_are_read_of_those_alone_that_are_followed_and_at_the_pace_of_traits() {
        let (mut table, now) = table();
        drain(&mut table, now);
        let ids = ["a", "b", "c"].map(ProviderId::from);
        table.set_providers(&ids.clone().into());
        assert!(table.follow_servers(&ids[0], true) && table.follow_servers(&ids[1], true));
        assert!(!table.follow_servers(&ids[0], true), "it is followed already");
        let servers = |tasks: Vec<Task>| tasks.into_iter().filter(|task| matches!(task, Task::Servers(_))).collect();
        let (first, next) = drain(&mut table, now);
        let first: Vec<Task> = servers(first);
        assert_eq!(first, [Task::Servers(ids[0].clone())]);
        assert_eq!(next, now + ViewOptions::default().trait_interval);
        let second: Vec<Task> = servers(drain(&mut table, next).0);
        assert_eq!(second, [Task::Servers(ids[1].clone())]);
        table.follow_servers(&ids[0], false);
        let later: Vec<Task> = servers(drain(&mut table, next + ViewOptions::default().interval).0);
        assert_eq!(later, [Task::Servers(ids[1].clone())]);
        // One that Nova does not know any more is forgotten.
        table.set_providers(&[ids[0].clone()].into());
        assert!(table.followed().is_empty());
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
