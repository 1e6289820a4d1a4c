//! Stage `agent-pods`: the agents of an empty host are sent away, and looked for until they are gone.
//!
//! ```text
//!   termination, and the host is empty ──▶ taint the Node: kvm.cloud.sap/offboarding, NoExecute
//!        │ tainted                           └─ refused ──▶ Unknown, Failed
//!        ▼
//!   list the Pods on the Node, in the namespaces of the agents, at an interval
//!        ├─ some are left ────────────▶ False, AgentPodsRunning
//!        ├─ none, but not all told ───▶ Unknown, Failed             the host stays in Nova until we know
//!        └─ none ─────────────────────▶ True, NoAgentPods
//! ```
//!
//! A Pod that tolerates the taint for ever belongs to the Node and not to the host's service; one that has ended is no
//! agent any more; one that is being deleted still is.
//!
//! The taint is set whether or not there is a Gardener: it is what makes nova-compute and its like leave. It is set on a
//! deleted Node too: whoever holds that with a finalizer waits for the host to be offboarded, and offboarding waits for the
//! agents. The taints of a Node are one list that is replaced as a whole, so it is changed by a patch that tests what it
//! was.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Action, FIELD_MANAGER, Outcome, Plan, PodsSeen, Progress, Snapshot, Stage, acting, kubernetes};
use crate::{
    Error, Result,
    api::{Condition, ConditionStatus, Maintenance, condition_types, labels, reasons},
    runtime::{api_category, shutdown::Chain},
};

const EFFECT: &str = "NoExecute";

/// How many Pods are asked for at once.
const PAGE: u32 = 100;
/// More than any Node can hold.
const MAX_PAGES: usize = 50;
/// How many names are in a message; the rest is counted.
const NAMED: usize = 20;
/// How often to look again when somebody else changes the taints of the same Node.
const ATTEMPTS: usize = 4;

/// How agents are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPodsSettings {
    /// Pause between two looks.
    pub interval: Duration,
}

impl Default for AgentPodsSettings {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10) }
    }
}

/// Taints Nodes that are to lose their agents, and computes `AgentPodsEvicted`.
#[derive(Clone)]
pub struct AgentPods {
    client: Client,
    settings: AgentPodsSettings,
}

impl std::fmt::Debug for AgentPods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentPods").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl AgentPods {
    /// In this cluster.
    pub fn new(client: Client, settings: AgentPodsSettings) -> Self {
        Self { client, settings }
    }
}

impl Stage for AgentPods {
    fn name(&self) -> &'static str {
        "agent-pods"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let (Some(_), Some(_)) = (&seen.node, &seen.hypervisor) else { return };
        let spec = plan.effective_spec();
        let empty = plan.condition(condition_types::EVICTING).is_some_and(Condition::is_false);
        if is_let_go(seen) || spec.maintenance() != &Maintenance::Termination || !empty {
            return;
        }
        if !seen.has_taint(labels::OFFBOARDING_TAINT, EFFECT) {
            if spec.lifecycle_enabled() {
                self.taint(seen, plan);
            }
            return;
        }
        let (status, reason, message) = match &seen.agent_pods {
            PodsSeen::NotAsked => return,
            PodsSeen::Failed(why) => {
                (ConditionStatus::Unknown, reasons::FAILED, format!("Pods on this node could not be listed: {why}"))
            }
            PodsSeen::Known(pods) if pods.is_empty() => {
                (ConditionStatus::True, reasons::NO_AGENT_PODS, "No agent pods are running on this node".to_owned())
            }
            PodsSeen::Known(pods) => (ConditionStatus::False, reasons::AGENT_PODS_RUNNING, running(pods)),
        };
        if status != ConditionStatus::True {
            plan.again_after(self.settings.interval);
        }
        plan.set(Condition::new(condition_types::AGENT_PODS_EVICTED, status, reason, message));
    }
}

impl AgentPods {
    fn taint(&self, seen: &Snapshot, plan: &mut Plan) {
        let taint = TaintNode { client: self.client.clone(), node: seen.name.clone() };
        if let Some(Outcome::Failed { message, .. }) = acting::want(seen, plan, Arc::new(taint)) {
            let message = format!("The agents cannot be sent away: {message}");
            let (type_, status) = (condition_types::AGENT_PODS_EVICTED, ConditionStatus::Unknown);
            plan.set(Condition::new(type_, status, reasons::FAILED, message));
        }
    }
}

