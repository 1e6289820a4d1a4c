use std::sync::Arc;

use cobalt_core::{
    api::{
        Condition, ConditionStatus, Eviction, Hypervisor, Maintenance as Mode, condition_types as types, reasons,
        testing::{HypervisorBuilder, MADE_AT, eviction, hypervisor},
    },
    operator::{AgentSeen, MAINTENANCE_REASON, Maintenance, Outcome, Plan, Snapshot},
    runtime::fields::{FieldSet, Shape},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use proptest::prelude::*;
use serde_json::json;

use super::{
    decide,
    region::{Region, client, cloud, region, said, wishes},
    seen,
};

fn stage() -> Maintenance {
    Maintenance::new(cloud(), client())
}

fn ours(mode: &str) -> String {
    format!("{MAINTENANCE_REASON}{mode}")
}

/// With the condition `HypervisorDisabled` ours.
fn owning_disabled(mut seen: Snapshot) -> Snapshot {
    let body = json!({"status": {"conditions": [{"type": types::HYPERVISOR_DISABLED}]}});
    seen.owned_status = FieldSet::of(&body, &Shape::default());
    seen
}

async fn look(host: HypervisorBuilder, change: impl Fn(Region) -> Region) -> Plan {
    let host = host.build();
    let around = change(region(&host));
    decide(&stage(), &owning_disabled(around.around(seen(None, Some(host))).await))
}

fn disabled(status: ConditionStatus, reason: &str) -> HypervisorBuilder {
    hypervisor("hv-1").onboarded().with_condition(types::HYPERVISOR_DISABLED, status, reason)
}

#[tokio::test]
async fn a_service_is_disabled_in_the_words_of_the_mode() {
    for (mode, word) in [(Mode::Manual, "manual"), (Mode::Auto, "auto"), (Mode::Termination, "termination")] {
        let host = || hypervisor("hv-1").onboarded().in_maintenance(mode.clone());
        let wish = format!("disable the compute service of hv-1 with the reason \"{}\"", ours(word));
        for (case, change, wanted) in [
            ("enabled", None, true),
            ("for another mode", Some(ours("ha")), true),
            ("by its own agent", Some("AUTO: no libvirt".to_owned()), true),
            ("as wanted", Some(ours(word)), false),
            ("by a person", Some("broken fan".to_owned()), false),
        ] {
            let reason = change.clone();
            let plan = look(host(), |region| match &reason {
                Some(reason) => region.disabled(Some(reason)),
                None => region,
            })
            .await;
            assert_eq!(wishes(&plan).contains(&wish), wanted, "{mode:?}, {case}");
            let told = said(&plan, types::HYPERVISOR_DISABLED);
            assert_eq!(told.as_deref() == Some("True/Succeeded"), !wanted, "{mode:?}, {case}: said when it is so");
        }
    }
}

#[tokio::test]
async fn out_of_maintenance_only_our_own_words_are_undone() {
    let enable = ["enable the compute service of hv-1"];
    for (case, reason, wanted, told) in [
        ("ours", Some(ours("manual")), true, "False/Succeeded"),
        ("a person's", Some("broken fan".into()), false, "True/DisabledElsewhere"),
        ("without a reason", None, false, "True/DisabledElsewhere"),
        ("its own agent's", Some("AUTO: no libvirt".into()), false, "True/DisabledElsewhere"),
    ] {
        let plan =
            look(disabled(ConditionStatus::False, reasons::SUCCEEDED), |it| it.disabled(reason.as_deref())).await;
        assert_eq!(wishes(&plan) == enable, wanted, "{case}");
        assert_eq!(said(&plan, types::HYPERVISOR_DISABLED).unwrap(), told, "{case}");
    }
}

#[tokio::test]
async fn a_host_that_was_not_tested_is_not_enabled() {
    let marked = |host: HypervisorBuilder| {
        host.with_condition(types::HYPERVISOR_DISABLED, ConditionStatus::True, reasons::SUCCEEDED)
    };
    for (case, host) in [
        ("no onboarding", marked(hypervisor("hv-1").registered())),
        ("testing", marked(hypervisor("hv-1").onboarding(reasons::TESTING))),
        (
            "aborted",
            marked(hypervisor("hv-1").registered()).with_condition(
                types::ONBOARDING,
                ConditionStatus::False,
                reasons::ABORTED,
            ),
        ),
    ] {
        let plan = look(host, |region| region.disabled(Some(&ours("manual"))).forced_down()).await;
        assert!(wishes(&plan).is_empty(), "{case}");
        assert_eq!(said(&plan, types::HYPERVISOR_DISABLED).unwrap(), "True/Succeeded", "{case}");
    }
}

#[tokio::test]
async fn a_host_that_nobody_manages_comes_back_from_the_maintenance_it_was_taken_into() {
    let aborted = || {
        disabled(ConditionStatus::True, reasons::SUCCEEDED).unmanaged().with_condition(
            types::ONBOARDING,
            ConditionStatus::False,
            reasons::ABORTED,
        )
    };
    // Earlier programs say so of a host in service whose management ended.
    let plan = look(aborted(), |region| region.disabled(Some(&ours("manual")))).await;
    assert_eq!(wishes(&plan), ["enable the compute service of hv-1"]);
    for reason in [None, Some("broken fan")] {
        let plan = look(aborted(), |region| region.disabled(reason)).await;
        assert!(wishes(&plan).is_empty(), "what was never enabled is not: {reason:?}");
    }
    let managed = aborted().spec(|spec| spec.lifecycle_enabled = Some(true));
    let plan = look(managed, |region| region.disabled(Some(&ours("manual")))).await;
    assert!(wishes(&plan).is_empty());
    let message = &plan.condition(types::HYPERVISOR_DISABLED).unwrap().message;
    assert_eq!(message, "Hypervisor is disabled, and is not enabled before its onboarding has succeeded");
}

#[tokio::test]
async fn death_by_decree_is_taken_back_on_the_way_out_of_maintenance_only() {
    let ending = look(disabled(ConditionStatus::True, reasons::SUCCEEDED), Region::forced_down).await;
    assert_eq!(wishes(&ending), ["enable the compute service of hv-1"]);
    let at_rest = look(disabled(ConditionStatus::False, reasons::SUCCEEDED), Region::forced_down).await;
    assert!(wishes(&at_rest).is_empty());
}

#[tokio::test]
async fn the_end_of_ha_is_an_end_whatever_its_owner_told_nova() {
    let host = disabled(ConditionStatus::True, "Evacuated").build();
    let around = region(&host).disabled(Some("evacuated by ha")).forced_down();
    let theirs = around.around(seen(None, Some(host))).await;
    assert_eq!(wishes(&decide(&stage(), &theirs)), ["enable the compute service of hv-1"]);
    assert!(wishes(&decide(&stage(), &owning_disabled(theirs))).is_empty(), "but not if we had said it");
}

#[tokio::test]
async fn nothing_is_decided_about_a_region_that_was_not_seen_and_a_failure_is_not_called_done() {
    let host = hypervisor("hv-1").onboarded().in_maintenance(Mode::Manual).build();
    let blind = decide(&stage(), &seen(None, Some(host.clone())));
    assert!(blind.condition(types::HYPERVISOR_DISABLED).is_none());

    let mut seen = region(&host).around(seen(None, Some(host))).await;
    let key = decide(&stage(), &seen).actions().keys().find(|key| key.starts_with("disable")).unwrap().clone();
    let away = cobalt_core::Error::unavailable("disable service 7", "Nova is away (req-1)");
    seen.outcomes.insert(key, Outcome::failed(&away));
    let plan = decide(&stage(), &seen);
    let told = plan.condition(types::HYPERVISOR_DISABLED).unwrap();
    assert_eq!((told.status, told.reason.as_str()), (ConditionStatus::False, reasons::FAILED));
    assert!(told.message.starts_with("Cannot disable it: disable service 7"), "{}", told.message);
    assert!(told.message.ends_with("Nova is away"), "the same at each attempt: {}", told.message);
}

#[tokio::test]
async fn ha_onboarding_and_deletion_are_left_alone() {
    let cases = [
        ("ha", hypervisor("hv-1").onboarded().in_maintenance(Mode::Ha)),
        ("a later word", hypervisor("hv-1").onboarded().in_maintenance(Mode::Other("spare".into()))),
        ("onboarding", hypervisor("hv-1").onboarding(reasons::TESTING).in_maintenance(Mode::Manual)),
        (
            "deleted",
            hypervisor("hv-1")
                .onboarded()
                .in_maintenance(Mode::Manual)
                .metadata(|meta| meta.deletion_timestamp = Some(Time(MADE_AT))),
        ),
        (
            "offboarded",
            hypervisor("hv-1").onboarded().in_maintenance(Mode::Termination).with_condition(
                types::OFFBOARDED,
                ConditionStatus::True,
                reasons::OFFBOARDED,
            ),
        ),
    ];
    for (case, host) in cases {
        let plan = look(host, |region| region).await;
        assert!(wishes(&plan).is_empty() && plan.decided().count() == 0, "{case}");
    }
}

fn owned(eviction: Eviction, uid: &str) -> Eviction {
    let mut eviction = eviction;
    eviction.metadata.owner_references = Some(vec![OwnerReference {
        kind: "Hypervisor".into(),
        name: "hv-1".into(),
        uid: uid.into(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    eviction
}

async fn drained(host: &Hypervisor, eviction: Option<Eviction>, change: impl Fn(Region) -> Region) -> Snapshot {
    let around = change(region(host).disabled(Some(&ours("manual"))));
    let mut seen = around.around(seen(None, Some(host.clone()))).await;
    seen.eviction = eviction.map(Arc::new);
    seen
}

fn told(plan: &Plan) -> (String, Option<bool>) {
    (said(plan, types::EVICTING).unwrap_or_default(), plan.status.evicted)
}

#[tokio::test]
async fn an_eviction_is_mirrored_truthfully() {
    let host = hypervisor("hv-1").onboarded().in_maintenance(Mode::Manual).build();
    let uid = host.metadata.uid.clone().unwrap();
    let blocked = eviction("hv-1").with_condition(types::EVICTING, ConditionStatus::True, reasons::BLOCKED).build();
    for (case, eviction, expected) in [
        ("just made", eviction("hv-1").build(), ("True/Running", Some(false))),
        ("running", eviction("hv-1").running().build(), ("True/Running", Some(false))),
        ("failed", eviction("hv-1").failed().build(), ("True/Failed", Some(false))),
        ("blocked", blocked, ("True/Blocked", Some(false))),
        ("succeeded", eviction("hv-1").succeeded().build(), ("False/Succeeded", Some(true))),
    ] {
        let seen = drained(&host, Some(owned(eviction, &uid)), |region| region).await;
        let plan = decide(&stage(), &seen);
        assert_eq!(told(&plan), (expected.0.to_owned(), expected.1), "{case}");
        assert!(wishes(&plan).is_empty(), "{case}");
    }
    let none = decide(&stage(), &drained(&host, None, |region| region).await);
    assert_eq!(wishes(&none), ["create Eviction hv-1, which moves all instances away"]);
}

#[tokio::test]
async fn an_eviction_of_the_past_or_of_another_host_is_not_believed() {
    let host = hypervisor("hv-1").onboarded().in_maintenance(Mode::Manual).build();
    let past = owned(eviction("hv-1").succeeded().build(), "another life");
    let plan = decide(&stage(), &drained(&host, Some(past), |region| region).await);
    assert_eq!(told(&plan), ("True/Running".into(), Some(false)));
    let mut other = eviction("hv-1").succeeded().build();
    other.spec.hypervisor = "hv-10".into();
    let plan = decide(&stage(), &drained(&host, Some(other), |region| region).await);
    assert_eq!(told(&plan), ("True/Blocked".into(), Some(false)));
}

#[tokio::test]
async fn an_old_look_at_the_region_does_not_undo_a_drain_but_is_repeated() {
    let host = hypervisor("hv-1").onboarded().in_maintenance(Mode::Manual).build();
    let uid = host.metadata.uid.clone().unwrap();
    let over = owned(eviction("hv-1").succeeded().build(), &uid);
    let mut seen = drained(&host, Some(over), |region| region.with_servers(2)).await;
    let plan = decide(&stage(), &seen);
    assert_eq!(told(&plan), ("True/Running".into(), Some(false)));
    let key = plan.actions().keys().next().unwrap().clone();
    assert!(wishes(&plan)[0].starts_with("look for servers"), "{:?}", wishes(&plan));

    seen.outcomes.insert(key, Outcome::Done);
    let plan = decide(&stage(), &seen);
    assert!(wishes(&plan).contains(&"delete Eviction hv-1".to_owned()), "they are there: it begins anew");
    assert_eq!(told(&plan), ("True/Running".into(), Some(false)));
}

#[tokio::test]
async fn a_host_that_libvirt_still_counts_instances_on_is_not_evicted_unless_its_agent_is_dead() {
    let host = hypervisor("hv-1").onboarded().with_instances(1).in_maintenance(Mode::Manual).build();
    let over = owned(eviction("hv-1").succeeded().build(), host.metadata.uid.as_ref().unwrap());
    let mut seen = drained(&host, Some(over), |region| region).await;
    assert_eq!(told(&decide(&stage(), &seen)), ("True/Running".into(), Some(false)));
    seen.agent = AgentSeen::NotYet;
    assert_eq!(told(&decide(&stage(), &seen)), (String::new(), None), "what was said stands until it is heard");
    seen.agent = AgentSeen::Silent;
    assert_eq!(told(&decide(&stage(), &seen)), ("False/Succeeded".into(), Some(true)));
}

#[tokio::test]
async fn a_drain_that_has_just_ended_is_not_begun_anew_at_once() {
    let host = hypervisor("hv-1").onboarded().in_maintenance(Mode::Manual).build();
    let mut over = owned(eviction("hv-1").succeeded().build(), host.metadata.uid.as_ref().unwrap());
    let ended = |over: &mut Eviction, at: &str| {
        let conditions = &mut over.status.as_mut().unwrap().conditions;
        let evicting = conditions.iter_mut().find(|it| it.type_ == types::EVICTING).unwrap();
        evicting.last_transition_time = Some(Time(at.parse().unwrap()));
    };
    for (at, deleted) in [("2026-01-31T23:59:30Z", false), ("2026-01-31T23:59:00Z", true)] {
        ended(&mut over, at);
        let mut seen = drained(&host, Some(over.clone()), |region| region.with_servers(1)).await;
        let look = decide(&stage(), &seen).actions().keys().next().unwrap().clone();
        seen.outcomes.insert(look, Outcome::Done);
        let plan = decide(&stage(), &seen);
        assert_eq!(wishes(&plan).contains(&"delete Eviction hv-1".to_owned()), deleted, "{at}");
        assert_eq!(plan.requeue().is_some(), !deleted, "{at}");
        assert_eq!(told(&plan), ("True/Running".into(), Some(false)), "{at}");
    }
}

#[tokio::test]
async fn at_the_end_our_eviction_goes_and_a_persons_stays() {
    let host = hypervisor("hv-1")
        .onboarded()
        .with_condition(types::EVICTING, ConditionStatus::False, reasons::SUCCEEDED)
        .status(|status| status.evicted = Some(true))
        .build();
    let uid = host.metadata.uid.clone().unwrap();
    let mine = drained(&host, Some(owned(eviction("hv-1").succeeded().build(), &uid)), |region| region).await;
    let plan = decide(&stage(), &mine);
    assert!(wishes(&plan).contains(&"delete Eviction hv-1".to_owned()));
    assert!(plan.is_removed(types::EVICTING) && plan.status.evicted == Some(false));
    let theirs = drained(&host, Some(eviction("hv-1").succeeded().build()), |region| region).await;
    assert!(!wishes(&decide(&stage(), &theirs)).contains(&"delete Eviction hv-1".to_owned()));
}

fn any_host() -> impl Strategy<Value = Hypervisor> {
    let modes = prop::sample::select(vec!["", "manual", "auto", "ha", "termination", "later"]);
    let steps = prop::sample::select(vec![
        None,
        Some((ConditionStatus::True, reasons::TESTING)),
        Some((ConditionStatus::True, reasons::HANDOVER)),
        Some((ConditionStatus::False, reasons::ABORTED)),
        Some((ConditionStatus::False, reasons::SUCCEEDED)),
    ]);
    let words = prop::sample::select(vec![reasons::SUCCEEDED, reasons::FAILED, reasons::DISABLED_ELSEWHERE]);
    let flags = (any::<Option<bool>>(), any::<Option<bool>>(), any::<bool>(), any::<bool>());
    (modes, steps, words, flags).prop_map(|(mode, step, word, (disabled, evicting, registered, leaving))| {
        let mut host = hypervisor("hv-1").in_maintenance(Mode::from(mode));
        if registered {
            host = host.registered();
        }
        if let Some((status, reason)) = step {
            host = host.with_condition(types::ONBOARDING, status, reason);
        }
        if let Some(disabled) = disabled {
            host = host.with_condition(types::HYPERVISOR_DISABLED, disabled.into(), word);
        }
        if let Some(evicting) = evicting {
            host = host.with_condition(types::EVICTING, evicting.into(), reasons::SUCCEEDED);
        }
        if leaving {
            host = host.metadata(|meta| meta.deletion_timestamp = Some(Time(MADE_AT)));
        }
        host.build()
    })
}

fn any_region() -> impl Strategy<Value = (bool, Option<String>, bool, usize, Option<u8>)> {
    let reason = prop::sample::select(vec![None, Some(ours("auto")), Some("AUTO: x".into()), Some("fan".into())]);
    (any::<bool>(), reason, any::<bool>(), 0..2_usize, prop::option::of(0..4_u8))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_is_seen_no_untested_host_is_enabled_and_no_host_with_servers_is_called_empty(
        host in any_host(), (enabled, reason, dead, servers, state) in any_region()
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let plan = runtime.block_on(async {
            let mut around = region(&host).with_servers(servers);
            if !enabled {
                around = around.disabled(reason.as_deref());
            }
            if dead {
                around = around.forced_down();
            }
            let mut seen = owning_disabled(around.around(seen(None, Some(host.clone()))).await);
            let uid = host.metadata.uid.clone().unwrap();
            seen.eviction = state.map(|state| Arc::new(match state {
                0 => owned(eviction("hv-1").running().build(), &uid),
                1 => owned(eviction("hv-1").failed().build(), &uid),
                2 => eviction("hv-1").succeeded().build(),
                _ => owned(eviction("hv-1").succeeded().build(), &uid),
            }));
            decide(&stage(), &seen)
        });
        let tested = host.condition(types::ONBOARDING)
            .is_some_and(|it| it.is_false() && it.reason == reasons::SUCCEEDED);
        let off = host.spec.maintenance().is_off();
        for wish in wishes(&plan) {
            prop_assert!(!wish.starts_with("enable") || tested && off, "{}", wish);
            prop_assert!(!wish.starts_with("disable") || !off, "{}", wish);
            prop_assert!(!wish.starts_with("create") || !off, "{}", wish);
        }
        let decided: Vec<&Condition> = plan.decided().filter(|it| it.type_ == types::EVICTING).collect();
        for evicting in decided {
            prop_assert_eq!(plan.status.evicted, Some(evicting.is_false()));
            prop_assert!(evicting.is_true() || servers == 0);
        }
    }
}
