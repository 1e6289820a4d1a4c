//! Which Events become one, and which are too many. Pure; time is passed in.

use std::{
    collections::{HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    time::Duration,
};

use tokio::time::Instant;

use super::Event;

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

/// What makes two Events the same: a digest of it, for thousands are remembered for minutes and their texts are long.
/// With 128 bits two different ones are never mixed up in practice, and if they were, one would count as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventKey(u64, u64);

impl EventKey {
    fn of(what: impl Hash) -> Self {
        let digest = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            what.hash(&mut hasher);
            hasher.finish()
        };
        Self(digest(0), digest(1))
    }
}

#[derive(Debug)]
struct Series {
    name: Option<String>,
    count: i32,
    last: Instant,
}

#[derive(Debug)]
struct Group {
    notes: HashSet<EventKey>,
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
    groups: HashMap<EventKey, Group>,
    buckets: HashMap<EventKey, Bucket>,
}

impl Aggregator {
    /// One that has seen nothing.
    pub fn new(limits: Limits) -> Self {
        Self { limits, series: HashMap::new(), groups: HashMap::new(), buckets: HashMap::new() }
    }

    /// Takes note of an Event. Its text is changed when it is combined with others.
    pub fn observe(&mut self, event: &mut Event, now: Instant) -> Step {
        self.expire(now);
        let regarding = &event.regarding;
        let object = EventKey::of((&regarding.kind, &regarding.namespace, &regarding.name));
        let group = EventKey::of((object, &regarding.uid, event.severity, &event.reason, &event.action));
        let note = EventKey::of(&event.note);
        let combined = {
            let known = self.groups.entry(group).or_insert_with(|| Group { notes: HashSet::new(), last: now });
            known.last = now;
            let full = known.notes.len() >= self.limits.messages && !known.notes.contains(&note);
            if !full {
                known.notes.insert(note);
            }
            full
        };
        if combined {
            event.note = format!("(combined from similar events): {}", event.note);
        }
        let key = EventKey::of((group, (!combined).then_some(note)));
        let allowed = self.allow(object, now);
        let series = self.series.entry(key).or_insert_with(|| Series { name: None, count: 0, last: now });
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

    fn allow(&mut self, object: EventKey, now: Instant) -> bool {
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

fn trim<K: Clone + Eq + Hash, V>(map: &mut HashMap<K, V>, most: usize, age: impl Fn(&V) -> Instant) {
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
