//! Decoding of request bodies: JSON with a list of duplicate fields, or YAML.

use std::fmt;

use http::HeaderMap;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::params::content_type;
use crate::status::{ApiError, ApiResult};

/// A decoded body.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// Paths of fields that were named twice; the last one won.
    pub(crate) duplicates: Vec<String>,
}

/// Decodes the body of a create or update of a kind.
pub(crate) fn object(kind: &str, headers: &HeaderMap, body: &[u8]) -> ApiResult<Decoded> {
    let decoded = match content_type(headers).as_str() {
        "" | "application/json" => json(body).map_err(|error| {
            let why = format!("couldn't get version/kind; json parse error: {error}");
            unrecognized(kind, &why, body)
        }),
        "application/yaml" => yaml(body),
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ])),
    }?;
    if decoded.value.is_object() {
        return Ok(decoded);
    }
    let why = format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
        go_kind(&decoded.value)
    );
    Err(unrecognized(kind, &why, body))
}

/// Go's name for the kind of a JSON value.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Decodes options that came as a body.
pub(crate) fn options(headers: &HeaderMap, body: &[u8]) -> ApiResult<Value> {
    let decoded = if content_type(headers) == "application/yaml" {
        yaml(body)
    } else {
        json(body)
            .map_err(|error| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {error}")))
    };
    decoded.map(|decoded| decoded.value)
}

/// The body does not say what it is.
pub(crate) fn unrecognized(kind: &str, why: &str, body: &[u8]) -> Box<ApiError> {
    const SHOWN: usize = 30;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let start = match body {
        [] => "<empty>".to_owned(),
        long if long.len() > SHOWN => format!("{} ...", text(&long[..SHOWN])),
        short => text(short),
    };
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({start})"))
}

/// Decodes an apply patch, which is YAML and therefore JSON too.
pub(crate) fn yaml(body: &[u8]) -> ApiResult<Decoded> {
    if let Ok(decoded) = json(body) {
        return Ok(decoded);
    }
    let text = String::from_utf8_lossy(body);
    let value = serde_saphyr::from_str::<Value>(&text)
        .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    Ok(Decoded { value, duplicates: Vec::new() })
}

/// Decodes JSON. The error text is the one Go would give, as far as clients are known to look at it.
pub(crate) fn json(body: &[u8]) -> Result<Decoded, String> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let seed = Node { path: String::new(), duplicates: &mut duplicates };
    let value = seed
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| go_error(&error, body))?;
    Ok(Decoded { value, duplicates })
}

fn go_error(error: &serde_json::Error, body: &[u8]) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    // Lines and columns count from one; the offending character is at the column or just before it.
    let mut line_start = 0;
    for _ in 1..error.line() {
        let rest = body.get(line_start..).unwrap_or_default();
        line_start += rest.iter().position(|b| *b == b'\n').map_or(0, |p| p + 1);
    }
    let at = line_start + error.column().saturating_sub(1);
    let found = body.get(at).copied().map_or(' ', char::from);
    let expected = if error.to_string().starts_with("key must be a string") {
        "beginning of object key string"
    } else {
        "beginning of value"
    };
    format!("invalid character '{found}' looking for {expected}")
}

struct Node<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let seed = Node { path: format!("{}[{}]", self.path, list.len()), duplicates: self.duplicates };
            match access.next_element_seed(seed)? {
                Some(value) => list.push(value),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                self.duplicates.push(path.clone());
            }
            let seed = Node { path, duplicates: self.duplicates };
            let value = access.next_value_seed(seed)?;
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_named_twice_is_reported_and_the_last_one_wins() {
        let decoded = json(br#"{"spec":{"v":1,"l":[{"a":1,"a":2}],"v":2}}"#).unwrap();
        assert_eq!(decoded.value, json!({"spec": {"v": 2, "l": [{"a": 2}]}}));
        assert_eq!(decoded.duplicates, ["spec.l[0].a", "spec.v"]);
    }

    #[test]
    fn errors_read_as_from_go() {
        assert_eq!(json(b"{").unwrap_err(), "unexpected end of JSON input");
        assert_eq!(json(b"{bad").unwrap_err(), "invalid character 'b' looking for beginning of object key string");
    }

    #[test]
    fn an_apply_body_may_be_yaml() {
        let decoded = yaml(b"kind: Node\nmetadata:\n  name: a\n").unwrap();
        assert_eq!(decoded.value, json!({"kind": "Node", "metadata": {"name": "a"}}));
    }
}
