//! Stage `hypervisor`: a Hypervisor for every hypervisor Node, kept in step with it.
//!
//! One way, from the Node to the Hypervisor, and complete: what appears on the Node appears here, and what is taken
//! off the Node goes here too, unless somebody else has made the field theirs.
//!
//! `lifecycleEnabled` is always written at creation, because the CRD's default is `true`: leaving it out would onboard
//! every node. Later it and `skipTests` follow the Node's label while there is one, and go off again with it if they came
//! from it. Where a person manages a Hypervisor without the label, both are the person's.
//!
//! ```text
//!                       Node terminates                        Node comes back
//!   "", manual, auto ───────────────────▶ termination ─────────────────────────▶ termination: said, not taken back
//!   ha ── left to the owner of HA; when that ends, as above       (only `ha` may follow, by the rules of the CRD)
//! ```
//!
//! From `termination` on the API server refuses every change of the spec, so what is ours in it is applied as it is.

use std::net::IpAddr;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::OwnerReference};

use super::{Plan, Snapshot, Stage};
use crate::api::{Condition, ConditionStatus, Maintenance, condition_types, labels, reasons};

/// The finalizer of what is deleted after its dependents.
const FOREGROUND: &str = "foregroundDeletion";

/// Creates Hypervisors from Nodes and keeps labels, lifecycle, aggregates, traits, address and termination in step.
#[derive(Clone, Debug)]
pub struct HypervisorSync {
    /// Node labels that the Hypervisor carries too.
    pub transferred_labels: Vec<String>,
}

impl Default for HypervisorSync {
    fn default() -> Self {
        Self { transferred_labels: labels::TRANSFERRED.map(str::to_owned).into() }
    }
}

impl Stage for HypervisorSync {
    fn name(&self) -> &'static str {
        "hypervisor"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let Some(node) = &seen.node else {
            // Nothing to be in step with. The Hypervisor goes with its Node by its owner reference.
            return;
        };
        if seen.is_leaving() || is_of_a_past_node(seen, node) {
            // It goes, and is made anew if its Node stays.
            return;
        }
        if seen.hypervisor.is_none() {
            if is_collected(node) || is_terminating(node) && !is_announced(node) {
                // It was deleted with all that depends on it, and waits for that to be gone.
                return;
            }
            decide_new(plan);
        }
        decide_termination(seen, node, plan);
        plan.owner = owner(node);
        self.decide_labels(seen, plan);
        decide_lifecycle(seen, plan);
        decide_lists(seen, plan);
        decide_status(seen, node, plan);
    }
}

impl HypervisorSync {
    fn decide_labels(&self, seen: &Snapshot, plan: &mut Plan) {
        for key in &self.transferred_labels {
            match seen.node_label(key) {
                Some(value) => plan.label(key, value),
                None if seen.owned.contains(&["metadata", "labels", key]) => plan.drop_label(key),
                None => {}
            }
        }
    }
}

/// What is written once, when the Hypervisor is made, and left to its users from then on.
fn decide_new(plan: &mut Plan) {
    plan.create = true;
    plan.spec.high_availability = Some(true);
    plan.spec.install_certificate = Some(true);
    plan.spec.evacuate_on_reboot = Some(false);
}

/// A Node that goes takes its host out of service for good, whatever maintenance it is in; but for `ha`, whose owner is
/// at work.
fn decide_termination(seen: &Snapshot, node: &Node, plan: &mut Plan) {
    let settled = matches!(seen.spec().maintenance(), Maintenance::Termination | Maintenance::Ha);
    if !settled && is_announced(node) {
        plan.spec.maintenance = Some(Maintenance::Termination);
    }
}

/// Whether a Hypervisor that left service for good belongs to an earlier Node of this name. It is not given to the new
/// one: it is collected with its owner, and another is made.
fn is_of_a_past_node(seen: &Snapshot, node: &Node) -> bool {
    let Some(hypervisor) = &seen.hypervisor else { return false };
    let owners = hypervisor.metadata.owner_references.iter().flatten();
    let mut nodes = owners.filter(|owner| owner.kind == "Node").peekable();
    hypervisor.spec.maintenance() == &Maintenance::Termination
        && !is_terminating(node)
        && nodes.peek().is_some()
        && nodes.all(|owner| Some(&owner.uid) != node.metadata.uid.as_ref())
}

