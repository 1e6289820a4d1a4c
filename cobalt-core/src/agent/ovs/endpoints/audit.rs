//! Who did what, as Events on the OVSNode and as lines of the log.
//!
//! The log has every one. Events are merged and limited in rate by their recorder; so that repeats are merged, a note
//! says nothing that differs from one time to the next.

use std::{
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

/// Takes notes.
#[derive(Clone)]
pub(super) struct Auditor {
    client: Client,
    object: ObjectKey,
    recorder: Recorder,
    known: Arc<Mutex<Option<(ObjectReference, Instant)>>>,
}

/// What was done, in words of Events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deed {
    pub(super) action: &'static str,
    pub(super) reason: &'static str,
    pub(super) severity: Severity,
}

impl Auditor {
    pub(super) fn new(client: Client, object: ObjectKey, recorder: Recorder) -> Self {
        Self { client, object, recorder, known: Arc::default() }
    }

    /// Notes what a caller did, or was refused.
    pub(super) async fn note(&self, caller: &Caller, deed: Deed, what: &str) {
        let about = self.about().await;
        self.put(about, &caller.name, deed, what);
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
        let Deed { action, reason, severity } = deed;
        tracing::info!(user = caller, action, reason, node = self.object.name, what, "audit");
        self.recorder.publish(Event::new(severity, about, action, reason, format!("{caller} {what}")));
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
