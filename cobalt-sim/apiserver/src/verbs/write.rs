//! What creates, updates and patches have in common: defaulting, validation, field ownership, commit.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, Reply};
use crate::apply::{self, ApplyError, WriteInfo};
use crate::auth::Identity;
use crate::http::{FieldValidation, user_agent};
use crate::registry::Resource;
use crate::schema::Part;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult, StatusCause, Subject};
use crate::store::{Key, Object, approximate_size};
use crate::{admission, convert, meta, names, strategy};

/// The largest object the store takes, as etcd's request limit.
const OBJECT_LIMIT: usize = 1536 * 1024;

/// The longest name of a field manager.
const MANAGER_LIMIT: usize = 128;

/// How often a write that lost a race is tried again.
pub(super) const ATTEMPTS: usize = 64;

/// One write to one object.
pub(crate) struct Writer<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) key: Key,
    /// Through the `status` subresource.
    pub(crate) status: bool,
    /// Through the `scale` subresource.
    pub(crate) scale: bool,
    pub(crate) source: Source,
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) validation: FieldValidation,
    pub(crate) now: String,
    pub(crate) warnings: Vec<String>,
    /// Who writes; nobody if it is the server itself.
    pub(crate) identity: Option<&'a Identity>,
}

/// Why a write did not happen.
pub(crate) enum Refused {
    Api(Box<ApiError>),
    /// Somebody else wrote first: read again.
    Raced,
}

impl From<Box<ApiError>> for Refused {
    fn from(error: Box<ApiError>) -> Self {
        Self::Api(error)
    }
}

/// The result of a write.
pub(crate) struct Written {
    pub(crate) body: Reply,
    pub(crate) changed: bool,
}

/// Where a new state comes from, which decides how a decoding error is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Body,
    Patch,
    Apply,
}

