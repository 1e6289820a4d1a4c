//! `x-kubernetes-validations`: CEL rules at the nodes of a schema.

use cel::{Context, ExecutionError};
use serde_json::{Map, Value, json};

use super::cel::{self as expressions, Compiled, convert, cost};
use super::error::{Cause, FieldError};
use super::node::{Node, flag, text};
use super::shape::RESOURCE_FIELDS;
use super::structural::Place;
use crate::types::same;

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule {
    source: String,
    expression: Compiled,
    message: String,
    message_expression: Option<Compiled>,
    reason: Cause,
    field_path: String,
    optional_old: bool,
}

/// The most that one rule may cost on the largest object its schema allows.
const RULE_LIMIT: u64 = 10_000_000;
/// The same for all rules of a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// The most that the rules of one write may cost.
pub(super) const REQUEST_LIMIT: u64 = 10_000_000;

/// What the rules of a schema may cost together.
#[derive(Debug, Default)]
pub(super) struct Costs {
    total: u64,
    /// The rules that matter, with their costs.
    expensive: Vec<(u64, String)>,
}

impl Costs {
    fn add(&mut self, cost: u64, field: String, what: &str, errors: &mut Vec<FieldError>) {
        self.total = self.total.saturating_add(cost);
        if cost > RULE_LIMIT {
            errors.push(FieldError::forbidden(&field, &excess(&format!("estimated {what} cost"), cost, RULE_LIMIT)));
        }
        if cost > SCHEMA_LIMIT / 100 {
            self.expensive.push((cost, field));
        }
    }

    /// Refuses rules that are too expensive together.
    pub(super) fn report(mut self, root: &str, errors: &mut Vec<FieldError>) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, field) in self.expensive.iter().take(4) {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(root, &excess(what, self.total, SCHEMA_LIMIT)));
    }
}

/// How far something is above its limit, and what to do about it.
#[allow(clippy::cast_precision_loss)]
fn excess(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        // Not to say "a factor of 1.0".
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Compiles the rules of one node.
pub(super) fn compile(
    schema: &Map<String, Value>,
    node: &Node,
    place: Place,
    path: &str,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) -> Vec<Rule> {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let mut compiled = Vec::new();
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        match rule.as_object() {
            Some(rule) => compiled.extend(compile_one(rule, node, place, &path, costs, errors)),
            None => errors.push(FieldError::required(&format!("{path}.rule"), "")),
        }
    }
    compiled
}

fn compile_one(
    rule: &Map<String, Value>,
    node: &Node,
    place: Place,
    path: &str,
    costs: &mut Costs,
    errors: &mut Vec<FieldError>,
) -> Option<Rule> {
    let Place { resource, correlated, .. } = place;
    let source = text(rule, "rule");
    if source.trim().is_empty() {
        errors.push(FieldError::required(&format!("{path}.rule"), "rule is not specified"));
        return None;
    }
    let optional_old = flag(rule, "optionalOldSelf");
    let scope = expressions::Scope { node, resource, optional_old, names: &[] };
    let mut compile = |name: &str, source: &str| {
        expressions::compile(source, &scope)
            .map_err(|why| {
                let detail = format!("{}: compilation failed: {why}", shown(rule));
                errors.push(FieldError::invalid_omitted(&format!("{path}.{name}"), &detail));
            })
            .ok()
    };
    let expression = compile("rule", source);
    let message = text(rule, "messageExpression");
    let message_expression = if message.is_empty() { None } else { compile("messageExpression", message) };
    if expression.as_ref().is_some_and(|expression| expression.no_bool) {
        let detail = format!("{}: cel expression must evaluate to a bool", shown(rule));
        errors.push(FieldError::invalid_omitted(&format!("{path}.rule"), &detail));
    }
    let times = place.cardinality.unwrap_or_else(|| cost::unbounded(node));
    for (what, compiled) in [("rule", &expression), ("messageExpression", &message_expression)] {
        if let Some(compiled) = compiled {
            costs.add(compiled.cost.saturating_mul(times), format!("{path}.{what}"), what, errors);
        }
    }
    let expression = expression?;
    if expression.uses_old && !correlated {
        let within = path.rsplit_once(".x-kubernetes-validations").map_or(path, |(node, _)| node);
        let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
        errors.push(FieldError::invalid(&format!("{path}.rule"), &json!(source), &detail));
    }
    let reason = match text(rule, "reason") {
        "" | "FieldValueInvalid" => Cause::Invalid,
        "FieldValueForbidden" => Cause::Forbidden,
        "FieldValueRequired" => Cause::Required,
        "FieldValueDuplicate" => Cause::Duplicate,
        other => {
            let supported = ["FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate"];
            let supported: Vec<Value> = supported.into_iter().map(Value::from).collect();
            errors.push(FieldError::not_supported(&format!("{path}.reason"), &json!(other), &supported));
            return None;
        }
    };
    let field_path = text(rule, "fieldPath").trim();
    if !field_path.is_empty() && !refers_to_field(node, field_path) {
        let detail = "fieldPath must be a valid path: does not refer to a valid field";
        errors.push(FieldError::invalid(&format!("{path}.fieldPath"), &json!(field_path), detail));
    }
    Some(Rule {
        source: source.trim().to_owned(),
        expression,
        message: text(rule, "message").trim().to_owned(),
        message_expression,
        reason,
        field_path: field_path.to_owned(),
        optional_old,
    })
}

