//! Apply-on-change: server-side apply that asks the server only when something is to be changed.
//!
//! ```text
//!   desired fields ──► all have that value in the observed object?  ──no──┐
//!                        │ yes                                            ├──► server-side apply (forced)
//!                      we own exactly these fields?  ──no─────────────────┘
//!                        │ yes
//!                      nothing: no request
//! ```
//!
//! The second question matters: a field we have stopped wanting still has an owner, us, until we apply without it; and a
//! field that somebody else forced to the value we want is not ours any more.
//!
//! A write of the status carries the resourceVersion it was decided on, because a decision made on a stale cache must not
//! undo a newer one. It then fails as [`ApplyError::Conflict`], and the caller observes anew.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::{
    Categorized, api_category, api_transient,
    fields::{FieldSet, Shape, matches},
    metrics::{Metrics, Write},
    shutdown::Chain,
    takeover::{TakeOver, fields_of},
};

/// Which part of an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything but the status.
    Main,
    /// The status, through its subresource.
    Status,
}

impl Target {
    /// `main` or `status`, as in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Status => "status",
        }
    }

    fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Status => Some("status"),
        }
    }
}

/// What an apply comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything is as wanted and ours: no request.
    Unchanged,
    /// One request.
    Apply,
    /// Fields of other managers must be made ours first.
    TakeOver,
}

/// What became of an apply.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied<K> {
    /// Nothing was to be changed, and no request was made.
    Unchanged,
    /// The server answered with this object.
    Written(Box<K>),
}

impl<K> Applied<K> {
    /// Whether a request was made.
    pub fn is_written(&self) -> bool {
        matches!(self, Self::Written(_))
    }
}

