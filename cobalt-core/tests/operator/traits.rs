use cobalt_core::{
    api::{
        ConditionStatus, Maintenance, condition_types as types, reasons,
        testing::{HypervisorBuilder, MADE_AT, hypervisor},
    },
    operator::{Outcome, Plan, Traits},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    decide,
    region::{cloud, region, said, wishes},
    seen,
};

#[expect(clippy::unnecessary_wraps, reason = "the shape of the fields it fills")]
fn list(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

async fn look(host: HypervisorBuilder, traits: Option<&[&str]>) -> Plan {
    let host = host.build();
    let mut around = region(&host);
    if let Some(traits) = traits {
        around = around.with_traits(traits);
    }
    decide(&Traits::new(cloud()), &around.around(seen(None, Some(host))).await)
}

fn wanting(names: &[&str]) -> HypervisorBuilder {
    hypervisor("hv-1").onboarded().spec(|spec| spec.custom_traits = list(names))
}

#[tokio::test]
async fn a_host_without_custom_traits_is_up_to_date_as_soon_as_its_traits_were_read() {
    let plan = look(wanting(&[]), Some(&["COMPUTE_NODE"])).await;
    assert_eq!(said(&plan, types::TRAITS_UPDATED).unwrap(), "True/Succeeded");
    assert_eq!((plan.status.traits.clone(), plan.status.applied_traits.clone()), (list(&["COMPUTE_NODE"]), list(&[])));
    assert!(wishes(&plan).is_empty());
    let unread = look(wanting(&[]), None).await;
    assert_eq!(wishes(&unread), ["change the traits of hv-1:"], "its handover does not wait for the round robin");
}

#[tokio::test]
async fn a_thousand_hosts_at_a_start_wait_for_their_turn_to_be_read() {
    let told =
        |host: HypervisorBuilder| host.with_condition(types::TRAITS_UPDATED, ConditionStatus::True, reasons::SUCCEEDED);
    let settled = told(wanting(&["CUSTOM_B", "CUSTOM_A"])).status(|status| {
        status.traits = list(&["COMPUTE_NODE", "CUSTOM_A", "CUSTOM_B"]);
        status.applied_traits = list(&["CUSTOM_A", "CUSTOM_B"]);
    });
    let plan = look(settled.clone(), None).await;
    assert!(wishes(&plan).is_empty());
    assert_eq!(plan.status.traits, None, "what was written stays");
    let changed = look(settled.spec(|spec| spec.custom_traits = list(&["CUSTOM_A"])), None).await;
    assert_eq!(wishes(&changed), ["change the traits of hv-1: +CUSTOM_A -CUSTOM_B"], "something to do is done at once");
}

#[tokio::test]
async fn the_order_of_the_spec_means_nothing() {
    let plan = look(wanting(&["CUSTOM_B", "CUSTOM_A", "CUSTOM_B"]), Some(&["CUSTOM_A", "CUSTOM_B", "HW_X"])).await;
    assert!(wishes(&plan).is_empty());
    assert_eq!(said(&plan, types::TRAITS_UPDATED).unwrap(), "True/Succeeded");
}

#[tokio::test]
async fn only_what_was_applied_is_removed() {
    let recorded = |host: HypervisorBuilder, applied: Option<&[&str]>| {
        host.status(|status| {
            status.traits = list(&["CUSTOM_OLD", "CUSTOM_THEIRS"]);
            status.applied_traits = applied.and_then(list);
        })
    };
    let now: &[&str] = &["CUSTOM_OLD", "CUSTOM_THEIRS", "HW_X"];
    let plan = look(recorded(wanting(&[]), Some(&["CUSTOM_OLD"])), Some(now)).await;
    assert_eq!(wishes(&plan), ["change the traits of hv-1: -CUSTOM_OLD"]);
    let plan = look(recorded(wanting(&[]), None), Some(now)).await;
    let both = ["change the traits of hv-1: -CUSTOM_OLD -CUSTOM_THEIRS"];
    assert_eq!(wishes(&plan), both, "an earlier program took every custom trait for its own");
    let plan = look(recorded(wanting(&[]), Some(&[])), Some(now)).await;
    assert!(wishes(&plan).is_empty());
}

#[tokio::test]
async fn traits_are_for_tested_hosts_in_service() {
    let away = ["HW_X"];
    for (case, host, due) in [
        ("onboarded", wanting(&["CUSTOM_A"]), true),
        ("handover", wanting(&["CUSTOM_A"]).onboarding(reasons::HANDOVER), true),
        ("testing", wanting(&["CUSTOM_A"]).onboarding(reasons::TESTING), false),
        ("not managed", wanting(&["CUSTOM_A"]).unmanaged(), false),
        ("in maintenance", wanting(&["CUSTOM_A"]).in_maintenance(Maintenance::Manual), true),
        ("terminating", wanting(&["CUSTOM_A"]).in_maintenance(Maintenance::Termination), false),
        ("never onboarded", hypervisor("hv-1").registered().spec(|it| it.custom_traits = list(&["CUSTOM_A"])), false),
        ("deleted", wanting(&["CUSTOM_A"]).metadata(|meta| meta.deletion_timestamp = Some(Time(MADE_AT))), false),
    ] {
        let plan = look(host, Some(&away)).await;
        assert_eq!(!wishes(&plan).is_empty(), due, "{case}");
        assert!(plan.condition(types::TRAITS_UPDATED).is_none(), "{case}: not said before it is so");
    }
}

#[tokio::test]
async fn a_change_that_failed_is_said_and_may_have_been_done() {
    let host = wanting(&["CUSTOM_NEW"]).status(|status| status.applied_traits = list(&["CUSTOM_OLD"])).build();
    let mut seen = region(&host).with_traits(&["CUSTOM_OLD"]).around(seen(None, Some(host))).await;
    let stage = Traits::new(cloud());
    let key = decide(&stage, &seen).actions().keys().next().unwrap().clone();
    seen.outcomes.insert(key, Outcome::Failed { category: "timeout", message: "no answer".into() });
    let plan = decide(&stage, &seen);
    assert_eq!(said(&plan, types::TRAITS_UPDATED).unwrap(), "False/Failed");
    assert_eq!(plan.status.applied_traits, list(&["CUSTOM_NEW", "CUSTOM_OLD"]));
    assert!(plan.requeue().is_some());
}

#[tokio::test]
async fn names_that_placement_would_refuse_are_refused_here() {
    let long = format!("CUSTOM_{}", "A".repeat(250));
    let plan = look(wanting(&["CUSTOM_", "CUSTOM_a", "HW_X", &long, "CUSTOM_OK"]), Some(&["CUSTOM_OK"])).await;
    let told = plan.condition(types::TRAITS_UPDATED).unwrap();
    assert_eq!((told.status, told.reason.as_str()), (ConditionStatus::False, reasons::FAILED));
    assert!(told.message.ends_with(&format!("CUSTOM_, {long}, CUSTOM_a, HW_X")), "{}", told.message);
    assert!(wishes(&plan).is_empty());
}
