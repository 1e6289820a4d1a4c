//! Removing objects: preconditions, finalizers, grace periods, propagation.

use std::sync::Arc;

use bytes::Bytes;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::list::Query;
use super::write::ATTEMPTS;
use super::{Answer, Call, Reply};
use crate::admission;
use crate::http::{decode, dry_run};
use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, StatusCause};
use crate::store::{Object, Raced};
use crate::{clock, convert, meta, strategy};

/// What happens to the dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They go afterwards.
    Background,
    /// The object waits until those that block it are gone.
    Foreground,
    /// They stay and lose their owner reference.
    Orphan,
}

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deletion {
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) grace: Option<i64>,
    pub(crate) dry_run: bool,
}

impl Deletion {
    /// From the body, or from the query if there is no body.
    fn parse(call: &Call<'_>) -> ApiResult<Self> {
        if call.body.is_empty() {
            return Self::from_query(call);
        }
        let body = decode::options(call.headers, call.body)?;
        let kind = body["kind"].as_str().unwrap_or("DeleteOptions");
        if kind != "DeleteOptions" {
            let version = body["apiVersion"].as_str().unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/apis/meta/internalversion/scheme/register.go:27\""
            )));
        }
        let stages: Vec<&str> = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = |path: &str| body.pointer(path)?.as_str().map(str::to_owned);
        let policy = body["propagationPolicy"].as_str();
        Ok(Self {
            uid: text("/preconditions/uid"),
            revision: text("/preconditions/resourceVersion"),
            propagation: propagation(policy, body["orphanDependents"].as_bool())?,
            grace: body["gracePeriodSeconds"].as_i64(),
            dry_run: dry_run(&stages, "DeleteOptions")? || call.params.dry_run("DeleteOptions")?,
        })
    }

    fn from_query(call: &Call<'_>) -> ApiResult<Self> {
        let params = call.params;
        let orphan = params.text("orphanDependents").map(|v| v == "true");
        Ok(Self {
            uid: None,
            revision: None,
            propagation: propagation(params.text("propagationPolicy"), orphan)?,
            grace: params.integer("gracePeriodSeconds")?,
            dry_run: params.dry_run("DeleteOptions")?,
        })
    }
}

fn propagation(policy: Option<&str>, orphan: Option<bool>) -> ApiResult<Option<Propagation>> {
    if let (Some(policy), Some(_)) = (policy, orphan) {
        let cause = StatusCause::invalid(
            "propagationPolicy",
            &json!(policy),
            "orphanDependents and deletionPropagation cannot be both set",
        );
        return Err(ApiError::invalid_options("DeleteOptions", &[cause]));
    }
    match (policy, orphan) {
        (Some("Background"), _) | (None, Some(false)) => Ok(Some(Propagation::Background)),
        (Some("Foreground"), _) => Ok(Some(Propagation::Foreground)),
        (Some("Orphan"), _) | (None, Some(true)) => Ok(Some(Propagation::Orphan)),
        (None, None) => Ok(None),
        (Some(other), _) => {
            let cause = StatusCause::unsupported(
                "propagationPolicy",
                &json!(other),
                &["Foreground", "Background", "Orphan", "nil"],
            );
            Err(ApiError::invalid_options("DeleteOptions", &[cause]))
        }
    }
}

/// How a deletion ended.
pub(crate) enum Deleted {
    /// The object is gone.
    Gone(Arc<Object>),
    /// It is terminating now, or was already.
    Terminating(Arc<Object>, bool),
    /// A dry run: what would be shown.
    Dry(Value, bool),
}

