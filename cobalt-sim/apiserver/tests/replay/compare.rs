//! Recorded against actual answers.

use std::sync::LazyLock;

use http::HeaderMap;
use regex::Regex;
use serde_json::Value;

use crate::bindings::Bindings;
use crate::record::Response;

/// Headers that clients act on.
const HEADERS: [&str; 8] =
    ["warning", "retry-after", "allow", "www-authenticate", "location", "etag", "vary", "cache-control"];

/// The value of `Cache-Control` that was not recorded.
const USUAL: &str = "no-cache, private";

/// What was removed from a recorded body.
const REMOVED: [&str; 3] = ["<trimmed>", "<omitted>", "<see group 7>"];

/// Build data of `/version`.
const BUILD: [&str; 6] = [".buildDate", ".gitCommit", ".goVersion", ".platform", ".compiler", ".gitTreeState"];

/// How old something is, in a cell of a table.
static AGE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\d+[smhdy])+( ago)?$").unwrap());

/// Collects differences.
pub(crate) struct Comparison<'a> {
    pub(crate) bindings: &'a mut Bindings,
    /// Parts of the expected body were removed: only what is there is compared.
    pub(crate) trimmed: bool,
    pub(crate) differences: Vec<String>,
}

impl<'a> Comparison<'a> {
    pub(crate) fn new(bindings: &'a mut Bindings, trimmed: bool) -> Self {
        Self { bindings, trimmed, differences: Vec::new() }
    }

    fn differ(&mut self, path: &str, what: impl AsRef<str>) {
        let what: String = what.as_ref().chars().take(1500).collect();
        self.differences.push(format!("{path}: {what}"));
    }

