//! What one pass has seen.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::{
    api::{Condition, Hypervisor, HypervisorSpec, OVSNode, conditions},
    runtime::{fields::FieldSet, shutdown::Chain},
};

/// Everything a [`Stage`](super::Stage) may base its decision on: objects as they were seen together, and the time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The name the Node and the Hypervisor share.
    pub name: String,
    /// The time of this pass.
    pub now: Timestamp,
    /// The Node, if there is one and it is a hypervisor.
    pub node: Option<Arc<Node>>,
    /// The Hypervisor, if there is one.
    pub hypervisor: Option<Arc<Hypervisor>>,
    /// What is known about the host's virtual switch.
    pub switch: SwitchSeen,
    /// The fields of the Hypervisor (outside of its status) that are ours.
    pub owned: FieldSet,
    /// The fields of its status that are ours.
    pub owned_status: FieldSet,
    /// What became of the actions taken so far in this pass, by [key](super::Action::key).
    pub outcomes: BTreeMap<String, Outcome>,
}

impl Snapshot {
    /// Nothing but a name and a time: where a pass starts, and a start for tests.
    pub fn new(name: impl Into<String>, now: Timestamp) -> Self {
        Self {
            name: name.into(),
            now,
            node: None,
            hypervisor: None,
            switch: SwitchSeen::NotYet,
            owned: FieldSet::default(),
            owned_status: FieldSet::default(),
            outcomes: BTreeMap::new(),
        }
    }

    /// The wanted state as it was written, empty if there is no Hypervisor.
    pub fn spec(&self) -> HypervisorSpec {
        self.hypervisor.as_ref().map(|hypervisor| hypervisor.spec.clone()).unwrap_or_default()
    }

    /// The conditions as they were written.
    pub fn conditions(&self) -> &[Condition] {
        self.hypervisor.as_ref().map_or(&[], |hypervisor| hypervisor.conditions())
    }

    /// The condition of that type, as it was written.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(self.conditions(), type_)
    }

    /// The value of a Node's label.
    pub fn node_label(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a Node's annotation.
    pub fn node_annotation(&self, key: &str) -> Option<&str> {
        self.node.as_ref()?.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// What is known about the virtual switch of a host.
#[derive(Clone, Debug, Default)]
pub enum SwitchSeen {
    /// Nothing yet.
    #[default]
    NotYet,
    /// The cluster has no OVSNodes at all.
    NotInstalled,
    /// This.
    Known {
        /// Its OVSNode, if it has one.
        node: Option<Arc<OVSNode>>,
        /// Whether the agent that writes it gives signs of life.
        fresh: bool,
    },
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It failed, with the error's category and text.
    Failed {
        /// The error's bounded category.
        category: &'static str,
        /// The error's text with its causes.
        message: String,
    },
}

impl Outcome {
    /// From the error of an action.
    pub fn failed(error: &crate::Error) -> Self {
        Self::Failed { category: error.category(), message: Chain(error).to_string() }
    }
}
