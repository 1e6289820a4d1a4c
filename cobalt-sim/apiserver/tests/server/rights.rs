//! Who may do what: roles, impersonation, tokens, policies on subresources.

use cobalt_apiserver::{ApiServer, Identity};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::send;

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

async fn post(server: &ApiServer, path: &str, body: Value) -> Value {
    let (code, answer) = send(server, "POST", path, Some((JSON, body))).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

fn rule(groups: &str, resources: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [groups], "resources": [resources], "verbs": verbs})
}

/// A server where `bob` may do what the rules say, everywhere.
async fn granting(rules: Value) -> ApiServer {
    let server = ApiServer::builder().rbac().start();
    let role = json!({"metadata": {"name": "bob"}, "rules": rules});
    post(&server, &format!("{RBAC}/clusterroles"), role).await;
    post(&server, &format!("{RBAC}/clusterrolebindings"), binding("bob", "bob", "bob")).await;
    server
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    let api = "rbac.authorization.k8s.io";
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
    })
}

type Sent<'a> = (&'a str, &'a str, Option<(&'a str, Value)>);

/// A request of `bob` with headers; code, warnings and body of the answer.
async fn ask(server: &ApiServer, headers: &[(&str, &[u8])], sent: Sent<'_>) -> (u16, usize, Value) {
    let (method, path, body) = sent;
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut bytes = Vec::new();
    if let Some((media, body)) = body {
        request = request.header("content-type", media);
        bytes = serde_json::to_vec(&body).unwrap();
    }
    let bob = Identity::new("bob", ["system:authenticated"]);
    let request = request.body(Full::new(bytes::Bytes::from(bytes))).unwrap();
    let response = server.service_as("bob", bob).oneshot(request).await.unwrap();
    let (code, warnings) = (response.status().as_u16(), response.headers().get_all("warning").iter().count());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, warnings, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn bob(server: &ApiServer, method: &str, path: &str, body: Option<(&str, Value)>) -> (u16, Value) {
    let (code, _, answer) = ask(server, &[], (method, path, body)).await;
    (code, answer)
}

#[tokio::test]
async fn who_may_only_change_objects_makes_none_by_apply_or_put() {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let change = |verbs: &[&str]| json!([rule("", "configmaps", verbs), rule("coordination.k8s.io", "leases", verbs)]);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let lease = json!({"metadata": {"name": "l"}});
    let (apply, put) = (format!("{MAPS}/m?fieldManager=bob"), format!("{leases}/l"));
    for (verbs, expected) in [(&["patch", "update"][..], 403), (&["patch", "update", "create"][..], 201)] {
        let server = granting(change(verbs)).await;
        assert_eq!(bob(&server, "PATCH", &apply, Some((APPLY, map.clone()))).await.0, expected);
        assert_eq!(bob(&server, "PUT", &put, Some((JSON, lease.clone()))).await.0, expected);
    }
}

#[tokio::test]
async fn a_right_to_one_name_is_a_right_to_list_that_name() {
    let mut only = rule("", "configmaps", &["list", "deletecollection"]);
    only["resourceNames"] = json!(["m"]);
    let server = granting(json!([only])).await;
    for (query, expected) in [
        ("", 403),
        ("?fieldSelector=metadata.name%3Dm", 200),
        ("?fieldSelector=metadata.namespace%3Ddefault,metadata.name%3D%3Dm", 200),
        ("?fieldSelector=metadata.name%3Dother", 403),
        ("?fieldSelector=metadata.name!%3Dm", 403),
    ] {
        assert_eq!(bob(&server, "GET", &format!("{MAPS}{query}"), None).await.0, expected, "{query}");
    }
    // Deleting a collection cannot be restricted to names.
    let path = format!("{MAPS}?fieldSelector=metadata.name%3Dm");
    assert_eq!(bob(&server, "DELETE", &path, None).await.0, 403);
}

/// Who the server takes `bob` for.
async fn acting(server: &ApiServer, headers: &[(&str, &[u8])]) -> (u16, Value) {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, _, answer) = ask(server, headers, ("POST", path, Some((JSON, json!({}))))).await;
    let user = answer["status"]["userInfo"].clone();
    (code, if user.is_null() { answer["message"].clone() } else { user })
}

