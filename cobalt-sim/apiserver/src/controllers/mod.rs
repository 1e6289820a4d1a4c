//! The controllers every cluster has, as one background task: definitions, garbage collection, namespaces, budgets.
//!
//! They are driven by commits alone: the store queues what a commit may have consequences for, and wakes the task.
//! There is no polling and no timer.

mod budgets;
mod cluster;
mod definitions;
mod namespaces;
mod owners;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use serde_json::Value;

use crate::meta;
use crate::registry::Resource;
use crate::server::Inner;
use crate::store::{Object, ObjectRef, Work};
use crate::verbs::{Deletion, Ownership, Propagation, Refused, Writer, delete_object};

/// How often a lost race is tried again.
const ATTEMPTS: usize = 64;

/// Works until the server is gone.
pub(crate) async fn run(server: Weak<Inner>) {
    loop {
        let Some(strong) = server.upgrade() else {
            return;
        };
        let work = strong.store.take_work();
        if work.is_empty() {
            // Only the bell is kept while we sleep, so that an idle controller does not keep the server alive.
            let wake = strong.store.wake.clone();
            drop(strong);
            wake.notified().await;
            continue;
        }
        let count = work.len();
        for item in work {
            shielded(&item, attend(&strong, &item)).await;
        }
        strong.store.work_done(count);
        drop(strong);
        // Readers get a chance to see every step.
        tokio::task::yield_now().await;
    }
}

/// Does a piece of work. A panic ends it alone: everything else goes on, and whoever waits for the work to be done is told.
async fn shielded(work: &Work, done: impl Future<Output = ()>) {
    if AssertUnwindSafe(done).catch_unwind().await.is_err() {
        tracing::error!(?work, "controller panicked");
    }
}

async fn attend(server: &Inner, work: &Work) {
    match work {
        Work::Definition(name) => definitions::attend(server, name),
        Work::Dependent(at) => owners::dependent(server, at),
        Work::Owner(at) => owners::owner(server, at),
        Work::Namespace(name) => namespaces::attend(server, name).await,
        Work::Node(name) => cluster::node(server, name),
        Work::Policy(name) => cluster::policy(server, name),
        Work::Home(name) => cluster::namespace(server, name),
        Work::Budgets(namespace) => budgets::attend(server, namespace),
    }
}

/// Changes an object by `change` (which may decline), as the named manager; true if it is done or gone.
fn amend(
    server: &Inner,
    at: &ObjectRef,
    manager: &str,
    status: bool,
    change: impl Fn(&Object) -> Option<Value>,
) -> bool {
    for _ in 0..ATTEMPTS {
        let Some(live) = server.store.get(&at.bucket, &at.key) else {
            return true;
        };
        let Some(resource) = server.registry.of_object(&at.bucket, &live.value) else {
            return true;
        };
        let Some(next) = change(&live) else {
            return true;
        };
        let mut writer = Writer::internal(server, &resource, at.key.clone());
        manager.clone_into(&mut writer.manager);
        writer.status = status;
        match writer.update(&live, next, Ownership::Track) {
            Ok(_) => return true,
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => {
                tracing::warn!(bucket = %at.bucket, name = %at.key.name, %error, "controller could not write");
                return false;
            }
        }
    }
    false
}

/// An object as it was examined, with its kind.
type Found = (Arc<Object>, Arc<Resource>);

/// Deletes an object unless it is already terminating (or terminates slower than by `grace`); false if it is not what
/// was examined any more, so that the reason to delete it may be gone.
fn remove(server: &Inner, (live, resource): &Found, propagation: Propagation, grace: Option<i64>) -> bool {
    let patience = live.value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if live.is_terminating() && (grace.is_none() || patience == 0) {
        return true;
    }
    let options = Deletion { propagation: Some(propagation), grace, ..Deletion::default() };
    !matches!(delete_object(server, resource, live, &options), Err(Refused::Raced))
}

/// Deletes an object that must go in whatever state it is.
fn clear(server: &Inner, at: &ObjectRef, grace: Option<i64>) {
    for _ in 0..ATTEMPTS {
        let Some(found) = find(server, at) else {
            return;
        };
        if remove(server, &found, Propagation::Background, grace) {
            return;
        }
    }
}

fn find(server: &Inner, at: &ObjectRef) -> Option<Found> {
    let live = server.store.get(&at.bucket, &at.key)?;
    let resource = server.registry.of_object(&at.bucket, &live.value)?;
    Some((live, resource))
}

fn drop_finalizer(server: &Inner, at: &ObjectRef, finalizer: &str) {
    amend(server, at, "kube-controller-manager", false, |live| {
        let mut next = live.value.clone();
        let mut finalizers = meta::finalizers(&next);
        let before = finalizers.len();
        finalizers.retain(|f| f != finalizer);
        meta::set_finalizers(&mut next, &finalizers);
        (finalizers.len() < before).then_some(next)
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::Key;

    #[tokio::test]
    async fn a_panic_ends_only_the_work_that_panicked() {
        shielded(&Work::Home("w".to_owned()), async { panic!("on purpose") }).await;
    }

    #[tokio::test]
    async fn only_what_was_examined_is_deleted() {
        let server = crate::ApiServer::start();
        let inner = &server.0;
        let at = ObjectRef::new("configmaps", Key::new("default", "a"));
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
        inner.store.put(&at.bucket, &at.key, None, value.clone()).unwrap();
        let examined = find(inner, &at).unwrap();
        inner.store.remove(&at.bucket, &at.key, examined.0.revision).unwrap();
        inner.store.put(&at.bucket, &at.key, None, value).unwrap();
        assert!(!remove(inner, &examined, Propagation::Background, None));
        let again = find(inner, &at).unwrap();
        assert!(remove(inner, &again, Propagation::Background, None));
        assert!(find(inner, &at).is_none());
    }
}
