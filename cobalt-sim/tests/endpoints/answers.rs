//! What is answered.

use std::sync::Arc;

use cobalt_core::{
    Error,
    agent::ovs::{Config, OvsAgent, endpoints::wire::FlowLine},
    ovs::OvsInspector,
};
use cobalt_sim::{DaemonState, SwitchFault};
use http::StatusCode;
use serde_json::{Value, json};

use crate::rig::{Endless, LONG, Rig, ask, bytes, request, send};

const ALICE: &str = "alices-token";

#[tokio::test(start_paused = true)]
async fn a_packet_between_two_vms_is_followed_by_their_names() {
    let rig = Rig::new().await;
    let (router, taps) = (rig.router(), rig.taps().await);
    for (from, to) in [(&taps[0].0, &taps[1].0), (&taps[0].1, &taps[1].1), (&taps[0].0, &taps[1].1)] {
        let (code, body) = ask(&router, "POST", "/v1/trace", ALICE, json!({"from": from, "to": to})).await;
        assert_eq!(code, StatusCode::OK, "{body}");
        assert_eq!(body["verdict"], "forwarded");
        assert_eq!(body["ports"], json!([{"name": taps[1].0, "instance": taps[1].1}]));
        assert_eq!(body["summary"], format!("the packet leaves by {} (VM {})", taps[1].0, taps[1].1));
        assert_eq!(body["steps"].as_array().unwrap().len(), 2);
        assert!(body["text"].as_str().unwrap().contains("output:"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_packet_to_nowhere_is_dropped_and_the_rule_is_named() {
    let rig = Rig::new().await;
    let tap = rig.taps().await.remove(0).0;
    let question = json!({
        "from": tap, "to": "192.0.2.9", "destination": "FA:16:3E:00:00:99", "sourceAddress": "192.0.2.1",
        "protocol": "tcp", "destinationPort": 443,
    });
    let (code, body) = ask(&rig.router(), "POST", "/v1/trace", ALICE, question).await;
    assert_eq!((code, &body["verdict"]), (StatusCode::OK, &json!("dropped")), "{body}");
    assert_eq!(body["destination"], "fa:16:3e:00:00:99");
    assert!(body["summary"].as_str().unwrap().starts_with("the packet is dropped in table 8 of br-int"), "{body}");
    assert!(body["steps"][0]["matched"].as_str().unwrap().contains("ip_dst=192.0.2.9"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_makes_no_sense_is_refused_with_the_field() {
    let rig = Rig::new().await;
    let (router, tap) = (rig.router(), rig.taps().await.remove(0).0);
    for (question, code, words) in [
        (json!({"from": "nowhere"}), 404, "from: no port, VM or logical port"),
        (json!({"from": tap}), 422, "to: name a port"),
        (json!({"from": tap, "to": "nowhere"}), 404, "to: no port"),
        (json!({"from": tap, "to": "192.0.2.9"}), 422, "hardware address"),
        (json!({"from": tap, "to": tap, "bridge": "br-ex"}), 422, "bridge"),
        (json!({"from": tap, "to": tap, "bridge": "../../etc"}), 422, "there is no bridge"),
        (json!({"from": tap, "to": tap, "source": "in_port=1,actions=drop"}), 422, "no hardware address"),
        (json!({"from": tap, "to": tap, "vlan": 4095}), 422, "vlan"),
        (json!({"from": tap, "to": tap, "vlan": 70000}), 400, "the body"),
        (json!({"from": tap, "too": tap}), 400, "too"),
        (json!([1, 2]), 400, "the body"),
    ] {
        let (answered, body) = ask(&router, "POST", "/v1/trace", ALICE, question.clone()).await;
        assert_eq!(answered.as_u16(), code, "{question}: {body}");
        assert!(body["message"].as_str().unwrap().contains(words), "{question}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_doctor_says_what_is_wrong_and_what_to_do() {
    let rig = Rig::new().await;
    let router = rig.router();
    for fault in [SwitchFault::Lacp(false), SwitchFault::OrphanPort("9c1f7e52-gone".into())] {
        rig.region.world().switch_fault(&rig.host, fault).unwrap();
    }
    let (code, body) = ask(&router, "GET", "/v1/doctor", ALICE, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(body["summary"], "the switch has 2 critical findings and 1 warning", "{body:#}");
    let findings = body["findings"].as_array().unwrap();
    let kinds: Vec<&str> = findings.iter().map(|finding| finding["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["BridgeIsolated", "BondDown", "OrphanPort"]);
    assert!(findings.iter().all(|finding| !finding["advice"].as_str().unwrap().is_empty()));

    rig.region.world().switch_fault(&rig.host, SwitchFault::Switch(DaemonState::Hung)).unwrap();
    let (_, body) = ask(&router, "GET", "/v1/doctor", ALICE, Value::Null).await;
    assert_eq!(body["findings"][0]["kind"], "DaemonUnresponsive", "{body:#}");
}

#[tokio::test(start_paused = true)]
async fn a_port_is_diagnosed_by_any_of_its_names() {
    let rig = Rig::new().await;
    let (router, (tap, vm)) = (rig.router(), rig.taps().await.remove(0));
    for name in [&tap, &vm] {
        let (code, body) = ask(&router, "GET", &format!("/v1/ports/{name}"), ALICE, Value::Null).await;
        assert_eq!((code, &body["port"]["name"]), (StatusCode::OK, &json!(tap)), "{body}");
        assert_eq!(body["port"]["role"], "instance");
        assert_eq!(body["summary"], format!("nothing is wrong with port {tap}"));
    }
    rig.region.world().switch_fault(&rig.host, SwitchFault::Link("eth3".into(), false)).unwrap();
    let (_, body) = ask(&router, "GET", "/v1/ports/eth3", ALICE, Value::Null).await;
    // The worst first: it is the only card of its bridge.
    let kinds: Vec<_> = body["findings"].as_array().unwrap().iter().map(|finding| &finding["kind"]).collect();
    assert_eq!(kinds, ["BridgeIsolated", "LinkDown"]);
    let (code, _) = ask(&router, "GET", "/v1/ports/..%2F..%2Fetc", ALICE, Value::Null).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn what_the_switch_has_is_listed() {
    let rig = Rig::new().await;
    let router = rig.router();
    let (_, bridges) = ask(&router, "GET", "/v1/bridges", ALICE, Value::Null).await;
    let names: Vec<_> = bridges["items"].as_array().unwrap().iter().map(|bridge| bridge["name"].clone()).collect();
    assert_eq!(names, ["br-ex", "br-int", "br-provider"]);
    let (_, bonds) = ask(&router, "GET", "/v1/bonds", ALICE, Value::Null).await;
    assert_eq!(bonds["items"][0]["members"][0]["enabled"], true);
    let (_, fdb) = ask(&router, "GET", "/v1/fdb?bridge=br-int", ALICE, Value::Null).await;
    assert_eq!(fdb["items"].as_array().unwrap().len(), 2);
    let (code, body) = ask(&router, "GET", "/v1/fdb?bridge=br-none", ALICE, Value::Null).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let (code, _) = ask(&router, "GET", "/v1/fdb", ALICE, Value::Null).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

#[tokio::test(start_paused = true)]
async fn flows_come_as_lines_and_the_last_one_says_so() {
    let rig = Rig::new().await.limits(|limits| limits.flows = 100);
    let router = rig.router();
    let read = async |path: &str| {
        let response = send(&router, request("GET", path, ALICE, &Value::Null)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        let body = String::from_utf8(bytes(response).await).unwrap();
        let lines: Vec<FlowLine> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let Some(FlowLine::End { end }) = lines.last() else { panic!("no last line: {lines:?}") };
        assert_eq!(lines.len() as u64, end.flows + 1);
        end.clone()
    };
    let snapshot = rig.switch().snapshot().await.unwrap();
    let bridge = snapshot.bridges.iter().find(|bridge| bridge.name == "br-int").unwrap();
    let in_table = bridge.flows.as_ref().unwrap()[&8];
    let some = read("/v1/flows?bridge=br-int&table=8").await;
    assert_eq!((some.flows, some.truncated), (in_table, false));
    let all = read("/v1/flows?bridge=br-int").await;
    assert_eq!((all.flows, all.truncated), (100, true), "the agent's bound");
    let few = read("/v1/flows?bridge=br-int&limit=7").await;
    assert_eq!((few.flows, few.truncated), (7, true));
    for path in ["/v1/flows?bridge=br-int&limit=101", "/v1/flows?bridge=br-int&limit=0", "/v1/flows?bridge=x.mgmt"] {
        let (code, body) = ask(&router, "GET", path, ALICE, Value::Null).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn flows_that_break_off_in_the_middle_do_not_look_complete() {
    let rig = Rig::new().await;
    let switch = Endless::new(rig.switch());
    let router = rig.endpoints(switch.clone()).router(&rig.stop);
    switch.break_next(Error::unavailable("read the flows of br-int", std::io::Error::other("the switch is gone")));
    let response = send(&router, request("GET", "/v1/flows?bridge=br-int", ALICE, &Value::Null)).await;
    let body = String::from_utf8(bytes(response).await).unwrap();
    let lines: Vec<FlowLine> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let Some(FlowLine::End { end }) = lines.last() else { panic!("no last line: {lines:?}") };
    assert_eq!((end.flows, end.truncated), (3, true));
    assert!(end.error.as_deref().is_some_and(|why| why.contains("the switch is gone")), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_switch_that_is_down_is_said_and_not_waited_for() {
    let rig = Rig::new().await;
    let (router, taps) = (rig.router(), rig.taps().await);
    let question = json!({"from": taps[0].0, "to": taps[1].0});
    for (state, code) in
        [(DaemonState::Hung, StatusCode::GATEWAY_TIMEOUT), (DaemonState::Dead, StatusCode::SERVICE_UNAVAILABLE)]
    {
        rig.region.world().switch_fault(&rig.host, SwitchFault::Switch(state)).unwrap();
        let (answered, body) = ask(&router, "POST", "/v1/trace", ALICE, question.clone()).await;
        assert_eq!(answered, code, "{body}");
        let (answered, body) = ask(&router, "GET", "/v1/doctor", ALICE, Value::Null).await;
        assert_eq!(answered, StatusCode::OK, "what is known is still told: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn paths_and_methods_that_do_not_exist_are_answered_alike() {
    let rig = Rig::new().await;
    let router = rig.router();
    for (method, path, code) in [("GET", "/", 404), ("GET", "/v1/shell", 404), ("GET", "/v1/trace", 405)] {
        let (answered, body) = ask(&router, method, path, ALICE, Value::Null).await;
        assert_eq!((answered.as_u16(), &body["kind"]), (code, &json!("Status")), "{path}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_is_not_read() {
    let rig = Rig::new().await;
    let question = json!({"from": "x".repeat(100_000)});
    let (code, body) = ask(&rig.router(), "POST", "/v1/trace", ALICE, question).await;
    assert_eq!((code, &body["kind"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("Status")), "{body}");
}

#[tokio::test(start_paused = true)]
async fn stale_flows_are_looked_for_when_somebody_with_the_right_asks() {
    let rig = Rig::new().await;
    let switch = Arc::new(rig.switch());
    let config = Config { stale_flows: None, ..Config::new(rig.host.as_str()) };
    let agent = OvsAgent::new(rig.admin.clone(), config, switch.clone());
    let router = rig.endpoints(rig.switch()).demand(agent.demand()).router(&rig.stop);
    tokio::spawn(agent.run(rig.stop.clone()));
    let (code, body) = ask(&router, "GET", "/v1/stale-flows", ALICE, Value::Null).await;
    assert_eq!((code, &body["unknown"]), (StatusCode::OK, &json!("nobody has looked yet")), "{body:#}");
    rig.region.world().switch_fault(&rig.host, SwitchFault::StaleFlows(3)).unwrap();
    assert_eq!(ask(&router, "POST", "/v1/stale-flows", "bobs-token", Value::Null).await.0, StatusCode::FORBIDDEN);
    let (code, asked) = ask(&router, "POST", "/v1/stale-flows", ALICE, Value::Null).await;
    assert_eq!((code, &asked["looks"]), (StatusCode::ACCEPTED, &json!(0)));
    let found = loop {
        let (_, body) = ask(&router, "GET", "/v1/stale-flows", ALICE, Value::Null).await;
        if body["looks"] == 1 {
            break body;
        }
        tokio::time::sleep(LONG / 60).await;
    };
    assert_eq!((&found["flows"], &found["cookies"][0]["flows"]), (&json!(3), &json!(3)), "{found:#}");
    assert!(found["cookies"][0]["cookie"].as_str().unwrap().starts_with("0x"), "{found:#}");
    let (_, doctor) = ask(&router, "GET", "/v1/doctor", ALICE, Value::Null).await;
    assert_eq!(doctor["findings"][0]["kind"], "StaleFlows", "{doctor:#}");
}

#[tokio::test(start_paused = true)]
async fn endpoints_without_an_agent_say_that_nobody_looks_for_stale_flows() {
    let rig = Rig::new().await;
    let (code, body) = ask(&rig.router(), "POST", "/v1/stale-flows", ALICE, Value::Null).await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{body}");
}
