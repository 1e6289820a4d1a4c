//! What a commit means for the background controllers: garbage collection, namespaces, definitions.

use std::collections::VecDeque;

use super::{Contents, Key, Object, Store};

/// Bucket and key of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectRef {
    pub(crate) bucket: String,
    pub(crate) key: Key,
}

impl ObjectRef {
    pub(crate) fn new(bucket: impl Into<String>, key: Key) -> Self {
        Self { bucket: bucket.into(), key }
    }

    /// Whether this object can own one in a namespace: an owner in another namespace is no owner.
    pub(crate) fn may_own_in(&self, namespace: &str) -> bool {
        self.key.namespace.is_empty() || self.key.namespace == namespace
    }
}

/// A thing to look at again. Each item says where, never what: the worker reads the present state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// An object whose owners may be gone.
    Dependent(ObjectRef),
    /// A terminating object that waits for its dependents (`foregroundDeletion`, `orphan`).
    Owner(ObjectRef),
    /// A terminating namespace.
    Namespace(String),
    /// A new, changed or terminating definition.
    Definition(String),
    /// A node whose taints may have to change.
    Node(String),
    /// An admission policy that may have to say that it was looked at.
    Policy(String),
    /// A namespace that may lack its default objects.
    Home(String),
    /// A namespace whose disruption budgets must be counted again.
    Budgets(String),
}

pub(crate) const NAMESPACES: &str = "namespaces";
pub(crate) const NODES: &str = "nodes";
pub(crate) const PODS: &str = "pods";
pub(crate) const BUDGETS: &str = "poddisruptionbudgets.policy";
pub(crate) const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Contents {
    /// Keeps the uid and owner indexes in step with a change.
    pub(super) fn index(&mut self, at: &ObjectRef, old: Option<&Object>, new: Option<&Object>) {
        if let Some(old) = old {
            for owner in old.owner_uids() {
                if let Some(set) = self.dependents.get_mut(owner) {
                    set.remove(at);
                    if set.is_empty() {
                        self.dependents.remove(owner);
                    }
                }
            }
            if new.is_none_or(|new| new.uid() != old.uid()) {
                self.uids.remove(old.uid());
            }
        }
        if let Some(new) = new {
            for owner in new.owner_uids() {
                let set = self.dependents.entry(owner.to_owned()).or_default();
                set.insert(at.clone());
            }
            if !new.uid().is_empty() {
                self.uids.insert(new.uid().to_owned(), at.clone());
            }
        }
    }

    /// Queues what follows from a change; tells whether there is anything.
    pub(super) fn plan(&mut self, at: &ObjectRef, new: Option<&Object>, old: Option<&Object>) -> bool {
        let before = self.work.len();
        self.plan_budgets(at);
        match (new, old) {
            (Some(new), _) => self.plan_for_present(at, new),
            (None, Some(old)) => self.plan_for_removed(at, old),
            (None, None) => {}
        }
        self.work.len() > before
    }

    fn plan_budgets(&mut self, at: &ObjectRef) {
        let namespace = &at.key.namespace;
        let counts = at.bucket == BUDGETS
            || (at.bucket == PODS
                && self.buckets.get(BUDGETS).is_some_and(|budgets| budgets.range(Some(namespace)).next().is_some()));
        if counts {
            self.enqueue(Work::Budgets(namespace.clone()));
        }
    }

    fn plan_for_present(&mut self, at: &ObjectRef, object: &Object) {
        let owned = |uid| self.uids.get(uid).is_some_and(|owner| owner.may_own_in(&at.key.namespace));
        if !object.owner_uids().all(owned) {
            self.enqueue(Work::Dependent(at.clone()));
        }
        if object.is_terminating() {
            let finalizers = object.finalizers();
            if finalizers.contains(&"foregroundDeletion") || finalizers.contains(&"orphan") {
                self.enqueue(Work::Owner(at.clone()));
            }
        }
        match at.bucket.as_str() {
            DEFINITIONS => self.enqueue(Work::Definition(at.key.name.clone())),
            NAMESPACES if object.is_terminating() => {
                self.enqueue(Work::Namespace(at.key.name.clone()));
            }
            NAMESPACES => self.enqueue(Work::Home(at.key.name.clone())),
            NODES => self.enqueue(Work::Node(at.key.name.clone())),
            POLICIES => self.enqueue(Work::Policy(at.key.name.clone())),
            _ => {}
        }
        // A dependent that no longer blocks its owner.
        self.wake_waiting_owners(object);
    }

    fn plan_for_removed(&mut self, at: &ObjectRef, object: &Object) {
        let dependents = self.dependents.get(object.uid());
        for dependent in dependents.into_iter().flatten().cloned().collect::<Vec<_>>() {
            self.enqueue(Work::Dependent(dependent));
        }
        self.wake_waiting_owners(object);
        if at.bucket == "serviceaccounts" {
            self.enqueue(Work::Home(at.key.namespace.clone()));
        }
        if !at.key.namespace.is_empty() {
            let key = Key::new("", &*at.key.namespace);
            let namespace = self.buckets.get(NAMESPACES).and_then(|b| b.objects.get(&key));
            if namespace.is_some_and(|n| n.is_terminating()) {
                self.enqueue(Work::Namespace(key.name));
            }
        }
        let definition = Key::new("", &*at.bucket);
        let found = self.buckets.get(DEFINITIONS);
        let found = found.and_then(|b| b.objects.get(&definition));
        if at.bucket == DEFINITIONS || found.is_some_and(|d| d.is_terminating()) {
            let name = if at.bucket == DEFINITIONS { at.key.name.clone() } else { definition.name };
            self.enqueue(Work::Definition(name));
        }
    }

    fn wake_waiting_owners(&mut self, dependent: &Object) {
        let mut waiting = Vec::new();
        for owner in dependent.owner_uids() {
            let Some(at) = self.uids.get(owner) else {
                continue;
            };
            let object = self.buckets.get(&at.bucket);
            let object = object.and_then(|b| b.objects.get(&at.key));
            if object.is_some_and(|o| o.is_terminating() && !o.finalizers().is_empty()) {
                waiting.push(Work::Owner(at.clone()));
            }
        }
        for work in waiting {
            self.enqueue(work);
        }
    }

    fn enqueue(&mut self, work: Work) {
        if self.queued.insert(work.clone()) {
            self.work.push_back(work);
        }
    }
}

impl Store {
    /// Everything there is to do now. The caller reports with [`Store::work_done`].
    pub(crate) fn take_work(&self) -> VecDeque<Work> {
        let mut state = self.lock();
        let work = std::mem::take(&mut state.work);
        state.queued.clear();
        state.busy += work.len();
        work
    }

    pub(crate) fn work_done(&self, count: usize) {
        let mut state = self.lock();
        state.busy = state.busy.saturating_sub(count);
        if state.busy == 0 && state.work.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// Whether nothing is queued or being worked on.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.busy == 0 && state.work.is_empty()
    }
}
