//! The way of new hosts into Nova, from the Node to `Succeeded`.

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    api::{Condition, ConditionStatus, Hypervisor, condition_types as types, labels, reasons},
    ids::HostName,
    nova::{NovaClient, ServerStatus},
    operator::{
        Ha, HaOwner, OnboardingSettings, Settings, SmokeTest, SmokeTestSettings,
        onboarding::{BootFrom, Checks},
    },
    runtime::{metrics::Metrics, shutdown::Shutdown},
};
use cobalt_sim::{Flavor, Region, RegionBuilder, SimNova, Timing, faults::Failure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Rig, message, reason, total};

/// A rig whose hosts are new: unknown to Nova, without Nodes; and the project of the smoke test.
pub(crate) struct NewHosts {
    pub(crate) rig: Rig,
    /// Nova as the smoke test sees it, with faults of its own.
    pub(crate) test: SimNova,
}

fn region() -> RegionBuilder {
    Region::builder().named(["hv-1", "hv-10", "hv-1.example.com"]).unregistered().new_services_disabled()
}

impl NewHosts {
    async fn new(region: RegionBuilder) -> Self {
        let region = region.build();
        region.world().add_image("cirros-kvm");
        let rig = Rig::new(region).await;
        let test = rig.region.nova();
        Self { rig, test }
    }

    /// The same with the aggregate that keeps others away from new hosts.
    pub(crate) async fn furnished(region: RegionBuilder) -> Self {
        let hosts = Self::new(region).await;
        hosts.rig.region.add_aggregate(labels::TEST_AGGREGATE, None);
        hosts
    }

    pub(crate) fn settings(&self, change: impl FnOnce(&mut SmokeTestSettings)) -> Settings {
        let mut smoke = SmokeTestSettings::default();
        change(&mut smoke);
        let bed = Arc::new(self.rig.region.test_bed());
        let mut settings = Settings::default();
        settings.onboarding =
            OnboardingSettings::default().tested_by(Some(SmokeTest::new(Arc::new(self.test.clone()), bed, smoke)));
        settings
    }

    pub(crate) fn operator(&self, settings: Settings) {
        self.operator_until(settings, self.rig.stop.clone());
    }

    fn operator_until(&self, settings: Settings, stop: Shutdown) {
        self.rig.operator_until(settings, stop);
    }

    /// The machine gets a Node, and its compute agent reports to Nova.
    pub(crate) async fn arrive(&self, host: &HostName, lifecycle: &str) {
        self.rig.cluster.join(host).await.unwrap();
        self.rig.cluster.label(host, labels::LIFECYCLE, Some(lifecycle)).await.unwrap();
        self.rig.region.world().start_compute(host).unwrap();
    }

    pub(crate) async fn until_step(&self, host: &HostName, step: &str) -> Hypervisor {
        self.rig.until(host, step, |seen| reason(seen, types::ONBOARDING) == Some(step)).await
    }

    async fn until_message(&self, host: &HostName, part: &str) -> Hypervisor {
        self.rig
            .until(host, part, |seen| message(seen, types::ONBOARDING).is_some_and(|message| message.contains(part)))
            .await
    }

    pub(crate) fn host(&self) -> HostName {
        self.rig.region.hosts()[0].clone()
    }

    fn created(&self) -> u64 {
        self.test.faults().calls("create_server")
    }

    async fn write_status(&self, host: &HostName, manager: &str, mut condition: Condition) {
        condition.last_transition_time = Some(Time(self.rig.region.world().now()));
        let params = PatchParams::apply(manager).force();
        let body = json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "status": { "conditions": [condition] },
        });
        self.rig.hypervisors().patch_status(host.as_str(), &params, &Patch::Apply(body)).await.unwrap();
    }
}

/// Whatever is the agents' and the operator's, as it stands.
fn everything(hypervisor: &Hypervisor) -> Value {
    let mut object = serde_json::to_value(hypervisor).unwrap();
    object["metadata"]["managedFields"].take();
    object
}

