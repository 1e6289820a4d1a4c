//! Changing objects by JSON patch, merge patch, strategic merge patch and server-side apply.

use http::StatusCode;
use serde_json::{Value, json};

use super::write::{self, ATTEMPTS, Ownership, Refused, Source};
use super::{Answer, Call, Writer};
use crate::http::{content_type, decode};
use crate::patch::{self, PatchError};
use crate::status::{ApiError, ApiResult, StatusCause, Subject};
use crate::store::Object;
use crate::{auth, convert, meta};

/// A decoded patch.
pub(super) enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply { config: Value, force: bool },
}

pub(super) fn patch(call: &Call<'_>) -> ApiResult<Answer> {
    let patch = decode_patch(call)?;
    let mut writer = Writer::new(call, "PatchOptions")?;
    writer.source = match patch {
        Patch::Apply { .. } => Source::Apply,
        _ => Source::Patch,
    };
    for _ in 0..ATTEMPTS {
        writer.warnings.clear();
        match attempt(call, &mut writer, &patch) {
            Ok(mut answer) => {
                answer.warnings = writer.warnings;
                return Ok(answer);
            }
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.resource().subject(call.name())))
}

fn attempt(call: &Call<'_>, writer: &mut Writer<'_>, patch: &Patch) -> Result<Answer, Refused> {
    let resource = call.resource();
    let live = match (call.live(), patch) {
        (Ok(live), _) => live,
        (Err(_), Patch::Apply { config, force }) if !writer.status => {
            return create_by_apply(call, writer, config, *force);
        }
        (Err(error), _) => return Err(error.into()),
    };
    let old = convert::to_version(resource, &live.value).into_owned();
    let (new, ownership) = match patch {
        Patch::Json(patch) => {
            let patched = patch::json(&old, patch).map_err(|e| patch_error(&e))?;
            (patched, Ownership::Track)
        }
        Patch::Merge(patch) => {
            let mut new = old.clone();
            patch::merge(&mut new, patch);
            (new, Ownership::Track)
        }
        Patch::Strategic(patch) => {
            let patched = patch::strategic(&old, patch, resource.types());
            (patched.map_err(|e| patch_error(&e))?, Ownership::Track)
        }
        Patch::Apply { config, force } => {
            check_applied_identity(call, config, &live)?;
            let merged = writer.merge_applied(Some(&old), config, *force)?;
            (merged, Ownership::Applied)
        }
    };
    if ownership == Ownership::Track {
        check_patched(call, &live, &new)?;
    }
    let written = writer.update(&live, new, ownership)?;
    Ok(Answer::ok(written.body).changed(written.changed))
}

fn create_by_apply(call: &Call<'_>, writer: &mut Writer<'_>, config: &Value, force: bool) -> Result<Answer, Refused> {
    if meta::text(config, "name").is_empty() {
        return Err(ApiError::bad_request("name must be provided").into());
    }
    check_applied_name(call, config)?;
    let uid = meta::text(config, "uid");
    if !uid.is_empty() {
        return Err(write::wrong_uid(call.resource(), uid, call.name()).into());
    }
    auth::authorize_create(call)?;
    let merged = writer.merge_applied(None, config, force)?;
    let written = writer.create(merged, Ownership::Applied)?;
    Ok(Answer::new(StatusCode::CREATED, written.body).changed(written.changed))
}

pub(super) fn decode_patch(call: &Call<'_>) -> ApiResult<Patch> {
    let decode = || {
        decode::json(call.body)
            .map(|d| d.value)
            .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))
    };
    let as_map = |value: Value| match value {
        Value::Object(_) => Ok(value),
        other => Err(ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::go_kind(&other)
        ))),
    };
    let media = content_type(call.headers);
    let applies = media == "application/apply-patch+yaml";
    if !applies && call.params.get("force").is_some() {
        let cause = StatusCause::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::invalid_options("PatchOptions", &[cause]));
    }
    match media.as_str() {
        "application/json-patch+json" => match decode()? {
            value @ Value::Array(_) => Ok(Patch::Json(value)),
            other => Err(ApiError::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp",
                decode::go_kind(&other)
            ))),
        },
        "application/merge-patch+json" => Ok(Patch::Merge(as_map(decode()?)?)),
        "application/strategic-merge-patch+json" if !call.resource().is_custom() => {
            Ok(Patch::Strategic(as_map(decode()?)?))
        }
        "application/apply-patch+yaml" => decode_apply(call),
        _ => {
            let mut accepted = vec!["application/json-patch+json", "application/merge-patch+json"];
            if !call.resource().is_custom() {
                accepted.push("application/strategic-merge-patch+json");
            }
            accepted.push("application/apply-patch+yaml");
            Err(ApiError::unsupported_media_type(&accepted))
        }
    }
}

fn decode_apply(call: &Call<'_>) -> ApiResult<Patch> {
    if call.params.text("fieldManager").is_none() {
        let cause = StatusCause::required("fieldManager", "is required for apply patch");
        return Err(ApiError::invalid_options("PatchOptions", &[cause]));
    }
    let config = decode::yaml(call.body)?.value;
    if !config.is_object() {
        return Err(ApiError::bad_request("error decoding YAML: not an object"));
    }
    let field = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (field("apiVersion"), field("kind"));
    let expected = if call.target.subresource.as_deref() == Some("scale") { "Scale" } else { &call.resource().kind };
    if kind != expected || api_version.is_empty() {
        let version = if api_version.is_empty() { "/" } else { api_version };
        return Err(ApiError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    let force = call.params.flag("force");
    Ok(Patch::Apply { config, force })
}

fn check_applied_name(call: &Call<'_>, config: &Value) -> ApiResult<()> {
    let name = meta::text(config, "name");
    if !name.is_empty() && name != call.name() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    let namespace = meta::text(config, "namespace");
    let path = call.target.namespace.as_deref().unwrap_or_default();
    if call.resource().namespaced && !namespace.is_empty() && namespace != path {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn check_applied_identity(call: &Call<'_>, config: &Value, live: &Object) -> ApiResult<()> {
    check_applied_name(call, config)?;
    let revision = meta::text(config, "resourceVersion");
    if !revision.is_empty() && revision != live.revision.to_string() {
        return Err(ApiError::modified(&call.resource().subject(call.name())));
    }
    Ok(())
}

/// A patch may name a resourceVersion, which then must be the live one.
fn check_patched(call: &Call<'_>, live: &Object, new: &Value) -> ApiResult<()> {
    let resource = call.resource();
    let untyped =
        ["kind", "apiVersion"].iter().any(|f| new.get(f).and_then(Value::as_str).unwrap_or_default().is_empty());
    if untyped {
        let missing = if new.get("kind").is_none() { "Kind" } else { "apiVersion" };
        let text = new.to_string();
        let cause = StatusCause::invalid("patch", &json!(text), &format!("Object '{missing}' is missing in '{text}'"));
        return Err(ApiError::invalid(&Subject::default(), &[cause]));
    }
    let revision = meta::text(new, "resourceVersion");
    if !revision.is_empty() && revision != live.revision.to_string() {
        return Err(ApiError::modified(&resource.subject(call.name())));
    }
    let name = meta::text(new, "name");
    if name != live.key.name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    Ok(())
}

pub(super) fn patch_error(error: &PatchError) -> Box<ApiError> {
    match error {
        PatchError::Rejected => ApiError::unprocessable_patch(),
        PatchError::Decode(_) => ApiError::bad_request(error.to_string()),
        PatchError::TooMany { .. } => ApiError::too_many_operations(error.to_string()),
        _ => ApiError::internal(error.to_string()),
    }
}
