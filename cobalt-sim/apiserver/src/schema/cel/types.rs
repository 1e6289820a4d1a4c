//! What is known of the types in a rule, as far as scalars go: enough to refuse what the real compiler refuses, never
//! what it accepts.

use cel::common::ast::LiteralValue;

use super::convert::is_time;
use crate::schema::node::{Kind, Node};

/// What is known of an expression's type.
#[derive(Clone, Copy)]
pub(super) enum Known<'a> {
    Nothing,
    /// That of a place in the schema; true if it is a whole object.
    Schema(&'a Node, bool),
    /// A point in time.
    Time,
    /// A scalar, by the name CEL has for its type.
    Scalar(&'static str),
}

/// CEL's name of a scalar type.
pub(super) fn name(known: Known<'_>) -> Option<&'static str> {
    match known {
        Known::Nothing => None,
        Known::Time => Some("timestamp"),
        Known::Scalar(name) => Some(name),
        Known::Schema(node, _) => match node.kind {
            Kind::Integer => Some("int"),
            Kind::Number => Some("double"),
            Kind::Boolean => Some("bool"),
            Kind::String if is_time(node) => Some("timestamp"),
            Kind::String if node.limits.format.as_deref() == Some("byte") => Some("bytes"),
            Kind::String => Some("string"),
            _ => None,
        },
    }
}

/// The type of a constant. What null may be compared with is left to the interpreter.
pub(super) fn literal(literal: &LiteralValue) -> Known<'static> {
    Known::Scalar(match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
        LiteralValue::Null => return Known::Nothing,
    })
}

/// What is known of the result of an operator or function; the error lists the types it is not for.
pub(super) fn result<'a>(function: &str, arguments: &[Known<'a>]) -> Result<Known<'a>, String> {
    let names: Vec<Option<&str>> = arguments.iter().map(|known| name(*known)).collect();
    let wrong = || names.iter().map(|name| name.unwrap_or("dyn")).collect::<Vec<_>>().join(", ");
    let known: Vec<&str> = names.iter().flatten().copied().collect();
    let alike = known.windows(2).all(|pair| pair[0] == pair[1]);
    let has = |kinds: &[&str]| known.iter().any(|name| kinds.contains(name));
    let check = |good: bool, result| if good { Ok(result) } else { Err(wrong()) };
    let numbers = |name: &&str| ["int", "uint", "double"].contains(name);
    match function {
        "_==_" | "_!=_" => check(alike, Known::Scalar("bool")),
        "_<_" | "_<=_" | "_>_" | "_>=_" => check(alike || known.iter().all(numbers), Known::Scalar("bool")),
        "_&&_" | "_||_" | "!_" => check(known.iter().all(|name| *name == "bool"), Known::Scalar("bool")),
        "_+_" | "_-_" | "_*_" | "_/_" | "_%_" => {
            let text = function != "_+_" && has(&["string", "bytes"]);
            let whole = match names.as_slice() {
                [Some(name), _] | [_, Some(name)] => scalar(name),
                _ => Known::Nothing,
            };
            check(alike && !text && !has(&["bool", "timestamp"]), whole)
        }
        "_?_:_" => {
            let branches = arguments.get(1..).unwrap_or_default();
            let result = match (names.get(1), names.get(2)) {
                (Some(Some(one)), Some(Some(other))) if one == other => branches[0],
                _ => Known::Nothing,
            };
            check(names.first().is_none_or(|name| name.is_none_or(|name| name == "bool")), result)
        }
        "@in" | "matches" | "startsWith" | "endsWith" | "contains" | "isIP" | "isURL" | "isQuantity" | "bool" => {
            check(function == "@in" || !has(&["timestamp"]), Known::Scalar("bool"))
        }
        "timestamp" => check(known.iter().all(|name| ["string", "timestamp", "int"].contains(name)), Known::Time),
        // A size is that of a text, a list or a map.
        "size" => check(!has(&["int", "uint", "double", "bool", "timestamp"]), Known::Scalar("int")),
        "int" | "uint" | "double" | "string" | "bytes" => check(!has(&["timestamp"]), scalar(function)),
        _ => check(!has(&["timestamp"]), Known::Nothing),
    }
}

fn scalar(name: &str) -> Known<'static> {
    ["int", "uint", "double", "string", "bytes", "bool"]
        .into_iter()
        .find(|known| *known == name)
        .map_or(Known::Nothing, Known::Scalar)
}
