//! Label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::status::{ApiError, ApiResult};

/// A parsed `labelSelector`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    op: Op,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> ApiResult<Self> {
        Parser::new(text).requirements().map(Self)
    }

    /// From the `LabelSelector` type of the API (`matchLabels`, `matchExpressions`). Unknown operators match nothing.
    pub(crate) fn from_json(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                requirements.push(Requirement {
                    key: key.clone(),
                    op: Op::In(vec![value.as_str().unwrap_or_default().to_owned()]),
                });
            }
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let values = || -> Vec<String> {
                let list = expression.get("values").and_then(Value::as_array);
                list.into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
            };
            let op = match expression.get("operator").and_then(Value::as_str) {
                Some("In") => Op::In(values()),
                Some("NotIn") => Op::NotIn(values()),
                Some("Exists") => Op::Exists,
                Some("DoesNotExist") => Op::Absent,
                _ => Op::In(Vec::new()),
            };
            let key = expression.get("key").and_then(Value::as_str);
            requirements.push(Requirement { key: key.unwrap_or_default().to_owned(), op });
        }
        Self(requirements)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.0.iter().all(|r| {
            let value = labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str);
            match &r.op {
                Op::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                Op::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
                Op::Exists => value.is_some(),
                Op::Absent => value.is_none(),
                Op::Greater(bound) => number(value).is_some_and(|v| v > *bound),
                Op::Less(bound) => number(value).is_some_and(|v| v < *bound),
            }
        })
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value.and_then(|v| v.parse().ok())
}

/// A hand-written parser, because its error texts are part of the contract.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// The next token: an operator, a punctuation character or a word; empty at the end.
    fn next(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let length = match text.as_bytes() {
            [] => 0,
            [b'=' | b'!', b'=', ..] => 2,
            [b'=' | b'!' | b',' | b'(' | b')' | b'>' | b'<', ..] => 1,
            _ => text.find(|c: char| "=!,()><".contains(c) || c.is_whitespace()).unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at(length);
        self.rest = rest;
        token
    }

    fn peek(&self) -> &'a str {
        Parser { rest: self.rest }.next()
    }

    fn requirements(&mut self) -> ApiResult<Vec<Requirement>> {
        let mut requirements = Vec::new();
        while !self.peek().is_empty() {
            requirements.push(self.requirement()?);
            match self.next() {
                "" => break,
                "," if self.peek().is_empty() => {
                    return Err(error("found '', expected: identifier after ','"));
                }
                "," => {}
                other => return Err(error(&format!("found '{other}', expected: ',' or 'end of string'"))),
            }
        }
        Ok(requirements)
    }

    fn requirement(&mut self) -> ApiResult<Requirement> {
        let first = self.next();
        if first == "!" {
            let key = self.key()?;
            return Ok(Requirement { key, op: Op::Absent });
        }
        let key = checked_key(first)?;
        let op = match self.peek() {
            "" | "," => Op::Exists,
            "=" | "==" => {
                self.next();
                Op::In(vec![self.value()?])
            }
            "!=" => {
                self.next();
                Op::NotIn(vec![self.value()?])
            }
            "in" => {
                self.next();
                Op::In(self.values()?)
            }
            "notin" => {
                self.next();
                Op::NotIn(self.values()?)
            }
            ">" => {
                self.next();
                Op::Greater(self.integer()?)
            }
            "<" => {
                self.next();
                Op::Less(self.integer()?)
            }
            other => {
                return Err(error(&format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")));
            }
        };
        Ok(Requirement { key, op })
    }

    fn key(&mut self) -> ApiResult<String> {
        checked_key(self.next())
    }

    /// One value, which may be empty as in `a=`.
    fn value(&mut self) -> ApiResult<String> {
        match self.peek() {
            "" | "," => Ok(String::new()),
            token if is_punctuation(token) => Err(error(&format!("found '{token}', expected: identifier"))),
            _ => Ok(self.next().to_owned()),
        }
    }

    fn integer(&mut self) -> ApiResult<i64> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "values[0][]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ))
        })
    }

    fn values(&mut self) -> ApiResult<Vec<String>> {
        let open = self.next();
        if open != "(" {
            return Err(error(&format!("found '{open}' expected: '('")));
        }
        let mut values = Vec::new();
        loop {
            match self.next() {
                ")" => return Ok(values),
                "" => return Err(error("found '', expected: ',', ')' or identifier")),
                "," => {
                    if matches!(self.peek(), "," | ")") {
                        values.push(String::new());
                    }
                }
                value => values.push(value.to_owned()),
            }
        }
    }
}

