//! Whatever is sent, the answer is an answer.

use axum::body::Body;
use http::Request;
use http_body_util::{BodyExt, Limited};
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::rig::Rig;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("br-int".to_owned()),
        Just("eth1".to_owned()),
        Just("fa:16:3e:00:00:01".to_owned()),
        Just("192.0.2.1".to_owned()),
        Just("::1".to_owned()),
        "[ -~]{0,40}",
        "\\PC{0,20}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!([{}])),
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let field = prop::sample::select(vec![
        "from",
        "to",
        "bridge",
        "source",
        "destination",
        "vlan",
        "sourceAddress",
        "destinationAddress",
        "protocol",
        "sourcePort",
        "destinationPort",
        "port",
        "seconds",
        "maxBytes",
        "snapLen",
        "",
    ]);
    let object = prop::collection::btree_map(field.prop_map(str::to_owned), value(), 0..6);
    prop_oneof![
        3 => object.prop_map(|object| serde_json::to_vec(&object).unwrap()),
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "trace",
        "capture",
        "captures",
        "captures/x",
        "flows",
        "bridges",
        "ports/eth1",
        "ports/",
        "fdb",
        "bonds",
        "doctor",
        "",
        "../admin",
    ]);
    let query = prop_oneof![
        Just(String::new()),
        "\\?bridge=[a-z%&=.0-9-]{0,20}",
        "\\?bridge=br-int&(table|limit)=[0-9-]{0,20}",
        "\\?[!-~&&[^#]]{0,20}",
    ];
    let segment = prop_oneof![4 => known.prop_map(str::to_owned), 1 => "(ports|captures)/[a-z%0-9.]{0,20}"];
    (segment, query).prop_map(|(segment, query)| format!("/v1/{segment}{query}"))
}

#[test]
fn no_request_panics_the_server_or_is_left_without_an_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (rig, router) = runtime.block_on(async {
        let rig = Rig::new().await.limits(|limits| limits.guard.burst = u32::MAX);
        let router = rig.router();
        (rig, router)
    });
    let method = prop::sample::select(vec!["GET", "POST", "DELETE", "PUT", "HEAD", "BREW"]);
    let token = prop_oneof![9 => Just("Bearer alices-token".to_owned()), 1 => "[ -~]{0,30}"];
    TestRunner::new(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })
        .run(&(method, path(), token, body()), |(method, path, token, body)| {
            // What the client library cannot even write is not sent.
            let request = Request::builder().method(method).uri(&path).header("authorization", &token);
            let Ok(request) = request.body(Body::from(body)) else { return Ok(()) };
            runtime.block_on(async {
                let response = router.clone().oneshot(request).await.unwrap();
                let code = response.status();
                prop_assert!(code.as_u16() != 500, "{} {}", method, path);
                let body = Limited::new(response.into_body(), 1 << 20).collect().await;
                let body = body.map_err(|error| TestCaseError::fail(error.to_string()))?.to_bytes();
                if !code.is_success() && method != "HEAD" {
                    let status: Value = serde_json::from_slice(&body).unwrap();
                    prop_assert_eq!(&status["kind"], "Status", "{} {}", method, path);
                    prop_assert_eq!(&status["code"], code.as_u16());
                }
                Ok(())
            })
        })
        .unwrap();
    rig.stop.trigger();
}