#[tokio::test]
async fn impersonation_that_cannot_be_understood_is_not_ignored() {
    let server = granting(json!([rule("", "users", &["impersonate"])])).await;
    assert_eq!(acting(&server, &[("impersonate-user", b"\xff")]).await.0, 400);
    for header in ["impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
        assert_eq!(acting(&server, &[(header, b"x")]).await.0, 500, "{header}");
    }
    let (code, user) = acting(&server, &[("impersonate-user", "jürgen".as_bytes())]).await;
    assert_eq!((code, &user["username"]), (201, &json!("jürgen")));
}

#[tokio::test]
async fn every_part_of_an_impersonated_identity_needs_a_right() {
    let rules = json!([rule("", "users", &["impersonate"])]);
    let server = granting(rules).await;
    for (header, resource) in [
        ("impersonate-group", "groups"),
        ("impersonate-uid", "uids"),
        ("impersonate-extra-scopes", "userextras/scopes"),
    ] {
        let (code, why) = acting(&server, &[("impersonate-user", b"eve"), (header, b"x")]).await;
        assert_eq!(code, 403, "{header}");
        assert!(why.as_str().unwrap().contains(&format!("cannot impersonate resource {resource:?}")), "{why}");
    }
    let (code, why) = acting(&server, &[("impersonate-user", b"system:serviceaccount:ns:x")]).await;
    assert_eq!(code, 403);
    assert!(why.as_str().unwrap().ends_with("in the namespace \"ns\""), "{why}");
}

#[tokio::test]
async fn impersonated_service_accounts_are_in_their_groups_and_nobody_is_not_authenticated() {
    let rules =
        json!([rule("", "*", &["impersonate"]), rule("authentication.k8s.io", "*", &["impersonate", "create"]),]);
    let server = granting(rules).await;
    let (_, user) = acting(&server, &[("impersonate-user", b"system:serviceaccount:ns:x")]).await;
    let groups = ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
    assert_eq!(user["groups"], json!(groups));
    let eve = [("impersonate-user", &b"eve"[..]), ("impersonate-uid", b"7"), ("impersonate-extra-a%2fb", b"c")];
    let (_, user) = acting(&server, &eve).await;
    assert_eq!((&user["uid"], &user["extra"]), (&json!("7"), &json!({"a/b": ["c"]})));
    // Only the authenticated may ask who they are.
    assert_eq!(acting(&server, &[("impersonate-user", b"system:anonymous")]).await.0, 403);
}