async fn wait(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[tokio::test(start_paused = true)]
async fn new_hosts_are_onboarded_each_by_its_own_name_and_then_left_in_peace() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.operator(hosts.settings(|_| {}));
    for host in hosts.rig.region.hosts() {
        hosts.arrive(&host, "true").await;
    }
    for host in hosts.rig.region.hosts() {
        let seen = hosts.until_step(&host, reasons::SUCCEEDED).await;
        assert_eq!(message(&seen, types::ONBOARDING), Some("Onboarding completed"));
        let (status, service) = (seen.status.clone().unwrap(), hosts.rig.service(&host).await);
        assert_eq!(status.service_id.as_deref(), Some(service.id.as_str()), "{host}");
        let known = hosts.rig.nova.hypervisor_named(host.as_str()).await.unwrap();
        assert_eq!(status.hypervisor_id.as_deref(), Some(known.id.as_str()), "{host}");
        assert!(service.enabled, "{host}");
        let ha = seen.condition(types::HA_ENABLED).unwrap();
        assert_eq!((ha.status, ha.reason.as_str()), (ConditionStatus::Unknown, reasons::NOT_CONFIGURED));
    }
    assert_eq!(hosts.created(), 3);
    assert_eq!(hosts.rig.region.world().servers(), [], "no test server is left");

    wait(Duration::from_secs(60)).await;
    let mut before = Vec::new();
    for host in hosts.rig.region.hosts() {
        before.push(everything(&hosts.rig.hypervisor(&host).await));
    }
    let (calls, tests) = (hosts.rig.nova.faults().all_calls(), hosts.test.faults().all_calls());
    wait(Duration::from_secs(20 * 60)).await;
    for (host, before) in hosts.rig.region.hosts().iter().zip(before) {
        assert_eq!(everything(&hosts.rig.hypervisor(host).await), before, "at rest nothing is written");
    }
    assert_eq!(hosts.test.faults().all_calls(), tests, "at rest nothing is tested");
    for (method, count) in hosts.rig.nova.faults().all_calls() {
        let looking = ["services", "hypervisors", "aggregates"].contains(&method);
        assert!(looking || calls.get(method) == Some(&count), "at rest only the region is looked at, not {method}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_operator_wrote_counts_before_its_watch_tells_it() {
    let hosts = NewHosts::furnished(region()).await;
    let late = Matcher::client("operator").verb(Verb::Watch).resource("hypervisors.kvm.cloud.sap");
    hosts.rig.cluster.server().faults().add(Fault::new(late, Effect::LagWatch { millis: 20_000 }));
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    // A host that was tried on what was before would be put apart again, with nobody to take it out.
    wait(Duration::from_secs(120)).await;
    assert_eq!(hosts.created(), 1, "it was tried once");
    assert!(!hosts.rig.aggregates_of(&host).await.contains(&labels::TEST_AGGREGATE.to_owned()));
    let joined = hosts.rig.nova.faults().calls("add_to_aggregate");
    assert_eq!(joined, 2, "the zone and the test aggregate, once each");
    hosts.rig.cluster.server().faults().clear();
}

#[tokio::test(start_paused = true)]
async fn a_host_is_not_enabled_before_it_is_fenced_off_and_waiting_for_that_is_no_error() {
    let hosts = NewHosts::new(region()).await;
    let metrics = Arc::new(Metrics::new());
    let operator = hosts.rig.new_operator(hosts.settings(|_| {})).metrics(metrics.clone());
    tokio::spawn(operator.run(hosts.rig.stop.clone()));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    let waiting = hosts.until_step(&host, reasons::INITIAL).await;
    assert!(waiting.status.as_ref().is_some_and(|status| status.service_id.is_some()));
    let passes = || total(&metrics, "cobalt_reconciles_total");
    let before = passes();
    wait(Duration::from_secs(30 * 60)).await;
    for failures in ["cobalt_reconcile_errors_total", "cobalt_queue_retries_total"] {
        assert_eq!(total(&metrics, failures), 0, "{failures}: {}", metrics.encode());
    }
    let looks = passes() - before;
    assert!((1..=60).contains(&looks), "it looks again at times, and not hard: {looks} times in half an hour");
    let seen = hosts.rig.hypervisor(&host).await;
    assert_eq!(reason(&seen, types::ONBOARDING), Some(reasons::INITIAL));
    assert!(!hosts.rig.service(&host).await.enabled);
    assert_eq!(hosts.created(), 0);
    hosts.rig.region.add_aggregate(labels::TEST_AGGREGATE, None);
    hosts.until_step(&host, reasons::SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_registered_is_waited_for_and_has_no_condition() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.rig.cluster.join(&host).await.unwrap();
    hosts.rig.cluster.manage(&host, true).await.unwrap();
    let part = "waiting for nova-compute to register";
    let seen = hosts.rig.until(&host, part, |seen| message(seen, types::READY).is_some_and(|m| m.contains(part))).await;
    assert!(seen.condition(types::ONBOARDING).is_none());
    // Its neighbour of a longer name comes first.
    hosts.arrive(&hosts.rig.region.hosts()[1].clone(), "true").await;
    hosts.until_step(&hosts.rig.region.hosts()[1].clone(), reasons::SUCCEEDED).await;
    assert!(hosts.rig.hypervisor(&host).await.condition(types::ONBOARDING).is_none());
    hosts.rig.region.world().start_compute(&host).unwrap();
    hosts.until_step(&host, reasons::SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn what_keeps_a_test_from_passing_is_said_and_tried_again() {
    let timing = Timing { guest_boot: Duration::from_secs(30), ..Timing::default() };
    let hosts = NewHosts::furnished(region().timing(timing)).await;
    let flavor = |memory_mb| Flavor::new("smoke", "smoke", 1, memory_mb);
    hosts.rig.region.world().add_flavor(flavor(u64::MAX / 4));
    hosts.test.faults().fail_next("create_server", Failure::Refused);
    hosts.operator(hosts.settings(|smoke| {
        smoke.flavor = "smoke".into();
        smoke.timeout = Duration::from_secs(60);
        smoke.boot_from = BootFrom::Image;
    }));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_message(&host, "create server ohooc--hv-1-").await;
    let seen = hosts.until_message(&host, "Server ended up in error state: No valid host was found.").await;
    assert_eq!(reason(&seen, types::ONBOARDING), Some(reasons::TESTING));
    hosts.rig.region.world().add_flavor(flavor(64));
    // Nobody looks at the console of the next one.
    for _ in 0..30 {
        hosts.test.faults().fail_next("console_output", Failure::Unavailable);
    }
    hosts.until_message(&host, "get console of server").await;
    hosts.until_message(&host, "timeout waiting for console output since").await;
    hosts.test.faults().clear();
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.rig.region.world().servers(), []);
}

#[tokio::test(start_paused = true)]
async fn a_test_server_that_stops_running_is_no_success() {
    let timing = Timing { guest_boot: Duration::from_secs(90), ..Timing::default() };
    let hosts = NewHosts::furnished(region().timing(timing)).await;
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    let running = async || {
        let servers = hosts.rig.nova.servers_on(&host).await.unwrap();
        servers.into_iter().find(|server| server.status == ServerStatus::Active)
    };
    hosts.rig.wait("running", async || running().await.is_some()).await;
    let first = running().await.unwrap();
    hosts.rig.region.world().guest_shutdown(&first.id).unwrap();
    hosts.until_message(&host, "Server is ShutOff instead of running").await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.created(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_makes_no_second_server() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.test.faults().lose_answer("create_server");
    hosts.test.faults().lose_answer("delete_server");
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_message(&host, "create server").await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.rig.region.world().servers(), []);
    assert!(hosts.rig.region.world().check().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_is_killed_in_the_middle_of_a_test_is_replaced_by_one_that_goes_on() {
    let hosts = NewHosts::furnished(region()).await;
    let host = hosts.host();
    let first = Shutdown::new();
    hosts.operator_until(hosts.settings(|_| {}), first.clone());
    hosts.arrive(&host, "true").await;
    hosts.rig.wait("a test server", async || hosts.created() == 1).await;
    first.trigger();
    wait(Duration::from_secs(120)).await;
    assert_eq!(reason(&hosts.rig.hypervisor(&host).await, types::ONBOARDING), Some(reasons::TESTING));
    hosts.operator(hosts.settings(|_| {}));
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.created(), 1, "the second operator has found the server of the first");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_does_not_answer_for_a_while_changes_nothing_about_the_end() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_step(&host, reasons::TESTING).await;
    hosts.rig.region.world().set_nova_available(false);
    hosts.until_message(&host, "unavailable").await;
    wait(Duration::from_secs(20 * 60)).await;
    assert_eq!(reason(&hosts.rig.hypervisor(&host).await, types::ONBOARDING), Some(reasons::TESTING));
    hosts.rig.region.world().set_nova_available(true);
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.rig.region.world().servers(), []);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_test_leaves_no_server_and_begins_anew_when_the_host_is_managed_again() {
    let timing = Timing { guest_boot: Duration::from_secs(600), ..Timing::default() };
    let hosts = NewHosts::furnished(region().timing(timing)).await;
    hosts.operator(hosts.settings(|smoke| smoke.timeout = Duration::from_secs(3600)));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.rig.wait("a test server", async || hosts.created() == 1).await;
    hosts.until_step(&host, reasons::TESTING).await;
    // Longer than an operator keeps trying in one pass.
    for _ in 0..3 {
        hosts.test.faults().fail_next("delete_server", Failure::Conflict);
    }
    hosts.rig.cluster.manage(&host, false).await.unwrap();
    let seen = hosts.until_message(&host, "failed to delete test servers").await;
    let onboarding = seen.condition(types::ONBOARDING).unwrap();
    assert!(onboarding.is_true() && onboarding.reason == reasons::ABORTED, "{onboarding:?}");
    let seen = hosts.until_message(&host, "Aborted due to LifecycleEnabled being false").await;
    assert!(seen.is_false(types::ONBOARDING));
    hosts.rig.wait("without servers", async || hosts.rig.region.world().servers().is_empty()).await;
    hosts.rig.cluster.manage(&host, true).await.unwrap();
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.created(), 2);
}

#[tokio::test(start_paused = true)]
async fn termination_ends_a_test_and_a_login_that_does_not_work_does_not_hold_it_up() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.test.faults().fail_any(u64::MAX, Failure::Denied);
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_message(&host, "permission denied").await;
    hosts.rig.patch(&host, json!({"maintenance": "termination"})).await;
    let seen = hosts.until_message(&host, "Aborted due to MaintenanceTermination").await;
    assert!(seen.is_false(types::ONBOARDING));
}

#[tokio::test(start_paused = true)]
async fn without_tests_no_login_to_their_project_is_needed() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.test.faults().fail_any(u64::MAX, Failure::Denied);
    hosts.operator(hosts.settings(|_| {}));
    let (first, second) = (hosts.host(), hosts.rig.region.hosts()[1].clone());
    hosts.arrive(&first, labels::SKIP_TESTS).await;
    hosts.until_step(&first, reasons::SUCCEEDED).await;
    assert!(hosts.test.faults().all_calls().is_empty());
    // Whoever is stuck because the login does not work can be let through.
    hosts.arrive(&second, "true").await;
    hosts.until_message(&second, "permission denied").await;
    hosts.rig.cluster.label(&second, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await.unwrap();
    hosts.until_step(&second, reasons::SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn a_test_that_is_skipped_after_it_has_begun_leaves_no_server_whatever_the_step() {
    let timing = Timing { guest_boot: Duration::from_secs(600), ..Timing::default() };
    for end in [reasons::ABORTED, reasons::HANDOVER] {
        let hosts = NewHosts::furnished(region().timing(timing)).await;
        let (host, first) = (hosts.host(), Shutdown::new());
        hosts.operator_until(hosts.settings(|_| {}), first.clone());
        hosts.arrive(&host, "true").await;
        hosts
            .rig
            .wait("a server of its test", async || !hosts.rig.nova.servers_on(&host).await.unwrap().is_empty())
            .await;
        hosts.until_step(&host, reasons::TESTING).await;
        first.trigger();
        wait(Duration::from_secs(1)).await;
        // While no operator runs, so that the next one finds both at once.
        if end == reasons::ABORTED {
            hosts.rig.patch(&host, json!({"skipTests": true, "maintenance": "termination"})).await;
        } else {
            hosts.rig.cluster.label(&host, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await.unwrap();
            let waiting = "Waiting for other controllers to take over";
            let waiting = Condition::new(types::ONBOARDING, ConditionStatus::True, reasons::HANDOVER, waiting);
            hosts.write_status(&host, "onboarding", waiting).await;
        }
        hosts.operator(hosts.settings(|_| {}));
        hosts.rig.until(&host, "ended", |seen| seen.is_false(types::ONBOARDING)).await;
        hosts.rig.wait("no test server", async || hosts.rig.nova.servers_on(&host).await.unwrap().is_empty()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_whose_test_server_cannot_be_called_what_its_guest_is_are_tested_too() {
    let long = "n".repeat(40);
    let names = ["hv-2.example.com", &long];
    let region = Region::builder().named(names).unregistered().new_services_disabled();
    let hosts = NewHosts::furnished(region).await;
    hosts.operator(hosts.settings(|_| {}));
    for host in hosts.rig.region.hosts() {
        hosts.arrive(&host, "true").await;
        hosts.until_step(&host, reasons::SUCCEEDED).await;
    }
    assert_eq!(hosts.created(), 2, "each was believed at once");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_never_built_is_told_and_tried_again() {
    let timing = Timing { build: Duration::from_secs(3600), ..Timing::default() };
    let hosts = NewHosts::furnished(region().timing(timing)).await;
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_message(&host, "is still being built").await;
    hosts.rig.wait("a second one", async || hosts.created() >= 2).await;
    let told = async || {
        let warnings = hosts.rig.warnings(&host).await;
        warnings.iter().filter(|event| event.contains("is still being built")).count()
    };
    hosts.rig.wait("an Event of it", async || told().await >= 1).await;
}

#[tokio::test(start_paused = true)]
async fn each_failure_of_a_test_is_an_event() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.rig.region.world().add_flavor(Flavor::new("smoke", "smoke", 1, u64::MAX / 4));
    hosts.operator(hosts.settings(|smoke| {
        smoke.flavor = "smoke".into();
        smoke.boot_from = BootFrom::Image;
    }));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    let fault = "Server ended up in error state: No valid host was found.";
    hosts.until_message(&host, fault).await;
    let events: kube::Api<k8s_openapi::api::events::v1::Event> = kube::Api::all(hosts.rig.client.clone());
    let told = async || {
        let all = events.list(&kube::api::ListParams::default()).await.unwrap().items;
        let ours = all.into_iter().filter(|event| event.note.as_deref().is_some_and(|note| note.contains(fault)));
        ours.map(|event| {
            assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("Failed")));
            event.series.map_or(1, |series| series.count)
        })
        .sum::<i32>()
    };
    hosts.rig.wait("told of the first three", async || told().await >= 3).await;
    assert!(hosts.created() >= 3 && u64::try_from(told().await).unwrap() <= hosts.created(), "each once");
}

/// A host in service with a server on it, and what ends its operator.
async fn in_service(hosts: &NewHosts) -> (HostName, cobalt_core::ids::InstanceId, Shutdown) {
    let (host, first) = (hosts.host(), Shutdown::new());
    hosts.operator_until(hosts.settings(|_| {}), first.clone());
    hosts.arrive(&host, "true").await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    hosts.rig.patch(&host, json!({"aggregates": ["zone-a"]})).await;
    hosts.rig.wait("in its zone", async || hosts.rig.aggregates_of(&host).await == ["zone-a"]).await;
    let vm = hosts.rig.region.boot(&host, "2").unwrap();
    (host, vm, first)
}

/// A host in service with a server on it, of which an earlier operator has said that its onboarding was aborted.
async fn taken_back(hosts: &NewHosts) -> (HostName, cobalt_core::ids::InstanceId) {
    let (host, vm, first) = in_service(hosts).await;
    hosts.rig.cluster.manage(&host, false).await.unwrap();
    hosts.rig.until(&host, "unmanaged", |seen| !seen.spec.lifecycle_enabled()).await;
    first.trigger();
    wait(Duration::from_secs(1)).await;
    let aborted = "Aborted due to LifecycleEnabled being false";
    let aborted = Condition::new(types::ONBOARDING, ConditionStatus::False, reasons::ABORTED, aborted);
    hosts.write_status(&host, "onboarding", aborted).await;
    hosts.operator(hosts.settings(|_| {}));
    (host, vm)
}

#[tokio::test(start_paused = true)]
async fn a_host_in_service_that_counts_as_aborted_keeps_its_aggregates_until_it_is_empty() {
    let hosts = NewHosts::furnished(region()).await;
    let (host, vm) = taken_back(&hosts).await;
    hosts.rig.cluster.manage(&host, true).await.unwrap();
    let held = hosts.until_message(&host, "Not onboarded again while servers are on the host").await;
    assert!(held.is_false(types::ONBOARDING), "or it could not be drained");
    wait(Duration::from_secs(600)).await;
    assert_eq!(hosts.rig.aggregates_of(&host).await, ["zone-a"]);
    assert!(hosts.rig.service(&host).await.enabled);
    hosts.rig.nova.delete_server(&vm).await.unwrap();
    hosts.until_step(&host, reasons::TESTING).await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_in_service_that_counts_as_aborted_is_in_service_again_without_a_test() {
    let hosts = NewHosts::furnished(region()).await;
    let (host, vm) = taken_back(&hosts).await;
    let left = || hosts.rig.nova.faults().calls("remove_from_aggregate");
    let before = left();
    // A maintenance that begins and ends while nobody manages it.
    hosts.rig.patch(&host, json!({"maintenance": "manual", "maintenanceReason": "a test"})).await;
    hosts.rig.until(&host, "disabled", |seen| seen.is_true(types::HYPERVISOR_DISABLED)).await;
    hosts.rig.patch(&host, json!({"maintenance": "", "maintenanceReason": null})).await;
    hosts.rig.until_service(&host, "enabled again", |service| service.enabled).await;
    hosts.rig.cluster.label(&host, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await.unwrap();
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    assert_eq!(hosts.rig.aggregates_of(&host).await, ["zone-a"]);
    assert_eq!(left(), before, "it was never taken out of any");
    assert!(hosts.rig.nova.server(&vm).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_compute_that_registers_anew_is_a_new_host() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    let before = hosts.until_step(&host, reasons::SUCCEEDED).await;
    hosts.rig.region.world().stop_compute(&host).unwrap();
    let old = hosts.rig.service(&host).await.id;
    hosts.rig.nova.delete_service(&old).await.unwrap();
    let seen = hosts.until_message(&host, "Nova does not tell of hypervisor").await;
    assert!(seen.is_false(types::ONBOARDING), "that it is gone is no reason to forget it");
    hosts.rig.region.world().start_compute(&host).unwrap();
    hosts.until_step(&host, reasons::TESTING).await;
    let after = hosts.until_step(&host, reasons::SUCCEEDED).await;
    let service = |seen: &Hypervisor| seen.status.as_ref().unwrap().service_id.clone().unwrap();
    assert_ne!(service(&before), service(&after));
    assert_eq!(service(&after), hosts.rig.service(&host).await.id.as_str());
    assert_eq!(hosts.created(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_host_in_service_whose_recorded_uuids_are_out_of_date_stays_in_service_under_its_servers() {
    let hosts = NewHosts::furnished(region()).await;
    let (host, vm, first) = in_service(&hosts).await;
    first.trigger();
    wait(Duration::from_secs(1)).await;
    // As an earlier operator left it, which never looked at them again.
    let [hypervisor, service] = ["6f2c58a6-0000-4000-8000-00000000000a", "6f2c58a6-0000-4000-8000-00000000000b"];
    let stale = Patch::Merge(json!({"status": {"hypervisorId": hypervisor, "serviceId": service}}));
    let params = PatchParams { field_manager: Some("onboarding".into()), ..PatchParams::default() };
    hosts.rig.hypervisors().patch_status(host.as_str(), &params, &stale).await.unwrap();
    let changes = || ["remove_from_aggregate", "add_to_aggregate"].map(|call| hosts.rig.nova.faults().calls(call));
    let before = changes();

    hosts.operator(hosts.settings(|_| {}));
    let known = hosts.rig.nova.hypervisor_named(host.as_str()).await.unwrap();
    let right = (Some(known.id.to_string()), Some(known.service.to_string()));
    let ids = |seen: &Hypervisor| seen.status.as_ref().map(|it| (it.hypervisor_id.clone(), it.service_id.clone()));
    hosts.rig.until(&host, "known by its UUIDs", |seen| ids(seen).as_ref() == Some(&right)).await;
    wait(Duration::from_secs(600)).await;
    let seen = hosts.rig.hypervisor(&host).await;
    assert_eq!(reason(&seen, types::ONBOARDING), Some(reasons::SUCCEEDED));
    assert_eq!(ids(&seen), Some(right));
    assert!(seen.is_true(types::READY) && hosts.rig.service(&host).await.enabled);
    assert_eq!(hosts.rig.aggregates_of(&host).await, ["zone-a"]);
    assert_eq!((changes(), hosts.created()), (before, 1), "it left no aggregate, and was not tested again");
    assert!(hosts.rig.nova.server(&vm).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_external_owner_of_ha_is_waited_for_and_never_written_over() {
    let hosts = NewHosts::furnished(region()).await;
    let host = hosts.host();
    let first = Shutdown::new();
    hosts.operator_until(hosts.settings(|_| {}), first.clone());
    // A host of the time before: our own word, to be let go.
    hosts.arrive(&host, "true").await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
    first.trigger();
    let mut settings = hosts.settings(|_| {});
    settings.ha = Ha { owner: HaOwner::External };
    hosts.operator(settings);
    hosts.rig.until(&host, "without a word on HA", |seen| seen.condition(types::HA_ENABLED).is_none()).await;

    let other = hosts.rig.region.hosts()[1].clone();
    hosts.arrive(&other, "true").await;
    hosts.until_step(&other, reasons::HANDOVER).await;
    wait(Duration::from_secs(600)).await;
    let seen = hosts.rig.hypervisor(&other).await;
    assert_eq!(reason(&seen, types::ONBOARDING), Some(reasons::HANDOVER));
    assert_eq!(message(&seen, types::ONBOARDING), Some("Waiting for other controllers to take over"));
    let enabled = Condition::new(types::HA_ENABLED, ConditionStatus::True, reasons::SUCCEEDED, "HA is enabled");
    hosts.write_status(&other, "kvm-ha-service", enabled).await;
    hosts.until_step(&other, reasons::SUCCEEDED).await;
    assert_eq!(message(&hosts.rig.hypervisor(&other).await, types::HA_ENABLED), Some("HA is enabled"));
}

#[tokio::test(start_paused = true)]
async fn who_writes_ha_without_being_configured_becomes_its_owner() {
    let hosts = NewHosts::furnished(region()).await;
    hosts.operator(hosts.settings(|_| {}));
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.rig.until(&host, "of nobody", |seen| reason(seen, types::HA_ENABLED) == Some(reasons::NOT_CONFIGURED)).await;
    let mut theirs = serde_json::to_value(hosts.rig.hypervisor(&host).await.status.unwrap().conditions).unwrap();
    for condition in theirs.as_array_mut().unwrap() {
        if condition["type"] == "HaEnabled" {
            condition["status"] = json!("False");
            condition["reason"] = json!("Onboarding");
            condition["message"] = json!("HA disabled before onboarding");
        }
    }
    // As the earlier programs write: a merge of the whole list.
    let params = PatchParams { field_manager: Some("kvm-ha-service".into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"status": {"conditions": theirs}}));
    hosts.rig.hypervisors().patch_status(host.as_str(), &params, &patch).await.unwrap();
    hosts.until_step(&host, reasons::HANDOVER).await;
    wait(Duration::from_secs(600)).await;
    let seen = hosts.rig.hypervisor(&host).await;
    assert_eq!(reason(&seen, types::ONBOARDING), Some(reasons::HANDOVER), "they are waited for");
    assert_eq!(message(&seen, types::HA_ENABLED), Some("HA disabled before onboarding"));
    let enabled = Condition::new(types::HA_ENABLED, ConditionStatus::True, reasons::SUCCEEDED, "HA is enabled");
    hosts.write_status(&host, "kvm-ha-service", enabled).await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_is_tested_when_its_agent_has_told_what_is_required() {
    let hosts = NewHosts::furnished(region()).await;
    let mut settings = hosts.settings(|_| {});
    settings.onboarding.checks = Checks {
        libvirt: true,
        libvirt_version: Some("1.0".parse().unwrap()),
        conditions: vec!["StorageReachable".into()],
        ..Checks::default()
    };
    hosts.operator(settings);
    let host = hosts.host();
    hosts.arrive(&host, "true").await;
    hosts.until_message(&host, "Initial onboarding: waiting for condition LibVirtConnection").await;
    hosts.rig.agent(&host);
    hosts.until_message(&host, "Initial onboarding: waiting for condition StorageReachable").await;
    assert!(!hosts.rig.service(&host).await.enabled);
    let reached = Condition::new("StorageReachable", ConditionStatus::True, "Reached", "");
    hosts.write_status(&host, "storage-agent", reached).await;
    hosts.until_step(&host, reasons::SUCCEEDED).await;
}
