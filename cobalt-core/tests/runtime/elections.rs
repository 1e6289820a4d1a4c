//! Leader election on a Lease of the API server.

use std::{future::pending, sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::runtime::{
    clock::Clock,
    lease::{KubeLeases, Leadership, LeaseConfig, LeaseElector, LeaseError, StoreError, names},
    metrics::Metrics,
    shutdown::Shutdown,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;

fn elector(cluster: &Cluster, who: &str) -> LeaseElector {
    elector_with(cluster, who, Arc::new(Metrics::new()))
}

fn elector_with(cluster: &Cluster, who: &str, metrics: Arc<Metrics>) -> LeaseElector {
    let config = LeaseConfig {
        name: names::OPERATOR.into(),
        namespace: "default".into(),
        identity: who.into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let store = KubeLeases::new(cluster.client(who), &config.namespace, &config.name, "cobalt-operator");
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    LeaseElector::new(config, Arc::new(store), clock, metrics)
}

async fn idle(leadership: Leadership) -> Result<(), StoreError> {
    leadership.stopping().triggered().await;
    Ok(())
}

async fn lease(cluster: &Cluster) -> Option<Lease> {
    Api::namespaced(cluster.admin.clone(), "default").get_opt(names::OPERATOR).await.unwrap()
}

async fn holder(cluster: &Cluster) -> Option<String> {
    lease(cluster).await?.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

async fn held_by(cluster: &Cluster, who: &str) {
    tokio::time::timeout(Duration::from_secs(120), async {
        while holder(cluster).await.as_deref() != Some(who) {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_handed_over_at_once() {
    let cluster = Cluster::start().await;
    let (stop_a, stop_b) = (Shutdown::new(), Shutdown::new());
    let metrics = Arc::new(Metrics::new());
    let a = tokio::spawn(elector_with(&cluster, "a", metrics.clone()).run(stop_a.clone(), idle));
    held_by(&cluster, "a").await;
    let b = tokio::spawn(elector(&cluster, "b").run(stop_b.clone(), idle));
    sleep(Duration::from_secs(30)).await;
    assert!(metrics.encode().contains(r#"cobalt_leader{lease="4c28796a.cloud.sap"} 1"#));

    stop_a.trigger();
    a.await.unwrap().unwrap();
    assert!(metrics.encode().contains(r#"cobalt_leader{lease="4c28796a.cloud.sap"} 0"#));
    let released = Instant::now();
    held_by(&cluster, "b").await;
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    assert_eq!(lease(&cluster).await.unwrap().spec.unwrap().lease_transitions, Some(1));
    stop_b.trigger();
    b.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_requests_fail_stops_and_another_follows() {
    let cluster = Cluster::start().await;
    let a = tokio::spawn(elector(&cluster, "a").run(Shutdown::new(), idle));
    held_by(&cluster, "a").await;
    let stop = Shutdown::new();
    let b = tokio::spawn(elector(&cluster, "b").run(stop.clone(), idle));
    sleep(Duration::from_secs(5)).await;
    cluster
        .server
        .faults()
        .set([Fault::new(Matcher::client("a").verb(Verb::Update), Effect::Status { code: 500, retry_after: None })]);
    let error = a.await.unwrap().unwrap_err();
    assert!(matches!(error, LeaseError::Lost { .. }), "{error}");
    assert_eq!(holder(&cluster).await.as_deref(), Some("a"), "still in the record when a has stopped");
    held_by(&cluster, "b").await;
    stop.trigger();
    b.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_cost_the_lease() {
    let cluster = Cluster::start().await;
    let stop = Shutdown::new();
    let a = tokio::spawn(elector(&cluster, "a").run(stop.clone(), idle));
    held_by(&cluster, "a").await;
    cluster.server.faults().set([Fault::new(Matcher::client("a").verb(Verb::Update).every(3), Effect::DropResponse)]);
    sleep(Duration::from_secs(120)).await;
    assert!(!a.is_finished());
    assert!(!cluster.server.faults().fired().is_empty());
    cluster.server.faults().clear();
    stop.trigger();
    a.await.unwrap().unwrap();
    assert_eq!(holder(&cluster).await, None);
}

#[tokio::test(start_paused = true)]
async fn stubborn_work_does_not_outlive_a_lost_lease() {
    let cluster = Cluster::start().await;
    let (ended, mut end) = tokio::sync::oneshot::channel::<()>();
    let a = tokio::spawn(elector(&cluster, "a").run(Shutdown::new(), move |_| async move {
        let _ended = ended;
        pending::<Result<(), StoreError>>().await
    }));
    held_by(&cluster, "a").await;
    assert!(end.try_recv().is_err());
    let spec = lease(&cluster).await.unwrap().spec.unwrap();
    assert_eq!(spec.lease_duration_seconds, Some(15));
    cluster.server.faults().set([Fault::new(Matcher::client("a"), Effect::Latency { millis: 60_000 })]);
    let cut = Instant::now();
    a.await.unwrap().unwrap_err();
    assert!(end.await.is_err(), "the work was dropped");
    assert!(cut.elapsed() < Duration::from_secs(15), "before anybody else could lead");
}
