//! One policy: compiled from its `spec`, asked about a request.

use serde_json::{Value, json};

use crate::schema::{Expression, Variables};
use crate::status::StatusCause;

/// What conditions may name.
const REQUEST: [&str; 3] = ["object", "oldObject", "request"];
/// What variables, validations and messages may name.
const ALL: [&str; 5] = ["object", "oldObject", "request", "namespaceObject", "variables"];

/// The reasons a denial may have.
const REASONS: [&str; 4] = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];

/// A compiled policy.
#[derive(Debug)]
pub(super) struct Policy {
    conditions: Vec<Expression>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
    /// Expressions that cannot be evaluated count as passed.
    lenient: bool,
}

#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// What a policy says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing against it.
    Allowed,
    /// A validation failed, or could not be evaluated.
    Denied { reason: String, message: String },
}

/// Compiles expressions and collects what is wrong with them.
struct Compiler {
    known: Vec<String>,
    causes: Vec<StatusCause>,
}

impl Compiler {
    fn expression(&mut self, field: &str, source: &str, names: &[&str]) -> Option<Expression> {
        if source.trim().is_empty() {
            self.causes.push(StatusCause::required(field, "expression is not specified"));
            return None;
        }
        let compiled = Expression::compile(source, names);
        let unknown = unknown_variable(source, &self.known);
        let report = match (compiled, unknown) {
            (Err(report), _) => report,
            (_, Some(name)) => format!("ERROR: <input>:1:1: undefined field '{name}'"),
            (Ok(expression), None) => return Some(expression),
        };
        let detail = format!("compilation failed: {report}");
        self.causes.push(StatusCause::invalid(field, &json!(source), &detail));
        None
    }
}

/// The first of the policy's variables that an expression uses and nobody declared.
fn unknown_variable(source: &str, known: &[String]) -> Option<String> {
    let uses = source.split("variables.").skip(1);
    let names = uses.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default());
    names.filter(|name| !name.is_empty()).find(|name| !known.iter().any(|k| k == name)).map(str::to_owned)
}

fn items<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    spec[field].as_array().into_iter().flatten().enumerate()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

impl Policy {
    /// Compiles the `spec` of a policy, or tells all that is wrong with it.
    pub(super) fn compile(spec: &Value) -> Result<Self, Vec<StatusCause>> {
        let mut compiler = Compiler { known: Vec::new(), causes: Vec::new() };
        if !spec["paramKind"].is_null() {
            compiler.causes.push(StatusCause::forbidden("spec.paramKind", "this server evaluates no parameters"));
        }
        let rules = spec["matchConstraints"]["resourceRules"].as_array();
        if spec["matchConstraints"].is_null() {
            compiler.causes.push(StatusCause::required("spec.matchConstraints", ""));
        } else if rules.is_none_or(Vec::is_empty) {
            compiler.causes.push(StatusCause::required("spec.matchConstraints.resourceRules", ""));
        }
        let mut conditions = Vec::new();
        for (index, condition) in items(spec, "matchConditions") {
            let field = format!("spec.matchConditions[{index}].expression");
            conditions.extend(compiler.expression(&field, text(condition, "expression"), &REQUEST));
        }
        let mut variables = Vec::new();
        for (index, variable) in items(spec, "variables") {
            let field = format!("spec.variables[{index}].expression");
            let name = text(variable, "name").to_owned();
            let compiled = compiler.expression(&field, text(variable, "expression"), &ALL);
            // A variable sees those before it.
            compiler.known.push(name.clone());
            variables.extend(compiled.map(|expression| (name, expression)));
        }
        let mut validations = Vec::new();
        for (index, validation) in items(spec, "validations") {
            let field = format!("spec.validations[{index}]");
            validations.extend(Validation::compile(&mut compiler, &field, validation));
        }
        for (index, annotation) in items(spec, "auditAnnotations") {
            let field = format!("spec.auditAnnotations[{index}].valueExpression");
            compiler.expression(&field, text(annotation, "valueExpression"), &ALL);
        }
        if ["validations", "auditAnnotations"].iter().all(|field| spec[field].as_array().is_none_or(Vec::is_empty)) {
            let why = "validations or auditAnnotations must be specified";
            compiler.causes.push(StatusCause::required("spec.validations", why));
        }
        if !compiler.causes.is_empty() {
            return Err(compiler.causes);
        }
        Ok(Self { conditions, variables, validations, lenient: spec["failurePolicy"] == "Ignore" })
    }

