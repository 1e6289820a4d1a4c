//! What a controller manager does to nodes, namespaces and admission policies, for servers that were told to have one.

use serde_json::{Value, json};

use super::{ATTEMPTS, amend};
use crate::server::Inner;
use crate::store::{Key, Object, ObjectRef, POLICIES};
use crate::verbs::{Ownership, Refused, Writer};

const MANAGER: &str = "kube-controller-manager";
const TTL: &str = "node.alpha.kubernetes.io/ttl";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";
/// There is no TLS inside the process, so there is no authority either.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";

/// Keeps the taints of a node in step with its conditions and its `unschedulable`.
pub(super) fn node(server: &Inner, name: &str) {
    if !server.controller_manager {
        return;
    }
    let at = ObjectRef::new("nodes", Key::new("", name));
    amend(server, &at, MANAGER, false, |live| desired_node(live, &server.clock.rfc3339()));
}

fn desired_node(live: &Object, now: &str) -> Option<Value> {
    let mut next = live.value.clone();
    if next["metadata"]["annotations"].get(TTL).is_none() {
        next["metadata"]["annotations"][TTL] = "0".into();
    }
    let conditions = next["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let ready = ready.and_then(|condition| condition["status"].as_str()).unwrap_or_default();
    let wanted = [
        ("node.kubernetes.io/not-ready", ready == "False"),
        ("node.kubernetes.io/unreachable", ready == "Unknown"),
        ("node.kubernetes.io/unschedulable", next["spec"]["unschedulable"] == true),
    ];
    let mut taints = next["spec"]["taints"].as_array().cloned().unwrap_or_default();
    for (key, wanted) in wanted {
        let is_it = |taint: &Value| taint["key"] == key && taint["effect"] == "NoSchedule";
        if !wanted {
            taints.retain(|taint| !is_it(taint));
        } else if !taints.iter().any(is_it) {
            taints.push(json!({"key": key, "effect": "NoSchedule", "timeAdded": now}));
        }
    }
    if let Some(spec) = next["spec"].as_object_mut() {
        if taints.is_empty() {
            spec.remove("taints");
        } else {
            spec.insert("taints".to_owned(), taints.into());
        }
    }
    (next != live.value).then_some(next)
}

/// Says in a policy's status that its expressions were checked. They were when it was written: one that does not
/// compile is not stored.
pub(super) fn policy(server: &Inner, name: &str) {
    let key = Key::new("", name);
    for _ in 0..ATTEMPTS {
        let live = server.store.get(POLICIES, &key).filter(|_| server.controller_manager);
        let Some(live) = live else { return };
        let Some(resource) = server.registry.of_object(POLICIES, &live.value) else { return };
        let generation = &live.value["metadata"]["generation"];
        if live.value["status"]["observedGeneration"] == *generation {
            return;
        }
        let config = json!({
            "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {"name": name},
            "status": {"observedGeneration": generation, "typeChecking": {}},
        });
        let mut writer = Writer::internal(server, &resource, key.clone());
        "validatingadmissionpolicy-status".clone_into(&mut writer.manager);
        writer.status = true;
        let applied = writer.merge_applied(Some(&live.value), &config, true).map_err(Refused::Api);
        match applied.and_then(|next| writer.update(&live, next, Ownership::Applied)) {
            Ok(_) => return,
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => {
                tracing::warn!(policy = %name, %error, "the status could not be written");
                return;
            }
        }
    }
}

/// Makes an object unless it is there. Whoever made it meanwhile did the same.
fn make(server: &Inner, plural: &str, key: Key, object: Value) {
    let Some(resource) = server.registry.find("", "v1", plural) else { return };
    if server.store.get(plural, &key).is_none() {
        let mut writer = Writer::internal(server, &resource, key);
        MANAGER.clone_into(&mut writer.manager);
        let _ = writer.create(object, Ownership::Track);
    }
}

/// Gives a namespace its default service account and the map with the authority's certificate.
pub(super) fn namespace(server: &Inner, name: &str) {
    let alive = server.namespace(name).is_some_and(|found| !found.is_terminating());
    if !server.controller_manager || !alive {
        return;
    }
    let authority = json!({
        "metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": DESCRIPTION}},
        "data": {"ca.crt": AUTHORITY},
    });
    for (plural, object) in [("configmaps", authority), ("serviceaccounts", json!({"metadata": {"name": "default"}}))] {
        let object_name = object["metadata"]["name"].as_str().unwrap_or_default();
        make(server, plural, Key::new(name, object_name), object);
    }
}