async fn issue(server: &ApiServer, spec: Value) -> String {
    let answer = post(server, &format!("{ACCOUNTS}/agent/token"), json!({"spec": spec})).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn bearer(server: &ApiServer, token: &str) -> u16 {
    let value = format!("Bearer {token}");
    ask(server, &[("authorization", value.as_bytes())], ("GET", MAPS, None)).await.0
}

async fn reviewed(server: &ApiServer, token: &str) -> Value {
    let body = json!({"spec": {"token": token}});
    post(server, "/apis/authentication.k8s.io/v1/tokenreviews", body).await["status"].clone()
}

#[tokio::test]
async fn a_token_for_somebody_else_is_not_good_here() {
    let server = ApiServer::start();
    post(&server, ACCOUNTS, json!({"metadata": {"name": "agent"}})).await;
    assert_eq!(bearer(&server, &issue(&server, json!({})).await).await, 200);
    let foreign = issue(&server, json!({"audiences": ["vault"]})).await;
    assert_eq!(bearer(&server, &foreign).await, 401);
    assert_eq!(reviewed(&server, &foreign).await.get("authenticated"), None);
}

#[tokio::test]
async fn a_token_dies_with_its_pod_and_its_account() {
    let server = ApiServer::start();
    let account = json!({"metadata": {"name": "agent"}});
    post(&server, ACCOUNTS, account.clone()).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    post(&server, PODS, pod.clone()).await;
    let bound = json!({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}});
    let (free, bound) = (issue(&server, json!({})).await, issue(&server, bound).await);
    assert_eq!((bearer(&server, &free).await, bearer(&server, &bound).await), (200, 200));
    send(&server, "DELETE", &format!("{PODS}/p?gracePeriodSeconds=0"), None).await;
    post(&server, PODS, pod).await;
    assert_eq!((bearer(&server, &free).await, bearer(&server, &bound).await), (200, 401));
    send(&server, "DELETE", &format!("{ACCOUNTS}/agent"), None).await;
    post(&server, ACCOUNTS, account).await;
    assert_eq!(bearer(&server, &free).await, 401);
    assert_eq!(reviewed(&server, &free).await.get("authenticated"), None);
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let (roles, bindings) = (format!("{RBAC}/namespaces/default/roles"), format!("{RBAC}/clusterrolebindings"));
    let write = rule("rbac.authorization.k8s.io", "*", &["create", "update"]);
    let server = granting(json!([write, rule("", "pods", &["get"])])).await;
    let role = |verbs: &[&str]| Some((JSON, json!({"metadata": {"name": "r"}, "rules": [rule("", "pods", verbs)]})));
    let (code, refused) = bob(&server, "POST", &roles, role(&["get", "list", "watch"])).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}"
    );
    assert_eq!(bob(&server, "POST", &roles, role(&["get"])).await.0, 201);
    assert_eq!(bob(&server, "PUT", &format!("{roles}/r"), role(&["*"])).await.0, 403);
    let admin = || Some((JSON, binding("admin", "cluster-admin", "bob")));
    assert_eq!(bob(&server, "POST", &bindings, admin()).await.0, 403);
    let unknown = Some((JSON, binding("unknown", "nosuch", "bob")));
    assert_eq!(bob(&server, "POST", &bindings, unknown).await.0, 404);
    let own = Some((JSON, binding("own", "bob", "eve")));
    assert_eq!(bob(&server, "POST", &bindings, own).await.0, 201);

    let write = rule("rbac.authorization.k8s.io", "*", &["create", "escalate", "bind"]);
    let server = granting(json!([write])).await;
    assert_eq!(bob(&server, "POST", &roles, role(&["*"])).await.0, 201);
    assert_eq!(bob(&server, "GET", PODS, None).await.0, 403);
    assert_eq!(bob(&server, "POST", &bindings, admin()).await.0, 201);
    assert_eq!(bob(&server, "GET", PODS, None).await.0, 200);
}

#[tokio::test]
async fn who_only_lets_go_of_a_role_grants_nothing() {
    let server = granting(json!([rule("rbac.authorization.k8s.io", "*", &["patch"])])).await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = json!({"metadata": {"name": "r", "finalizers": ["t.io/hold"]}, "rules": [rule("", "pods", &["*"])]});
    post(&server, &roles, role).await;
    for (change, expected) in [(json!({"labels": {"a": "b"}}), 403), (json!({"finalizers": null}), 200)] {
        let body = Some(("application/merge-patch+json", json!({"metadata": change})));
        assert_eq!(bob(&server, "PATCH", &format!("{roles}/r"), body).await.0, expected, "{change}");
    }
}

/// A policy that has something against every creation of a resource.
async fn against(server: &ApiServer, resource: &str, expression: &str, action: &str) {
    let api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]});
    post(server, &format!("{api}ies"), json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let spec = json!({"policyName": "p", "validationActions": [action]});
    post(server, &format!("{api}ybindings"), json!({"metadata": {"name": "b"}, "spec": spec})).await;
}

