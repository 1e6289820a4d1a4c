//! Stage `ovs`: what a host's OVSNode says, as a condition of its Hypervisor.
//!
//! ```text
//!   OVSNodes are not installed ──▶ no condition
//!   no OVSNode of the host ──────▶ Unknown, NoOVSNode
//!   its agent is silent ─────────▶ Unknown, AgentSilent     however good its last word was
//!   its agent speaks ────────────▶ as its Ready
//! ```

use super::{Plan, Snapshot, Stage, SwitchSeen};
use crate::api::{Condition, ConditionStatus, condition_types};

/// Computes `OVSHealthy`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OvsHealth;

impl Stage for OvsHealth {
    fn name(&self) -> &'static str {
        "ovs"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if seen.hypervisor.is_none() && !plan.create {
            return;
        }
        match &seen.switch {
            SwitchSeen::NotInstalled if plan.condition(condition_types::OVS_HEALTHY).is_some() => {
                plan.remove(condition_types::OVS_HEALTHY);
            }
            SwitchSeen::NotInstalled | SwitchSeen::NotYet => {}
            SwitchSeen::Known { node, fresh } => {
                let ready = node.as_ref().map(|node| node.condition(condition_types::READY));
                plan.set(judge(ready, *fresh));
            }
        }
    }
}

/// From the `Ready` of an OVSNode, if there is one and it has one.
#[expect(clippy::option_option, reason = "no OVSNode and one that says nothing yet are different")]
fn judge(ready: Option<Option<&Condition>>, fresh: bool) -> Condition {
    let (status, reason, message) = match ready {
        None => (ConditionStatus::Unknown, "NoOVSNode", "No OVS agent has told of this host"),
        Some(_) if !fresh => (ConditionStatus::Unknown, "AgentSilent", "The OVS agent gives no sign of life"),
        Some(None) => (ConditionStatus::Unknown, "NotJudged", "The OVS agent has not looked at the switch yet"),
        Some(Some(ready)) => (ready.status, ready.reason.as_str(), ready.message.as_str()),
    };
    Condition::new(condition_types::OVS_HEALTHY, status, reason, message)
}
