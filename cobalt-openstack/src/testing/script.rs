//! What to answer, and what was asked.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::{Body, whole};

/// One answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) delay: Duration,
    pub(super) cut: bool,
    text: String,
    endless: bool,
}

impl Reply {
    /// A success with this body.
    pub fn json(text: impl Into<String>) -> Self {
        Self {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
            delay: Duration::ZERO,
            cut: false,
            text: text.into(),
            endless: false,
        }
    }

    /// An answer with this status and without a body.
    ///
    /// # Panics
    ///
    /// If there is no such status.
    pub fn status(status: u16) -> Self {
        let Ok(status) = StatusCode::from_u16(status) else { panic!("{status} is no status") };
        Self { status, ..Self::json("") }
    }

    /// An error as Nova tells it.
    pub fn error(status: u16, message: &str) -> Self {
        Self { text: json!({"error": {"code": status, "message": message}}).to_string(), ..Self::status(status) }
    }

    /// A success whose body does not end.
    pub fn endless() -> Self {
        Self { endless: true, ..Self::json("") }
    }

    /// No answer: the connection is closed after the request was read.
    pub fn cut() -> Self {
        Self { cut: true, ..Self::json("") }
    }

    /// With a header.
    ///
    /// # Panics
    ///
    /// If it cannot be one.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
            panic!("`{name}: {value}` is no header")
        };
        self.headers.insert(name, value);
        self
    }

    /// After a while.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub(super) fn body(&self) -> Body {
        if self.endless { BodyExt::boxed(Endless) } else { whole(Bytes::from(self.text.clone())) }
    }
}

/// White space, which is JSON as long as something else follows.
struct Endless;

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 16 << 10])))))
    }
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// What was behind the question mark.
    pub query: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Seen {
    /// A header as text; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

#[derive(Debug)]
pub(super) struct Script {
    pub(super) catalog: Value,
    pub(super) life: Duration,
    pub(super) logins: VecDeque<Reply>,
    pub(super) given: u64,
    revoked: u64,
    replies: BTreeMap<(String, String), VecDeque<Reply>>,
    pub(super) seen: Vec<Seen>,
}

impl Script {
    pub(super) fn new(address: &str) -> Self {
        let endpoint = |path: &str| {
            json!([{"id": "1", "interface": "public", "region": "RegionOne", "region_id": "RegionOne",
                    "url": format!("http://{address}{path}")}])
        };
        let catalog = json!([
            {"id": "c", "type": "compute", "name": "nova", "endpoints": endpoint("/compute/v2.1")},
            {"id": "p", "type": "placement", "name": "placement", "endpoints": endpoint("/placement")},
            {"id": "i", "type": "image", "name": "glance", "endpoints": endpoint("/image")},
            {"id": "n", "type": "network", "name": "neutron", "endpoints": endpoint("/network")},
        ]);
        Self {
            catalog,
            life: Duration::from_secs(3600),
            logins: VecDeque::new(),
            given: 0,
            revoked: 0,
            replies: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    pub(super) fn on(&mut self, method: &str, path: &str, replies: impl IntoIterator<Item = Reply>) {
        self.replies.insert((method.to_owned(), path.to_owned()), replies.into_iter().collect());
    }

    pub(super) fn revoke(&mut self) {
        self.revoked = self.given;
    }

    pub(super) fn reply(&mut self, method: &str, path: &str, query: &str, headers: &HeaderMap, body: &Bytes) -> Reply {
        let (headers, body) = (headers.clone(), body.clone());
        let seen = Seen { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), headers, body };
        self.seen.push(seen.clone());
        let reply = self.choose(&seen);
        let number = self.seen.len();
        if reply.headers.contains_key("x-openstack-request-id") {
            return reply;
        }
        reply.header("x-openstack-request-id", &format!("req-{number}"))
    }

    fn choose(&mut self, seen: &Seen) -> Reply {
        if seen.path == "/identity/v3/auth/tokens" {
            return self.login();
        }
        let token = seen.header("x-auth-token").strip_prefix("token-").and_then(|number| number.parse().ok());
        if token.is_none_or(|number: u64| number <= self.revoked || number > self.given) {
            return Reply::error(401, "The request you have made requires authentication.");
        }
        let Some(replies) = self.replies.get_mut(&(seen.method.clone(), seen.path.clone())) else {
            return Reply::error(404, "nobody told me about this");
        };
        let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
        reply.unwrap_or_else(|| Reply::error(404, "nothing was told about this"))
    }

    fn login(&mut self) -> Reply {
        if let Some(reply) = self.logins.pop_front() {
            return reply;
        }
        self.given += 1;
        let issued = jiff::Timestamp::UNIX_EPOCH;
        let expires = issued + self.life;
        let body = json!({"token": {
            "issued_at": issued.to_string(), "expires_at": expires.to_string(), "catalog": self.catalog,
            "project": {"id": "p1", "name": "admin"}, "user": {"id": "u1", "name": "operator"},
        }});
        let reply = Reply { status: StatusCode::CREATED, ..Reply::json(body.to_string()) };
        reply.header("x-subject-token", &format!("token-{}", self.given))
    }
}
