//! Rules of schemas that no recording shows, and laws that hold for any input.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::wire::{any_json, schemas};
use crate::schema::{Cause, FieldError, Part, Schema};

/// A schema whose spec is this.
fn with_spec(spec: &Value) -> Result<Schema, Vec<FieldError>> {
    Schema::compile(&json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}))
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"}, "spec": spec})
}

fn complaints(schema: &Value, spec: &Value) -> Vec<String> {
    with_spec(schema).unwrap().validate(&object(spec), None).iter().map(ToString::to_string).collect()
}

fn refusals(schema: &Value) -> Vec<String> {
    with_spec(schema).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn limits_are_worded_like_the_real_server() {
    let skipped = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    for (schema, value, want) in [
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            vec!["spec: Invalid value: 4: spec in body should be a multiple of 3"],
        ),
        (
            json!({"type": "number", "maximum": 2, "exclusiveMaximum": true}),
            json!(2),
            vec!["spec: Invalid value: 2: spec in body should be less than 2"],
        ),
        (
            json!({"type": "number", "minimum": 2.5, "exclusiveMinimum": true}),
            json!(2.5),
            vec!["spec: Invalid value: 2.5: spec in body should be greater than 2.5"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            vec!["spec: Too many: 2: must have at most 1 item"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            vec!["spec: Invalid value: 0: spec in body should have at least 1 items"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
            json!({}),
            vec!["spec: Invalid value: 0: spec in body should have at least 1 properties"],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            vec!["spec: Unsupported value: \"c\": supported values: \"a\", \"b\"", skipped],
        ),
        (
            json!({"type": "string", "not": {"enum": ["a"]}}),
            json!("a"),
            vec!["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)"],
        ),
        (
            json!({"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": 3}]}),
            json!(2),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({"type": "integer", "allOf": [{"minimum": 3}]}),
            json!(2),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf)",
                "spec: Invalid value: 2: spec in body should be greater than or equal to 3",
            ],
        ),
        (json!({"type": "string", "nullable": true}), json!(null), vec![]),
        (json!({"type": "integer"}), json!(2.0), vec![]),
    ] {
        assert_eq!(complaints(&schema, &value), want, "{schema} {value}");
    }
}

#[test]
fn earlier_problems_come_first_and_can_keep_rules_from_running() {
    let schema = with_spec(&json!({"type": "object", "x-kubernetes-validations": [{"rule": "false"}]})).unwrap();
    let earlier = vec![FieldError::required("metadata.name", "name or generateName is required")];
    let errors = schema.validate_part(Part::Whole, &object(&json!({})), None, earlier);
    let causes: Vec<Cause> = errors.iter().map(|error| error.reason).collect();
    assert_eq!(causes, [Cause::Required, Cause::Invalid]);
    assert_eq!(errors[1].field, "<nil>");
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    for (schema, want) in [
        (json!({}), format!("{at}.type: Required value: must not be empty for specified object fields")),
        (
            json!({"type": "frob"}),
            format!(
                "{at}.type: Unsupported value: \"frob\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\""
            ),
        ),
        (
            json!({"type": "array", "items": {}}),
            format!("{at}.items.type: Required value: must not be empty for specified array items"),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            format!("{at}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            format!(
                "{at}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            ),
        ),
        (
            json!({"type": "integer", "default": "x"}),
            format!("{at}.default: Invalid value: \"string\":  in body must be of type integer: \"string\""),
        ),
    ] {
        assert_eq!(refusals(&schema), [want], "{schema}");
    }
    let pattern = refusals(&json!({"type": "string", "pattern": "("}));
    assert!(
        pattern[0].starts_with(&format!("{at}.pattern: Invalid value: \"(\": must be a valid regular expression")),
        "{pattern:?}"
    );
    let root = Schema::compile(&json!({"type": "string"})).unwrap_err();
    assert_eq!(
        root[0].to_string(),
        "spec.validation.openAPIV3Schema.type: Invalid value: \"string\": must be object at the root"
    );
    assert!(Schema::compile(&json!(null)).is_err());
}

#[test]
fn unchanged_parts_are_tolerated_and_changed_ones_are_not() {
    let strict = json!({"type": "object", "properties": {
        "text": {"type": "string", "maxLength": 1},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items":
            {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
        "other": {"type": "string"},
    }, "x-kubernetes-validations": [{"rule": "!has(self.other) || self.other != 'bad'", "message": "no"}]});
    let schema = with_spec(&strict).unwrap();
    let old = object(&json!({"text": "long", "items": [{"name": "a", "v": 5}, {"name": "b", "v": 1}]}));
    let with = |text: &str, a: i64, b: i64| {
        object(&json!({"text": text, "other": "x", "items": [{"name": "b", "v": b}, {"name": "a", "v": a}]}))
    };
    assert_eq!(schema.validate(&with("long", 5, 1), Some(&old)), []);
    assert_eq!(schema.validate(&with("longer", 5, 1), Some(&old)).len(), 2);
    assert_eq!(schema.validate(&with("long", 6, 1), Some(&old))[0].field, "spec.items[1].v");
    let bad = object(&json!({"other": "bad"}));
    assert_eq!(schema.validate(&bad, Some(&bad)), [], "a rule on what did not change");
    assert_eq!(schema.validate(&bad, None).len(), 1);
}

#[test]
fn old_duplicates_are_tolerated() {
    let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let schema = with_spec(&set).unwrap();
    let twice = object(&json!(["a", "a"]));
    assert_eq!(schema.validate(&twice, None)[0].reason, Cause::Duplicate);
    assert_eq!(schema.validate(&object(&json!(["a", "a", "b"])), Some(&twice)), []);
}

#[test]
fn embedded_objects_keep_their_metadata() {
    let schema = with_spec(
        &json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"x": {"type": "string"}}}),
    )
    .unwrap();
    let mut value =
        object(&json!({"apiVersion": "v1", "kind": "K", "metadata": {"labels": {"a": "b"}}, "x": "1", "y": 2}));
    assert_eq!(schema.prune(&mut value), ["spec.y"]);
    assert_eq!(value["spec"]["metadata"]["labels"]["a"], "b");
}

