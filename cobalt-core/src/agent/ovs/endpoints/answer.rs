//! Failures as callers see them: the JSON of a Kubernetes `Status`, which kubectl's users know.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::resolve::Unclear;
use crate::{Error, runtime::shutdown::Chain};

/// A request that was not done, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: StatusCode,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    pub(super) fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }
}

impl From<Unclear> for Failure {
    fn from(unclear: Unclear) -> Self {
        if unclear.is_unknown() { Self::not_found(unclear.to_string()) } else { Self::invalid(unclear.to_string()) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = Chain(&error).to_string();
        match error {
            Error::NotFound { .. } => Self::not_found(message),
            Error::Refused { .. } => Self::invalid(message),
            Error::Unsupported { .. } => Self::new(StatusCode::NOT_IMPLEMENTED, "NotSupported", message),
            Error::Conflict { .. } => Self::new(StatusCode::CONFLICT, "Conflict", message),
            Error::Timeout { .. } => Self::timeout(message),
            Error::Unavailable { .. } => Self::unavailable(message),
            Error::Denied { .. } | Error::Malformed { .. } | Error::Configuration { .. } => {
                Self::new(StatusCode::BAD_GATEWAY, "SwitchError", message)
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code.as_u16(),
        });
        let mut response = (self.code, Json(body)).into_response();
        match self.code {
            StatusCode::UNAUTHORIZED => {
                let challenge = HeaderValue::from_static("Bearer realm=\"ovs-agent\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            StatusCode::TOO_MANY_REQUESTS => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}