    /// Decides about a request.
    pub(super) fn decide(&self, request: &Variables) -> Decision {
        for condition in &self.conditions {
            match condition.holds(request) {
                Ok(true) => {}
                Ok(false) => return Decision::Allowed,
                Err(why) => return self.failure(&why),
            }
        }
        let mut scope = request.clone();
        scope.set_results("variables", &[]);
        let mut results = Vec::new();
        for (name, expression) in &self.variables {
            // One that fails is missed by whoever needs it.
            if let Ok(value) = expression.evaluate(&scope) {
                results.push((name.clone(), value));
                scope.set_results("variables", &results);
            }
        }
        for validation in &self.validations {
            match validation.expression.holds(&scope) {
                Ok(true) => {}
                Ok(false) => {
                    return Decision::Denied { reason: validation.reason.clone(), message: validation.denial(&scope) };
                }
                Err(why) => {
                    let source = validation.expression.source();
                    match self.failure(&format!("expression '{source}' resulted in error: {why}")) {
                        Decision::Allowed => {}
                        denied @ Decision::Denied { .. } => return denied,
                    }
                }
            }
        }
        Decision::Allowed
    }

    fn failure(&self, why: &str) -> Decision {
        if self.lenient {
            return Decision::Allowed;
        }
        Decision::Denied { reason: "Invalid".to_owned(), message: why.to_owned() }
    }
}

impl Validation {
    fn compile(compiler: &mut Compiler, field: &str, validation: &Value) -> Option<Self> {
        let expression = compiler.expression(&format!("{field}.expression"), text(validation, "expression"), &ALL);
        let source = text(validation, "messageExpression");
        let message_expression = if source.is_empty() {
            None
        } else {
            compiler.expression(&format!("{field}.messageExpression"), source, &ALL)
        };
        let reason = match text(validation, "reason") {
            "" => "Invalid",
            reason => reason,
        };
        if !REASONS.contains(&reason) {
            compiler.causes.push(StatusCause::unsupported(format!("{field}.reason"), &json!(reason), &REASONS));
        }
        Some(Self {
            expression: expression?,
            message: text(validation, "message").trim().to_owned(),
            message_expression,
            reason: reason.to_owned(),
        })
    }

    fn denial(&self, scope: &Variables) -> String {
        let expressed = self.message_expression.as_ref().and_then(|expression| expression.text(scope));
        match expressed {
            Some(text) => text,
            None if self.message.is_empty() => format!("failed expression: {}", self.expression.source()),
            None => self.message.clone(),
        }
    }
}

/// What is wrong with the `spec` of a binding.
pub(super) fn binding_causes(spec: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if text(spec, "policyName").is_empty() {
        causes.push(StatusCause::required("spec.policyName", ""));
    }
    if !spec["paramRef"].is_null() {
        causes.push(StatusCause::forbidden("spec.paramRef", "this server evaluates no parameters"));
    }
    let actions: Vec<&str> = items(spec, "validationActions").filter_map(|(_, action)| action.as_str()).collect();
    if actions.is_empty() {
        causes.push(StatusCause::required("spec.validationActions", ""));
    }
    for (index, action) in actions.iter().enumerate() {
        let supported = ["Audit", "Deny", "Warn"];
        if !supported.contains(action) {
            let field = format!("spec.validationActions[{index}]");
            causes.push(StatusCause::unsupported(field, &json!(action), &supported));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        causes.push(StatusCause::invalid("spec.validationActions", &json!(actions), why));
    }
    causes
}
