//! Watches against an API server: malformed objects, cut streams, new listings.

use std::sync::{Arc, Mutex};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Interruption, Matcher},
};
use cobalt_core::runtime::{
    clock::Clock,
    shutdown::Shutdown,
    state::Status,
    watch::{Lookup, ObjectKey, Store, watched_store},
};
use kube::{Api, ResourceExt, api::DeleteParams, runtime::watcher};
use serde_json::json;

use crate::cluster::{Cluster, Widget, eventually};

struct Watching {
    store: Store<Widget>,
    status: Status,
    touched: Arc<Mutex<Vec<String>>>,
    stop: Shutdown,
    running: tokio::task::JoinHandle<()>,
}

impl Watching {
    fn start(cluster: &Cluster) -> Self {
        Self::keeping(cluster, false)
    }

    fn keeping(cluster: &Cluster, packed: bool) -> Self {
        let status = Status::new(Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
        let touched = Arc::new(Mutex::new(Vec::new()));
        let log = touched.clone();
        let builder = watched_store::<Widget>(
            "widgets",
            Api::all(cluster.client("operator")),
            watcher::Config::default(),
            cluster.metrics.clone(),
        );
        let builder = if packed { builder.packed() } else { builder };
        let (store, watch) = builder
            .modify(|widget| widget.managed_fields_mut().clear())
            .on_touch(move |touch| {
                let how = match (&touch.before, &touch.after) {
                    (None, Some(_)) => "+",
                    (Some(_), Some(_)) => "~",
                    (Some(_), None) => "-",
                    (None, None) => "?",
                };
                log.lock().unwrap().push(format!("{how}{}", touch.key));
            })
            .build(&status);
        let stop = Shutdown::new();
        let ending = stop.clone();
        let running = tokio::spawn(async move { watch.run(ending).await.unwrap() });
        Self { store, status, touched, stop, running }
    }

    fn size(&self, name: &str) -> Option<i64> {
        self.store.get(&ObjectKey::cluster(name))?.spec.size
    }

    fn take_touched(&self) -> Vec<String> {
        let mut touched = std::mem::take(&mut *self.touched.lock().unwrap());
        touched.sort();
        touched
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_follows_the_cluster() {
    the_cache_follows(false).await;
}

#[tokio::test(start_paused = true)]
async fn packed_objects_come_out_as_they_went_in() {
    the_cache_follows(true).await;
}

async fn the_cache_follows(packed: bool) {
    let cluster = Cluster::start().await;
    cluster.create("a", json!({"size": 1})).await;
    let watching = Watching::keeping(&cluster, packed);
    assert_eq!(watching.status.not_ready(), [("watch widgets".into(), "first listing not complete".into())]);
    assert!(watching.store.ready().await);
    assert_eq!(watching.status.not_ready(), []);
    assert_eq!(watching.take_touched(), ["+a"]);
    assert!(watching.store.get(&ObjectKey::cluster("a")).unwrap().managed_fields().is_empty(), "pruned");

    cluster.create("b", json!({"size": 1})).await;
    eventually("b is known", || watching.size("b") == Some(1)).await;
    cluster.merge("b", "x", json!({"spec": {"size": 2}})).await;
    eventually("b has changed", || watching.size("b") == Some(2)).await;
    Api::<Widget>::all(cluster.admin.clone()).delete("a", &DeleteParams::default()).await.unwrap();
    eventually("a is gone", || watching.store.len() == 1).await;
    eventually("all are told", || watching.touched.lock().unwrap().len() == 3).await;
    assert_eq!(watching.take_touched(), ["+b", "-a", "~b"]);

    watching.stop.trigger();
    watching.running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_leaves_the_rest_running() {
    let cluster = Cluster::start().await;
    cluster.create("good", json!({"size": 1})).await;
    cluster.create("bad", json!({"size": 1})).await;
    cluster.merge("bad", "x", json!({"spec": {"size": "large"}})).await;
    let watching = Watching::start(&cluster);
    assert!(watching.store.ready().await, "the listing is complete although one object cannot be read");
    assert_eq!(watching.size("good"), Some(1));
    assert!(
        matches!(watching.store.lookup(&ObjectKey::cluster("bad")), Lookup::Malformed(error) if error.contains("large"))
    );
    assert_eq!(watching.store.lookup(&ObjectKey::cluster("none")), Lookup::Absent);
    assert_eq!(watching.take_touched(), ["+good", "?bad"]);

    // One that turns bad while watched, and one that becomes good again.
    cluster.merge("good", "x", json!({"spec": {"traits": 5}})).await;
    eventually("good is bad", || watching.store.is_empty()).await;
    cluster.merge("bad", "x", json!({"spec": {"size": 7}})).await;
    eventually("bad is good", || watching.size("bad") == Some(7)).await;
    cluster.create("other", json!({"size": 3})).await;
    eventually("others go on", || watching.size("other") == Some(3)).await;

    let report = watching.status.report().watches.remove(0);
    assert_eq!((report.objects, report.malformed.len()), (2, 1));
    assert_eq!(report.malformed[0].name, "good");
    assert!(cluster.metrics.encode().contains(r#"cobalt_watch_malformed_objects_total{kind="widgets"} 2"#));

    Api::<Widget>::all(cluster.admin.clone()).delete("good", &DeleteParams::default()).await.unwrap();
    eventually("the bad one is gone", || watching.store.keys().len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_listing_touches_only_what_differs() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.create(name, json!({"size": 1})).await;
    }
    let watching = Watching::start(&cluster);
    assert!(watching.store.ready().await);
    watching.take_touched();

    // While the watch is cut and cannot come back, the world moves on; then the old revisions are gone.
    cluster.server.faults().set([
        Fault::new(Matcher::client("operator").verb(Verb::Watch), Effect::Status { code: 500, retry_after: None }),
        Fault::new(Matcher::client("operator").verb(Verb::List), Effect::Status { code: 500, retry_after: None }),
    ]);
    cluster.server.faults().interrupt(Matcher::client("operator"), Interruption::Expire);
    eventually("the failure is noticed", || watching.status.report().watches[0].last_error.is_some()).await;
    cluster.merge("b", "x", json!({"spec": {"size": 2}})).await;
    Api::<Widget>::all(cluster.admin.clone()).delete("c", &DeleteParams::default()).await.unwrap();
    cluster.create("d", json!({"size": 4})).await;
    assert_eq!(watching.size("c"), Some(1), "the old knowledge stays until there is new");
    assert!(watching.store.is_synced());
    cluster.server.compact();
    cluster.server.faults().clear();

    eventually("the new listing is here", || watching.size("d") == Some(4)).await;
    assert_eq!(watching.take_touched(), ["+d", "-c", "~b"]);
    let report = watching.status.report().watches.remove(0);
    assert!(report.restarts >= 1 && report.last_error.is_none(), "{report:?}");
}
