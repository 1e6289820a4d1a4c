//! Garbage collection by owner references.

use serde_json::Value;

use super::{ATTEMPTS, amend, drop_finalizer, find, remove};
use crate::server::Inner;
use crate::store::{Object, ObjectRef};
use crate::verbs::Propagation;

/// Collects an object whose owners are all gone or wait for it to go; forgets such owners while others remain.
pub(super) fn dependent(server: &Inner, at: &ObjectRef) {
    for _ in 0..ATTEMPTS {
        let Some(found) = find(server, at) else {
            return;
        };
        let live = &found.0;
        let (mut kept, mut awaited) = (false, false);
        let mut lost: Vec<String> = Vec::new();
        for reference in live.owners() {
            let Some(uid) = reference["uid"].as_str() else { continue };
            match server.store.by_uid(uid) {
                Some((owner, object)) if owner.may_own_in(&live.key.namespace) => {
                    if !waits(&object) {
                        kept = true;
                        continue;
                    }
                    awaited = true;
                }
                // Whether an owner of an unknown kind is gone cannot be known. An object of the cluster cannot name an
                // owner in a namespace, gone or not. The real server leaves both alone.
                _ if !can_be_owned(server, live, reference) => return,
                _ => {}
            }
            lost.push(uid.to_owned());
        }
        if lost.is_empty() {
            return;
        }
        if kept {
            return disown(server, at, &lost);
        }
        let deeper = awaited && !server.store.dependents(live.uid()).is_empty();
        let propagation = if deeper { Propagation::Foreground } else { Propagation::Background };
        if remove(server, &found, propagation, None) {
            return;
        }
    }
}

/// Whether an object can have an owner of the kind that a reference names.
fn can_be_owned(server: &Inner, dependent: &Object, reference: &Value) -> bool {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let kind =
        server.registry.all().into_iter().find(|r| r.group == group && r.version == version && r.kind == text("kind"));
    kind.is_some_and(|kind| !kind.namespaced || !dependent.key.namespace.is_empty())
}

/// Whether an owner goes once its dependents are gone.
fn waits(owner: &Object) -> bool {
    owner.is_terminating() && owner.finalizers().contains(&"foregroundDeletion")
}

fn disown(server: &Inner, at: &ObjectRef, owners: &[String]) {
    amend(server, at, "kube-controller-manager", false, |live| {
        let mut next = live.value.clone();
        let list = next["metadata"]["ownerReferences"].as_array_mut()?;
        let before = list.len();
        list.retain(|o| !owners.iter().any(|uid| o["uid"] == uid.as_str()));
        (list.len() < before).then_some(next)
    });
}

/// Moves a terminating owner on: dependents first (foreground), or let go (orphan).
pub(super) fn owner(server: &Inner, at: &ObjectRef) {
    let Some((live, _)) = find(server, at) else {
        return;
    };
    if !live.is_terminating() {
        return;
    }
    let uid = live.uid().to_owned();
    let dependents = server.store.dependents(&uid);
    if live.finalizers().contains(&"orphan") {
        for at in &dependents {
            disown(server, at, std::slice::from_ref(&uid));
        }
        drop_finalizer(server, at, "orphan");
    }
    if live.finalizers().contains(&"foregroundDeletion") {
        for at in &dependents {
            dependent(server, at);
        }
        let blocked = server.store.dependents(&uid).iter().any(|dependent| {
            find(server, dependent).is_some_and(|(object, _)| {
                let mut owners = object.owners();
                owners.any(|o| o["uid"] == uid.as_str() && o["blockOwnerDeletion"] == true)
            })
        });
        if !blocked {
            drop_finalizer(server, at, "foregroundDeletion");
        }
    }
}
