//! Laws that hold for any input.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::apply::{FieldSet, WriteInfo, apply, track_update, walk};
use crate::schema::tests::wire::{any_json, schemas};
use crate::types::{MapNode, TypeNode, builtin, object_meta};

fn info(manager: &str) -> WriteInfo<'_> {
    WriteInfo { manager, api_version: "v1", time: "2026-03-01T00:00:00Z", ..WriteInfo::default() }
}

/// An object of unknown type with ordinary metadata.
fn untyped() -> TypeNode {
    let fields = [("metadata".to_owned(), object_meta().clone().into())].into();
    TypeNode::Map(MapNode { fields, other: Some(Box::new(TypeNode::Deduced)), atomic: false })
}

/// Specs of the Gadget kind: every type of list and map. None is empty: an empty set or map list is owned by nobody,
/// so that an apply of nothing but such a list is forgotten.
fn any_spec() -> impl Strategy<Value = Value> {
    let letter = || prop::sample::select(vec!["a", "b", "c"]);
    let letters = || prop::collection::btree_set(letter(), 1..4).prop_map(|set| json!(set));
    let map =
        || prop::collection::btree_map(letter().prop_map(str::to_owned), letter(), 1..4).prop_map(|map| json!(map));
    let items =
        prop::collection::btree_map(letter().prop_map(str::to_owned), (0..2_i64, letter()), 1..4).prop_map(|items| {
            let items: Vec<Value> =
                items.into_iter().map(|(name, (v, w))| json!({"name": name, "v": v, "w": w})).collect();
            json!(items)
        });
    let fields = (
        prop::option::of((0..3_i64).prop_map(Value::from)),
        prop::option::of(letters()),
        prop::option::of(letters()),
        prop::option::of(items),
        prop::option::of(map()),
        prop::option::of(map()),
        prop::option::of(any_json().prop_map(|value| json!({"k": value}))),
    );
    fields.prop_map(|(num, set, atomic, items, granular, whole, open)| {
        let names = ["num", "setList", "atomicList", "mapList", "granular", "atomicMap", "open"];
        let values = [num, set, atomic, items, granular, whole, open];
        let fields = names.into_iter().zip(values).filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(fields.collect())
    })
}

fn gadget(spec: &Value) -> Value {
    json!({"apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec})
}

fn set_of(value: &Value) -> FieldSet {
    walk::field_set(&TypeNode::Deduced, value)
}

fn paths(set: &FieldSet) -> BTreeSet<String> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(spec in any_spec()) {
        let schema = &schemas()["Gadget"];
        let once = apply(None, &gadget(&spec), schema.types(), &info("m"), false).unwrap();
        prop_assert_eq!(apply(Some(&once), &gadget(&spec), schema.types(), &info("m"), false).unwrap(), once);
    }

    #[test]
    fn applying_over_others_twice_is_applying_once(first in any_spec(), second in any_spec(), third in any_spec()) {
        let schema = &schemas()["Gadget"];
        // An emptied structure is a null, which validation refuses: such an object is never stored.
        let typed = |spec: &Value| {
            let mut spec = spec.clone();
            spec.as_object_mut().unwrap().remove("open");
            spec
        };
        let (first, second, third) = (typed(&first), typed(&second), typed(&third));
        let run = |live: Option<&Value>, spec: &Value, manager: &str| apply(live, &gadget(spec), schema.types(), &info(manager), true);
        let live = run(None, &first, "a").unwrap();
        let live = run(Some(&live), &second, "b").unwrap();
        let once = run(Some(&live), &third, "a").unwrap();
        prop_assume!(once["spec"].is_object());
        prop_assert_eq!(run(Some(&once), &third, "a").unwrap(), once);
    }

    #[test]
    fn an_applier_alone_gets_exactly_what_it_applies(first in any_spec(), second in any_spec()) {
        let schema = &schemas()["Gadget"];
        let live = apply(None, &gadget(&first), schema.types(), &info("m"), false).unwrap();
        let mut result = apply(Some(&live), &gadget(&second), schema.types(), &info("m"), false).unwrap();
        let alone = apply(None, &gadget(&second), schema.types(), &info("m"), false).unwrap();
        let mut alone = alone;
        for object in [&mut result, &mut alone] {
            crate::apply::managed::strip(object);
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove("open");
            }
        }
        let sets = |object: &Value| {
            let mut spec = object["spec"].clone();
            for list in ["setList", "mapList"] {
                if let Some(items) = spec.get_mut(list).and_then(Value::as_array_mut) {
                    items.sort_by_key(ToString::to_string);
                }
            }
            if spec.is_null() { json!({}) } else { spec }
        };
        prop_assert_eq!(sets(&result), sets(&alone));
    }

    #[test]
    fn apply_and_tracking_never_panic(live in any_json(), body in any_json(), force in any::<bool>()) {
        let schema = &schemas()["Gadget"];
        for types in [schema.types(), builtin("", "Pod").unwrap(), &untyped(), &TypeNode::Deduced, &TypeNode::Opaque] {
            let _ = apply(Some(&live), &body, types, &info("m"), force);
            let _ = apply(None, &body, types, &info("m"), force);
            let _ = track_update(Some(&live), &mut body.clone(), types, &info("m"));
            let _ = track_update(None, &mut body.clone(), types, &info("m"));
        }
    }

    #[test]
    fn a_field_set_survives_the_wire(value in any_json(), spec in any_spec()) {
        let schema = &schemas()["Gadget"];
        for set in [set_of(&value), walk::field_set(schema.types(), &gadget(&spec))] {
            prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), Some(set));
        }
    }

    #[test]
    fn set_operations_agree_with_sets_of_paths(a in any_json(), b in any_json()) {
        let (a, b) = (set_of(&a), set_of(&b));
        let (left, right) = (paths(&a), paths(&b));
        prop_assert_eq!(paths(&a.union(&b)), left.union(&right).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(paths(&a.intersection(&b)), left.intersection(&right).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(paths(&a.difference(&b)), left.difference(&right).cloned().collect::<BTreeSet<_>>());
        prop_assert_eq!(a.len(), left.len());
        prop_assert!(a.without_subtrees(&b).difference(&a).is_empty());
        prop_assert!(a.difference(&a).is_empty() && a.without_subtrees(&a).is_empty());
    }

    #[test]
    fn reading_fields_never_panics(fields in any_json()) {
        let _ = FieldSet::from_fields_v1(&fields);
    }

    #[test]
    fn a_change_is_what_makes_the_difference(a in any_json(), b in any_json()) {
        let changes = walk::compare(&TypeNode::Deduced, &a, &b);
        let unchanged = changes.added.is_empty() && changes.modified.is_empty() && changes.removed.is_empty();
        if crate::types::same(&a, &b) {
            prop_assert!(unchanged);
        }
        let back = walk::compare(&TypeNode::Deduced, &b, &a);
        prop_assert_eq!(changes.added, back.removed);
    }
}
