//! What one pass has seen.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node, policy::v1::PodDisruptionBudget};

use super::{Progress, acting};
use crate::{
    api::{
        Condition, Eviction, Hypervisor, HypervisorSpec, HypervisorStatus, Maintenance, OVSNode, condition_types,
        conditions, labels, reasons,
    },
    ids::{HostName, ProviderId, ServiceId},
    nova::{Aggregate, ComputeService, NovaHypervisor, Traits, view},
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
    /// What the API server says of a Node that is not among those we watch, where that was asked.
    pub absent_node: AbsentNode,
    /// The Hypervisor, if there is one.
    pub hypervisor: Option<Arc<Hypervisor>>,
    /// The Eviction of the host's name, if there is one.
    pub eviction: Option<Arc<Eviction>>,
    /// The region as the cloud tells it.
    pub cloud: CloudSeen,
    /// Whether the host's agent gives signs of life.
    pub agent: AgentSeen,
    /// Which agents' Pods run on the host, where that was asked.
    pub agent_pods: PodsSeen,
    /// What is known about the host's virtual switch.
    pub switch: SwitchSeen,
    /// What holds the Node back from Gardener.
    pub keeper: KeeperSeen,
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
            absent_node: AbsentNode::NotAsked,
            hypervisor: None,
            eviction: None,
            cloud: CloudSeen::NotConfigured,
            agent: AgentSeen::Unknown,
            agent_pods: PodsSeen::NotAsked,
            switch: SwitchSeen::NotYet,
            keeper: KeeperSeen::NotYet,
            owned: FieldSet::default(),
            owned_status: FieldSet::default(),
            outcomes: BTreeMap::new(),
        }
    }

    /// The wanted state as it was written, empty if there is no Hypervisor.
    pub fn spec(&self) -> HypervisorSpec {
        self.hypervisor.as_ref().map(|hypervisor| hypervisor.spec.clone()).unwrap_or_default()
    }

    /// The status as it was written, empty if there is none.
    pub fn status(&self) -> HypervisorStatus {
        self.hypervisor.as_ref().and_then(|hypervisor| hypervisor.status.clone()).unwrap_or_default()
    }

    fn written(&self) -> Option<&HypervisorStatus> {
        self.hypervisor.as_ref()?.status.as_ref()
    }

    /// The hypervisor's UUID in Nova, if it was recorded.
    pub fn provider_id(&self) -> Option<ProviderId> {
        self.written()?.hypervisor_id.as_deref().filter(|id| !id.is_empty()).map(ProviderId::from)
    }

    /// The compute service's UUID in Nova, if it was recorded.
    pub fn service_id(&self) -> Option<ServiceId> {
        self.written()?.service_id.as_deref().filter(|id| !id.is_empty()).map(ServiceId::from)
    }

    /// The region, if all of it was seen.
    pub fn region(&self) -> Option<&view::Snapshot> {
        match &self.cloud {
            CloudSeen::Known(region) if region.is_complete() => Some(region),
            _ => None,
        }
    }

    /// The names by which Nova may know this host, each in whole: its Node's, and the one its Node says it has in the
    /// network.
    pub fn names(&self) -> Vec<HostName> {
        let mut names = vec![HostName::new(&self.name)];
        let label = self
            .node_label(labels::HOSTNAME)
            .or_else(|| self.hypervisor.as_ref()?.metadata.labels.as_ref()?.get(labels::HOSTNAME).map(String::as_str));
        names.extend(label.filter(|label| *label != self.name).map(HostName::from));
        names
    }

    /// The hypervisor in Nova: the recorded one, or else the one of exactly this host.
    pub fn nova_hypervisor(&self) -> Option<&NovaHypervisor> {
        let region = self.region()?;
        match self.provider_id() {
            Some(id) => {
                let by_name = self.names().into_iter().find_map(|name| region.hypervisor_on(&name));
                by_name.filter(|hypervisor| hypervisor.id == id).or_else(|| region.hypervisor(&id))
            }
            None => self.names().into_iter().find_map(|name| region.hypervisor_on(&name)),
        }
    }

    /// Whether it matters which servers Nova has on the host: it is to be empty, to leave, or to be onboarded again.
    pub fn wants_servers(&self) -> bool {
        let maintenance =
            |one: &Arc<Hypervisor>| one.spec.maintenance.as_ref().is_some_and(|it| *it != Maintenance::Off);
        let aborted = self.condition(condition_types::ONBOARDING).is_some_and(|it| it.reason == reasons::ABORTED);
        let again = |one: &Arc<Hypervisor>| aborted && one.spec.lifecycle_enabled();
        self.is_leaving() || self.hypervisor.as_ref().is_some_and(|one| maintenance(one) || again(one))
    }

    /// The compute service in Nova: the recorded one, or else the one of exactly this host.
    pub fn service(&self) -> Option<&ComputeService> {
        let region = self.region()?;
        match self.service_id() {
            Some(id) => {
                let by_name = self.names().into_iter().find_map(|name| region.service_on(&name));
                by_name.filter(|service| service.id == id).or_else(|| region.service(&id))
            }
            None => self.names().into_iter().find_map(|name| region.service_on(&name)),
        }
    }

    /// The host's name in Nova: its service's, or else the object's.
    pub fn host(&self) -> HostName {
        self.service().map_or_else(|| HostName::new(&self.name), |service| service.host.clone())
    }

    /// The aggregates the host is in, by Nova.
    pub fn nova_aggregates(&self) -> Vec<&Aggregate> {
        let Some(region) = self.region() else { return Vec::new() };
        let host = self.host();
        region.aggregates.iter().flat_map(view::Listing::items).filter(|one| one.hosts.contains(&host)).collect()
    }

    /// The traits of the recorded provider, by Placement, if they were read yet.
    pub fn nova_traits(&self) -> Option<&Traits> {
        self.region()?.traits_of(&self.provider_id()?)
    }

    /// The availability zone of the host, by its labels.
    pub fn zone(&self) -> Option<&str> {
        self.node_label(labels::ZONE)
            .or_else(|| self.hypervisor.as_ref()?.metadata.labels.as_ref()?.get(labels::ZONE).map(String::as_str))
            .filter(|zone| !zone.is_empty())
    }

    /// Whether the Node has a taint with this key and effect.
    pub fn has_taint(&self, key: &str, effect: &str) -> bool {
        let taints = self.node.as_ref().and_then(|node| node.spec.as_ref()?.taints.as_ref());
        taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key && taint.effect == effect))
    }

    /// Whether the Hypervisor is kept from going by this operator.
    pub fn is_held(&self) -> bool {
        let finalizers = self.hypervisor.as_ref().and_then(|hypervisor| hypervisor.metadata.finalizers.as_ref());
        finalizers.is_some_and(|list| list.iter().any(|finalizer| finalizer == labels::FINALIZER))
    }

    /// Whether there is no Node of this name, which takes more than that we watch none: it may have lost its labels.
    pub fn is_node_gone(&self) -> bool {
        self.node.is_none() && self.absent_node == AbsentNode::Gone
    }

    /// Whether somebody wants the Hypervisor gone.
    pub fn is_leaving(&self) -> bool {
        self.hypervisor.as_ref().is_some_and(|hypervisor| hypervisor.metadata.deletion_timestamp.is_some())
    }

    /// Whether somebody else than this operator has written `HaEnabled`: then it is theirs.
    pub fn has_foreign_ha(&self) -> bool {
        // Who updates an item of ours does not become the owner of its key, so what it says counts too.
        self.condition(condition_types::HA_ENABLED).is_some_and(|condition| {
            condition.reason != reasons::NOT_CONFIGURED
                || !self.owned_status.item_keys("status.conditions", "type").contains(condition_types::HA_ENABLED)
        })
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

/// What is known about the cloud.
#[derive(Clone, Debug, Default)]
pub enum CloudSeen {
    /// The operator works without one.
    #[default]
    NotConfigured,
    /// This; parts of it may not have been seen yet, see [`Snapshot::region`].
    Known(Arc<view::Snapshot>),
}

/// What is known of a Node that is not among those we watch. They are chosen by labels, so it may have lost one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AbsentNode {
    /// Nobody needed to know.
    #[default]
    NotAsked,
    /// The API server did not answer; this is why.
    Failed(String),
    /// There is none.
    Gone,
    /// There is one, without the labels by which we would know it.
    Unlabelled {
        /// Whether it is on its way out.
        terminating: bool,
    },
}

