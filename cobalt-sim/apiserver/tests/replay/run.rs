//! Sends the recorded requests and hands the answers to the comparison.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use cobalt_apiserver::{ApiServer, Identity, ResponseBody};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body_util::{BodyExt, Collected, Full};
use serde_json::Value;
use tower::ServiceExt;

use crate::bindings::Bindings;
use crate::compare::{Comparison, documents};
use crate::record::{self, Exchange, Record, Response};
use crate::setup::{self, Step};
use crate::unserved;

/// How a record was answered.
pub(crate) struct Outcome {
    pub(crate) id: String,
    pub(crate) differences: Vec<String>,
    /// How many of its exchanges were compared.
    pub(crate) compared: usize,
    /// How many were not, because they ask for what this server does not have.
    pub(crate) passed_over: usize,
}

/// Longer than any recorded watch, in virtual time.
const END: Duration = Duration::from_secs(60);
/// Nothing for this long means that nothing more comes, in virtual time.
const QUIET: Duration = Duration::from_millis(300);

/// Replays a group on a fresh server.
pub(crate) async fn replay(group: &str, records: &[Record]) -> Vec<Outcome> {
    let mut replay = Replay::start(group).await;
    let mut outcomes = Vec::new();
    let mut previous: Option<&str> = None;
    for (index, record) in records.iter().enumerate() {
        let exchanges = record.exchanges();
        if exchanges.is_empty() {
            previous = Some(&record.id);
            continue;
        }
        replay.steps(setup::before(&record.id)).await;
        let opened = records[index..].iter().filter(|later| later.is_watch_started_after(previous));
        for watch in opened {
            let answer = replay.send(&watch.exchanges()[0]).await;
            replay.watches.insert(watch.id.clone(), answer);
        }
        let mut differences = Vec::new();
        let mut compared = 0;
        for exchange in &exchanges {
            compared += usize::from(replay.exchange(&record.id, exchange, &mut differences).await);
        }
        // What controllers do and what comes next may happen at a later time than this.
        let next: Vec<Exchange> = records.get(index + 1).map(Record::exchanges).unwrap_or_default();
        if setup::is_slow(&record.id) {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        replay.tick(&next).await;
        if !setup::is_immediate(&record.id) {
            replay.server.settle().await;
        }
        let passed_over = exchanges.len() - compared;
        outcomes.push(Outcome { id: record.id.clone(), differences, compared, passed_over });
        previous = Some(&record.id);
    }
    outcomes
}

/// An answer whose body may still be coming.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: ResponseBody,
}

struct Replay {
    server: ApiServer,
    bindings: Bindings,
    watches: HashMap<String, Result<Answer, String>>,
    /// By path and accepted type.
    etags: HashMap<(String, String), HeaderValue>,
    /// By path.
    hashes: HashMap<String, String>,
}

impl Replay {
    async fn start(group: &str) -> Self {
        // A controller manager ran beside the real server in two groups.
        let builder = match group {
            "5-core" | "8-kubectl" => ApiServer::builder().controller_manager(),
            _ => ApiServer::builder().service_accounts(),
        };
        let server = builder
            .seed(1)
            .start_time("2026-11-18T01:51:00Z".parse().unwrap())
            .rbac()
            .token("admin", Identity::new("admin", ["system:masters"]))
            .token("operator", Identity::new("operator", ["operators"]))
            .token("agent", Identity { uid: "3".to_owned(), ..Identity::new("agent", ["agents"]) })
            .start();
        let mut bindings = Bindings::default();
        bindings.set("<token:agent>", "agent");
        let mut replay =
            Self { server, bindings, watches: HashMap::new(), etags: HashMap::new(), hashes: HashMap::new() };
        if group != "1-crd" {
            replay.steps(setup::definitions()).await;
            replay.server.settle().await;
        }
        replay
    }

    /// Gives times that were not seen yet a second of their own.
    async fn tick(&self, exchanges: &[Exchange]) {
        let is_new = |value: &Value| self.bindings.has_new_time(&value.to_string());
        let new = exchanges.iter().any(|exchange| {
            let response = &exchange.response;
            response.body.as_ref().is_some_and(is_new) || response.events.iter().any(|event| is_new(&event.object))
        });
        if new {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    /// Makes the calls that were not recorded.
    async fn steps(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Forget => self.server.compact(),
                Step::Garble { from, to } => {
                    // Without the token there is nothing to spoil, and the record will say so.
                    if let Ok(mut token) = self.bindings.fill(from) {
                        let last = if token.pop() == Some('A') { 'B' } else { 'A' };
                        token.push(last);
                        self.bindings.set(to, &token);
                    }
                }
                Step::Call { method, path, media, body, binds } => {
                    let request = record::request(method, &path, media, body);
                    let sent = self.request(&request).await;
                    let answer = sent.unwrap_or_else(|why| panic!("{method} {path}: {why}"));
                    let status = answer.status;
                    let text = read(answer.body).await;
                    assert!(status < 300, "{method} {path}: {status} {text}");
                    let value: Value = serde_json::from_str(&text).unwrap();
                    for (placeholder, pointer) in binds {
                        let found = value.pointer(pointer).and_then(Value::as_str);
                        self.bindings.set(placeholder, found.unwrap_or_else(|| panic!("{path}: no {pointer}")));
                    }
                    self.server.settle().await;
                }
            }
        }
    }