fn decide_lifecycle(seen: &Snapshot, plan: &mut Plan) {
    // A terminating spec is immutable but for the change to `ha`; writing what is there already is allowed.
    if seen.spec().maintenance() == &Maintenance::Termination {
        return;
    }
    let lifecycle = seen.node_label(labels::LIFECYCLE);
    let decided = |field: &str| lifecycle.is_some() || plan.create || seen.owned.contains(&["spec", field]);
    let (enabled, skipped) = (decided("lifecycleEnabled"), decided("skipTests"));
    plan.spec.lifecycle_enabled = enabled.then_some(lifecycle.is_some());
    plan.spec.skip_tests = skipped.then_some(lifecycle == Some(labels::SKIP_TESTS));
}

fn decide_lists(seen: &Snapshot, plan: &mut Plan) {
    if seen.spec().maintenance() == &Maintenance::Termination {
        return;
    }
    match seen.node_annotation(labels::AGGREGATES_ANNOTATION) {
        Some(text) => {
            let mut names = split(text);
            if let Some(zone) = seen.node_label(labels::ZONE) {
                push_new(&mut names, zone);
            }
            plan.spec.aggregates = Some(names);
        }
        None if seen.owned.contains(&["spec", "aggregates"]) => plan.release("aggregates"),
        None => {}
    }
    match seen.node_annotation(labels::CUSTOM_TRAITS_ANNOTATION) {
        Some(text) => plan.spec.custom_traits = Some(split(text)),
        None if seen.owned.contains(&["spec", "customTraits"]) => plan.release("customTraits"),
        None => {}
    }
}

fn decide_status(seen: &Snapshot, node: &Node, plan: &mut Plan) {
    let current = seen
        .hypervisor
        .as_ref()
        .and_then(|hypervisor| hypervisor.status.as_ref())
        .and_then(|status| status.internal_ip.as_deref());
    plan.status.internal_ip = internal_ip(node, current);
    if is_terminating(node) {
        plan.set(Condition::new(
            condition_types::TERMINATING,
            ConditionStatus::True,
            reasons::TERMINATING,
            "Node is terminating",
        ));
    } else if plan.condition(condition_types::TERMINATING).is_some() {
        // A Node of the same name that lives again: schedulers read a missing condition and `False` alike.
        let message = if seen.spec().maintenance() == &Maintenance::Termination {
            "Node is not terminating any more, but spec.maintenance=termination is for good. To bring the host back, \
             delete the Hypervisor: it is made anew"
        } else {
            "Node is not terminating"
        };
        plan.set(Condition::new(condition_types::TERMINATING, ConditionStatus::False, reasons::RUNNING, message));
    }
}

/// Comma-separated names, trimmed, without empty ones and repetitions, in the order of the text.
fn split(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        push_new(&mut names, name);
    }
    names
}

fn push_new(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

/// The Node as an owner: what belongs to it is garbage-collected with it.
pub(super) fn owner(node: &Node) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.metadata.name.clone()?,
        uid: node.metadata.uid.clone()?,
        block_owner_deletion: Some(true),
        controller: None,
    })
}

/// Whether the Node is on its way out, by Gardener's condition or by deletion.
pub(super) fn is_terminating(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some() || has_terminating_condition(node)
}

/// Whether somebody announced that the Node will go and waits for its host to be cleared: Gardener by its condition,
/// others by a finalizer. One that was merely deleted, with what depends on it, is nobody's wish for a drain.
fn is_announced(node: &Node) -> bool {
    const COLLECTORS: [&str; 2] = [FOREGROUND, "orphan"];
    let awaited = node.metadata.finalizers.iter().flatten().any(|finalizer| !COLLECTORS.contains(&finalizer.as_str()));
    node.metadata.deletion_timestamp.is_some() && awaited || has_terminating_condition(node)
}

/// Whether the Node was deleted and goes after all that depends on it.
fn is_collected(node: &Node) -> bool {
    node.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FOREGROUND)
}

fn has_terminating_condition(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| it.type_ == condition_types::TERMINATING && it.status == "True")
}

/// The internal address: the one we have, for as long as the Node has it too. A dual-stack Node lists two, and taking
/// the first that differs would swap them at every event.
fn internal_ip(node: &Node, current: Option<&str>) -> Option<String> {
    let addresses: Vec<&str> = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten())
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.as_str())
        .filter(|address| address.parse::<IpAddr>().is_ok())
        .collect();
    current.filter(|current| addresses.contains(current)).or(addresses.first().copied()).map(str::to_owned)
}
