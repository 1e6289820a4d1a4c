//! Custom traits on the simulated region.

use std::time::Duration;

use cobalt_core::{
    api::{ConditionStatus, condition_types as types},
    ids::HostName,
    nova::{NovaClient, PlacementClient, TraitChange, change_traits},
    operator::Settings,
};
use cobalt_sim::{Region, faults::Failure};
use serde_json::json;

use super::{Rig, message, reason};

async fn rig() -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    rig.onboarded(&host).await;
    (rig, host)
}

/// Changes traits as a person does, behind the operator's back.
async fn by_hand(rig: &Rig, host: &HostName, add: &[&str], remove: &[&str]) {
    let provider = rig.nova.hypervisor_named(host.as_str()).await.unwrap().id;
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    change_traits(&rig.placement, &provider, &TraitChange { add: set(add), remove: set(remove) }).await.unwrap();
}

async fn custom(rig: &Rig, host: &HostName) -> Vec<String> {
    let all = rig.traits_of(host).await;
    all.into_iter().filter(|name| name.starts_with("CUSTOM_")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_host_without_custom_traits_is_up_to_date_too() {
    let (rig, host) = rig().await;
    let seen = rig.until(&host, "up to date", |hv| hv.is_true(types::TRAITS_UPDATED)).await;
    assert_eq!(reason(&seen, types::TRAITS_UPDATED), Some("Succeeded"));
    assert_eq!(seen.status.unwrap().traits(), ["COMPUTE_NODE", "HW_CPU_X86_AVX2"]);
}

#[tokio::test(start_paused = true)]
async fn traits_are_made_known_set_in_any_order_and_taken_back() {
    let (rig, host) = rig().await;
    rig.patch(&host, json!({"customTraits": ["CUSTOM_Z", "CUSTOM_A", "CUSTOM_Z"]})).await;
    let both = |hv: &cobalt_core::api::Hypervisor| hv.status.as_ref().is_some_and(|it| it.traits().len() == 4);
    let seen = rig.until(&host, "applied", both).await;
    assert!(seen.is_true(types::TRAITS_UPDATED));
    assert_eq!(seen.status.unwrap().traits(), ["COMPUTE_NODE", "CUSTOM_A", "CUSTOM_Z", "HW_CPU_X86_AVX2"], "sorted");

    let writes = rig.placement.faults().calls("set_traits");
    rig.patch(&host, json!({"customTraits": ["CUSTOM_A", "CUSTOM_Z"]})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.placement.faults().calls("set_traits"), writes, "the same in another order");

    rig.patch(&host, json!({"customTraits": ["CUSTOM_A"]})).await;
    rig.wait("taken back", async || custom(&rig, &host).await == ["CUSTOM_A"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_trait_somebody_removed_is_put_back_and_one_somebody_added_is_left_alone() {
    let (rig, host) = rig().await;
    rig.patch(&host, json!({"customTraits": ["CUSTOM_OURS"]})).await;
    rig.wait("applied", async || custom(&rig, &host).await == ["CUSTOM_OURS"]).await;
    by_hand(&rig, &host, &["CUSTOM_THEIRS"], &["CUSTOM_OURS"]).await;
    rig.wait("mended", async || custom(&rig, &host).await == ["CUSTOM_OURS", "CUSTOM_THEIRS"]).await;
    let has_both = |hv: &cobalt_core::api::Hypervisor| hv.status.as_ref().is_some_and(|it| it.traits().len() == 4);
    let seen = rig.until(&host, "shown", has_both).await;
    assert_eq!(seen.status.unwrap().applied_traits.unwrap(), ["CUSTOM_OURS"]);

    rig.patch(&host, json!({"customTraits": []})).await;
    rig.wait("only theirs left", async || custom(&rig, &host).await == ["CUSTOM_THEIRS"]).await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert_eq!(custom(&rig, &host).await, ["CUSTOM_THEIRS"]);
}

#[tokio::test(start_paused = true)]
async fn names_that_are_no_custom_traits_are_refused_clearly_and_the_others_applied() {
    let (rig, host) = rig().await;
    rig.patch(&host, json!({"customTraits": ["HW_FAST", "CUSTOM_GOOD", "CUSTOM_small"]})).await;
    let seen = rig.until(&host, "refused", |hv| reason(hv, types::TRAITS_UPDATED) == Some("Failed")).await;
    let words = message(&seen, types::TRAITS_UPDATED).unwrap();
    assert!(words.contains("CUSTOM_small, HW_FAST") && !words.contains("GOOD"), "{words}");
    assert_eq!(custom(&rig, &host).await, ["CUSTOM_GOOD"]);
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_retried_and_failures_said() {
    let (rig, host) = rig().await;
    rig.until(&host, "up to date", |hv| hv.is_true(types::TRAITS_UPDATED)).await;
    for failure in [Failure::Conflict, Failure::Conflict] {
        rig.placement.faults().fail_next("set_traits", failure);
    }
    rig.patch(&host, json!({"customTraits": ["CUSTOM_A"]})).await;
    rig.wait("applied", async || custom(&rig, &host).await == ["CUSTOM_A"]).await;

    for _ in 0..3 {
        rig.placement.faults().fail_next("set_traits", Failure::Unavailable);
    }
    rig.placement.faults().lose_answer("set_traits");
    rig.patch(&host, json!({"customTraits": ["CUSTOM_B"]})).await;
    let failed = rig.until(&host, "failed", |hv| reason(hv, types::TRAITS_UPDATED) == Some("Failed")).await;
    assert!(message(&failed, types::TRAITS_UPDATED).unwrap().starts_with("Failed to update traits in placement: "));
    rig.until(&host, "applied", |hv| hv.is_true(types::TRAITS_UPDATED)).await;
    assert_eq!(custom(&rig, &host).await, ["CUSTOM_B"]);
}

#[tokio::test(start_paused = true)]
async fn traits_wait_for_the_tests_and_go_with_the_handover() {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    rig.region.add_aggregate("tenant_filter_tests", None);
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.annotate(&host, "nova.openstack.cloud.sap/custom-traits", Some("CUSTOM_A")).await.unwrap();
    rig.cluster.manage(&host, true).await.unwrap();
    rig.until(&host, "there", |hv| hv.spec.lifecycle_enabled()).await;
    rig.play_onboarding(&host, ConditionStatus::True, "Testing").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(
        custom(&rig, &host).await.is_empty() && rig.hypervisor(&host).await.condition(types::TRAITS_UPDATED).is_none()
    );
    rig.play_onboarding(&host, ConditionStatus::True, "Handover").await;
    rig.until(&host, "applied", |hv| hv.is_true(types::TRAITS_UPDATED)).await;
    assert_eq!(custom(&rig, &host).await, ["CUSTOM_A"]);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_program_applied_counts_as_applied() {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.manage(&host, true).await.unwrap();
    rig.placement.ensure_trait("CUSTOM_OLD").await.unwrap();
    by_hand(&rig, &host, &["CUSTOM_OLD", "CUSTOM_KEPT"], &[]).await;
    let first = cobalt_core::runtime::shutdown::Shutdown::new();
    rig.life_until(Settings::default(), first.clone());
    rig.until(&host, "there", |_| true).await;
    first.trigger();
    // Its status as an earlier program leaves it: written by a merge patch, under a name of theirs, without a record.
    let params = kube::api::PatchParams { field_manager: Some("traits".into()), ..Default::default() };
    let status = json!({"status": {"traits": ["COMPUTE_NODE", "CUSTOM_KEPT", "CUSTOM_OLD", "HW_CPU_X86_AVX2"], "numInstances": 0}});
    rig.hypervisors().patch_status(host.as_str(), &params, &kube::api::Patch::Merge(&status)).await.unwrap();
    rig.patch(&host, json!({"customTraits": ["CUSTOM_KEPT"]})).await;
    rig.life(Settings::default());
    rig.play_onboarding(&host, ConditionStatus::False, "Succeeded").await;
    rig.wait("the old one gone", async || custom(&rig, &host).await == ["CUSTOM_KEPT"]).await;
}
