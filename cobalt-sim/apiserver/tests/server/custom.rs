//! Custom resources: definitions at run time, schemas, status, finalizers.

use cobalt_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::support::send;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const THINGS: &str = "/apis/t.example.com/v1/things";

/// A cluster-scoped kind with a default, an enum, a map list and a status.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.t.example.com"},
        "spec": {
            "group": "t.example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "properties": {
                            "size": {"type": "integer", "default": 3, "minimum": 1},
                            "mode": {"type": "string", "enum": ["a", "b"]},
                        }},
                        "status": {"type": "object", "properties": {
                            "phase": {"type": "string"},
                            "conditions": {
                                "type": "array",
                                "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["type"],
                                "items": {"type": "object", "required": ["type"], "properties": {
                                    "type": {"type": "string"}, "status": {"type": "string"},
                                }},
                            },
                        }},
                    },
                }},
            }],
        },
    })
}

pub(crate) async fn with_things() -> ApiServer {
    let server = ApiServer::start();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = send(&server, "POST", path, Some((JSON, definition()))).await;
    assert_eq!(code, 201, "{answer}");
    server.settle().await;
    server
}

pub(crate) fn thing(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "t.example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

async fn create(server: &ApiServer, name: &str) -> Value {
    let (code, made) = send(server, "POST", THINGS, Some((JSON, thing(name, &json!({}))))).await;
    assert_eq!(code, 201, "{made}");
    made
}

#[tokio::test]
async fn a_definition_is_served_once_it_is_established() {
    let server = ApiServer::start();
    assert_eq!(send(&server, "GET", THINGS, None).await.0, 404);
    let server = with_things().await;
    let (code, list) = send(&server, "GET", THINGS, None).await;
    assert_eq!(code, 200);
    assert_eq!(list["kind"], "ThingList");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.t.example.com";
    let (_, definition) = send(&server, "GET", path, None).await;
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
    let (_, discovered) = send(&server, "GET", "/apis/t.example.com/v1", None).await;
    assert_eq!(discovered["resources"][1]["name"], "things/status");
}

#[tokio::test]
async fn defaults_are_set_and_unknown_fields_go() {
    let server = with_things().await;
    let body = thing("a", &json!({"bogus": 1}));
    let (code, made) = send(&server, "POST", THINGS, Some((JSON, body.clone()))).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"size": 3})));
    let strict = format!("{THINGS}?fieldValidation=Strict");
    let (code, error) = send(&server, "POST", &strict, Some((JSON, body))).await;
    assert_eq!(code, 400, "{error}");
    let (code, error) = send(&server, "POST", THINGS, Some((JSON, thing("b", &json!({"mode": "x"}))))).await;
    assert_eq!((code, error["reason"].as_str()), (422, Some("Invalid")));
    assert_eq!(error["details"]["causes"][0]["field"], "spec.mode");
}

