//! Subresources other than `status`, and the reviews that are asked but never stored.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::delete::{Deletion, Propagation, delete_object};
use super::write::{ATTEMPTS, Ownership, Refused};
use super::{Answer, Call, Reply, Scale, Verb, Writer, scale, tokens};
use crate::admission;
use crate::auth::tokens::AUDIENCE;
use crate::auth::{self, Identity};
use crate::http::{decode, dry_run};
use crate::kinds;
use crate::meta;
use crate::registry::Resource;
use crate::selectors::LabelSelector;
use crate::status::{ApiError, ApiResult, StatusCause, Subject};
use crate::store::Object;
use crate::strategy;

pub(super) fn execute(call: &Call<'_>, subresource: &str) -> ApiResult<Answer> {
    let creates = call.target.verb == Verb::Create;
    if let ("scale", Some(scale)) = (subresource, Scale::of(call.resource())) {
        return scale::execute(call, &scale);
    }
    match (call.resource().bucket.as_str(), subresource) {
        ("pods", "binding") if creates => bind(call),
        ("pods", "eviction") if creates => evict(call),
        ("serviceaccounts", "token") if creates => token(call),
        ("pods", "binding" | "eviction") => Err(ApiError::method_not_allowed()),
        _ if call.resource().is_custom() => Err(ApiError::not_found(&call.resource().subject(call.name()))),
        _ => Err(ApiError::no_such_resource()),
    }
}

fn created() -> Answer {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    });
    Answer::new(StatusCode::CREATED, Reply::Value(status))
}

/// Issues a token, if the policies have nothing against it.
fn token(call: &Call<'_>) -> ApiResult<Answer> {
    call.live()?;
    let body = decode::object("TokenRequest", call.headers, call.body)?.value;
    let warnings = admission::posted(call, &body, call.params.dry_run("CreateOptions")?)?;
    Ok(Answer { warnings, ..tokens::request(call)? })
}

/// Assigns a pod to a node.
fn bind(call: &Call<'_>) -> ApiResult<Answer> {
    let body = decode::object(&call.resource().kind, call.headers, call.body)?.value;
    let node = body["target"]["name"].as_str().unwrap_or_default().to_owned();
    if node.is_empty() {
        let cause = StatusCause::required("target.name", "");
        let subject = Subject { group: "", kind: "Binding", name: call.name() };
        return Err(ApiError::invalid(&subject, &[cause]));
    }
    let dry = call.params.dry_run("CreateOptions")?;
    call.live()?;
    let warnings = admission::posted(call, &body, dry)?;
    let created = Answer { warnings, ..created() };
    for _ in 0..ATTEMPTS {
        let live = call.live()?;
        let assigned = live.value["spec"]["nodeName"].as_str().unwrap_or_default();
        if !assigned.is_empty() {
            return Err(ApiError::conflict(
                &Subject { group: "", kind: "pods/binding", name: call.name() },
                &format!("pod {} is already assigned to node {assigned:?}", call.name()),
            ));
        }
        let mut next = live.value.clone();
        next["spec"]["nodeName"] = node.clone().into();
        strategy::copy_topology(call.server, &mut next);
        let now = call.server.clock.rfc3339();
        let mut conditions = next["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|c| c["type"] != "PodScheduled");
        conditions
            .push(json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}));
        next["status"]["conditions"] = conditions.into();
        if dry {
            return Ok(created);
        }
        let bucket = &call.resource().bucket;
        let put = call.server.store.put(bucket, &live.key, Some(live.revision), next);
        if put.is_ok() {
            return Ok(created.changed(true));
        }
    }
    Err(ApiError::modified(&call.resource().subject(call.name())))
}

