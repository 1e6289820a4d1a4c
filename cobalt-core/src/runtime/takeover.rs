//! Taking over fields that other programs wrote by patch or update.
//!
//! Server-side apply removes a field when its last owner stops applying it. A field that was written by a merge patch is
//! owned by an `Update` entry of whoever wrote it; applying the same field makes it co-owned, and it can then never be
//! removed by us. So when an object is taken over, its `managedFields` are rewritten once: what the named managers own by
//! `Update` becomes ours by `Apply`. Fields that are not ours to want stay with them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::Resource;
use serde_json::{Value, json};

use super::fields::{FieldPath, FieldSet};

/// Whose fields are taken over, and which.
///
/// ```
/// use cobalt_core::runtime::takeover::TakeOver;
///
/// let from_go = TakeOver::from(["hypervisor", "onboarding", "unknown"])
///     .except(["spec.overcommit", "spec.groups"]); // Cortex writes these
/// # let _ = from_go;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakeOver {
    managers: Vec<String>,
    except: Vec<FieldPath>,
    only: Vec<FieldPath>,
}

impl<S: Into<String>, I: IntoIterator<Item = S>> From<I> for TakeOver {
    fn from(managers: I) -> Self {
        Self { managers: managers.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

impl TakeOver {
    /// Leaves these fields (and what is below them) to whoever has them.
    #[must_use]
    pub fn except<P: Into<FieldPath>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.except.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Takes nothing but these fields and what is below them. For managers that several programs share (`unknown`).
    #[must_use]
    pub fn only<P: Into<FieldPath>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.only.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Our own `Update` entries count as foreign too: they stem from a create or patch under our name.
    fn concerns(&self, entry: &ManagedFieldsEntry, manager: &str) -> bool {
        let name = entry.manager.as_deref().unwrap_or_default();
        entry.operation.as_deref() == Some("Update") && (name == manager || self.managers.iter().any(|m| m == name))
    }

    fn split(&self, fields: &FieldSet) -> (FieldSet, FieldSet) {
        let (mut taken, mut left) = (fields.clone(), FieldSet::default());
        if !self.only.is_empty() {
            let mut only = FieldSet::default();
            left = fields.clone();
            for path in &self.only {
                only.union(&fields.under(path));
                left = left.without(path);
            }
            taken = only;
        }
        for path in &self.except {
            left.union(&taken.under(path));
            taken = taken.without(path);
        }
        (taken, left)
    }

    /// Whether there is anything to take.
    pub fn is_needed(&self, managed: &[ManagedFieldsEntry], manager: &str) -> bool {
        managed
            .iter()
            .filter(|entry| self.concerns(entry, manager))
            .any(|entry| !self.split(&fields_of(entry)).0.is_empty())
    }

    /// The `managedFields` after the take-over; none if there is nothing to take.
    pub fn rewrite(&self, managed: &[ManagedFieldsEntry], manager: &str) -> Option<Vec<ManagedFieldsEntry>> {
        if !self.is_needed(managed, manager) {
            return None;
        }
        let mut rewritten: Vec<ManagedFieldsEntry> = Vec::with_capacity(managed.len());
        let mut gained: Vec<ManagedFieldsEntry> = Vec::new();
        for entry in managed {
            if !self.concerns(entry, manager) {
                rewritten.push(entry.clone());
                continue;
            }
            let (taken, left) = self.split(&fields_of(entry));
            if !taken.is_empty() {
                gained.push(ManagedFieldsEntry {
                    manager: Some(manager.to_owned()),
                    operation: Some("Apply".to_owned()),
                    fields_v1: Some(FieldsV1(taken.to_fields_v1())),
                    ..entry.clone()
                });
            }
            if !left.is_empty() {
                rewritten.push(ManagedFieldsEntry { fields_v1: Some(FieldsV1(left.to_fields_v1())), ..entry.clone() });
            }
        }
        for entry in gained {
            // An entry is known by manager, operation, version and subresource.
            let ours = rewritten.iter_mut().find(|have| {
                have.manager == entry.manager
                    && have.operation == entry.operation
                    && have.api_version == entry.api_version
                    && have.subresource == entry.subresource
            });
            match ours {
                Some(ours) => {
                    let mut fields = fields_of(ours);
                    fields.union(&fields_of(&entry));
                    ours.fields_v1 = Some(FieldsV1(fields.to_fields_v1()));
                }
                None => rewritten.push(entry),
            }
        }
        Some(rewritten)
    }

    /// The JSON patch that does it to this very version of the object; none if there is nothing to take.
    pub fn patch<K: Resource>(&self, object: &K, manager: &str) -> Option<json_patch::Patch> {
        let meta = object.meta();
        let rewritten = self.rewrite(meta.managed_fields.as_deref().unwrap_or_default(), manager)?;
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "replace", "path": "/metadata/managedFields", "value": rewritten},
        ]);
        serde_json::from_value(patch).ok()
    }
}

/// The fields of an entry, compacted or not.
pub(super) fn fields_of(entry: &ManagedFieldsEntry) -> FieldSet {
    let parsed;
    let fields = match entry.fields_v1.as_ref().map(|fields| &fields.0) {
        Some(Value::String(text)) => {
            parsed = serde_json::from_str(text).unwrap_or_default();
            &parsed
        }
        Some(fields) => fields,
        None => return FieldSet::default(),
    };
    match fields {
        Value::Object(map) if !map.is_empty() => FieldSet::from_fields_v1(fields),
        _ => FieldSet::default(),
    }
}

/// Drops what [`Applier`](super::apply::Applier) does not need from an object's `managedFields`, so that a cache of a
/// thousand stays small: kept are our own entries and those to be taken over, their fields as one text instead of a tree
/// (a tenth of the memory). For a watch's `modify` hook; such an object must not be sent back to the server as it is.
///
/// ```
/// use cobalt_core::runtime::takeover::{TakeOver, compact_managed_fields};
/// use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
/// use kube::ResourceExt;
///
/// let entry = |manager: &str| ManagedFieldsEntry { manager: Some(manager.into()), ..Default::default() };
/// let mut node = Node::default();
/// *node.managed_fields_mut() = vec![entry("kubelet"), entry("cobalt-operator")];
/// compact_managed_fields(&mut node, "cobalt-operator", None);
/// assert_eq!(node.managed_fields().len(), 1);
/// ```
pub fn compact_managed_fields<K: Resource>(object: &mut K, manager: &str, take_over: Option<&TakeOver>) {
    let nothing = TakeOver::default();
    let take_over = take_over.unwrap_or(&nothing);
    if let Some(entries) = &mut object.meta_mut().managed_fields {
        entries.retain(|entry| entry.manager.as_deref() == Some(manager) || take_over.concerns(entry, manager));
        for entry in entries.iter_mut() {
            entry.time = None;
            if let Some(fields) = &mut entry.fields_v1
                && fields.0.is_object()
            {
                // A text that was written bit by bit has room for twice as much.
                fields.0 = Value::String(fields.0.to_string().into_boxed_str().into_string());
            }
        }
        entries.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
