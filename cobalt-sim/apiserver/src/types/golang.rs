//! Values as Go prints them: some messages of the real server contain them.

use serde_json::{Number, Value};

/// `%v`: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => self::number(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
    }
}

/// `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) fn sharp(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(sharp).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> =
                entries.into_iter().map(|(key, value)| format!("{key:?}:{}", sharp(value))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        scalar => plain(scalar),
    }
}

/// `%T`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A number: the shortest form, with an exponent where Go's `%v` switches to one.
pub(crate) fn number(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let magnitude = float.abs();
    if magnitude != 0.0 && !(1e-4..1e21).contains(&magnitude) {
        let text = format!("{float:e}");
        let Some((digits, exponent)) = text.split_once('e') else { return text };
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    float.to_string()
}
