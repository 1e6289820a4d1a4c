//! Stage `gardener`: what holds a Node back from Gardener.
//!
//! Gardener's machine controller waits for two things that it knows from any cluster: a Node counts as not ready until its
//! critical components are, and a drain waits for budgets of disruptions. One Pod per Node says both for us:
//!
//! ```text
//!                      Deployment maint-<node>             budget maint-<node>
//!   onboarding runs    1 replica, never ready              at least 1
//!   onboarded          1 replica, ready                    at least 1     no drain gets past it
//!   offboarded         no replica                          at least 0     the machine may go
//! ```
//!
//! An offboarded host of a Node that is to go also waits until nobody would evacuate it any more (`HaEnabled` is not
//! true), where somebody owns that, and no longer than [`GardenerSettings::ha_timeout`].
//!
//! The objects belong to the Node and go with it. They are written when they are not as wanted, and at no other time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clap::{ArgAction, Args as ClapArgs};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Node, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Action, FIELD_MANAGER, Ha, HaGate, KeeperSeen, Outcome, Plan, Progress, Snapshot, Stage, ha_gate, hypervisor,
    kubernetes,
};
use crate::{
    Result,
    api::{Condition, condition_types, labels},
    runtime::{
        args::duration,
        fields::{Rule, Shape, matches},
    },
};

/// What the objects are called, before the name of the Node.
pub(super) const PREFIX: &str = "maint-";

/// The longest value of a label.
const LONGEST: usize = 63;

const HEADING: &str = "Gardener";

/// How it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GardenerSettings {
    /// Where the objects are.
    pub namespace: String,
    /// What the Pods run; it needs `sh`, `sleep` and `/bin/true`.
    pub image: String,
    /// How long `HaEnabled` is waited for, from the end of offboarding.
    pub ha_timeout: Duration,
}

impl Default for GardenerSettings {
    fn default() -> Self {
        Self {
            namespace: labels::MAINTENANCE_NAMESPACE.to_owned(),
            image: "keppel.global.cloud.sap/ccloud-dockerhub-mirror/library/busybox:latest".to_owned(),
            ha_timeout: Duration::from_secs(15 * 60),
        }
    }
}

/// Whether there is a Gardener, and what holds Nodes back from it.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct GardenerArgs {
    /// Hold Nodes back from Gardener until they are onboarded, and again until they are offboarded
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", help_heading = HEADING)]
    pub gardener: bool,

    /// Namespace of the Deployments and budgets that do so
    #[arg(long, default_value = labels::MAINTENANCE_NAMESPACE, value_name = "NAMESPACE", help_heading = HEADING)]
    pub gardener_namespace: String,

    /// Image of their Pods, with `sh`, `sleep` and `/bin/true` in it
    #[arg(long, default_value_t = GardenerSettings::default().image, value_name = "IMAGE", help_heading = HEADING)]
    pub gardener_image: String,

    /// How long an offboarded host waits for its owner to turn HaEnabled off
    #[arg(long, default_value = "15m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub gardener_ha_timeout: Duration,
}

impl GardenerArgs {
    /// What they say; `None` if there is no Gardener.
    pub fn settings(&self) -> Option<GardenerSettings> {
        self.gardener.then(|| GardenerSettings {
            namespace: self.gardener_namespace.clone(),
            image: self.gardener_image.clone(),
            ha_timeout: self.gardener_ha_timeout,
        })
    }
}

/// Keeps one Deployment and one budget per Node.
#[derive(Clone)]
pub struct Gardener {
    client: Client,
    settings: GardenerSettings,
    ha: Ha,
}

impl std::fmt::Debug for Gardener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gardener").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Gardener {
    /// In this cluster, where that is who owns `HaEnabled`.
    pub fn new(client: Client, settings: GardenerSettings, ha: Ha) -> Self {
        Self { client, settings, ha }
    }

    /// Whether the machine may go, as far as we are concerned.
    fn releases(&self, seen: &Snapshot, plan: &mut Plan) -> bool {
        let Some(offboarded) = plan.condition(condition_types::OFFBOARDED).filter(|condition| condition.is_true())
        else {
            return false;
        };
        let terminating = plan.condition(condition_types::TERMINATING).is_some_and(Condition::is_true);
        let deleted = seen.node.as_ref().is_some_and(|node| node.metadata.deletion_timestamp.is_some());
        if !(terminating || deleted) || self.nobody_would_evacuate(seen, plan) {
            return true;
        }
        let since = offboarded.last_transition_time.as_ref().map_or(seen.now, |time| time.0);
        let waited = Duration::try_from(seen.now.duration_since(since)).unwrap_or_default();
        match self.settings.ha_timeout.checked_sub(waited).filter(|left| !left.is_zero()) {
            None => true,
            Some(left) => {
                plan.again_after(left);
                false
            }
        }
    }

    fn nobody_would_evacuate(&self, seen: &Snapshot, plan: &Plan) -> bool {
        matches!(ha_gate(seen, plan, &self.ha), HaGate::NotWaitedFor | HaGate::Disabled)
    }
}