/// A rule as the real server shows it in a message: the fields in the order of its Go structure.
fn shown(rule: &Map<String, Value>) -> String {
    let field = |name: &str, absent: &Value| rule.get(name).unwrap_or(absent).to_string();
    let (empty, null) = (json!(""), Value::Null);
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        field("rule", &empty),
        field("message", &empty),
        field("messageExpression", &empty),
        field("reason", &null),
        field("fieldPath", &empty),
        field("optionalOldSelf", &null),
    )
}

/// Whether `.a.b` leads through declared properties.
fn refers_to_field(node: &Node, path: &str) -> bool {
    let Some(path) = path.strip_prefix('.') else { return path.starts_with('[') };
    let mut current = Some(node);
    for step in path.split('.') {
        let name = step.split('[').next().unwrap_or_default();
        current = current.and_then(|node| node.field(name));
        if step.contains('[') {
            // Quoted map keys may contain anything; the rest is taken on trust.
            return current.is_some();
        }
    }
    current.is_some()
}

/// What evaluating the rules of one write has come to.
pub(super) struct Verdict {
    pub(super) errors: Vec<FieldError>,
    /// What the other rules may still cost; `None` when it was all spent and no more rules are evaluated.
    pub(super) budget: Option<u64>,
}

/// Evaluates all rules below a node.
pub(super) fn evaluate(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    resource: bool,
    verdict: &mut Verdict,
) {
    if value.is_null() || verdict.budget.is_none() {
        return;
    }
    let unchanged = old.is_some_and(|old| same(old, value));
    if !node.rules.is_empty() {
        // What did not change is tolerated, unless the rule is about change.
        let due = node.rules.iter().filter(|rule| {
            let known = old.is_some() || !rule.uses_old() || rule.optional_old;
            known && (!unchanged || rule.uses_old())
        });
        for rule in due {
            rule.evaluate(node, value, old, path, resource, verdict);
            if verdict.budget.is_none() {
                return;
            }
        }
    }
    match value {
        Value::Object(map) => {
            let dot = if path.is_empty() { "" } else { "." };
            for (name, field) in map {
                if let Some(inner) = node.field(name)
                    && !(resource && RESOURCE_FIELDS.contains(&name.as_str()))
                {
                    let old = old.and_then(|old| old.get(name));
                    evaluate(inner, field, old, &format!("{path}{dot}{name}"), inner.embedded, verdict);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    // The items of a list that did not change did not change either, keys or not.
                    let old = if unchanged { Some(item) } else { node.old_item(old, item) };
                    evaluate(inner, item, old, &format!("{path}[{index}]"), inner.embedded, verdict);
                }
            }
        }
        _ => {}
    }
}

impl Rule {
    fn uses_old(&self) -> bool {
        self.expression.uses_old || self.message_expression.as_ref().is_some_and(|message| message.uses_old)
    }

