//! Stage `ready`: one condition that sums up all the others.
//!
//! It runs last and looks at the plan, so that it speaks of what this pass decided and not of what the last one wrote.
//!
//! | | When | Ready | What to do |
//! |---|---|---|---|
//! | 1 | `Offboarded` is true | False, `Offboarded` | nothing: the machine may go |
//! | 2 | `Terminating` is true | False, `Terminating` | nothing: the Node is going away |
//! | 3 | `Onboarding` is true | False, `Onboarding` | the message names the step |
//! | 4 | `spec.maintenance` is set | False, `Evicting`, `Evicted` or `Maintenance`, by the state of the drain | end the maintenance when it is over |
//! | 5 | onboarding has not ended well | False, `Onboarding` | the message says what is missing |
//! | 6 | the node agent has fallen silent | False, `AgentSilent` | look after the agent's Pod, and the host |
//! | 7 | `LibVirtConnection` is false | False, `LibVirtNotConnected` | look after libvirt on the host |
//! | 8 | none of these | True, `Ready` | |
//!
//! An agent that never gave a sign of life is not a silent one: earlier agents give none. One that was silent when we
//! began to look stays so until it is heard.

use super::{AgentSeen, Plan, Snapshot, Stage};
use crate::api::{Condition, ConditionStatus, condition_types, reasons};

/// Computes `Ready`. The first line of its table that applies wins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready;

impl Stage for Ready {
    fn name(&self) -> &'static str {
        "ready"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if seen.hypervisor.is_none() && !plan.create {
            return;
        }
        let (reason, message) = judge(seen, plan);
        let status = ConditionStatus::from(reason == reasons::READY);
        plan.set(Condition::new(condition_types::READY, status, reason, message));
    }
}

/// The reason and the message; ready is ready, every other reason is not.
fn judge(seen: &Snapshot, plan: &Plan) -> (&'static str, String) {
    let is_true = |type_| plan.condition(type_).is_some_and(Condition::is_true);
    let say = |reason, message: &str| (reason, message.to_owned());
    let spec = plan.effective_spec();
    let onboarding = plan.condition(condition_types::ONBOARDING);

    if is_true(condition_types::OFFBOARDED) {
        return say(reasons::OFFBOARDED, "Hypervisor has been offboarded");
    }
    if is_true(condition_types::TERMINATING) {
        return say(reasons::TERMINATING, "Hypervisor is terminating");
    }
    if let Some(running) = onboarding.filter(|condition| condition.is_true()) {
        return (reasons::ONBOARDING, format!("Onboarding in progress: {}", running.message));
    }
    if !spec.maintenance().is_off() {
        return match plan.condition(condition_types::EVICTING).map(|evicting| evicting.status) {
            Some(ConditionStatus::True) => say(reasons::EVICTING, "Hypervisor is disabled and evicting"),
            Some(ConditionStatus::False) => say(reasons::EVICTED, "Hypervisor is disabled and evicted"),
            _ => say(reasons::MAINTENANCE, "Hypervisor is in maintenance mode"),
        };
    }
    match onboarding.map(|condition| condition.reason.as_str()) {
        None if !spec.lifecycle_enabled() => {
            say(reasons::ONBOARDING, "Onboarding not started: lifecycle management is disabled")
        }
        None if !is_registered(seen) => say(
            reasons::ONBOARDING,
            "Onboarding not started: waiting for nova-compute to register the hypervisor in Nova \
             (HypervisorID/ServiceID not yet available)",
        ),
        None => say(reasons::ONBOARDING, "Onboarding not started"),
        Some(reasons::ABORTED) => say(reasons::ONBOARDING, "Onboarding was aborted"),
        // What a silent agent said of libvirt is old, so its silence comes first.
        Some(reasons::SUCCEEDED) if is_silent(seen) => {
            say(reasons::AGENT_SILENT, "The node agent gives no sign of life")
        }
        // A host whose libvirt is away can take no instance, whatever Nova still believes of it.
        Some(reasons::SUCCEEDED) => match plan.condition(condition_types::LIBVIRT_CONNECTION) {
            Some(lost) if lost.is_false() => {
                (reasons::LIBVIRT_NOT_CONNECTED, format!("libvirt cannot be used: {}", lost.message))
            }
            _ => say(reasons::READY, "Hypervisor is ready"),
        },
        Some(_) => say(reasons::ONBOARDING, "Onboarding not yet completed"),
    }
}

/// Whether the host's agent is silent, by what we heard or, until we have heard enough, by what was said before.
fn is_silent(seen: &Snapshot) -> bool {
    match seen.agent {
        AgentSeen::Silent => true,
        AgentSeen::NotYet => {
            seen.condition(condition_types::READY).is_some_and(|ready| ready.reason == reasons::AGENT_SILENT)
        }
        AgentSeen::Alive | AgentSeen::Unknown => false,
    }
}

/// Whether Nova knows the host.
fn is_registered(seen: &Snapshot) -> bool {
    seen.hypervisor
        .as_ref()
        .and_then(|hypervisor| hypervisor.status.as_ref())
        .is_some_and(|status| status.hypervisor_id.is_some() && status.service_id.is_some())
}
