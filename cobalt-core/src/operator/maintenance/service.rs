//! The compute service of a host, as its maintenance wants it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Error, Result,
    api::{Condition, ConditionStatus, Maintenance as Mode, condition_types, reasons},
    ids::{HostName, ServiceId},
    nova::ComputeService,
    operator::{Action, Cloud, Outcome, Plan, Progress, Snapshot, acting},
};

/// How the reason begins with which a service is disabled for maintenance; the mode follows.
pub const REASON: &str = "Hypervisor CRD: spec.maintenance=";

/// How the reason begins with which Nova's agent disables itself, and by which it finds out that it may enable itself.
const AUTOMATIC: &str = "AUTO:";

/// Whether a service is disabled in the words of this operator, which may end it.
fn is_ours(service: &ComputeService) -> bool {
    service.disabled_reason.as_deref().is_some_and(|reason| reason.starts_with(REASON))
}

/// Whether its own agent has disabled a service, and may enable it at any moment.
fn is_automatic(service: &ComputeService) -> bool {
    service.disabled_reason.as_deref().is_some_and(|reason| reason.starts_with(AUTOMATIC))
}

/// Whether a service is disabled, by somebody who is not us and wants it to stay so.
fn is_foreign(service: &ComputeService) -> bool {
    !service.enabled && !is_ours(service)
}

fn reason_for(mode: &Mode) -> String {
    format!("{REASON}{mode}")
}

fn say(plan: &mut Plan, disabled: bool, reason: &str, message: impl Into<String>) {
    plan.set(Condition::new(condition_types::HYPERVISOR_DISABLED, disabled.into(), reason, message));
}

fn say_disabled(plan: &mut Plan, service: &ComputeService) {
    let message = match service.disabled_reason.as_deref() {
        _ if is_ours(service) => "Hypervisor is disabled".to_owned(),
        None | Some("") => "Hypervisor is disabled, by somebody who gave no reason".to_owned(),
        Some(reason) => format!("Hypervisor is disabled, by somebody who says: {}", acting::words(reason)),
    };
    say(plan, true, reasons::SUCCEEDED, message);
}

/// In maintenance: disabled, whoever did it.
pub(super) fn decide_disabled(cloud: &Cloud, mode: &Mode, seen: &Snapshot, plan: &mut Plan) {
    if seen.service_id().is_none() || seen.region().is_none() {
        return;
    }
    let Some(service) = seen.service() else {
        return say(plan, true, reasons::SUCCEEDED, "Hypervisor is disabled: its compute service is gone from Nova");
    };
    let reason = reason_for(mode);
    let as_wanted = |service: &ComputeService| stays_disabled(service, &reason);
    if as_wanted(service) {
        return say_disabled(plan, service);
    }
    let disable = Disable { cloud: cloud.clone(), id: service.id.clone(), host: service.host.clone(), reason };
    if let Some(Outcome::Failed { message, .. }) = acting::want(seen, plan, Arc::new(disable)) {
        say(plan, !service.enabled, reasons::FAILED, format!("Cannot disable it: {message}"));
    }
}

/// Whether a service is disabled in a way that lasts: in these words, or in those of a person.
fn stays_disabled(service: &ComputeService, reason: &str) -> bool {
    !service.enabled
        && (service.disabled_reason.as_deref() == Some(reason) || !is_ours(service) && !is_automatic(service))
}

/// Not in maintenance: enabled, unless the host was never tested or somebody else keeps it disabled.
pub(super) fn decide_enabled(cloud: &Cloud, seen: &Snapshot, plan: &mut Plan) {
    if seen.service_id().is_none() || seen.region().is_none() {
        return;
    }
    let Some(service) = seen.service() else { return };
    let told = plan.condition(condition_types::HYPERVISOR_DISABLED).cloned();
    if !is_tested(plan) && !was_in_service(plan, service) {
        // Not ours to enable; but what was said once is kept true.
        match told {
            Some(_) if service.enabled => say(plan, false, reasons::SUCCEEDED, "Hypervisor is enabled"),
            Some(_) if is_ours(service) => {
                let message = "Hypervisor is disabled, and is not enabled before its onboarding has succeeded";
                say(plan, true, reasons::SUCCEEDED, message);
            }
            Some(_) => say_disabled(plan, service),
            None => {}
        }
        return;
    }
    let ending = told.as_ref().is_some_and(|told| told.is_true() && told.reason != reasons::DISABLED_ELSEWHERE);
    let ours = seen.owned_status.item_keys("status.conditions", "type");
    // Nobody but the owner of HA writes this condition. Its end is an end of maintenance too, whatever it told Nova.
    let from_ha = ending && !ours.contains(condition_types::HYPERVISOR_DISABLED);
    let enable = Enable {
        cloud: cloud.clone(),
        id: service.id.clone(),
        host: service.host.clone(),
        revive: ending,
        whoever: from_ha,
    };
    let done = seen.outcomes.get(&enable.key()) == Some(&Outcome::Done);
    if service.enabled && (!ending || !service.forced_down || done) {
        return say(plan, false, reasons::SUCCEEDED, "Hypervisor is enabled");
    }
    if is_foreign(service) && !from_ha {
        let who = service.disabled_reason.as_deref().filter(|reason| !reason.is_empty());
        let message = match who {
            Some(reason) => format!("Disabled in Nova, and not for maintenance: {}", acting::words(reason)),
            None => "Disabled in Nova, and not for maintenance".to_owned(),
        };
        return say(plan, true, reasons::DISABLED_ELSEWHERE, message);
    }
    if let Some(Outcome::Failed { message, .. }) = acting::want(seen, plan, Arc::new(enable)) {
        say(plan, !service.enabled, reasons::FAILED, format!("Cannot enable it: {message}"));
    }
}

