//! Definitions: names are accepted, resources established, and on deletion the instances removed.

use serde_json::{Value, json};

use super::{amend, clear, drop_finalizer};
use crate::crd;
use crate::server::Inner;
use crate::store::{DEFINITIONS, Key, Object, ObjectRef};
use crate::strategy::set_condition;

/// Accepts names, establishes, and on deletion removes the instances.
pub(super) fn attend(server: &Inner, name: &str) {
    let at = ObjectRef::new(DEFINITIONS, Key::new("", name));
    let Some(live) = server.store.get(&at.bucket, &at.key) else {
        // The bucket of a definition has its name.
        server.registry.replace(name, Vec::new());
        server.store.close_bucket(name);
        return;
    };
    if live.is_terminating() {
        terminate_definition(server, &at, &live);
        return;
    }
    let all = server.store.snapshot(DEFINITIONS, None, None);
    let all = all.map(|s| s.objects).unwrap_or_default();
    let others: Vec<&Value> = all.iter().map(|o| &o.value).collect();
    let conflict = crd::name_conflict(&live.value, &others);
    let accepted = conflict.is_none();
    let status = |live: &Object, established: bool| {
        let mut next = live.value.clone();
        let now = server.clock.rfc3339();
        let names = &next["spec"]["names"];
        let mut taken = names.clone();
        if let Some((reason, _)) = &conflict {
            let field = match *reason {
                "PluralConflict" => "plural",
                "SingularConflict" => "singular",
                "KindConflict" => "kind",
                _ => "listKind",
            };
            taken[field] = "".into();
        }
        next["status"]["acceptedNames"] = taken;
        let list = next["status"]["conditions"].as_array().cloned();
        let mut conditions = list.unwrap_or_default();
        let (reason, message) = match &conflict {
            None => ("NoConflicts", "no conflicts found".to_owned()),
            Some((reason, message)) => (*reason, message.clone()),
        };
        let flag = |value: bool| if value { "True" } else { "False" };
        let accepted_condition =
            json!({"type": "NamesAccepted", "status": flag(accepted), "reason": reason, "message": message});
        set_condition(&mut conditions, accepted_condition, &now);
        let was = conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True");
        let condition = match (accepted, established || was) {
            (true, true) => {
                json!({"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"})
            }
            (true, false) => {
                json!({"type": "Established", "status": "False", "reason": "Installing", "message": "the initial names have been accepted"})
            }
            (false, _) if was => return None,
            (false, _) => {
                json!({"type": "Established", "status": "False", "reason": "NotAccepted", "message": "not all names are accepted"})
            }
        };
        set_condition(&mut conditions, condition, &now);
        next["status"]["conditions"] = conditions.into();
        (next != live.value).then_some(next)
    };
    amend(server, &at, "kube-apiserver", true, |live| status(live, false));
    if accepted {
        // Served before it is told, so that whoever waits for the condition can go on at once.
        server.store.add_bucket(name);
        if !server.registry.is_current(name, &crd::stamp(&live.value)) {
            serve(server, name, &live.value);
        }
        amend(server, &at, "kube-apiserver", true, |live| status(live, true));
    }
}

fn serve(server: &Inner, name: &str, definition: &Value) {
    let resources = crd::resources(definition);
    server.registry.replace(name, resources.clone());
    // A default added later shows on objects stored before.
    server.store.reshape(name, |object| {
        let resource = resources.iter().find(|r| r.is_storage_form(object))?;
        let mut filled = object.clone();
        resource.custom.as_ref()?.schema.default(&mut filled);
        (filled != *object).then_some(filled)
    });
}

fn terminate_definition(server: &Inner, at: &ObjectRef, live: &Object) {
    let name = &at.key.name;
    if !live.finalizers().contains(&crd::CLEANUP) {
        return;
    }
    let stale = !server.registry.is_current(name, &crd::stamp(&live.value));
    if stale && server.registry.all().iter().any(|r| r.bucket == *name) {
        server.registry.replace(name, crd::resources(&live.value));
    }
    let instances = server.store.snapshot(name, None, None);
    for object in instances.map(|s| s.objects).unwrap_or_default() {
        let instance = ObjectRef::new(name, object.key.clone());
        clear(server, &instance, None);
    }
    amend(server, at, "kube-apiserver", true, |live| {
        let mut next = live.value.clone();
        let list = next["status"]["conditions"].as_array().cloned();
        let mut conditions = list.unwrap_or_default();
        let condition = json!({"type": "Terminating", "status": "True", "reason": "InstanceDeletionInProgress", "message": "CustomResource deletion is in progress"});
        set_condition(&mut conditions, condition, &server.clock.rfc3339());
        next["status"]["conditions"] = conditions.into();
        (next != live.value).then_some(next)
    });
    if server.store.len(name) == 0 {
        drop_finalizer(server, at, crd::CLEANUP);
    }
}
