use std::time::Duration;

use cobalt_core::{
    api::{
        ConditionStatus::{False, True},
        Maintenance, condition_types as types, labels, reasons,
        testing::{HypervisorBuilder, MADE_AT, NodeBuilder, hypervisor, node},
    },
    operator::{AgentPods, AgentPodsSettings, Outcome, Plan, PodsSeen},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{decide, nobody, seen, wishes};

fn leaving() -> HypervisorBuilder {
    hypervisor("node-1").onboarded().in_maintenance(Maintenance::Termination).with_condition(
        types::EVICTING,
        False,
        reasons::SUCCEEDED,
    )
}

fn deleted(hypervisor: HypervisorBuilder) -> HypervisorBuilder {
    hypervisor.metadata(|meta| meta.deletion_timestamp = Some(Time(MADE_AT)))
}

fn tainted() -> NodeBuilder {
    node("node-1").managed().with_taint(labels::OFFBOARDING_TAINT, "NoExecute")
}

fn look(node: NodeBuilder, hypervisor: HypervisorBuilder, pods: PodsSeen) -> Plan {
    let mut seen = seen(Some(node.build()), Some(hypervisor.build()));
    seen.agent_pods = pods;
    let settings = AgentPodsSettings { interval: Duration::from_secs(7) };
    decide(&AgentPods::new(nobody(), settings), &seen)
}

fn told(plan: &Plan) -> Option<(&str, &str, &str)> {
    let condition = plan.condition(types::AGENT_PODS_EVICTED)?;
    Some((condition.status.as_str(), &condition.reason, &condition.message))
}

#[tokio::test]
async fn an_empty_host_that_is_to_go_is_tainted_and_nobody_else() {
    let managed = || node("node-1").managed();
    let held = || deleted(leaving()).metadata(|meta| meta.finalizers = Some(vec![labels::FINALIZER.into()]));
    for (why, node, hypervisor) in [
        ("it is to go", managed(), leaving()),
        ("the Node goes and is waited for", managed().deleted(), leaving()),
        ("the Hypervisor goes and is held", managed(), held()),
    ] {
        let plan = look(node, hypervisor, PodsSeen::NotAsked);
        assert_eq!(
            wishes(&plan),
            ["taint the Node node-1 with kvm.cloud.sap/offboarding:NoExecute, so that its agents leave"],
            "{why}"
        );
        assert_eq!(told(&plan), None, "{why}");
    }
    let busy = leaving().with_condition(types::EVICTING, True, reasons::RUNNING);
    let manual = leaving().in_maintenance(Maintenance::Manual);
    for (why, node, hypervisor) in [
        ("instances are left", managed(), busy),
        ("it comes back", managed(), manual),
        ("its life is not managed", managed(), leaving().unmanaged()),
        ("it is tainted", tainted(), leaving()),
        ("nobody waits for it", managed(), deleted(leaving())),
    ] {
        let plan = look(node, hypervisor, PodsSeen::NotAsked);
        assert!(plan.actions().is_empty() && told(&plan).is_none(), "{why}");
    }
}

#[tokio::test]
async fn a_node_that_cannot_be_tainted_is_said_to_be_so() {
    let mut seen = seen(Some(node("node-1").managed().build()), Some(leaving().build()));
    let stage = AgentPods::new(nobody(), AgentPodsSettings::default());
    let key = decide(&stage, &seen).actions().keys().next().unwrap().clone();
    seen.outcomes.insert(key, Outcome::Failed { category: "denied", message: "taint node node-1: denied".into() });
    let plan = decide(&stage, &seen);
    assert_eq!(told(&plan), Some(("Unknown", "Failed", "The agents cannot be sent away: taint node node-1: denied")));
    assert_eq!(plan.actions().len(), 1, "and it is tried again");
}

#[tokio::test]
async fn agents_are_looked_for_until_there_is_none() {
    let some = vec!["monsoon3/agent-a".to_owned(), "monsoon3/agent-b".to_owned()];
    let plan = look(tainted(), leaving(), PodsSeen::Known(some));
    let message = "2 agent pod(s) still running on node: monsoon3/agent-a, monsoon3/agent-b";
    assert_eq!(told(&plan), Some(("False", "AgentPodsRunning", message)));
    assert_eq!(plan.requeue(), Some(Duration::from_secs(7)));

    let plan = look(tainted(), leaving(), PodsSeen::Known(Vec::new()));
    assert_eq!(told(&plan), Some(("True", "NoAgentPods", "No agent pods are running on this node")));
    assert_eq!(plan.requeue(), None, "nothing is asked at rest");
}

#[tokio::test]
async fn what_could_not_be_asked_is_not_taken_for_gone() {
    let before = leaving().with_condition(types::AGENT_PODS_EVICTED, True, reasons::NO_AGENT_PODS);
    let plan = look(tainted(), before, PodsSeen::Failed("namespace monsoon3: server_error".into()));
    let (status, reason, message) = told(&plan).unwrap();
    assert_eq!((status, reason), ("Unknown", "Failed"));
    assert_eq!(message, "Pods on this node could not be listed: namespace monsoon3: server_error");
    assert_eq!(plan.requeue(), Some(Duration::from_secs(7)));
}
