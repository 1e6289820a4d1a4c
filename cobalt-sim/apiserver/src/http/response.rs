//! Answers as HTTP responses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use serde_json::Value;

use super::body::ResponseBody;
use super::params::Form;
use super::yaml;
use crate::convert;
use crate::registry::Resource;
use crate::status::ApiError;
use crate::store::{Object, encode};
use crate::verbs::{Answer, Reply};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

fn base(code: StatusCode, media: HeaderValue, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A JSON document.
pub(super) fn json(code: StatusCode, value: &Value) -> Response<ResponseBody> {
    base(code, JSON, ResponseBody::whole(encode(value)))
}

/// A text page.
pub(super) fn text(code: StatusCode, page: impl Into<Bytes>) -> Response<ResponseBody> {
    base(code, TEXT, ResponseBody::whole(page))
}

/// A watch.
pub(super) fn stream(body: ResponseBody) -> Response<ResponseBody> {
    base(StatusCode::OK, JSON, body)
}

/// The same answer as YAML, if it is a JSON document.
pub(super) fn as_yaml(answer: Response<ResponseBody>) -> Response<ResponseBody> {
    if answer.headers().get(CONTENT_TYPE) != Some(&JSON) {
        return answer;
    }
    let mut answer = answer.map(|body| {
        body.map_whole(|json| match serde_json::from_slice(&json) {
            Ok(value) => yaml::document(&value).into(),
            Err(_) => json,
        })
    });
    answer.headers_mut().insert(CONTENT_TYPE, YAML);
    answer
}

/// A refusal.
pub(super) fn error(error: &ApiError) -> Response<ResponseBody> {
    let mut response = if error.is_plain() {
        text(error.code(), error.message().to_owned())
    } else {
        json(error.code(), &error.to_json())
    };
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    warn(&mut response, error.warnings());
    response
}

/// The answer of a verb in the form the client asked for.
pub(super) fn answer(resource: &Resource, form: Form, answer: Answer) -> Response<ResponseBody> {
    let bytes = match answer.body {
        Reply::Bytes(bytes) => bytes,
        Reply::Object(object) => stored(resource, form, &object),
        Reply::Value(value) if form == Form::Metadata && value["kind"] == resource.kind.as_str() => {
            encode(&convert::partial(&value))
        }
        Reply::Value(value) => encode(&value),
    };
    let mut response = base(answer.code, JSON, ResponseBody::whole(bytes));
    warn(&mut response, &answer.warnings);
    response
}

fn stored(resource: &Resource, form: Form, object: &Object) -> Bytes {
    match form {
        Form::Metadata => encode(&convert::partial(&object.value)),
        Form::Whole if resource.is_storage_form(&object.value) => object.json(),
        Form::Whole | Form::Table(_) => encode(&convert::to_version(resource, &object.value)),
    }
}

/// `299 - "text"`, one header per warning.
fn warn(response: &mut Response<ResponseBody>, warnings: &[String]) {
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
