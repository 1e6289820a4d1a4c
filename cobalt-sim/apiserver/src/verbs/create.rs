//! Making objects.

use http::StatusCode;
use serde_json::Value;

use super::write::{self, ATTEMPTS, Ownership, Refused};
use super::{Answer, Call, Writer};
use crate::http::{FieldValidation, decode};
use crate::meta;
use crate::status::{ApiError, ApiResult};

pub(super) fn create(call: &Call<'_>) -> ApiResult<Answer> {
    let mut writer = Writer::new(call, "CreateOptions")?;
    let decoded = decode::object(&call.resource().kind, call.headers, call.body)?;
    let mut object = decoded.value;
    check_kind(call, &object)?;
    let duplicates: Vec<String> = decoded.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    writer.tell(&duplicates)?;
    check_namespace(call, &object)?;
    if !meta::text(&object, "resourceVersion").is_empty() {
        return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
    }
    let prefix = meta::text(&object, "generateName").to_owned();
    let generated = meta::text(&object, "name").is_empty() && !prefix.is_empty();
    let told = writer.warnings.len();
    for _ in 0..ATTEMPTS {
        // An attempt that lost a race has warned of nothing.
        writer.warnings.truncate(told);
        if generated {
            let name = format!("{prefix}{}", call.server.entropy.suffix());
            meta::set(&mut object, "name", Some(name.into()));
        }
        meta::text(&object, "name").clone_into(&mut writer.key.name);
        match writer.create(object.clone(), Ownership::Track) {
            Ok(written) => {
                let mut answer = Answer::new(StatusCode::CREATED, written.body);
                answer.warnings = writer.warnings;
                return Ok(answer.changed(written.changed));
            }
            Err(Refused::Raced) => {}
            // A generated name that is taken is drawn again.
            Err(Refused::Api(error)) if generated && error.reason() == "AlreadyExists" => {}
            Err(Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::already_exists(&call.resource().subject(&writer.key.name), false))
}

/// The body must be of the kind and version of the path.
pub(super) fn check_kind(call: &Call<'_>, object: &Value) -> ApiResult<()> {
    let resource = call.resource();
    let field = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (field("apiVersion"), field("kind"));
    // Built-in types know what they are.
    let untyped = api_version.is_empty() && kind.is_empty();
    if untyped && !resource.is_custom() {
        return Ok(());
    }
    let body = String::from_utf8_lossy(call.body);
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{body}'");
        return Err(decode::unrecognized(&resource.kind, &why, call.body));
    }
    if api_version.is_empty() && resource.is_custom() {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"\" cannot be handled as a {}: Object 'apiVersion' is missing in '{body}'",
            resource.kind
        )));
    }
    let expected = resource.api_version();
    if !api_version.is_empty() && api_version != expected {
        let why =
            format!("the API version in the data ({api_version}) does not match the expected API version ({expected})");
        return Err(ApiError::bad_request(why).warn(&unknown_here(call, object)));
    }
    if kind != resource.kind && resource.is_custom() {
        return Err(write::wrong_kind(resource, kind, meta::text(object, "name")));
    }
    if kind != resource.kind {
        return Err(ApiError::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {}: converting ({expected}, Kind={kind}) to ({expected}, Kind={}): unknown conversion",
            resource.version, resource.kind, resource.kind
        )));
    }
    Ok(())
}

/// What a custom resource of another version than the path's would be warned of: nothing is known of its fields.
fn unknown_here(call: &Call<'_>, object: &Value) -> Vec<String> {
    let warns = FieldValidation::parse(call.params, "").is_ok_and(|validation| validation == FieldValidation::Warn);
    if !warns || !call.resource().is_custom() {
        return Vec::new();
    }
    let fields = object.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let unknown = fields.filter(|name| !["apiVersion", "kind", "metadata"].contains(name));
    unknown.map(|name| format!("unknown field \"{name}\"")).collect()
}

/// The namespace of the body, if there is one, must be the one of the path.
pub(super) fn check_namespace(call: &Call<'_>, object: &Value) -> ApiResult<()> {
    let named = meta::text(object, "namespace");
    let path = call.target.namespace.as_deref().unwrap_or_default();
    if call.resource().namespaced && !named.is_empty() && named != path {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
