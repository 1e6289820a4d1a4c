//! Server-side apply and the bookkeeping of `managedFields`.
//!
//! Two entry points: [`apply`] for apply patches, [`track_update`] for every other write. Both are pure; the
//! server resolves versions, names and validation around them.

mod check;
mod error;
mod fieldset;
mod last_applied;
mod managed;
mod path;
mod walk;

use std::sync::LazyLock;

use serde_json::Value;

pub use self::error::{ApplyError, ConflictCause};
pub use self::fieldset::FieldSet;
pub use self::managed::{Manager, Operation};
pub use self::path::PathElement;

use self::check::{Duplicates, check};
use self::managed::{Entry, Managed};
use self::walk::Comparison;
use crate::types::{TypeNode, canonical_numbers, same, too_deep};

/// Who owns what was there before an object was applied for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The circumstances of one write.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteInfo<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The version of the request, such as `kvm.cloud.sap/v1`.
    pub api_version: &'a str,
    /// The subresource written to, if any.
    pub subresource: Option<&'a str>,
    /// Now, in RFC 3339 with seconds.
    pub time: &'a str,
    /// Top-level fields this endpoint cannot change: `status` on the main endpoint of a kind with a status
    /// subresource, `spec` on `/status`. They are taken from the stored object and never owned.
    pub reset: &'a [&'a str],
}

impl WriteInfo<'_> {
    fn ignored(&self) -> FieldSet {
        let paths: Vec<[&str; 1]> = self.reset.iter().map(|name| [*name]).collect();
        FieldSet::of_fields(&paths.iter().map(<[&str; 1]>::as_slice).collect::<Vec<_>>())
    }

    fn as_manager(&self, operation: Operation) -> Manager {
        let name = if self.manager.is_empty() { "unknown" } else { self.manager };
        Manager::new(operation, name, self.api_version, self.subresource)
    }
}

/// Sets the `managedFields` of `new` after a create, an update or a non-apply patch.
///
/// `new` is the object the client asked for (patched, pruned, defaulted), before admission and before an endpoint
/// puts back what it cannot change: the real server records owners first. It carries the `managedFields` the client
/// sent, if any: `[{}]` forgets all entries, valid entries replace the stored ones, everything else is ignored.
pub fn track_update(
    old: Option<&Value>,
    new: &mut Value,
    types: &TypeNode,
    info: &WriteInfo<'_>,
) -> Result<(), ApplyError> {
    refuse_deep(new)?;
    let mut managed = client_or_stored(old, new, info);
    managed::strip(new);
    // An existing object without entries stays without: somebody asked for that.
    if old.is_none() || !managed.0.is_empty() {
        let mut before = old.map_or_else(|| types.zero(), Value::clone);
        managed::strip(&mut before);
        update(&mut managed, &before, new, types, &info.as_manager(Operation::Update), info);
        managed.cap_updaters();
    }
    managed.write(new);
    Ok(())
}

fn client_or_stored(old: Option<&Value>, new: &Value, info: &WriteInfo<'_>) -> Managed {
    let stored = || old.and_then(|old| Managed::of(old).ok()).unwrap_or_default();
    if info.subresource.is_some() {
        return stored();
    }
    if managed::asks_for_reset(new) {
        return Managed::default();
    }
    Managed::of(new).ok().filter(|managed| !managed.0.is_empty()).unwrap_or_else(stored)
}

/// Gives what changed from `before` to `after` to `manager`, and takes it from everybody else.
fn update(
    managed: &mut Managed,
    before: &Value,
    after: &Value,
    types: &TypeNode,
    manager: &Manager,
    info: &WriteInfo<'_>,
) {
    let fits = |object| check(types, object, Duplicates::Allowed).is_none();
    if !fits(before) || !fits(after) {
        // The real server leaves the entries alone when it cannot type the object.
        return;
    }
    let changes = walk::compare(types, before, after).without(&info.ignored());
    release(managed, &changes, None);
    let taken = changes.taken().difference(&NEVER_OWNED);
    if !taken.is_empty() {
        let entry = managed.0.entry(manager.clone()).or_insert_with(|| Entry {
            api_version: info.api_version.to_owned(),
            time: None,
            fields: FieldSet::default(),
        });
        entry.fields = entry.fields.union(&taken);
        // The real server translates the owners of a scale into those of its parent, and loses their times.
        entry.time = (info.subresource != Some("scale")).then(|| info.time.to_owned());
    }
}

