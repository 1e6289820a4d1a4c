//! Whom a binding names, and how far a role reaches.

use cobalt_apiserver::{ApiServer, Identity};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::send;

const JSON: &str = "application/json";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn post(server: &ApiServer, path: &str, body: Value) -> Value {
    let (code, answer) = send(server, "POST", path, Some((JSON, body))).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

/// What somebody is answered, without a body to send.
async fn ask(server: &ApiServer, who: &Identity, method: &str, path: &str) -> (u16, String) {
    let request = http::Request::builder().method(method).uri(path).body(Full::new(bytes::Bytes::new())).unwrap();
    let response = server.service_as("somebody", who.clone()).oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    // A watch that is open says nothing yet.
    let body = if code == 200 { bytes::Bytes::new() } else { response.into_body().collect().await.unwrap().to_bytes() };
    (code, String::from_utf8_lossy(&body).into_owned())
}

async fn code(server: &ApiServer, who: &Identity, method: &str, path: &str) -> u16 {
    ask(server, who, method, path).await.0
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn binding(kind: &str, role: &str, subject: &Value) -> Value {
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    json!({"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]})
}

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

fn user(name: &str) -> Identity {
    Identity::new(name, ["system:authenticated"])
}

#[tokio::test]
async fn a_binding_names_a_user_a_group_or_the_service_account_of_one_namespace() {
    let api = "rbac.authorization.k8s.io";
    let read = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
    let operator = Identity::new("carol", ["operators", "system:authenticated"]);
    let agent = |namespace: &str| Identity::service_account(namespace, "agent");
    for (subject, allowed, refused) in [
        (json!({"apiGroup": api, "kind": "User", "name": "bob"}), user("bob"), user("bobby")),
        (json!({"apiGroup": api, "kind": "Group", "name": "operators"}), operator, user("operators")),
        (json!({"kind": "ServiceAccount", "namespace": "w", "name": "agent"}), agent("w"), agent("default")),
        (
            json!({"kind": "ServiceAccount", "namespace": "w", "name": "agent"}),
            agent("w"),
            Identity::service_account("w", "other"),
        ),
        // Everybody of a namespace.
        (
            json!({"apiGroup": api, "kind": "Group", "name": "system:serviceaccounts:w"}),
            Identity::service_account("w", "other"),
            agent("default"),
        ),
    ] {
        let server = ApiServer::builder().rbac().start();
        post(&server, &format!("{RBAC}/clusterroles"), role("r", &read)).await;
        post(&server, &format!("{RBAC}/clusterrolebindings"), binding("ClusterRole", "r", &subject)).await;
        assert_eq!(code(&server, &allowed, "GET", &maps("default")).await, 200, "{subject}");
        assert_eq!(code(&server, &refused, "GET", &maps("default")).await, 403, "{subject}");
    }
}

#[tokio::test]
async fn a_binding_of_a_namespace_reaches_no_further() {
    let server = ApiServer::builder().rbac().start();
    post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "w"}})).await;
    let rules = json!([{"apiGroups": ["", "rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["*"]}]);
    let bob = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"});
    // A role of the cluster, bound in one namespace; and a role of a namespace whose name is taken elsewhere too.
    post(&server, &format!("{RBAC}/clusterroles"), role("wide", &rules)).await;
    post(&server, &format!("{RBAC}/namespaces/w/rolebindings"), binding("ClusterRole", "wide", &bob)).await;
    post(&server, &format!("{RBAC}/namespaces/default/roles"), role("local", &rules)).await;
    post(&server, &format!("{RBAC}/namespaces/kube-system/rolebindings"), binding("Role", "local", &bob)).await;
    let bob = user("bob");
    for (path, expected) in [
        (maps("w"), 200),
        (maps("default"), 403),
        // The binding is here, the role of that name is not.
        (maps("kube-system"), 403),
        ("/api/v1/configmaps".to_owned(), 403),
        ("/api/v1/nodes".to_owned(), 403),
        (format!("{RBAC}/namespaces/w/roles"), 200),
        (format!("{RBAC}/clusterroles"), 403),
    ] {
        assert_eq!(code(&server, &bob, "GET", &path).await, expected, "{path}");
    }
}

#[tokio::test]
async fn a_rule_allows_its_verbs_on_its_resources_of_its_groups_and_nothing_else() {
    let server = ApiServer::builder().rbac().start();
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        {"nonResourceURLs": ["/logs/*"], "verbs": ["post"]},
    ]);
    let bob = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"});
    post(&server, &format!("{RBAC}/clusterroles"), role("r", &rules)).await;
    post(&server, &format!("{RBAC}/clusterrolebindings"), binding("ClusterRole", "r", &bob)).await;
    let bob = user("bob");
    let map = format!("{}/m", maps("default"));
    for (method, path, allowed) in [
        ("GET", maps("default"), true),
        ("GET", map.clone(), true),
        ("GET", format!("{}?watch=true&timeoutSeconds=1", maps("default")), false),
        ("DELETE", map.clone(), false),
        ("DELETE", maps("default"), false),
        ("PUT", map.clone(), false),
        ("PATCH", map, false),
        ("POST", maps("default"), false),
        // The same objects under another group are another right.
        ("GET", "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(), true),
        ("GET", "/api/v1/namespaces/default/events".to_owned(), false),
        ("GET", "/api/v1/namespaces/default/pods/p/status".to_owned(), true),
        ("GET", "/api/v1/namespaces/default/pods/p".to_owned(), false),
        ("PATCH", "/api/v1/namespaces/default/pods/p/status".to_owned(), false),
        ("POST", "/api/v1/namespaces/default/pods/p/eviction".to_owned(), false),
        ("GET", "/metrics".to_owned(), true),
        ("GET", "/logs/x".to_owned(), false),
        ("POST", "/logs/x".to_owned(), true),
        ("POST", "/metrics".to_owned(), false),
    ] {
        let (code, answer) = ask(&server, &bob, method, &path).await;
        assert_eq!(code != 403, allowed, "{method} {path}: {code} {answer}");
    }
}

#[tokio::test]
async fn a_local_review_answers_for_its_namespace() {
    let server = ApiServer::builder().rbac().start();
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let bob = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"});
    post(&server, &format!("{RBAC}/namespaces/default/roles"), role("r", &rules)).await;
    post(&server, &format!("{RBAC}/namespaces/default/rolebindings"), binding("Role", "r", &bob)).await;
    let path =
        |namespace: &str| format!("/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews");
    let about = |namespace: &str, user: &str| {
        let wanted = json!({"namespace": namespace, "verb": "get", "resource": "pods"});
        json!({"spec": {"user": user, "resourceAttributes": wanted}})
    };
    for (namespace, user, allowed) in
        [("default", "bob", true), ("default", "eve", false), ("kube-system", "bob", false)]
    {
        let answer = post(&server, &path(namespace), about(namespace, user)).await;
        assert_eq!(answer["status"]["allowed"], allowed, "{namespace} {user}");
    }
    let (code, refused) = send(&server, "POST", &path("default"), Some((JSON, about("kube-system", "bob")))).await;
    assert_eq!((code, &refused["reason"]), (400, &json!("BadRequest")));
    let url = json!({"spec": {"user": "bob", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    assert_eq!(send(&server, "POST", &path("default"), Some((JSON, url))).await.0, 422);
}
