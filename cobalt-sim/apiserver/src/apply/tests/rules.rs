//! Rules of apply that no recording shows.

use serde_json::{Value, json};

use crate::apply::{ApplyError, WriteInfo, apply, settle, track_update};
use crate::schema::Schema;
use crate::schema::tests::wire::schemas;
use crate::types::builtin;

fn info(manager: &str) -> WriteInfo<'_> {
    WriteInfo { manager, api_version: "wire.test/v1", time: "2026-03-01T00:00:00Z", ..WriteInfo::default() }
}

fn at<'a>(manager: &'a str, time: &'a str) -> WriteInfo<'a> {
    WriteInfo { time, ..info(manager) }
}

fn gadget(spec: &Value) -> Value {
    json!({"apiVersion": "wire.test/v1", "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec})
}

fn gadgets() -> &'static Schema {
    &schemas()["Gadget"]
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().map(|entry| entry["manager"].as_str().unwrap()).collect()
}

#[test]
fn an_apply_by_somebody_else_changes_owners_but_not_the_time_of_the_object() {
    let schema = gadgets();
    let body = gadget(&json!({"num": 1}));
    let first = apply(None, &body, schema.types(), &at("a", "2026-03-01T00:00:00Z"), false).unwrap();
    let second = apply(Some(&first), &body, schema.types(), &at("b", "2026-03-01T00:01:00Z"), false).unwrap();
    assert_eq!(managers(&second), ["b", "a"], "an entry without a time comes first");
    assert!(second["metadata"]["managedFields"][0].get("time").is_none());
    assert!(settle(&first, &mut second.clone()), "a new owner is a change");
}

#[test]
fn entries_that_differ_in_time_only_are_no_change() {
    let schema = gadgets();
    let mut old = gadget(&json!({"num": 1}));
    track_update(None, &mut old, schema.types(), &info("a")).unwrap();
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2026-03-02T00:00:00Z");
    assert!(!settle(&old, &mut new));
    assert_eq!(old, new);
    new["spec"]["num"] = json!(2);
    assert!(settle(&old, &mut new));
}

#[test]
fn a_client_can_edit_the_entries_and_cannot_break_them() {
    let schema = gadgets();
    let mut old = gadget(&json!({"num": 1}));
    track_update(None, &mut old, schema.types(), &info("a")).unwrap();
    let entries = |edit: Value| {
        let mut new = old.clone();
        new["metadata"]["managedFields"] = edit;
        track_update(Some(&old), &mut new, schema.types(), &info("b")).unwrap();
        new
    };
    let renamed = json!([{"manager": "c", "operation": "Apply", "apiVersion": "wire.test/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:num": {}}}}]);
    assert_eq!(managers(&entries(renamed)), ["c"]);
    for broken in [
        json!([]),
        json!([{"manager": "x"}]),
        json!([{"operation": "Apply", "apiVersion": "v", "fieldsType": "No"}]),
        json!([{"operation": "Apply", "apiVersion": "v", "fieldsType": "FieldsV1", "fieldsV1": {"zz": 1}}]),
    ] {
        assert_eq!(managers(&entries(broken)), ["a"], "what cannot be read is ignored");
    }
    assert!(managers(&entries(json!([{}]))).is_empty());
}

#[test]
fn a_subresource_write_cannot_edit_the_entries() {
    let schema = gadgets();
    let mut old = gadget(&json!({"num": 1}));
    track_update(None, &mut old, schema.types(), &info("a")).unwrap();
    let mut new = old.clone();
    new["metadata"]["managedFields"] = json!([{}]);
    new["status"] = json!({"phase": "Up"});
    let on_status = WriteInfo { subresource: Some("status"), reset: &["spec"], ..info("b") };
    track_update(Some(&old), &mut new, schema.types(), &on_status).unwrap();
    assert_eq!(managers(&new), ["a", "b"]);
    assert_eq!(new["metadata"]["managedFields"][1]["subresource"], "status");
}

#[test]
fn only_ten_updaters_are_remembered_by_name() {
    let schema = gadgets();
    let mut object = gadget(&json!({"granular": {"start": "x"}}));
    track_update(None, &mut object, schema.types(), &info("creator")).unwrap();
    for n in 0..12 {
        let (manager, time) = (format!("m{n:02}"), format!("2026-03-01T00:00:{:02}Z", n + 1));
        let mut new = object.clone();
        new["spec"]["granular"][&manager] = json!("x");
        track_update(Some(&object), &mut new, schema.types(), &at(&manager, &time)).unwrap();
        object = new;
    }
    let names = managers(&object);
    assert_eq!(names.len(), 10);
    assert_eq!(names[0], "ancient-changes");
    let folded = &object["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:granular"];
    assert!(folded["f:start"].is_object() && folded["f:m00"].is_object() && folded["f:m02"].is_object());
    assert_eq!(names.last(), Some(&"m11"));
}

#[test]
fn two_owners_of_several_fields_are_listed_one_after_the_other() {
    let schema = gadgets();
    let one = apply(None, &gadget(&json!({"num": 1, "text": "aa"})), schema.types(), &info("one"), false).unwrap();
    let both = apply(Some(&one), &gadget(&json!({"num": 1})), schema.types(), &info("two"), false).unwrap();
    let error = apply(Some(&both), &gadget(&json!({"num": 2, "text": "bb"})), schema.types(), &info("three"), false)
        .unwrap_err();
    let text = "Apply failed with 3 conflicts: conflicts with \"one\":\n- .spec.num\n- .spec.text\nconflicts with \"two\":\n- .spec.num";
    assert_eq!(error.to_string(), text);
    assert_eq!((error.code(), error.category(), error.is_transient()), (409, "conflict", true));
}

