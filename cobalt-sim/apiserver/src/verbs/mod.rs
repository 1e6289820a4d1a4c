//! What the server does with an object or a collection: one file per family of verbs.

mod create;
mod delete;
mod get;
mod list;
mod patch;
mod scale;
mod subresources;
mod tokens;
mod update;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use delete::{Deletion, Propagation, delete_object};
pub(crate) use list::{Query, bad_revision, check_options};
pub(crate) use scale::Scale;
pub(crate) use write::{Ownership, Refused, Writer};

use crate::auth::Identity;
use crate::http::{Form, Params};
use crate::registry::Resource;
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, Object};

/// What a request wants to do, as authorization names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// Make an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object by JSON, merge, strategic merge or apply patch.
    Patch,
    /// Remove an object.
    Delete,
    /// Remove the objects of a collection.
    DeleteCollection,
}

impl Verb {
    /// The name used by RBAC rules.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether the verb may change objects.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A verb on a resource.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) verb: Verb,
}

impl Target {
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.clone().unwrap_or_default(), self.name.clone().unwrap_or_default())
    }
}

/// A request to a resource, ready to be executed.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) target: &'a Target,
    pub(crate) params: &'a Params,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    pub(crate) identity: &'a Identity,
    pub(crate) form: Form,
}

impl Call<'_> {
    pub(crate) fn resource(&self) -> &Arc<Resource> {
        &self.target.resource
    }

    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The stored object the call is about.
    pub(crate) fn live(&self) -> ApiResult<Arc<Object>> {
        self.server
            .store
            .get(&self.resource().bucket, &self.target.key())
            .ok_or_else(|| ApiError::not_found(&self.resource().subject(self.name())))
    }
}

/// What a verb answers.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) body: Reply,
    pub(crate) warnings: Vec<String>,
    /// Something was stored or removed.
    pub(crate) changed: bool,
}

#[derive(Debug)]
pub(crate) enum Reply {
    /// A stored object, sent in the form and version of the resource.
    Object(Arc<Object>),
    /// An object of this answer only: dry runs, reviews, `Status`.
    Value(Value),
    /// Ready-made JSON.
    Bytes(Bytes),
}

impl Answer {
    pub(crate) fn ok(body: Reply) -> Self {
        Self::new(StatusCode::OK, body)
    }

    pub(crate) fn new(code: StatusCode, body: Reply) -> Self {
        Self { code, body, warnings: Vec::new(), changed: false }
    }

    pub(crate) fn changed(mut self, changed: bool) -> Self {
        self.changed = changed;
        self
    }
}

/// Executes everything but a watch.
pub(crate) fn execute(call: &Call<'_>) -> ApiResult<Answer> {
    if let Some(subresource) = call.target.subresource.as_deref() {
        let status = subresource == "status" && call.resource().has_status;
        if !status {
            return subresources::execute(call, subresource);
        }
        if !matches!(call.target.verb, Verb::Get | Verb::Update | Verb::Patch) {
            let subject = call.resource().subject("");
            return Err(if call.resource().is_custom() {
                ApiError::unsupported_verb(&subject, call.target.verb.name())
            } else {
                ApiError::method_not_allowed()
            });
        }
    }
    if subresources::is_review(call.resource()) {
        return match call.target.verb {
            Verb::Create => subresources::review(call),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    match call.target.verb {
        Verb::Get => get::get(call),
        Verb::List | Verb::Watch => list::list(call),
        Verb::Create => create::create(call),
        Verb::Update => update::update(call),
        Verb::Patch => patch::patch(call),
        Verb::Delete => delete::delete(call),
        Verb::DeleteCollection => delete::delete_collection(call),
    }
}
