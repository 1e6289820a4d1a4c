//! Tokens of service accounts: what may be asked for, what they are good for, and until when.

use std::time::Duration;

use cobalt_apiserver::{ApiServer, Identity};
use http_body_util::Full;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::send;

const JSON: &str = "application/json";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const HERE: &str = "https://kubernetes.default.svc";

async fn post(server: &ApiServer, path: &str, body: Value) -> (u16, Value) {
    send(server, "POST", path, Some((JSON, body))).await
}

async fn with_account() -> ApiServer {
    let server = ApiServer::builder().start_time("2026-01-01T00:00:00Z".parse().unwrap()).start();
    assert_eq!(post(&server, ACCOUNTS, json!({"metadata": {"name": "agent"}})).await.0, 201);
    server
}

async fn request(server: &ApiServer, spec: Value) -> (u16, Value) {
    post(server, &format!("{ACCOUNTS}/agent/token"), json!({"spec": spec})).await
}

async fn issue(server: &ApiServer, spec: Value) -> String {
    let (code, answer) = request(server, spec).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(server: &ApiServer, token: &str, audiences: &[&str]) -> Value {
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    let (code, answer) = post(server, "/apis/authentication.k8s.io/v1/tokenreviews", body).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].clone()
}

/// The code of a request that brings a token.
async fn bearer(server: &ApiServer, token: &str) -> u16 {
    let request = http::Request::get(ACCOUNTS).header("authorization", format!("Bearer {token}"));
    let request = request.body(Full::new(bytes::Bytes::new())).unwrap();
    server.service_as("c", Identity::anonymous()).oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn the_validity_of_a_token_has_bounds() {
    let server = with_account().await;
    for (seconds, expected) in [(599, 422), (600, 201), (1_i64 << 32, 201), ((1_i64 << 32) + 1, 422), (-1, 422)] {
        let (code, answer) = request(&server, json!({"expirationSeconds": seconds})).await;
        assert_eq!(code, expected, "{seconds}: {answer}");
    }
    let (_, answer) = request(&server, json!({})).await;
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-01T01:00:00Z");
    assert_eq!(post(&server, &format!("{ACCOUNTS}/nosuch/token"), json!({"spec": {}})).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_token_expires() {
    let server = with_account().await;
    let token = issue(&server, json!({"expirationSeconds": 600})).await;
    tokio::time::advance(Duration::from_secs(599)).await;
    assert_eq!(
        (bearer(&server, &token).await, review(&server, &token, &[]).await["authenticated"].clone()),
        (200, json!(true))
    );
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(bearer(&server, &token).await, 401);
    let status = review(&server, &token, &[]).await;
    assert_eq!(status, json!({"user": {}, "error": "[invalid bearer token, service account token has expired]"}));
    // Whether another one was issued meanwhile is no matter.
    issue(&server, json!({})).await;
    assert_eq!(bearer(&server, &token).await, 401);
}

#[tokio::test]
async fn a_token_is_good_for_its_audiences() {
    let server = with_account().await;
    let both = issue(&server, json!({"audiences": ["vault", HERE]})).await;
    let vault = issue(&server, json!({"audiences": ["vault"]})).await;
    let plain = issue(&server, json!({})).await;
    for (token, audiences, expected) in [
        (&both, &["vault", "other"][..], Some(json!(["vault"]))),
        (&both, &[], Some(json!([HERE]))),
        (&vault, &["vault"], Some(json!(["vault"]))),
        (&vault, &[], None),
        (&plain, &["vault"], None),
        (&plain, &[], Some(json!([HERE]))),
    ] {
        let status = review(&server, token, audiences).await;
        assert_eq!(status.get("audiences").cloned(), expected, "{audiences:?}: {status}");
        assert_eq!(status["authenticated"] == true, expected.is_some());
        assert_eq!(status.get("error").is_some(), expected.is_none());
    }
    assert_eq!((bearer(&server, &both).await, bearer(&server, &vault).await), (200, 401));
}

#[tokio::test]
async fn a_token_says_whose_it_is_and_what_it_is_bound_to() {
    let server = with_account().await;
    let (_, node) = post(&server, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    let (_, secret) = post(&server, "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await;
    let pods = "/api/v1/namespaces/default/pods";
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}]});
    let (_, pod) = post(&server, pods, json!({"metadata": {"name": "p"}, "spec": spec})).await;
    let bound = |kind: &str, name: &str| json!({"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}});
    let extra = async |spec: Value| {
        let status = review(&server, &issue(&server, spec).await, &[]).await;
        assert_eq!(status["user"]["username"], "system:serviceaccount:default:agent");
        assert_eq!(status["user"]["groups"][1], "system:serviceaccounts:default");
        let mut extra = status["user"]["extra"].as_object().unwrap().clone();
        let credential = extra.remove("authentication.kubernetes.io/credential-id").unwrap();
        assert!(credential[0].as_str().unwrap().starts_with("JTI="));
        Value::Object(extra)
    };
    let facts = |kind: &str, object: &Value| {
        let key = |what: &str| format!("authentication.kubernetes.io/{kind}-{what}");
        let metadata = &object["metadata"];
        json!({key("name"): [metadata["name"]], key("uid"): [metadata["uid"]]})
    };
    assert_eq!(extra(json!({})).await, json!({}));
    assert_eq!(extra(bound("Secret", "s")).await, facts("secret", &secret));
    assert_eq!(extra(bound("Node", "n")).await, facts("node", &node));
    let mut both = facts("pod", &pod);
    both.as_object_mut().unwrap().extend(facts("node", &node).as_object().unwrap().clone());
    assert_eq!(extra(bound("Pod", "p")).await, both);
    assert_eq!(request(&server, bound("Pod", "nosuch")).await.0, 404);
    assert_eq!(request(&server, bound("Deployment", "d")).await.0, 400);
    let mut other = bound("Pod", "p");
    other["boundObjectRef"]["uid"] = "00000000-0000-0000-0000-000000000001".into();
    assert_eq!(request(&server, other).await.0, 409);
    // It lives as long as what it is bound to.
    let token = issue(&server, bound("Secret", "s")).await;
    assert_eq!(bearer(&server, &token).await, 200);
    send(&server, "DELETE", "/api/v1/namespaces/default/secrets/s", None).await;
    assert_eq!(bearer(&server, &token).await, 401);
    let gone = "[invalid bearer token, service account token has been invalidated]";
    assert_eq!(review(&server, &token, &[]).await["error"], gone);
}

#[tokio::test]
async fn a_token_of_another_server_is_not_known() {
    let (server, other) = (with_account().await, with_account().await);
    let foreign = issue(&other, json!({})).await;
    assert_eq!((bearer(&server, &foreign).await, bearer(&other, &foreign).await), (401, 200));
    for (token, why) in [
        (foreign.as_str(), "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"),
        ("rubbish", "invalid bearer token"),
    ] {
        assert_eq!(review(&server, token, &[]).await, json!({"user": {}, "error": why}));
    }
}
