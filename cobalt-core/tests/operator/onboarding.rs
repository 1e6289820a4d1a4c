use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use cobalt_core::{
    api::{
        Bridge, Condition, ConditionStatus,
        ConditionStatus::{False, True, Unknown},
        Hypervisor, Maintenance, OVSNode, OVSNodeStatus, condition_types as types, labels, reasons,
        testing::{HypervisorBuilder, MADE_AT, hypervisor},
    },
    ids::{AggregateId, HostName},
    nova::{
        Aggregate, ComputeService, MockNovaClient, MockPlacementClient, MockTestBed, NovaClient, NovaHypervisor,
        Server, ServerStatus, ServiceState, TaskState,
        view::{RegionView, Snapshot as Region, ViewOptions},
    },
    operator::{
        AbsentNode, AgentSeen, Cloud, CloudSeen, Ha, HaOwner, Handover, Onboarding, OnboardingSettings, Outcome, Plan,
        Progress, SmokeTest, SmokeTestSettings, Snapshot, Stage, SwitchSeen, onboarding::Checks,
    },
    runtime::fields::FieldSet,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::{decide, seen};

const INITIAL: &str = "Initial onboarding";
const RUNNING: &str = "Running onboarding tests";
const WAITING: &str = "Waiting for other controllers to take over";

/// A cloud nobody calls.
fn cloud() -> Cloud {
    Cloud::new(Arc::new(MockNovaClient::new()), Arc::new(MockPlacementClient::new()), ViewOptions::default())
}

fn smoke_test(nova: MockNovaClient) -> SmokeTest {
    SmokeTest::new(Arc::new(nova), Arc::new(MockTestBed::new()), SmokeTestSettings::default())
}

/// With a smoke test that nobody runs.
fn tested() -> OnboardingSettings {
    OnboardingSettings::default().tested_by(Some(smoke_test(MockNovaClient::new())))
}

fn onboarding() -> Onboarding {
    Onboarding::new(cloud(), tested())
}

fn handover(owner: HaOwner) -> Handover {
    Handover::new(cloud(), OnboardingSettings::default(), Ha { owner })
}

fn service(host: &str, id: &str) -> ComputeService {
    ComputeService {
        id: id.into(),
        host: host.into(),
        zone: None,
        enabled: false,
        disabled_reason: None,
        state: ServiceState::Up,
        forced_down: false,
    }
}

fn nova_hypervisor(host: &str, id: &str, service: &str) -> NovaHypervisor {
    NovaHypervisor {
        id: id.into(),
        hostname: host.into(),
        host: host.into(),
        service: service.into(),
        kind: "QEMU".into(),
        state: ServiceState::Up,
        servers: Some(Vec::new()),
    }
}

fn aggregate(name: &str, hosts: &[&str]) -> Aggregate {
    Aggregate {
        id: AggregateId::from(name),
        uuid: String::new(),
        name: name.into(),
        zone: None,
        hosts: hosts.iter().map(|host| HostName::from(*host)).collect(),
        metadata: std::collections::BTreeMap::new(),
    }
}

/// A region as a view has seen it.
fn region(hosts: &[(&str, &str, &str)], aggregates: Vec<Aggregate>) -> CloudSeen {
    let mut services: Vec<_> = hosts.iter().map(|(host, _, id)| service(host, id)).collect();
    services.sort_by(|a, b| a.host.cmp(&b.host));
    let mut hypervisors: Vec<_> = hosts.iter().map(|(host, id, service)| nova_hypervisor(host, id, service)).collect();
    hypervisors.sort_by(|a, b| a.host.cmp(&b.host));
    listed(services, hypervisors, aggregates)
}

fn listed(services: Vec<ComputeService>, hypervisors: Vec<NovaHypervisor>, aggregates: Vec<Aggregate>) -> CloudSeen {
    let mut nova = MockNovaClient::new();
    nova.expect_services().returning(move || Ok(services.clone()));
    nova.expect_hypervisors().returning(move || Ok(hypervisors.clone()));
    nova.expect_aggregates().returning(move || Ok(aggregates.clone()));
    let mut placement = MockPlacementClient::new();
    placement.expect_traits().returning(|_| Err(cobalt_core::Error::not_found("get traits")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let seen: Arc<Region> = runtime.block_on(async {
        let view = RegionView::new(Arc::new(nova), Arc::new(placement), ViewOptions::default());
        let run = tokio::spawn(view.clone().run());
        let mut news = view.subscribe();
        let seen = news.wait_for(|seen| seen.is_complete()).await.unwrap().clone();
        run.abort();
        seen
    });
    CloudSeen::Known(seen)
}

fn recorded(builder: HypervisorBuilder) -> HypervisorBuilder {
    builder.with_label(labels::ZONE, "zone-a").status(|status| {
        status.hypervisor_id = Some("h".into());
        status.service_id = Some("s".into());
    })
}

fn at(step: &str) -> HypervisorBuilder {
    recorded(hypervisor("hv-1")).status(|status| {
        let message = match step {
            reasons::INITIAL => INITIAL,
            reasons::TESTING => RUNNING,
            _ => WAITING,
        };
        status.conditions.push(Condition::new(types::ONBOARDING, True, step, message));
    })
}

/// The same region with servers on `hv-1`, or with those not read yet.
fn with_servers(mut seen: Snapshot, servers: Option<&[&str]>) -> Snapshot {
    let CloudSeen::Known(region) = &seen.cloud else { return seen };
    let (services, hypervisors) = (region.services.clone().unwrap(), region.hypervisors.clone().unwrap());
    let mut hypervisors = hypervisors.items().to_vec();
    let own = hypervisors.iter_mut().find(|one| one.host.as_str() == "hv-1").unwrap();
    own.servers = servers.map(|ids| ids.iter().map(|id| (*id).into()).collect());
    seen.cloud = listed(services.items().to_vec(), hypervisors, region.aggregates.clone().unwrap().items().to_vec());
    seen
}

/// In a region where `hv-1` and `hv-10` are known and in their test aggregates.
fn snapshot(host: HypervisorBuilder) -> Snapshot {
    let inside = &["hv-1", "hv-10"];
    let aggregates = vec![aggregate("tenant_filter_tests", inside), aggregate("zone-a", inside)];
    let mut seen = seen(None, Some(host.build()));
    seen.cloud = region(&[("hv-1", "h", "s"), ("hv-10", "h10", "s10")], aggregates);
    seen
}

fn condition(plan: &Plan) -> (ConditionStatus, String, String) {
    let found = plan.condition(types::ONBOARDING).unwrap();
    (found.status, found.reason.clone(), found.message.clone())
}

#[track_caller]
fn check(plan: &Plan, status: ConditionStatus, reason: &str, message: &str) {
    assert_eq!(condition(plan), (status, reason.to_owned(), message.to_owned()));
}

fn words(plan: &Plan) -> Vec<String> {
    plan.actions().values().map(|action| action.describe()).collect()
}

/// The same after the only action that was asked for has come to this.
fn after(stage: &dyn Stage, mut seen: Snapshot, outcome: Outcome) -> Plan {
    let plan = decide(stage, &seen);
    let keys: Vec<String> = plan.actions().keys().cloned().collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    seen.outcomes.insert(keys[0].clone(), outcome);
    decide(stage, &seen)
}

fn failed(message: &str) -> Outcome {
    Outcome::Failed { category: "unavailable", message: message.into() }
}

#[test]
fn uuids_and_the_first_step_are_one_plan() {
    let mut seen = snapshot(hypervisor("hv-1").with_label(labels::ZONE, "zone-a"));
    let plan = decide(&onboarding(), &seen);
    check(&plan, True, reasons::INITIAL, INITIAL);
    assert_eq!(plan.status.hypervisor_id.as_deref(), Some("h"));
    assert_eq!(plan.status.service_id.as_deref(), Some("s"));
    assert!(plan.actions().is_empty(), "nothing is done before it is written: {:?}", words(&plan));

    seen.cloud = CloudSeen::Known(Arc::default());
    let plan = decide(&onboarding(), &seen);
    assert!(plan.condition(types::ONBOARDING).is_none() && plan.status.service_id.is_none(), "Nova was not seen");
}

#[test]
fn a_host_is_looked_up_by_its_whole_name() {
    for (name, hostname, found) in [
        ("hv-1", "hv-1", Some("h")),
        ("hv-10", "hv-10", Some("h10")),
        ("hv", "hv", None),
        ("hv-1.example.com", "hv-1.example.com", None),
        ("hv-1.example.com", "hv-1", Some("h")),
        ("hv-1.other.com", "hv-1.other", None),
    ] {
        let mut seen = snapshot(hypervisor(name).with_label(labels::HOSTNAME, hostname));
        seen.name = name.into();
        let plan = decide(&onboarding(), &seen);
        assert_eq!(plan.status.hypervisor_id.as_deref(), found, "{name} with label {hostname}");
        assert_eq!(plan.condition(types::ONBOARDING).is_some(), found.is_some(), "{name}");
    }
}

#[test]
fn a_service_and_a_hypervisor_of_two_lives_are_no_identity() {
    let mut seen = snapshot(hypervisor("hv-1"));
    let mut nova = MockNovaClient::new();
    nova.expect_services().returning(|| Ok(vec![service("hv-1", "new")]));
    nova.expect_hypervisors().returning(|| Ok(vec![nova_hypervisor("hv-1", "h", "old")]));
    nova.expect_aggregates().returning(|| Ok(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    seen.cloud = runtime.block_on(async {
        let mut placement = MockPlacementClient::new();
        placement.expect_traits().returning(|_| Err(cobalt_core::Error::not_found("get traits")));
        let view = RegionView::new(Arc::new(nova), Arc::new(placement), ViewOptions::default());
        let run = tokio::spawn(view.clone().run());
        let known = view.subscribe().wait_for(|seen| seen.is_complete()).await.unwrap().clone();
        run.abort();
        CloudSeen::Known(known)
    });
    assert!(decide(&onboarding(), &seen).condition(types::ONBOARDING).is_none());
}

#[test]
fn a_host_that_is_leaving_or_not_managed_is_left_alone() {
    let plan = decide(&onboarding(), &snapshot(hypervisor("hv-1").unmanaged()));
    assert!(plan.condition(types::ONBOARDING).is_none() && plan.actions().is_empty());
    let untouched = |seen: &Snapshot| {
        let plan = decide(&onboarding(), seen);
        assert!(plan.decided().next().is_none() && plan.actions().is_empty(), "{:?}", words(&plan));
    };
    untouched(&snapshot(at(reasons::INITIAL).metadata(|metadata| metadata.deletion_timestamp = Some(Time(MADE_AT)))));
    let mut made_anew = snapshot(held(at(reasons::TESTING)));
    made_anew.absent_node = AbsentNode::Unlabelled { terminating: false };
    untouched(&made_anew);
    untouched(&snapshot(held(recorded(hypervisor("hv-1")).onboarded())));
}

/// Deleted, and kept by our finalizer.
fn held(host: HypervisorBuilder) -> HypervisorBuilder {
    host.metadata(|metadata| {
        metadata.deletion_timestamp = Some(Time(MADE_AT));
        metadata.finalizers = Some(vec![labels::FINALIZER.into()]);
    })
}

#[test]
fn a_host_that_leaves_with_its_hypervisor_is_aborted_until_its_test_servers_are_gone() {
    let terminating = |host: HypervisorBuilder| host.in_maintenance(Maintenance::Termination);
    for step in [reasons::INITIAL, reasons::TESTING, reasons::HANDOVER, reasons::ABORTED] {
        for (host, why) in [
            (held(at(step)), "Aborted due to deletion"),
            (held(terminating(at(step))), "Aborted due to MaintenanceTermination"),
        ] {
            let seen = || snapshot(host.clone());
            assert_eq!(words(&decide(&onboarding(), &seen())), ["delete the test servers of hv-1"], "{step}");
            let plan = after(&onboarding(), seen(), Outcome::Underway("Waiting for Nova".into()));
            check(&plan, True, reasons::ABORTED, "Waiting for Nova");
            assert!(plan.requeue().is_some());
            check(&after(&onboarding(), seen(), Outcome::Done), False, reasons::ABORTED, why);
        }
    }
}

#[test]
fn waiting_for_test_aggregates_is_no_error_and_enables_nothing() {
    for inside in [vec![], vec!["zone-a"], vec!["tenant_filter_tests"]] {
        let mut seen = snapshot(at(reasons::INITIAL));
        let aggregates = inside.iter().map(|name| aggregate(name, &["hv-1"])).collect();
        seen.cloud = region(&[("hv-1", "h", "s")], aggregates);
        let plan = decide(&onboarding(), &seen);
        check(&plan, True, reasons::INITIAL, INITIAL);
        assert!(plan.actions().is_empty(), "{inside:?}");
        assert_eq!(plan.requeue(), None, "the region view wakes us");
    }
}

#[test]
fn an_aggregate_of_an_earlier_life_is_left_first() {
    let applied = |status: &mut cobalt_core::api::HypervisorStatus| {
        status.aggregates = serde_json::from_value(json!([{"name": "production", "uuid": "", "metadata": {}}])).ok();
    };
    let mut seen = snapshot(at(reasons::INITIAL).status(applied));
    let all = |inside: &[&str]| inside.iter().map(|name| aggregate(name, &["hv-1"])).collect::<Vec<_>>();
    seen.cloud = region(&[("hv-1", "h", "s")], all(&["production", "tenant_filter_tests", "zone-a"]));
    assert!(decide(&onboarding(), &seen).actions().is_empty());
    // What others have put it into is theirs.
    seen.cloud = region(&[("hv-1", "h", "s")], all(&["by-hand", "tenant_filter_tests", "zone-a"]));
    assert_eq!(words(&decide(&onboarding(), &seen)), ["enable the compute service of hv-1 for its smoke test"]);
}

#[test]
fn what_an_initial_host_waits_for_stands_in_its_condition() {
    let no_zone = at(reasons::INITIAL).metadata(|metadata| metadata.labels = None);
    let maintained = at(reasons::INITIAL).in_maintenance(Maintenance::Ha);
    let rows = [
        (no_zone, "waiting for the label topology.kubernetes.io/zone of the Node"),
        (maintained, "waiting for the end of maintenance ha"),
    ];
    for (host, what) in rows {
        let plan = decide(&onboarding(), &snapshot(host));
        check(&plan, True, reasons::INITIAL, &format!("{INITIAL}: {what}"));
        assert!(plan.actions().is_empty());
    }
    let mut seen = snapshot(at(reasons::INITIAL).with_condition(types::AGGREGATES_UPDATED, False, reasons::FAILED));
    seen.cloud = region(&[("hv-1", "h", "s")], Vec::new());
    let plan = decide(&onboarding(), &seen);
    check(&plan, True, reasons::INITIAL, &format!("{INITIAL}: waiting for test aggregates: Failed"));
}

#[test]
fn a_host_is_tested_only_after_it_was_enabled() {
    let seen = || snapshot(at(reasons::INITIAL));
    check(&decide(&onboarding(), &seen()), True, reasons::INITIAL, INITIAL);
    check(&after(&onboarding(), seen(), Outcome::Done), True, reasons::TESTING, RUNNING);
    let plan = after(&onboarding(), seen(), failed("enable service s: unavailable"));
    let what = "failed to enable the compute service: enable service s: unavailable";
    check(&plan, True, reasons::INITIAL, &format!("{INITIAL}: {what}"));
    assert!(plan.requeue().is_some());
}

#[test]
fn without_tests_a_host_goes_on_as_soon_as_it_is_enabled() {
    let skipped = |step| snapshot(at(step).spec(|spec| spec.skip_tests = Some(true)));
    check(&after(&onboarding(), skipped(reasons::INITIAL), Outcome::Done), True, reasons::HANDOVER, WAITING);
    // In the middle of a test, and with a login that does not work.
    for outcome in [Outcome::Done, failed("list our servers: permission denied")] {
        check(&after(&onboarding(), skipped(reasons::TESTING), outcome), True, reasons::HANDOVER, WAITING);
    }
    let untestable = Onboarding::new(cloud(), OnboardingSettings::default());
    check(&decide(&untestable, &skipped(reasons::TESTING)), True, reasons::HANDOVER, WAITING);
    let plan = decide(&untestable, &snapshot(at(reasons::TESTING)));
    let what = "no project for the smoke test is configured; configure one, or set skipTests";
    check(&plan, True, reasons::TESTING, &format!("{RUNNING}: {what}"));
}

#[test]
fn the_last_failure_of_a_test_is_said_until_it_passes() {
    let seen = || snapshot(at(reasons::TESTING));
    check(&decide(&onboarding(), &seen()), True, reasons::TESTING, RUNNING);
    let plan = after(&onboarding(), seen(), Outcome::Underway(RUNNING.into()));
    check(&plan, True, reasons::TESTING, RUNNING);
    assert!(plan.warnings().is_empty());
    assert_eq!(plan.requeue(), Some(SmokeTestSettings::default().poll_interval));
    let fault = "Server ended up in error state: No valid host was found.";
    let plan = after(&onboarding(), seen(), Outcome::Underway(fault.into()));
    check(&plan, True, reasons::TESTING, fault);
    assert_eq!(
        plan.warnings().iter().collect::<Vec<_>>(),
        [fault],
        "an Event tells, since the condition does not turn"
    );
    assert_eq!(plan.requeue(), Some(SmokeTestSettings::default().retry_interval));

    let again = || snapshot(recorded(hypervisor("hv-1")).with_condition(types::ONBOARDING, True, reasons::TESTING));
    let plan = after(&onboarding(), again(), Outcome::Underway(RUNNING.into()));
    check(&plan, True, reasons::TESTING, "Testing");
    check(&after(&onboarding(), again(), Outcome::Done), True, reasons::HANDOVER, WAITING);
}

#[test]
fn an_abort_deletes_test_servers_first_and_tries_until_it_can() {
    let unmanaged = |host: HypervisorBuilder| host.unmanaged();
    let terminating = |host: HypervisorBuilder| host.in_maintenance(Maintenance::Termination);
    let rows: [(&dyn Fn(HypervisorBuilder) -> HypervisorBuilder, &str); 2] = [
        (&unmanaged, "Aborted due to LifecycleEnabled being false"),
        (&terminating, "Aborted due to MaintenanceTermination"),
    ];
    for (end, why) in rows {
        for step in [reasons::INITIAL, reasons::TESTING, reasons::HANDOVER, reasons::ABORTED] {
            let seen = || snapshot(end(at(step)));
            assert_eq!(words(&decide(&onboarding(), &seen())), ["delete the test servers of hv-1"], "{step}");
            let plan = after(&onboarding(), seen(), failed("delete server x: unavailable"));
            let what = "failed to delete test servers: delete server x: unavailable";
            check(&plan, True, reasons::ABORTED, what);
            assert!(plan.requeue().is_some());
            check(&after(&onboarding(), seen(), Outcome::Done), False, reasons::ABORTED, why);
            // Tests may be skipped since one has begun.
            let skipped = snapshot(end(at(step).spec(|spec| spec.skip_tests = Some(true))));
            assert_eq!(words(&decide(&onboarding(), &skipped)), ["delete the test servers of hv-1"], "{step}");
            let untested = Onboarding::new(cloud(), OnboardingSettings::default());
            let plan = decide(&untested, &seen());
            check(&plan, False, reasons::ABORTED, why);
            assert!(plan.actions().is_empty(), "without a project for tests there is nothing to delete");
        }
        let plan = decide(&onboarding(), &snapshot(end(recorded(hypervisor("hv-1")).onboarded())));
        assert!(plan.decided().next().is_none(), "a host in service is not aborted");
        assert!(decide(&onboarding(), &snapshot(end(hypervisor("hv-1")))).decided().next().is_none());
    }
}

#[test]
fn an_aborted_onboarding_begins_anew_when_the_host_is_wanted_again() {
    for status in [True, False] {
        let aborted = recorded(hypervisor("hv-1")).with_condition(types::ONBOARDING, status, reasons::ABORTED);
        check(&decide(&onboarding(), &snapshot(aborted)), True, reasons::INITIAL, INITIAL);
    }
}

#[test]
fn an_aborted_host_with_servers_is_not_taken_out_of_its_aggregates() {
    let aborted = || recorded(hypervisor("hv-1")).with_condition(types::ONBOARDING, False, reasons::ABORTED);
    let occupied = || with_servers(snapshot(aborted()), Some(&["vm"]));
    assert_eq!(words(&decide(&onboarding(), &occupied())), ["look for servers on hv-1 before it is tested"]);
    let plan = after(&onboarding(), occupied(), Outcome::Underway("Not onboarded again while …".into()));
    check(&plan, False, reasons::ABORTED, "Not onboarded again while …");
    assert!(plan.requeue().is_some());
    check(&after(&onboarding(), occupied(), Outcome::Done), True, reasons::INITIAL, INITIAL);

    let unread = decide(&onboarding(), &with_servers(snapshot(aborted()), None));
    assert!(unread.decided().next().is_none() && unread.actions().is_empty(), "not known is not empty");
    let skipped = snapshot(aborted().spec(|spec| spec.skip_tests = Some(true)));
    let plan = decide(&onboarding(), &with_servers(skipped, Some(&["vm"])));
    check(&plan, False, reasons::SUCCEEDED, "Onboarding completed");
    assert!(snapshot(aborted()).wants_servers() && !snapshot(aborted().unmanaged()).wants_servers());
}

#[test]
fn uuids_that_are_missing_are_filled_in_and_make_no_new_host() {
    type Missing = fn(&mut cobalt_core::api::HypervisorStatus);
    let missing: [Missing; 3] = [
        |status| status.hypervisor_id = None,
        |status| status.service_id = None,
        |status| (status.hypervisor_id, status.service_id) = (None, None),
    ];
    for change in missing {
        let host = recorded(hypervisor("hv-1")).with_condition(types::ONBOARDING, False, reasons::SUCCEEDED);
        let plan = decide(&onboarding(), &snapshot(host.status(change)));
        check(&plan, False, reasons::SUCCEEDED, "Onboarding completed");
        let filled = (plan.status.hypervisor_id.as_deref(), plan.status.service_id.as_deref());
        assert_eq!(filled, (Some("h"), Some("s")));
    }
    let other = |status: &mut cobalt_core::api::HypervisorStatus| {
        (status.hypervisor_id, status.service_id) = (Some("h of an earlier life".into()), None);
    };
    let host = recorded(hypervisor("hv-1")).with_condition(types::ONBOARDING, False, reasons::SUCCEEDED);
    let plan = after(&onboarding(), snapshot(host.status(other)), Outcome::Done);
    check(&plan, True, reasons::INITIAL, INITIAL);
}

#[test]
fn a_host_with_servers_that_nova_knows_by_other_uuids_is_the_host_it_was() {
    let succeeded = recorded(hypervisor("hv-1")).onboarded();
    for (host, step, message) in
        [(succeeded, reasons::SUCCEEDED, "Onboarding completed"), (at(reasons::HANDOVER), reasons::HANDOVER, WAITING)]
    {
        let stale = host.status(|status| {
            (status.hypervisor_id, status.service_id) = (Some("earlier".into()), Some("earlier".into()));
        });
        let seen = || snapshot(stale.clone());
        let ids = |plan: &Plan| (plan.status.hypervisor_id.clone(), plan.status.service_id.clone());
        let new = (Some("h".to_owned()), Some("s".to_owned()));
        let plan = decide(&onboarding(), &seen());
        assert_eq!(words(&plan), ["look for servers on hv-1 before it is tested"]);
        assert!(plan.decided().next().is_none() && ids(&plan) == (None, None), "{step}: not known is not empty");
        let plan = after(&onboarding(), seen(), failed("list servers: unavailable"));
        assert!(plan.decided().next().is_none() && ids(&plan) == (None, None), "{step}: nor is no answer");
        assert!(plan.requeue().is_some());
        let plan = after(&onboarding(), seen(), Outcome::Underway("servers are on the host".into()));
        let status = if step == reasons::SUCCEEDED { False } else { True };
        check(&plan, status, step, message);
        assert_eq!(ids(&plan), new, "{step}");
        let plan = after(&onboarding(), seen(), Outcome::Done);
        check(&plan, True, reasons::INITIAL, INITIAL);
        assert_eq!(ids(&plan), new, "{step}: the new UUIDs and Initial are one plan");
    }
    // One that counts as aborted is guarded by the view, which must know it first.
    let aborted = at(reasons::ABORTED).status(|status| status.hypervisor_id = Some("earlier".into()));
    let plan = decide(&onboarding(), &snapshot(aborted));
    assert!(plan.decided().next().is_none() && plan.actions().is_empty());
    assert_eq!(plan.status.hypervisor_id.as_deref(), Some("h"));
}

#[test]
fn a_host_that_vanished_from_nova_is_waited_for_and_a_new_one_of_its_name_starts_over() {
    let rows = [
        (at(reasons::INITIAL), reasons::INITIAL, True),
        (at(reasons::TESTING), reasons::TESTING, True),
        (at(reasons::HANDOVER), reasons::HANDOVER, True),
        (
            recorded(hypervisor("hv-1")).with_condition(types::ONBOARDING, False, reasons::SUCCEEDED),
            reasons::SUCCEEDED,
            False,
        ),
    ];
    for (host, reason, status) in rows {
        let mut seen = snapshot(host);
        seen.cloud = region(&[("hv-10", "h10", "s10")], Vec::new());
        let plan = decide(&onboarding(), &seen);
        let (found, why, message) = condition(&plan);
        assert_eq!((found, why.as_str()), (status, reason));
        assert!(message.contains("Nova does not tell of hypervisor h with service s any more"), "{message}");
        assert!(plan.actions().is_empty());
        let plan = decide(&handover(HaOwner::Nobody), &seen);
        assert!(plan.decided().next().is_none());

        seen.cloud = region(&[("hv-1", "h", "s2")], Vec::new());
        let plan = decide(&onboarding(), &seen);
        // Those that others may use are looked at first.
        let plan = if plan.actions().is_empty() { plan } else { after(&onboarding(), seen, Outcome::Done) };
        check(&plan, True, reasons::INITIAL, INITIAL);
        assert_eq!(plan.status.service_id.as_deref(), Some("s2"), "the new UUIDs and Initial are one plan");
    }
}

#[test]
fn a_host_is_not_tested_before_its_checks_are_fulfilled() {
    let checks = Checks {
        libvirt: true,
        libvirt_version: Some("9.0.0".parse().unwrap()),
        bridges: vec!["br-int".into()],
        conditions: vec!["StorageReachable".into()],
    };
    let mut settings = tested();
    settings.checks = checks;
    let stage = Onboarding::new(cloud(), settings);
    let waits = |seen: &Snapshot, what: &str| {
        let plan = decide(&stage, seen);
        check(&plan, True, reasons::INITIAL, &format!("{INITIAL}: waiting for {what}"));
        assert!(plan.actions().is_empty());
    };
    let mut host = at(reasons::INITIAL);
    waits(&snapshot(host.clone()), "condition LibVirtConnection: nobody has written it");
    host = host.with_condition(types::LIBVIRT_CONNECTION, False, reasons::CONNECT_FAILED);
    waits(&snapshot(host.clone()), "condition LibVirtConnection: it is False (ConnectFailed): ConnectFailed");
    host = host.with_condition(types::LIBVIRT_CONNECTION, True, reasons::CONNECTED);
    waits(&snapshot(host.clone()), "libvirt 9.0.0 or newer: its agent has not told the version");
    let mut silent = snapshot(host.clone());
    silent.agent = AgentSeen::Silent;
    waits(&silent, "condition LibVirtConnection: the node agent gives no sign of life");
    host = host.status(|status| status.lib_virt_version = Some("8.10.0".into()));
    waits(&snapshot(host.clone()), "libvirt 9.0.0 or newer: the host has 8.10.0");
    host = host.status(|status| status.lib_virt_version = Some("10.0.0".into()));
    let mut seen = snapshot(host.clone());
    waits(&seen, "bridge br-int: the switch was not seen yet");
    let bridge = |status: &str| {
        let bridge = Bridge { name: "br-int".into(), status: Some(status.into()), ..Bridge::default() };
        let status = OVSNodeStatus { bridges: Some(vec![bridge]), ..OVSNodeStatus::default() };
        Some(Arc::new(OVSNode { status: Some(status), ..OVSNode::default() }))
    };
    for (switch, why) in [
        (SwitchSeen::NotInstalled, "the cluster has no OVSNodes"),
        (SwitchSeen::Known { node: None, fresh: false }, "no OVS agent has told of this host"),
        (SwitchSeen::Known { node: bridge("Active"), fresh: false }, "the OVS agent gives no sign of life"),
        (
            SwitchSeen::Known { node: Some(Arc::new(OVSNode::default())), fresh: true },
            "the switch has none of this name",
        ),
        (SwitchSeen::Known { node: bridge("Unresponsive"), fresh: true }, "it is Unresponsive"),
    ] {
        seen.switch = switch;
        waits(&seen, &format!("bridge br-int: {why}"));
    }
    seen.switch = SwitchSeen::Known { node: bridge("Active"), fresh: true };
    waits(&seen, "condition StorageReachable: nobody has written it");
    seen.hypervisor = Some(Arc::new(host.with_condition("StorageReachable", True, "Reached").build()));
    assert_eq!(words(&decide(&stage, &seen)), ["enable the compute service of hv-1 for its smoke test"]);
}

fn taken_over(host: HypervisorBuilder) -> HypervisorBuilder {
    host.with_condition(types::AGGREGATES_UPDATED, True, reasons::SUCCEEDED).with_condition(
        types::TRAITS_UPDATED,
        True,
        reasons::SUCCEEDED,
    )
}

#[test]
fn an_onboarding_ends_when_those_it_waits_for_have_taken_over() {
    let stage = handover(HaOwner::Nobody);
    let ready = || taken_over(at(reasons::HANDOVER));
    check(&decide(&stage, &snapshot(ready())), False, reasons::SUCCEEDED, "Onboarding completed");
    for type_ in [types::AGGREGATES_UPDATED, types::TRAITS_UPDATED] {
        let plan = decide(&stage, &snapshot(ready().with_condition(type_, False, reasons::FAILED)));
        check(&plan, True, reasons::HANDOVER, WAITING);
        assert_eq!(plan.requeue(), None, "it is woken by what it waits for");
    }
    for step in [reasons::INITIAL, reasons::TESTING, reasons::ABORTED] {
        assert!(decide(&stage, &snapshot(taken_over(at(step)))).decided().next().is_none(), "{step}");
    }
}

#[test]
fn ha_is_waited_for_only_where_somebody_owns_it() {
    let ready = || taken_over(at(reasons::HANDOVER));
    let succeeded =
        |owner, host: HypervisorBuilder| condition(&decide(&handover(owner), &snapshot(host))).1 == reasons::SUCCEEDED;
    assert!(succeeded(HaOwner::Nobody, ready()));
    assert!(!succeeded(HaOwner::External, ready()));
    assert!(succeeded(HaOwner::External, ready().spec(|spec| spec.high_availability = Some(false))));
    // Somebody has written it: they are waited for, whatever is configured.
    for owner in [HaOwner::Nobody, HaOwner::External] {
        for status in [False, Unknown] {
            assert!(!succeeded(owner, ready().with_condition(types::HA_ENABLED, status, reasons::ONBOARDING)));
        }
        assert!(succeeded(owner, ready().with_condition(types::HA_ENABLED, True, reasons::SUCCEEDED)));
    }
}

#[test]
fn an_onboarding_ends_only_when_no_test_server_is_left() {
    let stage = Handover::new(cloud(), tested(), Ha::default());
    let seen = || snapshot(taken_over(at(reasons::HANDOVER)));
    assert_eq!(words(&decide(&stage, &seen())), ["delete the test servers of hv-1"]);
    let plan = after(&stage, seen(), Outcome::Underway("Waiting for Nova to delete test servers".into()));
    check(&plan, True, reasons::HANDOVER, WAITING);
    assert!(plan.requeue().is_some());
    let late = "Server own of 2026-01-01T00:00:00Z is still being deleted";
    let plan = after(&stage, seen(), Outcome::Underway(late.into()));
    check(&plan, True, reasons::HANDOVER, &format!("{WAITING}: {late}"));
    let plan = after(&stage, seen(), failed("list our servers: unavailable"));
    let what = "failed to delete test servers: list our servers: unavailable";
    check(&plan, True, reasons::HANDOVER, &format!("{WAITING}: {what}"));
    check(&after(&stage, seen(), Outcome::Done), False, reasons::SUCCEEDED, "Onboarding completed");
}

fn owning_ha(mut seen: Snapshot) -> Snapshot {
    let key = r#"k:{"type":"HaEnabled"}"#;
    let fields = json!({"f:status": {"f:conditions": {key: {".": {}, "f:type": {}}}}});
    seen.owned_status = FieldSet::from_fields_v1(&fields);
    seen
}

#[test]
fn nobody_is_said_where_nobody_owns_ha() {
    let nobody = Ha { owner: HaOwner::Nobody };
    let plan = decide(&nobody, &snapshot(at(reasons::INITIAL)));
    let said = plan.condition(types::HA_ENABLED).unwrap();
    assert_eq!((said.status, said.reason.as_str()), (Unknown, reasons::NOT_CONFIGURED));
    // Nothing is said of a host that is not on its way.
    assert!(decide(&nobody, &snapshot(hypervisor("hv-1"))).decided().next().is_none());
    let again =
        owning_ha(snapshot(at(reasons::INITIAL).with_condition(types::HA_ENABLED, Unknown, reasons::NOT_CONFIGURED)));
    assert!(decide(&nobody, &again).condition(types::HA_ENABLED).is_some_and(|said| said.reason == "NotConfigured"));
}

#[test]
fn what_others_say_of_ha_is_never_written_and_ours_is_let_go() {
    let said = |reason| at(reasons::INITIAL).with_condition(types::HA_ENABLED, Unknown, reason);
    for owner in [HaOwner::Nobody, HaOwner::External] {
        let plan = decide(&Ha { owner }, &snapshot(said(reasons::FAILED)));
        assert!(plan.decided().next().is_none() && !plan.is_removed(types::HA_ENABLED));
        // They have changed what was ours. Its key still is, and what they say would go with it.
        let plan = decide(&Ha { owner }, &owning_ha(snapshot(said(reasons::FAILED))));
        assert!(plan.decided().next().is_none() && !plan.is_removed(types::HA_ENABLED));
    }
    let plan = decide(&Ha { owner: HaOwner::External }, &owning_ha(snapshot(said(reasons::NOT_CONFIGURED))));
    assert!(plan.is_removed(types::HA_ENABLED));
}

fn server(id: &str, name: &str) -> Server {
    Server {
        id: id.into(),
        name: name.into(),
        project: "test".into(),
        status: ServerStatus::Build,
        task: None,
        host: None,
        powered: false,
        locked: false,
        memory_mb: 64,
        vcpus: 1,
        local_disk: false,
        local_disk_gb: 0,
        volumes: Vec::new(),
        required_traits: Vec::new(),
        zone: None,
        fault: None,
        created_at: None,
        launched_at: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_test_servers_of_other_hosts_are_never_touched() {
    const OTHER_LIFE: &str = "6f2c58a6-0000-4000-8000-000000000001";
    let uid = at(reasons::TESTING).build().metadata.uid.unwrap();
    let names = [
        ("own", format!("ohooc--hv-1-{uid}")),
        ("twice", format!("ohooc--hv-1-{uid}")),
        ("old", format!("ohooc--hv-1-{OTHER_LIFE}")),
        ("hv-10", format!("ohooc--hv-10-{uid}")),
        ("hv-1-b", format!("ohooc--hv-1-b-{uid}")),
        ("hv-1.example", format!("ohooc--hv-1.example-{uid}")),
        ("a host called by a UUID too", format!("ohooc--hv-1-{OTHER_LIFE}-{uid}")),
        ("no UUID", "ohooc--hv-1-".to_owned()),
        ("by hand", "ohooc--hv-1-mine".to_owned()),
    ];
    let servers: Vec<Server> = names.iter().map(|(id, name)| server(id, name)).collect();
    let mut nova = MockNovaClient::new();
    let deleted: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    // Even if Nova answers more than it was asked for.
    nova.expect_servers_named().returning(move |_| Ok(servers.clone()));
    let noted = deleted.clone();
    nova.expect_delete_server().returning(move |id| {
        noted.lock().unwrap().insert(id.to_string());
        Ok(())
    });
    let settings = OnboardingSettings::default().tested_by(Some(smoke_test(nova)));
    let host = std::thread::spawn(|| snapshot(at(reasons::TESTING))).join().unwrap();
    let plan = decide(&Onboarding::new(cloud(), settings.clone()), &host);
    for action in plan.actions().values() {
        assert_eq!(action.run().await.unwrap(), Progress::Underway(RUNNING.into()));
    }
    assert_eq!(deleted.lock().unwrap().iter().cloned().collect::<Vec<_>>(), ["old", "twice"]);

    let host = std::thread::spawn(|| snapshot(at(reasons::TESTING).unmanaged())).join().unwrap();
    let plan = decide(&Onboarding::new(cloud(), settings), &host);
    for action in plan.actions().values() {
        assert_eq!(action.run().await.unwrap(), Progress::Done);
    }
    assert_eq!(deleted.lock().unwrap().iter().cloned().collect::<Vec<_>>(), ["old", "own", "twice"]);
}

#[tokio::test(start_paused = true)]
async fn a_test_is_looked_at_no_more_often_than_configured_however_often_a_pass_comes() {
    let calls: Arc<Mutex<u32>> = Arc::default();
    let (counted, mut nova) = (calls.clone(), MockNovaClient::new());
    nova.expect_servers_named().returning(move |_| {
        *counted.lock().unwrap() += 1;
        Err(cobalt_core::Error::unavailable("list our servers", std::io::Error::other("503 busy (req-4711)")))
    });
    let stage = Onboarding::new(cloud(), OnboardingSettings::default().tested_by(Some(smoke_test(nova))));
    let host = std::thread::spawn(|| snapshot(at(reasons::TESTING))).join().unwrap();
    let run = async || {
        let plan = decide(&stage, &host);
        plan.actions().values().next().unwrap().run().await.unwrap()
    };
    for _ in 0..10 {
        // Without what is another one at each attempt.
        assert_eq!(run().await, Progress::Underway("list our servers: unavailable: 503 busy".into()));
    }
    assert_eq!(*calls.lock().unwrap(), 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    run().await;
    assert_eq!(*calls.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_does_not_work_keeps_no_empty_host_from_leaving() {
    for left in [false, true] {
        let uid = at(reasons::TESTING).build().metadata.uid.unwrap();
        let mut test_project = MockNovaClient::new();
        let denied = || cobalt_core::Error::Denied { operation: "list our servers".into(), cause: None };
        test_project.expect_servers_named().returning(move |_| Err(denied()));
        let mut nova = MockNovaClient::new();
        nova.expect_servers_on().returning(move |_| {
            let ours = left.then(|| server("own", &format!("ohooc--hv-1-{uid}")));
            Ok(ours.into_iter().chain([server("theirs", "web")]).collect())
        });
        nova.expect_delete_server().withf(|id| id.as_str() == "own").times(usize::from(left)).returning(|_| Ok(()));
        let nova: Arc<dyn NovaClient> = Arc::new(nova);
        let cloud = Cloud::new(nova, Arc::new(MockPlacementClient::new()), ViewOptions::default());
        let settings = OnboardingSettings::default().tested_by(Some(smoke_test(test_project)));
        let host = || snapshot(at(reasons::TESTING).in_maintenance(Maintenance::Termination));
        let host = std::thread::spawn(host).join().unwrap();
        let plan = decide(&Onboarding::new(cloud, settings), &host);
        let answer = plan.actions().values().next().unwrap().run().await;
        assert!(matches!(answer, Ok(Progress::Done)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_host_never_heard_of_is_deleted_by_telling_nova_again() {
    for (state, told) in [(ServiceState::Up, 0), (ServiceState::Down, 1)] {
        let deleting = Server { task: Some(TaskState::Deleting), ..own_server(ServerStatus::Active, 1) };
        let mut test_project = MockNovaClient::new();
        test_project.expect_servers_named().returning(move |_| Ok(vec![deleting.clone()]));
        test_project.expect_delete_server().times(told).returning(|_| Ok(()));
        let mut nova = MockNovaClient::new();
        nova.expect_services().returning(move || Ok(vec![ComputeService { state, ..service("hv-1", "s") }]));
        nova.expect_hypervisors().returning(|| Ok(Vec::new()));
        nova.expect_aggregates().returning(|| Ok(Vec::new()));
        let cloud = Cloud::new(Arc::new(nova), Arc::new(MockPlacementClient::new()), ViewOptions::default());
        let looking = tokio::spawn(cloud.view.clone().run());
        cloud.view.subscribe().wait_for(|seen| seen.is_complete()).await.unwrap();
        looking.abort();
        let settings = OnboardingSettings::default().tested_by(Some(smoke_test(test_project)));
        let host = std::thread::spawn(|| snapshot(held(at(reasons::TESTING)))).join().unwrap();
        let plan = decide(&Onboarding::new(cloud, settings), &host);
        let answer = plan.actions().values().next().unwrap().run().await.unwrap();
        assert_eq!(answer, Progress::Underway("Waiting for Nova to delete test servers".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_skips_its_tests_is_handed_over_without_a_test_server_and_without_their_login() {
    let uid = at(reasons::HANDOVER).build().metadata.uid.unwrap();
    let mut nova = MockNovaClient::new();
    nova.expect_servers_on()
        .returning(move |_| Ok(vec![server("own", &format!("ohooc--hv-1-{uid}")), server("theirs", "web")]));
    nova.expect_delete_server().withf(|id| id.as_str() == "own").times(1).returning(|_| Ok(()));
    let cloud = Cloud::new(Arc::new(nova), Arc::new(MockPlacementClient::new()), ViewOptions::default());
    // Whoever asks for their login fails.
    let stage = Handover::new(cloud, tested(), Ha { owner: HaOwner::Nobody });
    let skipped = || taken_over(at(reasons::HANDOVER)).spec(|spec| spec.skip_tests = Some(true));
    let host = std::thread::spawn(move || snapshot(skipped())).join().unwrap();
    let plan = decide(&stage, &owning_ha(host));
    let answer = plan.actions().values().next().unwrap().run().await.unwrap();
    assert_eq!(answer, Progress::Underway("Waiting for Nova to delete test servers".into()));
}

#[test]
fn a_host_that_cannot_leave_its_zone_under_a_test_server_is_freed_of_it_before_the_end() {
    let stage = Handover::new(cloud(), tested(), Ha { owner: HaOwner::Nobody });
    let stuck = || snapshot(at(reasons::HANDOVER).with_condition(types::AGGREGATES_UPDATED, False, reasons::FAILED));
    assert_eq!(words(&decide(&stage, &stuck())), ["delete the test servers of hv-1"]);
    assert!(after(&stage, stuck(), Outcome::Done).decided().next().is_none(), "it waits for the aggregates");
    let waits = snapshot(at(reasons::HANDOVER).with_condition(types::AGGREGATES_UPDATED, False, "WaitingForTraits"));
    assert!(decide(&stage, &waits).actions().is_empty(), "nothing stands in the way");
}

/// What a step of the test comes to where Nova has this server, and whether it was deleted.
async fn step_with(server: Server, console: &'static str) -> (Progress, bool) {
    let mut nova = MockNovaClient::new();
    let deleted: Arc<Mutex<bool>> = Arc::default();
    nova.expect_servers_named().returning(move |_| Ok(vec![server.clone()]));
    nova.expect_console_output().returning(move |_, _| Ok(console.to_owned()));
    let noted = deleted.clone();
    nova.expect_delete_server().returning(move |_| {
        *noted.lock().unwrap() = true;
        Ok(())
    });
    let settings = OnboardingSettings::default().tested_by(Some(smoke_test(nova)));
    let host = std::thread::spawn(|| snapshot(at(reasons::TESTING))).join().unwrap();
    let plan = decide(&Onboarding::new(cloud(), settings), &host);
    let answer = plan.actions().values().next().unwrap().run().await.unwrap();
    (answer, *deleted.lock().unwrap())
}

/// Our test server, as it was made so many minutes before the snapshot.
fn own_server(status: ServerStatus, minutes: i64) -> Server {
    let uid = at(reasons::TESTING).build().metadata.uid.unwrap();
    let now: jiff::Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
    let created_at = Some(now - jiff::SignedDuration::from_mins(minutes));
    Server { status, created_at, ..server("own", &format!("ohooc--hv-1-{uid}")) }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_gets_built_or_deleted_is_not_waited_for_in_silence() {
    let running = Progress::Underway(RUNNING.into());
    let resized = || ServerStatus::Resize;
    assert_eq!(step_with(own_server(ServerStatus::Build, 14), "").await, (running.clone(), false));
    let failed = |words: &str| Progress::Underway(words.into());
    let built = "Server of 2026-01-31T23:44:00Z is still being built";
    assert_eq!(step_with(own_server(ServerStatus::Build, 16), "").await, (failed(built), true));
    let busy = |minutes| Server { task: Some(TaskState::Other("x".into())), ..own_server(resized(), minutes) };
    assert_eq!(step_with(busy(14), "").await, (running.clone(), false));
    let other = "Server of 2026-01-31T23:44:00Z is still Resize";
    assert_eq!(step_with(busy(16), "").await, (failed(other), true));
    // Built, looked at, and then to be deleted.
    let going = |minutes| Server { task: Some(TaskState::Deleting), ..own_server(ServerStatus::Active, minutes) };
    assert_eq!(step_with(going(19), "").await, (running, false));
    let deleting = "Server own of 2026-01-31T23:39:00Z is still being deleted";
    assert_eq!(step_with(going(21), "").await, (failed(deleting), false));
}

#[tokio::test(start_paused = true)]
async fn a_guest_may_say_the_name_that_nova_gave_it() {
    let uid = at(reasons::TESTING).build().metadata.uid.unwrap();
    let login = |name: String| -> &'static str { Box::leak(format!("{name} login:").into_boxed_str()) };
    for console in [format!("ohooc--hv-1-{uid}"), format!("ohooc--hv-1-{uid}").to_lowercase()] {
        assert_eq!(step_with(own_server(ServerStatus::Active, 1), login(console)).await, (Progress::Done, true));
    }
    let foreign = step_with(own_server(ServerStatus::Active, 1), login("ohooc--hv-10".into())).await;
    assert_eq!(foreign, (Progress::Underway(RUNNING.into()), false));
}

fn any_step() -> impl Strategy<Value = Option<(ConditionStatus, &'static str)>> {
    prop_oneof![
        Just(None),
        Just(Some((True, reasons::INITIAL))),
        Just(Some((True, reasons::TESTING))),
        Just(Some((True, reasons::HANDOVER))),
        Just(Some((True, reasons::ABORTED))),
        Just(Some((False, reasons::ABORTED))),
        Just(Some((False, reasons::SUCCEEDED))),
    ]
}

fn any_maintenance() -> impl Strategy<Value = Option<Maintenance>> {
    prop_oneof![Just(None), Just(Some(Maintenance::Manual)), Just(Some(Maintenance::Termination))]
}

/// Lets a host go round: what was decided is what is seen next, and whatever is asked for is done.
fn walk(mut host: Hypervisor, cloud_seen: &CloudSeen) -> (Hypervisor, usize) {
    let stages: Vec<Box<dyn Stage>> = vec![
        Box::new(onboarding()),
        Box::new(Ha::default()),
        Box::new(Handover::new(cloud(), tested(), Ha::default())),
    ];
    for round in 0..12 {
        let mut seen = owning_ha(seen(None, Some(host.clone())));
        seen.cloud = cloud_seen.clone();
        let pass = |seen: &Snapshot| {
            let mut plan = Plan::new(seen);
            for stage in &stages {
                stage.decide(seen, &mut plan);
            }
            plan
        };
        let mut plan = pass(&seen);
        for _ in 0..3 {
            seen.outcomes.extend(plan.actions().keys().map(|key| (key.clone(), Outcome::Done)));
            plan = pass(&seen);
        }
        let before = host.clone();
        let status = host.status.get_or_insert_default();
        for decided in plan.decided() {
            cobalt_core::api::conditions::set_condition(&mut status.conditions, decided.clone(), MADE_AT);
        }
        if let (Some(hypervisor), Some(service)) = (&plan.status.hypervisor_id, &plan.status.service_id) {
            status.hypervisor_id = Some(hypervisor.clone());
            status.service_id = Some(service.clone());
        }
        if host == before {
            return (host, round);
        }
    }
    panic!("it never comes to rest: {host:#?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn from_everywhere_an_onboarding_comes_to_rest_where_it_belongs(
        step in any_step(),
        managed in any::<bool>(),
        maintenance in any_maintenance(),
        skipped in any::<bool>(),
        known in any::<bool>(),
    ) {
        let mut builder = taken_over(hypervisor("hv-1").with_label(labels::ZONE, "zone-a"));
        if known {
            builder = recorded(builder);
        }
        if let Some((status, reason)) = step {
            builder = builder.with_condition(types::ONBOARDING, status, reason);
        }
        builder = builder.spec(|spec| {
            spec.lifecycle_enabled = Some(managed);
            spec.skip_tests = Some(skipped);
            spec.maintenance.clone_from(&maintenance);
        });
        let region = snapshot(hypervisor("hv-1")).cloud;
        let (host, _) = walk(builder.build(), &region);
        let wanted = managed && maintenance != Some(Maintenance::Termination);
        let rest = host.condition(types::ONBOARDING).map(|found| (found.status, found.reason.as_str()));
        // Only a host that was never known is no longer in service when it is found again.
        let in_service = step == Some((False, reasons::SUCCEEDED));
        match rest {
            None => prop_assert!(!wanted && step.is_none()),
            Some((False, reasons::ABORTED)) => prop_assert!(!wanted && !in_service),
            Some((False, reasons::SUCCEEDED)) => prop_assert!(wanted || in_service),
            Some((True, reasons::INITIAL)) => prop_assert!(wanted && maintenance == Some(Maintenance::Manual)),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
