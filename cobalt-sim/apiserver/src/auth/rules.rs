//! The other way round: not whether something is allowed, but everything that is.

use serde_json::{Value, json};

use super::rbac::{bound_rules, everything};
use super::{Identity, Request};
use crate::server::Inner;

/// What a cluster lets whole groups do before anybody wrote a role: group, rules before the stored ones, rules after.
type Granted = (&'static str, fn() -> Vec<Value>, fn() -> Vec<Value>);

const GRANTED: [Granted; 3] = [
    ("system:authenticated", authenticated, public),
    ("system:serviceaccounts", service_accounts, Vec::new),
    ("system:unauthenticated", Vec::new, public),
];

fn authenticated() -> Vec<Value> {
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    vec![
        json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": reviews}),
        json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}),
        json!({"verbs": ["get"], "nonResourceURLs": discovery}),
    ]
}

fn service_accounts() -> Vec<Value> {
    let (issuer, keys) = ("/.well-known/openid-configuration", "/openid/v1/jwks");
    let urls = [issuer.to_owned(), format!("{issuer}/"), keys.to_owned(), format!("{keys}/")];
    vec![json!({"verbs": ["get"], "nonResourceURLs": urls})]
}

fn public() -> Vec<Value> {
    vec![json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]})]
}

/// The status of a `SelfSubjectRulesReview`: all that somebody may do in a namespace.
pub(crate) fn summary(server: &Inner, identity: &Identity, namespace: &str) -> Value {
    let mut rules = Vec::new();
    if !server.auth.rbac || identity.is_master() {
        rules.extend(everything());
    }
    if server.auth.rbac {
        let granted: Vec<&Granted> =
            GRANTED.iter().filter(|(group, ..)| identity.groups.iter().any(|g| g == group)).collect();
        rules.extend(granted.iter().flat_map(|(_, first, _)| first()));
        // The request matters only for its namespace: bindings of other namespaces are not looked at.
        let (verb, group, resource, subresource, name) = ("", "", "", "", "");
        let request = Request::Resource { verb, group, resource, subresource, namespace, name };
        rules.extend(bound_rules(server, identity, &request));
        rules.extend(granted.iter().flat_map(|(_, _, last)| last()));
    }
    let having = |field: &str, fields: &[&str]| -> Vec<Value> {
        let held = |rule: &&Value| rule[field].as_array().is_some_and(|items| !items.is_empty());
        let told = |rule: &Value| -> Value {
            let told = fields.iter().filter_map(|name| Some(((*name).to_owned(), rule.get(*name)?.clone())));
            Value::Object(told.filter(|(_, value)| value.as_array().is_none_or(|items| !items.is_empty())).collect())
        };
        rules.iter().filter(held).map(told).collect()
    };
    json!({
        "resourceRules": having("resources", &["verbs", "apiGroups", "resources", "resourceNames"]),
        "nonResourceRules": having("nonResourceURLs", &["verbs", "nonResourceURLs"]),
        "incomplete": false,
    })
}
