//! Admission by `ValidatingAdmissionPolicy`: policies, their bindings, and CEL over the request.
//!
//! Policies are compiled when they are written. One that uses what cannot be evaluated here (parameters, the
//! authorizer, a function this server does not have) is refused then, so that no policy is stored that would be
//! silently ignored.

pub(crate) mod accounts;
mod matching;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use self::policy::{Decision, Policy};
use crate::auth::{self, Identity};
use crate::registry::Resource;
use crate::schema::Variables;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, StatusCause};
use crate::store::{Key, Object, POLICIES, Store};
use crate::verbs::{Call, Writer};

const GROUP: &str = "admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// Compiled policies by uid, with the generation they were compiled from.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    compiled: Mutex<HashMap<String, (i64, Arc<Policy>)>>,
}

impl Admission {
    fn policy(&self, store: &Store, stored: &Value) -> Option<Arc<Policy>> {
        let uid = stored["metadata"]["uid"].as_str().unwrap_or_default();
        let generation = stored["metadata"]["generation"].as_i64().unwrap_or(0);
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        // What was compiled goes with its policy.
        if compiled.len() > store.len(POLICIES) {
            compiled.retain(|uid, _| store.by_uid(uid).is_some());
        }
        match compiled.get(uid) {
            Some((known, policy)) if *known == generation => Some(policy.clone()),
            _ => {
                // What is stored was compiled before, so this does not fail.
                let policy = Arc::new(Policy::compile(&stored["spec"]).ok()?);
                compiled.insert(uid.to_owned(), (generation, policy.clone()));
                Some(policy)
            }
        }
    }
}

/// A request as policies see it.
pub(crate) struct Attributes<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) resource: &'a Resource,
    pub(crate) identity: &'a Identity,
    pub(crate) key: &'a Key,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
    pub(crate) subresource: &'a str,
    pub(crate) dry_run: bool,
}

/// Asks the policies about a write; what they only warn of goes to the writer.
pub(crate) fn review(
    writer: &mut Writer<'_>,
    operation: &'static str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<()> {
    let Some(identity) = writer.identity else {
        return Ok(());
    };
    if let Some(object) = object {
        auth::check_escalation(writer.server, identity, writer.resource, object, old)?;
    }
    let attributes = Attributes {
        server: writer.server,
        resource: writer.resource,
        identity,
        key: &writer.key,
        operation,
        subresource: match (writer.status, writer.scale) {
            (true, _) => "status",
            (_, true) => "scale",
            _ => "",
        },
        dry_run: writer.dry_run,
    };
    let warnings = decide(&attributes, object, old)?;
    writer.warnings.extend(warnings);
    Ok(())
}

/// Asks the policies about the deletion of an object.
pub(crate) fn deletion(call: &Call<'_>, live: &Object, dry_run: bool) -> ApiResult<Vec<String>> {
    let attributes = Attributes {
        server: call.server,
        resource: call.resource(),
        identity: call.identity,
        key: &live.key,
        operation: "DELETE",
        subresource: "",
        dry_run,
    };
    decide(&attributes, None, Some(&live.value))
}

/// Asks the policies about what is posted to a subresource: a binding, an eviction, a request for a token.
pub(crate) fn posted(call: &Call<'_>, body: &Value, dry_run: bool) -> ApiResult<Vec<String>> {
    let attributes = Attributes {
        server: call.server,
        resource: call.resource(),
        identity: call.identity,
        key: &call.target.key(),
        operation: "CREATE",
        subresource: call.target.subresource.as_deref().unwrap_or_default(),
        dry_run,
    };
    decide(&attributes, Some(body), None)
}

