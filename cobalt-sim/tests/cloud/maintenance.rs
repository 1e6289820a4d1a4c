//! Maintenance on the simulated region; the drain itself is played by the test.

use std::time::Duration;

use cobalt_core::{
    api::{ConditionStatus, condition_types as types},
    ids::HostName,
    nova::{NovaClient, ServiceState},
    operator::{EVICTION_REASON, Settings},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Region, faults::Failure};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::{Rig, message, reason};

const MANUAL: &str = "Hypervisor CRD: spec.maintenance=manual";

/// One onboarded host in a region of two, with the operator running.
async fn rig() -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().hosts(2).build()).await;
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    rig.onboarded(&host).await;
    (rig, host)
}

async fn enter(rig: &Rig, host: &HostName, mode: &str) {
    rig.patch(host, json!({"maintenance": mode, "maintenanceReason": "a test"})).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_goes_into_maintenance_is_drained_and_comes_back() {
    let (rig, host) = rig().await;
    rig.until(&host, "enabled", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;
    enter(&rig, &host, "manual").await;
    rig.until(&host, "disabled", |hv| hv.is_true(types::HYPERVISOR_DISABLED)).await;
    let service = rig.service(&host).await;
    assert_eq!((service.enabled, service.disabled_reason.as_deref()), (false, Some(MANUAL)));

    let evicting = rig.until(&host, "evicting", |hv| hv.is_true(types::EVICTING)).await;
    assert_eq!(
        (reason(&evicting, types::EVICTING), message(&evicting, types::EVICTING)),
        (Some("Running"), Some("Evicting"))
    );
    assert!(!evicting.status.unwrap().evicted());
    let eviction = rig.eviction(&host).await.unwrap();
    assert_eq!((eviction.spec.hypervisor.as_str(), eviction.spec.reason.as_str()), (host.as_str(), EVICTION_REASON));
    let owner = &eviction.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.controller), ("Hypervisor", host.as_str(), Some(true)));
    assert_eq!(eviction.metadata.labels.unwrap()["topology.kubernetes.io/zone"], "zone-a");

    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    let evicted = rig.until(&host, "evicted", |hv| hv.is_false(types::EVICTING)).await;
    assert_eq!(
        (reason(&evicted, types::EVICTING), message(&evicted, types::EVICTING)),
        (Some("Succeeded"), Some("Evicted"))
    );
    assert!(evicted.status.unwrap().evicted());

    rig.patch(&host, json!({"maintenance": "", "maintenanceReason": null})).await;
    let back = rig
        .until(&host, "back", |hv| hv.is_false(types::HYPERVISOR_DISABLED) && hv.condition(types::EVICTING).is_none())
        .await;
    assert_eq!(back.status.unwrap().evicted, Some(false));
    assert!(rig.service(&host).await.enabled);
    rig.wait("the Eviction gone", async || rig.eviction(&host).await.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_blocked_drain_is_not_reported_as_evicted() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "auto").await;
    for (status, word) in
        [(ConditionStatus::False, "Failed"), (ConditionStatus::True, "Blocked"), (ConditionStatus::False, "Failed")]
    {
        rig.play_drain(&host, status, word).await;
        let seen = rig.until(&host, word, |hv| reason(hv, types::EVICTING) == Some(word)).await;
        assert!(seen.is_true(types::EVICTING), "others read False as empty");
        assert!(!seen.status.unwrap().evicted());
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_enabled_by_hand_under_maintenance_is_disabled_again() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "manual").await;
    rig.until_service(&host, "disabled", |service| !service.enabled).await;
    rig.nova.enable_service(&rig.service_id(&host).await).await.unwrap();
    rig.until_service(&host, "disabled again", |service| !service.enabled).await;
    assert_eq!(rig.service(&host).await.disabled_reason.as_deref(), Some(MANUAL));
}