/// Deletes a pod if its disruption budgets allow it.
fn evict(call: &Call<'_>) -> ApiResult<Answer> {
    let body = decode::object(&call.resource().kind, call.headers, call.body)?.value;
    let name = meta::text(&body, "name");
    if !name.is_empty() && name != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = &body["deleteOptions"];
    let stages = options["dryRun"].as_array();
    let stages: Vec<&str> = stages.into_iter().flatten().filter_map(Value::as_str).collect();
    let dry = dry_run(&stages, "DeleteOptions")? || call.params.dry_run("CreateOptions")?;
    let deletion = Deletion {
        uid: options.pointer("/preconditions/uid").and_then(Value::as_str).map(str::to_owned),
        revision: options.pointer("/preconditions/resourceVersion").and_then(Value::as_str).map(str::to_owned),
        propagation: Some(Propagation::Background),
        grace: options["gracePeriodSeconds"].as_i64(),
        dry_run: dry,
    };
    call.live()?;
    let warnings = admission::posted(call, &body, dry)?;
    let mut charged = String::new();
    for _ in 0..ATTEMPTS {
        let live = call.live()?;
        let finished = matches!(live.value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        // Trying again costs no second disruption, unless it is another pod of that name.
        if !finished && !live.is_terminating() && charged != live.uid() {
            charge_budget(call, &live, dry)?;
            live.uid().clone_into(&mut charged);
        }
        let Some(live) = mark_disrupted(call, &live, dry) else {
            continue;
        };
        match delete_object(call.server, call.resource(), &live, &deletion) {
            Ok(_) => return Ok(Answer { warnings, ..created() }.changed(!dry)),
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.resource().subject(call.name())))
}

/// Tells on the pod why it goes. `None`: somebody else wrote it meanwhile.
fn mark_disrupted(call: &Call<'_>, live: &Arc<Object>, dry: bool) -> Option<Arc<Object>> {
    if dry || live.is_terminating() {
        return Some(live.clone());
    }
    let mut next = live.value.clone();
    let mut conditions = next["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    strategy::set_condition(&mut conditions, condition, &call.server.clock.rfc3339());
    next["status"]["conditions"] = conditions.into();
    let bucket = &call.resource().bucket;
    call.server.store.put(bucket, &live.key, Some(live.revision), next).ok()
}

/// The budget of a pod, if there is one, must allow one more disruption, and gives it up.
fn charge_budget(call: &Call<'_>, pod: &Object, dry: bool) -> ApiResult<()> {
    let bucket = "poddisruptionbudgets.policy";
    let namespace = pod.key.namespace.as_str();
    for _ in 0..ATTEMPTS {
        let budgets = call.server.store.snapshot(bucket, Some(namespace), None);
        let mut budgets = budgets.map(|s| s.objects).unwrap_or_default();
        budgets.retain(|budget| LabelSelector::from_json(&budget.value["spec"]["selector"]).matches(&pod.value));
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                return Err(ApiError::internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let next = charged(call, budget, pod)?;
        // Losing the race means that somebody else wrote the budget, perhaps for an eviction: count again.
        if dry {
            return Ok(());
        }
        let Some(resource) = call.server.registry.of_object(bucket, &budget.value) else { return Ok(()) };
        let mut writer = Writer::internal(call.server, &resource, budget.key.clone());
        "kube-apiserver".clone_into(&mut writer.manager);
        writer.status = true;
        match writer.update(budget, next, Ownership::Track) {
            Ok(_) => return Ok(()),
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.resource().subject(&pod.key.name)))
}

/// A budget after the disruption of a pod.
fn charged(call: &Call<'_>, budget: &Object, pod: &Object) -> ApiResult<Value> {
    let name = &budget.key.name;
    let status = &budget.value["status"];
    let generation = budget.value["metadata"]["generation"].as_i64().unwrap_or(0);
    if status["observedGeneration"].as_i64().unwrap_or(0) < generation {
        return Err(ApiError::disruption_budget(
            format!("The disruption budget {name} is still being processed by the server."),
            Some(10),
        ));
    }
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
    if allowed <= 0 {
        return Err(ApiError::disruption_budget(
            format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                status["desiredHealthy"], status["currentHealthy"]
            ),
            None,
        ));
    }
    let mut next = budget.value.clone();
    next["status"]["disruptionsAllowed"] = (allowed - 1).into();
    let now = call.server.clock.rfc3339();
    next["status"]["disruptedPods"][&pod.key.name] = now.clone().into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": status["observedGeneration"],
            "reason": "InsufficientPods", "message": "",
        });
        let mut conditions = next["status"]["conditions"].as_array().cloned().unwrap_or_default();
        strategy::set_condition(&mut conditions, condition, &now);
        next["status"]["conditions"] = conditions.into();
    }
    Ok(next)
}

/// Whether the resource is a question instead of an object.
pub(super) fn is_review(resource: &Resource) -> bool {
    kinds::is_review(&resource.plural)
}

/// Answers a review.
pub(super) fn review(call: &Call<'_>) -> ApiResult<Answer> {
    let mut body = decode::object(&call.resource().kind, call.headers, call.body)?.value;
    let resource = call.resource();
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
    }
    body["kind"] = resource.kind.clone().into();
    body["apiVersion"] = resource.api_version().into();
    let status = match resource.kind.as_str() {
        "SelfSubjectAccessReview" => access(call, call.identity, &body)?,
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            check_place(call, &body)?;
            let groups = body["spec"]["groups"].as_array();
            let groups = groups.into_iter().flatten().filter_map(Value::as_str);
            let user = body["spec"]["user"].as_str().unwrap_or_default();
            access(call, &Identity::new(user, groups), &body)?
        }
        "SelfSubjectRulesReview" => {
            let namespace = body["spec"]["namespace"].as_str().unwrap_or_default().to_owned();
            if namespace.is_empty() {
                return Err(ApiError::bad_request("no namespace on request"));
            }
            // The real server does not repeat the question.
            body["spec"] = json!({});
            auth::rules_of(call.server, call.identity, &namespace)
        }
        "TokenReview" => token_status(call, &body),
        _ => json!({"userInfo": user_info(call.identity)}),
    };
    meta::of(&mut body).retain(|_, value| !value.is_null());
    if resource.kind == "SelfSubjectReview" {
        meta::set(&mut body, "creationTimestamp", Some(call.server.clock.rfc3339().into()));
    } else {
        let owned = tokens::owned_fields(&body["spec"], &["resourceAttributes", "nonResourceAttributes"]);
        tokens::track(call, &mut body, &owned, None);
    }
    body["status"] = status;
    Ok(Answer::new(StatusCode::CREATED, Reply::Value(body)))
}

