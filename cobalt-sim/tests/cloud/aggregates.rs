//! Aggregates on the simulated region.

use std::time::Duration;

use cobalt_core::{
    api::{ConditionStatus, Hypervisor, condition_types as types},
    ids::{AggregateId, HostName},
    nova::NovaClient,
    operator::{AggregatesSettings, Settings},
};
use cobalt_sim::{Region, faults::Failure};
use serde_json::json;

use super::{Rig, message, reason};

/// A region of one host that is in no aggregate yet, and of aggregates `a`, `b`, `c` and the one of the tests.
async fn rig(region: Region) -> (Rig, HostName) {
    let rig = Rig::new(region).await;
    for name in ["a", "b", "c", "tenant_filter_tests"] {
        rig.region.add_aggregate(name, None);
    }
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    (rig, host)
}

async fn onboarded() -> (Rig, HostName) {
    let (rig, host) = rig(Region::builder().hosts(1).build()).await;
    rig.onboarded(&host).await;
    (rig, host)
}

fn names(hypervisor: &Hypervisor) -> Vec<&str> {
    let status = hypervisor.status.as_ref();
    status.map(|it| it.aggregates().iter().map(|one| one.name.as_str()).collect()).unwrap_or_default()
}

async fn id_of(rig: &Rig, name: &str) -> AggregateId {
    rig.nova.aggregates().await.unwrap().into_iter().find(|one| one.name == name).unwrap().id
}

#[tokio::test(start_paused = true)]
async fn the_whole_table_from_the_first_test_to_the_own_aggregates() {
    let (rig, host) = rig(Region::builder().hosts(1).unregistered().build()).await;
    rig.region.world().start_compute(&host).unwrap();
    rig.wait("registered", async || rig.nova.service_on(&host).await.is_ok()).await;
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.annotate(&host, "nova.openstack.cloud.sap/aggregates", Some("b,a")).await.unwrap();
    rig.cluster.manage(&host, true).await.unwrap();
    rig.until(&host, "there", |hv| hv.spec.lifecycle_enabled() && hv.spec.aggregates().len() == 3).await;
    for step in ["Initial", "Testing"] {
        rig.play_onboarding(&host, ConditionStatus::True, step).await;
        let seen = rig.until(&host, step, |hv| reason(hv, types::AGGREGATES_UPDATED) == Some("TestAggregates")).await;
        assert_eq!(names(&seen), ["zone-a", "tenant_filter_tests"]);
        assert_eq!(rig.aggregates_of(&host).await, ["tenant_filter_tests", "zone-a"]);
    }
    let zone = &rig.hypervisor(&host).await.status.unwrap().aggregates.unwrap()[0];
    assert!(!zone.uuid.is_empty());
    assert_eq!(zone.metadata.as_ref().unwrap()["availability_zone"], "zone-a");

    for _ in 0..20 {
        rig.placement.faults().fail_next("traits", Failure::Unavailable);
    }
    rig.play_onboarding(&host, ConditionStatus::True, "Handover").await;
    let seen =
        rig.until(&host, "waiting", |hv| reason(hv, types::AGGREGATES_UPDATED) == Some("WaitingForTraits")).await;
    assert_eq!(names(&seen), ["zone-a", "tenant_filter_tests"]);
    rig.placement.faults().clear();
    let seen = rig.until(&host, "own", |hv| hv.is_true(types::AGGREGATES_UPDATED)).await;
    assert_eq!(names(&seen), ["b", "a", "zone-a"]);
    assert_eq!(rig.aggregates_of(&host).await, ["a", "b", "zone-a"]);
}

