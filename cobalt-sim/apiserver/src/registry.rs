//! Which resources are served: the built-in ones and those of custom resource definitions.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::kinds;
use crate::schema::Schema;
use crate::status::Subject;
use crate::table::Printer;
use crate::types::{self, TypeNode};
use crate::verbs::Scale;

/// A served resource in one version.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    /// There is a `status` subresource.
    pub(crate) has_status: bool,
    /// `metadata.generation` counts changes of the desired state.
    pub(crate) counts_generation: bool,
    /// An update without resourceVersion overwrites.
    pub(crate) unconditional_update: bool,
    /// PUT on a missing name creates.
    pub(crate) create_on_update: bool,
    /// DELETE answers with the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    /// Fields a fieldSelector may name.
    pub(crate) field_labels: Vec<&'static str>,
    /// Store bucket. Two versions of a kind share one.
    pub(crate) bucket: String,
    /// Present on custom resources.
    pub(crate) custom: Option<Arc<Custom>>,
}

/// What only custom resources have.
#[derive(Debug)]
pub(crate) struct Custom {
    pub(crate) schema: Schema,
    /// How instances are shown in tables.
    pub(crate) printer: Printer,
    /// The schema as it was written, for OpenAPI.
    pub(crate) source: Value,
    /// How instances are scaled, if they are.
    pub(crate) scale: Option<Scale>,
    /// Which state of the definition this is.
    pub(crate) stamp: String,
    /// The definition is being deleted: no new instances.
    pub(crate) terminating: bool,
}

impl Resource {
    /// `v1` or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.custom.is_some()
    }

    /// The resource and a name, for most errors.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { group: &self.group, kind: &self.plural, name }
    }

    /// The kind and a name, for validation errors.
    pub(crate) fn kind_subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        // Both kinds of events are validated as the one they are stored as.
        let group = if self.group == "events.k8s.io" { "" } else { &self.group };
        Subject { group, kind: &self.kind, name }
    }

    /// List types and merge keys.
    pub(crate) fn types(&self) -> &TypeNode {
        match &self.custom {
            Some(custom) => custom.schema.types(),
            None => types::builtin(&self.group, &self.kind).unwrap_or(&TypeNode::Deduced),
        }
    }

    /// Whether objects of this resource are stored in the form they are served in.
    pub(crate) fn is_storage_form(&self, stored: &Value) -> bool {
        let api_version = stored["apiVersion"].as_str().unwrap_or_default();
        match api_version.split_once('/') {
            Some((group, version)) => group == self.group && version == self.version,
            None => self.group.is_empty() && api_version == self.version,
        }
    }
}

type Path = (String, String, String);

/// All served resources by group, version and plural.
#[derive(Debug)]
pub(crate) struct Registry {
    resources: RwLock<BTreeMap<Path, Arc<Resource>>>,
}

impl Registry {
    /// A registry of the built-in kinds.
    pub(crate) fn new() -> Self {
        let resources = kinds::builtin().into_iter().map(|resource| (path(&resource), Arc::new(resource))).collect();
        Self { resources: RwLock::new(resources) }
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let key = (group.to_owned(), version.to_owned(), plural.to_owned());
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        resources.get(&key).cloned()
    }

    /// The resource that serves the objects of a bucket in the form they are stored in.
    pub(crate) fn of_object(&self, bucket: &str, object: &Value) -> Option<Arc<Resource>> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let mut candidates = resources.values().filter(|r| r.bucket == bucket);
        let first = candidates.next()?;
        if first.is_storage_form(object) {
            return Some(first.clone());
        }
        let exact = candidates.find(|r| r.is_storage_form(object));
        Some(exact.unwrap_or(first).clone())
    }

    /// Whether the resources of a bucket come from this state of their definition.
    pub(crate) fn is_current(&self, bucket: &str, stamp: &str) -> bool {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let mut own = resources.values().filter(|r| r.bucket == bucket).peekable();
        own.peek().is_some() && own.all(|r| r.custom.as_ref().is_some_and(|c| c.stamp == stamp))
    }

    /// Replaces all resources of a definition. No versions means it is no longer served.
    pub(crate) fn replace(&self, bucket: &str, versions: Vec<Resource>) {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.retain(|_, resource| resource.bucket != bucket);
        for resource in versions {
            resources.insert(path(&resource), Arc::new(resource));
        }
    }

    /// Everything served, in order of group, version and plural.
    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        resources.values().cloned().collect()
    }
}

fn path(resource: &Resource) -> Path {
    (resource.group.clone(), resource.version.clone(), resource.plural.clone())
}