pub(super) fn delete(call: &Call<'_>) -> ApiResult<Answer> {
    let options = Deletion::parse(call)?;
    let resource = call.resource();
    if resource.bucket == "namespaces" && strategy::is_protected_namespace(call.name()) {
        return Err(ApiError::forbidden(&resource.subject(call.name()), "this namespace may not be deleted", &[]));
    }
    for _ in 0..ATTEMPTS {
        let live = call.live()?;
        let warnings = admission::deletion(call, &live, options.dry_run)?;
        match delete_object(call.server, resource, &live, &options) {
            Ok(deleted) => {
                let mut answer = answer(resource, &live, deleted);
                answer.warnings.extend(warnings);
                return Ok(answer);
            }
            Err(super::write::Refused::Raced) => {}
            Err(super::write::Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&resource.subject(call.name())))
}

fn answer(resource: &Resource, live: &Object, deleted: Deleted) -> Answer {
    match deleted {
        Deleted::Gone(last) if resource.returns_deleted => Answer::ok(Reply::Object(last)).changed(true),
        Deleted::Gone(_) => Answer::ok(Reply::Value(success(resource, live))).changed(true),
        Deleted::Terminating(object, changed) => Answer::ok(Reply::Object(object)).changed(changed),
        Deleted::Dry(_, true) => Answer::ok(Reply::Value(success(resource, live))),
        Deleted::Dry(value, false) => Answer::ok(Reply::Value(value)),
    }
}

fn success(resource: &Resource, object: &Object) -> Value {
    let mut details = json!({
        "name": object.key.name,
        "kind": resource.plural,
        "uid": object.uid(),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.clone().into();
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

/// Deletes one object as far as its finalizers and its grace period allow.
pub(crate) fn delete_object(
    server: &Inner,
    resource: &Resource,
    live: &Arc<Object>,
    options: &Deletion,
) -> Result<Deleted, super::write::Refused> {
    check_preconditions(resource, live, options)?;
    let mut next = live.value.clone();
    let mut finalizers = meta::finalizers(&next);
    for (finalizer, wanted) in [
        ("orphan", options.propagation == Some(Propagation::Orphan)),
        ("foregroundDeletion", options.propagation == Some(Propagation::Foreground)),
    ] {
        let present = finalizers.iter().any(|f| f == finalizer);
        if wanted && !present {
            finalizers.push(finalizer.to_owned());
        } else if options.propagation.is_some() && !wanted && present {
            finalizers.retain(|f| f != finalizer);
        }
    }
    meta::set_finalizers(&mut next, &finalizers);
    let grace = strategy::grace_period(resource, live, options.grace);
    mark(server, resource, &mut next, grace);
    let gone = strategy::may_go(resource, &next) && grace == 0;
    let changed = !meta::same_but_times(&live.value, &next);
    if options.dry_run {
        return Ok(Deleted::Dry(convert::to_version(resource, &next).into_owned(), gone && !resource.returns_deleted));
    }
    let raced = |_: Raced| super::write::Refused::Raced;
    if !gone {
        if !changed {
            return Ok(Deleted::Terminating(live.clone(), false));
        }
        let put = server.store.put(&resource.bucket, &live.key, Some(live.revision), next);
        return Ok(Deleted::Terminating(put.map_err(raced)?, true));
    }
    let mut last = live.clone();
    if resource.bucket == "pods" && changed {
        // Pods pass through a last terminating state that watchers see.
        last = server.store.put(&resource.bucket, &live.key, Some(live.revision), next).map_err(raced)?;
    }
    let removed = server.store.remove(&resource.bucket, &live.key, last.revision);
    Ok(Deleted::Gone(removed.map_err(raced)?))
}

/// Sets what tells that an object is terminating. A later, shorter grace period replaces an earlier one.
fn mark(server: &Inner, resource: &Resource, next: &mut Value, grace: i64) {
    let terminating = next["metadata"].get("deletionTimestamp").is_some();
    if terminating {
        let current = next["metadata"]["deletionGracePeriodSeconds"].as_i64();
        if resource.bucket != "pods" || current.is_none_or(|current| current <= grace) {
            return;
        }
    }
    let now = server.clock.now();
    let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    meta::set(next, "deletionTimestamp", Some(clock::seconds(at).into()));
    if strategy::has_grace_field(resource) {
        meta::set(next, "deletionGracePeriodSeconds", Some(grace.into()));
    }
    strategy::mark_terminating(resource, next, &clock::seconds(now));
    if !terminating && resource.counts_generation && resource.bucket != crate::store::DEFINITIONS {
        let generation = next["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(next, "generation", Some((generation + 1).into()));
    }
}

fn check_preconditions(resource: &Resource, live: &Object, options: &Deletion) -> ApiResult<()> {
    let subject = resource.kind_subject(&live.key.name);
    if let Some(uid) = &options.uid
        && uid != live.uid()
    {
        return Err(ApiError::conflict(
            &subject,
            &format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                live.uid()
            ),
        ));
    }
    if let Some(revision) = &options.revision
        && *revision != live.revision.to_string()
    {
        return Err(ApiError::conflict(
            &subject,
            &format!(
                "the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record ({}). The object might have been modified",
                live.revision
            ),
        ));
    }
    Ok(())
}

/// Deletes what matches; answers with the objects as they were.
pub(super) fn delete_collection(call: &Call<'_>) -> ApiResult<Answer> {
    let options = Deletion::parse(call)?;
    let query = Query::parse(call)?;
    let resource = call.resource();
    let snapshot = call
        .server
        .store
        .snapshot(&resource.bucket, query.namespace.as_deref(), None)
        .map_err(|_| ApiError::internal("the present state is always known"))?;
    let mut items = Vec::new();
    let mut changed = false;
    for object in snapshot.objects.iter().filter(|o| query.matches(o)) {
        items.push(convert::to_version(resource, &object.value).into_owned());
        let mut live = object.clone();
        admission::deletion(call, &live, options.dry_run)?;
        for _ in 0..ATTEMPTS {
            match delete_object(call.server, resource, &live, &options) {
                Ok(deleted) => {
                    changed |= !matches!(deleted, Deleted::Dry(..) | Deleted::Terminating(_, false));
                    break;
                }
                Err(super::write::Refused::Api(error)) => return Err(error),
                Err(super::write::Refused::Raced) => match call.server.store.get(&resource.bucket, &object.key) {
                    Some(present) => live = present,
                    None => break,
                },
            }
        }
    }
    let mut metadata = json!({"resourceVersion": snapshot.revision.to_string()});
    if resource.is_custom() {
        metadata["continue"] = "".into();
    }
    let list = json!({
        "kind": resource.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
        "items": items,
    });
    Ok(Answer::ok(Reply::Bytes(Bytes::from(list.to_string()))).changed(changed))
}
