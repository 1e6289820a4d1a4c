//! What the metrics say of drains, from the first instance to the last.

use std::sync::Arc;

use cobalt_core::{
    api::{condition_types as types, labels},
    nova::NovaClient,
    operator::Settings,
    runtime::metrics::Metrics,
};
use cobalt_sim::Region;
use serde_json::json;

use super::{Rig, drain::pinned, reason, total};

#[tokio::test(start_paused = true)]
async fn a_drain_is_seen_in_the_metrics_while_it_goes_on_and_its_instances_by_how_they_left() {
    let rig = Rig::new(Region::builder().hosts(3).vms_per_host(0).build()).await;
    rig.region.add_aggregate(labels::TEST_AGGREGATE, None);
    let host = rig.region.hosts()[0].clone();
    let metrics = Arc::new(Metrics::new());
    let mut settings = Settings::default();
    settings.drain.concurrency = 1;
    tokio::spawn(rig.new_operator(settings).metrics(metrics.clone()).run(rig.stop.clone()));
    rig.agent(&host);
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.label(&host, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await.unwrap();
    rig.until(&host, "in service", |hv| reason(hv, types::ONBOARDING) == Some("Succeeded")).await;
    for _ in 0..3 {
        rig.region.boot(&host, "2").unwrap();
    }
    let stuck = pinned(&rig, &host).await;

    let gauge = |name: &str| total(&metrics, &format!("cobalt_eviction_{name} "));
    let ended = |outcome: &str| total(&metrics, &format!("cobalt_eviction_instances_total{{outcome=\"{outcome}\"}}"));
    assert_eq!(gauge("running"), 0, "nothing is drained yet");
    rig.patch(&host, json!({"maintenance": "manual", "maintenanceReason": "a test"})).await;
    rig.wait("one moves", async || gauge("in_flight_instances") == 1 && ended("moved") == 1).await;
    assert_eq!((gauge("running"), gauge("outstanding_instances")), (1, 3));
    assert_eq!(gauge("outstanding_memory_mb"), 4096 * 2 + 1024);

    rig.wait("all have moved that can", async || ended("moved") == 3 && gauge("blocked_instances") == 1).await;
    assert_eq!((gauge("running"), gauge("in_flight_instances")), (1, 0), "the host is not empty");
    assert_eq!((gauge("outstanding_instances"), gauge("outstanding_memory_mb")), (1, 1024));
    assert_eq!(ended("blocked"), 1, "once, however often it is looked at");
    assert_eq!(total(&metrics, "cobalt_eviction_move_seconds_count{how=\"live\"}"), 3);

    rig.nova.delete_server(&stuck).await.unwrap();
    rig.until(&host, "drained", |hv| hv.is_false(types::EVICTING)).await;
    rig.wait("over", async || gauge("running") == 0).await;
    for name in ["outstanding_instances", "outstanding_memory_mb", "in_flight_instances", "blocked_instances"] {
        assert_eq!(gauge(name), 0, "{name}");
    }
    assert_eq!((ended("moved"), ended("gone"), ended("failed")), (3, 1, 0));
}
