//! Who did what, as Events on the OVSNode and as lines of the log.
//!
//! The log has every one. Events are merged and limited in rate by their recorder; so that repeats are merged, a note
//! says nothing that differs from one time to the next.
//!
//! Reads are many and change nothing: a page that refreshes itself must not push what matters out of the Events. So only
//! the first read of a caller in a while is an Event, and not of every caller there is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client, Resource};
use tokio::time::Instant;

use super::guard::Caller;
use crate::{
    api::OVSNode,
    runtime::{
        events::{Event, Recorder, Severity},
        lock,
        watch::ObjectKey,
    },
};

/// How long the object's uid is believed.
const KNOWN: Duration = Duration::from_secs(60);
/// The longest time to ask for it.
const ASK: Duration = Duration::from_secs(5);

/// The next read of the same caller is an Event again after this long.
const READS: Duration = Duration::from_secs(600);
/// Of so many callers within that time.
const READERS: usize = 10;

/// Takes notes.
#[derive(Clone)]
pub(super) struct Auditor {
    client: Client,
    object: ObjectKey,
    recorder: Recorder,
    known: Arc<Mutex<Option<(ObjectReference, Instant)>>>,
    /// Who has read what lately, and since when that is told.
    readers: Arc<Mutex<Readers>>,
}

/// What was done, in words of Events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    pub(super) action: &'static str,
    pub(super) reason: &'static str,
    pub(super) severity: Severity,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Read {
    /// How the switch is.
    State,
    /// Packets that were captured and kept, or that there are some.
    Captures,
}

type Readers = HashMap<(String, Read), Instant>;

impl Auditor {
    pub(super) fn new(client: Client, object: ObjectKey, recorder: Recorder) -> Self {
        Self { client, object, recorder, known: Arc::default(), readers: Arc::default() }
    }

    /// Notes what a caller did, or was refused.
    pub(super) async fn note(&self, caller: &Caller, deed: Deed, what: &str) {
        let about = self.about().await;
        self.put(about, &caller.name, deed, what);
    }

    /// Notes that a caller reads something.
    pub(super) async fn read(&self, caller: &Caller, read: Read, what: &'static str) {
        let (action, reason, told) = match read {
            Read::State => ("Diagnose", "SwitchRead", "reads the state of the switch"),
            Read::Captures => ("Capture", "CapturesRead", "sees to captures that are kept"),
        };
        let deed = Deed { action, reason, severity: Severity::Normal };
        tracing::info!(
            user = caller.name,
            action = deed.action,
            reason = deed.reason,
            node = self.object.name,
            what,
            "audit"
        );
        if is_news(&mut lock(&self.readers), &caller.name, read, Instant::now()) {
            let about = self.about().await;
            self.recorder.publish(event(about, &caller.name, deed, told));
        }
    }

    /// Learns what Events are about, for notes that cannot wait.
    pub(super) async fn know(&self) {
        self.about().await;
    }

    /// The same without waiting, for the end of something.
    pub(super) fn put_now(&self, caller: &str, deed: Deed, what: &str) {
        let known = lock(&self.known).as_ref().map(|(about, _)| about.clone());
        self.put(known.unwrap_or_else(|| self.nameless()), caller, deed, what);
    }

    fn put(&self, about: ObjectReference, caller: &str, deed: Deed, what: &str) {
        let Deed { action, reason, .. } = deed;
        tracing::info!(user = caller, action, reason, node = self.object.name, what, "audit");
        self.recorder.publish(event(about, caller, deed, what));
    }

    async fn about(&self) -> ObjectReference {
        if let Some((about, since)) = lock(&self.known).clone()
            && since.elapsed() < KNOWN
        {
            return about;
        }
        let namespace = self.object.namespace.as_deref().unwrap_or("default");
        let nodes: Api<OVSNode> = Api::namespaced(self.client.clone(), namespace);
        let mut about = self.nameless();
        // Without its uid the Event is still found by name.
        if let Ok(Ok(node)) = tokio::time::timeout(ASK, nodes.get_metadata(&self.object.name)).await {
            about.uid = node.metadata.uid;
        }
        *lock(&self.known) = Some((about.clone(), Instant::now()));
        about
    }

    fn nameless(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(OVSNode::api_version(&()).into_owned()),
            kind: Some(OVSNode::kind(&()).into_owned()),
            namespace: self.object.namespace.clone(),
            name: Some(self.object.name.clone()),
            ..ObjectReference::default()
        }
    }
}

fn event(about: ObjectReference, caller: &str, deed: Deed, what: &str) -> Event {
    Event::new(deed.severity, about, deed.action, deed.reason, format!("{caller} {what}"))
}

/// Whether a read of this caller is worth an Event.
fn is_news(readers: &mut Readers, caller: &str, read: Read, now: Instant) -> bool {
    readers.retain(|_, since| now.duration_since(*since) < READS);
    let of_kind = readers.keys().filter(|(_, other)| *other == read).count();
    let reader = (caller.to_owned(), read);
    if readers.contains_key(&reader) || of_kind >= READERS {
        return false;
    }
    readers.insert(reader, now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_news_once_in_a_while_and_many_readers_are_no_flood() {
        let mut readers = HashMap::new();
        let start = Instant::now();
        let mut news = |name: &str, read, at| is_news(&mut readers, name, read, at);
        assert!(news("alice", Read::State, start));
        assert!(news("alice", Read::Captures, start), "something else");
        assert!(!news("alice", Read::State, start + READS / 2));
        assert!(news("alice", Read::State, start + READS), "a while later");
        let told = (0..1000).filter(|n| news(&format!("reader-{n}"), Read::State, start + READS)).count();
        assert_eq!(told, READERS - 1);
        assert!(news("bob", Read::Captures, start + READS), "readers of one thing hide nobody who reads another");
        assert_eq!(readers.len(), READERS + 1);
    }
}