#[tokio::test(start_paused = true)]
async fn the_host_joins_before_it_leaves() {
    let (rig, host) = onboarded().await;
    rig.patch(&host, json!({"aggregates": ["a", "zone-a"]})).await;
    rig.until(&host, "in a", |hv| names(hv) == ["a", "zone-a"]).await;
    rig.nova.faults().fail_next("add_to_aggregate", Failure::Unavailable);
    rig.nova.faults().fail_next("add_to_aggregate", Failure::Unavailable);
    let left = rig.nova.faults().calls("remove_from_aggregate");
    rig.patch(&host, json!({"aggregates": ["b", "zone-a"]})).await;
    let failed = rig.until(&host, "failed", |hv| reason(hv, types::AGGREGATES_UPDATED) == Some("Failed")).await;
    assert!(message(&failed, types::AGGREGATES_UPDATED).unwrap().starts_with("failed to apply aggregates: "));
    assert_eq!(rig.nova.faults().calls("remove_from_aggregate"), left, "it could not join, so it has not left");
    assert_eq!(names(&failed), ["zone-a", "a"], "what it still is in stays recorded");
    rig.until(&host, "in b", |hv| hv.is_true(types::AGGREGATES_UPDATED) && names(hv) == ["b", "zone-a"]).await;
    assert_eq!(rig.aggregates_of(&host).await, ["b", "zone-a"]);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_removed_is_put_back_and_what_somebody_added_is_left_alone() {
    let (rig, host) = onboarded().await;
    rig.patch(&host, json!({"aggregates": ["a", "zone-a"]})).await;
    rig.until(&host, "in a", |hv| names(hv) == ["a", "zone-a"]).await;
    rig.nova.remove_from_aggregate(&id_of(&rig, "a").await, &host).await.unwrap();
    rig.nova.add_to_aggregate(&id_of(&rig, "c").await, &host).await.unwrap();
    rig.wait("mended", async || rig.aggregates_of(&host).await == ["a", "c", "zone-a"]).await;
    rig.patch(&host, json!({"aggregates": ["zone-a"]})).await;
    rig.wait("left", async || rig.aggregates_of(&host).await == ["c", "zone-a"]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.aggregates_of(&host).await, ["c", "zone-a"]);
    assert_eq!(names(&rig.hypervisor(&host).await), ["zone-a"], "theirs is not recorded as ours");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nova_does_not_have_is_said_and_helped_by_making_it() {
    let (rig, host) = onboarded().await;
    rig.until(&host, "up to date", |hv| hv.is_true(types::AGGREGATES_UPDATED)).await;
    rig.patch(&host, json!({"aggregates": ["zone-a", "late", "later"]})).await;
    let seen = rig.until(&host, "missing", |hv| reason(hv, types::AGGREGATES_UPDATED) == Some("Failed")).await;
    let expected = "failed to apply aggregates: aggregates not found: [late later]";
    assert_eq!(message(&seen, types::AGGREGATES_UPDATED), Some(expected));
    rig.region.add_aggregate("late", None);
    rig.region.add_aggregate("later", None);
    rig.until(&host, "applied", |hv| hv.is_true(types::AGGREGATES_UPDATED)).await;
    assert_eq!(rig.aggregates_of(&host).await, ["late", "later", "zone-a"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_host_changes_its_zone_and_one_with_instances_is_told_why_not() {
    let (rig, host) = rig(Region::builder().hosts(1).zones(["zone-a", "zone-b"]).build()).await;
    rig.onboarded(&host).await;
    rig.patch(&host, json!({"aggregates": ["zone-a"]})).await;
    rig.until(&host, "in zone-a", |hv| names(hv) == ["zone-a"]).await;
    let vm = rig.region.boot(&host, "2").unwrap();
    rig.patch(&host, json!({"aggregates": ["zone-b"]})).await;
    let told = rig.until(&host, "refused", |hv| reason(hv, types::AGGREGATES_UPDATED) == Some("Failed")).await;
    let words = message(&told, types::AGGREGATES_UPDATED).unwrap();
    assert!(words.contains("a host with instances cannot change its availability zone"), "{words}");
    assert_eq!(rig.aggregates_of(&host).await, ["zone-a"]);

    rig.nova.delete_server(&vm).await.unwrap();
    rig.until(&host, "moved", |hv| hv.is_true(types::AGGREGATES_UPDATED) && names(hv) == ["zone-b"]).await;
    assert_eq!(rig.aggregates_of(&host).await, ["zone-b"]);
}

#[tokio::test(start_paused = true)]
async fn the_aggregate_of_the_tests_is_configuration() {
    let region = Region::builder().hosts(1).build();
    region.add_aggregate("quarantine", None);
    let rig = Rig::new(region).await;
    let mut settings = Settings::default();
    settings.aggregates = AggregatesSettings { test_aggregate: "quarantine".into() };
    rig.life(settings);
    let host = rig.region.hosts()[0].clone();
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.manage(&host, true).await.unwrap();
    rig.until(&host, "there", |hv| hv.spec.lifecycle_enabled()).await;
    rig.play_onboarding(&host, ConditionStatus::True, "Initial").await;
    rig.wait("there", async || rig.aggregates_of(&host).await == ["quarantine", "zone-a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_and_a_dead_nova_end_in_the_same_state() {
    let (rig, host) = onboarded().await;
    rig.until(&host, "up to date", |hv| hv.is_true(types::AGGREGATES_UPDATED)).await;
    rig.nova.faults().lose_answer("add_to_aggregate");
    rig.patch(&host, json!({"aggregates": ["a", "b", "zone-a"]})).await;
    rig.region.world().set_nova_available(false);
    tokio::time::sleep(Duration::from_secs(20)).await;
    rig.region.world().set_nova_available(true);
    rig.until(&host, "applied", |hv| names(hv) == ["a", "b", "zone-a"] && hv.is_true(types::AGGREGATES_UPDATED)).await;
    rig.nova.faults().lose_answer("remove_from_aggregate");
    rig.patch(&host, json!({"aggregates": ["b", "zone-a"]})).await;
    rig.until(&host, "left", |hv| names(hv) == ["b", "zone-a"] && hv.is_true(types::AGGREGATES_UPDATED)).await;
    assert_eq!(rig.aggregates_of(&host).await, ["b", "zone-a"]);
}
