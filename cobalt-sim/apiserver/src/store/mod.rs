//! The store: buckets of objects under one revision counter, each with a bounded log of events.
//!
//! Watches do not own queues. A watch remembers the revision it has seen and reads on in the log when its bucket
//! changes, so ten thousand events and fifty watchers share the same memory, and a watcher that falls behind the
//! log learns it the way Kubernetes tells it: 410.

mod log;
mod object;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::{Notify, watch};

use log::Log;
pub(crate) use log::{Bounds, Change, Event, State};
pub(crate) use object::{Key, Object, approximate_size, encode, line};
pub(crate) use work::{BUDGETS, DEFINITIONS, NAMESPACES, ObjectRef, PODS, POLICIES, Work};

/// Objects of one resource.
#[derive(Debug)]
struct Bucket {
    objects: BTreeMap<Key, Arc<Object>>,
    log: Log,
    changed: watch::Sender<u64>,
    /// The resource is no longer served: watches read the rest of the log and end.
    closed: bool,
}

#[derive(Debug, Default)]
struct Contents {
    revision: u64,
    buckets: HashMap<String, Bucket>,
    /// Live objects by uid.
    uids: HashMap<String, ObjectRef>,
    /// Dependents by the uid of their owner.
    dependents: HashMap<String, BTreeSet<ObjectRef>>,
    work: VecDeque<Work>,
    /// The same items, so that each is queued once.
    queued: HashSet<Work>,
    /// Work handed out and not yet reported done.
    busy: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<Contents>,
    bounds: Bounds,
    pub(crate) wake: Arc<Notify>,
    pub(crate) idle: Notify,
}

/// The expected state at commit time differs from the stored one: read again and decide again.
#[derive(Debug)]
pub(crate) struct Raced;

/// Why a past state cannot be shown.
#[derive(Debug)]
pub(crate) struct Forgotten {
    /// The oldest revision that can be shown.
    pub(crate) floor: u64,
}

/// A piece of a bucket's log.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Arc<Event>>,
    /// The revision up to which nothing else happened.
    pub(crate) seen: u64,
    /// Nothing will follow: the resource is no longer served.
    pub(crate) last: bool,
}

/// An object of a past state: one that did not change since, or one from the log.
enum Past<'a> {
    Present(&'a Arc<Object>),
    Logged(&'a State),
}

/// What a list shows.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) revision: u64,
}

