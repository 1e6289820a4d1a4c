//! Watches, watchers, reflectors.

use std::collections::BTreeMap;
use std::pin::pin;

use cobalt_apiserver::faults::{Effect, Fault, Interruption, Matcher};
use cobalt_apiserver::{ApiServer, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::support::{client, soon};

fn config(name: &str, label: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"l": label}}})).unwrap()
}

async fn create(api: &Api<ConfigMap>, names: impl IntoIterator<Item = String>) {
    for name in names {
        api.create(&PostParams::default(), &config(&name, "x")).await.unwrap();
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|i| format!("c{i:03}"))
}

/// Follows a watcher until it has applied `count` distinct objects.
async fn follow(api: Api<ConfigMap>, config: watcher::Config, count: usize) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut events = pin!(watcher(api, config).default_backoff());
    while seen.len() < count {
        // Errors are what the watcher recovers from.
        if let Some(Ok(watcher::Event::Apply(o) | watcher::Event::InitApply(o))) = events.next().await {
            seen.insert(o.name_any(), o.resource_version().unwrap_or_default());
        }
    }
    seen
}

#[tokio::test]
async fn a_watch_tells_every_change_once_and_in_order() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    let params = WatchParams::default().disable_bookmarks();
    let mut events = pin!(api.watch(&params, &server.revision().to_string()).await.unwrap());
    let made = api.create(&PostParams::default(), &config("a", "x")).await.unwrap();
    // An update that changes nothing is no event.
    api.replace("a", &PostParams::default(), &made).await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let first = soon("first event", events.try_next()).await.unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(_))));
    match soon("second event", events.try_next()).await.unwrap() {
        Some(WatchEvent::Deleted(gone)) => {
            assert_eq!(gone.resource_version().unwrap(), server.revision().to_string());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_for_the_watch() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    let params = WatchParams::default().labels("l=x");
    let mut events = pin!(api.watch(&params, &server.revision().to_string()).await.unwrap());
    api.create(&PostParams::default(), &config("a", "x")).await.unwrap();
    let moved = api.replace("a", &PostParams::default(), &config("a", "y")).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    match events.try_next().await.unwrap() {
        Some(WatchEvent::Deleted(old)) => {
            // The old content under the new revision.
            assert_eq!(old.labels()["l"], "x");
            assert_eq!(old.resource_version(), moved.resource_version());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_watcher_survives_cuts_and_expired_revisions() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "watcher"));
    let writer: Api<ConfigMap> = Api::default_namespaced(client(&server, "writer"));
    create(&writer, names(20)).await;
    let watches = || Matcher::client("watcher").verb(Verb::Watch);
    server.faults().set([
        Fault::new(watches().nth(1).times(1), Effect::CutWatch { after_events: 3, abrupt: false }),
        Fault::new(watches().nth(2).times(1), Effect::CutWatch { after_events: 2, abrupt: true }),
        Fault::new(watches().nth(3).times(1), Effect::Relist),
    ]);
    let follower = tokio::spawn(follow(api, watcher::Config::default(), 60));
    create(&writer, names(60).skip(20)).await;
    let seen = soon("the watcher", follower).await.unwrap();
    assert_eq!(seen.len(), 60);
    assert_eq!(server.faults().fired().len(), 3);
}

#[tokio::test]
async fn a_watcher_that_fell_behind_lists_again() {
    let server = ApiServer::builder().log_capacity(5).start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "watcher"));
    let writer: Api<ConfigMap> = Api::default_namespaced(client(&server, "writer"));
    create(&writer, names(1)).await;
    let params = WatchParams::default();
    let mut late = pin!(api.watch(&params, "1").await.unwrap());
    match late.try_next().await.unwrap() {
        Some(WatchEvent::Error(status)) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    assert!(late.try_next().await.unwrap().is_none());
    let follower = tokio::spawn(follow(api, watcher::Config::default(), 50));
    create(&writer, names(50).skip(1)).await;
    assert_eq!(soon("the watcher", follower).await.unwrap().len(), 50);
}

