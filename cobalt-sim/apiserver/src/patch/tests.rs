#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PatchError, json as json_patch, merge, strategic};
use crate::schema::tests::wire::{PATCH, Stored, Tally, Write, any_json, any_json_object, records, schemas};
use crate::types::{TypeNode, builtin, same};

fn merged(target: &Value, patch: &Value) -> Value {
    let mut result = target.clone();
    merge(&mut result, patch);
    result
}

#[test]
fn the_examples_of_rfc_7386_hold() {
    for (target, patch, want) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merged(&target, &patch), want, "{target} {patch}");
    }
}

#[test]
fn json_patch_replaces_what_is_missing_but_does_not_remove_it() {
    let object = json!({"a": {}, "l": [1, 2]});
    let run = |operation: Value| json_patch(&object, &json!([operation]));
    assert_eq!(run(json!({"op": "replace", "path": "/a/x", "value": 1})).unwrap()["a"]["x"], 1);
    assert_eq!(run(json!({"op": "remove", "path": "/a/x"})), Err(PatchError::Rejected));
    assert_eq!(run(json!({"op": "replace", "path": "/l/2", "value": 1})), Err(PatchError::Rejected));
    assert_eq!(run(json!({"op": "add", "path": "/l/2", "value": 3})).unwrap()["l"], json!([1, 2, 3]));
    assert_eq!(run(json!({"op": "add", "path": "/l/-1", "value": 3})).unwrap()["l"], json!([1, 2, 3]));
    assert_eq!(run(json!({"op": "remove", "path": "/l/-1"})).unwrap()["l"], json!([1]));
    assert_eq!(run(json!({"op": "add", "path": "/l/9", "value": 3})), Err(PatchError::Rejected));
    assert_eq!(run(json!({"op": "add", "path": "", "value": 3})), Err(PatchError::Rejected));
    assert_eq!(run(json!({"op": "test", "path": "/a/x", "value": null})), Ok(object.clone()));
    assert_eq!(run(json!({"op": "test", "path": "/l/0", "value": 1.0})), Ok(object.clone()));
}

#[test]
fn a_json_patch_has_bounds() {
    let object = json!({"a": {"b": 1}});
    let many: Vec<Value> = (0..10_001).map(|_| json!({"op": "test", "path": "/a/b", "value": 1})).collect();
    assert_eq!(json_patch(&object, &json!(many)).map_err(|error| error.code()), Err(413));
    // Each copy of the parent into its child doubles the document.
    let doubling: Vec<Value> =
        (0..64).map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/{n}")})).collect();
    assert_eq!(json_patch(&object, &json!(doubling)), Err(PatchError::Rejected));
}

#[test]
fn patches_nested_without_end_do_not_overflow() {
    let deep = (0..500).fold(json!(1), |inner, _| json!({"k": inner}));
    assert_eq!(merged(&deep, &deep), deep);
    assert!(strategic(&deep, &deep, builtin("", "Pod").unwrap()).is_err());
}

#[test]
fn what_is_no_patch_is_a_bad_request() {
    let pod = builtin("", "Pod").unwrap();
    let errors = [
        json_patch(&json!({}), &json!({"op": "add"})).unwrap_err(),
        strategic(&json!({}), &json!([1]), pod).unwrap_err(),
    ];
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ]
    );
    assert!(errors.iter().all(|error| error.code() == 400 && !error.is_transient()));
}

fn pod_with(containers: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})
}

fn patched_containers(before: &Value, patch: &Value) -> Result<Value, PatchError> {
    let spec = json!({"spec": {"containers": patch}});
    strategic(&pod_with(before), &spec, builtin("", "Pod").unwrap()).map(|pod| pod["spec"]["containers"].clone())
}

#[test]
fn list_directives_steer_a_strategic_merge() {
    let before = json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]);
    let replace = json!([{"$patch": "replace"}, {"name": "c"}]);
    assert_eq!(patched_containers(&before, &replace).unwrap(), json!([{"name": "c"}]));
    let delete = json!([{"$patch": "delete", "name": "a"}]);
    assert_eq!(patched_containers(&before, &delete).unwrap(), json!([{"name": "b", "image": "1"}]));
    let unknown = json!([{"$patch": "frob", "name": "a"}]);
    assert_eq!(patched_containers(&before, &unknown).unwrap_err().code(), 500);
    let keyless = patched_containers(&before, &json!([{"image": "x"}])).unwrap_err();
    assert_eq!(keyless.to_string(), "map: map[image:x] does not contain declared merge key: name");
}