#[tokio::test]
async fn status_and_spec_do_not_touch_each_other() {
    let server = with_things().await;
    create(&server, "a").await;
    let path = format!("{THINGS}/a");
    let both = json!({"spec": {"size": 5}, "status": {"phase": "On"}});
    let (_, main) = send(&server, "PATCH", &path, Some((MERGE, both.clone()))).await;
    assert_eq!((&main["spec"]["size"], &main["metadata"]["generation"]), (&json!(5), &json!(2)));
    assert!(main.get("status").is_none());
    let body = json!({"spec": {"size": 9}, "status": {"phase": "On"}, "metadata": {"labels": {"x": "y"}}});
    let (_, status) = send(&server, "PATCH", &format!("{path}/status"), Some((MERGE, body))).await;
    assert_eq!(status["status"]["phase"], "On");
    assert_eq!(status["spec"]["size"], 5);
    assert_eq!(status["metadata"]["generation"], 2);
    assert!(status["metadata"].get("labels").is_none());
    // A patch that changes nothing keeps the revision.
    let same = json!({"status": {"phase": "Ignored"}});
    let (_, again) = send(&server, "PATCH", &path, Some((MERGE, same))).await;
    assert_eq!(again["metadata"]["resourceVersion"], status["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn applies_own_their_fields_and_conflict_over_others() {
    let server = with_things().await;
    let path = |manager: &str| format!("{THINGS}/a?fieldManager={manager}");
    let (code, _) = send(&server, "PATCH", &path("one"), Some((APPLY, thing("a", &json!({"mode": "a"}))))).await;
    assert_eq!(code, 201);
    let body = thing("a", &json!({"mode": "b"}));
    let (code, error) = send(&server, "PATCH", &path("two"), Some((APPLY, body.clone()))).await;
    assert_eq!((code, error["reason"].as_str()), (409, Some("Conflict")));
    assert_eq!(error["details"]["causes"][0]["field"], ".spec.mode");
    let forced = format!("{}&force=true", path("two"));
    let (code, first) = send(&server, "PATCH", &forced, Some((APPLY, body.clone()))).await;
    assert_eq!((code, first["spec"]["mode"].as_str()), (200, Some("b")));
    let (_, second) = send(&server, "PATCH", &forced, Some((APPLY, body))).await;
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn two_agents_share_a_map_list_of_conditions() {
    let server = with_things().await;
    create(&server, "a").await;
    for (manager, kind) in [("one", "Ready"), ("two", "Reachable")] {
        let mut body = thing("a", &json!({}));
        body["status"] = json!({"conditions": [{"type": kind, "status": "True"}]});
        let path = format!("{THINGS}/a/status?fieldManager={manager}");
        let (code, answer) = send(&server, "PATCH", &path, Some((APPLY, body))).await;
        assert_eq!(code, 200, "{answer}");
    }
    let (_, read) = send(&server, "GET", &format!("{THINGS}/a"), None).await;
    assert_eq!(read["status"]["conditions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_finalizer_holds_a_deleted_object() {
    let server = with_things().await;
    let mut body = thing("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["t.io/x"]);
    send(&server, "POST", THINGS, Some((JSON, body))).await;
    let path = format!("{THINGS}/a");
    let (code, held) = send(&server, "DELETE", &path, None).await;
    assert_eq!(code, 200);
    assert!(held["metadata"].get("deletionTimestamp").is_some());
    assert_eq!(held["metadata"]["generation"], 2);
    let (code, _) =
        send(&server, "PATCH", &path, Some((MERGE, json!({"metadata": {"finalizers": ["t.io/x", "t.io/y"]}})))).await;
    assert_eq!(code, 422);
    let (code, last) = send(&server, "PATCH", &path, Some((MERGE, json!({"metadata": {"finalizers": null}})))).await;
    assert_eq!(code, 200);
    assert_eq!(last["metadata"]["resourceVersion"], held["metadata"]["resourceVersion"]);
    assert_eq!(send(&server, "GET", &path, None).await.0, 404);
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let server = with_things().await;
    create(&server, "a").await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.t.example.com";
    let (code, going) = send(&server, "DELETE", path, None).await;
    assert_eq!(code, 200);
    assert_eq!(going["metadata"]["finalizers"][0], "customresourcecleanup.apiextensions.k8s.io");
    server.settle().await;
    assert_eq!(send(&server, "GET", path, None).await.0, 404);
    assert_eq!(send(&server, "GET", THINGS, None).await.0, 404);
    assert_eq!(server.count("things.t.example.com"), 0);
}

#[tokio::test]
async fn an_object_is_served_in_every_version_of_its_definition() {
    let server = ApiServer::start();
    let mut both = definition();
    let mut second = both["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    both["spec"]["versions"].as_array_mut().unwrap().push(second);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send(&server, "POST", path, Some((JSON, both))).await.0, 201);
    server.settle().await;
    create(&server, "a").await;
    let (_, read) = send(&server, "GET", "/apis/t.example.com/v2/things/a", None).await;
    assert_eq!(read["apiVersion"], "t.example.com/v2");
    let (_, list) = send(&server, "GET", "/apis/t.example.com/v2/things", None).await;
    assert_eq!(list["items"][0]["apiVersion"], "t.example.com/v2");
    let (_, group) = send(&server, "GET", "/apis/t.example.com", None).await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
}

#[tokio::test]
async fn a_default_added_later_shows_on_old_objects() {
    let server = with_things().await;
    let made = create(&server, "a").await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.t.example.com";
    let (_, mut changed) = send(&server, "GET", path, None).await;
    let spec = &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["late"] = json!({"type": "string", "default": "x"});
    let (code, answer) = send(&server, "PUT", path, Some((JSON, changed))).await;
    assert_eq!(code, 200, "{answer}");
    server.settle().await;
    let (_, read) = send(&server, "GET", &format!("{THINGS}/a"), None).await;
    assert_eq!(read["spec"]["late"], "x");
    assert_eq!(read["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn a_dry_run_answers_and_stores_nothing() {
    let server = with_things().await;
    let before = server.revision();
    let path = format!("{THINGS}?dryRun=All");
    let (code, dry) = send(&server, "POST", &path, Some((JSON, thing("a", &json!({}))))).await;
    assert_eq!((code, &dry["spec"]["size"]), (201, &json!(3)));
    assert!(dry["metadata"].get("resourceVersion").is_none());
    assert_eq!(server.revision(), before);
    assert_eq!(server.count("things.t.example.com"), 0);
}
