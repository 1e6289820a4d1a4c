//! What the real compiler refuses and ours would only notice when a rule runs: unknown functions, unknown
//! variables, fields the schema does not declare.

use cel::Program;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, SelectExpr};

use super::convert::{self, escape};
use super::types::{self, Known};
use crate::schema::node::{Kind, Node};
use crate::schema::shape::RESOURCE_FIELDS;

/// What a rule is attached to.
pub(in crate::schema) struct Scope<'a> {
    /// The schema of `self`.
    pub(in crate::schema) node: &'a Node,
    /// `self` is a whole object.
    pub(in crate::schema) resource: bool,
    /// `oldSelf` is an optional.
    pub(in crate::schema) optional_old: bool,
    /// Variables of any type there are instead of `self` and `oldSelf`; none in rules of a schema.
    pub(in crate::schema) names: &'a [&'a str],
}

/// Functions, methods and the internal names macros expand to.
const FUNCTIONS: &[&str] = &[
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "type",
    "uint",
    // optionals
    "hasValue",
    "none",
    "of",
    "ofNonZeroValue",
    "or",
    "orValue",
    "value",
    // strings
    "charAt",
    "format",
    "indexOf",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "quote",
    "replace",
    "reverse",
    "split",
    "substring",
    "trim",
    "upperAscii",
    // lists
    "distinct",
    "flatten",
    "isSorted",
    "max",
    "min",
    "range",
    "slice",
    "sort",
    "sum",
    // math
    "abs",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "ceil",
    "floor",
    "isFinite",
    "isInf",
    "isNaN",
    "round",
    "sign",
    "sqrt",
    "trunc",
    // Kubernetes
    "find",
    "findAll",
    "isIP",
    "isQuantity",
    "isURL",
    // Points in time can be compared and nothing else.
    "timestamp",
];

pub(super) const NAMESPACES: [&str; 4] = ["lists", "math", "optional", "strings"];
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"];

/// What a check finds out on its way.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) uses_old: bool,
    /// Its value is known to be something else than a bool.
    pub(super) no_bool: bool,
    pub(super) depth: usize,
}

/// Walks a program: what was found, or the report of what is wrong.
pub(super) fn check(program: &Program, source: &str, scope: &Scope<'_>) -> Result<Findings, String> {
    let mut checker =
        Checker { program, source, scope, findings: Findings::default(), depth: 0, variables: Vec::new() };
    let whole = program.expression();
    let known = checker.expression(whole)?;
    checker.findings.no_bool = match (&whole.expr, known) {
        (Expr::List(_) | Expr::Map(_), _) => true,
        (_, Known::Schema(node, _)) if matches!(node.kind, Kind::Array | Kind::Object) => true,
        (_, known) => types::name(known).is_some_and(|name| name != "bool"),
    };
    Ok(checker.findings)
}

struct Checker<'a> {
    program: &'a Program,
    source: &'a str,
    scope: &'a Scope<'a>,
    findings: Findings,
    depth: usize,
    /// The variables of enclosing comprehensions, innermost last.
    variables: Vec<(&'a str, Known<'a>)>,
}

impl<'a> Checker<'a> {
    /// A report that points into the source, as cel-go prints it.
    fn report(&self, id: u64, name: &str, message: &str) -> String {
        let start = self.program.source_info().offset_for(id).map_or(0, |(start, _)| start as usize);
        // The position of a selection is that of its dot.
        let tail = self.source.get(start..).unwrap_or_default();
        let at = tail.find(&format!(".{name}")).filter(|_| !name.is_empty()).map_or(start, |dot| start + dot);
        let before = self.source.get(..at).unwrap_or_default();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let text = self.source.lines().nth(line).unwrap_or_default();
        format!("ERROR: <input>:{}:{}: {message}\n | {text}\n | {}^", line + 1, column + 1, ".".repeat(column))
    }