/// Applies objects under one field manager.
///
/// ```no_run
/// use cobalt_core::runtime::{apply::{Applied, Applier}, metrics::Metrics, takeover::TakeOver};
/// use k8s_openapi::api::core::v1::Node;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// # async fn example(api: kube::Api<Node>, cached: Node) -> Result<(), cobalt_core::runtime::apply::ApplyError> {
/// let applier = Applier::new("cobalt-operator", Arc::new(Metrics::new()))
///     .taking_over(TakeOver::from(["HypervisorTaint"]).except(["spec.taints"]));
/// let desired = json!({"metadata": {"labels": {"example.com/seen": "yes"}}});
/// match applier.main(&api, "node-1", Some(&cached), &desired).await? {
///     Applied::Unchanged => {}
///     Applied::Written(node) => println!("{:?}", node.metadata.resource_version),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Applier {
    manager: String,
    shape: Arc<Shape>,
    take_over: Option<Arc<TakeOver>>,
    /// Set once we have been told that we may not.
    no_take_over: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Applier {
    /// Writes as `manager`.
    pub fn new(manager: impl Into<String>, metrics: Arc<Metrics>) -> Self {
        Self { manager: manager.into(), shape: Arc::default(), take_over: None, no_take_over: Arc::default(), metrics }
    }

    /// For kinds whose lists merge in other ways than [`Shape::default`] says.
    #[must_use]
    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = Arc::new(shape);
        self
    }

    /// Makes other managers' fields ours when an object that has such is written.
    #[must_use]
    pub fn taking_over(mut self, take_over: TakeOver) -> Self {
        self.take_over = Some(Arc::new(take_over));
        self
    }

    /// The field manager.
    pub fn manager(&self) -> &str {
        &self.manager
    }

    /// What is taken over.
    pub fn take_over(&self) -> Option<&TakeOver> {
        self.take_over.as_deref()
    }

    /// Whether a request is needed. Pure: `observed` is what the cache holds, `managedFields` included.
    pub fn decide(
        &self,
        observed: &Value,
        managed: &[ManagedFieldsEntry],
        desired: &Value,
        target: Target,
    ) -> Decision {
        if self.active_take_over().is_some_and(|take_over| take_over.is_needed(managed, &self.manager)) {
            return Decision::TakeOver;
        }
        let owned = owned_fields(managed, &self.manager, target);
        if owned.same_leaves(&FieldSet::of(desired, &self.shape)) && matches(desired, observed, &self.shape) {
            Decision::Unchanged
        } else {
            Decision::Apply
        }
    }

    /// The fields of an object that are ours, or become ours with the first write (see [`TakeOver`]).
    pub fn owned<K: Resource>(&self, object: &K, target: Target) -> FieldSet {
        let managed = object.meta().managed_fields.as_deref().unwrap_or_default();
        match self.active_take_over().and_then(|take_over| take_over.rewrite(managed, &self.manager)) {
            Some(rewritten) => owned_fields(&rewritten, &self.manager, target),
            None => owned_fields(managed, &self.manager, target),
        }
    }

    fn active_take_over(&self) -> Option<&TakeOver> {
        self.take_over.as_deref().filter(|_| !self.no_take_over.load(Ordering::Relaxed))
    }

    /// The condition types in an object's status that are ours. A condition that a pass does not decide must be applied
    /// again as observed, or leaving it out would delete it.
    pub fn owned_conditions<K: Resource>(&self, object: &K) -> BTreeSet<String> {
        self.owned(object, Target::Status).item_keys("status.conditions", "type")
    }

    /// Applies everything but the status, creating the object if it does not exist. `desired` holds the wanted fields
    /// only; `apiVersion`, `kind` and `metadata.name` are added.
    pub async fn main<K>(
        &self,
        api: &Api<K>,
        name: &str,
        observed: Option<&K>,
        desired: &Value,
    ) -> Result<Applied<K>, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.apply(api, name, observed, desired, Target::Main, false).await
    }

    /// Applies everything but the status to an existing object, if it still is the one the decision was made on.
    pub async fn main_unless_changed<K>(
        &self,
        api: &Api<K>,
        observed: &K,
        desired: &Value,
    ) -> Result<Applied<K>, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.apply(api, &observed.name_any(), Some(observed), desired, Target::Main, true).await
    }

    /// Applies the status, if the object still is the one the decision was made on.
    pub async fn status<K>(&self, api: &Api<K>, observed: &K, desired: &Value) -> Result<Applied<K>, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.apply(api, &observed.name_any(), Some(observed), desired, Target::Status, true).await
    }

    /// Applies the status, whatever has happened to the object since: for facts that are not decisions, such as what an
    /// agent has just seen on its host.
    pub async fn status_unconditionally<K>(
        &self,
        api: &Api<K>,
        observed: &K,
        desired: &Value,
    ) -> Result<Applied<K>, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.apply(api, &observed.name_any(), Some(observed), desired, Target::Status, false).await
    }

    async fn apply<K>(
        &self,
        api: &Api<K>,
        name: &str,
        observed: Option<&K>,
        desired: &Value,
        target: Target,
        conditional: bool,
    ) -> Result<Applied<K>, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let kind = K::kind(&()).into_owned();
        let count = |outcome| self.metrics.write(&kind, target.name(), outcome);
        let mut version = observed.and_then(ResourceExt::resource_version);
        if let Some(observed) = observed {
            let value = serde_json::to_value(observed)
                .map_err(|cause| ApplyError::Encode { what: format!("{kind} {name}"), cause })?;
            let managed = observed.meta().managed_fields.as_deref().unwrap_or_default();
            match self.decide(&value, managed, desired, target) {
                Decision::Unchanged => {
                    count(Write::Unchanged);
                    return Ok(Applied::Unchanged);
                }
                Decision::Apply => {}
                Decision::TakeOver => {
                    let taken = self.take(api, &kind, name, version.as_deref().filter(|_| conditional)).await;
                    count(taken.as_ref().map_or_else(ApplyError::outcome, |_| Write::TakenOver));
                    match taken {
                        Ok(taken) => version = taken,
                        // Rewriting ownership needs the right to patch the object itself, which a program that may only
                        // write the status lacks. Our values hold all the same; the fields stay shared.
                        Err(error) if error.category() == "forbidden" => self.go_without_take_over(&error),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        let fields: Map<String, Value> = serde_json::from_value(without_nulls(desired.clone()))
            .map_err(|cause| ApplyError::Encode { what: format!("the desired fields of {kind} {name}"), cause })?;
        let mut body = Value::Object(fields);
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        body["apiVersion"] = json!(K::api_version(&()));
        body["kind"] = json!(kind);
        body["metadata"]["name"] = json!(name);
        if let Some(version) = version.filter(|_| conditional) {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        let params = PatchParams::apply(&self.manager).force();
        let patch = Patch::Apply(&body);
        let written = match target {
            Target::Main => api.patch(name, &params, &patch).await,
            Target::Status => api.patch_status(name, &params, &patch).await,
        };
        let written = written.map_err(|cause| ApplyError::of(&kind, name, target, cause));
        count(written.as_ref().map_or_else(ApplyError::outcome, |_| Write::Applied));
        written.map(|object| Applied::Written(Box::new(object)))
    }

    /// Makes other managers' fields ours. The cached object has been pruned, so the whole one is read first; if it is not
    /// the `expected` version any more, that is a conflict.
    async fn take<K>(
        &self,
        api: &Api<K>,
        kind: &str,
        name: &str,
        expected: Option<&str>,
    ) -> Result<Option<String>, ApplyError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let failed = |cause| ApplyError::of(kind, name, Target::Main, cause);
        let current = api.get(name).await.map_err(failed)?;
        let version = current.resource_version();
        if expected.is_some() && version.as_deref() != expected {
            return Err(ApplyError::Conflict { what: format!("take over {kind} {name}"), cause: None });
        }
        let Some(patch) = self.take_over.as_ref().and_then(|take_over| take_over.patch(&current, &self.manager)) else {
            return Ok(version);
        };
        let params = PatchParams { field_manager: Some(self.manager.clone()), ..Default::default() };
        match api.patch(name, &params, &Patch::<()>::Json(patch)).await {
            Ok(object) => {
                tracing::info!(kind, name, manager = self.manager, "took over fields of earlier managers");
                Ok(object.resource_version())
            }
            // A failed `test` is 422, and so is an object that validation refuses: only the first is a conflict.
            Err(cause) if api_category(&cause) == "invalid" => {
                let moved_on = api.get(name).await.map_err(failed)?.resource_version() != version;
                let what = format!("take over {kind} {name}");
                Err(if moved_on {
                    ApplyError::Conflict { what, cause: Some(Box::new(cause)) }
                } else {
                    ApplyError::Request { what, cause: Box::new(cause) }
                })
            }
            Err(cause) => Err(failed(cause)),
        }
    }

    fn go_without_take_over(&self, error: &ApplyError) {
        if !self.no_take_over.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                manager = self.manager, error = %Chain(error),
                "may not take over fields of earlier managers, they stay shared"
            );
        }
    }
}

