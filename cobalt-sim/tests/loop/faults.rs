//! Whatever the API server does to the programs, the end is the same.

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Interruption, Matcher},
};
use cobalt_core::{api::labels, runtime::shutdown::Shutdown};
use cobalt_sim::Region;
use serde_json::json;

use super::{Rig, ready};

/// The walk that every fault below is put under; its end state is what matters.
async fn walk(rig: &Rig) {
    let region = Region::builder().hosts(1).vms_per_host(2).build();
    let host = region.hosts().remove(0);
    rig.operator();
    rig.agent(&region, &host);
    rig.add_node("hv-000", json!({labels::ZONE: "qa-1a"}), json!({})).await;
    rig.until("hv-000", "reported", |hv| hv.is_true("LibVirtConnection")).await;
    rig.patch_node("hv-000", json!({"metadata": {"labels": {labels::LIFECYCLE: "", labels::ZONE: null}}})).await;
    region.boot(&host, "2").unwrap();
    let end = rig
        .until("hv-000", "at the end of the walk", |hv| {
            hv.spec.lifecycle_enabled()
                && hv.status.as_ref().is_some_and(|status| status.num_instances() == 3)
                && hv.metadata.labels.as_ref().is_none_or(|labels| !labels.contains_key(labels::ZONE))
                && ready(hv).is_some_and(|ready| ready.message.contains("waiting for nova-compute"))
        })
        .await;
    rig.rest().await;
    assert!(end.is_true("LibVirtConnection"));
    let owners = end.metadata.owner_references.unwrap();
    assert_eq!(owners.len(), 1);
    rig.server.counters().reset();
    tokio::time::sleep(std::time::Duration::from_secs(1800)).await;
    assert_eq!((rig.counts("operator").requests, rig.counts("agent").requests), (0, 0), "and at rest");
}

#[tokio::test(start_paused = true)]
async fn refused_writes_are_tried_again() {
    for code in [409, 429, 500, 503, 504] {
        let rig = Rig::new().await;
        let status = Effect::Status { code, retry_after: None };
        rig.server.faults().set([
            Fault::new(Matcher::client("operator").verb(Verb::Patch).every(2).times(6), status.clone()),
            Fault::new(Matcher::client("agent").verb(Verb::Patch).every(2).times(6), status),
        ]);
        walk(&rig).await;
        assert!(!rig.server.faults().fired().is_empty(), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_answers_are_no_lost_writes() {
    let rig = Rig::new().await;
    rig.server.faults().set([
        Fault::new(Matcher::client("operator").verb(Verb::Patch).every(2).times(4), Effect::DropResponse),
        Fault::new(Matcher::client("agent").verb(Verb::Patch).every(2).times(4), Effect::DropResponse),
    ]);
    walk(&rig).await;
    assert!(!rig.server.faults().fired().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cut_and_lagging_watches_and_forced_listings_change_nothing() {
    for effect in [
        Effect::CutWatch { after_events: 1, abrupt: true },
        Effect::CutWatch { after_events: 0, abrupt: false },
        Effect::LagWatch { millis: 5000 },
        Effect::Relist,
    ] {
        let rig = Rig::new().await;
        rig.server.faults().set([
            Fault::new(Matcher::client("operator").verb(Verb::Watch).every(2).times(8), effect.clone()),
            Fault::new(Matcher::client("agent").verb(Verb::Watch).every(2).times(8), effect.clone()),
        ]);
        walk(&rig).await;
        assert!(!rig.server.faults().fired().is_empty(), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_at_rest_lists_anew_and_writes_nothing() {
    let rig = Rig::new().await;
    walk(&rig).await;
    rig.server.counters().reset();
    rig.server.compact();
    rig.server.faults().interrupt(Matcher::client("operator").verb(Verb::Watch), Interruption::Expire);
    tokio::time::sleep(std::time::Duration::from_secs(600)).await;
    let listings = rig.server.counters().sum(|key| key.client == "operator" && key.verb == Verb::List);
    assert_eq!(listings.requests, 4, "Nodes, Hypervisors, OVSNodes and the Leases beside them");
    assert_eq!(rig.counts("operator").requests, 0);
}

/// A crash before or after any write of either program, and a new one in its place.
#[tokio::test(start_paused = true)]
async fn a_crash_around_any_write_leaves_nothing_half_done() {
    for effect in [Effect::CrashBefore, Effect::CrashAfter] {
        for (client, nth) in
            [("operator", 1), ("operator", 2), ("operator", 3), ("operator", 4), ("agent", 1), ("agent", 2)]
        {
            let rig = Rig::new().await;
            let region = Region::builder().hosts(1).vms_per_host(2).build();
            let host = region.hosts().remove(0);
            let matcher = Matcher::client(client).verb(Verb::Patch).nth(nth).times(1);
            rig.server.faults().set([Fault::new(matcher, effect.clone())]);
            let mut crashes = rig.server.faults().crashes();
            let first = Shutdown::new();
            rig.operator_until(first.clone());
            rig.agent_until(&region, &host, first.clone());
            let replace = async {
                if crashes.recv().await.is_ok() {
                    first.trigger();
                    rig.operator();
                    rig.agent(&region, &host);
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = replace => {}
                () = eventful_walk(&rig, &region) => {}
            }
            assert_eq!(rig.server.faults().fired().len(), 1, "{effect:?} at write {nth} of the {client}");
        }
    }
}

/// Never answered: the programs give up waiting after their time limit and go on.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_never_answered_holds_nobody_up() {
    let rig = Rig::new().await;
    rig.server.faults().set([
        Fault::new(Matcher::client("operator").verb(Verb::Patch).every(2).times(3), Effect::CrashBefore),
        Fault::new(Matcher::client("agent").verb(Verb::Patch).every(2).times(3), Effect::CrashAfter),
    ]);
    walk(&rig).await;
    assert!(!rig.server.faults().fired().is_empty());
}

async fn eventful_walk(rig: &Rig, region: &Region) {
    rig.add_node("hv-000", json!({labels::ZONE: "qa-1a"}), json!({labels::AGGREGATES_ANNOTATION: "a"})).await;
    rig.until("hv-000", "reported", |hv| ready(hv).is_some() && hv.is_true("LibVirtConnection")).await;
    let without = json!({"labels": {labels::LIFECYCLE: ""}, "annotations": {labels::AGGREGATES_ANNOTATION: null}});
    rig.patch_node("hv-000", json!({"metadata": without})).await;
    region.boot(&region.hosts()[0], "2").unwrap();
    let end = rig
        .until("hv-000", "managed, without aggregates, with three VMs", |hv| {
            hv.spec.lifecycle_enabled()
                && hv.spec.aggregates().is_empty()
                && hv.status.as_ref().is_some_and(|status| status.num_instances() == 3)
                && ready(hv).is_some_and(|ready| ready.message.contains("waiting for nova-compute"))
        })
        .await;
    assert_eq!(end.spec.evacuate_on_reboot, Some(false), "what creation wrote is not lost in a crash");
    assert_eq!(end.metadata.owner_references.unwrap().len(), 1);
}
