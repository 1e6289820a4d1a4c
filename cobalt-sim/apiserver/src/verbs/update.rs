//! Replacing objects.

use http::StatusCode;
use serde_json::{Value, json};

use super::create::{check_kind, check_namespace};
use super::write::{ATTEMPTS, Ownership, Refused};
use super::{Answer, Call, Writer};
use crate::auth;
use crate::http::decode;
use crate::meta;
use crate::status::{ApiError, ApiResult, StatusCause};
use crate::store::Object;

pub(super) fn update(call: &Call<'_>) -> ApiResult<Answer> {
    let mut writer = Writer::new(call, "UpdateOptions")?;
    let decoded = decode::object(&call.resource().kind, call.headers, call.body)?;
    let mut object = decoded.value;
    let resource = call.resource();
    check_kind(call, &object)?;
    let duplicates: Vec<String> = decoded.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    writer.tell(&duplicates)?;
    check_namespace(call, &object)?;
    object["kind"] = resource.kind.clone().into();
    match meta::text(&object, "name") {
        "" => {
            return Err(ApiError::bad_request(
                "the name of the object (based on the request URL) was undeterminable: name must be provided",
            ));
        }
        name if name != call.name() => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name()
            )));
        }
        _ => {}
    }
    let sent = meta::text(&object, "resourceVersion").to_owned();
    let told = writer.warnings.len();
    for _ in 0..ATTEMPTS {
        // An attempt that lost a race has warned of nothing.
        writer.warnings.truncate(told);
        let live = match call.live() {
            Ok(live) => live,
            Err(_) if resource.create_on_update && !writer.status => {
                auth::authorize_create(call)?;
                meta::set(&mut object, "resourceVersion", None);
                match writer.create(object.clone(), Ownership::Track) {
                    Ok(written) => {
                        let mut answer = Answer::new(StatusCode::CREATED, written.body);
                        answer.warnings = writer.warnings;
                        return Ok(answer.changed(written.changed));
                    }
                    Err(Refused::Raced) => continue,
                    Err(Refused::Api(error)) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        check_revision(call, &live, &sent)?;
        check_uid(call, &live, &object)?;
        match writer.update(&live, object.clone(), Ownership::Track) {
            Ok(written) => {
                let mut answer = Answer::ok(written.body);
                answer.warnings = writer.warnings;
                return Ok(answer.changed(written.changed));
            }
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&resource.subject(call.name())))
}

/// Optimistic concurrency of a PUT.
fn check_revision(call: &Call<'_>, live: &Object, sent: &str) -> ApiResult<()> {
    let resource = call.resource();
    let revision: u64 = if sent.is_empty() {
        0
    } else {
        sent.parse().map_err(|_| ApiError::internal(format!("strconv.ParseUint: parsing {sent:?}: invalid syntax")))?
    };
    if revision == 0 {
        if resource.unconditional_update {
            return Ok(());
        }
        let cause = StatusCause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
        return Err(ApiError::invalid(&resource.subject(call.name()), &[cause]));
    }
    if revision != live.revision {
        return Err(ApiError::modified(&resource.subject(call.name())));
    }
    Ok(())
}

/// A uid in a PUT is a precondition.
fn check_uid(call: &Call<'_>, live: &Object, object: &Value) -> ApiResult<()> {
    let uid = meta::text(object, "uid");
    if uid.is_empty() || uid == live.uid() {
        return Ok(());
    }
    Err(ApiError::conflict(
        &call.resource().subject(call.name()),
        &format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            registry_path(call),
            live.uid()
        ),
    ))
}

/// Where the real server would keep the object.
fn registry_path(call: &Call<'_>) -> String {
    let resource = call.resource();
    let key = call.target.key();
    let parts = [&resource.group, &resource.plural, &key.namespace, &key.name];
    let parts: Vec<&str> = parts.iter().map(|p| p.as_str()).filter(|p| !p.is_empty()).collect();
    parts.join("/")
}
