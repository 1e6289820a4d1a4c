//! Stage `ready`: one condition that sums up all the others.
//!
//! It runs last and looks at the plan, so that it speaks of what this pass decided and not of what the last one wrote.

use super::{Plan, Snapshot, Stage};
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

/// Whether Nova knows the host.
fn is_registered(seen: &Snapshot) -> bool {
    seen.hypervisor
        .as_ref()
        .and_then(|hypervisor| hypervisor.status.as_ref())
        .is_some_and(|status| status.hypervisor_id.is_some() && status.service_id.is_some())
}
