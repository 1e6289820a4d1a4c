#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Apply bodies and the field sets that kube-apiserver 1.35.8 recorded for them.
fn recorded() -> Vec<(&'static str, Value, Value)> {
    vec![
        (
            "spec",
            json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "n1"},
                   "spec": {"lifecycleEnabled": true, "customTraits": ["CUSTOM_A"]}}),
            json!({"f:spec": {"f:customTraits": {}, "f:lifecycleEnabled": {}}}),
        ),
        (
            "conditions",
            json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "n1"},
                   "status": {"numInstances": 2, "libVirtVersion": "10.0", "conditions": [
                       {"type": "libvirtd.service", "status": "True", "reason": "Running", "message": "x",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            json!({"f:status": {"f:conditions": {"k:{\"type\":\"libvirtd.service\"}": {".": {},
                    "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {}}},
                   "f:libVirtVersion": {}, "f:numInstances": {}}}),
        ),
        (
            "metadata and an empty object",
            json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "n1",
                   "labels": {"a": "1"}, "annotations": {"x/a": "1"}, "finalizers": ["t.io/a"]}, "spec": {}}),
            json!({"f:metadata": {"f:annotations": {"f:x/a": {}}, "f:finalizers": {"v:\"t.io/a\"": {}},
                   "f:labels": {"f:a": {}}}, "f:spec": {}}),
        ),
        (
            "owner references",
            json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction", "metadata": {"name": "own1",
                   "ownerReferences": [{"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "name": "n1",
                                        "uid": "u-1", "controller": true, "blockOwnerDeletion": true}]},
                   "spec": {"hypervisor": "n1", "reason": "r"}}),
            json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"u-1\"}": {}}},
                   "f:spec": {"f:hypervisor": {}, "f:reason": {}}}),
        ),
        (
            "every kind of list and map",
            json!({"apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": "g1"}, "spec": {
                   "atomicList": ["a", "b"], "plainList": ["p"], "setList": ["a", "b"],
                   "mapList": [{"name": "x", "v": 1}, {"name": "y", "v": 2}], "granular": {"a": "1"},
                   "atomicMap": {"a": "1"}, "atomicObj": {"a": "1"}, "open": {"k": {"z": 1}}, "num": 1}}),
            json!({"f:spec": {"f:atomicList": {}, "f:atomicMap": {}, "f:atomicObj": {}, "f:granular": {"f:a": {}},
                   "f:mapList": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:v": {}},
                                 "k:{\"name\":\"y\"}": {".": {}, "f:name": {}, "f:v": {}}},
                   "f:num": {}, "f:open": {"f:k": {".": {}, "f:z": {}}}, "f:plainList": {},
                   "f:setList": {"v:\"a\"": {}, "v:\"b\"": {}}}}),
        ),
    ]
}

fn gadget() -> Shape {
    Shape::default()
        .with("spec.setList", Rule::Set)
        .with("spec.mapList", Rule::Map(vec!["name".into()]))
        .with("spec.atomicMap", Rule::Atomic)
        .with("spec.atomicObj", Rule::Atomic)
}

#[test]
fn the_field_set_of_a_body_is_the_one_the_real_server_records() {
    for (name, body, fields) in recorded() {
        let expected = FieldSet::from_fields_v1(&fields);
        let computed = FieldSet::of(&body, &gadget());
        assert!(computed.same_leaves(&expected), "{name}: {} instead of {fields}", computed.to_fields_v1());
    }
}

#[test]
fn recorded_field_sets_survive_the_round_trip() {
    for (name, _, fields) in recorded() {
        assert_eq!(FieldSet::from_fields_v1(&fields).to_fields_v1(), fields, "{name}");
    }
}

#[test]
fn a_field_more_or_less_is_another_set() {
    let set = |body: Value| FieldSet::of(&body, &Shape::default());
    let base = set(json!({"spec": {"a": 1, "b": {"c": 2}}}));
    assert!(base.same_leaves(&set(json!({"spec": {"a": 9, "b": {"c": 9}}}))), "values do not matter");
    for other in [
        json!({"spec": {"a": 1}}),
        json!({"spec": {"a": 1, "b": {}}}),
        json!({"spec": {"a": 1, "b": {"c": 2, "d": 3}}}),
        json!({"spec": {"a": 1, "b": {"d": 2}}}),
        json!({}),
    ] {
        assert!(!base.same_leaves(&set(other.clone())), "{other}");
    }
}

