//! Plain HTTP through a `kube::Client`: exact requests, exact answers.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

use super::check::{Mismatch, Verdict, ensure};

/// Any single answer; the slowest recorded one (a list at a future revision) takes three seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A request that can be sent as it is or with more headers.
pub(crate) struct Exchange<'a> {
    client: &'a Client,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(client: &'a Client, method: Method, path: impl Into<String>) -> Exchange<'a> {
        let headers = vec![("accept", JSON.to_owned())];
        Exchange { client, method, path: path.into(), headers, body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Exchange<'a> {
        self.headers.push((name, value.into()));
        self
    }

    /// A JSON body under the given media type.
    pub(crate) fn body(self, media_type: &'static str, body: &Value) -> Exchange<'a> {
        self.text(media_type, body.to_string())
    }

    pub(crate) fn text(mut self, media_type: &'static str, body: impl Into<Vec<u8>>) -> Exchange<'a> {
        self.body = body.into();
        self.header("content-type", media_type)
    }

    fn title(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Sends the request and returns the answer's head and unread body.
    pub(crate) async fn open(self) -> Result<(String, http::Response<Body>), Mismatch> {
        let what = self.title();
        let mut request = Request::builder().method(self.method).uri(self.path);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Body::from(self.body))
            .map_err(|error| Mismatch::new(format!("{what} to be a request"), error))?;
        match tokio::time::timeout(ANSWER_LIMIT, self.client.send(request)).await {
            Ok(Ok(response)) => Ok((what, response)),
            Ok(Err(error)) => Err(Mismatch::new(format!("an answer to {what}"), format!("{error:?}"))),
            Err(_) => Err(Mismatch::new(format!("an answer to {what}"), "silence")),
        }
    }

    pub(crate) async fn send(self) -> Result<Answer, Mismatch> {
        let (what, response) = self.open().await?;
        let (head, body) = response.into_parts();
        let bytes = match tokio::time::timeout(ANSWER_LIMIT, body.collect_bytes()).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => return Err(Mismatch::new(format!("the body of {what}"), format!("{error:?}"))),
            Err(_) => return Err(Mismatch::new(format!("the end of the body of {what}"), "silence")),
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { what, code: head.status.as_u16(), headers: head.headers, text, json })
    }
}

/// A complete answer. The methods that assert return the answer, so that assertions read as a sentence.
pub(crate) struct Answer {
    pub(crate) what: String,
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.text)
    }
}

impl Answer {
    pub(crate) fn code(&self, expected: u16) -> Result<&Answer, Mismatch> {
        self.holds(self.code == expected, || format!("{expected}"))
    }

    pub(crate) fn reason(&self, expected: &str) -> Result<&Answer, Mismatch> {
        self.equals("/reason", expected)
    }

    pub(crate) fn message(&self, expected: &str) -> Result<&Answer, Mismatch> {
        self.equals("/message", expected)
    }

    pub(crate) fn says(&self, part: &str) -> Result<&Answer, Mismatch> {
        let message = self.json["message"].as_str().unwrap_or(&self.text);
        self.holds(message.contains(part), || format!("a message with `{part}`"))
    }

    /// The value at the JSON pointer, `null` where there is none.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.json.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn text_at(&self, pointer: &str) -> Result<String, Mismatch> {
        let text = self.at(pointer).as_str().map(str::to_owned);
        text.ok_or_else(|| Mismatch::new(format!("{}: a text at {pointer}", self.what), self))
    }

    pub(crate) fn equals(&self, pointer: &str, expected: impl Into<Value>) -> Result<&Answer, Mismatch> {
        let expected = expected.into();
        self.holds(*self.at(pointer) == expected, || format!("{pointer} = {expected}"))
    }

    pub(crate) fn lacks(&self, pointer: &str) -> Result<&Answer, Mismatch> {
        self.holds(self.json.pointer(pointer).is_none(), || format!("nothing at {pointer}"))
    }

    /// A cause with this reason on this field.
    pub(crate) fn cause(&self, reason: &str, field: &str) -> Result<&Answer, Mismatch> {
        let causes = self.at("/details/causes").as_array().map_or(&[][..], Vec::as_slice);
        let found = causes.iter().any(|cause| cause["reason"] == reason && cause["field"] == field);
        self.holds(found, || format!("a cause {reason} on {field}"))
    }

    pub(crate) fn version(&self) -> Result<String, Mismatch> {
        self.text_at("/metadata/resourceVersion")
    }

    /// The resourceVersion as the number it is on every server, for order only.
    pub(crate) fn revision(&self) -> Result<u64, Mismatch> {
        revision(&self.json)
    }

    pub(crate) fn holds(&self, holds: bool, expected: impl FnOnce() -> String) -> Result<&Answer, Mismatch> {
        if holds { Ok(self) } else { Err(Mismatch::new(format!("{}: {}", self.what, expected()), self)) }
    }

    /// The names of a list's items, in the order of the answer.
    pub(crate) fn names(&self) -> Vec<String> {
        let items = self.at("/items").as_array().map_or(&[][..], Vec::as_slice);
        items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect()
    }

    pub(crate) fn has_names(&self, expected: &[&str]) -> Verdict {
        let names = self.names();
        ensure(names == expected, format!("{}: the items {expected:?}", self.what), format!("{names:?}"))
    }
}

pub(crate) fn revision(object: &Value) -> Result<u64, Mismatch> {
    let version = &object["metadata"]["resourceVersion"];
    let number = version.as_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Mismatch::new("a numeric metadata.resourceVersion", object))
}

/// `path?key=value&…`, values percent-encoded.
pub(crate) fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let encode = |text| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
    let pairs: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
    format!("{path}?{}", pairs.join("&"))
}