/// Where the managed fields of the new state come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// To be computed from the difference to the old state.
    Track,
    /// Already computed by an apply.
    Applied,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(call: &'a Call<'_>, options: &str) -> ApiResult<Self> {
        let manager = match call.params.text("fieldManager") {
            Some(manager) => manager.to_owned(),
            None => user_agent(call.headers).unwrap_or_else(|| "unknown".to_owned()),
        };
        if manager.len() > MANAGER_LIMIT && call.params.text("fieldManager").is_some() {
            let cause = StatusCause::new(
                "FieldValueTooLong",
                "fieldManager",
                format!("Too long: may not be more than {MANAGER_LIMIT} bytes"),
            );
            return Err(ApiError::invalid_options(options, &[cause]));
        }
        Ok(Self {
            server: call.server,
            resource: call.resource(),
            key: call.target.key(),
            status: call.target.subresource.as_deref() == Some("status"),
            scale: false,
            source: Source::Body,
            manager,
            dry_run: call.params.dry_run(options)?,
            validation: FieldValidation::parse(call.params, options)?,
            now: call.server.clock.rfc3339(),
            warnings: Vec::new(),
            identity: Some(call.identity),
        })
    }

    /// A write by the server itself.
    pub(crate) fn internal(server: &'a Inner, resource: &'a Arc<Resource>, key: Key) -> Self {
        Self {
            server,
            resource,
            key,
            status: false,
            scale: false,
            source: Source::Body,
            manager: "kube-apiserver".to_owned(),
            dry_run: false,
            validation: FieldValidation::Ignore,
            now: server.clock.rfc3339(),
            warnings: Vec::new(),
            identity: None,
        }
    }

    fn info<'b>(&'b self, api_version: &'b str) -> WriteInfo<'b> {
        WriteInfo {
            manager: &self.manager,
            api_version,
            subresource: self.status.then_some("status").or(self.scale.then_some("scale")),
            time: &self.now,
            reset: strategy::reset_fields(self.resource, self.status),
        }
    }

    /// Stores a new object. `object` is in the served form, with its name decided.
    pub(crate) fn create(&mut self, mut object: Value, ownership: Ownership) -> Result<Written, Refused> {
        let resource = self.resource.clone();
        self.check_home()?;
        self.check_types(&object)?;
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.clone().into();
        for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            meta::set(&mut object, field, None);
        }
        if resource.namespaced {
            meta::set(&mut object, "namespace", Some(self.key.namespace.clone().into()));
        } else {
            meta::set(&mut object, "namespace", None);
        }
        meta::set(&mut object, "uid", Some(self.server.entropy.uid().into()));
        meta::set(&mut object, "creationTimestamp", Some(self.now.clone().into()));
        if resource.counts_generation {
            meta::set(&mut object, "generation", Some(1.into()));
        }
        strategy::prepare_create(&resource, &mut object);
        self.conform(&mut object, ownership)?;
        meta::tidy(&mut object);
        self.validate(&object, None)?;
        settle_numbers(&resource, &mut object);
        if ownership == Ownership::Track {
            self.track(None, &mut object)?;
        }
        strategy::finish_create(self.server, &resource, &mut object);
        admission::accounts::complete(self.server, &resource, &mut object)?;
        admission::review(self, "CREATE", Some(&object), None)?;
        self.check_absent()?;
        Self::check_size(&object)?;
        let stored = convert::to_storage(&resource, object);
        if self.dry_run {
            return Ok(Written {
                body: Reply::Value(convert::to_version(&resource, &stored).into_owned()),
                changed: false,
            });
        }
        let put = self.server.store.put(&resource.bucket, &self.key, None, stored);
        Ok(Written { body: Reply::Object(put.map_err(|_| Refused::Raced)?), changed: true })
    }

    /// Stores a new state of an object. `new` is in the served form and may be anything the client could think of.
    pub(crate) fn update(
        &mut self,
        live: &Arc<Object>,
        mut new: Value,
        ownership: Ownership,
    ) -> Result<Written, Refused> {
        let resource = self.resource.clone();
        let old = convert::to_version(&resource, &live.value);
        self.check_identity(&old, &new)?;
        self.check_types(&new)?;
        new["apiVersion"] = resource.api_version().into();
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "resourceVersion",
            "namespace",
            "name",
            "generateName",
        ] {
            meta::copy(&mut new, &old, field);
        }
        strategy::isolate(&resource, self.status, &old, &mut new);
        if !self.status {
            strategy::prepare_update(&resource, &old, &mut new);
        }
        self.conform(&mut new, ownership)?;
        meta::tidy(&mut new);
        if ownership == Ownership::Track {
            self.track(Some(&old), &mut new)?;
        }
        strategy::reset_metadata(&resource, self.status, &old, &mut new);
        if resource.counts_generation && strategy::desired_state_changed(&resource, &old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
            meta::set(&mut new, "generation", Some((generation + 1).into()));
        }
        self.validate(&new, Some(&old))?;
        settle_numbers(&resource, &mut new);
        admission::review(self, "UPDATE", Some(&new), Some(&old))?;
        if meta::same_but_times(&old, &new) {
            return Ok(Written { body: Reply::Object(live.clone()), changed: false });
        }
        Self::check_size(&new)?;
        self.commit(live, old, new)
    }

    fn commit(&self, live: &Arc<Object>, old: Cow<'_, Value>, new: Value) -> Result<Written, Refused> {
        let resource = self.resource;
        let terminating = old["metadata"].get("deletionTimestamp").is_some();
        drop(old);
        let finished = terminating && strategy::may_go(resource, &new);
        if self.dry_run {
            return Ok(Written { body: Reply::Value(new), changed: false });
        }
        let stored = convert::to_storage(resource, new);
        let (bucket, store) = (&resource.bucket, &self.server.store);
        if finished {
            // The last finalizer went: the caller sees the last state, watchers the deletion.
            store.remove(bucket, &self.key, live.revision).map_err(|_| Refused::Raced)?;
            return Ok(Written {
                body: Reply::Value(convert::to_version(resource, &stored).into_owned()),
                changed: true,
            });
        }
        let put = store.put(bucket, &self.key, Some(live.revision), stored);
        Ok(Written { body: Reply::Object(put.map_err(|_| Refused::Raced)?), changed: true })
    }

    /// The namespace must exist and stay, the definition must stay.
    fn check_home(&self) -> ApiResult<()> {
        let (resource, name) = (self.resource, &self.key.name);
        if let Some(custom) = &resource.custom
            && custom.terminating
        {
            return Err(ApiError::forbidden(
                &resource.subject(name),
                "create not allowed while custom resource definition is terminating",
                &[],
            ));
        }
        if !resource.namespaced {
            return Ok(());
        }
        let namespace = &self.key.namespace;
        let Some(found) = self.server.namespace(namespace) else {
            return Err(ApiError::not_found(&Subject { group: "", kind: "namespaces", name: namespace }));
        };
        if found.is_terminating() {
            return Err(ApiError::forbidden(
                &resource.subject(name),
                &format!("unable to create new content in namespace {namespace} because it is being terminated"),
                &[StatusCause::new(
                    "NamespaceTerminating",
                    "metadata.namespace",
                    format!("namespace {namespace} is being terminated"),
                )],
            ));
        }
        Ok(())
    }

    fn check_absent(&self) -> ApiResult<()> {
        match self.server.store.get(&self.resource.bucket, &self.key) {
            None => Ok(()),
            Some(existing) => {
                Err(ApiError::already_exists(&self.resource.subject(&self.key.name), existing.is_terminating()))
            }
        }
    }

    fn check_size(object: &Value) -> ApiResult<()> {
        if approximate_size(object) > OBJECT_LIMIT {
            return Err(ApiError::internal("etcdserver: request is too large"));
        }
        Ok(())
    }

    /// Kind and uid cannot change.
    fn check_identity(&self, old: &Value, new: &Value) -> ApiResult<()> {
        let kind = new["kind"].as_str().unwrap_or_default();
        if kind != self.resource.kind {
            return Err(wrong_kind(self.resource, kind, &self.key.name));
        }
        let uid = meta::text(new, "uid");
        if !uid.is_empty() && uid != meta::text(old, "uid") {
            return Err(wrong_uid(self.resource, uid, &self.key.name));
        }
        Ok(())
    }

    /// The fixed structures must have their types before anything looks into them.
    fn check_types(&self, object: &Value) -> ApiResult<()> {
        match strategy::decoding_problem(self.resource, object) {
            Some(problem) => Err(self.undecodable(object, &problem)),
            None => Ok(()),
        }
    }

    /// Removes unknown fields and fills in defaults.
    fn conform(&mut self, object: &mut Value, ownership: Ownership) -> ApiResult<()> {
        let before =
            (self.source == Source::Patch && self.validation == FieldValidation::Strict).then(|| object.clone());
        let mut unknown = strategy::prune_metadata(object);
        match &self.resource.custom {
            Some(custom) => {
                unknown.extend(custom.schema.prune(object));
                match ownership {
                    Ownership::Track => custom.schema.default(object),
                    Ownership::Applied => custom.schema.default_applied(object),
                }
            }
            None => unknown.extend(strategy::prune_builtin(self.resource, object)),
        }
        unknown.sort();
        let told: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        if let Some(before) = before.filter(|_| !told.is_empty()) {
            let problem = format!("strict decoding error: {}", told.join(", "));
            return Err(self.undecodable(&before, &problem));
        }
        self.tell(&told)
    }

    /// The new state is not an object of its kind.
    fn undecodable(&self, object: &Value, problem: &str) -> Box<ApiError> {
        let (kind, api_version) = (&self.resource.kind, self.resource.api_version());
        match self.source {
            Source::Body => ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {kind}: {problem}",
                self.resource.version
            )),
            Source::Patch => {
                let shown = json!(object.to_string());
                let cause = StatusCause::invalid("patch", &shown, problem);
                ApiError::invalid(&Subject::default(), &[cause])
            }
            Source::Apply => ApiError::internal(format!(
                "failed to convert new object (/{}; {api_version}, Kind={kind}) to proper version: unable to convert unstructured object to {api_version}, Kind={kind}: {problem}",
                self.key.name
            )),
        }
    }

    /// Reports what strict decoding would refuse.
    pub(crate) fn tell(&mut self, problems: &[String]) -> ApiResult<()> {
        if problems.is_empty() {
            return Ok(());
        }
        match self.validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warnings.extend_from_slice(problems),
            FieldValidation::Strict => {
                let kind = &self.resource.kind;
                return Err(ApiError::bad_request(format!(
                    "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {}",
                    self.resource.version,
                    problems.join(", ")
                )));
            }
        }
        Ok(())
    }

    fn validate(&mut self, object: &Value, old: Option<&Value>) -> ApiResult<()> {
        let mut causes = names::metadata_causes(self.resource, object);
        if let Some(old) = old {
            causes.extend(added_finalizers(self.resource, old, object));
        }
        if let Some(custom) = &self.resource.custom {
            let part = if self.status { Part::Status } else { Part::Whole };
            let earlier = causes.iter().map(strategy::field_error).collect();
            let found = custom.schema.validate_part(part, object, old, earlier);
            causes = found.iter().map(strategy::cause).collect();
        } else {
            causes.extend(strategy::validate(self.resource, object, old, self.status));
            causes.extend(admission::validate(self.resource, object));
        }
        self.warn_about_finalizers(object, old);
        if causes.is_empty() {
            return Ok(());
        }
        let subject = self.resource.kind_subject(meta::text(object, "name"));
        Err(ApiError::invalid(&subject, &causes).warn(&self.warnings))
    }

    fn warn_about_finalizers(&mut self, object: &Value, old: Option<&Value>) {
        let known = old.map(meta::finalizers).unwrap_or_default();
        for finalizer in meta::finalizers(object) {
            let standard = matches!(finalizer.as_str(), "orphan" | "foregroundDeletion");
            if !finalizer.contains('/') && !standard && !known.contains(&finalizer) {
                self.warnings.push(format!(
                    "metadata.finalizers: \"{finalizer}\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
                ));
            }
        }
    }

    fn track(&self, old: Option<&Value>, new: &mut Value) -> ApiResult<()> {
        let api_version = self.resource.api_version();
        apply::track_update(old, new, self.resource.types(), &self.info(&api_version))
            .map_err(|error| apply_error(&error))
    }

    /// Merges an apply configuration into the live state.
    pub(crate) fn merge_applied(&self, live: Option<&Value>, applied: &Value, force: bool) -> ApiResult<Value> {
        let api_version = self.resource.api_version();
        let info = self.info(&api_version);
        apply::apply(live, applied, self.resource.types(), &info, force).map_err(|error| apply_error(&error))
    }
}

