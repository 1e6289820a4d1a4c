//! What is too expensive is refused: at registration by the schema, at run time by the values.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::schema::{FieldError, Schema};

fn schema(spec: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

fn list(items: &Value, limits: &Value, rule: &str) -> Value {
    let mut list = json!({"type": "array", "items": items, "x-kubernetes-validations": [{"rule": rule}]});
    for (name, limit) in limits.as_object().unwrap() {
        list[name] = limit.clone();
    }
    schema(&list)
}

fn refusals(schema: &Value) -> Vec<String> {
    let errors = Schema::compile(schema).err().unwrap_or_default();
    errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

#[test]
fn a_rule_that_may_be_quadratic_needs_bounds() {
    let rule = "self.all(a, self.exists_one(b, a == b && a.contains(b)))";
    let text = json!({"type": "string"});
    let refused = refusals(&list(&text, &json!({}), rule));
    assert_eq!(refused.len(), 3, "{refused:?}");
    let place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule";
    assert!(refused[0].starts_with(&format!(
        "{place}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try"
    )));
    assert!(refused[2].contains("estimated rule cost total for entire OpenAPIv3 schema exceeds budget"));
    let bounded = json!({"type": "string", "maxLength": 20});
    assert!(refusals(&list(&bounded, &json!({"maxItems": 50}), rule)).is_empty());
}

#[test]
fn ordinary_rules_need_no_bounds() {
    let text = json!({"type": "string"});
    for rule in ["self.all(x, x.startsWith('a'))", "self.size() < 5", "self.exists(x, x == 'a')", "'a' in self"] {
        assert_eq!(refusals(&list(&text, &json!({}), rule)), Vec::<String>::new(), "{rule}");
    }
}

#[test]
fn a_rule_counts_as_often_as_there_can_be_values_of_its_place() {
    let inner = |most: u64| {
        let rule = json!([{"rule": "self.matches('^[a-z]+$')"}]);
        let text = json!({"type": "string", "maxLength": 256, "x-kubernetes-validations": rule});
        schema(&json!({"type": "array", "maxItems": most, "items": text}))
    };
    assert!(refusals(&inner(1000)).is_empty());
    let refused = refusals(&inner(1_000_000));
    assert!(refused[0].contains("estimated rule cost exceeds budget by factor of"), "{refused:?}");
}

#[test]
fn a_range_without_end_is_refused() {
    let rule = |rule: &str| schema(&json!({"type": "integer", "x-kubernetes-validations": [{"rule": rule}]}));
    assert!(!refusals(&rule("lists.range(self).size() > 0")).is_empty());
    assert!(!refusals(&rule("lists.range(9000000000).size() > 0")).is_empty());
    assert!(refusals(&rule("lists.range(5).all(x, x < self)")).is_empty());
}

fn judged(schema: &Value, spec: &Value) -> Vec<FieldError> {
    let schema = Schema::compile(schema).unwrap();
    schema.validate(&json!({"apiVersion": "a/v1", "kind": "A", "metadata": {}, "spec": spec}), None)
}

/// The bounds of the schema allow for what the values then have to be refused for.
#[test]
fn an_evaluation_that_would_take_too_long_is_not_begun() {
    let rule = "self.all(a, self.all(b, a >= 0 && b >= 0))";
    let ints = list(&json!({"type": "integer"}), &json!({"maxItems": 900}), rule);
    assert!(judged(&ints, &json!((0..100).collect::<Vec<_>>())).is_empty());
    let errors = judged(&ints, &json!((0..900).collect::<Vec<_>>()));
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].message,
        format!(
            "Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
        )
    );
}

#[test]
fn the_rules_of_a_write_share_a_budget() {
    // Each is affordable, all of them are not.
    let rule = json!([{"rule": "self.all(a, self.all(b, a >= 0 && b >= 0))"}]);
    let ints =
        json!({"type": "array", "maxItems": 250, "items": {"type": "integer"}, "x-kubernetes-validations": rule});
    let many = |count: usize| {
        let names = (0..count).map(|index| format!("n{index}"));
        let properties: serde_json::Map<String, Value> = names.map(|name| (name, ints.clone())).collect();
        schema(&json!({"type": "object", "properties": properties}))
    };
    let filled = |count: usize| -> Value {
        (0..count)
            .map(|index| (format!("n{index}"), json!((0..250).collect::<Vec<_>>())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    assert!(judged(&many(2), &filled(2)).is_empty());
    let errors = judged(&many(60), &filled(60));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].message.contains("running out of cost budget"), "{errors:?}");
}

/// What may run at all ends soon, lists that grow step by step included.
#[test]
fn the_most_expensive_evaluations_that_are_allowed_end() {
    let texts: Vec<String> = (0..20_000).map(|index| format!("item-{index}")).collect();
    for rule in [
        "self.map(x, x).size() > 0",
        "self.filter(x, x != '').size() > 0",
        "self.map(x, x + x).map(x, x + x).size() > 0",
        "self.map(x, x.split('-')).size() > 0",
        "self.all(x, x.matches('^[a-z]+-[0-9]+$'))",
        "self.join(',').size() > 0",
        "self.exists_one(x, x == 'item-19999')",
    ] {
        let errors = judged(
            &list(&json!({"type": "string", "maxLength": 10}), &json!({"maxItems": 20_000}), rule),
            &json!(texts),
        );
        assert!(errors.len() < 2, "{rule}: {errors:?}");
    }
}