/// Whether a Hypervisor was deleted and nobody waits for its host: one that terminates is brought to its end all the same.
fn is_let_go(seen: &Snapshot) -> bool {
    seen.is_leaving() && !seen.is_held()
}

fn running(pods: &[String]) -> String {
    let named = pods[..pods.len().min(NAMED)].join(", ");
    let more = match pods.len() - pods.len().min(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} agent pod(s) still running on node: {named}{more}", pods.len())
}

/// Whether a pass needs to know which agents are left.
pub(super) fn is_asked(seen: &Snapshot) -> bool {
    let holds = |type_, status| seen.condition(type_).is_some_and(|condition| condition.status == status);
    !is_let_go(seen)
        && seen.spec().maintenance() == &Maintenance::Termination
        && holds(condition_types::EVICTING, ConditionStatus::False)
        && !holds(condition_types::OFFBOARDED, ConditionStatus::True)
        && seen.has_taint(labels::OFFBOARDING_TAINT, EFFECT)
}

/// The agents on a Node. Those that were found count, even where not everybody could be asked; that there is none is
/// known only if everybody has answered.
pub(super) async fn look(client: &Client, namespaces: &[String], node: &str) -> PodsSeen {
    let mut found = Vec::new();
    let mut trouble = None;
    for namespace in namespaces {
        if let Err(error) = look_in(client, namespace, node, &mut found).await {
            tracing::warn!(node, namespace, error = %Chain(&error), "agents could not be listed");
            trouble.get_or_insert_with(|| format!("namespace {namespace}: {}", api_category(&error)));
        }
    }
    found.sort();
    match trouble {
        Some(why) if found.is_empty() => PodsSeen::Failed(why),
        _ => PodsSeen::Known(found),
    }
}

async fn look_in(client: &Client, namespace: &str, node: &str, found: &mut Vec<String>) -> Result<(), kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE);
    for _ in 0..MAX_PAGES {
        let page = api.list(&params).await?;
        let names = page.items.iter().filter(|pod| is_agent(pod)).filter_map(|pod| pod.metadata.name.as_deref());
        found.extend(names.map(|name| format!("{namespace}/{name}")));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    Ok(())
}

/// Whether a Pod must be gone before its host is taken out of Nova.
fn is_agent(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    !matches!(phase, Some("Succeeded" | "Failed")) && !tolerations.into_iter().any(tolerates_for_ever)
}

fn tolerates_for_ever(toleration: &Toleration) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let same_key = match toleration.operator.as_deref() {
        // Without a key it is about all taints.
        Some("Exists") => key.is_empty() || key == labels::OFFBOARDING_TAINT,
        // The taint has no value.
        None | Some("" | "Equal") => {
            key == labels::OFFBOARDING_TAINT && toleration.value.as_deref().unwrap_or_default().is_empty()
        }
        Some(_) => false,
    };
    same_key && (effect.is_empty() || effect == EFFECT) && toleration.toleration_seconds.is_none()
}

/// Puts the taint on a Node.
struct TaintNode {
    client: Client,
    node: String,
}

impl std::fmt::Debug for TaintNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaintNode").field("node", &self.node).finish_non_exhaustive()
    }
}

impl TaintNode {
    /// The change of a Node as it is now; none if it has the taint.
    fn patch(node: &Node) -> Option<Value> {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        if taints.iter().any(|taint| taint.key == labels::OFFBOARDING_TAINT && taint.effect == EFFECT) {
            return None;
        }
        let taint = json!({"key": labels::OFFBOARDING_TAINT, "effect": EFFECT});
        Some(if taints.is_empty() {
            // There is no list to be tested, so the object as a whole is.
            json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": node.metadata.resource_version},
                {"op": "add", "path": "/spec/taints", "value": [taint]},
            ])
        } else {
            json!([
                {"op": "test", "path": "/spec/taints", "value": taints},
                {"op": "add", "path": "/spec/taints/-", "value": taint},
            ])
        })
    }
}

