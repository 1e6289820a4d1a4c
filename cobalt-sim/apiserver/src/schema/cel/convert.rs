//! JSON to CEL along the schema: an `integer` is an int, a `number` a double, whatever the JSON spells.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use cel::Value as Cel;
use cel::objects::{Key, Map, OptionalValue};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::schema::node::{Kind, Node};

/// Converts a value. Names of integers that are spelled as floats go to `misfits`.
pub(in crate::schema) fn value(node: &Node, value: &Value, resource: bool, misfits: &mut Vec<String>) -> Cel {
    match (node.kind, value) {
        (Kind::Number, Value::Number(number)) => Cel::Float(number.as_f64().unwrap_or_default()),
        (Kind::String, Value::String(text)) if node.limits.format.as_deref() == Some("byte") => {
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_or(Cel::Null, |bytes| Cel::Bytes(Arc::new(bytes)))
        }
        (Kind::String, Value::String(text)) if is_time(node) => {
            time(text).map_or_else(|| any(value), |time| Cel::String(Arc::new(time)))
        }
        (Kind::Array, Value::Array(items)) => {
            let items = items.iter().map(|item| match &node.items {
                Some(inner) => self::value(inner, item, inner.embedded, misfits),
                None => any(item),
            });
            Cel::List(Arc::new(items.collect()))
        }
        (Kind::Object, Value::Object(fields)) => {
            let mut map: HashMap<Key, Cel> = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let declared = node.properties.contains_key(name);
                let converted = match node.field(name) {
                    Some(inner) if inner.kind == Kind::Integer && field.is_f64() => {
                        misfits.push(name.clone());
                        any(field)
                    }
                    Some(inner) if !(resource && name == "metadata") => {
                        self::value(inner, field, inner.embedded, misfits)
                    }
                    _ if resource && name == "metadata" => visible_metadata(field),
                    // What was preserved without a schema is data to keep, not to look at; in a typed structure.
                    _ => any(field),
                };
                let name = if declared { escape(name) } else { name.clone() };
                map.insert(Key::String(Arc::new(name)), converted);
            }
            Cel::Map(Map { map: Arc::new(map) })
        }
        (_, value) => any(value),
    }
}

/// Whether values are points in time.
pub(super) fn is_time(node: &Node) -> bool {
    node.kind == Kind::String && matches!(node.limits.format.as_deref(), Some("date-time" | "datetime" | "date"))
}

/// Whether values are spans of time.
pub(super) fn is_duration(node: &Node) -> bool {
    node.kind == Kind::String && node.limits.format.as_deref() == Some("duration")
}

/// A point in time so written that its text compares as it does. The check of an expression sees to it that nothing
/// else is done with it.
pub(super) fn time(text: &str) -> Option<String> {
    let time: Timestamp = match text.parse() {
        Ok(time) => time,
        Err(_) => text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
    };
    // The years of a CEL timestamp.
    let first: Timestamp = "0001-01-01T00:00:00Z".parse().ok()?;
    (time >= first).then(|| format!("{}.{:09}Z", time.strftime("%Y-%m-%dT%H:%M:%S"), time.subsec_nanosecond()))
}

/// Rules see the name of an object and nothing else of its metadata.
fn visible_metadata(metadata: &Value) -> Cel {
    let fields = metadata.as_object().into_iter().flatten();
    let visible = fields.filter(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let map = visible.map(|(name, value)| (Key::String(Arc::new(name.clone())), any(value))).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

/// Converts a value nothing is known about.
pub(in crate::schema) fn any(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(int) => Cel::Int(int),
            None => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(any).collect())),
        Value::Object(fields) => {
            let map = fields.iter().map(|(name, field)| (Key::String(Arc::new(name.clone())), any(field)));
            Cel::Map(Map { map: Arc::new(map.collect()) })
        }
    }
}

/// `oldSelf` of a rule with `optionalOldSelf`.
pub(in crate::schema) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// A value in a message.
pub(super) fn shown(value: &Cel) -> String {
    match value {
        Cel::Int(int) => int.to_string(),
        Cel::String(text) => text.to_string(),
        other => format!("{other:?}"),
    }
}

const RESERVED: [&str; 19] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
];

/// The identifier by which rules reach a property whose name is none.
pub(super) fn escape(name: &str) -> String {
    if RESERVED.contains(&name) || matches!(name, "void" | "while") {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