    fn expression(&mut self, expression: &'a IdedExpr) -> Result<Known<'a>, String> {
        self.depth += 1;
        self.findings.depth = self.findings.depth.max(self.depth);
        let known = self.inside(expression);
        self.depth -= 1;
        match known? {
            Known::Schema(node, _) if convert::is_time(node) => Ok(Known::Time),
            Known::Schema(node, _) if convert::is_duration(node) => {
                let message = "a value of the format 'duration' cannot be evaluated here";
                Err(self.report(expression.id, "", message))
            }
            known => Ok(known),
        }
    }

    fn inside(&mut self, expression: &'a IdedExpr) -> Result<Known<'a>, String> {
        match &expression.expr {
            Expr::Ident(name) => self.identifier(expression.id, name),
            Expr::Select(select) => self.selection(expression.id, select),
            Expr::Call(call) => self.call(expression.id, call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => self.all(&list.elements),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(literal) => {
                let message = format!("undeclared reference to '{}' (in container '')", literal.type_name);
                Err(self.report(expression.id, "", &message))
            }
            Expr::Literal(literal) => Ok(types::literal(literal)),
            Expr::Unspecified => Ok(Known::Nothing),
        }
    }

    fn all(&mut self, expressions: &'a [IdedExpr]) -> Result<Known<'a>, String> {
        for expression in expressions {
            self.expression(expression)?;
        }
        Ok(Known::Nothing)
    }

    fn entries(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Result<Known<'a>, String> {
        for entry in entries {
            match entry {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key)?;
                    self.expression(&entry.value)?;
                }
                EntryExpr::StructField(field) => {
                    self.expression(&field.value)?;
                }
            }
        }
        Ok(Known::Nothing)
    }

    fn identifier(&mut self, id: u64, name: &str) -> Result<Known<'a>, String> {
        if let Some((_, known)) = self.variables.iter().rfind(|(variable, _)| *variable == name) {
            return Ok(*known);
        }
        let names = self.scope.names;
        match name {
            name if names.contains(&name) => Ok(Known::Nothing),
            "self" | "oldSelf" if !names.is_empty() => {
                Err(self.report(id, "", &format!("undeclared reference to '{name}' (in container '')")))
            }
            "self" => Ok(Known::Schema(self.scope.node, self.scope.resource)),
            "oldSelf" => {
                self.findings.uses_old = true;
                let known = if self.scope.optional_old {
                    Known::Nothing
                } else {
                    Known::Schema(self.scope.node, self.scope.resource)
                };
                Ok(known)
            }
            name if TYPES.contains(&name) => Ok(Known::Nothing),
            name => Err(self.report(id, "", &format!("undeclared reference to '{name}' (in container '')"))),
        }
    }

    fn selection(&mut self, id: u64, select: &'a SelectExpr) -> Result<Known<'a>, String> {
        let field = select.field.as_str();
        let (node, resource) = match self.expression(&select.operand)? {
            Known::Schema(node, resource) => (node, resource),
            Known::Nothing => return Ok(Known::Nothing),
            known => {
                let kind = types::name(known).unwrap_or_default();
                return Err(self.report(id, field, &format!("type '{kind}' does not support field selection")));
            }
        };
        match node.kind {
            // The type of an int-or-string is only known when a rule runs.
            Kind::Any | Kind::IntOrString => Ok(Known::Nothing),
            Kind::Object => {
                let declared = node.properties.iter().find(|(name, _)| escape(name) == field);
                if select.test && (resource || declared.is_some() || node.additional.is_some()) {
                    Ok(Known::Scalar("bool"))
                } else if resource && RESOURCE_FIELDS.contains(&field) {
                    Ok(Known::Nothing)
                } else if let Some((_, inner)) = declared {
                    Ok(Known::Schema(inner, inner.embedded))
                } else if let Some(inner) = &node.additional {
                    Ok(Known::Schema(inner, inner.embedded))
                } else {
                    // Preserved fields without a schema are not visible to rules either.
                    Err(self.report(id, field, &format!("undefined field '{field}'")))
                }
            }
            kind => {
                let name = match kind {
                    Kind::Array => "list",
                    Kind::Integer => "int",
                    Kind::Number => "double",
                    Kind::Boolean => "bool",
                    _ => "string",
                };
                Err(self.report(id, field, &format!("type '{name}' does not support field selection")))
            }
        }
    }

    fn call(&mut self, id: u64, call: &'a CallExpr) -> Result<Known<'a>, String> {
        let name = call.func_name.as_str();
        let internal = name.contains(['_', '@', '!', '-']);
        if !internal && !FUNCTIONS.contains(&name) {
            return Err(self.report(id, name, &format!("undeclared reference to '{name}' (in container '')")));
        }
        if let Some(target) = &call.target {
            let namespace = matches!(&target.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()));
            if !namespace && let Known::Time = self.expression(target)? {
                let message = format!("found no matching overload for '{name}' applied to 'timestamp.()'");
                return Err(self.report(id, name, &message));
            }
        }
        if let ("_[_]", [operand, index]) = (name, &call.args[..]) {
            let operand = self.expression(operand)?;
            self.expression(index)?;
            return Ok(element(operand));
        }
        self.arguments(id, call)
    }

    /// The arguments of a function or operator, and what is known of its result.
    fn arguments(&mut self, id: u64, call: &'a CallExpr) -> Result<Known<'a>, String> {
        let name = call.func_name.as_str();
        let mut known = Vec::with_capacity(call.args.len());
        for argument in &call.args {
            known.push(self.expression(argument)?);
        }
        types::result(name, &known).map_err(|kinds| {
            let message = format!("found no matching overload for '{name}' applied to '({kinds})'");
            self.report(id, "", &message)
        })
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> Result<Known<'a>, String> {
        let range = self.expression(&comprehension.iter_range)?;
        self.expression(&comprehension.accu_init)?;
        let first = match range {
            // Over a map, the variable is a key.
            Known::Schema(node, _) if node.kind == Kind::Array && comprehension.iter_var2.is_none() => element(range),
            _ => Known::Nothing,
        };
        let outer = self.variables.len();
        let second = comprehension.iter_var2.as_deref().map(|name| (name, element(range)));
        self.variables.push((&comprehension.accu_var, Known::Nothing));
        self.variables.push((&comprehension.iter_var, first));
        self.variables.extend(second);
        for part in [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
            self.expression(part)?;
        }
        self.variables.truncate(outer);
        Ok(Known::Nothing)
    }
}

/// The type of what is inside a list or map.
fn element(container: Known<'_>) -> Known<'_> {
    let Known::Schema(node, _) = container else { return Known::Nothing };
    let inner = if node.kind == Kind::Array { &node.items } else { &node.additional };
    inner.as_deref().map_or(Known::Nothing, |inner| Known::Schema(inner, inner.embedded))
}
