//! `x-kubernetes-validations`: CEL rules at the nodes of a schema.

use cel::{Context, ExecutionError};
use serde_json::{Map, Value, json};

use super::cel::{self as expressions, Compiled, convert};
use super::error::{Cause, FieldError};
use super::node::{Node, flag, text};
use super::shape::RESOURCE_FIELDS;
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

/// Compiles the rules of one node.
///
/// `correlated` tells whether the node can be found again in the old object.
pub(super) fn compile(
    schema: &Map<String, Value>,
    node: &Node,
    resource: bool,
    correlated: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Vec<Rule> {
    let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let mut compiled = Vec::new();
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        let path = format!("{path}.x-kubernetes-validations[{index}]");
        match rule.as_object() {
            Some(rule) => compiled.extend(compile_one(rule, node, resource, correlated, &path, errors)),
            None => errors.push(FieldError::required(&format!("{path}.rule"), "")),
        }
    }
    compiled
}

fn compile_one(
    rule: &Map<String, Value>,
    node: &Node,
    resource: bool,
    correlated: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) -> Option<Rule> {
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

/// Evaluates all rules below a node.
pub(super) fn evaluate(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    resource: bool,
    errors: &mut Vec<FieldError>,
) {
    if value.is_null() {
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
            errors.extend(rule.evaluate(node, value, old, path, resource));
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
                    evaluate(inner, field, old, &format!("{path}{dot}{name}"), inner.embedded, errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    // The items of a list that did not change did not change either, keys or not.
                    let old = if unchanged { Some(item) } else { node.old_item(old, item) };
                    evaluate(inner, item, old, &format!("{path}[{index}]"), inner.embedded, errors);
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
    ) -> Option<FieldError> {
        let depth = self.message_expression.as_ref().map_or(0, |message| message.depth).max(self.expression.depth);
        expressions::on_stack_for(depth, || self.evaluate_here(node, value, old, path, resource))
            .unwrap_or_else(|| Some(self.failure(node, path, "the interpreter could not be started")))
    }

    fn evaluate_here(
        &self,
        node: &Node,
        value: &Value,
        old: Option<&Value>,
        path: &str,
        resource: bool,
    ) -> Option<FieldError> {
        let mut misfits = Vec::new();
        let mut context = Context::with_env(expressions::env());
        context.add_variable_from_value("self", convert::value(node, value, resource, &mut misfits));
        if self.uses_old() {
            let old = old.map(|old| convert::value(node, old, resource, &mut misfits));
            match (old, self.optional_old) {
                (old, true) => context.add_variable_from_value("oldSelf", convert::optional(old)),
                (Some(old), false) => context.add_variable_from_value("oldSelf", old),
                (None, false) => return None,
            }
        }
        // The real server converts a field when a rule reads it, and fails the rule then.
        if misfits.iter().any(|name| expressions::mentions(&self.source, name)) {
            return Some(self.failure(node, path, "invalid data, expected int, got float64"));
        }
        match self.expression.program.execute(&context) {
            Ok(cel::Value::Bool(true)) => None,
            Ok(_) => Some(self.violation(node, value, path, &context)),
            Err(error) => Some(match error {
                ExecutionError::NoSuchOverload(_) => {
                    let detail = "'no such overload': call arguments did not match a supported operator, function or macro signature for rule";
                    FieldError::invalid(path, &json!(node.kind.name()), &format!("{detail}: {}", self.name()))
                }
                other => self.failure(node, path, &expressions::describe(&other)),
            }),
        }
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
    fn violation(&self, node: &Node, value: &Value, path: &str, context: &Context<'_, '_>) -> FieldError {
        let expressed = self.message_expression.as_ref().and_then(|message| match message.program.execute(context) {
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