impl Store {
    pub(crate) fn new(bounds: Bounds, first_revision: u64) -> Self {
        let state = Contents { revision: first_revision, ..Contents::default() };
        Self { state: Mutex::new(state), bounds, wake: Arc::default(), idle: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Makes a bucket unless it is there.
    pub(crate) fn add_bucket(&self, bucket: &str) {
        let mut state = self.lock();
        if state.buckets.get(bucket).is_some_and(|b| !b.closed) {
            return;
        }
        let revision = state.revision;
        let fresh = Bucket {
            objects: BTreeMap::new(),
            log: Log::new(revision),
            changed: watch::Sender::new(revision),
            closed: false,
        };
        state.buckets.insert(bucket.to_owned(), fresh);
    }

    /// Ends the watches of an empty bucket once they have read its log.
    pub(crate) fn close_bucket(&self, bucket: &str) {
        let mut state = self.lock();
        let revision = state.revision;
        if let Some(bucket) = state.buckets.get_mut(bucket) {
            bucket.closed = true;
            bucket.changed.send_replace(revision);
        }
    }

    pub(crate) fn get(&self, bucket: &str, key: &Key) -> Option<Arc<Object>> {
        self.lock().buckets.get(bucket)?.objects.get(key).cloned()
    }

    pub(crate) fn by_uid(&self, uid: &str) -> Option<(ObjectRef, Arc<Object>)> {
        let state = self.lock();
        let found = state.uids.get(uid)?.clone();
        let object = state.buckets.get(&found.bucket)?.objects.get(&found.key)?;
        Some((found, object.clone()))
    }

    pub(crate) fn dependents(&self, uid: &str) -> Vec<ObjectRef> {
        let state = self.lock();
        let found = state.dependents.get(uid);
        found.into_iter().flatten().cloned().collect()
    }

    /// Whether any object lives in the namespace, and where.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Vec<ObjectRef> {
        let state = self.lock();
        let mut found = Vec::new();
        for (name, bucket) in &state.buckets {
            for object in bucket.range(Some(namespace)) {
                found.push(ObjectRef::new(name, object.key.clone()));
            }
        }
        found.sort();
        found
    }

    /// Stores `value` if the object is still at `expected` (`None`: absent). The new revision is written into it.
    pub(crate) fn put(
        &self,
        bucket: &str,
        key: &Key,
        expected: Option<u64>,
        mut value: Value,
    ) -> Result<Arc<Object>, Raced> {
        let mut state = self.lock();
        let revision = state.revision + 1;
        let Some(slot) = state.buckets.get_mut(bucket) else {
            return Err(Raced);
        };
        let previous = slot.objects.get(key).cloned();
        if previous.as_ref().map(|o| o.revision) != expected {
            return Err(Raced);
        }
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let object = Arc::new(Object::new(key.clone(), revision, value));
        slot.objects.insert(key.clone(), object.clone());
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        slot.append(Event::new(change, &object, previous.clone()), self.bounds);
        state.revision = revision;
        let at = ObjectRef::new(bucket, key.clone());
        state.index(&at, previous.as_deref(), Some(&object));
        if state.plan(&at, Some(&object), previous.as_deref()) {
            self.wake.notify_one();
        }
        Ok(object)
    }

    /// Removes the object if it is still at `expected`. The answer is the last state under the deletion's revision.
    pub(crate) fn remove(&self, bucket: &str, key: &Key, expected: u64) -> Result<Arc<Object>, Raced> {
        let mut state = self.lock();
        let revision = state.revision + 1;
        let Some(slot) = state.buckets.get_mut(bucket) else {
            return Err(Raced);
        };
        let previous = match slot.objects.get(key) {
            Some(object) if object.revision == expected => object.clone(),
            _ => return Err(Raced),
        };
        slot.objects.remove(key);
        let mut value = previous.value.clone();
        value["metadata"]["resourceVersion"] = revision.to_string().into();
        let object = Arc::new(Object::new(key.clone(), revision, value));
        slot.append(Event::new(Change::Deleted, &object, Some(previous.clone())), self.bounds);
        state.revision = revision;
        let at = ObjectRef::new(bucket, key.clone());
        state.index(&at, Some(&previous), None);
        if state.plan(&at, None, Some(&previous)) {
            self.wake.notify_one();
        }
        Ok(object)
    }

    /// The objects of a bucket, now or at a past revision.
    pub(crate) fn snapshot(
        &self,
        bucket: &str,
        namespace: Option<&str>,
        at: Option<u64>,
    ) -> Result<Snapshot, Forgotten> {
        let state = self.lock();
        let Some(slot) = state.buckets.get(bucket) else {
            return Ok(Snapshot { objects: Vec::new(), revision: state.revision });
        };
        let Some(at) = at.filter(|at| *at < state.revision) else {
            return Ok(Snapshot {
                objects: slot.range(namespace).cloned().collect(),
                revision: at.unwrap_or(state.revision),
            });
        };
        if at < slot.log.floor {
            return Err(Forgotten { floor: slot.log.floor });
        }
        let present = slot.range(namespace);
        let mut objects: BTreeMap<&Key, Past<'_>> = present.map(|o| (&o.key, Past::Present(o))).collect();
        // Undo what happened since, newest first.
        for event in slot.log.from(slot.log.after(at)).rev() {
            let key = event.object.key();
            if namespace.is_some_and(|ns| key.namespace != ns) {
                continue;
            }
            match &event.previous {
                Some(previous) => objects.insert(key, Past::Logged(previous)),
                None => objects.remove(key),
            };
        }
        let objects = objects.into_values().map(|object| match object {
            Past::Present(object) => object.clone(),
            Past::Logged(state) => state.object(),
        });
        Ok(Snapshot { objects: objects.collect(), revision: at })
    }

    /// Reports of changes in a bucket, as the store's revision after each.
    pub(crate) fn subscribe(&self, bucket: &str) -> Option<watch::Receiver<u64>> {
        Some(self.lock().buckets.get(bucket)?.changed.subscribe())
    }

    /// At most `limit` events after `revision`, oldest first.
    pub(crate) fn events_after(&self, bucket: &str, revision: u64, limit: usize) -> Result<Batch, Forgotten> {
        let state = self.lock();
        let Some(slot) = state.buckets.get(bucket) else {
            return Ok(Batch { events: Vec::new(), seen: revision, last: true });
        };
        if revision < slot.log.floor {
            return Err(Forgotten { floor: slot.log.floor });
        }
        let first = slot.log.after(revision);
        let events: Vec<_> = slot.log.from(first).take(limit).cloned().collect();
        let complete = first + events.len() == slot.log.len();
        let seen = match events.last() {
            Some(last) if !complete => last.revision,
            _ => state.revision.max(revision),
        };
        Ok(Batch { events, seen, last: complete && slot.closed })
    }

    /// Forgets all past events, as a restart of the real server does: older revisions now answer 410.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        let revision = state.revision;
        for bucket in state.buckets.values_mut() {
            bucket.log.clear(revision);
        }
    }