#[tokio::test(start_paused = true)]
async fn another_mode_updates_the_reason() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "manual").await;
    rig.until_service(&host, "disabled", |service| service.disabled_reason.as_deref() == Some(MANUAL)).await;
    enter(&rig, &host, "auto").await;
    let auto = "Hypervisor CRD: spec.maintenance=auto";
    rig.until_service(&host, "with the new reason", |service| service.disabled_reason.as_deref() == Some(auto)).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_somebody_else_disabled_is_shown_and_not_enabled() {
    let (rig, host) = rig().await;
    rig.until(&host, "enabled", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;
    let id = rig.service_id(&host).await;
    rig.nova.disable_service(&id, "broken fan").await.unwrap();
    let shown =
        rig.until(&host, "shown", |hv| reason(hv, types::HYPERVISOR_DISABLED) == Some("DisabledElsewhere")).await;
    assert!(shown.is_true(types::HYPERVISOR_DISABLED));
    assert!(message(&shown, types::HYPERVISOR_DISABLED).unwrap().contains("broken fan"));

    enter(&rig, &host, "manual").await;
    rig.until(&host, "in maintenance", |hv| reason(hv, types::HYPERVISOR_DISABLED) == Some("Succeeded")).await;
    rig.patch(&host, json!({"maintenance": "", "maintenanceReason": null})).await;
    rig.until(&host, "shown again", |hv| reason(hv, types::HYPERVISOR_DISABLED) == Some("DisabledElsewhere")).await;
    let service = rig.service(&host).await;
    assert_eq!((service.enabled, service.disabled_reason.as_deref()), (false, Some("broken fan")), "their word stands");

    rig.nova.enable_service(&id).await.unwrap();
    rig.until(&host, "enabled by them", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;
}

#[tokio::test(start_paused = true)]
async fn death_by_decree_is_taken_back_at_the_end_of_maintenance_and_not_because_it_is_seen() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "auto").await;
    rig.until(&host, "disabled", |hv| hv.is_true(types::HYPERVISOR_DISABLED)).await;
    let id = rig.service_id(&host).await;
    rig.nova.force_service_down(&id, true).await.unwrap();
    rig.patch(&host, json!({"maintenance": ""})).await;
    rig.until_service(&host, "alive and enabled", |service| service.enabled && !service.forced_down).await;
    rig.until(&host, "enabled", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;

    rig.nova.force_service_down(&id, true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.service(&host).await.state, ServiceState::Down, "somebody's declaration stands");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_never_tested_is_never_enabled() {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    let host = rig.region.hosts()[0].clone();
    rig.life(Settings::default());
    rig.cluster.join(&host).await.unwrap();
    let id = rig.service_id(&host).await;
    rig.nova.disable_service(&id, MANUAL).await.unwrap();
    rig.until(&host, "there", |_| true).await;
    for (status, word) in [(ConditionStatus::True, "Testing"), (ConditionStatus::False, "Aborted")] {
        rig.play_onboarding(&host, status, word).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert!(!rig.service(&host).await.enabled, "{word}");
    }
    rig.play_onboarding(&host, ConditionStatus::False, "Succeeded").await;
    rig.until_service(&host, "enabled", |service| service.enabled).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_owner_of_ha_is_at_work_nothing_is_touched() {
    let (rig, host) = rig().await;
    rig.until(&host, "enabled", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;
    rig.patch(&host, json!({"maintenance": "ha"})).await;
    rig.nova.disable_service(&rig.service_id(&host).await, "evacuated by ha").await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(rig.eviction(&host).await.is_none());
    let seen = rig.hypervisor(&host).await;
    assert!(seen.is_false(types::HYPERVISOR_DISABLED) && seen.condition(types::EVICTING).is_none(), "as it was");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_appears_on_an_evicted_host_is_drained_too() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "manual").await;
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.until(&host, "evicted", |hv| hv.is_false(types::EVICTING)).await;
    let first = rig.eviction(&host).await.unwrap().metadata.uid;

    rig.nova.enable_service(&rig.service_id(&host).await).await.unwrap();
    let late = rig.region.boot(&host, "2").unwrap();
    let again = rig.until(&host, "evicting again", |hv| hv.is_true(types::EVICTING)).await;
    assert!(!again.status.unwrap().evicted());
    rig.wait("a new Eviction", async || rig.eviction(&host).await.is_some_and(|it| it.metadata.uid != first)).await;

    rig.nova.delete_server(&late).await.unwrap();
    rig.wait("empty", async || rig.nova.servers_on(&host).await.unwrap().is_empty()).await;
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.until(&host, "evicted again", |hv| hv.is_false(types::EVICTING)).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_a_person_made_is_mirrored_and_left_when_maintenance_ends() {
    let (rig, host) = rig().await;
    let theirs = cobalt_core::api::testing::eviction(host.as_str()).metadata(|meta| {
        (meta.resource_version, meta.uid, meta.generation, meta.creation_timestamp) = (None, None, None, None);
    });
    rig.evictions().create(&PostParams::default(), &theirs.build()).await.unwrap();
    enter(&rig, &host, "manual").await;
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.until(&host, "evicted", |hv| hv.is_false(types::EVICTING)).await;
    rig.patch(&host, json!({"maintenance": "", "maintenanceReason": null})).await;
    rig.until(&host, "back", |hv| hv.condition(types::EVICTING).is_none()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(rig.eviction(&host).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_deleted_under_maintenance_is_made_again() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "manual").await;
    rig.wait("an Eviction", async || rig.eviction(&host).await.is_some()).await;
    rig.evictions().delete(host.as_str(), &DeleteParams::default()).await.unwrap();
    rig.wait("another", async || rig.eviction(&host).await.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn nova_failing_is_said_and_the_end_is_the_same() {
    let (rig, host) = rig().await;
    rig.until(&host, "enabled", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;
    rig.nova.faults().fail_next("disable_service", Failure::Unavailable);
    rig.nova.faults().fail_next("disable_service", Failure::Unavailable);
    rig.nova.faults().lose_answer("disable_service");
    enter(&rig, &host, "manual").await;
    let failed = rig.until(&host, "failed", |hv| reason(hv, types::HYPERVISOR_DISABLED) == Some("Failed")).await;
    assert!(failed.is_false(types::HYPERVISOR_DISABLED), "not disabled: not said to be");
    rig.until(&host, "disabled", |hv| reason(hv, types::HYPERVISOR_DISABLED) == Some("Succeeded")).await;
    assert!(rig.warnings(&host).await.iter().any(|event| event.starts_with("Failed: HypervisorDisabled")));

    rig.region.world().set_nova_available(false);
    rig.patch(&host, json!({"maintenance": "", "maintenanceReason": null})).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    rig.region.world().set_nova_available(true);
    rig.until(&host, "enabled", |hv| hv.is_false(types::HYPERVISOR_DISABLED)).await;
    assert!(rig.service(&host).await.enabled);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_in_the_middle_goes_on_where_it_was() {
    let rig = Rig::new(Region::builder().hosts(1).build()).await;
    let host = rig.region.hosts()[0].clone();
    let first = Shutdown::new();
    rig.life_until(Settings::default(), first.clone());
    rig.onboarded(&host).await;
    enter(&rig, &host, "manual").await;
    rig.until_service(&host, "disabled", |service| !service.enabled).await;
    first.trigger();
    rig.life(Settings::default());
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.until(&host, "evicted", |hv| hv.is_false(types::EVICTING) && hv.is_true(types::HYPERVISOR_DISABLED)).await;
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_and_nothing_asked_but_by_the_view() {
    let (rig, host) = rig().await;
    enter(&rig, &host, "manual").await;
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.until(&host, "evicted", |hv| hv.is_false(types::EVICTING)).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let version = rig.hypervisor(&host).await.metadata.resource_version;
    let before = rig.nova.faults().all_calls();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(rig.hypervisor(&host).await.metadata.resource_version, version);
    let after = rig.nova.faults().all_calls();
    let asked: Vec<_> =
        after.iter().filter(|(call, count)| before.get(*call) != Some(count)).map(|(call, _)| *call).collect();
    // The view also reads the servers of a host that is to stay empty.
    assert_eq!(asked, ["aggregates", "hypervisor", "hypervisors", "services"]);
}

#[tokio::test(start_paused = true)]
async fn a_terminating_node_replaces_a_persons_maintenance_and_the_spec_stays_appliable() {
    let (rig, host) = rig().await;
    rig.cluster.annotate(&host, "nova.openstack.cloud.sap/custom-traits", Some("CUSTOM_A")).await.unwrap();
    rig.until(&host, "with traits", |hv| hv.spec.custom_traits() == ["CUSTOM_A"]).await;
    enter(&rig, &host, "manual").await;
    rig.until(&host, "disabled", |hv| hv.is_true(types::HYPERVISOR_DISABLED)).await;
    rig.cluster.terminate(&host).await.unwrap();
    let gone = rig.until(&host, "terminating", |hv| hv.spec.maintenance().as_str() == "termination").await;
    assert_eq!(gone.spec.maintenance_reason.as_deref(), Some("a test"), "their words stay");
    let reason = "Hypervisor CRD: spec.maintenance=termination";
    rig.until_service(&host, "with the reason", |service| service.disabled_reason.as_deref() == Some(reason)).await;

    // Everything that would change the spec of another host is on the Node now, and the operator still can write.
    rig.cluster.annotate(&host, "nova.openstack.cloud.sap/custom-traits", None).await.unwrap();
    rig.cluster.manage(&host, false).await.unwrap();
    rig.cluster.label(&host, "worker.garden.sapcloud.io/group", Some("other")).await.unwrap();
    let seen = rig
        .until(&host, "relabelled", |hv| {
            hv.metadata.labels.as_ref().is_some_and(|labels| labels["worker.garden.sapcloud.io/group"] == "other")
        })
        .await;
    assert_eq!(seen.spec.custom_traits(), ["CUSTOM_A"]);
    assert!(seen.spec.lifecycle_enabled());

    rig.cluster.set_condition(&host, "Terminating", "False", "Back").await.unwrap();
    let back = rig.until(&host, "back", |hv| hv.is_false(types::TERMINATING)).await;
    assert!(message(&back, types::TERMINATING).unwrap().contains("for good"));
    assert_eq!(back.spec.maintenance().as_str(), "termination", "the API server lets nobody take it back");
}
