//! Documents about the server: version, health, and which resources it has.

use http::HeaderMap;
use serde_json::{Value, json};

use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::verbs::Scale;

/// A page that is no resource.
#[derive(Debug)]
pub(crate) enum Document {
    Json(Value),
    Text(String),
}

/// The release whose behaviour the server shows.
const MINOR: &str = "35";
const PATCH: &str = "8";

/// The page at a path.
pub(crate) fn document(server: &Inner, path: &[String], _headers: &HeaderMap) -> ApiResult<Document> {
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let all = server.registry.all();
    Ok(Document::Json(match parts.as_slice() {
        [] => json!({"paths": paths(&all)}),
        ["version"] => version(),
        ["healthz" | "readyz" | "livez"] => return Ok(Document::Text("ok".to_owned())),
        ["api"] => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
        }),
        ["api", "v1"] => resources(&all, "", "v1").ok_or_else(ApiError::page_not_found)?,
        ["apis"] => groups(&all),
        ["apis", group] => {
            let found = groups(&all);
            let mut list = found["groups"].as_array().into_iter().flatten();
            let mut found = list.find(|g| g["name"] == *group).cloned().ok_or_else(ApiError::page_not_found)?;
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            found
        }
        ["apis", group, version] => resources(&all, group, version).ok_or_else(ApiError::page_not_found)?,
        _ => return Err(ApiError::page_not_found()),
    }))
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "emulationMajor": "1",
        "emulationMinor": MINOR,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "34",
        "gitVersion": format!("v1.{MINOR}.{PATCH}"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": "simulated",
    })
}

fn paths(all: &[std::sync::Arc<Resource>]) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned(), "/apis/".to_owned()];
    for resource in all.iter().filter(|r| !r.group.is_empty()) {
        for path in [format!("/apis/{}", resource.group), format!("/apis/{}/{}", resource.group, resource.version)] {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths.extend(["/healthz", "/livez", "/readyz", "/version"].map(str::to_owned));
    paths
}

/// The built-in groups as the real server lists them.
const ORDER: [&str; 11] = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
];

pub(crate) fn groups(all: &[std::sync::Arc<Resource>]) -> Value {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for resource in all.iter().filter(|r| !r.group.is_empty()) {
        match groups.iter_mut().find(|(name, _)| *name == resource.group) {
            Some((_, versions)) if versions.contains(&resource.version) => {}
            Some((_, versions)) => versions.push(resource.version.clone()),
            None => groups.push((resource.group.clone(), vec![resource.version.clone()])),
        }
    }
    // Those of the real server in its order, then the others by name.
    groups.sort_by_key(|(name, _)| ORDER.iter().position(|known| known == name).unwrap_or(ORDER.len()));
    let groups: Vec<Value> = groups
        .into_iter()
        .map(|(name, mut versions)| {
            versions.sort_by_key(|v| std::cmp::Reverse(priority(v)));
            let versions: Vec<Value> =
                versions.iter().map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v})).collect();
            json!({"name": name, "preferredVersion": versions[0], "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `v2` before `v1` before `v1beta1` before `v1alpha1` before anything else.
fn priority(version: &str) -> (u8, u64, u64) {
    let parse = || -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        for (name, rank) in [("alpha", 1), ("beta", 2)] {
            if let Some((major, minor)) = rest.split_once(name) {
                return Some((rank, major.parse().ok()?, minor.parse().unwrap_or(0)));
            }
        }
        Some((3, rest.parse().ok()?, 0))
    };
    parse().unwrap_or((0, 0, 0))
}

pub(crate) fn resources(all: &[std::sync::Arc<Resource>], group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for resource in all.iter().filter(|r| r.group == group && r.version == version) {
        list.extend(describe(resource));
    }
    if list.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut document = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version,
        "resources": list,
    });
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

fn describe(resource: &Resource) -> Vec<Value> {
    let verbs: &[&str] = if resource.is_custom() {
        &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    } else if resource.bucket == "namespaces" {
        &["create", "delete", "get", "list", "patch", "update", "watch"]
    } else if crate::kinds::is_review(&resource.plural) {
        &["create"]
    } else {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    };
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let mut list = vec![main];
    // A kind of another group says which.
    let mut add = |name: &str, group: &str, kind: &str, verbs: &[&str]| {
        let mut entry = json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": verbs,
        });
        if !group.is_empty() {
            entry["group"] = group.into();
            entry["version"] = "v1".into();
        }
        list.push(entry);
    };
    if resource.bucket == "pods" {
        add("binding", "", "Binding", &["create"]);
        add("eviction", "policy", "Eviction", &["create"]);
    }
    if resource.bucket == "serviceaccounts" {
        add("token", "authentication.k8s.io", "TokenRequest", &["create"]);
    }
    // Built-in resources list them by name, custom ones in this order.
    let mut own = vec!["status", "scale"];
    if !resource.is_custom() {
        own.reverse();
    }
    for name in own {
        match name {
            "scale" if Scale::of(resource).is_some() => {
                add(name, "autoscaling", "Scale", &["get", "patch", "update"]);
            }
            "status" if resource.has_status => add(name, "", &resource.kind, &["get", "patch", "update"]),
            _ => {}
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_are_preferred() {
        let mut versions = vec!["v1alpha1", "v1", "v2beta1", "v2", "v1beta2"];
        versions.sort_by_key(|v| std::cmp::Reverse(priority(v)));
        assert_eq!(versions, ["v2", "v1", "v2beta1", "v1beta2", "v1alpha1"]);
    }
}
