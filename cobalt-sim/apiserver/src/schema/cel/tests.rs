#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::schema::{FieldError, Schema};

/// Evaluates a rule on a spec with a bit of everything.
fn judge(rule: &str, spec: &Value, old: Option<&Value>) -> Result<Vec<String>, Vec<FieldError>> {
    judge_all(&json!([{"rule": rule, "message": "no"}]), spec, old)
}

fn judge_all(rules: &Value, spec: &Value, old: Option<&Value>) -> Result<Vec<String>, Vec<FieldError>> {
    let schema = Schema::compile(&json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "int": {"type": "integer"},
            "num": {"type": "number"},
            "text": {"type": "string"},
            "when": {"type": "string", "format": "date-time"},
            "until": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "span": {"type": "string", "format": "duration"},
            "raw": {"type": "string", "format": "byte"},
            "flag": {"type": "boolean"},
            "list": {"type": "array", "maxItems": 100, "items": {"type": "integer"}},
            "texts": {"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 100}},
            "things": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "number"}},
            "any": {"x-kubernetes-int-or-string": true},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "with-dash": {"type": "string"},
            "namespace": {"type": "string"},
        },
        "x-kubernetes-validations": rules,
    }}}))?;
    let object = |spec: &Value| json!({"metadata": {"name": "n"}, "spec": spec});
    let errors = schema.validate(&object(spec), old.map(object).as_ref());
    Ok(errors.iter().map(ToString::to_string).collect())
}

fn holds(rule: &str, spec: &Value) -> bool {
    match judge(rule, spec, None).unwrap().as_slice() {
        [] => true,
        [only] if only == "spec: Invalid value: no" => false,
        other => panic!("{rule}: {other:?}"),
    }
}

#[test]
fn what_kubernetes_rules_use_works() {
    let spec = json!({
        "int": 3, "num": 2, "text": "Hello", "flag": true, "list": [1, 2, 3], "texts": ["a", "b"], "map": {"cpu": 2, "memory": 1.5},
        "things": [{"name": "x"}, {"name": "y"}], "any": "50%", "with-dash": "d", "namespace": "ns", "raw": "dg==",
    });
    for rule in [
        "has(self.int) && !has(self.when)",
        "self.num >= 1.0 && self.map.all(k, self.map[k] >= 1.0)",
        "self.list.all(x, x > 0) && self.list.exists(x, x == 2) && self.list.exists_one(x, x == 2)",
        "self.list.map(x, x * 2) == [2, 4, 6] && self.list.filter(x, x > 1).size() == 2",
        "size(self.text) == 5 && self.text.size() == 5",
        "self.text.startsWith('He') && self.text.endsWith('lo') && self.text.contains('ell') && self.text.matches('^[A-Z]')",
        "string(self.int) == '3' && int('4') == 4 && double(self.int) == 3.0",
        "'a' in self.texts && 'cpu' in self.map && !('x' in self.map)",
        "self.flag ? self.int == 3 : false",
        "self.list.isSorted() && self.list.sum() == 6 && self.list.min() == 1 && self.list.max() == 3",
        "self.list.indexOf(2) == 1 && self.list.lastIndexOf(9) == -1",
        "self.text.lowerAscii() == 'hello' && self.text.indexOf('l') == 2",
        "self.text.find('l+') == 'll' && self.text.findAll('l') == ['l', 'l']",
        "isIP('10.0.0.1') && !isIP('x') && isURL('https://a/b') && !isURL('a b') && isQuantity('1Gi') && !isQuantity('1 Gi')",
        "self.things.all(t, t.name != '')",
        "type(self.any) == string && self.any.endsWith('%')",
        "self.with__dash__dash == 'd'",
        "self.__namespace__ == 'ns'",
        "self.?text.orValue('x') == 'Hello' && self.?when.orValue('none') == 'none'",
        "self.texts.join(',') == 'a,b' && 'a,b'.split(',') == self.texts && '%s-%d'.format(['x', 3]) == 'x-3'",
        "self.raw == b'v'",
        "math.greatest(1, 2) == 2",
        "{'a': 1}.a == 1",
    ] {
        assert!(holds(rule, &spec), "{rule}");
    }
}

#[test]
fn points_in_time_compare_by_when_they_are() {
    let spec = json!({
        "when": "2026-01-01T01:00:00+01:00", "until": "2026-01-01T00:00:00.5Z", "day": "2026-01-01", "span": "1h",
    });
    for (rule, expected) in [
        ("self.when < self.until", true),
        ("self.when == self.day", true),
        ("self.until <= self.when", false),
        ("self.when == timestamp('2026-01-01T00:00:00Z')", true),
        ("timestamp(string('2026-01-01T00:00:00.500Z')) == self.until", true),
        ("self.when < (has(self.until) ? self.until : self.when)", true),
        ("has(self.span) && self.when in [self.when]", true),
    ] {
        assert_eq!(holds(rule, &spec), expected, "{rule}");
    }
    let got = judge("timestamp('tomorrow') > self.when", &spec, None).unwrap();
    assert_eq!(got, ["spec: Invalid value: \"object\": cannot parse \"tomorrow\" as a timestamp evaluating rule: no"]);
}