#[test]
fn nulls_and_empty_lists_by_key_own_nothing() {
    let body = json!({"spec": {"version": null}, "status": {"conditions": []}});
    assert!(FieldSet::of(&body, &Shape::default()).is_empty());
}

#[test]
fn values_match_as_the_server_would_merge_them() {
    let observed = json!({
        "metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"], "resourceVersion": "9"},
        "spec": {"overcommit": {"cpu": 2, "memory": 1.5}, "customTraits": ["A", "B"], "extra": {}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ok"}, {"type": "T", "status": "False"}]},
    });
    for (matching, desired) in [
        (true, json!({"metadata": {"labels": {"a": "1"}}})),
        (false, json!({"metadata": {"labels": {"a": "2"}}})),
        (false, json!({"metadata": {"labels": {"c": "1"}}})),
        (true, json!({"metadata": {"resourceVersion": "8"}})),
        (true, json!({"metadata": {"finalizers": ["y"]}})),
        (false, json!({"metadata": {"finalizers": ["z"]}})),
        (true, json!({"spec": {"overcommit": {"cpu": 2.0}}})),
        (false, json!({"spec": {"overcommit": {"cpu": 2.1}}})),
        (false, json!({"spec": {"overcommit": {"cpu": "2"}}})),
        (true, json!({"spec": {"customTraits": ["A", "B"]}})),
        (false, json!({"spec": {"customTraits": ["B", "A"]}})),
        (false, json!({"spec": {"customTraits": ["A"]}})),
        (true, json!({"spec": {"extra": {}}})),
        (true, json!({"spec": {"absent": null}})),
        (false, json!({"spec": {"absent": {}}})),
        (
            true,
            json!({"status": {"conditions": [{"type": "T", "status": "False"}, {"type": "Ready", "reason": "Ok"}]}}),
        ),
        (false, json!({"status": {"conditions": [{"type": "T", "status": "True"}]}})),
        (false, json!({"status": {"conditions": [{"type": "New", "status": "True"}]}})),
    ] {
        assert_eq!(matches(&desired, &observed, &Shape::default()), matching, "{desired}");
    }
}

#[test]
fn large_integers_are_not_confused_by_rounding() {
    let (a, b) = (json!({"spec": {"n": 9_007_199_254_740_993_i64}}), json!({"spec": {"n": 9_007_199_254_740_992_i64}}));
    assert!(!matches(&a, &b, &Shape::default()));
}

#[test]
fn owned_condition_types_are_found() {
    let (_, _, fields) = recorded().remove(1);
    let owned = FieldSet::from_fields_v1(&fields);
    assert_eq!(owned.item_keys("status.conditions", "type").into_iter().collect::<Vec<_>>(), ["libvirtd.service"]);
    assert!(owned.item_keys("status.other", "type").is_empty());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z.:/]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("spec|status|metadata|conditions|type|finalizers|[a-c]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn everything_matches_itself(value in any_json()) {
        // A list by key whose items have the same key does not exist on a server; the first one stands for all.
        let unique = !value.to_string().contains("conditions");
        prop_assume!(unique);
        prop_assert!(matches(&value, &value, &Shape::default()));
    }

    #[test]
    fn sets_are_idempotent_and_round_trip(a in any_json(), b in any_json()) {
        let (a, b) = (FieldSet::of(&a, &Shape::default()), FieldSet::of(&b, &Shape::default()));
        let mut both = a.clone();
        both.union(&b);
        let mut again = both.clone();
        again.union(&a);
        prop_assert_eq!(&again, &both);
        if !both.is_empty() {
            prop_assert_eq!(&FieldSet::from_fields_v1(&both.to_fields_v1()), &both);
        }
        let mut parts = both.without("spec.a");
        parts.union(&both.under("spec.a"));
        prop_assert!(parts.same_leaves(&both));
    }
}
