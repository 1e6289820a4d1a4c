//! Who did what, as Events on the OVSNode.

use http::StatusCode;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use crate::rig::{NAMESPACE, Rig, ask, bytes, request, send};

fn told(events: &[Event]) -> Vec<(&str, &str)> {
    let mut told: Vec<_> =
        events.iter().map(|event| (event.reason.as_deref().unwrap(), event.note.as_deref().unwrap())).collect();
    told.sort_unstable();
    told
}

#[tokio::test(start_paused = true)]
async fn a_trace_and_a_capture_are_told_with_the_name_of_whoever_asked() {
    let rig = Rig::new().await;
    let (router, taps, host) = (rig.router(), rig.taps().await, rig.host.clone());
    let question = json!({"from": taps[0].0, "to": taps[1].0});
    assert_eq!(ask(&router, "POST", "/v1/trace", "alices-token", question).await.0, StatusCode::OK);
    let question = json!({"port": taps[0].0, "seconds": 1});
    bytes(send(&router, request("POST", "/v1/capture", "alices-token", &question)).await).await;
    let events = rig.events().await;
    let [a, b] = [&taps[0].0, &taps[1].0];
    let mac = {
        let note = events.iter().find_map(|event| event.note.as_deref().filter(|note| note.contains("traced")));
        note.unwrap().split(" to ").nth(1).unwrap().split(": ").next().unwrap().to_owned()
    };
    assert!(mac.starts_with("fa:16:3e:"), "{mac} of {b}");
    assert_eq!(
        told(&events),
        [
            ("CaptureEnded", format!("alice captured on port {a}: it is complete").as_str()),
            ("CaptureStarted", format!("alice captures on port {a}").as_str()),
            ("PacketTraced", format!("alice traced a packet from {a} to {mac}: forwarded").as_str()),
        ]
    );
    for event in events {
        let about = event.regarding.unwrap();
        assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("OVSNode"), Some(host.as_str())));
        assert_eq!(about.namespace.as_deref(), Some(NAMESPACE));
        assert!(about.uid.is_some_and(|uid| !uid.is_empty()), "kubectl describe finds Events by uid");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_sees_to_captures_that_are_kept_is_named_once_in_a_while() {
    let rig = Rig::new().await;
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    let (_, started) = ask(&router, "POST", "/v1/captures", "alices-token", json!({"port": tap, "seconds": 1})).await;
    let path = format!("/v1/captures/{}", started["id"].as_str().unwrap());
    for _ in 0..5 {
        bytes(send(&router, request("GET", &path, "alices-token", &Value::Null)).await).await;
        assert_eq!(ask(&router, "GET", "/v1/captures", "alices-token", Value::Null).await.0, StatusCode::OK);
    }
    assert_eq!(ask(&router, "DELETE", &path, "alices-token", Value::Null).await.0, StatusCode::OK);
    let robot = rig.service_account("robot", &[]).await;
    assert_eq!(ask(&router, "GET", &path, &robot, Value::Null).await.0, StatusCode::NOT_FOUND);
    let events = rig.events().await;
    let told = told(&events);
    let reads: Vec<_> = told.iter().filter(|(reason, _)| *reason == "CapturesRead").map(|(_, note)| *note).collect();
    let robot = format!("system:serviceaccount:{NAMESPACE}:robot sees to captures that are kept");
    assert_eq!(reads, ["alice sees to captures that are kept", robot.as_str()], "whoever found nothing, too: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_was_refused_is_named_too() {
    let rig = Rig::new().await;
    let router = rig.router();
    ask(&router, "POST", "/v1/trace", "bobs-token", json!({})).await;
    ask(&router, "POST", "/v1/capture", "carols-token", json!({})).await;
    ask(&router, "GET", "/v1/doctor", "nobodys-token", Value::Null).await;
    let events = rig.events().await;
    assert_eq!(
        told(&events),
        [
            ("CaptureForbidden", "carol was refused: no role allows it"),
            ("TraceForbidden", "bob was refused: no role allows it"),
        ]
    );
    assert!(events.iter().all(|event| event.type_.as_deref() == Some("Warning")));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_makes_no_sense_is_told_with_the_name_of_whoever_asked() {
    let rig = Rig::new().await;
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    for (path, question) in [
        ("/v1/trace", json!({"from": 7})),
        ("/v1/trace", json!({"from": "nowhere"})),
        ("/v1/capture", json!([])),
        ("/v1/capture", json!({"port": "nowhere"})),
        ("/v1/captures", json!({"port": tap, "seconds": 0})),
    ] {
        let (code, body) = ask(&router, "POST", path, "alices-token", question).await;
        assert!(code.is_client_error(), "{code}: {body}");
    }
    let events = rig.events().await;
    assert_eq!(
        told(&events),
        [
            ("CaptureFailed", "alice could not capture: BadRequest"),
            ("CaptureFailed", "alice could not capture: Invalid"),
            ("CaptureFailed", "alice could not capture: NotFound"),
            ("TraceFailed", "alice could not trace a packet: BadRequest"),
            ("TraceFailed", "alice could not trace a packet: NotFound"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_again_is_counted_and_not_told_again() {
    let rig = Rig::new().await;
    let (router, taps) = (rig.router(), rig.taps().await);
    for _ in 0..20 {
        let question = json!({"from": taps[0].0, "to": taps[1].0});
        assert_eq!(ask(&router, "POST", "/v1/trace", "alices-token", question).await.0, StatusCode::OK);
    }
    let events = rig.events().await;
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0].series.as_ref().unwrap().count, 20);
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_is_named_once_in_a_while_and_not_at_each_read() {
    let rig = Rig::new().await;
    let (router, taps) = (rig.router(), rig.taps().await);
    let port = format!("/v1/ports/{}", taps[0].0);
    for _ in 0..20 {
        for path in ["/v1/doctor", "/v1/bridges", "/v1/bonds", "/v1/fdb?bridge=br-int", &port] {
            assert_eq!(ask(&router, "GET", path, "alices-token", Value::Null).await.0, StatusCode::OK, "{path}");
        }
    }
    bytes(send(&router, request("GET", "/v1/flows?bridge=br-int&limit=1", "carols-token", &Value::Null)).await).await;
    let events = rig.events().await;
    assert_eq!(
        told(&events),
        [("SwitchRead", "alice reads the state of the switch"), ("SwitchRead", "carol reads the state of the switch"),]
    );
}
