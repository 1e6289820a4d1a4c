//! Errors as Kubernetes tells them: a `Status` body with reason, details and causes.

use std::fmt::Write as _;

use http::StatusCode;
use serde_json::{Map, Value, json};

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusCause {
    /// Machine-readable reason, for example `FieldValueInvalid`. Empty means absent.
    pub reason: String,
    /// What is wrong with the field.
    pub message: String,
    /// Path of the field, for example `spec.replicas`. Empty means absent.
    pub field: String,
}

impl StatusCause {
    pub(crate) fn new(reason: impl Into<String>, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), field: field.into() }
    }

    /// `Invalid value: <value>: <text>` on `field`.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, text: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {text}"))
    }

    /// `Required value` on `field`, with an explanation unless it is empty.
    pub(crate) fn required(field: impl Into<String>, text: &str) -> Self {
        let message = if text.is_empty() { "Required value".to_owned() } else { format!("Required value: {text}") };
        Self::new("FieldValueRequired", field, message)
    }

    /// `Forbidden: <text>` on `field`.
    pub(crate) fn forbidden(field: impl Into<String>, text: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {text}"))
    }

    /// `Unsupported value: <value>: supported values: ...` on `field`.
    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ");
        Self::new("FieldValueNotSupported", field, format!("Unsupported value: {value}: supported values: {list}"))
    }

    fn to_json(&self) -> Value {
        let mut cause = Map::new();
        if !self.reason.is_empty() {
            cause.insert("reason".into(), self.reason.clone().into());
        }
        cause.insert("message".into(), self.message.clone().into());
        if !self.field.is_empty() {
            cause.insert("field".into(), self.field.clone().into());
        }
        Value::Object(cause)
    }
}

/// What an error is about: the parts of `details` besides the causes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subject<'a> {
    pub(crate) group: &'a str,
    /// The plural resource for most errors, the kind for validation errors.
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

impl Subject<'_> {
    /// `hypervisors.kvm.cloud.sap`, or `pods` in the core group.
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details
    }
}

/// A request that was refused, as it goes over the wire.
#[derive(Debug, Clone)]
pub struct ApiError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Map<String, Value>>,
    metadata: Map<String, Value>,
    retry_after: Option<u32>,
    /// Answered as text instead of a `Status`.
    plain: bool,
    warnings: Vec<String>,
}