#[test]
fn a_rule_that_says_no_says_so() {
    assert!(!holds("self.int == 4", &json!({"int": 3})));
    let rules = json!([{"rule": "self.int == 4"}]);
    assert_eq!(
        judge_all(&rules, &json!({"int": 3}), None).unwrap(),
        ["spec: Invalid value: failed rule: self.int == 4"]
    );
}

#[test]
fn failures_at_run_time_are_named() {
    for (rule, want) in [
        ("self.text == 'x'", "no such key: text evaluating rule: no"),
        ("self.list[5] == 1", "index out of bounds: 5 evaluating rule: no"),
        ("1 / (self.int - 3) == 1", "division by zero evaluating rule: no"),
        ("1 % (self.int - 3) == 1", "modulus by zero evaluating rule: no"),
        ("9223372036854775807 + self.int > 0", "integer overflow evaluating rule: no"),
    ] {
        let got = judge(rule, &json!({"int": 3, "list": [1]}), None).unwrap();
        assert_eq!(got, [format!("spec: Invalid value: \"object\": {want}")], "{rule}");
    }
}

#[test]
fn an_error_beside_a_decisive_operand_does_not_count() {
    assert!(holds("self.text == 'x' || true", &json!({})));
    assert!(holds("!(self.text == 'x' && false)", &json!({})));
    assert!(holds("true || self.text == 'x'", &json!({})));
}

#[test]
fn what_cannot_be_evaluated_is_refused_when_compiled() {
    for (rule, why) in [
        ("self.nosuch == 1", "undefined field 'nosuch'"),
        ("self.open.anything == 1", "undefined field 'anything'"),
        ("self.things.all(t, t.nosuch == 1)", "undefined field 'nosuch'"),
        ("self.things[0].nosuch == 1", "undefined field 'nosuch'"),
        ("nobody == 1", "undeclared reference to 'nobody' (in container '')"),
        ("duration('1h') > duration('1m')", "undeclared reference to 'duration' (in container '')"),
        ("self.span == self.span", "a value of the format 'duration' cannot be evaluated here"),
        ("self.when > '2026-01-01T00:00:00Z'", "found no matching overload for '_>_' applied to '(timestamp, string)'"),
        ("self.when - self.when == 1", "found no matching overload for '_-_' applied to '(timestamp, timestamp)'"),
        ("self.when.startsWith('2026')", "found no matching overload for 'startsWith' applied to 'timestamp.()'"),
        ("string(self.when) == ''", "found no matching overload for 'string' applied to '(timestamp)'"),
        ("self.int == 'three'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.num == 1", "found no matching overload for '_==_' applied to '(double, int)'"),
        ("self.text < 1", "found no matching overload for '_<_' applied to '(string, int)'"),
        ("self.text + 1 == 'x'", "found no matching overload for '_+_' applied to '(string, int)'"),
        ("self.flag && self.int", "found no matching overload for '_&&_' applied to '(bool, int)'"),
        ("!self.text", "found no matching overload for '!_' applied to '(string)'"),
        ("self.things.all(t, t.name == 1)", "found no matching overload for '_==_' applied to '(string, int)'"),
        ("size(self.int) == 1", "found no matching overload for 'size' applied to '(int)'"),
        ("self.text", "cel expression must evaluate to a bool"),
        ("self.int + 1", "cel expression must evaluate to a bool"),
        ("'yes'", "cel expression must evaluate to a bool"),
        ("size(self.list)", "cel expression must evaluate to a bool"),
        ("url(self.text).getHost() == 'a'", "undeclared reference to 'getHost' (in container '')"),
        ("self.text.frobnicate()", "undeclared reference to 'frobnicate' (in container '')"),
        ("self.int.x == 1", "type 'int' does not support field selection"),
        ("Frob{a: 1} == 1", "undeclared reference to 'Frob' (in container '')"),
        ("self.", "compilation failed"),
    ] {
        let errors = judge(rule, &json!({}), None).unwrap_err();
        assert_eq!(errors.len(), 1, "{rule}");
        assert!(errors[0].message.contains(why), "{rule}: {}", errors[0].message);
        assert!(errors[0].field.ends_with("x-kubernetes-validations[0].rule"));
    }
}

#[test]
fn transition_rules_need_an_old_object_unless_they_say_otherwise() {
    let rule = "self.int >= oldSelf.int";
    assert!(judge(rule, &json!({"int": 1}), None).unwrap().is_empty());
    assert_eq!(judge(rule, &json!({"int": 1}), Some(&json!({"int": 2}))).unwrap().len(), 1);
    let optional = json!([{"rule": "oldSelf.hasValue() ? self.int >= oldSelf.value().int : self.int == 0", "optionalOldSelf": true}]);
    assert_eq!(judge_all(&optional, &json!({"int": 1}), None).unwrap().len(), 1);
    assert!(judge_all(&optional, &json!({"int": 0}), None).unwrap().is_empty());
    assert!(judge_all(&optional, &json!({"int": 3}), Some(&json!({"int": 2}))).unwrap().is_empty());
}

