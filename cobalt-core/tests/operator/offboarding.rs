use std::{sync::Arc, time::Duration};

use cobalt_core::{
    Error,
    api::{
        Aggregate, ConditionStatus, Maintenance, condition_types as types, labels, reasons,
        testing::{HypervisorBuilder, hypervisor, node},
    },
    ids::{InstanceId, ProviderId},
    nova::{Allocation, MockNovaClient, MockPlacementClient, Resources, Server, ServerStatus, view::ViewOptions},
    operator::{AbsentNode, Cloud, Offboarding, OffboardingSettings, Outcome, Plan, Progress, Snapshot},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::{
    decide,
    region::{Region, cloud, region, said, wishes},
    seen,
};

const GRACE: Duration = Duration::from_secs(900);

fn stage() -> Offboarding {
    Offboarding::new(cloud(), OffboardingSettings { deletion_grace: GRACE })
}

/// Deleted so long before the time of the snapshot.
fn deleted(host: HypervisorBuilder, before: i64) -> HypervisorBuilder {
    let now: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
    let at = Timestamp::from_second(now.as_second() - before).unwrap();
    host.metadata(|meta| {
        meta.deletion_timestamp = Some(Time(at));
        meta.finalizers = Some(vec![labels::FINALIZER.into()]);
    })
}

async fn around(host: HypervisorBuilder, with_node: bool, change: impl FnOnce(Region) -> Region) -> Snapshot {
    let host = host.build();
    let region = change(region(&host));
    let mut seen = region.around(seen(None, Some(host))).await;
    let terminating = node("hv-1").with_condition(types::TERMINATING, ConditionStatus::True).build();
    seen.node = with_node.then(|| Arc::new(terminating));
    seen
}

fn waits(plan: &Plan) -> String {
    let told = plan.condition(types::OFFBOARDED).unwrap();
    assert_eq!((told.status, told.reason.as_str()), (ConditionStatus::False, reasons::OFFBOARDING));
    told.message.clone()
}

#[tokio::test]
async fn each_step_waits_for_the_one_before_and_says_so() {
    let with = |host: HypervisorBuilder, type_, status: ConditionStatus| host.with_condition(type_, status, "x");
    let aggregate = Aggregate { name: "zone-a".into(), ..Aggregate::default() };
    let start = hypervisor("hv-1").onboarded().in_maintenance(Maintenance::Termination);
    let evicted = with(start.clone(), types::EVICTING, ConditionStatus::False);
    let alone = with(evicted.clone(), types::AGENT_PODS_EVICTED, ConditionStatus::True);
    let in_zone = alone.clone().status(|status| status.aggregates = Some(vec![aggregate]));
    for (host, change, text) in [
        (start.clone().onboarding(reasons::TESTING), Region::down as fn(Region) -> Region, "onboarding to be aborted"),
        (start.clone(), Region::down, "the host to be evicted"),
        (with(start, types::EVICTING, ConditionStatus::True), Region::down, "the host to be evicted"),
        (evicted, Region::down, "agent pods"),
        (in_zone, Region::down, "leave its aggregates: zone-a"),
        (alone.clone(), |it| it.down().with_servers(1), "openstack server list --all-projects --host hv-1"),
        (alone.clone(), |it| it, "nova-compute to end"),
    ] {
        let plan = decide(&stage(), &around(host, true, change).await);
        assert!(waits(&plan).contains(text), "{text}: {}", waits(&plan));
        assert!(wishes(&plan).is_empty(), "{text}");
        assert_eq!(plan.held(), Some(true), "{text}");
    }
    let plan = decide(&stage(), &around(alone, true, Region::down).await);
    assert_eq!(wishes(&plan), [waits(&plan)], "published before it is done");
    assert!(plan.actions().values().all(|action| action.is_irreversible()));
}

#[tokio::test]
async fn it_is_offboarded_when_it_was_done_and_let_go_with_that() {
    let host = hypervisor("hv-1")
        .onboarded()
        .in_maintenance(Maintenance::Termination)
        .with_condition(types::EVICTING, ConditionStatus::False, reasons::SUCCEEDED)
        .with_condition(types::AGENT_PODS_EVICTED, ConditionStatus::True, reasons::NO_AGENT_PODS);
    let mut seen = around(host, true, |it| it.down().unknown()).await;
    let key = decide(&stage(), &seen).actions().keys().next().expect("Placement may have it still").clone();
    seen.outcomes.insert(key.clone(), Outcome::Failed { category: "conflict", message: "busy".into() });
    let plan = decide(&stage(), &seen);
    assert!(waits(&plan).ends_with("This failed and is tried again: busy"), "{}", waits(&plan));
    seen.outcomes.insert(key, Outcome::Done);
    let plan = decide(&stage(), &seen);
    assert_eq!(said(&plan, types::OFFBOARDED).unwrap(), "True/Offboarded");
    assert_eq!(plan.held(), Some(false));
}

fn server(id: &InstanceId, host: Option<&str>) -> Server {
    Server {
        id: id.clone(),
        name: "a server".into(),
        project: "a project".into(),
        status: ServerStatus::Active,
        task: None,
        host: host.map(Into::into),
        powered: true,
        locked: false,
        memory_mb: 512,
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

fn not_found() -> Error {
    Error::not_found("ask")
}

/// What taking a host out of Nova asks a cloud where its service is gone and its provider has one booking: of a server
/// that is on this host, elsewhere, or nowhere yet.
async fn clean_up(server_is_on: Option<&'static str>, released: usize) -> cobalt_core::Result<Progress> {
    let (mut nova, mut placement) = (MockNovaClient::new(), MockPlacementClient::new());
    nova.expect_servers_on().returning(|_| Ok(Vec::new()));
    nova.expect_service_on().returning(|_| Err(not_found()));
    nova.expect_server().returning(move |id| Ok(server(id, server_is_on)));
    placement.expect_provider_named().returning(|_| Ok(None));
    let booked = || Allocation { consumer: "vm".into(), resources: Resources::new() };
    placement.expect_allocations().returning(move |_| Ok(vec![booked()]));
    let here = |id: &ProviderId| id.as_str() == "p";
    placement.expect_release().withf(move |_, id| here(id)).times(released).returning(|_, _| Ok(()));
    placement.expect_delete_provider().withf(here).times(released).returning(|_| Ok(()));
    placement.expect_delete_allocations().never();
    let cloud = Cloud::new(Arc::new(nova), Arc::new(placement), ViewOptions::default());
    let host = hypervisor("hv-1").onboarded().in_maintenance(Maintenance::Termination);
    let host = host.status(|status| status.hypervisor_id = Some("p".into()));
    let host = host.with_condition(types::EVICTING, ConditionStatus::False, reasons::SUCCEEDED);
    let plan =
        decide(&Offboarding::new(cloud, OffboardingSettings::default()), &around(host, false, Region::down).await);
    plan.actions().values().next().unwrap().run().await
}

#[tokio::test]
async fn bookings_of_servers_that_live_elsewhere_are_released_here_and_nowhere_else() {
    assert_eq!(clean_up(Some("hv-2"), 1).await.unwrap(), Progress::Done);
}

#[tokio::test]
async fn bookings_of_servers_that_are_here_stop_it() {
    let error = clean_up(Some("hv-1"), 0).await.unwrap_err();
    assert!(error.to_string().contains("server vm is on the host"), "{error}");
    let error = clean_up(None, 0).await.unwrap_err();
    assert!(error.to_string().contains("server vm has no host yet"), "it is on its way: {error}");
}

/// A deleted host of which this was said.
fn told_before(message: &str) -> HypervisorBuilder {
    let host = deleted(hypervisor("hv-1").onboarded(), 60);
    let host = host.with_condition(types::OFFBOARDED, ConditionStatus::False, reasons::OFFBOARDING);
    host.status(|status| {
        let offboarded = status.conditions.iter_mut().find(|it| it.type_ == types::OFFBOARDED).unwrap();
        message.clone_into(&mut offboarded.message);
    })
}

#[tokio::test]
async fn what_was_begun_for_a_deleted_one_is_brought_to_its_end_in_placement() {
    let failed =
        "Removing hv-1 from Nova: compute service s, resource provider p. This failed and is tried again: away";
    let plan = decide(&stage(), &around(told_before(failed), false, Region::unknown).await);
    assert_eq!((wishes(&plan).len(), plan.held()), (1, Some(true)), "the provider may be there still");

    // An operator that starts in between has not seen Nova, and does not forget it.
    let plan = decide(&stage(), &seen(None, Some(told_before(failed).build())));
    let waiting = waits(&plan);
    assert!(waiting.starts_with("Removing hv-1 from Nova has begun. Waiting for Nova to answer"), "{waiting}");
    assert!(wishes(&plan).is_empty());
    let plan = decide(&stage(), &around(told_before(&waiting), false, Region::unknown).await);
    assert_eq!((wishes(&plan).len(), plan.held()), (1, Some(true)));

    let plan = decide(&stage(), &around(told_before("Waiting for Nova to answer"), false, Region::unknown).await);
    assert_eq!((wishes(&plan).len(), plan.held()), (0, Some(false)), "never begun: not ours to remove");
}

#[tokio::test]
async fn a_declaration_of_death_counts_only_where_the_agents_are_known_to_be_gone() {
    let plan = decide(&stage(), &around(deleted(hypervisor("hv-1").onboarded(), 60), false, Region::forced_down).await);
    assert!(waits(&plan).contains("was declared down"), "{}", waits(&plan));
    assert!(wishes(&plan).is_empty());
    let leaving = hypervisor("hv-1")
        .onboarded()
        .in_maintenance(Maintenance::Termination)
        .with_condition(types::EVICTING, ConditionStatus::False, reasons::SUCCEEDED)
        .with_condition(types::AGENT_PODS_EVICTED, ConditionStatus::True, reasons::NO_AGENT_PODS);
    let plan = decide(&stage(), &around(leaving, true, Region::forced_down).await);
    assert_eq!(wishes(&plan).len(), 1);
}

#[tokio::test]
async fn a_node_that_only_lost_its_labels_is_not_taken_for_gone() {
    let leaving = hypervisor("hv-1").onboarded().in_maintenance(Maintenance::Termination).with_condition(
        types::EVICTING,
        ConditionStatus::False,
        reasons::SUCCEEDED,
    );
    let kept = AbsentNode::Unlabelled { terminating: true };
    for (absent, text) in [
        (kept.clone(), "without the labels by which this operator chooses its Nodes"),
        (AbsentNode::Failed("server_error".into()), "is not known: server_error"),
        (AbsentNode::NotAsked, "Waiting for agent pods"),
    ] {
        // What was said of its Pods once, nobody keeps true.
        for pods in [ConditionStatus::True, ConditionStatus::False] {
            let host = leaving.clone().with_condition(types::AGENT_PODS_EVICTED, pods, reasons::NO_AGENT_PODS);
            let mut seen = around(host, false, Region::forced_down).await;
            seen.absent_node = absent.clone();
            let plan = decide(&stage(), &seen);
            assert!(waits(&plan).contains(text), "{}", waits(&plan));
            assert!(wishes(&plan).is_empty(), "nova-compute may run there");
        }
    }
    let abandoned = async |absent| {
        let mut seen = around(deleted(hypervisor("hv-1").onboarded(), 60), false, Region::down).await;
        seen.absent_node = absent;
        let plan = decide(&stage(), &seen);
        (wishes(&plan).len(), plan.held())
    };
    assert_eq!(abandoned(AbsentNode::Unlabelled { terminating: false }).await, (0, Some(false)), "its Node lives");
    assert_eq!(abandoned(AbsentNode::Failed("server_error".into())).await, (0, Some(true)));
    assert_eq!(abandoned(kept).await, (1, Some(true)));
    assert_eq!(abandoned(AbsentNode::Gone).await, (1, Some(true)));
}

#[tokio::test]
async fn a_failure_is_said_in_the_same_words_before_and_after_the_next_attempt() {
    let intent = "Removing hv-1 from Nova: compute service s, resource provider p";
    let told = format!("{intent}. This failed and is tried again: busy");
    let host = hypervisor("hv-1").onboarded().in_maintenance(Maintenance::Termination).status(|status| {
        (status.service_id, status.hypervisor_id) = (Some("s".into()), Some("p".into()));
    });
    let host = host
        .with_condition(types::EVICTING, ConditionStatus::False, reasons::SUCCEEDED)
        .with_condition(types::AGENT_PODS_EVICTED, ConditionStatus::True, reasons::NO_AGENT_PODS)
        .with_condition(types::OFFBOARDED, ConditionStatus::False, reasons::OFFBOARDING)
        .status(|status| {
            let offboarded = status.conditions.iter_mut().find(|it| it.type_ == types::OFFBOARDED).unwrap();
            offboarded.message.clone_from(&told);
        });
    let plan = decide(&stage(), &around(host, true, Region::down).await);
    assert_eq!(waits(&plan), told, "or each attempt would wake the next");
}

#[tokio::test]
async fn a_managed_host_is_held_from_the_moment_nova_knows_it() {
    for (case, host, held) in [
        ("new", hypervisor("hv-1"), None),
        ("registered", hypervisor("hv-1").registered(), Some(true)),
        ("onboarded", hypervisor("hv-1").onboarded(), Some(true)),
        ("in maintenance", hypervisor("hv-1").onboarded().in_maintenance(Maintenance::Manual), Some(true)),
        ("not managed", hypervisor("hv-1").onboarded().unmanaged(), Some(false)),
        (
            "offboarded",
            hypervisor("hv-1").onboarded().in_maintenance(Maintenance::Termination).with_condition(
                types::OFFBOARDED,
                ConditionStatus::True,
                reasons::OFFBOARDED,
            ),
            Some(false),
        ),
    ] {
        let plan = decide(&stage(), &seen(None, Some(host.build())));
        assert_eq!(plan.held(), held, "{case}");
        assert!(plan.actions().is_empty(), "{case}");
    }
    let in_one_write = seen(None, Some(hypervisor("hv-1").build()));
    let mut plan = Plan::new(&in_one_write);
    plan.status.service_id = Some("s".into());
    cobalt_core::operator::Stage::decide(&stage(), &in_one_write, &mut plan);
    assert_eq!(plan.held(), Some(true), "identities and finalizer go together");
}

#[tokio::test]
async fn one_that_is_wanted_again_is_not_called_offboarded_any_more() {
    let host = hypervisor("hv-1").with_condition(types::OFFBOARDED, ConditionStatus::True, reasons::OFFBOARDED);
    let plan = decide(&stage(), &seen(None, Some(host.build())));
    assert!(plan.is_removed(types::OFFBOARDED));
}

#[tokio::test]
async fn a_deleted_one_is_let_go_at_once_where_nothing_is_to_be_cleaned_up() {
    let host = || deleted(hypervisor("hv-1").onboarded(), 5);
    let mut alive = around(host(), false, |it| it.with_servers(3)).await;
    alive.node = Some(Arc::new(node("hv-1").build()));
    let unmanaged = around(host().unmanaged(), false, |it| it).await;
    let unknown = around(host(), false, Region::unknown).await;
    for (case, seen) in [("its Node lives", alive), ("not managed", unmanaged), ("unknown to Nova", unknown)] {
        let plan = decide(&stage(), &seen);
        assert_eq!(plan.held(), Some(false), "{case}");
        assert!(wishes(&plan).is_empty(), "{case}");
    }
}

#[tokio::test]
async fn a_deleted_one_waits_for_its_host_to_be_empty_and_down_but_not_for_ever() {
    let host = |before| deleted(hypervisor("hv-1").onboarded(), before);
    for (case, change) in
        [("with servers", (|it: Region| it.down().with_servers(2)) as fn(Region) -> Region), ("up", |it| it)]
    {
        let plan = decide(&stage(), &around(host(60), false, change).await);
        assert_eq!((plan.held(), plan.requeue()), (Some(true), GRACE.checked_sub(Duration::from_secs(60))), "{case}");
        assert!(waits(&plan).ends_with("let go at 2026-02-01T00:14:00Z"), "{case}: {}", waits(&plan));
        assert!(wishes(&plan).is_empty(), "{case}: nothing is drained");

        let late = around(host(901), false, change).await;
        let plan = decide(&stage(), &late);
        assert_eq!(plan.held(), Some(true), "{case}: first it is said");
        let told = plan.condition(types::OFFBOARDED).unwrap();
        assert!(
            told.reason == reasons::LEFT_BEHIND && told.message.contains("left in Nova: compute service"),
            "{told:?}"
        );
        let said_so = host(901).with_condition(types::OFFBOARDED, ConditionStatus::False, reasons::LEFT_BEHIND);
        let plan = decide(&stage(), &around(said_so, false, change).await);
        assert_eq!(plan.held(), Some(false), "{case}: then it is done");
    }
    let plan = decide(&stage(), &around(host(901), false, Region::down).await);
    assert_eq!(wishes(&plan).len(), 1, "late, but it can be cleaned up: that comes first");
}

#[tokio::test]
async fn a_deleted_one_is_not_taken_out_of_nova_before_its_onboarding_was_aborted() {
    let testing = || deleted(hypervisor("hv-1").onboarding(reasons::TESTING), 60);
    let plan = decide(&stage(), &around(testing(), false, Region::down).await);
    assert!(waits(&plan).starts_with("Waiting for the onboarding to be aborted. Deleted: "), "{}", waits(&plan));
    assert!(wishes(&plan).is_empty());
    let aborted = testing().with_condition(types::ONBOARDING, ConditionStatus::False, reasons::ABORTED);
    assert_eq!(wishes(&decide(&stage(), &around(aborted, false, Region::down).await)).len(), 1);
}

#[tokio::test]
async fn an_operator_that_has_just_started_looks_at_nova_before_it_gives_up() {
    let late = |before| seen(None, Some(deleted(hypervisor("hv-1").onboarded(), before).build()));
    assert!(waits(&decide(&stage(), &late(1000))).contains("Waiting for Nova to answer"));
    let plan = decide(&stage(), &late(1801));
    assert_eq!(plan.condition(types::OFFBOARDED).unwrap().reason, reasons::LEFT_BEHIND);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_is_seen_no_host_with_servers_or_a_living_agent_is_taken_out_of_nova(
        terminating in any::<bool>(), managed in any::<bool>(), evicting in any::<Option<bool>>(), pods in any::<bool>(),
        onboarding in any::<bool>(), before in prop::option::of(0..2000_i64), alive in any::<Option<bool>>(),
        servers in 0..2_usize, down in any::<bool>(), in_aggregate in any::<bool>(),
    ) {
        let mut host = hypervisor("hv-1").onboarded();
        if onboarding {
            host = host.onboarding(reasons::TESTING);
        }
        if terminating {
            host = host.in_maintenance(Maintenance::Termination);
        }
        if !managed {
            host = host.unmanaged();
        }
        if let Some(evicting) = evicting {
            host = host.with_condition(types::EVICTING, evicting.into(), reasons::RUNNING);
        }
        if pods {
            host = host.with_condition(types::AGENT_PODS_EVICTED, ConditionStatus::True, reasons::NO_AGENT_PODS);
        }
        if in_aggregate {
            host = host.status(|status| status.aggregates = Some(vec![Aggregate::default()]));
        }
        if let Some(before) = before {
            host = deleted(host, before);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let plan = runtime.block_on(async {
            let mut seen = around(host, false, |region| {
                let region = region.with_servers(servers);
                if down { region.down() } else { region }
            }).await;
            seen.node = alive.map(|alive| Arc::new(if alive {
                node("hv-1").build()
            } else {
                node("hv-1").with_condition(types::TERMINATING, ConditionStatus::True).build()
            }));
            decide(&stage(), &seen)
        });
        let cleans = !plan.actions().is_empty();
        prop_assert!(!cleans || managed && servers == 0 && down, "{:?}", wishes(&plan));
        prop_assert!(!cleans || terminating || before.is_some(), "nobody wanted it gone");
        prop_assert!(!cleans || !onboarding, "a test server may be left");
        if terminating && cleans {
            prop_assert!(evicting == Some(false) && !in_aggregate);
            prop_assert!(pods || alive.is_none());
        }
        if let Some(before) = before {
            let drains = terminating && evicting == Some(true);
            let told = plan.condition(types::OFFBOARDED).map(|it| it.reason.as_str());
            let late = before > 900 && !drains && evicting != Some(false);
            prop_assert!(!late || cleans || plan.held() == Some(false) || told == Some(reasons::LEFT_BEHIND), "it hangs");
        }
    }
}
