//! Lists: pages, past revisions, selectors.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn filled(count: usize) -> ApiServer {
    let server = ApiServer::start();
    for i in 0..count {
        let body = json!({"metadata": {"name": format!("c{i}"), "labels": {"odd": (i % 2).to_string()}}});
        assert_eq!(send(&server, "POST", MAPS, Some((JSON, body))).await.0, 201);
    }
    server
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn pages_show_one_state_even_if_the_collection_changes() {
    let server = filled(5).await;
    let (_, first) = send(&server, "GET", &format!("{MAPS}?limit=2"), None).await;
    assert_eq!(names(&first), ["c0", "c1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    send(&server, "DELETE", &format!("{MAPS}/c2"), None).await;
    send(&server, "POST", MAPS, Some((JSON, json!({"metadata": {"name": "c9"}})))).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = send(&server, "GET", &format!("{MAPS}?limit=2&continue={token}"), None).await;
    assert_eq!(names(&second), ["c2", "c3"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let token = second["metadata"]["continue"].as_str().unwrap();
    let (_, last) = send(&server, "GET", &format!("{MAPS}?limit=2&continue={token}"), None).await;
    assert_eq!(names(&last), ["c4"]);
    assert!(last["metadata"].get("continue").is_none());
    // Once the past is forgotten, a page leads on from the present.
    server.compact();
    let (code, gone) = send(&server, "GET", &format!("{MAPS}?limit=2&continue={token}"), None).await;
    assert_eq!((code, gone["reason"].as_str()), (410, Some("Expired")));
    let token = gone["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = send(&server, "GET", &format!("{MAPS}?limit=2&continue={token}"), None).await;
    assert_eq!(names(&rest), ["c4", "c9"]);
}

#[tokio::test]
async fn a_list_can_show_an_exact_past_state() {
    let server = filled(2).await;
    let then = server.revision();
    send(&server, "DELETE", &format!("{MAPS}/c0"), None).await;
    let path = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (_, past) = send(&server, "GET", &path, None).await;
    assert_eq!(names(&past), ["c0", "c1"]);
    let path = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan");
    let (_, present) = send(&server, "GET", &path, None).await;
    assert_eq!(names(&present), ["c1"]);
    let (code, error) = send(&server, "GET", &format!("{MAPS}?resourceVersion=99999"), None).await;
    assert_eq!((code, error["reason"].as_str()), (504, Some("Timeout")));
    assert_eq!(error["details"]["retryAfterSeconds"], 1);
}

#[tokio::test]
async fn selectors_choose_by_label_and_field() {
    let server = filled(4).await;
    let (_, odd) = send(&server, "GET", &format!("{MAPS}?labelSelector=odd%3D1"), None).await;
    assert_eq!(names(&odd), ["c1", "c3"]);
    let (_, one) = send(&server, "GET", &format!("{MAPS}?fieldSelector=metadata.name%3Dc2"), None).await;
    assert_eq!(names(&one), ["c2"]);
    let (code, _) = send(&server, "GET", &format!("{MAPS}?fieldSelector=data.x%3Dc2"), None).await;
    assert_eq!(code, 400);
    let (_, gone) = send(&server, "DELETE", &format!("{MAPS}?labelSelector=odd%3D1"), None).await;
    assert_eq!(names(&gone), ["c1", "c3"]);
    assert_eq!(server.count("configmaps"), 2);
}

#[tokio::test]
async fn a_list_across_namespaces_is_in_the_order_of_paths() {
    let server = ApiServer::start();
    for namespace in ["a", "a-b", "ab"] {
        let body = json!({"metadata": {"name": namespace}});
        assert_eq!(send(&server, "POST", "/api/v1/namespaces", Some((JSON, body))).await.0, 201);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        assert_eq!(send(&server, "POST", &path, Some((JSON, json!({"metadata": {"name": "m"}})))).await.0, 201);
    }
    let namespaces = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["namespace"].as_str().unwrap().to_owned()).collect()
    };
    let (_, list) = send(&server, "GET", "/api/v1/configmaps", None).await;
    assert_eq!(namespaces(&list), ["a-b", "a", "ab"]);
    // Pages go on where they ended.
    let (_, first) = send(&server, "GET", "/api/v1/configmaps?limit=1", None).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = send(&server, "GET", &format!("/api/v1/configmaps?limit=5&continue={token}"), None).await;
    assert_eq!(namespaces(&second), ["a", "ab"]);
}