fn is_tested(plan: &Plan) -> bool {
    let onboarding = plan.condition(condition_types::ONBOARDING);
    onboarding.is_some_and(|it| it.status == ConditionStatus::False && it.reason == reasons::SUCCEEDED)
}

/// Whether a host that nobody manages comes out of a maintenance before which it was enabled. Earlier programs took
/// `Succeeded` back from hosts in service, so that their onboarding counts as aborted; but only what is enabled is disabled
/// in our words, and said to be so.
fn was_in_service(plan: &Plan, service: &ComputeService) -> bool {
    let aborted = plan.condition(condition_types::ONBOARDING).is_some_and(|it| it.reason == reasons::ABORTED);
    let told = plan.condition(condition_types::HYPERVISOR_DISABLED).is_some_and(Condition::is_true);
    aborted && told && !plan.effective_spec().lifecycle_enabled() && is_ours(service)
}

/// The service of a host as Nova has it now, if it still is the one that is meant.
async fn look(cloud: &Cloud, host: &HostName, id: &ServiceId) -> Result<ComputeService> {
    let service = cloud.nova.service_on(host).await?;
    if service.id != *id {
        let reason = format!("it is registered as service {} now", service.id);
        return Err(Error::conflict(format!("look at service {id} of {host}"), reason));
    }
    Ok(service)
}

/// Reads a service back and teaches the view.
async fn learn(cloud: &Cloud, host: &HostName) -> Result<Progress> {
    cloud.view.learn_service(cloud.nova.service_on(host).await?);
    Ok(Progress::Done)
}

#[derive(Debug)]
struct Disable {
    cloud: Cloud,
    id: ServiceId,
    host: HostName,
    reason: String,
}

#[async_trait]
impl Action for Disable {
    fn key(&self) -> String {
        format!("disable the compute service: {}", self.reason)
    }

    fn describe(&self) -> String {
        format!("disable the compute service of {} with the reason \"{}\"", self.host, self.reason)
    }

    async fn run(&self) -> Result<Progress> {
        let service = look(&self.cloud, &self.host, &self.id).await?;
        if stays_disabled(&service, &self.reason) {
            self.cloud.view.learn_service(service);
            return Ok(Progress::Done);
        }
        self.cloud.nova.disable_service(&self.id, &self.reason).await?;
        learn(&self.cloud, &self.host).await
    }
}

#[derive(Debug)]
struct Enable {
    cloud: Cloud,
    id: ServiceId,
    host: HostName,
    /// Take a declaration of death back too.
    revive: bool,
    /// Whatever the reason is.
    whoever: bool,
}

#[async_trait]
impl Action for Enable {
    fn key(&self) -> String {
        "enable the compute service".to_owned()
    }

    fn describe(&self) -> String {
        format!("enable the compute service of {}", self.host)
    }

    async fn run(&self) -> Result<Progress> {
        let service = look(&self.cloud, &self.host, &self.id).await?;
        if is_foreign(&service) && !self.whoever {
            self.cloud.view.learn_service(service);
            return Ok(Progress::Done);
        }
        // First alive, then open: a host that Nova does not talk to must get no instance.
        if self.revive && service.forced_down {
            self.cloud.nova.force_service_down(&self.id, false).await?;
        }
        if !service.enabled {
            self.cloud.nova.enable_service(&self.id).await?;
        }
        learn(&self.cloud, &self.host).await
    }
}
