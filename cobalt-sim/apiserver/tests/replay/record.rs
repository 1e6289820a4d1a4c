//! The recordings as they lie on disk.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// One line: an exchange, a watch, or a session of several exchanges.
#[derive(Debug, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    #[serde(default)]
    request: Option<Value>,
    #[serde(default)]
    response: Option<Value>,
    #[serde(default)]
    exchanges: Vec<Exchange>,
}

/// A request and the answer to it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) response: Response,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// A header that is null was not sent although it usually is.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) content_type: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) body: Option<Value>,
    #[serde(default)]
    pub(crate) trimmed: bool,
    #[serde(default)]
    pub(crate) stream: bool,
    #[serde(default)]
    pub(crate) events: Vec<Event>,
    #[serde(default)]
    pub(crate) ended_by: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) object: Value,
}

impl Record {
    /// What was exchanged; nothing for the few records that are notes.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        if !self.exchanges.is_empty() {
            return self.exchanges.clone();
        }
        let (Some(request), Some(response)) = (&self.request, &self.response) else { return Vec::new() };
        let answered = response.get("status").and_then(Value::as_u64).unwrap_or(0) != 0;
        if !answered || request.get("method").is_none_or(Value::is_null) {
            return Vec::new();
        }
        let exchange = serde_json::json!({"request": request, "response": response});
        vec![serde_json::from_value(exchange).unwrap_or_else(|error| panic!("{}: {error}", self.id))]
    }
}

impl Record {
    /// Whether this is a watch that was opened after the record of that id; `None` is the very beginning.
    pub(crate) fn is_watch_started_after(&self, id: Option<&str>) -> bool {
        let Some(response) = &self.response else { return false };
        let opened = response.get("startedAfter");
        response["stream"] == true && opened.is_some_and(|opened| opened.as_str() == id)
    }
}

/// A request of the administrator that was not recorded.
pub(crate) fn request(method: &str, path: &str, media: &str, body: Value) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        user: None,
        headers: BTreeMap::from([("Content-Type".to_owned(), Some(media.to_owned()))]),
        body: Some(body),
    }
}

/// Reads the records of a group.
pub(crate) fn load(group: &str) -> Vec<Record> {
    let path = format!("{}/tests/wire/{group}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{path}: {error}"))).collect()
}