fn is_punctuation(token: &str) -> bool {
    matches!(token, "=" | "==" | "!" | "!=" | "," | "(" | ")" | ">" | "<")
}

fn checked_key(token: &str) -> ApiResult<String> {
    if token.is_empty() || is_punctuation(token) {
        return Err(error(&format!("found '{token}', expected: !, identifier, or 'end of string'")));
    }
    Ok(token.to_owned())
}

fn error(what: &str) -> Box<ApiError> {
    ApiError::bad_request(format!("unable to parse requirement: {what}"))
}

/// A parsed `fieldSelector`: path, expected value, whether it must be equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<(String, String, bool)>);

impl FieldSelector {
    /// Parses and checks that every field is one of `supported`.
    pub(crate) fn parse(text: &str, supported: &[&str]) -> ApiResult<Self> {
        let mut terms = Vec::new();
        for term in text.split(',').filter(|t| !t.is_empty()) {
            let (field, value, equal) = if let Some((f, v)) = term.split_once("!=") {
                (f, v, false)
            } else if let Some((f, v)) = term.split_once("==").or_else(|| term.split_once('=')) {
                (f, v, true)
            } else {
                return Err(ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            if !supported.contains(&field) {
                return Err(ApiError::bad_request(format!("field label not supported: {field}")));
            }
            terms.push((field.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one name the selector asks for, if it does.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.iter().find(|(field, _, equal)| *equal && field == "metadata.name").map(|(_, value, _)| value.as_str())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(field, expected, equal)| {
            let actual = field_text(object, field);
            (actual == *expected) == *equal
        })
    }
}

/// The value of a selectable field as text. Missing is empty; booleans and numbers are printed.
fn field_text(object: &Value, field: &str) -> String {
    // events.k8s.io names the same stored fields differently.
    let renamed: BTreeMap<&str, &str> = BTreeMap::from([
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reportingController", "source.component"),
        ("reportingComponent", "source.component"),
    ]);
    let path = renamed.get(field).copied().unwrap_or(field);
    let value = path.split('.').try_fold(object, |value, part| value.get(part));
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) if path == "spec.unschedulable" => "false".to_owned(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str, labels: &Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn every_label_operator_is_understood() {
        let labels = json!({"z": "a", "n": "5", "example.com/x": ""});
        for (selector, expected) in [
            ("", true),
            ("z=a", true),
            ("z==a", true),
            ("z = b", false),
            ("z!=a", false),
            ("missing!=a", true),
            ("z in (a,b)", true),
            ("z in (b)", false),
            ("z notin (a)", false),
            ("missing notin (a)", true),
            ("z", true),
            ("!z", false),
            ("!missing", true),
            ("z in (a,b),z!=b", true),
            ("n>4,n<6", true),
            ("z>1", false),
            ("example.com/x=", true),
        ] {
            assert_eq!(matches(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn a_bad_label_selector_says_what_is_missing() {
        let error = LabelSelector::parse("z in a").unwrap_err();
        assert_eq!(error.message(), "unable to parse requirement: found 'a' expected: '('");
        for bad in ["=a", "a=b=c", "a in (b", "a,,b", "a,", "a b"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_selector_type_of_the_api_matches_like_its_text_form() {
        let selector = LabelSelector::from_json(&json!({
            "matchLabels": {"app": "x"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}],
        }));
        assert!(selector.matches(&json!({"metadata": {"labels": {"app": "x"}}})));
        assert!(!selector.matches(&json!({"metadata": {"labels": {"app": "x", "tier": "db"}}})));
    }

    #[test]
    fn field_selectors_compare_text_and_refuse_unknown_fields() {
        let supported = ["metadata.name", "status.phase", "spec.unschedulable"];
        let object = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
        for (selector, expected) in [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("status.phase==Running,metadata.name=a", true),
            ("spec.unschedulable=false", true),
        ] {
            let selector = FieldSelector::parse(selector, &supported).unwrap();
            assert_eq!(selector.matches(&object), expected, "{selector:?}");
        }
        assert_eq!(
            FieldSelector::parse("spec.x=1", &supported).unwrap_err().message(),
            "field label not supported: spec.x"
        );
        assert_eq!(
            FieldSelector::parse("metadata.name", &supported).unwrap_err().message(),
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
        );
    }
}