/// A local review is about its own namespace.
fn check_place(call: &Call<'_>, body: &Value) -> ApiResult<()> {
    let Some(namespace) = call.target.namespace.as_deref() else { return Ok(()) };
    let spec = &body["spec"];
    if spec["nonResourceAttributes"].is_object() {
        let why = "disallowed on this kind of request";
        let cause = StatusCause::invalid("spec.nonResourceAttributes", &spec["nonResourceAttributes"], why);
        return Err(ApiError::invalid(&call.resource().kind_subject(""), &[cause]));
    }
    if spec["resourceAttributes"]["namespace"] != namespace {
        let why = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(ApiError::bad_request(why));
    }
    Ok(())
}

fn access(call: &Call<'_>, identity: &Identity, body: &Value) -> ApiResult<Value> {
    let spec = &body["spec"];
    let text = |part: &str, field: &str| spec[part][field].as_str().unwrap_or_default().to_owned();
    let (resource, path) = ("resourceAttributes", "nonResourceAttributes");
    if spec[resource].is_object() == spec[path].is_object() {
        let cause = StatusCause::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        );
        let subject = Subject { group: "authorization.k8s.io", kind: "", name: "" };
        return Err(ApiError::invalid(&subject, &[cause]));
    }
    if !call.server.auth.rbac {
        return Ok(json!({"allowed": true}));
    }
    let fields: Vec<String> = ["verb", "group", "resource", "subresource", "namespace", "name"]
        .iter()
        .map(|field| text(resource, field))
        .collect();
    let (verb, url) = (text(path, "verb"), text(path, "path"));
    let request = if spec[path].is_object() {
        auth::Request::Path { verb: &verb, path: &url }
    } else {
        auth::Request::Resource {
            verb: &fields[0],
            group: &fields[1],
            resource: &fields[2],
            subresource: &fields[3],
            namespace: &fields[4],
            name: &fields[5],
        }
    };
    Ok(match auth::allowed(call.server, identity, &request) {
        None => json!({"allowed": false}),
        Some(reason) if reason.is_empty() => json!({"allowed": true}),
        Some(reason) => json!({"allowed": true, "reason": reason}),
    })
}

fn user_info(identity: &Identity) -> Value {
    let mut info = json!({"username": identity.user, "groups": identity.groups});
    if !identity.uid.is_empty() {
        info["uid"] = identity.uid.clone().into();
    }
    if !identity.extra.is_empty() {
        info["extra"] = json!(identity.extra);
    }
    info
}

fn token_status(call: &Call<'_>, body: &Value) -> Value {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    let invalid = |why: &str| json!({"user": {}, "error": why});
    let issued = auth::tokens::find(call.server, token);
    let stale = issued.is_none() && call.server.tokens.find(token, call.server.clock.now()).is_some();
    let (identity, audiences) = match (call.server.auth.static_identity(token), issued) {
        (Some(identity), _) => (identity, vec![AUDIENCE.to_owned()]),
        (None, Some(issued)) => (issued.identity, issued.audiences),
        (None, None) if stale => return invalid("[invalid bearer token, service account token has been invalidated]"),
        (None, None) if call.server.tokens.has_expired(token, call.server.clock.now()) => {
            return invalid("[invalid bearer token, service account token has expired]");
        }
        (None, None) if token.split('.').count() == 3 => {
            return invalid("[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]");
        }
        (None, None) => return invalid("invalid bearer token"),
    };
    let wanted = body["spec"]["audiences"].as_array().cloned().unwrap_or_default();
    let mut wanted: Vec<String> = wanted.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if wanted.is_empty() {
        wanted.push(AUDIENCE.to_owned());
    }
    let common: Vec<&String> = audiences.iter().filter(|a| wanted.contains(a)).collect();
    if common.is_empty() {
        return invalid(&format!(
            "[invalid bearer token, token audiences {audiences:?} is invalid for the target audiences {wanted:?}]"
        ));
    }
    json!({"authenticated": true, "user": user_info(&identity), "audiences": common})
}
