//! Terminating namespaces.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ATTEMPTS, amend, clear, find};
use crate::meta;
use crate::server::Inner;
use crate::store::{Key, NAMESPACES, ObjectRef};
use crate::strategy::set_condition;

/// Objects deleted before others get a turn.
const BATCH: usize = 64;

/// Empties a terminating namespace and then lets it go.
pub(super) async fn attend(server: &Inner, name: &str) {
    let at = ObjectRef::new(NAMESPACES, Key::new("", name));
    let terminating = |at: &ObjectRef| find(server, at).is_some_and(|(n, _)| n.is_terminating());
    if !terminating(&at) {
        return;
    }
    for batch in server.store.in_namespace(name).chunks(BATCH) {
        for object in batch {
            // Nobody would run out a pod's grace period here.
            clear(server, object, Some(0));
        }
        tokio::task::yield_now().await;
    }
    let remaining = server.store.in_namespace(name);
    explain(server, &at, &remaining);
    if !remaining.is_empty() {
        return;
    }
    for _ in 0..ATTEMPTS {
        let Some(live) = server.store.get(&at.bucket, &at.key) else {
            return;
        };
        // The last finalizer of the specification goes with the namespace, unless others hold it.
        let done = if meta::finalizers(&live.value).is_empty() {
            server.store.remove(&at.bucket, &at.key, live.revision).is_ok()
        } else if live.value["spec"].get("finalizers").is_some() {
            let mut next = live.value.clone();
            next["spec"] = json!({});
            server.store.put(&at.bucket, &at.key, Some(live.revision), next).is_ok()
        } else {
            true
        };
        if done {
            return;
        }
    }
}

/// Says in the status what a terminating namespace waits for.
fn explain(server: &Inner, at: &ObjectRef, remaining: &[ObjectRef]) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for object in remaining {
        *kinds.entry(&object.bucket).or_default() += 1;
        if let Some(live) = server.store.get(&object.bucket, &object.key) {
            for finalizer in meta::finalizers(&live.value) {
                *finalizers.entry(finalizer).or_default() += 1;
            }
        }
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(bucket, count)| {
            // The core group is named by nothing.
            let dot = if bucket.contains('.') { "" } else { "." };
            format!("{bucket}{dot} has {count} resource instances")
        })
        .collect();
    let finalizers: Vec<String> =
        finalizers.iter().map(|(finalizer, count)| format!("{finalizer} in {count} resource instances")).collect();
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    };
    let finalizing = if finalizers.is_empty() {
        condition(
            "NamespaceFinalizersRemaining",
            false,
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        )
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", "));
        condition("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
    };
    let remaining = if kinds.is_empty() {
        let message = "All content successfully removed".to_owned();
        condition("NamespaceContentRemaining", false, "ContentRemoved", message)
    } else {
        let message = format!("Some resources are remaining: {}", kinds.join(", "));
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
    };
    let wanted: Vec<Value> = vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            false,
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        remaining,
        finalizing,
    ];
    amend(server, at, "kube-controller-manager", true, |live| {
        let mut next = live.value.clone();
        let now = server.clock.rfc3339();
        let mut conditions = next["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for condition in &wanted {
            set_condition(&mut conditions, condition.clone(), &now);
        }
        next["status"]["conditions"] = conditions.into();
        (next != live.value).then_some(next)
    });
}
