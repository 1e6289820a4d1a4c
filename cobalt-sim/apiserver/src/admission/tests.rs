#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::policy::{Decision, Policy};
use crate::schema::Variables;

fn spec(extra: &Value) -> Value {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"],
        }]},
        "validations": [{"expression": "object.x > 1"}],
    });
    for (name, value) in extra.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

fn about(object: &Value) -> Variables {
    let mut variables = Variables::default();
    variables.add("object", object);
    variables.add("request", &json!({"userInfo": {"username": "u"}}));
    variables
}

fn denied(reason: &str, message: &str) -> Decision {
    Decision::Denied { reason: reason.to_owned(), message: message.to_owned() }
}

#[test]
fn a_failed_validation_denies_with_its_message_and_reason() {
    let policy = Policy::compile(&spec(&json!({}))).unwrap();
    assert_eq!(policy.decide(&about(&json!({"x": 2}))), Decision::Allowed);
    assert_eq!(policy.decide(&about(&json!({"x": 1}))), denied("Invalid", "failed expression: object.x > 1"));
    let validation = json!({
        "expression": "object.x > 1", "message": "fallback", "reason": "Forbidden",
        "messageExpression": "'x is ' + string(object.x)",
    });
    let policy = Policy::compile(&spec(&json!({"validations": [validation]}))).unwrap();
    assert_eq!(policy.decide(&about(&json!({"x": 1}))), denied("Forbidden", "x is 1"));
}

#[test]
fn what_cannot_be_evaluated_is_denied_unless_the_policy_is_lenient() {
    let strict = Policy::compile(&spec(&json!({}))).unwrap();
    let why = "expression 'object.x > 1' resulted in error: no such key: x";
    assert_eq!(strict.decide(&about(&json!({}))), denied("Invalid", why));
    let lenient = Policy::compile(&spec(&json!({"failurePolicy": "Ignore"}))).unwrap();
    assert_eq!(lenient.decide(&about(&json!({}))), Decision::Allowed);
}

#[test]
fn a_condition_that_does_not_hold_skips_the_policy() {
    let condition = json!([{"name": "who", "expression": "request.userInfo.username == 'v'"}]);
    let policy = Policy::compile(&spec(&json!({"matchConditions": condition}))).unwrap();
    assert_eq!(policy.decide(&about(&json!({"x": 0}))), Decision::Allowed);
}

#[test]
fn a_variable_sees_those_before_it() {
    let extra = json!({
        "variables": [
            {"name": "a", "expression": "object.x"},
            {"name": "b", "expression": "variables.a + 1"},
        ],
        "validations": [{"expression": "variables.b == 3"}],
    });
    let policy = Policy::compile(&spec(&extra)).unwrap();
    assert_eq!(policy.decide(&about(&json!({"x": 2}))), Decision::Allowed);
}

#[test]
fn a_policy_that_cannot_be_evaluated_is_refused() {
    let refused = [
        (
            json!({"validations": [{"expression": "authorizer.group('').resource('pods').check('get').allowed()"}]}),
            "spec.validations[0].expression",
        ),
        (json!({"validations": [{"expression": "params.x == 1"}]}), "spec.validations[0].expression"),
        (json!({"validations": [{"expression": "variables.nosuch == 1"}]}), "spec.validations[0].expression"),
        (json!({"validations": [{"expression": "ip(object.x).family() == 4"}]}), "spec.validations[0].expression"),
        (json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}), "spec.paramKind"),
        (json!({"validations": []}), "spec.validations"),
        (json!({"matchConstraints": null}), "spec.matchConstraints"),
    ];
    for (extra, field) in refused {
        let causes = Policy::compile(&spec(&extra)).unwrap_err();
        assert!(causes.iter().any(|cause| cause.field == field), "{extra}: {causes:?}");
    }
}