#[test]
fn what_does_not_fit_its_type_is_refused_with_every_reason() {
    let schema = gadgets();
    let refused = |spec: Value| apply(None, &gadget(&spec), schema.types(), &info("m"), false).unwrap_err().to_string();
    let prefix = "failed to create typed patch object (/g; wire.test/v1, Kind=Gadget): ";
    for (spec, why) in [
        (json!({"num": "x"}), ".spec.num: expected numeric (int or float), got string"),
        (json!({"text": true}), ".spec.text: expected string, got &value.valueUnstructured{Value:true}"),
        (json!({"nested": [1]}), ".spec.nested: expected map, got &{[1]}"),
        (json!({"setList": {"a": 1}}), ".spec.setList: expected list, got &{map[a:1]}"),
        (json!({"setList": ["a", "a"]}), ".spec.setList: duplicate entries for key [=\"a\"]"),
        (
            json!({"setList": [null]}),
            ".spec.setList: element 0: associative list without keys has an element that's an explicit null",
        ),
        (
            json!({"mapList": [null]}),
            ".spec.mapList: element 0: associative list with keys may not have a null element",
        ),
        (json!({"mapList": [1]}), ".spec.mapList: element 0: associative list with keys may not have non-map elements"),
        (json!({"qty": [1]}), ".spec.qty: expected any scalar, got &{[1]}"),
        (
            json!({"num": "x", "zz": 1}),
            "errors:\n  .spec.num: expected numeric (int or float), got string\n  .spec.zz: field not declared in schema",
        ),
    ] {
        assert_eq!(refused(spec), format!("{prefix}{why}"));
    }
}

#[test]
fn nulls_of_go_clients_in_metadata_mean_nothing() {
    let schema = gadgets();
    let mut body = gadget(&json!({"num": 1}));
    let first = apply(None, &body, schema.types(), &info("m"), false).unwrap();
    body["metadata"]["creationTimestamp"] = Value::Null;
    assert_eq!(apply(Some(&first), &body, schema.types(), &info("m"), false), Ok(first));
}

#[test]
fn giving_up_the_last_field_of_a_structure_somebody_else_claims_is_invalid() {
    // A known weakness of the real server up to 1.35: the emptied structure becomes null.
    let schema = gadgets();
    let mut live = apply(None, &gadget(&json!({"num": 1})), schema.types(), &info("a"), false).unwrap();
    live = apply(Some(&live), &gadget(&json!({})), schema.types(), &info("b"), false).unwrap();
    let mut emptied = apply(Some(&live), &gadget(&json!({})), schema.types(), &info("a"), false).unwrap();
    schema.default_applied(&mut emptied);
    let errors = schema.validate(&emptied, Some(&live));
    assert_eq!(errors[0].to_string(), "spec: Invalid value: \"null\": spec in body must be of type object: \"null\"");
}

#[test]
fn an_object_nobody_owns_belongs_to_the_time_before() {
    let types = builtin("", "ConfigMap").unwrap();
    let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    let body =
        |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": value}});
    let info = WriteInfo { api_version: "v1", ..info("m") };
    let error = apply(Some(&live), &body("2"), types, &info, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a"
    );
    let forced = apply(Some(&live), &body("2"), types, &info, true).unwrap();
    assert_eq!(managers(&forced), ["m", "before-first-apply"]);
}

#[test]
fn entries_in_an_applied_object_are_a_bad_request() {
    let schema = gadgets();
    let mut body = gadget(&json!({}));
    body["metadata"]["managedFields"] = json!([]);
    let error = apply(None, &body, schema.types(), &info("m"), false).unwrap_err();
    assert_eq!(error, ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
}

#[test]
fn objects_nested_too_deeply_are_refused() {
    let schema = gadgets();
    let deep = (0..1000).fold(json!(1), |inner, _| json!({"k": inner}));
    let body = gadget(&json!({"open": deep}));
    assert_eq!(apply(None, &body, schema.types(), &info("m"), false).unwrap_err().code(), 500);
    assert!(track_update(None, &mut body.clone(), schema.types(), &info("m")).is_err());
}

#[test]
fn kubectl_does_not_conflict_with_what_it_applied_on_the_client() {
    let schema = gadgets();
    let applied = |num: i64| gadget(&json!({"num": num, "text": "aa"}));
    let mut live = applied(1);
    live["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": format!("{}\n", applied(1))});
    track_update(None, &mut live, schema.types(), &info("kubectl-client-side-apply")).unwrap();

    let own = apply(Some(&live), &applied(2), schema.types(), &info("kubectl"), false).unwrap();
    assert_eq!(own["spec"]["num"], 2);
    let annotation = &own["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(*annotation, json!(format!("{}\n", applied(2))), "one can still go back");

    let other = apply(Some(&live), &applied(2), schema.types(), &info("somebody"), false).unwrap_err();
    assert_eq!(other.code(), 409);

    let mut scaled = live.clone();
    scaled["spec"]["num"] = json!(7);
    track_update(Some(&live), &mut scaled, schema.types(), &info("scaler")).unwrap();
    let conflict = apply(Some(&scaled), &applied(2), schema.types(), &info("kubectl"), false).unwrap_err();
    assert_eq!(
        conflict.to_string(),
        "Apply failed with 1 conflict: conflict with \"scaler\" using wire.test/v1: .spec.num"
    );
}