    /// Status, headers and media type.
    ///
    /// The proxy between kubectl and the server kept hardly any headers: in a `session`, none is missed.
    pub(crate) fn head(&mut self, expected: &Response, session: bool, status: u16, headers: &HeaderMap) {
        if expected.status != status {
            self.differ("status", format!("expected {}, got {status}", expected.status));
        }
        let actual = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
            values.collect()
        };
        // Protobuf is never spoken here; who asks for it accepts JSON as well.
        let media = expected.content_type.as_deref().filter(|media| !media.contains("protobuf"));
        if let Some(media) = media.filter(|media| !media.is_empty())
            && actual("content-type") != [media]
        {
            self.differ("content-type", format!("expected {media:?}, got {:?}", actual("content-type")));
        }
        for name in HEADERS {
            let recorded = expected.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            let mut recorded: Vec<String> = match recorded.map(|(_, value)| value) {
                Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                Some(Value::String(value)) => vec![value.clone()],
                _ => Vec::new(),
            };
            let mut got = actual(name);
            got.retain(|value| name != "cache-control" || value != USUAL);
            if session && recorded.is_empty() {
                continue;
            }
            recorded.sort();
            got.sort();
            let same = recorded.len() == got.len()
                && recorded.iter().zip(&got).all(|(recorded, got)| self.bindings.same(recorded, got).is_ok());
            if !same {
                self.differ(name, format!("expected {recorded:?}, got {got:?}"));
            }
        }
    }

    /// The whole body of an answer.
    pub(crate) fn body(&mut self, expected: &Value, actual: &str) {
        if let Value::String(text) = expected {
            // A text that was cut off says no more than that there was one.
            let cut = self.trimmed || REMOVED.iter().any(|marker| text.contains(marker));
            if text.starts_with("<protobuf") || (cut && !actual.is_empty()) {
                return;
            }
            // Several documents, as a watch sends them: the order of their keys is no matter.
            if let (Some(expected), Some(actual)) = (documents(text), documents(actual)) {
                self.value(&Value::Array(expected), &Value::Array(actual), "");
                return;
            }
            if let Err(why) = self.bindings.same(text, actual) {
                self.differ("body", why);
            }
            return;
        }
        match serde_json::from_str(actual) {
            Ok(actual) => self.value(expected, &actual, ""),
            Err(_) => self.differ("body", format!("expected JSON, got {actual:?}")),
        }
    }

    /// A body in YAML: the layout counts as well, but for a version the recorder left as it was in its run.
    pub(crate) fn yaml(&mut self, expected: &str, actual: &str) {
        let settled = |text: &str| {
            let own = |line: &str| line.trim_start().starts_with("resourceVersion: ");
            let lines = text.lines().map(|line| if own(line) { "resourceVersion" } else { line });
            lines.collect::<Vec<_>>().join("\n")
        };
        if let Err(why) = self.bindings.same(&settled(expected), &settled(actual)) {
            self.differ("body", why);
        }
    }

    /// One JSON value below `path`.
    pub(crate) fn value(&mut self, expected: &Value, actual: &Value, path: &str) {
        match (expected, actual) {
            (Value::String(text), _) if REMOVED.contains(&text.as_str()) => {}
            (Value::String(text), Value::String(actual)) => self.text(text, actual, path),
            (Value::Object(_), Value::Object(_)) => {
                self.object(expected, actual, path);
                if let Err(why) = self.bindings.write(expected, actual) {
                    self.differ(&format!("{path}.metadata.resourceVersion"), why);
                }
            }
            (Value::Array(expected), Value::Array(actual)) => self.array(expected, actual, path),
            _ if expected == actual => {}
            _ => self.differ(path, format!("expected {expected}, got {actual}")),
        }
    }

    /// What says nothing about behaviour: how the real server was built and how it hashes.
    fn is_incidental(path: &str) -> bool {
        path.ends_with(".storageVersionHash") || BUILD.contains(&path)
    }

    fn text(&mut self, expected: &str, actual: &str, path: &str) {
        if path.contains(".cells[") && AGE.is_match(expected) && AGE.is_match(actual) {
            return;
        }
        // An object that a message repeats: the order of its fields is no matter.
        if let (Some(expected), Some(actual)) = (quoted(expected), quoted(actual)) {
            let around = self.bindings.same(&expected.1, &actual.1);
            self.value(&expected.0, &actual.0, path);
            if let Err(why) = around {
                self.differ(path, why);
            }
            return;
        }
        if let Err(why) = self.bindings.same(expected, actual) {
            // The causes in a message come in the order of a Go map.
            if !(path.ends_with("message") && parts(expected).is_some_and(|p| Some(p) == parts(actual))) {
                self.differ(path, why);
            }
        }
    }

    fn object(&mut self, expected: &Value, actual: &Value, path: &str) {
        let (Some(expected), Some(actual)) = (expected.as_object(), actual.as_object()) else { return };
        let mut seen = Vec::new();
        for (name, value) in expected {
            let name = self.bindings.fill(name).unwrap_or_else(|_| name.clone());
            match actual.get(&name) {
                _ if Self::is_incidental(&format!("{path}.{name}")) => {}
                Some(found) => self.value(value, found, &format!("{path}.{name}")),
                None if value == "<trimmed>" => {}
                None => self.differ(&format!("{path}.{name}"), format!("expected {value}, got nothing")),
            }
            seen.push(name);
        }
        for (name, value) in actual {
            if !self.trimmed && !seen.contains(name) {
                self.differ(&format!("{path}.{name}"), format!("expected nothing, got {value}"));
            }
        }
    }

    fn array(&mut self, expected: &[Value], actual: &[Value], path: &str) {
        // Items of which only the names were kept.
        let names: Option<Vec<&str>> = expected.iter().map(Value::as_str).collect();
        if self.trimmed
            && path.rsplit('.').next() == Some("items")
            && let Some(names) = names
        {
            let actual: Vec<&str> = actual.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
            if names != actual {
                self.differ(path, format!("expected {names:?}, got {actual:?}"));
            }
            return;
        }
        if self.trimmed {
            // Where the rest was cut off stands an ellipsis.
            let expected = expected.strip_suffix(&[Value::from("...")]).unwrap_or(expected);
            self.some_of(expected, actual, path);
            return;
        }
        if expected.len() != actual.len() {
            let (expected, actual) = (Value::from(expected), Value::from(actual));
            self.differ(path, format!("expected {expected}, got {actual}"));
            return;
        }
        let (mut expected, mut actual): (Vec<_>, Vec<_>) = (expected.iter().collect(), actual.iter().collect());
        if path.ends_with(".causes") {
            expected.sort_by_key(ToString::to_string);
            actual.sort_by_key(ToString::to_string);
        }
        // The resources of a group come in no particular order.
        if path.ends_with(".resources") {
            let name = |value: &&Value| format!("{}{}", value["name"], value["resource"]);
            expected.sort_by_key(name);
            actual.sort_by_key(name);
        }
        for (index, (expected, actual)) in expected.into_iter().zip(actual).enumerate() {
            self.value(expected, actual, &format!("{path}[{index}]"));
        }
    }

    /// Every expected item is there, in this order, perhaps with others between.
    fn some_of(&mut self, expected: &[Value], actual: &[Value], path: &str) {
        let mut rest = actual.iter();
        for (index, item) in expected.iter().enumerate() {
            if item.as_str().is_some_and(|text| REMOVED.contains(&text)) {
                continue;
            }
            let found = rest.by_ref().any(|candidate| {
                let mut bindings = self.bindings.clone();
                let mut trial = Comparison::new(&mut bindings, true);
                trial.value(item, candidate, path);
                let same = trial.differences.is_empty();
                if same {
                    *self.bindings = bindings;
                }
                same
            });
            if !found {
                let actual = Value::from(actual);
                self.differ(&format!("{path}[{index}]"), format!("expected {item} among {actual}"));
                return;
            }
        }
    }
}

/// JSON documents one per line.
pub(crate) fn documents(text: &str) -> Option<Vec<Value>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let parsed: Option<Vec<Value>> = lines.map(|line| serde_json::from_str(line).ok()).collect();
    parsed.filter(|documents| documents.iter().all(Value::is_object))
}

/// The sorted parts of `…: [a, b]`.
fn parts(message: &str) -> Option<Vec<&str>> {
    let (head, list) = message.strip_suffix(']')?.split_once(": [")?;
    let mut parts: Vec<&str> = list.split(", ").collect();
    parts.sort_unstable();
    parts.push(head);
    Some(parts)
}

/// The JSON object that is quoted in a message, and the message around it.
fn quoted(message: &str) -> Option<(Value, String)> {
    let start = message.find(r#""{\""#)?;
    let (head, tail) = message.split_at(start);
    let mut literals = serde_json::Deserializer::from_str(tail).into_iter::<String>();
    let literal = literals.next()?.ok()?;
    let rest = tail.get(literals.byte_offset()..)?;
    Some((serde_json::from_str(&literal).ok()?, format!("{head}{rest}")))
}
