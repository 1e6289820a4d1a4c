//! The operator's stages and the pass, as tables: what is seen on the left, what is wanted on the right.
#![allow(clippy::unwrap_used)]

mod agent_pods;
mod agent_status;
mod aggregates;
mod certificate;
mod eviction;
mod gardener;
mod hypervisor;
mod maintenance;
mod offboarding;
mod onboarding;
mod pass;
mod ready;
mod region;
mod taint;
mod traits;

use std::sync::Arc;

use cobalt_core::{
    api::Hypervisor,
    operator::{AbsentNode, Plan, Snapshot, Stage},
    runtime::fields::{FieldSet, Shape},
};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

/// What is seen at a fixed time.
fn seen(node: Option<Node>, hypervisor: Option<Hypervisor>) -> Snapshot {
    let name = node
        .as_ref()
        .and_then(|node| node.metadata.name.clone())
        .or_else(|| hypervisor.as_ref().and_then(|hypervisor| hypervisor.metadata.name.clone()))
        .unwrap_or_default();
    let mut seen = Snapshot::new(name, "2026-02-01T00:00:00Z".parse().unwrap());
    if node.is_none() {
        seen.absent_node = AbsentNode::Gone;
    }
    seen.node = node.map(Arc::new);
    seen.hypervisor = hypervisor.map(Arc::new);
    seen
}

/// The same, where the fields of this body are ours.
fn owning(mut seen: Snapshot, body: &Value) -> Snapshot {
    seen.owned = FieldSet::of(body, &Shape::default());
    seen
}

/// A client for stages that are never run here, only asked. To be made in a runtime.
fn nobody() -> kube::Client {
    kube::Client::new(cobalt_apiserver::ApiServer::builder().start().service("nobody"), "default")
}

/// What the actions of a plan would do, in words.
fn wishes(plan: &Plan) -> Vec<String> {
    plan.actions().values().map(|action| action.describe()).collect()
}

fn decide(stage: &dyn Stage, seen: &Snapshot) -> Plan {
    let mut plan = Plan::new(seen);
    stage.decide(seen, &mut plan);
    plan
}
