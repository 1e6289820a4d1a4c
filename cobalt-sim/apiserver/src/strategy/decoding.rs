//! Whether an object can be what it says: types of scalars, times, encodings.

use serde_json::Value;

use crate::http::decode;
use crate::registry::Resource;
use crate::types::{self, Scalar, TypeNode};

/// Why the object is not of its kind, in the words of Go's decoder.
pub(crate) fn decoding_problem(resource: &Resource, object: &Value) -> Option<String> {
    if let Some(metadata) = object.get("metadata")
        && let Some(problem) = mismatch(metadata, types::object_meta(), "ObjectMeta")
    {
        return Some(problem);
    }
    // Everything else in a custom resource is its schema's business.
    if resource.is_custom() {
        return None;
    }
    let types = resource.types();
    let fields = object.as_object()?;
    let mismatch = fields.iter().find_map(|(key, value)| {
        let node = types.field(key)?;
        mismatch(value, node, &format!("{}.{key}", resource.kind))
    });
    mismatch.or_else(|| match resource.kind.as_str() {
        "Lease" => ["acquireTime", "renewTime"].iter().find_map(|field| micro_time(&object["spec"][field])),
        "Event" => micro_time(&object["eventTime"]).or_else(|| micro_time(&object["series"]["lastObservedTime"])),
        "Secret" => object["data"].as_object()?.values().find_map(base64),
        _ => None,
    })
}

fn mismatch(value: &Value, node: &TypeNode, path: &str) -> Option<String> {
    let wrong = |wanted: &str| {
        Some(format!("json: cannot unmarshal {} into Go struct field {path} of type {wanted}", decode::go_kind(value)))
    };
    match (value, node) {
        (Value::Null, _)
        | (_, TypeNode::Deduced | TypeNode::Opaque | TypeNode::Scalar(Scalar::Any))
        | (Value::String(_), TypeNode::Scalar(Scalar::String))
        | (Value::Number(_), TypeNode::Scalar(Scalar::Number))
        | (Value::Bool(_), TypeNode::Scalar(Scalar::Boolean)) => None,
        (_, TypeNode::Scalar(Scalar::String)) => wrong("string"),
        (_, TypeNode::Scalar(Scalar::Number)) => wrong("int64"),
        (_, TypeNode::Scalar(Scalar::Boolean)) => wrong("bool"),
        (Value::Object(map), TypeNode::Map(declared)) => map.iter().find_map(|(key, value)| {
            let node = node.field(key)?;
            // Entries of a map have no field name of their own.
            if declared.fields.contains_key(key) {
                mismatch(value, node, &format!("{path}.{key}"))
            } else {
                mismatch(value, node, path)
            }
        }),
        (Value::Array(items), TypeNode::List(_)) => items.iter().find_map(|item| mismatch(item, node.items(), path)),
        (_, TypeNode::Map(_)) => wrong("map[string]string"),
        (_, TypeNode::List(_)) => wrong("[]string"),
    }
}

/// A MicroTime has exactly six digits after the point.
fn micro_time(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let failed = |rest: &str, layout: &str| {
        Some(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as {layout:?}"
        ))
    };
    // Up to the seconds the layout is fixed: `2006-01-02T15:04:05`.
    let Some((_, rest)) = text.split_at_checked(19) else {
        return failed(text, "2006");
    };
    let digits = rest.strip_prefix('.').map_or(0, |fraction| fraction.chars().take_while(char::is_ascii_digit).count());
    if digits < 6 {
        return failed(rest, ".000000");
    }
    let zone = &rest[7..];
    let offset = zone.len() == 6 && zone.starts_with(['+', '-']) && zone.as_bytes()[3] == b':';
    if zone != "Z" && !offset {
        return failed(zone, "Z07:00");
    }
    None
}

fn base64(value: &Value) -> Option<String> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    match STANDARD.decode(value.as_str()?) {
        Ok(_) => None,
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Some(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Some(format!("illegal base64 data at input byte {}", value.as_str().map_or(0, str::len))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn problem(group: &str, plural: &str, object: &Value) -> Option<String> {
        let resource = Registry::new().find(group, "v1", plural).unwrap();
        decoding_problem(&resource, object)
    }

    #[test]
    fn a_number_is_no_text() {
        assert_eq!(
            problem("", "configmaps", &json!({"data": {"a": 1}})).unwrap(),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        assert_eq!(problem("", "configmaps", &json!({"data": {"a": "1"}})), None);
    }

    #[test]
    fn a_micro_time_has_six_digits() {
        let lease = |time: &str| problem("coordination.k8s.io", "leases", &json!({"spec": {"renewTime": time}}));
        assert_eq!(lease("2026-01-01T00:00:06.123456Z"), None);
        assert_eq!(lease("2026-01-01T00:00:06.123456+01:00"), None);
        for (time, end) in [
            ("2026-01-01T00:00:06Z", "cannot parse \"Z\" as \".000000\""),
            ("2026-01-01T00:00:06.5Z", "cannot parse \".5Z\" as \".000000\""),
            ("2026-01-01T00:00:06.123456789Z", "cannot parse \"789Z\" as \"Z07:00\""),
        ] {
            assert!(lease(time).unwrap().ends_with(end), "{time}");
        }
        assert!(lease("x").is_some());
    }

    #[test]
    fn secrets_hold_base64() {
        let secret = |data: &str| problem("", "secrets", &json!({"data": {"k": data}}));
        assert_eq!(secret("***").unwrap(), "illegal base64 data at input byte 0");
        assert_eq!(secret("cA=="), None);
    }
}
