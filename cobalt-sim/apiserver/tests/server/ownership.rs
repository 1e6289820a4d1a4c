//! Garbage collection by owner references, and namespaces.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn make(server: &ApiServer, name: &str, owners: &[&Value], block: bool) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|o| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"],
                "uid": o["metadata"]["uid"], "blockOwnerDeletion": block,
            })
        })
        .collect();
    let body = json!({"metadata": {"name": name, "ownerReferences": owners}});
    let (code, made) = send(server, "POST", MAPS, Some((JSON, body))).await;
    assert_eq!(code, 201, "{made}");
    made
}

async fn delete(server: &ApiServer, name: &str, policy: &str) -> (u16, Value) {
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
    send(server, "DELETE", &format!("{MAPS}/{name}"), Some((JSON, body))).await
}

async fn read(server: &ApiServer, name: &str) -> (u16, Value) {
    send(server, "GET", &format!("{MAPS}/{name}"), None).await
}

#[tokio::test]
async fn dependents_follow_their_owner_in_the_background() {
    let server = ApiServer::start();
    let owner = make(&server, "owner", &[], false).await;
    let child = make(&server, "child", &[&owner], false).await;
    make(&server, "grandchild", &[&child], false).await;
    let (code, answer) = delete(&server, "owner", "Background").await;
    assert_eq!((code, answer["status"].as_str()), (200, Some("Success")));
    server.settle().await;
    assert_eq!(server.count("configmaps"), 0);
}

