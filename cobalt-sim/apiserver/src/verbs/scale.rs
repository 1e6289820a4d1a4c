//! The `scale` subresource: how many replicas are wanted and how many there are.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::patch::{self, Patch};
use super::write::{ATTEMPTS, Ownership, Refused};
use super::{Answer, Call, Reply, Verb, Writer};
use crate::convert;
use crate::http::decode;
use crate::meta;
use crate::registry::Resource;
use crate::status::{ApiError, ApiResult, StatusCause, Subject};
use crate::store::Object;

/// Where the replicas are in an object.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    /// `/spec/replicas`, as JSON pointers.
    spec: String,
    status: String,
    selector: Option<String>,
}

impl Scale {
    /// From `subresources.scale` of a definition.
    pub(crate) fn of_definition(scale: &Value) -> Option<Self> {
        let pointer = |field: &str| scale[field].as_str().map(|path| path.replace('.', "/"));
        Some(Self {
            spec: pointer("specReplicasPath")?,
            status: pointer("statusReplicasPath")?,
            selector: pointer("labelSelectorPath"),
        })
    }

    /// Of a resource, if it can be scaled.
    pub(crate) fn of(resource: &Resource) -> Option<Self> {
        match &resource.custom {
            Some(custom) => custom.scale.clone(),
            None if resource.group == "apps" && resource.plural != "daemonsets" => {
                let (spec, status) = ("/spec/replicas".to_owned(), "/status/replicas".to_owned());
                Some(Self { spec, status, selector: None })
            }
            None => None,
        }
    }

    /// The `Scale` of an object.
    fn show(&self, resource: &Resource, object: &Value) -> Value {
        let mut metadata = Map::new();
        for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object["metadata"].get(field) {
                metadata.insert(field.to_owned(), value.clone());
            }
        }
        let count = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        let mut scale = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": {"replicas": count(&self.spec)}, "status": {"replicas": count(&self.status)},
        });
        let selector = match &self.selector {
            Some(path) => object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned(),
            None if resource.is_custom() => String::new(),
            None => labels(&object["spec"]["selector"]),
        };
        if !selector.is_empty() {
            scale["status"]["selector"] = selector.into();
        }
        scale
    }
}

/// A selector as the string clients put into a query.
fn labels(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let parts: Vec<String> =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    parts.join(",")
}

/// Answers a call to `scale`.
pub(super) fn execute(call: &Call<'_>, scale: &Scale) -> ApiResult<Answer> {
    let patch = match call.target.verb {
        Verb::Get => {
            let live = call.live()?;
            let object = convert::to_version(call.resource(), &live.value);
            return Ok(Answer::ok(Reply::Value(scale.show(call.resource(), &object))));
        }
        Verb::Update => None,
        Verb::Patch => Some(patch::decode_patch(call)?),
        _ => return Err(ApiError::method_not_allowed()),
    };
    let options = if patch.is_some() { "PatchOptions" } else { "UpdateOptions" };
    let mut writer = Writer::new(call, options)?;
    writer.scale = true;
    for _ in 0..ATTEMPTS {
        // Whoever loses a race is warned again.
        writer.warnings.clear();
        let live = call.live()?;
        let mut new = convert::to_version(call.resource(), &live.value).into_owned();
        let wanted = wanted(call, scale, &live, &new, patch.as_ref())?;
        // The real server does not track who scaled a custom resource.
        let custom = call.resource().is_custom();
        let ownership = match &patch {
            Some(Patch::Apply { config, force }) if !custom => {
                let config = parent(call, scale, config, wanted);
                new = writer.merge_applied(Some(&new), &config, *force)?;
                Ownership::Applied
            }
            _ => {
                place(&mut new, &scale.spec, wanted.into());
                if custom { Ownership::Applied } else { Ownership::Track }
            }
        };
        match writer.update(&live, new, ownership) {
            Ok(written) => {
                let object = match &written.body {
                    Reply::Object(object) => convert::to_version(call.resource(), &object.value).into_owned(),
                    Reply::Value(value) => value.clone(),
                    Reply::Bytes(_) => Value::Null,
                };
                let mut answer = Answer::new(StatusCode::OK, Reply::Value(scale.show(call.resource(), &object)));
                answer.warnings = writer.warnings;
                return Ok(answer.changed(written.changed));
            }
            Err(Refused::Raced) => {}
            Err(Refused::Api(error)) => return Err(error),
        }
    }
    Err(ApiError::modified(&call.resource().subject(call.name())))
}

/// What applying a `Scale` means for the object itself.
fn parent(call: &Call<'_>, scale: &Scale, config: &Value, wanted: i64) -> Value {
    let resource = call.resource();
    let mut parent = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": call.name()},
    });
    if !config["spec"]["replicas"].is_null() {
        place(&mut parent, &scale.spec, wanted.into());
    }
    parent
}

/// How many replicas the request wants.
fn wanted(call: &Call<'_>, scale: &Scale, live: &Object, object: &Value, patch: Option<&Patch>) -> ApiResult<i64> {
    let mut shown = scale.show(call.resource(), object);
    match patch {
        None => shown = decode::object("Scale", call.headers, call.body)?.value,
        Some(Patch::Merge(patch) | Patch::Strategic(patch)) => crate::patch::merge(&mut shown, patch),
        Some(Patch::Json(patch)) => {
            shown = crate::patch::json(&shown, patch).map_err(|error| patch::patch_error(&error))?;
        }
        Some(Patch::Apply { config, .. }) => crate::patch::merge(&mut shown, config),
    }
    let revision = meta::text(&shown, "resourceVersion");
    if !revision.is_empty() && revision != live.revision.to_string() {
        return Err(ApiError::modified(&call.resource().subject(call.name())));
    }
    let replicas = shown["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        let cause = StatusCause::invalid("spec.replicas", &json!(replicas), why);
        let subject = Subject { group: "autoscaling", kind: "Scale", name: call.name() };
        return Err(ApiError::invalid(&subject, &[cause]));
    }
    Ok(replicas)
}

/// Sets a value, with what is missing on the way.
fn place(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for step in pointer.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[step];
    }
    *at = value;
}
