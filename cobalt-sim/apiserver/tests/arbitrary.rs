//! Whatever a client sends, it gets an answer: never a panic, never a 500 without a `Status`.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use bytes::Bytes;
use cobalt_apiserver::ApiServer;
use http::Request;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

const DEFINITION: &str = include_str!("wire/crd-gadget.json");

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap());

/// One server for all cases: what earlier ones left behind is part of the test.
static SERVER: LazyLock<ApiServer> = LazyLock::new(|| {
    RUNTIME.block_on(async {
        let server = ApiServer::builder().seed(1).controller_manager().start();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (status, text) = send(&server, "POST", path, "application/json", DEFINITION.as_bytes().to_vec()).await;
        assert_eq!(status, 201, "{text}");
        server.settle().await;
        server
    })
});

async fn send(server: &ApiServer, method: &str, uri: &str, media: &str, body: Vec<u8>) -> (u16, String) {
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let Ok(request) = request.body(Full::new(Bytes::from(body))) else { return (0, String::new()) };
    let answer = server.service("anybody").oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    // Watches end by themselves, in virtual time at most an hour later.
    let body = tokio::time::timeout(std::time::Duration::from_secs(4000), answer.into_body().collect());
    let bytes = body.await.map(|body| body.unwrap().to_bytes()).unwrap_or_default();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

fn segment() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "api", "apis", "v1", "namespaces", "default", "pods", "nodes", "configmaps", "leases", "events", "wire.test",
            "gadgets", "apps", "deployments", "coordination.k8s.io", "a", "status", "scale", "binding", "eviction",
            "token", "serviceaccounts", "apiextensions.k8s.io", "customresourcedefinitions", "gadgets.wire.test",
            "watch", "openapi", "v3", "v2", "version", "authorization.k8s.io", "subjectaccessreviews", "policy",
            "poddisruptionbudgets", "admissionregistration.k8s.io", "validatingadmissionpolicies",
        ])
        .prop_map(str::to_owned),
        1 => "[a-z0-9.-]{0,12}",
        1 => "(%[0-9a-fA-F]{2}){1,4}",
    ]
}

fn query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "timeoutSeconds",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "dryRun",
        "fieldManager",
        "fieldValidation",
        "force",
        "propagationPolicy",
        "gracePeriodSeconds",
        "orphanDependents",
        "includeObject",
        "pretty",
        "hash",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "true",
            "false",
            "0",
            "1",
            "5",
            "All",
            "Strict",
            "Exact",
            "NotOlderThan",
            "a%3Db",
            "a%20in%20(b)",
            "metadata.name%3Da",
            "-1",
            "99999999999999999999",
            "9223372036854775807",
            "Foreground",
            "None",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
        ])
        .prop_map(str::to_owned),
        "[a-zA-Z0-9%=!(),. +-]{0,16}".prop_map(|text| text.replace(' ', "+").replace('%', "%25")),
    ];
    prop::collection::vec((name, value), 0..4).prop_map(|pairs| {
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "a",
            "v1",
            "Pod",
            "Gadget",
            "ConfigMap",
            "wire.test/v1",
            "2026-01-01T00:00:00Z",
            "10Gi"
        ])
        .prop_map(Value::from),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        4 => prop::sample::select(vec![
            "apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "finalizers", "spec",
            "status", "data", "op", "path", "value", "from", "$patch", "managedFields", "ownerReferences", "uid",
            "resourceVersion", "generateName", "containers", "conditions", "type", "mapList", "setList", "replicas",
            "versions", "schema", "openAPIV3Schema", "rules", "subjects", "validations", "expression", "selector",
        ])
        .prop_map(str::to_owned),
        1 => ".{0,6}",
    ];
    leaf().prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => json_value().prop_map(|value| value.to_string().into_bytes()),
        // An object that gets past the first checks.
        4 => (json_value(), json_value(), json_value()).prop_map(|(spec, status, labels)| {
            let object = json!({
                "apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": "a", "labels": labels},
                "spec": spec, "status": status,
            });
            object.to_string().into_bytes()
        }),
        1 => prop::collection::vec(any::<u8>(), 0..64),
        1 => Just(Vec::new()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_answered(
        method in prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FROB"]),
        segments in prop::collection::vec(segment(), 0..7),
        known in prop::option::weighted(0.5, prop::sample::select(vec![
            "/apis/wire.test/v1/namespaces/default/gadgets", "/apis/wire.test/v1/namespaces/default/gadgets/a",
            "/apis/wire.test/v1/namespaces/default/gadgets/a/status", "/api/v1/namespaces/default/pods",
            "/apis/wire.test/v1/namespaces/default/gadgets/a/scale", "/api/v1/namespaces/default/configmaps/a",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v1/nodes/a/status", "/api/v1/nodes",
            "/api/v1/namespaces/default/serviceaccounts/default/token",
        ])),
        query in query(),
        media in prop::sample::select(vec![
            "application/json", "application/merge-patch+json", "application/json-patch+json",
            "application/strategic-merge-patch+json", "application/apply-patch+yaml", "text/plain",
        ]),
        body in body(),
    ) {
        let path = known.map_or_else(|| format!("/{}", segments.join("/")), str::to_owned);
        let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
        let server = &*SERVER;
        let (status, text) = RUNTIME.block_on(async {
            let answer = send(server, method, &uri, media, body).await;
            server.settle().await;
            answer
        });
        prop_assert!(status < 500 || status == 504 || method == "HEAD" || is_status(&text), "{method} {uri}: {status} {text}");
    }
}

fn is_status(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|body| body["kind"] == "Status" && body["code"].is_number())
}
