//! Which Events become one, and which are too many. Pure; time is passed in.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{Event, Severity};

/// The bounds of an [`Aggregator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The same Event within this time counts up the first one.
    pub window: Duration,
    /// So many different messages for one object, reason and action; the rest is combined.
    pub messages: usize,
    /// So many Events of one object at once.
    pub burst: u32,
    /// After that, one more each time this has passed.
    pub refill: Duration,
    /// So many Events, groups and objects are remembered.
    pub remembered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(600),
            messages: 10,
            burst: 25,
            refill: Duration::from_secs(300),
            remembered: 4096,
        }
    }
}

/// What to do with an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a new object, and report its name with [`Aggregator::created`].
    Create {
        /// Whose name it is.
        key: EventKey,
    },
    /// Count an existing one up.
    Repeat {
        /// Which one.
        key: EventKey,
        /// Its object.
        name: String,
        /// How often it has happened.
        count: i32,
    },
    /// Too many of this object; nothing is sent.
    Drop,
}

type ObjectId = (Option<String>, Option<String>, Option<String>);

/// What makes two Events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventKey {
    group: GroupKey,
    note: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    object: ObjectId,
    uid: Option<String>,
    severity: Severity,
    reason: String,
    action: String,
}

#[derive(Debug)]
struct Series {
    name: Option<String>,
    count: i32,
    last: Instant,
}

#[derive(Debug)]
struct Group {
    notes: HashSet<String>,
    last: Instant,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

/// Decides what becomes of Events.
#[derive(Debug)]
pub struct Aggregator {
    limits: Limits,
    series: HashMap<EventKey, Series>,
    groups: HashMap<GroupKey, Group>,
    buckets: HashMap<ObjectId, Bucket>,
}

impl Aggregator {
    /// One that has seen nothing.
    pub fn new(limits: Limits) -> Self {
        Self { limits, series: HashMap::new(), groups: HashMap::new(), buckets: HashMap::new() }
    }

    /// Takes note of an Event. Its text is changed when it is combined with others.
    pub fn observe(&mut self, event: &mut Event, now: Instant) -> Step {
        self.expire(now);
        let object = (event.regarding.kind.clone(), event.regarding.namespace.clone(), event.regarding.name.clone());
        let group = GroupKey {
            object: object.clone(),
            uid: event.regarding.uid.clone(),
            severity: event.severity,
            reason: event.reason.clone(),
            action: event.action.clone(),
        };
        let combined = {
            let known = self.groups.entry(group.clone()).or_insert_with(|| Group { notes: HashSet::new(), last: now });
            known.last = now;
            let full = known.notes.len() >= self.limits.messages && !known.notes.contains(&event.note);
            if !full {
                known.notes.insert(event.note.clone());
            }
            full
        };
        if combined {
            event.note = format!("(combined from similar events): {}", event.note);
        }
        let note = if combined { String::new() } else { event.note.clone() };
        let key = EventKey { group, note };
        let allowed = self.allow(object, now);
        let series = self.series.entry(key.clone()).or_insert_with(|| Series { name: None, count: 0, last: now });
        series.count = series.count.saturating_add(1);
        series.last = now;
        match &series.name {
            _ if !allowed => Step::Drop,
            Some(name) => Step::Repeat { name: name.clone(), count: series.count, key },
            None => Step::Create { key },
        }
    }

    /// The Event has been written as the object `name`.
    pub fn created(&mut self, key: &EventKey, name: String) {
        if let Some(series) = self.series.get_mut(key) {
            series.name = Some(name);
            series.count = 1;
        }
    }

    /// The Event could not be written.
    pub fn forget(&mut self, key: &EventKey) {
        self.series.remove(key);
    }

    fn allow(&mut self, object: ObjectId, now: Instant) -> bool {
        let full = f64::from(self.limits.burst);
        let bucket = self.buckets.entry(object).or_insert(Bucket { tokens: full, filled: now });
        let gained = (now - bucket.filled).as_secs_f64() / self.limits.refill.as_secs_f64();
        bucket.tokens = (bucket.tokens + gained).min(full);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }

    /// Forgets what is old; and the oldest, when there is too much.
    fn expire(&mut self, now: Instant) {
        let window = self.limits.window;
        let most = self.limits.remembered;
        // Only when there is something to gain: this runs for every Event.
        if self.series.len() >= most || self.series.values().any(|series| now - series.last > window) {
            self.series.retain(|_, series| now - series.last <= window);
            trim(&mut self.series, most, |series| series.last);
            self.groups.retain(|_, group| now - group.last <= window);
            trim(&mut self.groups, most, |group| group.last);
        }
        if self.buckets.len() >= most {
            // A bucket that has been refilled says nothing any more.
            let (refill, burst) = (self.limits.refill, self.limits.burst);
            self.buckets.retain(|_, bucket| now - bucket.filled < refill.saturating_mul(burst));
            trim(&mut self.buckets, most, |bucket| bucket.filled);
        }
    }
}

fn trim<K: Clone + Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>, most: usize, age: impl Fn(&V) -> Instant) {
    if map.len() < most {
        return;
    }
    let mut ages: Vec<Instant> = map.values().map(&age).collect();
    ages.sort_unstable();
    // Makes room for a tenth at a time, or a full map would be sorted for every Event.
    let cut = ages[(most / 10).min(ages.len() - 1)];
    map.retain(|_, value| age(value) > cut);
}

#[cfg(test)]
mod tests;
