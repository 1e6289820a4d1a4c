//! Captures, and their bounds.

use std::time::Duration;

use cobalt_core::Error;
use futures::StreamExt;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::rig::{Endless, Rig, ask, bytes, request, send};

const ALICE: &str = "alices-token";
const MAGIC: [u8; 4] = 0xa1b2_c3d4_u32.to_le_bytes();

#[tokio::test(start_paused = true)]
async fn a_capture_is_streamed_as_a_pcap_file() {
    let rig = Rig::new().await;
    let (router, (tap, vm)) = (rig.router(), rig.taps().await.remove(0));
    for port in [tap, vm] {
        let question = json!({"port": port, "seconds": 3, "snapLen": 96});
        let response = send(&router, request("POST", "/v1/capture", ALICE, &question)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/vnd.tcpdump.pcap");
        let file = bytes(response).await;
        assert_eq!((&file[..4], file.len()), (&MAGIC[..], 24 + 3 * 76));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_bounds_is_refused_with_the_bound() {
    let rig = Rig::new().await;
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    for (path, field, value, most) in [
        ("/v1/capture", "seconds", 301_u64, "300"),
        ("/v1/capture", "seconds", 0, "300"),
        ("/v1/capture", "maxBytes", (256 << 20) + 1, "268435456"),
        ("/v1/capture", "maxBytes", 23, "24"),
        ("/v1/capture", "snapLen", (1 << 18) + 1, "262144"),
        ("/v1/capture", "snapLen", 0, "262144"),
        ("/v1/captures", "maxBytes", (2 << 20) + 1, "2097152"),
    ] {
        let (code, body) = ask(&router, "POST", path, ALICE, json!({"port": tap, field: value})).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{field} {value}: {body}");
        let message = body["message"].as_str().unwrap();
        assert!(message.contains(field) && message.contains(most), "{message}");
    }
    let (code, _) = ask(&router, "POST", "/v1/capture", ALICE, json!({"port": "nowhere"})).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_run_at_a_time_and_a_reader_who_leaves_makes_room() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    let question = json!({"port": tap, "seconds": 300});
    let mut open = Vec::new();
    for _ in 0..2 {
        let response = send(&router, request("POST", "/v1/capture", ALICE, &question)).await;
        let mut body = response.into_body().into_data_stream();
        assert!(body.next().await.unwrap().unwrap().starts_with(&MAGIC));
        open.push(body);
    }
    switch.running(2).await;
    let (code, body) = ask(&router, "POST", "/v1/capture", ALICE, question.clone()).await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS, "{body}");
    open.pop();
    switch.running(1).await;
    let response = send(&router, request("POST", "/v1/capture", ALICE, &question)).await;
    assert_eq!(response.status(), StatusCode::OK);
    drop((open, response));
    switch.running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_does_not_end_a_capture_is_cut_off() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    let response = send(&router, request("POST", "/v1/capture", ALICE, &json!({"port": tap, "seconds": 5}))).await;
    assert_eq!(bytes(response).await.len(), 24 + 5 * 76);
    switch.running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_who_stays_and_does_not_read_loses_the_capture_when_its_time_is_over() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    // More packets than wait anywhere on the way to the reader.
    let question = json!({"port": tap, "seconds": 30});
    let held = send(&router, request("POST", "/v1/capture", ALICE, &question)).await;
    assert_eq!(held.status(), StatusCode::OK);
    switch.running(0).await;
    let events = rig.events().await;
    let notes: Vec<_> = events.iter().filter_map(|event| event.note.as_deref()).collect();
    assert!(notes.iter().any(|note| note.ends_with("its reader did not read")), "{notes:?}");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_capture_that_breaks_does_not_look_complete() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    switch.break_next(Error::unavailable("read packets", std::io::Error::other("the device is gone")));
    let response = send(&router, request("POST", "/v1/capture", ALICE, &json!({"port": tap}))).await;
    assert!(response.into_body().collect().await.is_err());
    switch.running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_kept_capture_that_breaks_or_is_thrown_away_does_not_look_complete() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    let start = async |question: Value| {
        let (code, started) = ask(&router, "POST", "/v1/captures", ALICE, question).await;
        assert_eq!(code, StatusCode::CREATED, "{started}");
        format!("/v1/captures/{}", started["id"].as_str().unwrap())
    };
    switch.break_next(Error::unavailable("read packets", std::io::Error::other("the device is gone")));
    let broken = start(json!({"port": tap, "seconds": 4})).await;
    for _ in 0..2 {
        let response = send(&router, request("GET", &broken, ALICE, &Value::Null)).await;
        assert!(response.into_body().collect().await.is_err(), "whenever it is fetched");
    }

    let deleted = start(json!({"port": tap, "seconds": 300})).await;
    let response = send(&router, request("GET", &deleted, ALICE, &Value::Null)).await;
    let mut body = response.into_body().into_data_stream();
    assert!(body.next().await.unwrap().unwrap().starts_with(&MAGIC));
    assert_eq!(ask(&router, "DELETE", &deleted, ALICE, Value::Null).await.0, StatusCode::OK);
    assert!(body.any(async |chunk| chunk.is_err()).await, "it was deleted");

    // A reader who is slower than it is kept.
    let kept = start(json!({"port": tap, "seconds": 4})).await;
    let response = send(&router, request("GET", &kept, ALICE, &Value::Null)).await;
    let mut body = response.into_body().into_data_stream();
    assert!(body.next().await.unwrap().unwrap().starts_with(&MAGIC));
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert!(body.any(async |chunk| chunk.is_err()).await, "it was thrown away");
}

#[tokio::test(start_paused = true)]
async fn a_capture_can_be_started_and_fetched_later() {
    let rig = Rig::new().await;
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    let (code, started) = ask(&router, "POST", "/v1/captures", ALICE, json!({"port": tap, "seconds": 4})).await;
    assert_eq!(code, StatusCode::CREATED, "{started}");
    let path = format!("/v1/captures/{}", started["id"].as_str().unwrap());
    for _ in 0..2 {
        let file = bytes(send(&router, request("GET", &path, ALICE, &Value::Null)).await).await;
        assert_eq!((&file[..4], file.len()), (&MAGIC[..], 24 + 4 * 76));
    }
    let (_, list) = ask(&router, "GET", "/v1/captures", ALICE, Value::Null).await;
    assert_eq!((&list["items"][0]["id"], &list["items"][0]["bytes"]), (&started["id"], &json!(24 + 4 * 76)));
    assert_eq!(list["items"][0]["ended"], "it is complete");
    tokio::time::sleep(Duration::from_secs(301)).await;
    let (code, _) = ask(&router, "GET", &path, ALICE, Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND, "it is thrown away after a while");
}

#[tokio::test(start_paused = true)]
async fn a_started_capture_belongs_to_whoever_started_it() {
    let rig = Rig::new().await;
    let token = rig.service_account("robot", &[]).await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    let (_, started) = ask(&router, "POST", "/v1/captures", ALICE, json!({"port": tap, "seconds": 9})).await;
    let path = format!("/v1/captures/{}", started["id"].as_str().unwrap());
    for method in ["GET", "DELETE"] {
        let (code, _) = ask(&router, method, &path, &token, Value::Null).await;
        assert_eq!(code, StatusCode::NOT_FOUND, "{method}");
    }
    assert_eq!(ask(&router, "GET", "/v1/captures", &token, Value::Null).await.1, json!({"items": []}));
    switch.running(1).await;
    let (code, ended) = ask(&router, "DELETE", &path, ALICE, Value::Null).await;
    assert_eq!((code, &ended["ended"]), (StatusCode::OK, &json!("it was stopped")));
    switch.running(0).await;
    assert_eq!(ask(&router, "DELETE", &path, ALICE, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn whoever_fetches_a_running_capture_follows_it_to_its_end() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    let (_, started) = ask(&router, "POST", "/v1/captures", ALICE, json!({"port": tap, "seconds": 6})).await;
    let path = format!("/v1/captures/{}", started["id"].as_str().unwrap());
    let file = bytes(send(&router, request("GET", &path, ALICE, &Value::Null)).await).await;
    assert_eq!(file.len(), 24 + 6 * 76);
    switch.running(0).await;
}

#[tokio::test(start_paused = true)]
async fn only_so_many_captures_are_kept() {
    let rig = Rig::new().await.limits(|limits| limits.captures.kept = 2);
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    let mut codes = Vec::new();
    for _ in 0..3 {
        let (code, started) = ask(&router, "POST", "/v1/captures", ALICE, json!({"port": tap, "seconds": 1})).await;
        codes.push(code.as_u16());
        if let Some(id) = started["id"].as_str() {
            bytes(send(&router, request("GET", &format!("/v1/captures/{id}"), ALICE, &Value::Null)).await).await;
        }
    }
    assert_eq!(codes, [201, 201, 429]);
}

#[tokio::test(start_paused = true)]
async fn captures_end_with_the_agent() {
    let rig = Rig::new().await;
    let (switch, tap) = (Endless::new(rig.switch()), rig.taps().await.remove(0).0);
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    let question = json!({"port": tap, "seconds": 300});
    assert_eq!(ask(&router, "POST", "/v1/captures", ALICE, question.clone()).await.0, StatusCode::CREATED);
    let response = send(&router, request("POST", "/v1/capture", ALICE, &question)).await;
    switch.running(2).await;
    let mut body = response.into_body().into_data_stream();
    assert!(body.next().await.unwrap().unwrap().starts_with(&MAGIC));
    rig.stop.trigger();
    while let Some(chunk) = body.next().await {
        chunk.unwrap();
    }
    switch.running(0).await;
}
