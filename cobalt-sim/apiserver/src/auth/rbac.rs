//! Role-based access control from the stored roles and bindings.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Identity;
use crate::server::Inner;
use crate::store::{Key, Object};

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    Path {
        verb: &'a str,
        path: &'a str,
    },
}

/// Why a request is allowed; `None` if it is not. Members of `system:masters` need no reason.
pub(crate) fn allowed(server: &Inner, identity: &Identity, request: &Request<'_>) -> Option<String> {
    if identity.is_master() {
        return Some(String::new());
    }
    let self_review = matches!(
        request,
        Request::Resource { verb: "create", group: "authorization.k8s.io", resource, .. }
            if matches!(*resource, "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
    ) || matches!(
        request,
        Request::Resource { verb: "create", group: "authentication.k8s.io", resource: "selfsubjectreviews", .. }
    );
    if self_review && identity.groups.iter().any(|g| g == "system:authenticated") {
        return Some(String::new());
    }
    bound(server, identity, request).find_map(|grant| {
        let mut rules = grant.rules();
        rules.any(|rule| permits(rule, request)).then(|| grant.reason())
    })
}

/// The rules of every role somebody is bound to, as far as they count for a request.
pub(super) fn bound_rules(server: &Inner, identity: &Identity, request: &Request<'_>) -> Vec<Value> {
    bound(server, identity, request).flat_map(|grant| grant.rules().cloned().collect::<Vec<_>>()).collect()
}

/// A role somebody holds, by a binding that names them.
struct Grant {
    binding: Arc<Object>,
    /// Its place among the subjects of the binding.
    subject: usize,
    role: Arc<Object>,
}

/// The roles somebody holds where a request is made: in the cluster and, for a resource, in its namespace.
fn bound<'a>(
    server: &'a Inner,
    identity: &'a Identity,
    request: &Request<'_>,
) -> impl Iterator<Item = Grant> + use<'a> {
    let list = |plural: &str, namespace: Option<&str>| {
        let bucket = format!("{plural}.{GROUP}");
        let snapshot = server.store.snapshot(&bucket, namespace, None);
        snapshot.map(|s| s.objects).unwrap_or_default()
    };
    let mut bindings = list("clusterrolebindings", None);
    if let Request::Resource { namespace, .. } = request
        && !namespace.is_empty()
    {
        bindings.extend(list("rolebindings", Some(namespace)));
    }
    bindings.into_iter().filter_map(|binding| {
        let namespace = &binding.key.namespace;
        let home = (!namespace.is_empty()).then_some(namespace.as_str());
        let subjects = binding.value["subjects"].as_array();
        let subject = subjects.into_iter().flatten().position(|subject| is_subject(identity, subject, home))?;
        let reference = &binding.value["roleRef"];
        let role = role(server, reference["kind"].as_str()?, reference["name"].as_str()?, namespace)?;
        Some(Grant { binding, subject, role })
    })
}

impl Grant {
    fn rules(&self) -> impl Iterator<Item = &Value> {
        self.role.value["rules"].as_array().into_iter().flatten()
    }

    /// Why a request is allowed.
    fn reason(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (binding, key) = (&self.binding.value, &self.binding.key);
        let subject = &binding["subjects"][self.subject];
        let (kind, name) = (text(&subject["kind"]), text(&subject["name"]));
        let who = if kind == "ServiceAccount" { format!("{name}/{}", text(&subject["namespace"])) } else { name };
        let (binding_kind, binding_name) = if key.namespace.is_empty() {
            ("ClusterRoleBinding", key.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", key.name, key.namespace))
        };
        let (role_kind, role_name) = (text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
        format!("RBAC: allowed by {binding_kind} {binding_name:?} of {role_kind} {role_name:?} to {kind} {who:?}")
    }
}

/// The role a binding in `namespace` refers to. `cluster-admin` is there even if nobody stored it.
pub(super) fn role(server: &Inner, kind: &str, name: &str, namespace: &str) -> Option<Arc<Object>> {
    if kind == "Role" {
        return server.store.get(&format!("roles.{GROUP}"), &Key::new(namespace, name));
    }
    let key = Key::new("", name);
    let stored = server.store.get(&format!("clusterroles.{GROUP}"), &key);
    stored.or_else(|| (name == "cluster-admin").then(|| Arc::new(Object::new(key, 0, json!({"rules": everything()})))))
}

/// The rules that allow everything.
pub(super) fn everything() -> [Value; 2] {
    [json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}), json!({"nonResourceURLs": ["*"], "verbs": ["*"]})]
}

fn is_subject(identity: &Identity, subject: &Value, namespace: Option<&str>) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => identity.user == name,
        Some("Group") => identity.groups.iter().any(|g| g == name),
        Some("ServiceAccount") => {
            let home = subject["namespace"].as_str().or(namespace);
            let home = home.unwrap_or_default();
            identity.user == format!("system:serviceaccount:{home}:{name}")
        }
        _ => false,
    }
}

fn permits(rule: &Value, request: &Request<'_>) -> bool {
    let has = |field: &str, wanted: &str| {
        let list = rule[field].as_array();
        list.into_iter().flatten().any(|v| v == "*" || v == wanted)
    };
    match request {
        Request::Path { verb, path } => {
            let urls = rule["nonResourceURLs"].as_array();
            has("verbs", verb)
                && urls.into_iter().flatten().any(|url| {
                    let url = url.as_str().unwrap_or_default();
                    url == "*" || url == *path || url.strip_suffix('*').is_some_and(|start| path.starts_with(start))
                })
        }
        Request::Resource { verb, group, resource, subresource, name, .. } => {
            let wanted =
                if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
            let names = rule["resourceNames"].as_array();
            has("verbs", verb)
                && has("apiGroups", group)
                && (has("resources", &wanted)
                    || (!subresource.is_empty() && has("resources", &format!("*/{subresource}"))))
                && names.is_none_or(|names| names.is_empty() || names.iter().any(|n| n == *name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(verb: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Request<'a> {
        Request::Resource { verb, group: "g", resource, subresource, namespace: "", name }
    }

    #[test]
    fn a_rule_names_verbs_groups_resources_and_perhaps_objects() {
        let rule = json!({"verbs": ["get"], "apiGroups": ["g"], "resources": ["things"], "resourceNames": ["a"]});
        assert!(permits(&rule, &request("get", "things", "", "a")));
        assert!(!permits(&rule, &request("get", "things", "", "b")));
        assert!(!permits(&rule, &request("list", "things", "", "a")));
        assert!(!permits(&rule, &request("get", "things", "status", "a")));
        let rule = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/status"]});
        assert!(permits(&rule, &request("patch", "things", "status", "a")));
        assert!(!permits(&rule, &request("patch", "things", "", "a")));
    }

    #[test]
    fn paths_may_end_in_a_star() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/debug/*", "/metrics"]});
        for (path, expected) in [("/metrics", true), ("/debug/x", true), ("/version", false)] {
            assert_eq!(permits(&rule, &Request::Path { verb: "get", path }), expected);
        }
    }
}