#[async_trait]
impl Action for TaintNode {
    fn key(&self) -> String {
        format!("taint node {}", self.node)
    }

    fn describe(&self) -> String {
        format!("taint the Node {} with {}:{EFFECT}, so that its agents leave", self.node, labels::OFFBOARDING_TAINT)
    }

    async fn run(&self) -> Result<Progress> {
        let api: Api<Node> = Api::all(self.client.clone());
        let failed = |cause| kubernetes::failed(self.key(), cause);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        for _ in 0..ATTEMPTS {
            let node = api.get(&self.node).await.map_err(failed)?;
            let Some(patch) = Self::patch(&node) else { return Ok(Progress::Done) };
            let patch: json_patch::Patch =
                serde_json::from_value(patch).map_err(|error| Error::malformed(self.key(), error.to_string()))?;
            match api.patch(&self.node, &params, &Patch::<()>::Json(patch)).await {
                Ok(_) => return Ok(Progress::Done),
                // A failed test is 422: somebody else was faster, so look again.
                Err(error) if matches!(api_category(&error), "invalid" | "conflict") => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Error::conflict(self.key(), "its taints change all the time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tolerating(toleration: Value) -> Toleration {
        serde_json::from_value(toleration).unwrap_or_default()
    }

    #[test]
    fn only_a_toleration_of_this_taint_without_an_end_is_one_for_ever() {
        let key = labels::OFFBOARDING_TAINT;
        for (toleration, for_ever) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), true),
            (json!({"key": key, "operator": "Exists"}), true),
            (json!({"key": key}), true),
            (json!({"key": key, "operator": "Equal", "value": ""}), true),
            (json!({"operator": "Exists", "effect": "NoSchedule"}), false),
            (json!({"operator": "Exists", "tolerationSeconds": 300}), false),
            (json!({"key": key, "operator": "Exists", "tolerationSeconds": 0}), false),
            (json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}), false),
            (json!({"key": key, "value": "other"}), false),
            (json!({}), false),
        ] {
            assert_eq!(tolerates_for_ever(&tolerating(toleration.clone())), for_ever, "{toleration}");
        }
    }

    #[test]
    fn a_pod_that_ended_is_no_agent_and_one_being_deleted_is() {
        let pod = |pod: Value| serde_json::from_value::<Pod>(pod).unwrap_or_default();
        assert!(is_agent(&pod(json!({"status": {"phase": "Running"}}))));
        assert!(is_agent(&pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))));
        assert!(!is_agent(&pod(json!({"status": {"phase": "Succeeded"}}))));
        assert!(!is_agent(&pod(json!({"status": {"phase": "Failed"}}))));
        assert!(!is_agent(&pod(json!({"spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}}))));
    }

    #[test]
    fn a_long_list_of_pods_is_cut() {
        let pods: Vec<String> = (0..23).map(|n| format!("ns/p{n:02}")).collect();
        let text = running(&pods);
        assert!(text.starts_with("23 agent pod(s) still running on node: ns/p00, ns/p01, "), "{text}");
        assert!(text.ends_with("ns/p19 and 3 more"), "{text}");
        assert_eq!(running(&pods[..1]), "1 agent pod(s) still running on node: ns/p00");
    }

    #[test]
    fn the_taints_of_others_are_tested_and_kept() {
        let node = |spec: Value| {
            serde_json::from_value::<Node>(json!({"metadata": {"resourceVersion": "7"}, "spec": spec}))
                .unwrap_or_default()
        };
        let other = json!({"key": "a", "effect": "NoSchedule"});
        let patch = TaintNode::patch(&node(json!({"taints": [other]}))).unwrap_or_default();
        assert_eq!(patch[0], json!({"op": "test", "path": "/spec/taints", "value": [other]}));
        assert_eq!(patch[1]["path"], "/spec/taints/-");
        let patch = TaintNode::patch(&node(json!({}))).unwrap_or_default();
        assert_eq!(patch[0]["value"], "7");
        let ours = json!({"key": labels::OFFBOARDING_TAINT, "effect": EFFECT});
        assert_eq!(TaintNode::patch(&node(json!({"taints": [ours, other]}))), None);
    }
}
