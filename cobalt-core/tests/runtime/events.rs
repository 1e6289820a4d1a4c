//! Events as they are stored.

use std::time::Duration;

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::runtime::{
    clock::Clock,
    events::{self, Event, Recorder},
    shutdown::Shutdown,
};
use k8s_openapi::api::events::v1::Event as KubeEvent;
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::cluster::{Cluster, Widget, eventually};

struct Publishing {
    recorder: Recorder,
    stop: Shutdown,
    running: tokio::task::JoinHandle<()>,
}

fn start(cluster: &Cluster) -> Publishing {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let client = cluster.client("operator");
    let (recorder, publisher) = events::recorder(client, "cobalt-operator", "pod-0", clock, cluster.metrics.clone());
    let stop = Shutdown::new();
    let ending = stop.clone();
    let running = tokio::spawn(async move { publisher.run(ending).await.unwrap_or_else(|never| match never {}) });
    Publishing { recorder, stop, running }
}

impl Publishing {
    /// Ends the publisher, which sends what is queued first.
    async fn finish(self) {
        self.stop.trigger();
        self.running.await.unwrap();
    }
}

async fn stored(cluster: &Cluster) -> Vec<KubeEvent> {
    let api: Api<KubeEvent> = Api::namespaced(cluster.admin.clone(), "default");
    api.list(&ListParams::default()).await.unwrap().items
}

async fn widget(cluster: &Cluster) -> Widget {
    cluster.create("w", json!({})).await;
    cluster.get("w").await
}

#[tokio::test(start_paused = true)]
async fn an_event_says_what_happened_to_whom() {
    let cluster = Cluster::start().await;
    let (widget, publishing) = (widget(&cluster).await, start(&cluster));
    publishing.recorder.publish(Event::warning(&widget, "Drain", "MigrationFailed", "server 6f2c did not move"));
    publishing.finish().await;
    let event = stored(&cluster).await.remove(0);
    let regarding = event.regarding.unwrap();
    assert_eq!(regarding.kind.as_deref(), Some("Widget"));
    assert_eq!((regarding.name.as_deref(), regarding.uid), (Some("w"), widget.metadata.uid));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!((event.action.as_deref(), event.reason.as_deref()), (Some("Drain"), Some("MigrationFailed")));
    assert_eq!(event.note.as_deref(), Some("server 6f2c did not move"));
    assert_eq!(event.reporting_controller.as_deref(), Some("cobalt-operator"));
    assert_eq!(event.reporting_instance.as_deref(), Some("pod-0"));
    assert_eq!(event.series, None);
}

#[tokio::test(start_paused = true)]
async fn the_same_event_again_is_one_event_with_a_count() {
    let cluster = Cluster::start().await;
    let (widget, publishing) = (widget(&cluster).await, start(&cluster));
    for _ in 0..5 {
        publishing.recorder.publish(Event::warning(&widget, "Drain", "MigrationFailed", "no valid host"));
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    publishing.recorder.publish(Event::normal(&widget, "Drain", "Drained", "the host is empty"));
    publishing.finish().await;
    let events = stored(&cluster).await;
    assert_eq!(events.len(), 2);
    let repeated = events.iter().find(|event| event.reason.as_deref() == Some("MigrationFailed")).unwrap();
    assert_eq!(repeated.series.as_ref().unwrap().count, 5);
    assert!(cluster.metrics.encode().contains(r#"cobalt_events_total{outcome="aggregated"} 4"#));
}

#[tokio::test(start_paused = true)]
async fn publishing_never_waits_and_what_is_too_much_is_counted() {
    let cluster = Cluster::start().await;
    let (widget, publishing) = (widget(&cluster).await, start(&cluster));
    // Nothing yields in between, so the queue must take or drop them all by itself.
    for n in 0..5000 {
        publishing.recorder.publish(Event::normal(&widget, "Test", "Many", format!("event {n}")));
    }
    publishing.finish().await;
    let events = stored(&cluster).await;
    assert!(events.len() <= 11, "ten different ones and one combined: {}", events.len());
    let text = cluster.metrics.encode();
    let count = |outcome: &str| -> u64 {
        let prefix = format!("cobalt_events_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    };
    assert_eq!(count("created") + count("aggregated") + count("dropped"), 5000);
    assert_eq!(count("created") + count("aggregated"), 25, "the burst of one object");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_has_expired_begins_anew() {
    let cluster = Cluster::start().await;
    let (widget, publishing) = (widget(&cluster).await, start(&cluster));
    let event = Event::normal(&widget, "Test", "Again", "hello");
    publishing.recorder.publish(event.clone());
    eventually("it is there", || cluster.server.count("events.events.k8s.io") + cluster.server.count("events") > 0)
        .await;
    let api: Api<KubeEvent> = Api::namespaced(cluster.admin.clone(), "default");
    let name = stored(&cluster).await.remove(0).metadata.name.unwrap();
    api.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    publishing.recorder.publish(event);
    publishing.finish().await;
    assert_eq!(stored(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stumbles_gets_the_event_a_moment_later() {
    let cluster = Cluster::start().await;
    let (widget, publishing) = (widget(&cluster).await, start(&cluster));
    cluster.server.faults().set([Fault::new(
        Matcher::client("operator").verb(Verb::Create).times(2),
        Effect::Status { code: 500, retry_after: None },
    )]);
    publishing.recorder.publish(Event::normal(&widget, "Test", "Late", "hello"));
    publishing.finish().await;
    assert_eq!(stored(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn long_notes_are_cut_to_what_the_server_takes() {
    let cluster = Cluster::start().await;
    let (widget, publishing) = (widget(&cluster).await, start(&cluster));
    publishing.recorder.publish(Event::normal(&widget, "Test", "Long", "ü".repeat(2000)));
    publishing.finish().await;
    let note = stored(&cluster).await.remove(0).note.unwrap();
    assert!(note.len() <= 1024 && note.ends_with('…'), "{}", note.len());
}
