//! Built-in kinds: pods, budgets, events, leases, nodes.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn post(server: &ApiServer, path: &str, body: Value) -> Value {
    let (code, answer) = send(server, "POST", path, Some((JSON, body))).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

async fn with_pod() -> ApiServer {
    let server = ApiServer::start();
    post(&server, "/api/v1/nodes", json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}}))
        .await;
    let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
    post(&server, PODS, json!({"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": spec})).await;
    server
}

async fn bind(server: &ApiServer) -> (u16, Value) {
    let target = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    send(server, "POST", &format!("{PODS}/p/binding"), Some((JSON, target))).await
}

#[tokio::test]
async fn a_pod_is_bound_once_and_waits_for_its_grace_period() {
    let server = with_pod().await;
    assert_eq!(bind(&server).await.0, 201);
    assert_eq!(bind(&server).await.0, 409);
    let (_, found) = send(&server, "GET", &format!("{PODS}?fieldSelector=spec.nodeName%3Dn"), None).await;
    assert_eq!(found["items"][0]["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
    let (_, going) = send(&server, "DELETE", &format!("{PODS}/p"), None).await;
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
    assert_eq!(send(&server, "DELETE", &format!("{PODS}/p"), Some((JSON, now))).await.0, 200);
    assert_eq!(server.count("pods"), 0);
}

#[tokio::test]
async fn an_eviction_respects_the_disruption_budget() {
    let server = with_pod().await;
    bind(&server).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}});
    post(&server, budgets, json!({"metadata": {"name": "b"}, "spec": spec})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    send(&server, "PATCH", &format!("{PODS}/p/status"), Some((STRATEGIC, ready))).await;
    server.settle().await;
    let evict = || async {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        send(&server, "POST", &format!("{PODS}/p/eviction"), Some((JSON, body))).await
    };
    let (code, refused) = evict().await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (429, &json!("DisruptionBudget")));
    let none = json!({"spec": {"minAvailable": 0}});
    send(&server, "PATCH", &format!("{budgets}/b"), Some(("application/merge-patch+json", none))).await;
    server.settle().await;
    assert_eq!(evict().await.0, 201);
    let (_, pod) = send(&server, "GET", &format!("{PODS}/p"), None).await;
    assert!(pod["metadata"].get("deletionTimestamp").is_some());
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "DisruptionTarget"));
}

#[tokio::test]
async fn an_event_is_one_object_in_two_groups() {
    let server = ApiServer::start();
    let body = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "x/y",
        "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal", "note": "hello",
        "regarding": {"kind": "Node", "name": "n"},
    });
    post(&server, "/apis/events.k8s.io/v1/namespaces/default/events", body).await;
    let (_, core) = send(&server, "GET", "/api/v1/namespaces/default/events/e", None).await;
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("hello"), &json!("n")));
    let path = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DNode";
    assert_eq!(send(&server, "GET", path, None).await.1["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_lease_wants_microseconds_and_a_resource_version() {
    let server = ApiServer::start();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |time: &str| json!({"metadata": {"name": "l"}, "spec": {"renewTime": time}});
    let path = format!("{leases}/l");
    let (code, _) = send(&server, "PUT", &path, Some((JSON, lease("2026-01-01T00:00:00.000000Z")))).await;
    assert_eq!(code, 201);
    let (code, _) = send(&server, "PUT", &path, Some((JSON, lease("2026-01-01T00:00:00.000001Z")))).await;
    assert_eq!(code, 422);
    let (code, _) = send(&server, "POST", leases, Some((JSON, lease("2026-01-01T00:00:00Z")))).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn node_conditions_merge_by_type_and_new_nodes_are_not_ready() {
    let server = ApiServer::start();
    let node = post(&server, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!(node["spec"]["taints"][0]["key"], "node.kubernetes.io/not-ready");
    for kind in ["Ready", "Other"] {
        let body = json!({"status": {"conditions": [{"type": kind, "status": "True"}], "capacity": {"cpu": "4"}}});
        send(&server, "PATCH", "/api/v1/nodes/n/status", Some((STRATEGIC, body))).await;
    }
    let (_, node) = send(&server, "GET", "/api/v1/nodes/n", None).await;
    assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 2);
    assert_eq!(node["status"]["allocatable"]["cpu"], "4");
}

#[tokio::test]
async fn a_token_request_of_a_wrong_type_is_a_bad_request() {
    let server = ApiServer::start();
    let account = "/api/v1/namespaces/default/serviceaccounts";
    send(&server, "POST", account, Some((JSON, json!({"metadata": {"name": "agent"}})))).await;
    let path = format!("{account}/agent/token");
    for wrong in [json!("x"), json!([]), json!(1)] {
        let (code, refused) = send(&server, "POST", &path, Some((JSON, json!({"spec": wrong})))).await;
        assert_eq!((code, &refused["reason"]), (400, &json!("BadRequest")), "{refused}");
    }
    assert_eq!(send(&server, "POST", &path, Some((JSON, json!({"spec": null})))).await.0, 201);
}

#[tokio::test]
async fn the_scale_of_a_strange_selector_is_shown() {
    let server = ApiServer::start();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"a": "b c,=(d"});
    let spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    });
    post(&server, path, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let (code, scale) = send(&server, "GET", &format!("{path}/d/scale"), None).await;
    assert_eq!((code, &scale["kind"]), (200, &json!("Scale")));
}

#[tokio::test]
async fn a_service_gets_an_address_of_its_own_and_keeps_it() {
    let server = ApiServer::start();
    let path = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let ports = json!([{"port": 80}]);
    let made = post(&server, path, service("a", json!({"ports": ports}))).await;
    let spec = &made["spec"];
    assert_eq!(spec["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
    assert_eq!((&spec["type"], &spec["sessionAffinity"]), (&json!("ClusterIP"), &json!("None")));
    let address = spec["clusterIP"].as_str().unwrap();
    assert!(address.starts_with("10.96.") && spec["clusterIPs"] == json!([address]), "{spec}");
    let other = post(&server, path, service("b", json!({"ports": ports}))).await;
    assert_ne!(other["spec"]["clusterIP"], spec["clusterIP"]);
    let headless = post(&server, path, service("c", json!({"clusterIP": "None", "ports": ports}))).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = post(&server, path, service("d", json!({"type": "ExternalName", "externalName": "x.test"}))).await;
    assert_eq!(external["spec"].get("clusterIP"), None);
    // Who replaces it without naming the address keeps it; nobody changes it.
    let (code, kept) =
        send(&server, "PUT", &format!("{path}/a"), Some((JSON, service("a", json!({"ports": ports}))))).await;
    assert_eq!((code, &kept["spec"]["clusterIP"]), (200, &spec["clusterIP"]), "{kept}");
    let mut moved = kept.clone();
    moved["spec"]["clusterIP"] = "10.96.9.9".into();
    moved["spec"]["clusterIPs"] = json!(["10.96.9.9"]);
    let (code, refused) = send(&server, "PUT", &format!("{path}/a"), Some((JSON, moved))).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (422, &json!("spec.clusterIPs[0]")));
}

#[tokio::test]
async fn a_budget_out_of_all_proportion_stops_no_controller() {
    let server = with_pod().await;
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({"maxUnavailable": format!("{}%", i64::MAX), "selector": {"matchLabels": {"app": "x"}}});
    let (code, answer) =
        send(&server, "POST", path, Some((JSON, json!({"metadata": {"name": "b"}, "spec": spec})))).await;
    assert!(code < 500, "{answer}");
    crate::support::soon("the controllers' rest", server.settle()).await;
}