/// Asks the policies about a request. The answer is what to warn of.
pub(crate) fn decide(
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> ApiResult<Vec<String>> {
    let store = &attributes.server.store;
    // Policies do not apply to themselves: a mistake could not be undone.
    if store.len(BINDINGS) == 0 || attributes.resource.group == GROUP {
        return Ok(Vec::new());
    }
    let bindings = store.snapshot(BINDINGS, None, None).map(|s| s.objects).unwrap_or_default();
    let mut variables: Option<Variables> = None;
    let mut warnings = Vec::new();
    for binding in bindings {
        let spec = &binding.value["spec"];
        let policy_name = spec["policyName"].as_str().unwrap_or_default();
        let Some(stored) = store.get(POLICIES, &Key::new("", policy_name)) else {
            continue;
        };
        let constraints = [&stored.value["spec"]["matchConstraints"], &spec["matchResources"]];
        if !constraints.into_iter().all(|rules| matching::matches(rules, attributes, object, old)) {
            continue;
        }
        let Some(policy) = attributes.server.admission.policy(store, &stored.value) else {
            continue;
        };
        let variables = variables.get_or_insert_with(|| facts(attributes, object, old));
        let Decision::Denied { reason, message } = policy.decide(variables) else {
            continue;
        };
        let binding_name = &binding.key.name;
        let actions = spec["validationActions"].as_array();
        let action = |name: &str| actions.into_iter().flatten().any(|action| action == name);
        if action("Deny") {
            let why = format!(
                "ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}' denied request: {message}"
            );
            let subject = attributes.resource.subject(&attributes.key.name);
            return Err(ApiError::denied(&subject, &why, &reason));
        }
        if action("Warn") {
            warnings.push(format!(
                "Validation failed for ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}': {message}"
            ));
        }
    }
    Ok(warnings)
}

/// The variables of expressions.
fn facts(attributes: &Attributes<'_>, object: Option<&Value>, old: Option<&Value>) -> Variables {
    let Attributes { server, resource, identity, key, operation, subresource, dry_run } = attributes;
    let (group, version, kind) = match *subresource {
        "binding" => ("", "v1", "Binding"),
        "eviction" => ("policy", "v1", "Eviction"),
        "token" => ("authentication.k8s.io", "v1", "TokenRequest"),
        _ => (&*resource.group, &*resource.version, &*resource.kind),
    };
    let kind = json!({"group": group, "version": version, "kind": kind});
    let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
    let request = json!({
        "kind": kind,
        "resource": plural,
        "subResource": subresource,
        "requestKind": kind,
        "requestResource": plural,
        "requestSubResource": subresource,
        "name": key.name,
        "namespace": key.namespace,
        "operation": operation,
        "userInfo": {
            "username": identity.user, "uid": identity.uid, "groups": identity.groups, "extra": identity.extra,
        },
        "dryRun": dry_run,
    });
    let namespace = if resource.namespaced { server.namespace(&key.namespace) } else { None };
    let mut variables = Variables::default();
    variables.add("object", object.unwrap_or(&Value::Null));
    variables.add("oldObject", old.unwrap_or(&Value::Null));
    variables.add("request", &request);
    variables.add("namespaceObject", namespace.as_ref().map_or(&Value::Null, |found| &found.value));
    variables
}

/// Fills in what policies may leave out.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    let constraints = match resource.bucket.as_str() {
        POLICIES => "matchConstraints",
        BINDINGS => "matchResources",
        _ => return,
    };
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if resource.bucket == POLICIES {
        spec.entry("failurePolicy").or_insert_with(|| "Fail".into());
    }
    let Some(constraints) = spec.get_mut(constraints).and_then(Value::as_object_mut) else {
        return;
    };
    constraints.entry("namespaceSelector").or_insert_with(|| json!({}));
    constraints.entry("objectSelector").or_insert_with(|| json!({}));
    constraints.entry("matchPolicy").or_insert_with(|| "Equivalent".into());
    for field in ["resourceRules", "excludeResourceRules"] {
        for rule in constraints.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(rule) = rule.as_object_mut() {
                rule.entry("scope").or_insert_with(|| "*".into());
            }
        }
    }
}

/// What is wrong with a policy or a binding.
pub(crate) fn validate(resource: &Resource, object: &Value) -> Vec<StatusCause> {
    let spec = &object["spec"];
    match resource.bucket.as_str() {
        POLICIES => Policy::compile(spec).err().unwrap_or_default(),
        BINDINGS => policy::binding_causes(spec),
        _ => Vec::new(),
    }
}