#[tokio::test]
async fn policies_are_asked_about_bindings_evictions_tokens_and_scales() {
    let server = ApiServer::start();
    post(&server, ACCOUNTS, json!({"metadata": {"name": "agent"}})).await;
    let containers = json!({"containers": [{"name": "c", "image": "i:1"}]});
    post(&server, PODS, json!({"metadata": {"name": "p"}, "spec": containers})).await;
    let (labels, deployments) = (json!({"app": "x"}), "/apis/apps/v1/namespaces/default/deployments");
    let template = json!({"metadata": {"labels": labels}, "spec": containers});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    post(&server, deployments, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    // The kinds prove that the policy sees what was posted.
    let only = "!(request.kind.kind in ['Binding', 'Eviction', 'TokenRequest']) && request.subResource != 'scale'";
    against(&server, "*/*", only, "Deny").await;
    let target = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    for (method, path, body) in [
        ("POST", format!("{PODS}/p/binding"), target),
        ("POST", format!("{PODS}/p/eviction"), eviction),
        ("POST", format!("{ACCOUNTS}/agent/token"), json!({"spec": {}})),
        ("PUT", format!("{deployments}/d/scale"), json!({"metadata": {"name": "d"}, "spec": {"replicas": 3}})),
    ] {
        let (code, answer) = send(&server, method, &path, Some((JSON, body))).await;
        assert_eq!(code, 422, "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("denied request"), "{path}: {answer}");
    }
    assert_eq!(send(&server, "GET", &format!("{PODS}/p"), None).await.1["spec"].get("nodeName"), None);
}

#[tokio::test]
async fn a_pod_with_two_budgets_cannot_be_evicted() {
    let server = ApiServer::start();
    let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
    post(&server, PODS, json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": spec})).await;
    for name in ["a", "b"] {
        let spec = json!({"minAvailable": 0, "selector": {"matchLabels": {"app": "x"}}});
        let body = json!({"metadata": {"name": name}, "spec": spec});
        post(&server, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", body).await;
    }
    server.settle().await;
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let (code, refused) = send(&server, "POST", &format!("{PODS}/p/eviction"), Some((JSON, body))).await;
    let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!((code, &refused["message"]), (500, &json!(why)));
}

#[tokio::test]
async fn a_name_drawn_twice_is_warned_of_once() {
    /// Makes one named map, then one with a generated name.
    async fn run(first: &str) -> (String, usize) {
        let server = ApiServer::builder().seed(1).start();
        against(&server, "configmaps", "object.metadata.name == ''", "Warn").await;
        post(&server, MAPS, json!({"metadata": {"name": first}})).await;
        let body = json!({"metadata": {"generateName": "m-"}});
        let (code, warnings, answer) = ask(&server, &[], ("POST", MAPS, Some((JSON, body)))).await;
        assert_eq!(code, 201, "{answer}");
        (answer["metadata"]["name"].as_str().unwrap().to_owned(), warnings)
    }
    let (name, _) = run("other").await;
    let (another, warnings) = run(&name).await;
    assert_ne!(name, another);
    assert_eq!(warnings, 1);
}

#[tokio::test]
async fn a_warning_may_be_in_any_language() {
    let server = ApiServer::start();
    against(&server, "configmaps", "object.metadata.name == 'größer'", "Warn").await;
    let request = http::Request::post(MAPS).header("content-type", JSON);
    let body = json!({"metadata": {"name": "m"}}).to_string();
    let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
    let response = server.service("test").oneshot(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let warning = String::from_utf8_lossy(response.headers()["warning"].as_bytes()).into_owned();
    assert!(warning.ends_with("failed expression: object.metadata.name == 'größer'\""), "{warning}");
}

#[tokio::test]
async fn a_rules_review_tells_everything_somebody_may_do() {
    let server =
        granting(json!([rule("", "pods", &["get"]), {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])).await;
    let mut named = rule("", "configmaps", &["update"]);
    named["resourceNames"] = json!(["m"]);
    post(&server, &format!("{RBAC}/namespaces/default/roles"), json!({"metadata": {"name": "r"}, "rules": [named]}))
        .await;
    let mut bound = binding("b", "r", "bob");
    bound["roleRef"]["kind"] = "Role".into();
    post(&server, &format!("{RBAC}/namespaces/default/rolebindings"), bound).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = async |namespace: &str| {
        let body = json!({"spec": {"namespace": namespace}});
        let (code, answer) = bob(&server, "POST", path, Some((JSON, body))).await;
        assert_eq!((code, &answer["status"]["incomplete"]), (201, &json!(false)));
        answer["status"].clone()
    };
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let maps = json!({"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["m"]});
    let told = |status: &Value, rule: &Value| status["resourceRules"].as_array().unwrap().contains(rule);
    let (here, elsewhere) = (rules("default").await, rules("kube-system").await);
    assert!(told(&here, &pods) && told(&here, &maps), "{here}");
    assert!(told(&elsewhere, &pods) && !told(&elsewhere, &maps), "{elsewhere}");
    let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics"]});
    assert!(here["nonResourceRules"].as_array().unwrap().contains(&urls), "{here}");
    assert_eq!(bob(&server, "POST", path, Some((JSON, json!({"spec": {}})))).await.0, 400);
    // Who may do everything is told so.
    let (_, admin) = send(&server, "POST", path, Some((JSON, json!({"spec": {"namespace": "default"}})))).await;
    assert_eq!(admin["status"]["resourceRules"][0]["verbs"], json!(["*"]));
}
