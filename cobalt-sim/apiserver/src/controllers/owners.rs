//! Garbage collection by owner references.

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
        for uid in live.owner_uids() {
            match server.store.by_uid(uid) {
                Some((owner, object)) if owner.may_own_in(&live.key.namespace) => {
                    if !waits(&object) {
                        kept = true;
                        continue;
                    }
                    awaited = true;
                }
                // An object of the cluster cannot name an owner in a namespace; the real server never collects it.
                Some(_) if live.key.namespace.is_empty() => return,
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