    /// Changes the form of stored objects without a new revision, as a new schema default does. Nobody is told.
    pub(crate) fn reshape(&self, bucket: &str, reshape: impl Fn(&Value) -> Option<Value>) {
        let snapshot = self.snapshot(bucket, None, None);
        let reshaped: Vec<(Arc<Object>, Value)> = snapshot
            .map(|s| s.objects)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|object| reshape(&object.value).map(|value| (object, value)))
            .collect();
        let mut state = self.lock();
        let Some(slot) = state.buckets.get_mut(bucket) else {
            return;
        };
        for (old, value) in reshaped {
            // Who was written meanwhile has the new form already.
            if let Some(present) = slot.objects.get_mut(&old.key)
                && present.revision == old.revision
            {
                *present = Arc::new(Object::new(old.key.clone(), old.revision, value));
            }
        }
    }

    /// The number of objects in a bucket.
    pub(crate) fn len(&self, bucket: &str) -> usize {
        let state = self.lock();
        state.buckets.get(bucket).map_or(0, |b| b.objects.len())
    }
}

impl Bucket {
    fn range(&self, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Object>> {
        let start = match namespace {
            Some(namespace) => Bound::Included(Key::new(namespace, "")),
            None => Bound::Unbounded,
        };
        self.objects
            .range((start, Bound::Unbounded))
            .map(|(_, object)| object)
            .take_while(move |o| namespace.is_none_or(|ns| o.key.namespace == ns))
    }

    fn append(&mut self, event: Event, bounds: Bounds) {
        let revision = event.revision;
        let objects = &self.objects;
        self.log.append(event, bounds, |key, at| objects.get(key).is_some_and(|object| object.revision == at));
        self.changed.send_replace(revision);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store() -> Store {
        let store = Store::new(Bounds { events: 4, bytes: usize::MAX }, 10);
        store.add_bucket("things");
        store
    }

    fn put(store: &Store, name: &str, expected: Option<u64>) -> u64 {
        let value = json!({"metadata": {"name": name, "uid": name}});
        let key = Key::new("", name);
        store.put("things", &key, expected, value).unwrap().revision
    }

    #[test]
    fn one_counter_serves_all_buckets() {
        let store = store();
        store.add_bucket("others");
        assert_eq!(put(&store, "a", None), 11);
        let key = Key::new("", "b");
        let other = store.put("others", &key, None, json!({"metadata": {}}));
        assert_eq!(other.unwrap().revision, 12);
        assert_eq!(store.revision(), 12);
    }

    #[test]
    fn a_commit_against_another_state_is_refused() {
        let store = store();
        let first = put(&store, "a", None);
        let key = Key::new("", "a");
        assert!(store.put("things", &key, None, json!({"metadata": {}})).is_err());
        put(&store, "a", Some(first));
        assert!(store.remove("things", &key, first).is_err());
    }

    #[test]
    fn a_past_state_is_rebuilt_from_the_log() {
        let store = store();
        let one = put(&store, "a", None);
        let two = put(&store, "b", None);
        put(&store, "a", Some(one));
        store.remove("things", &Key::new("", "b"), two).unwrap();
        let past = store.snapshot("things", None, Some(two)).unwrap();
        let seen: Vec<_> = past.objects.iter().map(|o| (o.key.name.as_str(), o.revision)).collect();
        assert_eq!(seen, [("a", one), ("b", two)]);
        assert_eq!(store.snapshot("things", None, None).unwrap().objects.len(), 1);
    }

    #[test]
    fn events_beyond_the_capacity_are_forgotten() {
        let store = store();
        let mut revision = put(&store, "a", None);
        for _ in 0..5 {
            revision = put(&store, "a", Some(revision));
        }
        assert!(store.events_after("things", 10, 100).is_err());
        let batch = store.events_after("things", revision - 2, 100).unwrap();
        assert_eq!((batch.events.len(), batch.seen), (2, revision));
        store.compact();
        assert!(store.events_after("things", revision - 1, 100).is_err());
        assert!(store.events_after("things", revision, 100).is_ok());
    }

    #[test]
    fn a_limited_read_of_the_log_stops_at_its_last_event() {
        let store = store();
        let first = put(&store, "a", None);
        put(&store, "b", None);
        let batch = store.events_after("things", 10, 1).unwrap();
        assert_eq!((batch.events.len(), batch.seen), (1, first));
    }

    #[test]
    fn an_event_is_encoded_once() {
        let store = store();
        put(&store, "a", None);
        let batch = store.events_after("things", 10, 1).unwrap();
        let event = &batch.events[0];
        let object = event.object.object();
        assert_eq!(event.line(&object).as_ptr(), event.line(&object).as_ptr());
    }
}