/// The object is of another kind than its path.
pub(super) fn wrong_kind(resource: &Resource, kind: &str, name: &str) -> Box<ApiError> {
    let subject = Subject { group: &resource.group, kind, name };
    let text = format!("must be {}", resource.kind);
    ApiError::invalid(&subject, &[StatusCause::invalid("kind", &json!(kind), &text)])
}

/// The uid is another one than the stored object's.
pub(super) fn wrong_uid(resource: &Resource, uid: &str, name: &str) -> Box<ApiError> {
    let cause = strategy::immutable("metadata.uid", &json!(uid));
    // Custom resources check their metadata twice.
    let causes = vec![cause; if resource.is_custom() { 2 } else { 1 }];
    ApiError::invalid(&resource.kind_subject(name), &causes)
}

/// An apply error as the wire tells it.
fn apply_error(error: &ApplyError) -> Box<ApiError> {
    match error {
        ApplyError::Conflict(conflicts) => {
            let causes: Vec<StatusCause> =
                conflicts.iter().map(|c| StatusCause::new("FieldManagerConflict", &*c.field, &*c.message)).collect();
            ApiError::apply_conflict(error.to_string(), &causes)
        }
        ApplyError::BadRequest(message) => ApiError::bad_request(message.clone()),
        other => ApiError::internal(other.to_string()),
    }
}