    /// Asks again and compares; false if there is nothing to compare.
    async fn exchange(&mut self, id: &str, exchange: &Exchange, differences: &mut Vec<String>) -> bool {
        if exchange.request.user.is_none() && unserved::is_path(&exchange.request.path) {
            return false;
        }
        let answer = match self.watches.remove(id) {
            Some(answer) => answer,
            None => self.send(exchange).await,
        };
        let during = setup::during(id, exchange.response.stream);
        if !during.is_empty() {
            tokio::time::advance(Duration::from_secs(1)).await;
            self.steps(during).await;
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                differences.push(why);
                return true;
            }
        };
        let expected = &exchange.response;
        // Whether a cached document is still good depended on when the real server had made it.
        let conditional = exchange.request.headers.keys().any(|name| name.starts_with("If-"));
        if conditional && answer.status == 304 && expected.status == 200 {
            return false;
        }
        let mut comparison = Comparison::new(&mut self.bindings, expected.trimmed);
        comparison.head(expected, exchange.request.user.is_none(), answer.status, &answer.headers);
        if expected.stream {
            let (text, ended) = events(answer.body, expected).await;
            let server_ended = expected.ended_by.as_deref() == Some("server");
            if server_ended && !ended {
                comparison.differences.push("the watch did not end".to_owned());
            }
            let recorded = expected.events.iter();
            let recorded = recorded.map(|event| serde_json::json!({"type": event.kind, "object": event.object}));
            match documents(&text) {
                Some(got) => comparison.value(&recorded.collect(), &got.into(), ""),
                None => comparison.differences.push("the watch sent something that is no JSON".to_owned()),
            }
        } else {
            let text = read(answer.body).await;
            for link in text.split("\"serverRelativeURL\":\"").skip(1) {
                let link = link.split('"').next().unwrap_or_default();
                if let Some((path, hash)) = link.split_once("?hash=") {
                    self.hashes.insert(path.to_owned(), hash.to_owned());
                }
            }
            // Who has a document already is sent none.
            if let Some(body) = expected.body.as_ref().filter(|_| expected.status != 304) {
                let yaml = answer.headers.get(CONTENT_TYPE).is_some_and(|media| media == "application/yaml");
                match body {
                    Value::String(body) if yaml => comparison.yaml(body, &text),
                    body => comparison.body(&unserved::strip(body), &text),
                }
            }
        }
        differences.append(&mut comparison.differences);
        true
    }

    async fn send(&mut self, exchange: &Exchange) -> Result<Answer, String> {
        self.request(&exchange.request).await
    }

    async fn request(&mut self, recorded: &record::Request) -> Result<Answer, String> {
        let unbound = |placeholder: String| format!("nothing was seen that is {placeholder}");
        let plain = recorded.path.split('?').next().unwrap_or_default().to_owned();
        let hash = self.hashes.get(&plain).map_or("", String::as_str);
        let path = recorded.path.replace("<random>", "300").replace("<hash>", hash);
        let path = self.bindings.fill(&path).map_err(unbound)?;
        let body = match &recorded.body {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => {
                setup::described(text).map_or_else(|| self.bindings.fill(text).map_err(unbound), Ok)?
            }
            Some(value) => spaced(&self.bindings.fill_json(value).map_err(unbound)?),
        };
        let mut request = Request::builder().method(recorded.method.as_str()).uri(path);
        let headers = request.headers_mut().ok_or("the path is no URI")?;
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("rec/1.0"));
        for (name, value) in &recorded.headers {
            let name: HeaderName = name.parse().map_err(|_| format!("{name} is no header"))?;
            match value {
                Some(value) => {
                    let value = self.bindings.fill(value).unwrap_or_else(|_| value.clone());
                    headers.insert(name, HeaderValue::from_str(&value).map_err(|e| e.to_string())?);
                }
                None => drop(headers.remove(name)),
            }
        }
        let accept = headers.get(ACCEPT).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let cached = (plain, accept.unwrap_or_default());
        if let (Some(known), true) = (self.etags.get(&cached), headers.contains_key(IF_NONE_MATCH)) {
            headers.insert(IF_NONE_MATCH, known.clone());
        }
        let service = self.server.service_as("rec", Identity::anonymous());
        let token = match recorded.user.as_deref() {
            None => "admin".to_owned(),
            Some("none") => String::new(),
            // Whoever acts as a service account acts by the token this server issued to it.
            Some("sa-agent") => self.bindings.fill("<jwt:1>").map_err(unbound)?,
            Some("sa-agent-pod-node1") => self.bindings.fill("<jwt:2>").map_err(unbound)?,
            Some(name) => name.to_owned(),
        };
        if !token.is_empty() {
            let value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|e| e.to_string())?;
            headers.insert(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| e.to_string())?;
        let answer = service.oneshot(request).await.map_err(|e| e.to_string())?;
        let (parts, body) = answer.into_parts();
        if let Some(etag) = parts.headers.get(ETAG) {
            self.etags.insert(cached, etag.clone());
        }
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

async fn read(body: ResponseBody) -> String {
    let collected = tokio::time::timeout(END, body.collect()).await;
    let bytes = collected.map(|body| body.map(Collected::to_bytes).unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a watch says until it ends, or until the recorder would have gone away.
async fn events(mut body: ResponseBody, expected: &Response) -> (String, bool) {
    let limit = if expected.ended_by.as_deref() == Some("server") { END } else { QUIET };
    let mut text = Vec::new();
    loop {
        match tokio::time::timeout(limit, body.frame()).await {
            Ok(Some(Ok(frame))) => text.extend(frame.into_data().unwrap_or_default()),
            Ok(_) => return (String::from_utf8_lossy(&text).into_owned(), true),
            Err(_) => return (String::from_utf8_lossy(&text).into_owned(), false),
        }
    }
}

/// JSON as the recorder wrote it, which some messages repeat.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spaced).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, field)| format!("{}: {}", Value::from(name.as_str()), spaced(field)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
