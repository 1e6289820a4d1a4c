//! The past of one bucket: bounded by events and by bytes, and small where it is old.
//!
//! A parsed object takes several times the memory of its JSON. The newest events keep their objects whole, since that
//! is where watchers read; behind them the log keeps the JSON alone, which it shares with whatever was sent.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use super::object::{Key, Object, line};

/// How far back events keep their objects whole.
const WHOLE: usize = 512;

/// How much is remembered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A state of an object as the log remembers it.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Whole(Arc<Object>),
    /// Where it lived, its revision and its JSON.
    Packed(Arc<(Key, u64, Bytes)>),
}

impl State {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Whole(object) => &object.key,
            Self::Packed(packed) => &packed.0,
        }
    }

    /// The object, parsed again if it was packed.
    pub(crate) fn object(&self) -> Arc<Object> {
        match self {
            Self::Whole(object) => object.clone(),
            Self::Packed(packed) => {
                let (key, revision, json) = &**packed;
                // Our own encoding of a value is a value.
                let value = serde_json::from_slice(json).unwrap_or(Value::Null);
                Arc::new(Object::decoded(key.clone(), *revision, value, json.clone()))
            }
        }
    }

    fn packed(&self) -> Self {
        match self {
            Self::Whole(object) => Self::Packed(Arc::new((object.key.clone(), object.revision, object.json()))),
            Self::Packed(_) => self.clone(),
        }
    }
}

/// One entry of the log.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) revision: u64,
    pub(crate) change: Change,
    /// The new state; for a deletion the last state under the deletion's revision.
    pub(crate) object: State,
    /// The state before, absent for a creation.
    pub(crate) previous: Option<State>,
    /// When it happened, for watches that lag on purpose.
    pub(crate) at: Instant,
    size: usize,
    line: OnceLock<Bytes>,
}

impl Event {
    pub(crate) fn new(change: Change, object: &Arc<Object>, previous: Option<Arc<Object>>) -> Self {
        Self {
            revision: object.revision,
            change,
            object: State::Whole(object.clone()),
            previous: previous.map(State::Whole),
            at: Instant::now(),
            size: object.size,
            line: OnceLock::new(),
        }
    }

    /// The event as one line of a watch, shared by all watchers that see it unchanged.
    pub(crate) fn line(&self, object: &Object) -> Bytes {
        self.line.get_or_init(|| line(self.change.name(), &object.json())).clone()
    }

    /// The same without what can be made again. The present state of an object is whole anyway.
    fn packed(&self, present: bool) -> Self {
        Self {
            object: if present { self.object.clone() } else { self.object.packed() },
            previous: self.previous.as_ref().map(State::packed),
            line: OnceLock::new(),
            ..*self
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Log {
    events: VecDeque<Arc<Event>>,
    /// Everything after this revision is in the log.
    pub(super) floor: u64,
    bytes: usize,
}

impl Log {
    pub(super) fn new(floor: u64) -> Self {
        Self { events: VecDeque::new(), floor, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Where the events after a revision begin.
    pub(super) fn after(&self, revision: u64) -> usize {
        self.events.partition_point(|event| event.revision <= revision)
    }

    pub(super) fn from(&self, index: usize) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.events.range(index..)
    }

    pub(super) fn clear(&mut self, floor: u64) {
        *self = Self::new(floor);
    }

    /// Adds an event. `is_present` tells whether a state is that of an object as it is now stored.
    pub(super) fn append(&mut self, event: Event, bounds: Bounds, is_present: impl Fn(&Key, u64) -> bool) {
        let superseded = event.previous.as_ref().map(|state| state.object().revision);
        self.bytes += event.size;
        self.events.push_back(Arc::new(event));
        while self.events.len() > bounds.events || (self.bytes > bounds.bytes && self.events.len() > 1) {
            if let Some(oldest) = self.events.pop_front() {
                self.floor = oldest.revision;
                self.bytes -= oldest.size;
            }
        }
        let Some(old) = self.events.len().checked_sub(WHOLE + 1) else { return };
        self.pack(old, &is_present);
        // The state this event replaced was present until now: its own event may have been passed over.
        if let Some(revision) = superseded {
            let at = self.events.partition_point(|event| event.revision < revision);
            if at < old && self.events[at].revision == revision {
                self.pack(at, &is_present);
            }
        }
    }

    fn pack(&mut self, index: usize, is_present: impl Fn(&Key, u64) -> bool) {
        let event = &mut self.events[index];
        let present = is_present(event.object.key(), event.revision);
        *event = Arc::new(event.packed(present));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLENTY: Bounds = Bounds { events: usize::MAX, bytes: usize::MAX };

    fn object(name: &str, revision: u64) -> Arc<Object> {
        let value = json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}, "float": 1.5});
        Arc::new(Object::new(Key::new("", name), revision, value))
    }

    fn is_whole(log: &Log, index: usize) -> bool {
        matches!(log.events[index].object, State::Whole(_))
    }

    #[test]
    fn only_new_events_and_present_objects_are_whole() {
        let mut log = Log::new(0);
        let (still, mut changing) = (object("still", 1), object("changing", 2));
        log.append(Event::new(Change::Added, &still, None), PLENTY, |_, _| true);
        log.append(Event::new(Change::Added, &changing, None), PLENTY, |_, _| true);
        for revision in 3..1000 {
            let next = object("changing", revision);
            let event = Event::new(Change::Modified, &next, Some(changing));
            log.append(event, PLENTY, |key, at| key.name == "still" || at == revision);
            changing = next;
        }
        assert!(is_whole(&log, 0) && !is_whole(&log, 1) && !is_whole(&log, 100) && is_whole(&log, log.len() - 1));
        let old = &log.events[100];
        let states = [old.object.object(), old.previous.as_ref().unwrap().object()];
        assert_eq!(
            states.map(|state| state.value.clone()),
            [object("changing", 101), object("changing", 100)].map(|o| o.value.clone())
        );
        // Once it changes, its old event is packed too, however long ago it was.
        let next = object("still", 1000);
        log.append(Event::new(Change::Modified, &next, Some(still)), PLENTY, |_, at| at >= 999);
        assert!(!is_whole(&log, 0));
    }

    #[test]
    fn the_log_is_bounded_by_bytes() {
        let mut log = Log::new(0);
        let size = object("a", 1).size;
        let bounds = Bounds { events: 100, bytes: size * 3 };
        for revision in 1..=9 {
            log.append(Event::new(Change::Added, &object("a", revision), None), bounds, |_, _| false);
        }
        assert_eq!((log.len(), log.floor, log.bytes), (3, 6, size * 3));
        let big = Object::new(Key::new("", "b"), 10, json!({"data": "x".repeat(1000)}));
        log.append(Event::new(Change::Added, &Arc::new(big), None), bounds, |_, _| false);
        assert_eq!((log.len(), log.floor), (1, 9), "the last event is never lost");
    }
}
