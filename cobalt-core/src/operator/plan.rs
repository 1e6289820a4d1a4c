//! What a pass wants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{Action, Snapshot};
use crate::api::{Condition, Hypervisor, HypervisorSpec, HypervisorStatus, conditions};

/// What the stages of one pass want of a Hypervisor.
///
/// It starts with nothing decided. Fields set here become ours; fields that are ours already and are not mentioned
/// stay as they are; a field we no longer want is [released](Plan::release).
#[derive(Debug)]
pub struct Plan {
    /// Make the Hypervisor if there is none. Without it, a pass over a missing Hypervisor writes nothing.
    pub create: bool,
    /// Fields of the spec to be ours. Leave everything else `None`.
    pub spec: HypervisorSpec,
    /// Fields of the status to be ours. Its conditions are not read; use [`Plan::set`].
    pub status: HypervisorStatus,
    /// The owner, if it is to be written.
    pub owner: Option<OwnerReference>,
    finalizer: Option<bool>,
    labels: BTreeMap<String, Option<String>>,
    released: BTreeSet<&'static str>,
    conditions: Vec<Condition>,
    decided: BTreeMap<String, bool>,
    /// Conditions that name the generation they were concluded from.
    of_generation: BTreeSet<String>,
    generation: Option<i64>,
    actions: BTreeMap<String, Arc<dyn Action>>,
    warnings: BTreeSet<String>,
    requeue: Option<Duration>,
    now: Timestamp,
    seen: HypervisorSpec,
}

impl Plan {
    /// An empty plan over what was seen.
    pub fn new(seen: &Snapshot) -> Self {
        Self {
            create: false,
            spec: HypervisorSpec::default(),
            status: HypervisorStatus::default(),
            owner: None,
            finalizer: None,
            labels: BTreeMap::new(),
            released: BTreeSet::new(),
            conditions: seen.conditions().to_vec(),
            decided: BTreeMap::new(),
            of_generation: BTreeSet::new(),
            generation: seen.hypervisor.as_ref().and_then(|hypervisor| hypervisor.metadata.generation),
            actions: BTreeMap::new(),
            warnings: BTreeSet::new(),
            requeue: None,
            now: seen.now,
            seen: seen.spec(),
        }
    }

    /// Sets a condition. Its transition time moves only if its status changes.
    pub fn set(&mut self, condition: Condition) {
        self.decided.insert(condition.type_.clone(), true);
        conditions::set_condition(&mut self.conditions, condition, self.now);
    }

    /// Sets a condition that says which generation of the spec it is about: the one this pass leaves behind.
    pub fn set_of_generation(&mut self, condition: Condition) {
        self.of_generation.insert(condition.type_.clone());
        let generation = self.generation;
        self.set(condition.observed(generation));
    }

    /// The spec was written and is of this generation now.
    pub(super) fn written_as(&mut self, generation: Option<i64>) {
        self.generation = generation;
        let of_generation = &self.of_generation;
        for condition in self.conditions.iter_mut().filter(|condition| of_generation.contains(&condition.type_)) {
            condition.observed_generation = generation;
        }
    }

    /// Removes a condition that is ours.
    pub fn remove(&mut self, type_: &str) {
        self.decided.insert(type_.to_owned(), false);
        conditions::remove(&mut self.conditions, type_);
    }

    /// The condition of that type, as decided so far or else as seen.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(&self.conditions, type_)
    }

    /// The conditions decided in this pass.
    pub fn decided(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter().filter(|condition| self.decided.get(&condition.type_) == Some(&true))
    }

    /// Whether a condition was removed in this pass.
    pub fn is_removed(&self, type_: &str) -> bool {
        self.decided.get(type_) == Some(&false)
    }

    /// Keeps the Hypervisor from going before it is let go (`true`), or lets it go (`false`).
    pub fn hold(&mut self, held: bool) {
        self.finalizer = Some(held);
    }

    /// Whether the Hypervisor is to be kept from going, if that was decided.
    pub fn held(&self) -> Option<bool> {
        self.finalizer
    }

    /// Makes a label ours, with this value.
    pub fn label(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.labels.insert(key.into(), Some(value.into()));
    }

    /// Drops a label that is ours.
    pub fn drop_label(&mut self, key: impl Into<String>) {
        self.labels.insert(key.into(), None);
    }

    /// Labels set (`Some`) and dropped (`None`) in this pass.
    pub fn labels(&self) -> &BTreeMap<String, Option<String>> {
        &self.labels
    }

    /// Lets go of a field of the spec, by its name on the wire. Whoever else owns it keeps it; if nobody does, the
    /// API server puts the default back.
    pub fn release(&mut self, spec_field: &'static str) {
        self.released.insert(spec_field);
    }

    /// Fields of the spec released in this pass.
    pub fn released(&self) -> &BTreeSet<&'static str> {
        &self.released
    }

    /// The spec as it will be: what was seen with what was decided on top.
    ///
    /// Later stages use it, so that a change and its consequences are one write.
    pub fn effective_spec(&self) -> HypervisorSpec {
        macro_rules! overlay {
            ($($field:ident),* $(,)?) => {
                HypervisorSpec {
                    $($field: self.spec.$field.clone().or_else(|| self.seen.$field.clone()),)*
                }
            };
        }
        overlay!(
            version,
            reboot,
            evacuate_on_reboot,
            lifecycle_enabled,
            skip_tests,
            custom_traits,
            aggregates,
            groups,
            allowed_projects,
            high_availability,
            create_cert_manager_certificate,
            install_certificate,
            maintenance,
            maintenance_reason,
            overcommit,
        )
    }

    /// Asks for an action. Asking twice for the same is asking once.
    pub fn act(&mut self, action: Arc<dyn Action>) {
        self.actions.entry(action.key()).or_insert(action);
    }

    /// The actions asked for, by key.
    pub fn actions(&self) -> &BTreeMap<String, Arc<dyn Action>> {
        &self.actions
    }

    /// Says what is wrong now and turns no condition, in words for people. It becomes one Event when it begins, and another
    /// one only if it was over in between.
    pub fn warn(&mut self, note: impl Into<String>) {
        self.warnings.insert(note.into());
    }

    /// What is wrong now and turns no condition.
    pub fn warnings(&self) -> &BTreeSet<String> {
        &self.warnings
    }

    /// Asks to be looked at again after this time at the latest.
    pub fn again_after(&mut self, delay: Duration) {
        self.requeue = Some(self.requeue.map_or(delay, |earlier| earlier.min(delay)));
    }

    /// When to look again, if nothing happens before.
    pub fn requeue(&self) -> Option<Duration> {
        self.requeue
    }

    /// The changes of conditions that people should hear of: those decided whose status or reason is new.
    pub fn transitions<'a>(&'a self, before: Option<&'a Hypervisor>) -> impl Iterator<Item = &'a Condition> {
        self.decided().filter(move |condition| {
            before
                .and_then(|hypervisor| hypervisor.condition(&condition.type_))
                .is_none_or(|old| old.status != condition.status || old.reason != condition.reason)
        })
    }
}