/// Whether a host's agent gives signs of life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentSeen {
    /// There is none that does: it may be one that gives none.
    #[default]
    Unknown,
    /// It gave some before we looked, and may be about to give the next.
    NotYet,
    /// It does.
    Alive,
    /// It did, and has stopped.
    Silent,
}

/// Which Pods of agents run on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodsSeen {
    /// Nobody needed to know.
    #[default]
    NotAsked,
    /// The API server did not answer; this is why.
    Failed(String),
    /// These, each as `namespace/name`, ordered.
    Known(Vec<String>),
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

/// What is known about the objects that hold a Node back from Gardener.
#[derive(Clone, Debug, Default)]
pub enum KeeperSeen {
    /// Nothing yet, or there is one that cannot be read.
    #[default]
    NotYet,
    /// These.
    Known {
        /// The Deployment, if there is one.
        deployment: Option<Arc<Deployment>>,
        /// The budget of disruptions, if there is one.
        budget: Option<Arc<PodDisruptionBudget>>,
    },
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It goes on elsewhere, and waits for this.
    Underway(String),
    /// It failed, with the error's category and text.
    Failed {
        /// The error's bounded category.
        category: &'static str,
        /// The error's text with its causes.
        message: String,
    },
}

impl Outcome {
    /// From what an action answered.
    pub fn of(answer: &crate::Result<Progress>) -> Self {
        match answer {
            Ok(Progress::Done) => Self::Done,
            Ok(Progress::Underway(waits_for)) => Self::Underway(waits_for.clone()),
            Err(error) => Self::failed(error),
        }
    }

    /// From the error of an action.
    pub fn failed(error: &crate::Error) -> Self {
        Self::Failed { category: error.category(), message: acting::words(&Chain(error).to_string()) }
    }
}
