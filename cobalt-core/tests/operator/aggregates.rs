use cobalt_core::{
    api::{
        Aggregate, ConditionStatus, Maintenance, condition_types as types, labels, reasons,
        testing::{HypervisorBuilder, hypervisor},
    },
    operator::{Aggregates, AggregatesSettings, Outcome, Plan},
};

use super::{
    decide,
    region::{Region, cloud, region, said, wishes},
    seen,
};

fn stage() -> Aggregates {
    Aggregates::new(cloud(), AggregatesSettings::default())
}

fn wanting(names: &[&str]) -> HypervisorBuilder {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    hypervisor("hv-1").onboarded().with_label(labels::ZONE, "z").spec(|spec| spec.aggregates = Some(names))
}

fn recorded(host: HypervisorBuilder, names: &[&str]) -> HypervisorBuilder {
    let one = |name: &&str| Aggregate { name: (*name).into(), uuid: format!("uuid of {name}"), metadata: None };
    host.status(|status| status.aggregates = Some(names.iter().map(one).collect()))
}

async fn look(host: HypervisorBuilder, change: impl FnOnce(Region) -> Region) -> Plan {
    let host = host.build();
    decide(&stage(), &change(region(&host)).around(seen(None, Some(host))).await)
}

fn names(plan: &Plan) -> Option<Vec<String>> {
    Some(plan.status.aggregates.as_ref()?.iter().map(|one| one.name.clone()).collect())
}

#[tokio::test]
async fn the_table() {
    let steps = |step| wanting(&["a"]).onboarding(step);
    let traits =
        |host: HypervisorBuilder| host.with_condition(types::TRAITS_UPDATED, ConditionStatus::True, reasons::SUCCEEDED);
    let evicting = |status: ConditionStatus| {
        wanting(&["a"]).in_maintenance(Maintenance::Termination).with_condition(types::EVICTING, status, "x")
    };
    for (case, host, expected, is_in) in [
        ("initial", steps(reasons::INITIAL), "False/TestAggregates", Some(vec!["z", "tenant_filter_tests"])),
        ("testing", steps(reasons::TESTING), "False/TestAggregates", Some(vec!["z", "tenant_filter_tests"])),
        ("handover", steps(reasons::HANDOVER), "False/WaitingForTraits", Some(vec!["z", "tenant_filter_tests"])),
        ("handover with traits", traits(steps(reasons::HANDOVER)), "True/Succeeded", Some(vec!["a"])),
        ("onboarded", wanting(&["a", "a"]), "True/Succeeded", Some(vec!["a"])),
        ("in maintenance", wanting(&["a"]).in_maintenance(Maintenance::Auto), "True/Succeeded", Some(vec!["a"])),
        ("drained", evicting(ConditionStatus::True), "False/EvictionInProgress", None),
        ("empty", evicting(ConditionStatus::False), "False/Terminating", Some(vec![])),
    ] {
        let all = |region: Region| {
            let region = region.aggregate("a", None, true).aggregate("z", Some("z"), true);
            region.aggregate("tenant_filter_tests", None, true)
        };
        let plan = look(host, all).await;
        assert_eq!(said(&plan, types::AGGREGATES_UPDATED).unwrap(), expected, "{case}");
        let is_in = is_in.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(names(&plan), is_in, "{case}");
        assert!(wishes(&plan).is_empty(), "{case}: what nobody recorded is somebody else's");
    }
}

#[tokio::test]
async fn nothing_is_said_before_it_is_so_nor_of_hosts_that_are_not_ours() {
    let outside = |region: Region| region.aggregate("a", None, false);
    let plan = look(wanting(&["a"]), outside).await;
    assert_eq!(wishes(&plan), ["change the aggregates of hv-1: +a"]);
    assert!(plan.condition(types::AGGREGATES_UPDATED).is_none() && plan.status.aggregates.is_none());
    for (case, host) in [
        ("not managed", wanting(&["a"]).unmanaged()),
        ("never onboarded", hypervisor("hv-1").registered().spec(|it| it.aggregates = Some(vec!["a".into()]))),
        ("unknown to Nova", hypervisor("hv-1").spec(|it| it.aggregates = Some(vec!["a".into()]))),
    ] {
        let plan = look(host, outside).await;
        assert!(wishes(&plan).is_empty() && plan.decided().count() == 0, "{case}");
    }
}

#[tokio::test]
async fn joins_come_first_but_for_a_change_of_zone_and_what_is_not_recorded_stays() {
    let host = recorded(wanting(&["new", "zone-b"]), &["old", "zone-a"]);
    let plan = look(host, |region| {
        let region = region.aggregate("old", None, true).aggregate("zone-a", Some("zone-a"), true);
        let region = region.aggregate("new", None, false).aggregate("zone-b", Some("zone-b"), false);
        region.aggregate("theirs", None, true)
    })
    .await;
    assert_eq!(wishes(&plan), ["change the aggregates of hv-1: +new -zone-a +zone-b -old"]);
}

#[tokio::test]
async fn an_aggregate_that_was_renamed_is_still_the_one_we_joined() {
    let host = recorded(wanting(&["b"]), &["a"]);
    let plan =
        look(host, |region| region.aggregate("a", None, true).aggregate("b", None, true).renamed("a", "a-new")).await;
    assert_eq!(wishes(&plan), ["change the aggregates of hv-1: -a-new"]);
}

#[tokio::test]
async fn half_of_a_change_is_not_made() {
    let plan = look(recorded(wanting(&["a", "missing", "gone"]), &["old"]), |region| {
        region.aggregate("a", None, false).aggregate("old", None, true)
    })
    .await;
    assert!(wishes(&plan).is_empty());
    let told = plan.condition(types::AGGREGATES_UPDATED).unwrap();
    assert_eq!(told.message, "failed to apply aggregates: aggregates not found: [missing gone]");
    assert!(plan.requeue().is_some() && plan.status.aggregates.is_none());
}

#[tokio::test]
async fn a_node_without_a_zone_cannot_be_tested_and_that_is_said() {
    let host = hypervisor("hv-1").onboarding(reasons::INITIAL);
    let plan = look(host, |region| region.aggregate("tenant_filter_tests", None, false)).await;
    let told = plan.condition(types::AGGREGATES_UPDATED).unwrap();
    assert!(told.reason == reasons::FAILED && told.message.contains(labels::ZONE), "{told:?}");
}

#[tokio::test]
async fn after_a_failure_what_was_done_of_it_is_recorded() {
    let host = recorded(wanting(&["b", "c"]), &["a"]).build();
    let around = region(&host).aggregate("a", None, true).aggregate("b", None, true).aggregate("c", None, false);
    let mut seen = around.around(seen(None, Some(host))).await;
    let key = decide(&stage(), &seen).actions().keys().next().unwrap().clone();
    seen.outcomes.insert(key, Outcome::Failed { category: "timeout", message: "no answer".into() });
    let plan = decide(&stage(), &seen);
    assert_eq!(names(&plan).unwrap(), ["b", "a"]);
    assert_eq!(said(&plan, types::AGGREGATES_UPDATED).unwrap(), "False/Failed");
}
