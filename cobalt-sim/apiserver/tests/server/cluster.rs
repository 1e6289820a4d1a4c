//! What a controller manager does: taints of nodes, default objects of namespaces, and how namespaces end.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

async fn post(server: &ApiServer, path: &str, body: Value) -> Value {
    let (code, answer) = send(server, "POST", path, Some((JSON, body))).await;
    assert_eq!(code, 201, "{answer}");
    server.settle().await;
    answer
}

async fn patch(server: &ApiServer, path: &str, body: Value) {
    let (code, answer) = send(server, "PATCH", path, Some((MERGE, body))).await;
    assert_eq!(code, 200, "{answer}");
    server.settle().await;
}

/// The keys of a node's taints.
async fn taints(server: &ApiServer) -> Vec<String> {
    let (_, node) = send(server, "GET", "/api/v1/nodes/n", None).await;
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.iter().map(|taint| taint["key"].as_str().unwrap().replace("node.kubernetes.io/", "")).collect()
}

#[tokio::test]
async fn the_taints_of_a_node_follow_its_condition() {
    let server = ApiServer::builder().controller_manager().start();
    post(&server, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    for (status, expected) in
        [("True", vec![]), ("False", vec!["not-ready"]), ("Unknown", vec!["unreachable"]), ("True", vec![])]
    {
        let ready = json!({"type": "Ready", "status": status});
        patch(&server, "/api/v1/nodes/n/status", json!({"status": {"conditions": [ready]}})).await;
        assert_eq!(taints(&server).await, expected, "{status}");
    }
    // Other taints are other people's.
    let own = json!([{"key": "own", "effect": "NoExecute"}]);
    patch(&server, "/api/v1/nodes/n", json!({"spec": {"unschedulable": true, "taints": own}})).await;
    assert_eq!(taints(&server).await, ["own", "unschedulable"]);
    patch(&server, "/api/v1/nodes/n", json!({"spec": {"unschedulable": null}})).await;
    assert_eq!(taints(&server).await, ["own"]);
}

#[tokio::test]
async fn a_policy_says_that_its_expressions_were_checked() {
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]});
    let server = ApiServer::builder().controller_manager().start();
    post(&server, policies, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    for generation in [1, 2] {
        let (_, policy) = send(&server, "GET", &format!("{policies}/p"), None).await;
        assert_eq!(policy["status"], json!({"observedGeneration": generation, "typeChecking": {}}));
        patch(&server, &format!("{policies}/p"), json!({"spec": {"failurePolicy": "Ignore"}})).await;
    }
}

#[tokio::test]
async fn without_a_controller_manager_nothing_is_done_to_nodes_and_namespaces() {
    let server = ApiServer::start();
    post(&server, "/api/v1/nodes", json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true}})).await;
    assert!(!taints(&server).await.contains(&"unschedulable".to_owned()));
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/default/serviceaccounts/default", None).await.0, 404);
}

#[tokio::test]
async fn a_namespace_gets_its_default_objects_and_gets_them_back() {
    let server = ApiServer::builder().controller_manager().start();
    post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "w"}})).await;
    let account = "/api/v1/namespaces/w/serviceaccounts/default";
    let (code, first) = send(&server, "GET", account, None).await;
    assert_eq!(code, 200);
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/w/configmaps/kube-root-ca.crt", None).await.0, 200);
    send(&server, "DELETE", account, None).await;
    server.settle().await;
    let (code, second) = send(&server, "GET", account, None).await;
    assert_eq!(code, 200);
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    // Pods are held to the accounts there are.
    let pod = |account: &str| json!({"metadata": {"generateName": "p-"}, "spec": {"serviceAccountName": account, "containers": [{"name": "c", "image": "i:1"}]}});
    let pods = "/api/v1/namespaces/w/pods";
    assert_eq!(send(&server, "POST", pods, Some((JSON, pod("nosuch")))).await.0, 403);
    assert_eq!(send(&server, "POST", pods, Some((JSON, pod("")))).await.1["spec"]["serviceAccountName"], "default");
    // One that goes takes them along and does not get them again.
    send(&server, "DELETE", "/api/v1/namespaces/w", None).await;
    server.settle().await;
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/w", None).await.0, 404);
    assert_eq!(server.count("serviceaccounts"), 4);
}

#[tokio::test]
async fn a_namespace_says_what_it_waits_for() {
    let server = ApiServer::start();
    post(&server, "/api/v1/namespaces", json!({"metadata": {"name": "w"}})).await;
    let maps = "/api/v1/namespaces/w/configmaps";
    post(&server, maps, json!({"metadata": {"name": "free"}})).await;
    for name in ["a", "b"] {
        post(&server, maps, json!({"metadata": {"name": name, "finalizers": ["t.io/hold"]}})).await;
    }
    post(&server, "/api/v1/namespaces/w/secrets", json!({"metadata": {"name": "s", "finalizers": ["t.io/other"]}}))
        .await;
    send(&server, "DELETE", "/api/v1/namespaces/w", None).await;
    server.settle().await;
    let condition = async |kind: &str| {
        let (_, namespace) = send(&server, "GET", "/api/v1/namespaces/w", None).await;
        assert_eq!(namespace["status"]["phase"], "Terminating");
        let conditions = namespace["status"]["conditions"].as_array().unwrap().clone();
        let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap();
        (found["status"].as_str().unwrap().to_owned(), found["message"].as_str().unwrap().to_owned())
    };
    let (status, message) = condition("NamespaceContentRemaining").await;
    assert_eq!(status, "True");
    assert_eq!(
        message,
        "Some resources are remaining: configmaps. has 2 resource instances, secrets. has 1 resource instances"
    );
    let (status, message) = condition("NamespaceFinalizersRemaining").await;
    assert_eq!(status, "True");
    assert_eq!(
        message,
        "Some content in the namespace has finalizers remaining: t.io/hold in 2 resource instances, t.io/other in 1 resource instances"
    );
    assert_eq!(condition("NamespaceDeletionContentFailure").await.0, "False");
    // It follows what is left, and the namespace is the last to go.
    let release = json!({"metadata": {"finalizers": null}});
    for path in [format!("{maps}/a"), format!("{maps}/b")] {
        patch(&server, &path, release.clone()).await;
    }
    let (_, message) = condition("NamespaceContentRemaining").await;
    assert_eq!(message, "Some resources are remaining: secrets. has 1 resource instances");
    patch(&server, "/api/v1/namespaces/w/secrets/s", release).await;
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/w", None).await.0, 404);
}
