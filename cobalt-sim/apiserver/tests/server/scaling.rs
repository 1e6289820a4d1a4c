//! The `scale` subresource.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

async fn with_deployment() -> ApiServer {
    let server = ApiServer::start();
    let labels = json!({"app": "x", "tier": "y"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    let body = json!({"metadata": {"name": "d"}, "spec": spec});
    let (code, answer) = send(&server, "POST", &format!("{DEPLOYMENTS}?fieldManager=maker"), Some((JSON, body))).await;
    assert_eq!(code, 201, "{answer}");
    server
}

async fn scale(server: &ApiServer, method: &str, query: &str, body: Option<(&str, Value)>) -> (u16, Value) {
    send(server, method, &format!("{DEPLOYMENTS}/d/scale{query}"), body).await
}

async fn replicas(server: &ApiServer) -> Value {
    send(server, "GET", &format!("{DEPLOYMENTS}/d"), None).await.1["spec"]["replicas"].clone()
}

#[tokio::test]
async fn a_scale_is_read_replaced_and_patched() {
    let server = with_deployment().await;
    let (code, shown) = scale(&server, "GET", "", None).await;
    assert_eq!((code, &shown["kind"], &shown["apiVersion"]), (200, &json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(shown["spec"], json!({"replicas": 2}));
    assert_eq!(shown["status"], json!({"replicas": 0, "selector": "app=x,tier=y"}));
    let mut put = shown.clone();
    put["spec"]["replicas"] = 3.into();
    assert_eq!(scale(&server, "PUT", "", Some((JSON, put.clone()))).await.1["spec"]["replicas"], 3);
    // The version it was read at is a condition.
    put["spec"]["replicas"] = 4.into();
    let (code, refused) = scale(&server, "PUT", "", Some((JSON, put))).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")));
    assert_eq!(scale(&server, "PATCH", "", Some((MERGE, json!({"spec": {"replicas": 5}})))).await.0, 200);
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 6}]);
    assert_eq!(scale(&server, "PATCH", "", Some(("application/json-patch+json", patch))).await.0, 200);
    assert_eq!(replicas(&server).await, 6);
    let (code, refused) = scale(&server, "PATCH", "", Some((MERGE, json!({"spec": {"replicas": -1}})))).await;
    assert_eq!((code, &refused["details"]["kind"]), (422, &json!("Scale")));
    assert_eq!(scale(&server, "DELETE", "", None).await.0, 405);
    let missing = format!("{DEPLOYMENTS}/nosuch/scale");
    assert_eq!(send(&server, "GET", &missing, None).await.0, 404);
}

#[tokio::test]
async fn a_dry_run_of_a_scale_changes_nothing() {
    let server = with_deployment().await;
    let body = Some((MERGE, json!({"spec": {"replicas": 9}})));
    assert_eq!(scale(&server, "PATCH", "?dryRun=All", body).await.1["spec"]["replicas"], 9);
    assert_eq!(replicas(&server).await, 2);
}

#[tokio::test]
async fn an_applied_scale_owns_the_replicas() {
    let server = with_deployment().await;
    let config = |count: i64| {
        Some((
            APPLY,
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": count}}),
        ))
    };
    let (code, refused) = scale(&server, "PATCH", "?fieldManager=scaler", config(4)).await;
    assert_eq!((code, &refused["details"]["causes"][0]["reason"]), (409, &json!("FieldManagerConflict")), "{refused}");
    assert_eq!(replicas(&server).await, 2);
    let (code, answer) = scale(&server, "PATCH", "?fieldManager=scaler&force=true", config(4)).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(4)), "{answer}");
    let (_, owned) = send(&server, "GET", &format!("{DEPLOYMENTS}/d"), None).await;
    let entries = owned["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == "scaler").unwrap();
    assert_eq!((&entry["operation"], &entry["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    // Whoever owns them changes them without force.
    assert_eq!(scale(&server, "PATCH", "?fieldManager=scaler", config(5)).await.0, 200);
    assert_eq!(replicas(&server).await, 5);
}

#[tokio::test]
async fn a_policy_that_warns_of_a_scale_warns_once() {
    use http_body_util::Full;
    use tower::ServiceExt;
    let server = with_deployment().await;
    let api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let rules =
        json!([{"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments/scale"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false", "message": "why"}]});
    send(&server, "POST", &format!("{api}ies"), Some((JSON, json!({"metadata": {"name": "p"}, "spec": spec})))).await;
    let spec = json!({"policyName": "p", "validationActions": ["Warn"]});
    send(&server, "POST", &format!("{api}ybindings"), Some((JSON, json!({"metadata": {"name": "b"}, "spec": spec}))))
        .await;
    let body = json!({"spec": {"replicas": 7}}).to_string();
    let request = http::Request::patch(format!("{DEPLOYMENTS}/d/scale")).header("content-type", MERGE);
    let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
    let response = server.service("test").oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}