#[tokio::test]
async fn the_past_is_bounded_by_bytes() {
    let server = ApiServer::builder().log_bytes(20_000).start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    create(&api, names(1)).await;
    let start = server.revision().to_string();
    let grow = json!({"data": {"a": "x".repeat(9_000)}});
    let patch = Patch::Merge(&grow);
    let name = names(1).next().unwrap();
    api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    let params = WatchParams::default();
    assert!(matches!(
        pin!(api.watch(&params, &start).await.unwrap()).try_next().await.unwrap(),
        Some(WatchEvent::Modified(_))
    ));
    // Few events, but large ones.
    for text in ["1", "2", "3"] {
        let change = json!({"data": {"b": text}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }
    assert!(matches!(
        pin!(api.watch(&params, &start).await.unwrap()).try_next().await.unwrap(),
        Some(WatchEvent::Error(_))
    ));
}

#[tokio::test]
async fn a_watch_reads_a_long_past_as_it_was() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    create(&api, names(1)).await;
    let start = server.revision();
    let name = names(1).next().unwrap();
    for round in 0..700 {
        let label = if round % 2 == 0 { "even" } else { "odd" };
        let change = json!({"metadata": {"labels": {"z": label}}, "data": {"round": round.to_string()}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }
    let mut events = pin!(api.watch(&WatchParams::default().labels("z=odd"), &start.to_string()).await.unwrap());
    for round in 0..350 {
        let event = soon("an event", events.try_next()).await.unwrap().unwrap();
        let (map, expected) = match event {
            WatchEvent::Added(map) => (map, round + 1),
            WatchEvent::Deleted(map) => (map, round),
            other => panic!("{other:?}"),
        };
        // In at the odd rounds, out at the even ones with what it was before.
        assert_eq!(map.data.unwrap()["round"], expected.to_string());
        assert_eq!(map.metadata.resource_version.unwrap(), (start + 2 + round).to_string());
    }
    // A past state is shown too.
    let past = ListParams::default().at(&(start + 10).to_string()).matching(VersionMatch::Exact);
    assert_eq!(api.list(&past).await.unwrap().items[0].data.as_ref().unwrap()["round"], "9");
}

#[tokio::test]
async fn a_streaming_list_ends_with_its_bookmark() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "c"));
    create(&api, names(10)).await;
    let mut events = pin!(watcher(api.clone(), watcher::Config::default().streaming_lists()));
    let mut initial = 0;
    loop {
        match soon("initial events", events.next()).await.unwrap().unwrap() {
            watcher::Event::InitApply(_) => initial += 1,
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    assert_eq!(initial, 10);
    api.create(&PostParams::default(), &config("live", "x")).await.unwrap();
    let live = soon("live event", events.next()).await.unwrap().unwrap();
    assert!(matches!(live, watcher::Event::Apply(o) if o.name_any() == "live"));
    // One watch did it all.
    let lists = server.counters().sum(|k| k.verb == Verb::List);
    assert_eq!(lists.requests, 0);
}

#[tokio::test]
async fn a_reflector_mirrors_the_collection_through_interruptions() {
    let server = ApiServer::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server, "mirror"));
    let writer: Api<ConfigMap> = Api::default_namespaced(client(&server, "writer"));
    create(&writer, names(30)).await;
    let (store, sink) = reflector::store();
    let mirror = reflector(sink, watcher(api, watcher::Config::default()).default_backoff());
    let task = tokio::spawn(mirror.for_each(|_| async {}));
    soon("the first list", store.wait_until_ready()).await.unwrap();
    for how in [Interruption::End, Interruption::Break, Interruption::Expire] {
        server.faults().interrupt(Matcher::client("mirror"), how);
        tokio::task::yield_now().await;
    }
    writer.delete("c000", &DeleteParams::default()).await.unwrap();
    create(&writer, ["new".to_owned()]).await;
    soon("the mirror", async {
        loop {
            let names: Vec<_> = store.state().iter().map(|o| o.name_any()).collect();
            if names.len() == 30 && names.contains(&"new".into()) && !names.contains(&"c000".into()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    task.abort();
}