/// Takes what changed from all managers but `except`, and forgets managers that own nothing.
fn release(managed: &mut Managed, changes: &Comparison, except: Option<&Manager>) {
    let gone = changes.taken().union(&changes.removed);
    for (manager, entry) in &mut managed.0 {
        if Some(manager) != except {
            entry.fields = entry.fields.difference(&gone);
        }
    }
    managed.0.retain(|_, entry| !entry.fields.is_empty());
}

/// What identifies an object or belongs to the server is nobody's.
static NEVER_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let metadata =
        ["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"];
    let mut set = FieldSet::of_fields(&[&["apiVersion"], &["kind"], &["metadata"]]);
    for name in metadata {
        set.insert(&[PathElement::field("metadata"), PathElement::field(name)]);
    }
    set
});

/// Applies `applied` to the stored object; the result carries its `managedFields`.
///
/// An apply that changes nothing gives an object equal to `live`. The result is not yet defaulted, pruned or
/// validated; once that is done, [`settle`] tells whether anything is left to write.
pub fn apply(
    live: Option<&Value>,
    applied: &Value,
    types: &TypeNode,
    info: &WriteInfo<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    if applied.pointer("/metadata/managedFields").is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let applied = prepared(applied)?;
    let mut managed = match live {
        Some(live) => {
            Managed::of(live).map_err(|why| ApplyError::Invalid(format!("failed to decode managed fields: {why}")))?
        }
        None => Managed::default(),
    };
    let mut stored = live.cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    refuse_deep(&stored)?;
    managed::strip(&mut stored);
    if live.is_some() && managed.0.is_empty() {
        // Nobody is on record: whatever is there belongs to the time before.
        let before = WriteInfo { manager: BEFORE_FIRST_APPLY, ..*info };
        update(&mut managed, &types.zero(), &stored, types, &before.as_manager(Operation::Update), &before);
    }
    if let Some(why) = check(types, &applied, Duplicates::Refused) {
        return Err(ApplyError::Invalid(format!(
            "failed to create typed patch object ({}): {why}",
            identity(&applied)
        )));
    }
    if let Some(why) = check(types, &stored, Duplicates::Allowed) {
        return Err(ApplyError::Invalid(format!("failed to create typed live object ({}): {why}", identity(&stored))));
    }

    let manager = info.as_manager(Operation::Apply);
    let ignored = info.ignored();
    let previous = managed.0.get(&manager).cloned();
    let fields = walk::field_set(types, &applied).without_subtrees(&ignored);
    let time = previous.as_ref().and_then(|entry| entry.time.clone());
    managed.0.insert(manager.clone(), Entry { api_version: info.api_version.to_owned(), time, fields });

    let merged = walk::merge(types, Some(&stored), Some(&applied)).unwrap_or(Value::Null);
    let mut result = match &previous {
        Some(previous) => drop_omitted(types, &merged, &previous.fields, &managed),
        None => merged,
    };
    keep_reset_fields(&mut result, &stored, info);

    let changes = walk::compare(types, &stored, &result).without(&ignored);
    if !force {
        let tolerated = last_applied::tolerated(info.manager, &stored, types);
        refuse_conflicts(&managed, &changes, &manager, &tolerated)?;
    }
    release(&mut managed, &changes, Some(&manager));
    let changed = !same(&stored, &result);
    if !changed {
        // The stored spelling wins, so that a repeated apply is no change at all.
        result = stored;
    }
    if let Some(entry) = managed.0.get_mut(&manager) {
        entry.fields = entry.fields.difference(&NEVER_OWNED);
        if changed {
            entry.time = Some(info.time.to_owned());
        }
    }
    managed.0.retain(|_, entry| !entry.fields.is_empty());
    last_applied::sync(info.manager, &mut result, &applied);
    managed.write(&mut result);
    Ok(result)
}