#[test]
fn maps_can_be_replaced_or_emptied() {
    let types = builtin("", "ConfigMap").unwrap();
    let object = json!({"data": {"a": "1", "b": "2"}});
    let run = |patch: Value| strategic(&object, &patch, types).unwrap();
    assert_eq!(run(json!({"data": {"$patch": "replace", "c": "3"}})), json!({"data": {"c": "3"}}));
    assert_eq!(run(json!({"data": {"$patch": "delete"}})), json!({"data": {}}));
    assert_eq!(run(json!({"data": {"$retainKeys": ["b"], "b": "3"}})), json!({"data": {"b": "3"}}));
    assert_eq!(run(json!({"binaryData": {"$patch": "replace", "x": "AA=="}})), object);
    assert_eq!(run(json!({"binaryData": {"x": null}})), json!({"data": {"a": "1", "b": "2"}, "binaryData": {}}));
}

/// Everything in `part` is in `whole`; what only `whole` has is the server's doing (defaults).
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(name, value)| {
            // Values that Go leaves out when it writes an object.
            let empty = matches!(value, Value::Null | Value::Bool(false)) || *value == json!({}) || *value == json!([]);
            whole.get(name).map_or(empty, |whole| covers(whole, value))
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| covers(whole, part))
        }
        _ => same(whole, part),
    }
}

#[test]
fn recorded_patches_of_built_in_kinds_give_the_recorded_objects() {
    let schemas = schemas();
    let (mut stored, mut tally) = (Stored::default(), Tally::default());
    for record in &records(PATCH) {
        if let Some(write) = Write::of(record)
            && let (Some(types), Some(live)) = (write.types(), stored.get(&write))
            && !schemas.contains_key(&write.kind)
            && write.method == "PATCH"
            && write.code < 300
        {
            let mut result = match write.media {
                media if media.contains("strategic") => strategic(live, &write.sent, types).unwrap(),
                media if media.contains("merge") => merged(live, &write.sent),
                _ => json_patch(live, &write.sent).unwrap(),
            };
            result["metadata"] = json!({
                "labels": result["metadata"]["labels"],
                "finalizers": result["metadata"]["finalizers"],
                "ownerReferences": result["metadata"]["ownerReferences"],
            });
            for reset in write.info().reset {
                result[*reset] = live[*reset].clone();
            }
            tally.note(write.id, covers(write.answer, &result), &result, write.answer);
        }
        stored.note(record);
    }
    tally.expect("patches", 35);
}

/// Patches made of the words that mean something.
fn any_patch() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "spec",
        "metadata",
        "containers",
        "name",
        "image",
        "env",
        "labels",
        "finalizers",
        "volumes",
        "a",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$deleteFromPrimitiveList/finalizers",
        "$setElementOrder/finalizers",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        prop::sample::select(vec!["a", "b", "delete", "replace", "merge"]).prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn merging_twice_is_merging_once(target in any_json(), patch in any_json()) {
        let once = merged(&target, &patch);
        prop_assert_eq!(merged(&once, &patch), once);
    }

    #[test]
    fn an_empty_merge_changes_no_object(target in any_json_object()) {
        prop_assert_eq!(merged(&target, &json!({})), target);
    }

    #[test]
    fn what_was_added_can_be_tested_and_removed(object in any_json_object(), value in any_json()) {
        let patch = json!([
            {"op": "add", "path": "/new~0~1", "value": value},
            {"op": "test", "path": "/new~0~1", "value": value},
            {"op": "remove", "path": "/new~0~1"},
        ]);
        prop_assert_eq!(json_patch(&object, &patch), Ok(object));
    }

    #[test]
    fn json_patches_never_panic(object in any_json(), path in "(/(a|b|0|1|-|-1|~0|~1|~2)?){0,3}", op in "add|remove|replace|test|move|copy|x") {
        let patch = json!([{"op": op, "path": path, "from": "/a", "value": 1}, {"op": op, "path": "/a", "from": path}]);
        let _ = json_patch(&object, &patch);
    }

    #[test]
    fn strategic_merges_never_panic(object in any_patch(), patch in any_patch()) {
        for types in [builtin("", "Pod").unwrap(), &TypeNode::Deduced] {
            let _ = strategic(&object, &patch, types);
        }
    }
}
