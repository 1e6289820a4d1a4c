//! Stage `hypervisor`: a Hypervisor for every hypervisor Node, kept in step with it.
//!
//! One way, from the Node to the Hypervisor, and complete: what appears on the Node appears here, and what is taken
//! off the Node goes here too, unless somebody else has made the field theirs.
//!
//! `lifecycleEnabled` is always written, because the CRD's default is `true`: leaving it out would onboard every node.

use std::net::IpAddr;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::OwnerReference};

use super::{Plan, Snapshot, Stage};
use crate::api::{Condition, ConditionStatus, Maintenance, condition_types, labels, reasons};

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
        if seen.hypervisor.is_none() {
            decide_new(node, plan);
        }
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
fn decide_new(node: &Node, plan: &mut Plan) {
    plan.create = true;
    plan.spec.high_availability = Some(true);
    plan.spec.install_certificate = Some(true);
    plan.spec.evacuate_on_reboot = Some(false);
    if is_terminating(node) {
        plan.spec.maintenance = Some(Maintenance::Termination);
    }
}

fn decide_lifecycle(seen: &Snapshot, plan: &mut Plan) {
    // A terminating spec is immutable but for the change to `ha`; writing what is there already is allowed.
    if seen.spec().maintenance() == &Maintenance::Termination {
        return;
    }
    let lifecycle = seen.node_label(labels::LIFECYCLE);
    plan.spec.lifecycle_enabled = Some(lifecycle.is_some());
    plan.spec.skip_tests = Some(lifecycle == Some(labels::SKIP_TESTS));
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
        plan.set(Condition::new(
            condition_types::TERMINATING,
            ConditionStatus::False,
            reasons::RUNNING,
            "Node is not terminating",
        ));
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

/// The Node as an owner: the Hypervisor is garbage-collected with it.
fn owner(node: &Node) -> Option<OwnerReference> {
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
fn is_terminating(node: &Node) -> bool {
    node.metadata.deletion_timestamp.is_some()
        || node
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .is_some_and(|list| list.iter().any(|c| c.type_ == condition_types::TERMINATING && c.status == "True"))
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
