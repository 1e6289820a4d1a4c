//! What kubectl relies on, asked for without kubectl.

use std::path::PathBuf;

use cobalt_apiserver::ApiServer;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::stage::Stage;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const HYPERVISORS: &str = "/apis/kvm.cloud.sap/v1/hypervisors";

fn stage(name: &str) -> Stage {
    Stage::new(name, PathBuf::new())
}

/// A GET with headers; status, headers and body of the answer.
fn get(stage: &Stage, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Value) {
    let mut request = http::Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(bytes::Bytes::new())).expect("a request");
    stage.wait(async {
        let response = stage.server().service("test").oneshot(request).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap_or_default())
    })
}

#[test]
fn the_first_form_we_have_is_answered() {
    let stage = stage("forms");
    let kind = |accept: &str| {
        let (status, _, body) = get(&stage, HYPERVISORS, &[("accept", accept)]);
        (status.as_u16(), body["kind"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(kind(TABLE), (200, "Table".to_owned()));
    let unknown = "application/json;as=Table;v=v7;g=meta.k8s.io";
    assert_eq!(kind(&format!("{unknown},application/json")), (200, "HypervisorList".to_owned()));
    assert_eq!(kind(&format!("application/vnd.kubernetes.protobuf, {TABLE}")), (200, "Table".to_owned()));
    assert_eq!(kind(unknown), (406, "Status".to_owned()));
    assert_eq!(kind("application/json;as=Chair;v=v1;g=meta.k8s.io"), (406, "Status".to_owned()));
}

#[test]
fn a_row_carries_as_much_of_its_object_as_was_asked_for() {
    let stage = stage("rows");
    let row = |include: &str| {
        let (_, _, table) = get(&stage, &format!("{HYPERVISORS}?includeObject={include}"), &[("accept", TABLE)]);
        table["rows"][0]["object"].clone()
    };
    assert_eq!(row("None"), Value::Null);
    assert_eq!(row("Metadata")["kind"], "PartialObjectMetadata");
    assert_eq!(row("Metadata")["spec"], Value::Null);
    assert_eq!(row("Object")["spec"]["lifecycleEnabled"], json!(true));
    let (status, _, refusal) = get(&stage, &format!("{HYPERVISORS}?includeObject=All"), &[("accept", TABLE)]);
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(refusal["message"].as_str().is_some_and(|text| text.contains("must be 'Metadata', 'Object', 'None'")));
}

#[test]
fn a_page_of_a_table_leads_to_the_next() {
    let stage = stage("pages");
    let (_, _, first) = get(&stage, &format!("{HYPERVISORS}?limit=1"), &[("accept", TABLE)]);
    assert_eq!(first["rows"].as_array().map(Vec::len), Some(1));
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let (_, _, second) = get(&stage, &format!("{HYPERVISORS}?limit=1&continue={token}"), &[("accept", TABLE)]);
    assert_eq!(second["rows"][0]["cells"][0], "hv2");
    assert_eq!(second["metadata"].get("continue"), None);
}

#[test]
fn only_the_first_event_of_a_watch_has_columns() {
    let stage = stage("watch");
    let path = format!(
        "{HYPERVISORS}?watch=true&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let request =
        http::Request::get(path).header("accept", TABLE).body(Full::new(bytes::Bytes::new())).expect("a request");
    let lines = stage.wait(async {
        let response = stage.server().service("test").oneshot(request).await.expect("a watch");
        let bytes = response.into_body().collect().await.expect("events").to_bytes();
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds[..3], ["ADDED", "ADDED", "BOOKMARK"]);
    assert!(events[0]["object"]["columnDefinitions"].is_array());
    assert!(events[1..].iter().all(|event| event["object"]["columnDefinitions"].is_null()));
    let mark = &events[2]["object"]["rows"][0];
    assert_eq!(mark["cells"].as_array().map(|cells| cells[1..].iter().all(Value::is_null)), Some(true));
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

#[test]
fn discovery_is_sent_again_only_after_a_change() {
    let stage = stage("discovery");
    let (_, headers, body) = get(&stage, "/apis", &[("accept", AGGREGATED)]);
    assert_eq!(headers["content-type"], AGGREGATED);
    assert_eq!(headers["vary"], "Accept");
    let named = |body: &Value, name: &str| {
        body["items"].as_array().is_some_and(|items| items.iter().any(|item| item["metadata"]["name"] == name))
    };
    assert!(named(&body, "kvm.cloud.sap"));
    let tag = headers["etag"].to_str().expect("a tag").to_owned();
    let again = || get(&stage, "/apis", &[("accept", AGGREGATED), ("if-none-match", &tag)]);
    assert_eq!(again().0, StatusCode::NOT_MODIFIED);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.wire.test";
    stage.send("DELETE", path, &json!({}));
    stage.wait(stage.server().settle());
    let (status, _, body) = again();
    assert_eq!(status, StatusCode::OK);
    assert!(named(&body, "kvm.cloud.sap") && !named(&body, "wire.test"));
}

#[test]
fn the_index_of_the_open_api_leads_to_documents_that_may_be_kept() {
    let stage = stage("openapi");
    let (_, _, index) = get(&stage, "/openapi/v3", &[]);
    let paths = index["paths"].as_object().expect("paths");
    assert!(paths.contains_key("apis/apps") && !paths.contains_key("apis/wire.test"));
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/wire.test/v1"));
    for (path, entry) in paths {
        let address = entry["serverRelativeURL"].as_str().expect("an address");
        let (status, headers, document) = get(&stage, address, &[("accept", "application/json")]);
        assert_eq!(status, StatusCode::OK, "{address}");
        assert_eq!(headers["cache-control"], "public, immutable", "{address}");
        assert!(!document["paths"].as_object().expect("paths").is_empty(), "{address}");
        assert_eq!(document["components"]["schemas"].is_object(), path.ends_with("/v1"), "{address}");
    }
    let (status, ..) = get(&stage, "/openapi/v3/apis/no.such/v1", &[]);
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (_, headers, document) = get(&stage, "/openapi/v2", &[("accept", "application/json")]);
    assert_eq!(document["swagger"], "2.0");
    assert!(headers.contains_key("etag"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a client sends as its wishes, it gets an answer.
    #[test]
    fn no_accept_header_makes_the_server_panic(accept in r"[a-z/*;=,. ]{0,60}|application/json;as=Table;[vg=.,;a-z0-9]{0,30}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let server = ApiServer::start();
            for path in ["/api/v1/nodes", "/apis", "/openapi/v2"] {
                let request = http::Request::get(path).header("accept", &accept);
                let request = request.body(Full::new(bytes::Bytes::new())).expect("a request");
                let response = server.service("test").oneshot(request).await.expect("an answer");
                assert!(matches!(response.status().as_u16(), 200 | 406), "{accept}: {}", response.status());
            }
        });
    }
}