/// The fields `manager` owns by apply.
fn owned_fields(managed: &[ManagedFieldsEntry], manager: &str, target: Target) -> FieldSet {
    let mut owned = FieldSet::default();
    for entry in managed {
        let ours = entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply");
        if ours && entry.subresource.as_deref().filter(|s| !s.is_empty()) == target.subresource() {
            owned.union(&fields_of(entry));
        }
    }
    owned
}

/// A null is not a value in an apply body (the server refuses it); what is absent is simply not wanted.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, without_nulls(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Why an object was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The object has changed since it was observed. Observe, decide and apply again.
    #[error("{what}: changed since it was observed")]
    Conflict {
        /// The operation and the object.
        what: String,
        /// What the server said, if it was the server who noticed.
        #[source]
        cause: Option<Box<kube::Error>>,
    },
    /// The object does not exist (any more).
    #[error("{what}: not found")]
    NotFound {
        /// The operation and the object.
        what: String,
        /// What the server said.
        #[source]
        cause: Box<kube::Error>,
    },
    /// Anything else.
    #[error("{what}")]
    Request {
        /// The operation and the object.
        what: String,
        /// What happened.
        #[source]
        cause: Box<kube::Error>,
    },
    /// The observed object cannot be written as JSON, or the desired fields are not a JSON object.
    #[error("encode {what}")]
    Encode {
        /// The object.
        what: String,
        /// What is wrong.
        #[source]
        cause: serde_json::Error,
    },
}

impl ApplyError {
    fn of(kind: &str, name: &str, target: Target, cause: kube::Error) -> Self {
        let what = match target {
            Target::Main => format!("apply {kind} {name}"),
            Target::Status => format!("apply status of {kind} {name}"),
        };
        match api_category(&cause) {
            "conflict" => Self::Conflict { what, cause: Some(Box::new(cause)) },
            "not_found" => Self::NotFound { what, cause: Box::new(cause) },
            _ => Self::Request { what, cause: Box::new(cause) },
        }
    }

    fn outcome(&self) -> Write {
        if matches!(self, Self::Conflict { .. }) { Write::Conflict } else { Write::Failed }
    }

    /// Whether the object had changed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

impl Categorized for ApplyError {
    fn category(&self) -> &'static str {
        match self {
            Self::Conflict { .. } => "conflict",
            Self::NotFound { .. } => "not_found",
            Self::Request { cause, .. } => api_category(cause),
            Self::Encode { .. } => "malformed",
        }
    }

    fn is_transient(&self) -> bool {
        match self {
            Self::Conflict { .. } => true,
            Self::Request { cause, .. } => api_transient(cause),
            _ => false,
        }
    }
}
