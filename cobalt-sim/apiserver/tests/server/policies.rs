//! Which requests a `ValidatingAdmissionPolicy` is asked about, and what becomes of its answer.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const API: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
const DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
const LABELLED: &str = "/api/v1/namespaces/labelled/configmaps";

async fn post(server: &ApiServer, path: &str, body: Value) {
    let (code, answer) = send(server, "POST", path, Some((JSON, body))).await;
    assert_eq!(code, 201, "{answer}");
}

/// A rule for every operation on config maps, with changes.
fn rule(changes: &Value) -> Value {
    let mut rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
    merge(&mut rule, changes);
    rule
}

fn merge(into: &mut Value, changes: &Value) {
    for (name, value) in changes.as_object().unwrap() {
        into[name] = value.clone();
    }
}

/// A server with a policy that refuses whatever it is asked about.
async fn refusing(constraints: Value, resources: Value, spec: &Value) -> ApiServer {
    let server = ApiServer::start();
    post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "labelled", "labels": {"team": "a"}}})).await;
    post(&server, DEFAULT, json!({"metadata": {"name": "old"}})).await;
    let mut policy = json!({"matchConstraints": constraints, "validations": [{"expression": "false"}]});
    merge(&mut policy, spec);
    post(&server, &format!("{API}ies"), json!({"metadata": {"name": "p"}, "spec": policy})).await;
    let binding = json!({"policyName": "p", "validationActions": ["Deny"], "matchResources": resources});
    post(&server, &format!("{API}ybindings"), json!({"metadata": {"name": "b"}, "spec": binding})).await;
    server
}

async fn create(server: &ApiServer, path: &str, name: &str, labels: Value) -> u16 {
    let body = json!({"metadata": {"name": name, "labels": labels}});
    send(server, "POST", &format!("{path}?dryRun=All"), Some((JSON, body))).await.0
}

/// What is refused: a map, one in the labelled namespace, one with a label, a change, a deletion, a node.
async fn refused(constraints: Value, resources: Value) -> Vec<&'static str> {
    let server = refusing(constraints, resources, &json!({})).await;
    let patch = Some((MERGE, json!({"data": {"a": "b"}})));
    let outcomes = [
        ("plain", create(&server, DEFAULT, "m", json!({})).await),
        ("elsewhere", create(&server, LABELLED, "m", json!({})).await),
        ("marked", create(&server, DEFAULT, "m", json!({"mark": "x"})).await),
        ("named", create(&server, DEFAULT, "special", json!({})).await),
        ("changed", send(&server, "PATCH", &format!("{DEFAULT}/old?dryRun=All"), patch).await.0),
        ("deleted", send(&server, "DELETE", &format!("{DEFAULT}/old?dryRun=All"), None).await.0),
        ("node", create(&server, "/api/v1/nodes", "n", json!({})).await),
    ];
    outcomes.into_iter().filter(|(_, code)| *code == 422).map(|(what, _)| what).collect()
}

#[tokio::test]
async fn a_policy_is_asked_about_what_its_constraints_select() {
    let maps = ["plain", "elsewhere", "marked", "named", "changed", "deleted"];
    let with = |changes: Value| json!({"resourceRules": [rule(&changes)]});
    let also = |changes: Value| {
        let mut constraints = with(json!({}));
        merge(&mut constraints, &changes);
        constraints
    };
    let selector = |label: &str, value: &str| json!({"matchLabels": {label: value}});
    for (constraints, expected) in [
        (with(json!({})), &maps[..]),
        (with(json!({"operations": ["CREATE"]})), &["plain", "elsewhere", "marked", "named"]),
        (with(json!({"operations": ["UPDATE", "DELETE"]})), &["changed", "deleted"]),
        (with(json!({"apiGroups": ["apps"]})), &[]),
        (with(json!({"resources": ["nodes"]})), &["node"]),
        (with(json!({"resources": ["*"]})), &["plain", "elsewhere", "marked", "named", "changed", "deleted", "node"]),
        (with(json!({"resources": ["*"], "scope": "Cluster"})), &["node"]),
        (with(json!({"resources": ["*"], "scope": "Namespaced"})), &maps),
        (with(json!({"resourceNames": ["special"]})), &["named"]),
        (also(json!({"excludeResourceRules": [rule(&json!({"operations": ["CREATE"]}))]})), &["changed", "deleted"]),
        (also(json!({"namespaceSelector": selector("team", "a")})), &["elsewhere"]),
        (also(json!({"objectSelector": selector("mark", "x")})), &["marked"]),
        (json!({"matchPolicy": "Exact", "resourceRules": [rule(&json!({"apiVersions": ["v2"]}))]}), &[]),
        (json!({"matchPolicy": "Equivalent", "resourceRules": [rule(&json!({"apiVersions": ["v2"]}))]}), &maps),
    ] {
        assert_eq!(refused(constraints.clone(), Value::Null).await, expected, "{constraints}");
    }
    // A binding selects from what the policy selects.
    let narrow = json!({"resourceRules": [rule(&json!({"operations": ["DELETE"]}))]});
    assert_eq!(refused(with(json!({})), narrow).await, ["deleted"]);
    assert_eq!(refused(with(json!({})), json!({"objectSelector": selector("mark", "x")})).await, ["marked"]);
}

#[tokio::test]
async fn policies_are_not_asked_about_policies() {
    let everything = json!({"resourceRules": [rule(&json!({"apiGroups": ["*"], "resources": ["*/*"]}))]});
    let server = refusing(everything, Value::Null, &json!({})).await;
    assert_eq!(create(&server, DEFAULT, "m", json!({})).await, 422);
    // A mistake could not be undone otherwise.
    assert_eq!(send(&server, "DELETE", &format!("{API}ybindings/b"), None).await.0, 200);
    assert_eq!(create(&server, DEFAULT, "m", json!({})).await, 201);
}

#[tokio::test]
async fn a_changed_policy_is_the_one_that_is_asked() {
    let server = refusing(json!({"resourceRules": [rule(&json!({}))]}), Value::Null, &json!({})).await;
    assert_eq!(create(&server, DEFAULT, "m", json!({})).await, 422);
    for (expression, expected) in [("object.metadata.name == 'm'", 201), ("object.metadata.name == 'x'", 422)] {
        let change = json!({"spec": {"validations": [{"expression": expression}]}});
        assert_eq!(send(&server, "PATCH", &format!("{API}ies/p"), Some((MERGE, change))).await.0, 200);
        assert_eq!(create(&server, DEFAULT, "m", json!({})).await, expected, "{expression}");
    }
}

#[tokio::test]
async fn a_policy_that_fails_refuses_unless_it_is_to_be_ignored() {
    for (failure, expected) in [("Fail", 422), ("Ignore", 201)] {
        let spec = json!({"failurePolicy": failure, "validations": [{"expression": "object.spec.nosuch == 1"}]});
        let server = refusing(json!({"resourceRules": [rule(&json!({}))]}), Value::Null, &spec).await;
        assert_eq!(create(&server, DEFAULT, "m", json!({})).await, expected, "{failure}");
    }
}