fn prepared(applied: &Value) -> Result<Value, ApplyError> {
    refuse_deep(applied)?;
    let mut applied = applied.clone();
    canonical_numbers(&mut applied);
    // Go clients always send it, and mean nothing by it.
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if metadata.get("creationTimestamp").is_some_and(Value::is_null) {
            metadata.remove("creationTimestamp");
        }
    }
    Ok(applied)
}

fn refuse_deep(object: &Value) -> Result<(), ApplyError> {
    if too_deep(object) {
        return Err(ApplyError::Invalid("the object is nested too deeply".to_owned()));
    }
    Ok(())
}

/// `default/n1; kvm.cloud.sap/v1, Kind=Hypervisor`; the core group is written `/v1`.
fn identity(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    let (namespace, name, kind) = (text("/metadata/namespace"), text("/metadata/name"), text("/kind"));
    format!("{namespace}/{name}; {slash}{version}, Kind={kind}")
}

/// Removes what the manager applied before and no longer does, unless somebody else owns it.
fn drop_omitted(types: &TypeNode, merged: &Value, previous: &FieldSet, managed: &Managed) -> Value {
    let last = previous.with_named_fields(types);
    let everything = walk::field_set(types, merged).with_named_fields(types);
    let pruned = walk::remove(types, merged, &last);
    // Back comes what is owned, by others or by the new configuration ...
    let owned = managed.0.values().fold(FieldSet::default(), |all, entry| all.union(&entry.fields));
    let kept = walk::field_set(types, &pruned).with_named_fields(types).union(&owned.with_named_fields(types));
    let pruned = walk::remove(types, merged, &everything.difference(&kept));
    // ... and what nobody ever applied but sat inside something that was removed.
    let kept = walk::field_set(types, &pruned).with_named_fields(types);
    walk::remove(types, merged, &everything.difference(&kept).intersection(&last))
}

fn keep_reset_fields(result: &mut Value, stored: &Value, info: &WriteInfo<'_>) {
    let Some(object) = result.as_object_mut() else { return };
    for name in info.reset {
        match stored.get(*name) {
            Some(value) => object.insert((*name).to_owned(), value.clone()),
            None => object.remove(*name),
        };
    }
}

fn refuse_conflicts(
    managed: &Managed,
    changes: &Comparison,
    applier: &Manager,
    tolerated: &FieldSet,
) -> Result<(), ApplyError> {
    let taken = changes.taken().difference(tolerated);
    let others = managed.0.iter().filter(|(manager, _)| *manager != applier);
    let conflicts: Vec<(&Manager, FieldSet)> = others
        .map(|(manager, entry)| (manager, entry.fields.intersection(&taken)))
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    if conflicts.is_empty() { Ok(()) } else { Err(ApplyError::conflict(&conflicts)) }
}

/// Whether a write changes anything. Entries that differ only in their times do not count; then `new` becomes
/// equal to `old` and the answer is false.
pub fn settle(old: &Value, new: &mut Value) -> bool {
    fn without_times(object: &Value) -> (Value, Value) {
        let mut object = object.clone();
        let mut entries = managed::strip(&mut object);
        for entry in entries.as_array_mut().into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        (object, entries)
    }
    let ((old_object, old_entries), (new_object, new_entries)) = (without_times(old), without_times(new));
    // Times order the entries, so they are compared as a set.
    let equal = same(&old_object, &new_object) && {
        let (a, b) = (entries(&old_entries), entries(&new_entries));
        a.len() == b.len() && a.iter().all(|entry| b.contains(entry))
    };
    if equal {
        new.clone_from(old);
    }
    !equal
}

fn entries(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