#[tokio::test]
async fn a_second_owner_keeps_a_dependent() {
    let server = ApiServer::start();
    let one = make(&server, "one", &[], false).await;
    let two = make(&server, "two", &[], false).await;
    make(&server, "child", &[&one, &two], false).await;
    delete(&server, "one", "Background").await;
    server.settle().await;
    let (code, child) = read(&server, "child").await;
    assert_eq!(code, 200);
    assert_eq!(child["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_owner_deleted_in_the_foreground_goes_last() {
    let server = ApiServer::start();
    let owner = make(&server, "owner", &[], false).await;
    let mut child = json!({"metadata": {"name": "child", "finalizers": ["t.io/hold"], "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]}});
    child["apiVersion"] = "v1".into();
    child["kind"] = "ConfigMap".into();
    send(&server, "POST", MAPS, Some((JSON, child))).await;
    let (code, answer) = delete(&server, "owner", "Foreground").await;
    assert_eq!((code, &answer["metadata"]["finalizers"]), (200, &json!(["foregroundDeletion"])));
    server.settle().await;
    assert_eq!(read(&server, "owner").await.0, 200);
    assert!(read(&server, "child").await.1["metadata"].get("deletionTimestamp").is_some());
    let release = json!({"metadata": {"finalizers": null}});
    send(&server, "PATCH", &format!("{MAPS}/child"), Some(("application/merge-patch+json", release))).await;
    server.settle().await;
    assert_eq!(server.count("configmaps"), 0);
}

#[tokio::test]
async fn a_second_owner_keeps_a_dependent_from_a_foreground_deletion() {
    let server = ApiServer::start();
    let one = make(&server, "one", &[], false).await;
    let two = make(&server, "two", &[], false).await;
    make(&server, "shared", &[&one, &two], true).await;
    make(&server, "own", &[&one], true).await;
    delete(&server, "one", "Foreground").await;
    server.settle().await;
    assert_eq!((read(&server, "one").await.0, read(&server, "own").await.0), (404, 404));
    let (code, shared) = read(&server, "shared").await;
    assert_eq!((code, shared["metadata"].get("deletionTimestamp")), (200, None));
    let owners = shared["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["name"]), (1, &json!("two")));
}

#[tokio::test]
async fn an_owner_in_another_namespace_is_no_owner() {
    let server = ApiServer::start();
    let elsewhere = json!({"metadata": {"name": "owner"}});
    let path = "/api/v1/namespaces/kube-system/configmaps";
    let (code, owner) = send(&server, "POST", path, Some((JSON, elsewhere))).await;
    assert_eq!(code, 201, "{owner}");
    make(&server, "child", &[&owner], false).await;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let wide = json!({"metadata": {"name": "wide", "ownerReferences": [reference]}});
    assert_eq!(send(&server, "POST", "/api/v1/nodes", Some((JSON, wide))).await.0, 201);
    server.settle().await;
    assert_eq!(read(&server, "child").await.0, 404);
    // One of the cluster that names it is never collected.
    assert_eq!(send(&server, "GET", "/api/v1/nodes/wide", None).await.0, 200);
}

#[tokio::test]
async fn an_owner_that_cannot_be_looked_up_keeps_its_dependents() {
    let server = ApiServer::start();
    let uid = "00000000-0000-0000-0000-00000000dead";
    // A gone owner of a kind nobody serves, and one in a namespace for an object that is in none.
    let unknown = json!({"apiVersion": "x.test/v1", "kind": "Ghost", "name": "g", "uid": uid});
    let narrow = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "g", "uid": uid});
    let wide = json!({"apiVersion": "v1", "kind": "Namespace", "name": "g", "uid": uid});
    for (name, owner) in [("unknown", unknown), ("narrow", narrow), ("wide", wide)] {
        let node = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        assert_eq!(send(&server, "POST", "/api/v1/nodes", Some((JSON, node))).await.0, 201);
    }
    server.settle().await;
    for (name, expected) in [("unknown", 200), ("narrow", 200), ("wide", 404)] {
        assert_eq!(send(&server, "GET", &format!("/api/v1/nodes/{name}"), None).await.0, expected, "{name}");
    }
}

#[tokio::test]
async fn orphans_stay_without_their_owner() {
    let server = ApiServer::start();
    let owner = make(&server, "owner", &[], false).await;
    make(&server, "child", &[&owner], true).await;
    delete(&server, "owner", "Orphan").await;
    server.settle().await;
    assert_eq!(read(&server, "owner").await.0, 404);
    let (code, child) = read(&server, "child").await;
    assert_eq!(code, 200);
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[tokio::test]
async fn an_object_of_an_unknown_owner_is_collected() {
    let server = ApiServer::start();
    let ghost = json!({"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-00000000dead"}});
    make(&server, "child", &[&ghost], false).await;
    server.settle().await;
    assert_eq!(read(&server, "child").await.0, 404);
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_objects_along() {
    let server = ApiServer::start();
    let namespace = json!({"metadata": {"name": "w"}});
    let (code, made) = send(&server, "POST", "/api/v1/namespaces", Some((JSON, namespace))).await;
    assert_eq!((code, &made["status"]["phase"]), (201, &json!("Active")));
    let path = "/api/v1/namespaces/w/configmaps";
    for body in
        [json!({"metadata": {"name": "plain"}}), json!({"metadata": {"name": "held", "finalizers": ["t.io/hold"]}})]
    {
        assert_eq!(send(&server, "POST", path, Some((JSON, body))).await.0, 201);
    }
    let (_, going) = send(&server, "DELETE", "/api/v1/namespaces/w", None).await;
    assert_eq!(going["status"]["phase"], "Terminating");
    server.settle().await;
    let late = send(&server, "POST", path, Some((JSON, json!({"metadata": {"name": "late"}})))).await;
    assert_eq!((late.0, &late.1["details"]["causes"][0]["reason"]), (403, &json!("NamespaceTerminating")));
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/w", None).await.0, 200);
    let release = json!({"metadata": {"finalizers": null}});
    send(&server, "PATCH", &format!("{path}/held"), Some(("application/merge-patch+json", release))).await;
    server.settle().await;
    assert_eq!(send(&server, "GET", "/api/v1/namespaces/w", None).await.0, 404);
    assert_eq!(send(&server, "DELETE", "/api/v1/namespaces/default", None).await.0, 403);
}