impl Stage for Gardener {
    fn name(&self) -> &'static str {
        "gardener"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let (Some(node), Some(_)) = (&seen.node, &seen.hypervisor) else { return };
        if seen.is_leaving() || !plan.effective_spec().lifecycle_enabled() {
            return;
        }
        let Some(owner) = owner(node) else { return };
        let KeeperSeen::Known { deployment, budget } = &seen.keeper else { return };
        let onboarded = plan.condition(condition_types::ONBOARDING).is_some_and(Condition::is_false);
        let released = self.releases(seen, plan);
        let hostname = seen.node_label(labels::HOSTNAME).unwrap_or(&seen.name);
        let wanted = Wanted { node: &seen.name, hostname, owner, settings: &self.settings, onboarded, released };
        // The budget first: while there is none, a drain is not held back by it.
        let budget = self.apply::<PodDisruptionBudget>(seen, budget.as_deref(), wanted.budget(), "1");
        let deployment = self.apply::<Deployment>(seen, deployment.as_deref(), wanted.deployment(), "2");
        for apply in [budget, deployment].into_iter().flatten() {
            if let Some(Outcome::Failed { message, .. }) = seen.outcomes.get(&apply.key()) {
                // No condition is about these objects.
                plan.warn(message.clone());
            }
            plan.act(apply);
        }
    }
}

impl Gardener {
    /// The action that makes an object what it should be, if it is not.
    fn apply<K>(&self, seen: &Snapshot, observed: Option<&K>, wanted: Value, order: &str) -> Option<Arc<dyn Action>>
    where
        K: Resource<DynamicType = ()> + Serialize + Keeper,
    {
        if observed.is_some_and(|observed| is_as_wanted(observed, &wanted)) {
            return None;
        }
        Some(Arc::new(ApplyKeeper {
            client: self.client.clone(),
            namespace: self.settings.namespace.clone(),
            node: seen.name.clone(),
            order: order.to_owned(),
            verb: if observed.is_some() { "change" } else { "create" },
            body: wanted,
            kind: K::KIND,
        }))
    }
}

/// Whether an object has all that is wanted of it, and has it from us.
fn is_as_wanted<K: Resource<DynamicType = ()> + Serialize>(observed: &K, wanted: &Value) -> bool {
    let ours = observed
        .managed_fields()
        .iter()
        .any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.operation.as_deref() == Some("Apply"));
    let value = serde_json::to_value(observed).unwrap_or_default();
    ours && matches(wanted, &value, &shape())
}

fn shape() -> Shape {
    Shape::default()
        .with("spec.template.spec.containers", Rule::Map(vec!["name".into()]))
        .with("spec.selector", Rule::Atomic)
        .with("spec.template.spec.nodeSelector", Rule::Atomic)
}

/// The name of a Node's objects, which is also the value of their label. A name that is too long for that is cut and
/// told apart by a number made of the whole.
pub(super) fn keeper_name(node: &str) -> String {
    let name = format!("{PREFIX}{node}");
    if name.len() <= LONGEST {
        return name;
    }
    // FNV-1a: it must be the same for ever, and nobody attacks their own Nodes' names.
    let hash = node
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let kept: String = name.chars().take(LONGEST - 17).collect();
    format!("{kept}-{hash:016x}")
}

/// The Node as an owner that does not wait for what it owns.
fn owner(node: &Node) -> Option<OwnerReference> {
    Some(OwnerReference { block_owner_deletion: None, ..hypervisor::owner(node)? })
}

/// What is wanted for one Node.
struct Wanted<'a> {
    node: &'a str,
    hostname: &'a str,
    owner: OwnerReference,
    settings: &'a GardenerSettings,
    onboarded: bool,
    released: bool,
}

