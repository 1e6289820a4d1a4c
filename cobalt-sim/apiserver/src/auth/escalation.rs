//! Nobody grants rights they do not hold, unless a role lets them `escalate` or `bind`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::Identity;
use super::rbac::{self, GROUP, Request, allowed};
use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, Subject};

/// Refuses a role or a binding that gives more than its author has.
pub(crate) fn check(
    server: &Inner,
    identity: &Identity,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
) -> ApiResult<()> {
    if !server.auth.rbac || resource.group != GROUP || identity.is_master() {
        return Ok(());
    }
    if old.is_some_and(|old| without_links(old) == without_links(object)) {
        return Ok(());
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (name, namespace) = (text("/metadata/name"), text("/metadata/namespace"));
    let (role_kind, role_name) = (text("/roleRef/kind"), text("/roleRef/name"));
    let (verb, plural, target) = match resource.plural.as_str() {
        plural @ ("roles" | "clusterroles") => ("escalate", plural, name),
        _ if role_kind == "Role" => ("bind", "roles", role_name),
        _ => ("bind", "clusterroles", role_name),
    };
    let exempt = Request::Resource { verb, group: GROUP, resource: plural, subresource: "", namespace, name: target };
    if allowed(server, identity, &exempt).is_some() {
        return Ok(());
    }
    let missing = if verb == "escalate" {
        missing(server, identity, &object["rules"], namespace)
    } else {
        let role = rbac::role(server, role_kind, role_name, namespace)
            .ok_or_else(|| ApiError::not_found(&Subject { group: GROUP, kind: plural, name: role_name }))?;
        missing(server, identity, &role.value["rules"], namespace)
    };
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        identity.user,
        quoted(&identity.groups),
        missing.join("\n")
    );
    Err(ApiError::forbidden(&resource.subject(name), &why, &[]))
}

/// The garbage collector may always let go of an object.
fn without_links(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !["ownerReferences", "finalizers", "managedFields"].contains(&field.as_str()));
    }
    object
}

/// The rules the user lacks, one line for each resource.
fn missing(server: &Inner, identity: &Identity, rules: &Value, namespace: &str) -> Vec<String> {
    let mut lacking: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut need = |request: &Request<'_>, what: String, verb: &str| {
        if allowed(server, identity, request).is_none() {
            let verbs = lacking.entry(what).or_default();
            if !verbs.iter().any(|known| known == verb) {
                verbs.push(verb.to_owned());
            }
        }
    };
    for rule in rules.as_array().into_iter().flatten() {
        let list = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut names: Vec<&str> = list("resourceNames").collect();
        if names.is_empty() {
            names.push("");
        }
        for verb in list("verbs") {
            for path in list("nonResourceURLs") {
                need(&Request::Path { verb, path }, format!("NonResourceURLs:[{path:?}]"), verb);
            }
            for group in list("apiGroups") {
                for pattern in list("resources") {
                    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
                    for &name in &names {
                        let mut what = format!("APIGroups:[{group:?}], Resources:[{pattern:?}]");
                        if !name.is_empty() {
                            let _ = write!(what, ", ResourceNames:[{name:?}]");
                        }
                        let request = Request::Resource { verb, group, resource, subresource, namespace, name };
                        need(&request, what, verb);
                    }
                }
            }
        }
    }
    lacking.into_iter().map(|(what, verbs)| format!("{{{what}, Verbs:{}}}", quoted(&verbs))).collect()
}

/// `["a" "b"]`
fn quoted(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
    format!("[{}]", items.join(" "))
}
