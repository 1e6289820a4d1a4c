//! Hypervisors that are deleted, alone or with their Nodes: nothing is drained, and nothing hangs.

use std::time::Duration;

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    api::{ConditionStatus, condition_types as types, labels, testing::eviction},
    ids::HostName,
    nova::{NovaClient, ServiceState},
    operator::{OffboardingSettings, Released, Settings, release_finalizers},
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Region, Timing};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::json;

use super::{Rig, message, onboarding::NewHosts, reason};

async fn rig() -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().named(["hv-1", "hv-10"]).build()).await;
    rig.life(Settings::default());
    let host = rig.region.hosts()[0].clone();
    rig.onboarded(&host).await;
    rig.wait("held", async || rig.is_held(&host).await).await;
    (rig, host)
}

async fn delete(rig: &Rig, host: &HostName) {
    rig.hypervisors().delete(host.as_str(), &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_deleted_under_a_living_node_is_made_anew_and_nova_is_not_touched() {
    let (rig, host) = rig().await;
    rig.region.boot(&host, "2").unwrap();
    let first = rig.hypervisor(&host).await.metadata.uid;
    delete(&rig, &host).await;
    rig.wait("made anew", async || {
        let now = rig.hypervisors().get_opt(host.as_str()).await.unwrap();
        now.is_some_and(|hypervisor| hypervisor.metadata.uid != first)
    })
    .await;
    assert!(rig.service(&host).await.enabled);
    assert_eq!(rig.nova.servers_on(&host).await.unwrap().len(), 1);
    assert!(rig.eviction(&host).await.is_none(), "deleting is no wish for a drain");
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_over_an_empty_and_dead_host_takes_it_out_of_nova() {
    let (rig, host) = rig().await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.cluster.remove(&host).await.unwrap();
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.is_out_of_nova(&host).await);
    assert!(rig.service(&rig.region.hosts()[1]).await.enabled, "hv-10 is another host");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_was_declared_down_is_not_deleted_while_its_agent_may_run() {
    let (rig, host) = rig().await;
    rig.nova.force_service_down(&rig.service_id(&host).await, true).await.unwrap();
    rig.cluster.remove(&host).await.unwrap();
    let waits = |hv: &cobalt_core::api::Hypervisor| {
        message(hv, types::OFFBOARDED).is_some_and(|message| message.contains("was declared down"))
    };
    rig.until(&host, "waiting", waits).await;
    rig.nova.force_service_down(&rig.service_id(&host).await, false).await.unwrap();
    rig.region.world().stop_compute(&host).unwrap();
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.is_out_of_nova(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_over_a_host_with_instances_drains_nothing_and_is_let_go_in_the_end() {
    let (rig, host) = rig().await;
    rig.region.boot(&host, "2").unwrap();
    rig.cluster.remove(&host).await.unwrap();
    let says = |hv: &cobalt_core::api::Hypervisor, text: &str| {
        message(hv, types::OFFBOARDED).is_some_and(|message| message.contains(text))
    };
    let waiting = rig.until(&host, "waiting", |hv| says(hv, "Servers are still on the host")).await;
    assert!(says(&waiting, "let go at 2026-"));
    tokio::time::sleep(Duration::from_secs(14 * 60)).await;
    assert!(!rig.is_gone(&host).await);
    rig.wait("let go", async || rig.is_gone(&host).await).await;
    assert!(rig.service(&host).await.enabled, "nothing was touched");
    assert_eq!(rig.nova.servers_on(&host).await.unwrap().len(), 1);
    assert!(rig.eviction(&host).await.is_none());
    rig.wait("told", async || {
        let told = rig.warnings(&host).await;
        told.iter().any(|event| event.starts_with("LeftBehind: ") && event.contains("compute service"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_gets_empty_and_down_while_it_is_waited_for_is_cleaned_up() {
    let (rig, host) = rig().await;
    let vm = rig.region.boot(&host, "2").unwrap();
    rig.cluster.remove(&host).await.unwrap();
    rig.until(&host, "waiting", |hv| hv.is_false(types::OFFBOARDED)).await;
    rig.nova.delete_server(&vm).await.unwrap();
    let waits = |hv: &cobalt_core::api::Hypervisor| message(hv, types::OFFBOARDED).unwrap().contains("nova-compute");
    rig.until(&host, "waiting for the agent", waits).await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.is_out_of_nova(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_meanwhile_gets_a_hypervisor_of_its_own() {
    let (rig, host) = rig().await;
    rig.region.boot(&host, "2").unwrap();
    let first = rig.hypervisor(&host).await.metadata.uid;
    rig.cluster.remove(&host).await.unwrap();
    rig.until(&host, "waiting", |hv| hv.is_false(types::OFFBOARDED)).await;
    rig.cluster.join(&host).await.unwrap();
    rig.until(&host, "made anew", |hv| hv.metadata.uid != first && hv.metadata.deletion_timestamp.is_none()).await;
    assert!(rig.service(&host).await.enabled);
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_with_all_that_depends_on_it_is_not_held_up_by_a_new_hypervisor() {
    let (rig, host) = rig().await;
    rig.region.world().stop_compute(&host).unwrap();
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(rig.client.clone());
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    nodes.delete(host.as_str(), &foreground).await.unwrap();
    rig.wait("both gone", async || rig.is_gone(&host).await && nodes.get_opt(host.as_str()).await.unwrap().is_none())
        .await;
    assert!(rig.is_out_of_nova(&host).await);
    assert!(rig.eviction(&host).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_whose_life_is_not_managed_any_more_goes_at_once() {
    let (rig, host) = rig().await;
    rig.cluster.manage(&host, false).await.unwrap();
    rig.wait("not held", async || !rig.is_held(&host).await).await;
    rig.cluster.remove(&host).await.unwrap();
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.service(&host).await.enabled, "not ours to clean up");
}

#[tokio::test(start_paused = true)]
async fn one_that_nova_does_not_know_goes_at_once() {
    let (rig, host) = rig().await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.nova.delete_service(&rig.service_id(&host).await).await.unwrap();
    let began = tokio::time::Instant::now();
    rig.cluster.remove(&host).await.unwrap();
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    // In virtual time: as soon as the region was looked at again, and long before the grace period is over.
    assert!(began.elapsed() < Duration::from_secs(120));
}

#[tokio::test(start_paused = true)]
async fn a_dead_nova_keeps_nobody_for_ever() {
    let rig = Rig::new(Region::builder().named(["hv-1"]).build()).await;
    let (first, host) = (Shutdown::new(), rig.region.hosts()[0].clone());
    rig.life_until(Settings::default(), first.clone());
    rig.onboarded(&host).await;
    rig.wait("held", async || rig.is_held(&host).await).await;
    first.trigger();
    rig.region.world().set_nova_available(false);
    let mut settings = Settings::default();
    settings.offboarding = OffboardingSettings { deletion_grace: Duration::from_secs(60) };
    rig.life(settings);
    rig.cluster.remove(&host).await.unwrap();
    let waiting = rig.until(&host, "waiting", |hv| hv.is_false(types::OFFBOARDED)).await;
    assert!(message(&waiting, types::OFFBOARDED).unwrap().contains("Waiting for Nova to answer"));
    rig.wait("let go", async || rig.is_gone(&host).await).await;
}

#[tokio::test(start_paused = true)]
async fn a_termination_whose_node_vanishes_is_brought_to_its_end() {
    let (rig, host) = rig().await;
    rig.cluster.terminate(&host).await.unwrap();
    rig.until(&host, "evicting", |hv| hv.is_true(types::EVICTING)).await;
    rig.cluster.remove(&host).await.unwrap();
    // Longer than the grace period: a drain that goes on has limits of its own.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!rig.is_gone(&host).await);
    rig.region.world().stop_compute(&host).unwrap();
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.is_out_of_nova(&host).await);
}

/// A host in service, and an operator with all of its stages.
async fn whole() -> (Rig, HostName) {
    let rig = Rig::new(Region::builder().named(["hv-1"]).build()).await;
    rig.region.add_aggregate(labels::TEST_AGGREGATE, None);
    let mut settings = Settings::default();
    settings.agent_namespaces = vec!["default".into()];
    rig.operator_until(settings, rig.stop.clone());
    let host = rig.region.hosts()[0].clone();
    rig.cluster.join(&host).await.unwrap();
    rig.cluster.label(&host, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await.unwrap();
    rig.until(&host, "in service", |hv| reason(hv, types::ONBOARDING) == Some("Succeeded")).await;
    rig.wait("held", async || rig.is_held(&host).await).await;
    let pod = json!({
        "metadata": {"name": "nova-compute"},
        "spec": {"nodeName": host.as_str(), "containers": [{"name": "a", "image": "a"}]},
    });
    pods(&rig).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    (rig, host)
}

fn pods(rig: &Rig) -> kube::Api<k8s_openapi::api::core::v1::Pod> {
    kube::Api::namespaced(rig.client.clone(), "default")
}

fn nodes(rig: &Rig) -> kube::Api<k8s_openapi::api::core::v1::Node> {
    kube::Api::all(rig.client.clone())
}

/// Waits until the host's agents are sent away, as a kubelet sees it, and ends them.
async fn end_agents(rig: &Rig, host: &HostName) {
    let tainted = async || {
        let taints = nodes(rig).get(host.as_str()).await.unwrap().spec.unwrap_or_default().taints.unwrap_or_default();
        taints.iter().any(|taint| taint.key == labels::OFFBOARDING_TAINT)
    };
    rig.wait("tainted", tainted).await;
    rig.until(host, "waiting for its agents", |hv| hv.is_false("AgentPodsEvicted")).await;
    pods(rig).delete("nova-compute", &DeleteParams::default().grace_period(0)).await.unwrap();
    rig.region.world().stop_compute(host).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_that_somebody_holds_is_offboarded_to_the_end() {
    let (rig, host) = whole().await;
    let theirs = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/theirs"]}}));
    nodes(&rig).patch(host.as_str(), &PatchParams::default(), &theirs).await.unwrap();
    rig.cluster.remove(&host).await.unwrap();
    end_agents(&rig, &host).await;
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    assert!(rig.is_out_of_nova(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_deleted_while_it_terminates_leaves_nothing_behind() {
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    for node_too in [false, true] {
        let (rig, host) = whole().await;
        let first = rig.hypervisor(&host).await.metadata.uid;
        rig.cluster.terminate(&host).await.unwrap();
        rig.until(&host, "terminating", |hv| hv.condition(types::EVICTING).is_some()).await;
        if node_too {
            nodes(&rig).delete(host.as_str(), &foreground).await.unwrap();
        } else {
            delete(&rig, &host).await;
        }
        end_agents(&rig, &host).await;
        rig.wait("gone", async || {
            let now = rig.hypervisors().get_opt(host.as_str()).await.unwrap();
            now.is_none_or(|hypervisor| hypervisor.metadata.uid != first)
        })
        .await;
        assert!(rig.is_out_of_nova(&host).await, "Node deleted too: {node_too}");
        if node_too {
            let gone = async || nodes(&rig).get_opt(host.as_str()).await.unwrap().is_none();
            rig.wait("the Node gone, and no new Hypervisor in its way", gone).await;
        }
        let told = rig.warnings(&host).await;
        assert!(!told.iter().any(|event| event.starts_with("LeftBehind")), "{told:?}");
    }
}

/// A host that is being tested, by a guest that takes its time.
async fn in_its_test() -> (NewHosts, HostName) {
    let timing = Timing { guest_boot: Duration::from_secs(3600), ..Timing::default() };
    let region = Region::builder().named(["hv-1"]).unregistered().new_services_disabled().timing(timing);
    let hosts = NewHosts::furnished(region).await;
    hosts.operator(hosts.settings(|smoke| smoke.timeout = Duration::from_secs(7200)));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.rig.wait("a server of its test", async || hosts.rig.nova.servers_on(&host).await.unwrap().len() == 1).await;
    hosts.until_step(&host, "Testing").await;
    (hosts, host)
}

/// Nothing is left of a host that was deleted in its test, and nobody was told that something is.
async fn left_no_trace(rig: &Rig, host: &HostName) {
    assert!(rig.is_out_of_nova(host).await);
    assert_eq!(rig.region.world().servers(), []);
    let told = rig.warnings(host).await;
    assert!(!told.iter().any(|event| event.starts_with("LeftBehind")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_over_a_host_in_its_test_takes_the_test_server_along() {
    let (hosts, host) = in_its_test().await;
    hosts.rig.cluster.remove(&host).await.unwrap();
    let waits = |hv: &cobalt_core::api::Hypervisor| {
        message(hv, types::OFFBOARDED).is_some_and(|message| message.contains("nova-compute"))
    };
    hosts.rig.until(&host, "waiting for its agent only", waits).await;
    assert_eq!(message(&hosts.rig.hypervisor(&host).await, types::ONBOARDING), Some("Aborted due to deletion"));
    hosts.rig.region.world().stop_compute(&host).unwrap();
    hosts.rig.wait("gone", async || hosts.rig.is_gone(&host).await).await;
    left_no_trace(&hosts.rig, &host).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_loses_its_power_in_its_test_leaves_no_test_server_either() {
    let (hosts, host) = in_its_test().await;
    // Nova still believes that the host lives, and tells it to delete the server.
    hosts.rig.region.world().power_cut(&host).unwrap();
    hosts.rig.cluster.remove(&host).await.unwrap();
    hosts.rig.wait("gone", async || hosts.rig.is_gone(&host).await).await;
    left_no_trace(&hosts.rig, &host).await;
}

#[tokio::test(start_paused = true)]
async fn a_hypervisor_that_terminates_and_is_deleted_in_its_test_leaves_nothing_behind() {
    let (hosts, host) = in_its_test().await;
    let first = hosts.rig.hypervisor(&host).await.metadata.uid;
    // Both at once, before the operator has seen either.
    hosts.rig.region.world().set_nova_available(false);
    hosts.rig.cluster.terminate(&host).await.unwrap();
    hosts.rig.until(&host, "terminating", |hv| hv.is_true(types::TERMINATING)).await;
    delete(&hosts.rig, &host).await;
    hosts.rig.region.world().set_nova_available(true);
    hosts.rig.until(&host, "waiting for its agents", |hv| hv.is_true(types::AGENT_PODS_EVICTED)).await;
    hosts.rig.region.world().stop_compute(&host).unwrap();
    let gone = async || {
        let now = hosts.rig.hypervisors().get_opt(host.as_str()).await.unwrap();
        now.is_none_or(|hypervisor| hypervisor.metadata.uid != first)
    };
    hosts.rig.wait("gone", gone).await;
    left_no_trace(&hosts.rig, &host).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_lost_its_label_keeps_its_host_in_nova() {
    // On its way out: nova-compute still runs there, whatever somebody has declared.
    let (rig, host) = rig().await;
    rig.cluster.terminate(&host).await.unwrap();
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.until(&host, "empty", |hv| hv.is_false(types::EVICTING)).await;
    rig.nova.force_service_down(&rig.service_id(&host).await, true).await.unwrap();
    rig.cluster.label(&host, labels::VIRT_DRIVER, None).await.unwrap();
    let says = |hv: &cobalt_core::api::Hypervisor| {
        message(hv, types::OFFBOARDED).is_some_and(|message| message.contains("without the labels"))
    };
    rig.until(&host, "waiting for its label", says).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(rig.nova.service_on(&host).await.is_ok());
    rig.cluster.label(&host, labels::VIRT_DRIVER, Some("kvm")).await.unwrap();
    rig.play_agents_gone(&host).await;
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;

    // Deleted by itself: its Node lives, so nobody wants the host gone.
    let (rig, host) = self::rig().await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.until_service(&host, "down", |service| service.state == ServiceState::Down).await;
    rig.cluster.label(&host, labels::VIRT_DRIVER, None).await.unwrap();
    delete(&rig, &host).await;
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.nova.service_on(&host).await.is_ok(), "let go, not taken out");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_tell_of_a_node_is_no_proof_that_it_is_gone() {
    let (rig, host) = rig().await;
    rig.region.world().stop_compute(&host).unwrap();
    let gets = Matcher::client("operator").verb(Verb::Get).resource("nodes");
    rig.cluster.server().faults().add(Fault::new(gets, Effect::Status { code: 500, retry_after: None }));
    rig.cluster.remove(&host).await.unwrap();
    let says = |hv: &cobalt_core::api::Hypervisor| {
        message(hv, types::OFFBOARDED).is_some_and(|message| message.contains("whether the Node is gone"))
    };
    rig.until(&host, "asking", says).await;
    assert!(rig.nova.service_on(&host).await.is_ok());
    rig.cluster.server().faults().clear();
    rig.wait("gone", async || rig.is_gone(&host).await).await;
    assert!(rig.is_out_of_nova(&host).await);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_left_for_good_and_whose_node_comes_back_begins_anew() {
    let (rig, host) = rig().await;
    rig.cluster.terminate(&host).await.unwrap();
    rig.play_drain(&host, ConditionStatus::False, "Succeeded").await;
    rig.play_agents_gone(&host).await;
    rig.region.world().stop_compute(&host).unwrap();
    rig.until(&host, "offboarded", |hv| hv.is_true(types::OFFBOARDED)).await;
    rig.cluster.remove(&host).await.unwrap();
    rig.cluster.join(&host).await.unwrap();
    let fresh =
        |hv: &cobalt_core::api::Hypervisor| hv.spec.maintenance().is_off() && hv.condition(types::OFFBOARDED).is_none();
    rig.until(&host, "a new one", fresh).await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_somebody_else_owns_too_is_removed_all_the_same() {
    let (rig, host) = rig().await;
    let params = PatchParams { field_manager: Some("editor".into()), ..PatchParams::default() };
    let theirs = json!({"metadata": {"finalizers": [labels::FINALIZER, "example.com/theirs"]}});
    rig.hypervisors().patch(host.as_str(), &params, &Patch::Merge(&theirs)).await.unwrap();
    delete(&rig, &host).await;
    rig.wait("let go", async || !rig.is_held(&host).await).await;
    let left = rig.hypervisor(&host).await.metadata.finalizers.unwrap();
    assert_eq!(left, ["example.com/theirs"], "theirs is theirs");
}

#[tokio::test(start_paused = true)]
async fn going_back_to_programs_that_know_no_finalizer_is_possible() {
    let rig = Rig::new(Region::builder().hosts(3).build()).await;
    let first = Shutdown::new();
    rig.life_until(Settings::default(), first.clone());
    for host in &rig.region.hosts()[..2] {
        rig.onboarded(host).await;
        rig.wait("held", async || rig.is_held(host).await).await;
    }
    rig.cluster.join(&rig.region.hosts()[2]).await.unwrap();
    rig.until(&rig.region.hosts()[2], "there", |_| true).await;
    first.trigger();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut moving = eviction("by-hand").build();
    moving.metadata = ObjectMeta {
        name: Some("by-hand".into()),
        finalizers: Some(vec!["example.com/theirs".into(), labels::EVICTION_FINALIZER.into()]),
        ..ObjectMeta::default()
    };
    rig.evictions().create(&PostParams::default(), &moving).await.unwrap();
    let released = release_finalizers(rig.client.clone()).await.unwrap();
    assert_eq!(released, Released { hypervisors: 2, evictions: 1 });
    let left = rig.evictions().get("by-hand").await.unwrap().metadata.finalizers;
    assert_eq!(left, Some(vec!["example.com/theirs".to_owned()]), "theirs is theirs");
    let again = release_finalizers(rig.client.clone()).await.unwrap();
    assert_eq!(again, Released::default(), "once is enough");
    for host in rig.region.hosts() {
        rig.cluster.remove(&host).await.unwrap();
        rig.wait("gone", async || rig.is_gone(&host).await).await;
        assert!(rig.service(&host).await.enabled, "and Nova was not touched");
    }
}