fn added_finalizers(resource: &Resource, old: &Value, new: &Value) -> Vec<StatusCause> {
    if old["metadata"].get("deletionTimestamp").is_none() {
        return Vec::new();
    }
    let known = meta::finalizers(old);
    let added: Vec<String> =
        meta::finalizers(new).into_iter().filter(|f| !known.contains(f)).map(|f| format!("{f:?}")).collect();
    if added.is_empty() {
        return Vec::new();
    }
    let cause = StatusCause::forbidden(
        "metadata.finalizers",
        &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        ),
    );
    // Custom resources check their metadata twice.
    if resource.is_custom() { vec![cause.clone(), cause] } else { vec![cause] }
}

/// Numbers as Go writes them: without a fraction that says nothing.
fn settle_numbers(resource: &Resource, object: &mut Value) {
    fn settle(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_f64() => {
                // Every integer below this is a float too.
                const EXACT: f64 = 9_007_199_254_740_992.0;
                let float = number.as_f64().unwrap_or_default();
                if float.fract() == 0.0 && float.abs() < EXACT {
                    #[allow(clippy::cast_possible_truncation)]
                    let whole = float as i64;
                    *value = whole.into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(settle),
            Value::Object(fields) => fields.values_mut().for_each(settle),
            _ => {}
        }
    }
    if resource.is_custom() {
        settle(object);
    }
}
