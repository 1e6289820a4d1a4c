//! Rules for names, labels and the rest of `metadata`.

use serde_json::{Value, json};

use crate::registry::Resource;
use crate::status::StatusCause;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Annotations of one object, keys and values together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn is_label(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// A DNS-1123 subdomain: labels joined by dots.
fn subdomain_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    if !name.split('.').all(is_label) {
        errors.push(SUBDOMAIN.to_owned());
    }
    errors
}

/// A DNS-1123 label.
fn label_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !is_label(name) {
        errors.push(LABEL.to_owned());
    }
    errors
}

/// A path segment, the only rule for names of RBAC objects.
fn segment_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name == "." || name == ".." {
        errors.push(format!("may not be '{name}'"));
    }
    for part in ["/", "%"] {
        if name.contains(part) {
            errors.push(format!("may not contain '{part}'"));
        }
    }
    errors
}

/// `prefix/name` with an optional prefix, as in label keys and taint keys.
pub(crate) fn qualified_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let found = subdomain_errors(prefix);
                errors.extend(found.into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 characters".to_owned());
    }
    if !is_word(name) {
        errors.push(QUALIFIED.to_owned());
    }
    errors
}

/// `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_word(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !value.is_empty() && !is_word(value) {
        errors.push(LABEL_VALUE.to_owned());
    }
    errors
}

fn name_errors(resource: &Resource, name: &str) -> Vec<String> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("rbac.authorization.k8s.io", _) => segment_errors(name),
        ("", "Namespace" | "Service") => label_errors(name),
        _ => subdomain_errors(name),
    }
}

/// What is wrong with the metadata of an object that is about to be stored.
pub(crate) fn metadata_causes(resource: &Resource, object: &Value) -> Vec<StatusCause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(StatusCause::required("metadata.name", "name or generateName is required"));
    } else {
        for error in name_errors(resource, name) {
            causes.push(StatusCause::invalid("metadata.name", &json!(name), &error));
        }
    }
    let labels = metadata.get("labels").and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        for error in qualified_errors(key) {
            causes.push(StatusCause::invalid("metadata.labels", &json!(key), &error));
        }
        for error in label_value_errors(value.as_str().unwrap_or_default()) {
            causes.push(StatusCause::invalid("metadata.labels", value, &error));
        }
    }
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        // Keys of annotations may be written in upper case.
        for error in qualified_errors(&key.to_lowercase()) {
            causes.push(StatusCause::invalid("metadata.annotations", &json!(key), &error));
        }
    }
    if size > ANNOTATIONS_LIMIT {
        causes.push(StatusCause::new(
            "FieldValueTooLong",
            "metadata.annotations",
            format!("Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"),
        ));
    }
    causes.extend(owner_causes(metadata));
    causes
}

fn owner_causes(metadata: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let owners = metadata.get("ownerReferences").and_then(Value::as_array);
    let mut controllers = Vec::new();
    for (index, owner) in owners.into_iter().flatten().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let text = match field {
                    "apiVersion" => "version must not be empty",
                    "kind" => "kind must not be empty",
                    "name" => "name must not be empty",
                    _ => "uid must not be empty",
                };
                causes.push(StatusCause::invalid(format!("metadata.ownerReferences.{field}"), &json!(""), text));
            }
        }
        if owner["controller"] == true {
            controllers.push((index, owner));
        }
    }
    if let [(_, first), (index, second), ..] = controllers.as_slice() {
        let describe = |o: &Value| {
            format!("{}/{}", o["kind"].as_str().unwrap_or_default(), o["name"].as_str().unwrap_or_default())
        };
        let _ = index;
        causes.push(StatusCause::new(
            "FieldValueInvalid",
            "metadata.ownerReferences",
            format!(
                "Invalid value: {}: Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                metadata["ownerReferences"],
                describe(first),
                describe(second)
            ),
        ));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_dns() {
        for good in ["a", "node-1.example.org", "0", "a-b"] {
            assert!(subdomain_errors(good).is_empty(), "{good}");
        }
        for bad in ["UPPER", "-a", "a-", "a..b", "a_b", ""] {
            assert!(!subdomain_errors(bad).is_empty(), "{bad}");
        }
        assert!(!subdomain_errors(&"a".repeat(254)).is_empty());
    }

    #[test]
    fn label_keys_may_have_one_prefix() {
        for good in ["a", "example.com/Name_1", "x.y"] {
            assert!(qualified_errors(good).is_empty(), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "UP.com!/x", "-a"] {
            assert!(!qualified_errors(bad).is_empty(), "{bad}");
        }
        assert!(label_value_errors("").is_empty());
        assert!(!label_value_errors("a b").is_empty());
    }
}
