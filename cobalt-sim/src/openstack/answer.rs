//! What is answered: a success, or a refusal in the words of the service that refuses.

use std::{error::Error as _, time::Duration};

use bytes::Bytes;
use cobalt_core::Error;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::Service;
use crate::faults::{Failure, Injected};

/// An answer that goes out.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn json(status: StatusCode, value: &Value) -> Self {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, json)]);
        Self { status, headers, body: value.to_string().into() }
    }

    pub(super) fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value)
    }

    /// Without a body.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// With a header, unless the value cannot be one.
    pub(super) fn header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }
}

/// Why there is no success.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The service says no.
    No {
        status: StatusCode,
        message: String,
        /// Placement's own word for it.
        code: Option<&'static str>,
        retry_after: Option<Duration>,
    },
    /// The connection ends without an answer.
    Cut,
    /// A success, by the look of it.
    Nonsense,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self::No { status, message: message.into(), code: None, retry_after: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "The request you have made requires authentication.")
    }

    /// The same with Placement's word for it.
    pub(super) fn coded(mut self, word: &'static str) -> Self {
        if let Self::No { code, .. } = &mut self {
            *code = Some(word);
        }
        self
    }

    /// Placement's word, if it is this status.
    pub(super) fn coded_if(self, wanted: StatusCode, word: &'static str) -> Self {
        if self.status() == Some(wanted) { self.coded(word) } else { self }
    }

    /// Another status for what would be a conflict.
    pub(super) fn conflict_as(mut self, other: StatusCode) -> Self {
        if let Self::No { status, .. } = &mut self
            && *status == StatusCode::CONFLICT
        {
            *status = other;
        }
        self
    }

    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::No { status, .. } => Some(*status),
            Self::Cut | Self::Nonsense => None,
        }
    }

    /// In the words of a service; `None` if the connection shall end without any.
    pub(super) fn answer(self, service: Service, request_id: &str) -> Option<Answer> {
        match self {
            Self::Cut => None,
            Self::Nonsense => Some(Answer { body: Bytes::from_static(b"injected fault"), ..Answer::ok(&Value::Null) }),
            Self::No { status, message, code, retry_after } => {
                let answer = Answer::json(status, &body(service, status, &message, code, request_id));
                Some(match retry_after {
                    // Whole seconds, and never a moment too early.
                    Some(after) => answer.header("retry-after", &after.as_secs_f64().ceil().to_string()),
                    None => answer,
                })
            }
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let injected = error.source().and_then(|cause| cause.downcast_ref::<Injected>()).map(|injected| injected.0);
        let text = error.to_string();
        match error {
            Error::NotFound { .. } => Self::missing(text),
            Error::Conflict { reason, .. } => Self::conflict(reason),
            Error::Refused { reason, .. } => Self::bad(reason),
            Error::Denied { .. } => Self::new(StatusCode::FORBIDDEN, "Policy doesn't allow this to be performed."),
            Error::Unsupported { .. } => Self::new(StatusCode::NOT_IMPLEMENTED, text),
            Error::Unavailable { retry_after: Some(after), .. } => Self::No {
                status: StatusCode::TOO_MANY_REQUESTS,
                message: "This request was rate-limited.".into(),
                code: None,
                retry_after: Some(after),
            },
            Error::Unavailable { .. } if injected == Some(Failure::Internal) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Unexpected API Error.")
            }
            Error::Unavailable { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, "The service is unavailable."),
            // Whoever waits for it learns nothing, not even that.
            Error::Timeout { .. } => Self::Cut,
            Error::Malformed { .. } => Self::Nonsense,
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, other.to_string()),
        }
    }
}

/// Nova's name of a fault; some clients look at nothing else.
fn fault(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "badRequest",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "itemNotFound",
        405 => "badMethod",
        409 => "conflictingRequest",
        413 | 429 => "overLimit",
        415 => "badMediaType",
        501 => "notImplemented",
        503 => "serviceUnavailable",
        _ => "computeFault",
    }
}

fn body(service: Service, status: StatusCode, message: &str, code: Option<&'static str>, request_id: &str) -> Value {
    let (number, title) = (status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    let keystone = || json!({"error": {"code": number, "title": title, "message": message}});
    match service {
        // All services have Keystone's middleware in front of them.
        _ if status == StatusCode::UNAUTHORIZED => keystone(),
        Service::Identity => keystone(),
        Service::Compute => json!({fault(status): {"code": number, "message": message}}),
        Service::Placement => {
            let code = code.unwrap_or("placement.undefined_code");
            let error = json!({"status": number, "title": title, "detail": message, "code": code,
                               "request_id": request_id});
            json!({"errors": [error]})
        }
        Service::Image => json!({"code": format!("{number} {title}"), "title": title, "message": message}),
        Service::Network => {
            json!({"NeutronError": {"type": title.replace(' ', ""), "message": message, "detail": ""}})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_seam_says_becomes_what_a_service_says() {
        let injected = |failure| Error::unavailable("x", Injected(failure));
        let busy =
            Error::Unavailable { operation: "x".into(), retry_after: Some(Duration::from_millis(1500)), cause: None };
        for (error, status) in [
            (Error::not_found("x"), Some(404)),
            (Error::conflict("x", "y"), Some(409)),
            (Error::refused("x", "y"), Some(400)),
            (Error::Denied { operation: "x".into(), cause: None }, Some(403)),
            (injected(Failure::Unavailable), Some(503)),
            (injected(Failure::Internal), Some(500)),
            (busy, Some(429)),
            (Error::timeout("x", Duration::ZERO), None),
            (Error::malformed("x", "y"), None),
        ] {
            let text = format!("{error:?}");
            assert_eq!(Refusal::from(error).status().map(|status| status.as_u16()), status, "{text}");
        }
    }

    #[test]
    fn every_service_refuses_in_its_own_words() {
        let said = |service| {
            let answer = Refusal::conflict("it moves").coded("placement.concurrent_update").answer(service, "req-1");
            answer.and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok()).unwrap_or_default()
        };
        assert_eq!(said(Service::Compute)["conflictingRequest"]["message"], "it moves");
        assert_eq!(said(Service::Identity)["error"]["code"], 409);
        assert_eq!(said(Service::Placement)["errors"][0]["code"], "placement.concurrent_update");
        assert_eq!(said(Service::Image)["message"], "it moves");
        assert_eq!(said(Service::Network)["NeutronError"]["message"], "it moves");
        assert!(Refusal::Cut.answer(Service::Compute, "req-1").is_none());
    }

    #[test]
    fn a_wish_to_wait_is_told_in_whole_seconds() {
        let after = Some(Duration::from_millis(1200));
        let busy = Error::Unavailable { operation: "x".into(), retry_after: after, cause: None };
        let answer = Refusal::from(busy).answer(Service::Compute, "req-1");
        let told = answer.and_then(|answer| answer.headers.get("retry-after").cloned());
        assert_eq!(told, Some(HeaderValue::from_static("2")));
    }
}