#[test]
fn too_deep_an_object_is_an_error_and_is_not_touched() {
    let schema = &schemas()["Gadget"];
    let deep = (0..1000).fold(json!(1), |inner, _| json!({"k": inner}));
    let mut value = object(&json!({"open": deep}));
    assert!(schema.prune(&mut value).is_empty());
    schema.default(&mut value);
    assert!(value["spec"].get("mode").is_none());
    assert_eq!(schema.validate(&value, None).len(), 1);
}

#[test]
fn schemas_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Schema>();
}

/// Objects that look a little like what the schemas want.
fn any_object() -> impl Strategy<Value = Value> {
    let names = [
        "num",
        "text",
        "mode",
        "nullable",
        "nested",
        "nodefault",
        "setList",
        "mapList",
        "map2List",
        "granular",
        "atomicObj",
        "open",
        "qty",
        "when",
        "groups",
        "overcommit",
        "maintenance",
        "conditions",
        "instances",
        "capacity",
        "hypervisor",
        "unknown",
    ];
    let part =
        || prop::collection::btree_map(prop::sample::select(names.to_vec()).prop_map(str::to_owned), any_json(), 0..6);
    (part(), part()).prop_map(|(spec, status)| json!({"metadata": {"name": "n"}, "spec": spec, "status": status}))
}

/// Schemas made of the words that mean something.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "object",
            "array",
            "string",
            "integer",
            "map",
            "set",
            "atomic",
            "(",
            "self.a == oldSelf.a",
            "date-time"
        ])
        .prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        (-1..3_i64).prop_map(Value::from),
        Just(json!([{"rule": "self.a > 1", "messageExpression": "string(self.a)", "fieldPath": ".a"}])),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let word = prop::sample::select(vec![
            "type",
            "properties",
            "items",
            "additionalProperties",
            "a",
            "b",
            "required",
            "default",
            "enum",
            "pattern",
            "format",
            "minimum",
            "multipleOf",
            "maxLength",
            "anyOf",
            "not",
            "nullable",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-int-or-string",
            "x-kubernetes-validations",
            "x-kubernetes-map-type",
        ]);
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            4 => prop::collection::btree_map(word.prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_twice_is_doing_it_once(object in any_object()) {
        for schema in schemas().values() {
            let mut once = object.clone();
            schema.prune(&mut once);
            let mut twice = once.clone();
            prop_assert!(schema.prune(&mut twice).is_empty());
            prop_assert_eq!(&twice, &once);
            schema.default(&mut once);
            let mut twice = once.clone();
            schema.default(&mut twice);
            prop_assert_eq!(&twice, &once);
            prop_assert!(schema.prune(&mut twice).is_empty(), "defaults are within the schema");
        }
    }

    #[test]
    fn an_unchanged_object_is_always_valid(object in any_object()) {
        for kind in ["Gadget", "Hypervisor"] {
            let errors = schemas()[kind].validate(&object, Some(&object));
            // Transition rules speak about unchanged objects too, and may stumble over them.
            prop_assert!(errors.iter().all(|error| error.message.contains("evaluating rule") || error.message.contains("did not match")), "{errors:?}");
        }
    }

    #[test]
    fn nothing_panics(object in prop_oneof![any_object(), any_json()], old in prop_oneof![any_object(), any_json()]) {
        for schema in schemas().values() {
            for part in [Part::Whole, Part::Status] {
                schema.validate_part(part, &object, Some(&old), Vec::new());
                schema.validate_part(part, &object, None, Vec::new());
            }
            let mut object = object.clone();
            schema.prune(&mut object);
            schema.default(&mut object);
            schema.default_applied(&mut object);
        }
    }

    #[test]
    fn compiling_never_panics(schema in any_schema(), object in any_json()) {
        for schema in [schema.clone(), json!({"type": "object", "properties": {"a": schema}})] {
            if let Ok(schema) = Schema::compile(&schema) {
                schema.validate(&object, None);
                schema.validate(&object, Some(&object));
            }
        }
    }
}
