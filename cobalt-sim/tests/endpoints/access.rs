//! Who gets in.

use std::{net::SocketAddr, time::Duration};

use axum::{body::Body, extract::ConnectInfo};
use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use crate::rig::{NAMESPACE, Rig, ask, bytes, request, send};

fn is_status(body: &Value, code: StatusCode, words: &[&str]) {
    assert_eq!((&body["kind"], &body["status"]), (&json!("Status"), &json!("Failure")), "{body}");
    assert_eq!(body["code"], code.as_u16(), "{body}");
    for word in words {
        assert!(body["message"].as_str().unwrap().contains(word), "{word} is not in {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_has_the_right_is_answered() {
    let rig = Rig::new().await;
    let router = rig.router();
    let (code, body) = ask(&router, "GET", "/v1/doctor", "alices-token", Value::Null).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    assert_eq!(body["summary"], "nothing is wrong with the switch");
}

#[tokio::test(start_paused = true)]
async fn each_right_opens_its_own_door_only() {
    let rig = Rig::new().await;
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    for path in ["/v1/doctor", "/v1/bridges", "/v1/bonds", "/v1/fdb?bridge=br-int", &format!("/v1/ports/{tap}")] {
        let (code, body) = ask(&router, "GET", path, "carols-token", Value::Null).await;
        assert_eq!(code, StatusCode::OK, "{path}: {body}");
        let (code, body) = ask(&router, "GET", path, "bobs-token", Value::Null).await;
        is_status(&body, code, &["bob", "cannot get", "ovsnodes/diagnose", rig.host.as_str(), NAMESPACE]);
        assert_eq!(code, StatusCode::FORBIDDEN);
    }
    for (method, path, right) in [
        ("POST", "/v1/trace", "ovsnodes/trace"),
        ("POST", "/v1/capture", "ovsnodes/capture"),
        ("POST", "/v1/captures", "ovsnodes/capture"),
        ("GET", "/v1/captures", "ovsnodes/capture"),
        ("GET", "/v1/captures/0", "ovsnodes/capture"),
        ("DELETE", "/v1/captures/0", "ovsnodes/capture"),
    ] {
        let (code, body) = ask(&router, method, path, "carols-token", json!({})).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}: {body}");
        is_status(&body, code, &["carol", "cannot create", right]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_on_another_node_is_none_on_this_one() {
    let rig = Rig::new().await;
    rig.role(
        "elsewhere",
        &json!([{"apiGroups": ["ovs.c5c3.io"], "resources": ["ovsnodes/diagnose"], "resourceNames": ["hv-002"],
                 "verbs": ["get"]}]),
        &json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}),
    )
    .await;
    let (code, body) = ask(&rig.router(), "GET", "/v1/doctor", "bobs-token", Value::Null).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{body}");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_that_is_believed_nobody_gets_in() {
    let rig = Rig::new().await;
    let router = rig.router();
    for header in [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic YWxpY2U6cHc="), Some("alices-token")] {
        let mut request = Request::get("/v1/doctor").header("host", "node");
        if let Some(header) = header {
            request = request.header("authorization", header);
        }
        let response = send(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{header:?}");
        assert!(response.headers().contains_key("www-authenticate"), "{header:?}");
        let body: Value = serde_json::from_slice(&bytes(response).await).unwrap();
        is_status(&body, StatusCode::UNAUTHORIZED, &["token"]);
        assert!(!body.to_string().contains("wrong"), "a token is never repeated: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_refused() {
    let rig = Rig::new().await;
    let token = rig.service_account("robot", &[]).await;
    let router = rig.router();
    assert_eq!(ask(&router, "GET", "/v1/doctor", &token, Value::Null).await.0, StatusCode::OK);
    tokio::time::advance(Duration::from_secs(601)).await;
    assert_eq!(ask(&router, "GET", "/v1/doctor", &token, Value::Null).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_is_believed_for_seconds_at_most() {
    let rig = Rig::new().await;
    let token = rig.service_account("robot", &[]).await;
    let router = rig.router();
    assert_eq!(ask(&router, "GET", "/v1/doctor", &token, Value::Null).await.0, StatusCode::OK);
    let accounts: Api<ServiceAccount> = Api::namespaced(rig.admin.clone(), NAMESPACE);
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(ask(&router, "GET", "/v1/doctor", &token, Value::Null).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_is_gone_at_once() {
    let rig = Rig::new().await;
    let router = rig.router();
    assert_eq!(ask(&router, "GET", "/v1/doctor", "alices-token", Value::Null).await.0, StatusCode::OK);
    rig.unbind("troubleshooter").await;
    assert_eq!(ask(&router, "GET", "/v1/doctor", "alices-token", Value::Null).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test(start_paused = true)]
async fn a_token_for_somebody_else_is_refused() {
    let rig = Rig::new().await.audience("ovs-agent");
    let router = rig.router();
    let (ours, others) = (rig.service_account("ours", &["ovs-agent"]).await, rig.service_account("others", &[]).await);
    assert_eq!(ask(&router, "GET", "/v1/doctor", &ours, Value::Null).await.0, StatusCode::OK);
    for token in [others.as_str(), "alices-token"] {
        assert_eq!(ask(&router, "GET", "/v1/doctor", token, Value::Null).await.0, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test(start_paused = true)]
async fn while_kubernetes_does_not_answer_nobody_gets_in() {
    for resource in ["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"] {
        for effect in [
            Effect::Status { code: 500, retry_after: None },
            Effect::Status { code: 429, retry_after: Some(1) },
            Effect::CrashBefore,
        ] {
            let rig = Rig::new().await;
            let matcher = Matcher::client("agent").verb(Verb::Create).resource(resource);
            rig.server.faults().add(Fault::new(matcher, effect.clone()));
            let (code, body) = ask(&rig.router(), "GET", "/v1/doctor", "alices-token", Value::Null).await;
            assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{resource} {effect:?}: {body}");
            is_status(&body, code, &["Kubernetes API"]);
            rig.server.faults().clear();
            let (code, body) = ask(&rig.router(), "GET", "/v1/doctor", "alices-token", Value::Null).await;
            assert_eq!(code, StatusCode::OK, "{resource} {effect:?}, over: {body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_may_not_ask_says_what_it_lacks() {
    let rig = Rig::new().await;
    rig.unbind("ovs-agent").await;
    let (code, body) = ask(&rig.router(), "GET", "/v1/doctor", "alices-token", Value::Null).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    is_status(&body, code, &["tokenreviews", "system:auth-delegator"]);
}

#[tokio::test(start_paused = true)]
async fn strangers_cannot_load_the_api_server_through_the_agent() {
    let rig = Rig::new().await;
    let router = rig.router();
    assert_eq!(ask(&router, "GET", "/v1/doctor", "alices-token", Value::Null).await.0, StatusCode::OK);
    let mut held_back = 0;
    for number in 0..200 {
        let (code, _) = ask(&router, "GET", "/v1/doctor", &format!("guess-{number}"), Value::Null).await;
        held_back += usize::from(code == StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(held_back >= 100, "{held_back}");
    let (code, _) = ask(&router, "GET", "/v1/doctor", "alices-token", Value::Null).await;
    assert_eq!(code, StatusCode::OK, "whoever is known is not held back with them");
    let asked = rig.server.counters().sum(|key| key.resource.starts_with("tokenreviews")).requests;
    assert!(asked <= 100, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn a_stranger_at_one_address_keeps_nobody_at_another_out() {
    let rig = Rig::new().await;
    let router = rig.router();
    let ask_from = async |address: &str, token: &str| {
        let mut request = request("GET", "/v1/doctor", token, &Value::Null);
        let peer = SocketAddr::new(address.parse().unwrap(), 40000);
        request.extensions_mut().insert(ConnectInfo(peer));
        send(&router, request).await.status()
    };
    let mut held_back = 0;
    for number in 0..200 {
        // As many addresses as anybody has who has one IPv6 network.
        let address = format!("2001:db8::{number:x}");
        let code = ask_from(&address, &format!("guess-{number}")).await;
        held_back += usize::from(code == StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(held_back >= 180, "{held_back}");
    assert_eq!(ask_from("2001:db8::1", "alices-token").await, StatusCode::TOO_MANY_REQUESTS, "nor is it told apart");
    assert_eq!(ask_from("192.0.2.7", "alices-token").await, StatusCode::OK, "her first question, from elsewhere");
    assert_eq!(ask_from("2001:db8::1", "alices-token").await, StatusCode::OK, "who is known is let in from anywhere");
}
