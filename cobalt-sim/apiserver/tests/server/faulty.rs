//! Faults on purpose, virtual time, and who may do what.

use std::time::Duration;

use cobalt_apiserver::faults::{Effect, Fault, Interruption, Matcher};
use cobalt_apiserver::{ApiServer, Identity, Verb};
use futures::{FutureExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{client, send, soon};

fn config(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test]
async fn an_injected_status_hits_only_the_client_it_is_meant_for() {
    let server = ApiServer::start();
    let matcher = Matcher::client("unlucky").verb(Verb::Create).resource("configmaps").times(1);
    server.faults().add(Fault::new(matcher, Effect::Status { code: 503, retry_after: None }));
    let lucky: Api<ConfigMap> = Api::default_namespaced(client(&server, "lucky"));
    let unlucky: Api<ConfigMap> = Api::default_namespaced(client(&server, "unlucky"));
    lucky.create(&PostParams::default(), &config("a")).await.unwrap();
    let error = unlucky.create(&PostParams::default(), &config("b")).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(s) if s.code == 503));
    unlucky.create(&PostParams::default(), &config("b")).await.unwrap();
    let counts = server.counters().of_client("unlucky");
    assert_eq!((counts.requests, counts.writes), (2, 1));
}

#[tokio::test]
async fn a_dropped_response_leaves_the_write_behind() {
    let server = ApiServer::start();
    server.faults().add(Fault::new(Matcher::client("c").times(1), Effect::DropResponse));
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    assert!(api.create(&PostParams::default(), &config("a")).await.is_err());
    assert!(api.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn crash_points_tell_the_harness_and_never_answer() {
    for (effect, written) in [(Effect::CrashBefore, false), (Effect::CrashAfter, true)] {
        let server = ApiServer::start();
        let mut crashes = server.faults().crashes();
        server.faults().add(Fault::new(Matcher::client("c").times(1), effect.clone()));
        let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
        let doomed = tokio::spawn(async move { api.create(&PostParams::default(), &config("a")).await });
        let crash = soon("the crash point", crashes.recv()).await.unwrap();
        assert_eq!((crash.effect, crash.request.verb), (effect, Verb::Create));
        assert!(!doomed.is_finished());
        doomed.abort();
        assert_eq!(server.count("configmaps"), usize::from(written));
    }
}

#[tokio::test(start_paused = true)]
async fn time_is_virtual_in_process() {
    let start: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
    let server = ApiServer::builder().start_time(start).seed(1).start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    tokio::time::advance(Duration::from_secs(3600)).await;
    let made = api.create(&PostParams::default(), &config("a")).await.unwrap();
    let time = made.metadata.creation_timestamp.unwrap().0;
    assert_eq!(time.to_string(), "2030-01-01T01:00:00Z");
    // A watch of an hour takes no time at all, and tells a bookmark before it ends.
    let begun = Instant::now();
    let params = WatchParams::default().timeout(250);
    let mut events = Box::pin(api.watch(&params, &server.revision().to_string()).await.unwrap());
    let mut bookmarks = 0;
    while let Some(event) = events.try_next().await.unwrap() {
        assert!(matches!(event, WatchEvent::Bookmark(_)));
        bookmarks += 1;
    }
    assert_eq!(bookmarks, 5);
    assert_eq!(begun.elapsed(), Duration::from_secs(250));
}

#[tokio::test(start_paused = true)]
async fn a_lagging_watch_tells_each_event_so_much_later() {
    let server = ApiServer::start();
    server.faults().add(Fault::new(Matcher::client("late").verb(Verb::Watch), Effect::LagWatch { millis: 5000 }));
    let late: Api<ConfigMap> = Api::default_namespaced(client(&server, "late"));
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    let params = WatchParams::default();
    let mut events = Box::pin(late.watch(&params, &server.revision().to_string()).await.unwrap());
    let begun = Instant::now();
    api.create(&PostParams::default(), &config("a")).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(begun.elapsed() >= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_lagging_watch_ends_and_is_interrupted_in_time() {
    for (timeout, interrupted) in [(2, false), (200, true)] {
        let server = ApiServer::start();
        server.faults().add(Fault::new(Matcher::client("late").verb(Verb::Watch), Effect::LagWatch { millis: 50_000 }));
        let late: Api<ConfigMap> = Api::default_namespaced(client(&server, "late"));
        let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
        let params = WatchParams::default().disable_bookmarks().timeout(timeout);
        let mut events = Box::pin(late.watch(&params, &server.revision().to_string()).await.unwrap());
        let begun = Instant::now();
        api.create(&PostParams::default(), &config("a")).await.unwrap();
        assert!(events.try_next().now_or_never().is_none());
        if interrupted {
            server.faults().interrupt(Matcher::client("late"), Interruption::End);
        }
        assert!(events.try_next().await.unwrap().is_none());
        assert!(begun.elapsed() < Duration::from_secs(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_watch_ends_and_is_interrupted_in_time() {
    for interrupted in [false, true] {
        let server = ApiServer::start();
        let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
        let start = server.revision().to_string();
        for i in 0..600 {
            api.create(&PostParams::default(), &config(&format!("c{i}"))).await.unwrap();
        }
        let mut events = Box::pin(api.watch(&WatchParams::default().timeout(5), &start).await.unwrap());
        assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
        if interrupted {
            server.faults().interrupt(Matcher::client("c"), Interruption::End);
        } else {
            tokio::time::advance(Duration::from_secs(6)).await;
        }
        let mut told = 1;
        while events.try_next().await.unwrap().is_some() {
            told += 1;
        }
        assert!(told < 600, "{told} events after the end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_ask_for_any_timeout() {
    let server = ApiServer::start();
    let path = format!("/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds={}", i64::MAX);
    let answer = send(&server, "GET", &path, None);
    // It is still open after a day.
    assert!(tokio::time::timeout(Duration::from_secs(24 * 3600), answer).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_the_watch() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    let params = WatchParams::default();
    let mut events = Box::pin(api.watch(&params, &server.revision().to_string()).await.unwrap());
    assert!(events.try_next().now_or_never().is_none());
    assert_eq!(server.open_watches(), 1);
    drop(events);
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_objects() {
    let run = || async {
        let start = Timestamp::UNIX_EPOCH;
        let server = ApiServer::builder().seed(7).start_time(start).start();
        let body = json!({"metadata": {"generateName": "a-"}});
        let path = "/api/v1/namespaces/default/configmaps";
        send(&server, "POST", path, Some(("application/json", body))).await.1
    };
    let (mut one, mut two) = (run().await, run().await);
    for object in [&mut one, &mut two] {
        // Real time passes between the start and the request.
        object["metadata"]["creationTimestamp"] = json!(null);
        object["metadata"]["managedFields"] = json!(null);
    }
    assert_eq!(one, two);
}

#[tokio::test]
async fn roles_decide_who_may_do_what() {
    let server = ApiServer::builder().rbac().start();
    let json = "application/json";
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": "w"}],
    });
    send(&server, "POST", &format!("{rbac}/clusterroles"), Some((json, role))).await;
    send(&server, "POST", &format!("{rbac}/clusterrolebindings"), Some((json, binding))).await;
    let agent = Identity::service_account("w", "agent");
    let api: Api<ConfigMap> = Api::default_namespaced(Client::new(server.service_as("agent", agent), "default"));
    api.list(&ListParams::default()).await.unwrap();
    let error = api.create(&PostParams::default(), &config("a")).await.unwrap_err();
    let expected = "configmaps is forbidden: User \"system:serviceaccount:w:agent\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(matches!(error, kube::Error::Api(s) if s.code == 403 && s.message == expected));
}