#[test]
fn transition_rules_need_a_place_that_can_be_found_again() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "array", "items":
        {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}}});
    let errors = Schema::compile(&schema).unwrap_err();
    let told = "oldSelf cannot be used on the uncorrelatable portion of the schema";
    assert!(errors.iter().any(|error| error.message.contains(told)), "{errors:?}");
}

#[test]
fn reasons_and_paths_are_checked_and_used() {
    let rule =
        |reason: &str, path: &str| json!([{"rule": "false", "message": "no", "reason": reason, "fieldPath": path}]);
    let judged = |reason: &str| judge_all(&rule(reason, ".text"), &json!({}), None).unwrap();
    assert_eq!(judged("FieldValueRequired"), ["spec.text: Required value: no"]);
    assert_eq!(judged("FieldValueForbidden"), ["spec.text: Forbidden: no"]);
    assert_eq!(judged("FieldValueInvalid"), ["spec.text: Invalid value: no"]);
    assert!(judge_all(&rule("Frob", ".text"), &json!({}), None).is_err());
    assert!(judge_all(&rule("FieldValueInvalid", ".nosuch"), &json!({}), None).is_err());
}

#[test]
fn a_message_expression_that_fails_falls_back_to_the_message() {
    let rules = |expression: &str| json!([{"rule": "false", "message": "fixed", "messageExpression": expression}]);
    let judged = |expression: &str| judge_all(&rules(expression), &json!({"int": 3}), None).unwrap();
    assert_eq!(judged("'int is ' + string(self.int)"), ["spec: Invalid value: int is 3"]);
    for useless in ["self.text", "''", "'a\\nb'", "'  '"] {
        assert_eq!(judged(useless), ["spec: Invalid value: fixed"], "{useless}");
    }
}

#[test]
fn monstrous_rules_neither_panic_nor_overflow() {
    let repeated = |part: &str, times: usize| part.repeat(times);
    for rule in [
        format!("{}true{}", repeated("(", 5000), repeated(")", 5000)),
        format!("{}true", repeated("!", 5000)),
        format!("{}1 == 1", repeated("-", 5000)),
        format!("self{}", repeated(".text", 2000)),
        format!("1{} > 0", repeated(" + 1", 3000)),
        format!("true{}", repeated(" && true", 3000)),
        format!("{}true{}", repeated("true ? ", 500), repeated(" : false", 500)),
        format!("{}{}", repeated("[", 3000), repeated("]", 3000)),
        format!("self.list{}.size() == 0", repeated(".map(x, x)", 200)),
        repeated("a", 60_000),
        "\u{0}\u{ffff}'\"".to_owned(),
        "'unterminated".to_owned(),
        "0x".to_owned(),
        "1e999 > 1.0".to_owned(),
        "99999999999999999999 > 1".to_owned(),
    ] {
        let _ = judge(&rule, &json!({"list": [1]}), Some(&json!({"list": [2]})));
    }
}

/// Expressions that mostly parse: operators and functions over what the test schema has.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "self.int",
        "self.num",
        "self.text",
        "self.flag",
        "self.list",
        "self.texts",
        "self.map",
        "self.any",
        "self.raw",
        "self",
        "oldSelf",
        "0",
        "-1",
        "9223372036854775807",
        "1.5",
        "'a'",
        "b'a'",
        "true",
        "null",
        "[]",
        "{}",
        "[1, 'a', null]",
        "{'a': 1}",
        "1u",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let operator = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"]);
        let method = prop::sample::select(vec![
            "size()",
            "startsWith('a')",
            "matches('(')",
            "contains('a')",
            "sum()",
            "min()",
            "isSorted()",
            "indexOf(1)",
            "split('')",
            "substring(1)",
            "charAt(9)",
            "format([1])",
            "join()",
            "reverse()",
            "sort()",
            "distinct()",
            "flatten()",
            "slice(0, 9)",
            "find('a')",
            "all(x, x)",
            "exists_one(x, x == 1)",
            "map(x, x)",
            "filter(x, x)",
            "a",
        ]);
        let function = prop::sample::select(vec![
            "int", "uint", "double", "string", "bool", "bytes", "dyn", "type", "size", "isIP", "-", "!",
        ]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
            (inner.clone(), method).prop_map(|(a, method)| format!("({a}).{method}")),
            (function, inner.clone()).prop_map(|(function, a)| format!("{function}({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn expressions_never_panic(expression in any_expression(), noise in "[a-z(){}\\[\\].,'\"+*/%=<>!&|?: 0-9]{0,40}") {
        let spec = json!({"int": 3, "num": 1.5, "text": "ab", "flag": true, "list": [1, 2], "texts": ["a"], "map": {"a": 1}, "any": 5, "raw": "dg=="});
        for rule in [&expression, &noise] {
            let _ = judge(rule, &spec, Some(&json!({"int": 4})));
        }
    }
}
