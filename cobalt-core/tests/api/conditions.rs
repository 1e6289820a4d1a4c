//! Conditions follow the conventions of Kubernetes.

use cobalt_core::api::conditions::{MAX_MESSAGE, find, is_false, is_true, remove, set_condition};
use cobalt_core::api::{Condition, ConditionStatus};
use cobalt_core::jiff::{SignedDuration, Timestamp};
use cobalt_core::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

const START: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn after(seconds: i64) -> Timestamp {
    START + SignedDuration::from_secs(seconds)
}

fn ready(status: ConditionStatus, reason: &str) -> Condition {
    Condition::new("Ready", status, reason, "")
}

fn since(conditions: &[Condition]) -> Option<Timestamp> {
    find(conditions, "Ready").unwrap().last_transition_time.as_ref().map(|time| time.0)
}

#[test]
fn a_new_condition_is_a_change_and_gets_a_time() {
    let mut list = Vec::new();
    assert!(set_condition(&mut list, ready(ConditionStatus::True, "Ready"), after(1)));
    assert_eq!(since(&list), Some(after(1)));
}

#[test]
fn the_same_condition_again_is_no_change() {
    let mut list = Vec::new();
    set_condition(&mut list, ready(ConditionStatus::True, "Ready"), START);
    assert!(!set_condition(&mut list, ready(ConditionStatus::True, "Ready"), after(60)));
    assert_eq!(since(&list), Some(START));
}

#[test]
fn a_new_reason_or_generation_is_a_change_that_leaves_the_time_alone() {
    let mut list = Vec::new();
    set_condition(&mut list, ready(ConditionStatus::False, "Onboarding"), START);
    assert!(set_condition(&mut list, ready(ConditionStatus::False, "Evicting"), after(60)));
    assert!(set_condition(&mut list, ready(ConditionStatus::False, "Evicting").observed(Some(2)), after(90)));
    assert_eq!(since(&list), Some(START));
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].observed_generation, Some(2));
}

#[test]
fn a_flip_of_the_status_moves_the_time() {
    let mut list = Vec::new();
    set_condition(&mut list, ready(ConditionStatus::False, "Onboarding"), START);
    assert!(set_condition(&mut list, ready(ConditionStatus::True, "Ready"), after(60)));
    assert_eq!(since(&list), Some(after(60)));
}

#[test]
fn a_time_given_with_a_flip_wins() {
    let mut list = vec![Condition { last_transition_time: Some(Time(START)), ..ready(ConditionStatus::False, "A") }];
    let new = Condition { last_transition_time: Some(Time(after(5))), ..ready(ConditionStatus::True, "B") };
    assert!(set_condition(&mut list, new, after(60)));
    assert_eq!(since(&list), Some(after(5)));
}

#[test]
fn a_condition_that_lost_its_time_gets_one() {
    let mut list = vec![ready(ConditionStatus::True, "Ready")];
    assert!(set_condition(&mut list, ready(ConditionStatus::True, "Ready"), after(60)));
    assert_eq!(since(&list), Some(after(60)));
}

#[test]
fn an_absent_condition_is_neither_true_nor_false() {
    let list = vec![ready(ConditionStatus::Unknown, "NotConfigured")];
    for type_ in ["Ready", "Evicting"] {
        assert!(!is_true(&list, type_) && !is_false(&list, type_));
    }
}

#[test]
fn removing_tells_whether_there_was_something() {
    let mut list = vec![ready(ConditionStatus::True, "Ready")];
    assert!(remove(&mut list, "Ready"));
    assert!(!remove(&mut list, "Ready"));
}

#[test]
fn a_message_too_long_for_the_api_server_is_cut_between_characters() {
    let condition = Condition::new("Ready", ConditionStatus::True, "Ready", "🟢".repeat(MAX_MESSAGE + 1));
    assert_eq!(condition.message.chars().count(), MAX_MESSAGE);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to a list, the time of a condition is that of its last flip, and it survives the wire.
    #[test]
    fn the_time_is_always_that_of_the_last_flip(steps in prop::collection::vec((0..3_usize, 0..3_usize, 0..2_000_000_000_i64), 1..20)) {
        let statuses = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
        let (mut list, mut flip, mut now) = (Vec::new(), None, START);
        for (status, reason, nanos) in steps {
            now += SignedDuration::from_nanos(nanos);
            let new = ready(statuses[status], ["A", "B", "C"][reason]);
            if find(&list, "Ready").is_none_or(|old: &Condition| old.status != new.status) {
                flip = Some(Timestamp::from_second(now.as_second()).unwrap());
            }
            set_condition(&mut list, new.clone(), now);
            prop_assert_eq!(since(&list), flip);
            let read: Vec<Condition> = serde_json::from_str(&serde_json::to_string(&list).unwrap()).unwrap();
            prop_assert_eq!(&read, &list);
            prop_assert!(!set_condition(&mut list, new, now));
        }
    }
}