    fn evaluate(
        &self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        resource: bool,
        verdict: &mut Verdict,
    ) {
        let depth = self.message_expression.as_ref().map_or(0, |message| message.depth).max(self.expression.depth);
        let budget = verdict.budget.unwrap_or_default();
        let judged = expressions::on_stack_for(depth, || self.judge(node, value, old, path, resource, budget));
        let (error, budget) = judged.unwrap_or_else(|| {
            let why = "the interpreter could not be started";
            (Some(self.failure(node, path, why)), Some(budget))
        });
        verdict.errors.extend(error);
        verdict.budget = budget;
    }

    /// What is wrong, and what is left of the budget.
    fn judge(
        &self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        resource: bool,
        budget: u64,
    ) -> (Option<FieldError>, Option<u64>) {
        let mut misfits = Vec::new();
        let this = convert::value(node, value, resource, &mut misfits);
        let old = old.filter(|_| self.uses_old()).map(|old| convert::value(node, old, resource, &mut misfits));
        // The real server converts a field when a rule reads it, and fails the rule then.
        if misfits.iter().any(|name| expressions::mentions(&self.source, name)) {
            return (Some(self.failure(node, path, "invalid data, expected int, got float64")), Some(budget));
        }
        let mut variables = vec![("self", &this)];
        variables.extend(old.as_ref().map(|old| ("oldSelf", old)));
        let Some(cost) = self.expression.affordable(&variables) else {
            let why = format!(
                "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                expressions::TOO_EXPENSIVE,
                self.name()
            );
            return (Some(FieldError::invalid(path, &json!(node.kind.name()), &why)), None);
        };
        let Some(left) = budget.checked_sub(cost) else {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            return (Some(FieldError::invalid(path, &json!(node.kind.name()), why)), None);
        };
        let message = self.message_expression.as_ref();
        let message = message.filter(|message| message.affordable(&variables).is_some());
        let mut context = Context::with_env(expressions::env());
        context.add_variable_from_value("self", this);
        if self.uses_old() {
            match (old, self.optional_old) {
                (old, true) => context.add_variable_from_value("oldSelf", convert::optional(old)),
                (Some(old), false) => context.add_variable_from_value("oldSelf", old),
                (None, false) => return (None, Some(left)),
            }
        }
        let error = match self.expression.program.execute(&context) {
            Ok(cel::Value::Bool(true)) => None,
            Ok(_) => Some(self.violation(node, value, path, message, &context)),
            Err(error) => Some(match error {
                ExecutionError::NoSuchOverload(_) => {
                    let detail = "'no such overload': call arguments did not match a supported operator, function or macro signature for rule";
                    FieldError::invalid(path, &json!(node.kind.name()), &format!("{detail}: {}", self.name()))
                }
                other => self.failure(node, path, &expressions::describe(&other)),
            }),
        };
        (error, Some(left))
    }

    /// How messages refer to the rule.
    fn name(&self) -> &str {
        if self.message.is_empty() { &self.source } else { &self.message }
    }

    /// The rule could not be evaluated.
    fn failure(&self, node: &Node, path: &str, why: &str) -> FieldError {
        FieldError::invalid(path, &json!(node.kind.name()), &format!("{why} evaluating rule: {}", self.name()))
    }

    /// The rule says no.
    fn violation(
        &self,
        node: &Node,
        value: &Value,
        path: &str,
        message: Option<&Compiled>,
        context: &Context<'_, '_>,
    ) -> FieldError {
        let expressed = message.and_then(|message| match message.program.execute(context) {
            Ok(cel::Value::String(text)) => {
                Some(text.trim().to_owned()).filter(|text| !text.is_empty() && !text.contains('\n'))
            }
            _ => None,
        });
        let fixed =
            || if self.message.is_empty() { format!("failed rule: {}", self.source) } else { self.message.clone() };
        let detail = expressed.unwrap_or_else(fixed);
        let field = match self.field_path.strip_prefix('.') {
            Some(below) if path.is_empty() => below.to_owned(),
            Some(below) => format!("{path}.{below}"),
            None => format!("{path}{}", self.field_path.replace('\'', "")),
        };
        match self.reason {
            Cause::Forbidden => FieldError::forbidden(&field, &detail),
            Cause::Required => FieldError::required(&field, &detail),
            Cause::Duplicate => FieldError::duplicate(&field, value),
            _ if matches!(node.kind, super::node::Kind::Object | super::node::Kind::Array) => {
                FieldError::invalid_omitted(&field, &detail)
            }
            _ => FieldError::invalid(&field, value, &detail),
        }
    }
}