impl Wanted<'_> {
    fn metadata(&self) -> Value {
        let name = keeper_name(self.node);
        json!({
            "name": name,
            "namespace": self.settings.namespace,
            "labels": {labels::MAINTENANCE_CONTROLLER: name},
            "ownerReferences": [self.owner],
        })
    }

    fn count(&self) -> u8 {
        u8::from(!self.released)
    }

    fn budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": self.metadata(),
            "spec": {
                "minAvailable": self.count(),
                "selector": {"matchLabels": {labels::MAINTENANCE_CONTROLLER: keeper_name(self.node)}},
            },
        })
    }

    fn deployment(&self) -> Value {
        let name = keeper_name(self.node);
        let probe = if self.onboarded { "/bin/true" } else { "/bin/false" };
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(),
            "spec": {
                "replicas": self.count(),
                "selector": {"matchLabels": {labels::MAINTENANCE_CONTROLLER: name}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                "template": {
                    "metadata": {
                        "labels": {labels::MAINTENANCE_CONTROLLER: name, labels::CRITICAL_COMPONENT: "true"},
                    },
                    "spec": {
                        "hostNetwork": true,
                        "nodeSelector": {labels::HOSTNAME: self.hostname},
                        "terminationGracePeriodSeconds": 1,
                        "tolerations": [
                            {"effect": "NoExecute", "operator": "Exists"},
                            {"effect": "NoSchedule", "operator": "Exists"},
                        ],
                        "containers": [{
                            "name": "sleep",
                            "image": self.settings.image,
                            "command": ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
                            "startupProbe": {
                                "exec": {"command": [probe]},
                                "periodSeconds": 1,
                                "successThreshold": 1,
                                "failureThreshold": 1,
                            },
                        }],
                    },
                },
            },
        })
    }
}

/// A kind of object that holds a Node back.
trait Keeper {
    const KIND: Kind;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deployment,
    Budget,
}

impl Keeper for Deployment {
    const KIND: Kind = Kind::Deployment;
}

impl Keeper for PodDisruptionBudget {
    const KIND: Kind = Kind::Budget;
}

/// Applies one of the two.
struct ApplyKeeper {
    client: Client,
    namespace: String,
    node: String,
    order: String,
    verb: &'static str,
    body: Value,
    kind: Kind,
}

impl std::fmt::Debug for ApplyKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplyKeeper").field("kind", &self.kind).field("body", &self.body).finish_non_exhaustive()
    }
}

impl ApplyKeeper {
    fn what(&self) -> &'static str {
        match self.kind {
            Kind::Deployment => "Deployment",
            Kind::Budget => "PodDisruptionBudget",
        }
    }
}

#[async_trait]
impl Action for ApplyKeeper {
    fn key(&self) -> String {
        format!("gardener {} {}", self.order, self.what())
    }

    fn describe(&self) -> String {
        let (name, namespace) = (keeper_name(&self.node), &self.namespace);
        let count = match self.kind {
            Kind::Deployment => format!("replicas {}", self.body["spec"]["replicas"]),
            Kind::Budget => format!("minAvailable {}", self.body["spec"]["minAvailable"]),
        };
        format!("{} the {} {namespace}/{name} with {count}", self.verb, self.what())
    }

    /// A machine that is let go does not come back.
    fn is_irreversible(&self) -> bool {
        self.body["spec"]["replicas"] == 0 || self.body["spec"]["minAvailable"] == 0
    }

    async fn run(&self) -> Result<Progress> {
        let (name, params) = (keeper_name(&self.node), PatchParams::apply(FIELD_MANAGER).force());
        let patch = Patch::Apply(&self.body);
        let applied = match self.kind {
            Kind::Deployment => {
                let api: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
                api.patch(&name, &params, &patch).await.map(drop)
            }
            Kind::Budget => {
                let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
                api.patch(&name, &params, &patch).await.map(drop)
            }
        };
        let operation = || format!("apply the {} {}/{name}", self.what(), self.namespace);
        applied.map(|()| Progress::Done).map_err(|cause| kubernetes::failed(operation(), cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_too_long_for_a_label_is_cut_and_stays_unique() {
        assert_eq!(keeper_name("node-1"), "maint-node-1");
        let long = |last: char| format!("{}{last}", "n".repeat(80));
        let (one, other) = (keeper_name(&long('a')), keeper_name(&long('b')));
        assert_eq!((one.len(), other.len()), (LONGEST, LONGEST));
        assert_ne!(one, other);
    }
}