pub(crate) type ApiResult<T> = Result<T, Box<ApiError>>;

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason,
            message: message.into(),
            details: None,
            metadata: Map::new(),
            retry_after: None,
            plain: false,
            warnings: Vec::new(),
        })
    }

    fn about(mut self: Box<Self>, subject: &Subject<'_>) -> Box<Self> {
        self.details = Some(subject.details());
        self
    }

    fn because(mut self: Box<Self>, causes: &[StatusCause]) -> Box<Self> {
        if !causes.is_empty() {
            let causes = causes.iter().map(StatusCause::to_json).collect();
            self.details.get_or_insert_default().insert("causes".into(), Value::Array(causes));
        }
        self
    }

    fn retry_in(mut self: Box<Self>, seconds: u32) -> Box<Self> {
        self.retry_after = Some(seconds);
        self.details.get_or_insert_default().insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    /// Adds `Warning` headers to the answer.
    pub(crate) fn warn(mut self: Box<Self>, warnings: &[String]) -> Box<Self> {
        self.warnings.extend_from_slice(warnings);
        self
    }

    pub(crate) fn not_found(subject: &Subject<'_>) -> Box<Self> {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(subject)
    }

    /// An unknown built-in resource or subresource.
    pub(crate) fn no_such_resource() -> Box<Self> {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
            .about(&Subject::default())
    }

    /// A path nobody serves: answered as text, as Go's router does.
    pub(crate) fn page_not_found() -> Box<Self> {
        let mut error = Self::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found\n");
        error.plain = true;
        error
    }

    pub(crate) fn already_exists(subject: &Subject<'_>, being_deleted: bool) -> Box<Self> {
        let prefix = if being_deleted { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} {:?} already exists", subject.qualified(), subject.name);
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(subject)
    }

    pub(crate) fn conflict(subject: &Subject<'_>, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {} {:?}: {why}", subject.qualified(), subject.name);
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(subject)
    }

    pub(crate) fn modified(subject: &Subject<'_>) -> Box<Self> {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Field ownership conflicts of a server-side apply.
    pub(crate) fn apply_conflict(message: String, causes: &[StatusCause]) -> Box<Self> {
        Self::new(StatusCode::CONFLICT, "Conflict", message).because(causes)
    }

    pub(crate) fn invalid(subject: &Subject<'_>, causes: &[StatusCause]) -> Box<Self> {
        // Equal errors are told once in the message, though each stays a cause.
        let mut list: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !list.contains(&text) {
                list.push(text);
            }
        }
        let list = match list.as_slice() {
            [single] => single.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{} {:?} is invalid: {list}", subject.qualified(), subject.name);
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(subject).because(causes)
    }

    /// An invalid query option such as `dryRun` or `resourceVersionMatch`.
    pub(crate) fn invalid_options(kind: &str, causes: &[StatusCause]) -> Box<Self> {
        Self::invalid(&Subject { group: "meta.k8s.io", kind, name: "" }, causes)
    }

    /// 422 without details: a JSON patch that could not be applied.
    pub(crate) fn unprocessable_patch() -> Box<Self> {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .about(&Subject::default())
    }

    pub(crate) fn forbidden(subject: &Subject<'_>, why: &str, causes: &[StatusCause]) -> Box<Self> {
        let mut message = subject.qualified();
        if !subject.name.is_empty() {
            let _ = write!(message, " {:?}", subject.name);
        }
        let _ = write!(message, " is forbidden: {why}");
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(subject).because(causes)
    }

    /// A request an admission policy is against, for the policy's own reason.
    pub(crate) fn denied(subject: &Subject<'_>, why: &str, reason: &str) -> Box<Self> {
        let mut error = Self::forbidden(subject, why, &[StatusCause::new("", "", why)]);
        (error.code, error.reason) = match reason {
            "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            "Invalid" => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            _ => (StatusCode::FORBIDDEN, "Forbidden"),
        };
        error
    }

    /// A path outside the API that the user may not read.
    pub(crate) fn forbidden_path(why: &str) -> Box<Self> {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("forbidden: {why}")).about(&Subject::default())
    }

    pub(crate) fn unauthorized() -> Box<Self> {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The server's own method table does not know the method (built-in resources).
    pub(crate) fn method_not_allowed() -> Box<Self> {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .about(&Subject::default())
    }

    /// The method means nothing on a custom resource.
    pub(crate) fn unsupported_verb(subject: &Subject<'_>, verb: &str) -> Box<Self> {
        let message = format!("{verb} is not supported on resources of kind {:?}", subject.qualified());
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about(subject)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Box<Self> {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    pub(crate) fn not_acceptable() -> Box<Self> {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    pub(crate) fn too_large(limit: usize) -> Box<Self> {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// A JSON patch longer than the server is willing to run.
    pub(crate) fn too_many_operations(message: String) -> Box<Self> {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// 500 without a reason, which is how the real server reports what it did not expect.
    pub(crate) fn internal(message: impl Into<String>) -> Box<Self> {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Box<Self> {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(crate) fn with_continue(mut self: Box<Self>, token: String) -> Box<Self> {
        self.metadata.insert("continue".into(), token.into());
        self
    }

    pub(crate) fn revision_too_large(asked: u64, current: u64) -> Box<Self> {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .because(&[StatusCause::new("ResourceVersionTooLarge", "", "Too large resource version")])
        .retry_in(1)
    }

    /// 429 of the eviction subresource.
    pub(crate) fn disruption_budget(why: String, retry_after: Option<u32>) -> Box<Self> {
        let error = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
        .because(&[StatusCause::new("DisruptionBudget", "", why)]);
        match retry_after {
            Some(seconds) => error.retry_in(seconds),
            None => error,
        }
    }

    /// Any code, for injected faults: the reason is what client libraries expect with that code.
    pub(crate) fn injected(code: StatusCode, retry_after: Option<u32>) -> Box<Self> {
        let reason = match code.as_u16() {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        let error = Self::new(code, reason, format!("injected fault: {code}"));
        match retry_after {
            Some(seconds) => error.retry_in(seconds),
            None => error,
        }
    }

    /// The HTTP status code.
    pub fn code(&self) -> StatusCode {
        self.code
    }

    /// The machine-readable reason, for example `NotFound`; empty for an unexpected error.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// The text for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Bounded label for metrics and logs.
    pub fn category(&self) -> &'static str {
        if self.reason.is_empty() { "Internal" } else { self.reason }
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self.code.as_u16(), 409 | 410 | 429) || self.code.is_server_error()
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The `Status` object.
    pub(crate) fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object(details.clone());
        }
        status
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.code.as_u16())
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_causes_appear_once_in_the_message() {
        let cause = StatusCause::required("spec.a", "");
        let error = ApiError::invalid(&Subject { group: "g", kind: "K", name: "n" }, &[cause.clone(), cause]);
        assert_eq!(error.message(), "K.g \"n\" is invalid: spec.a: Required value");
        assert_eq!(error.to_json()["details"]["causes"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_core_resource_is_named_without_a_group() {
        let error = ApiError::not_found(&Subject { group: "", kind: "pods", name: "p" });
        assert_eq!(error.message(), "pods \"p\" not found");
        assert_eq!(error.to_json()["details"], json!({"name": "p", "kind": "pods"}));
    }
}
