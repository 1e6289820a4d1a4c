//! Stages `onboarding` and `handover`: the way of a host into Nova.
//!
//! ```text
//!   (no condition)        lifecycle disabled, maintenance=termination, or deleted with its Node: from every step but the last
//!        │ registered in Nova                        │ test servers deleted
//!        ▼                                           ▼
//!     Initial ◀──── wanted again, and empty ───── Aborted
//!      │   │ ▲
//!      │   │ └───── known to Nova by new UUIDs ── every step; Handover and Succeeded if no servers are on it
//!      │   │ in its test aggregates, checks fulfilled, enabled
//!      │   ▼
//!      │ Testing ── a failure is said, and the test repeated
//!      │   │ the smoke test has passed
//!      ▼   ▼
//!     Handover ◀─ with skipTests at once
//!        │ traits, aggregates and HA are in place, no test server is left
//!        ▼
//!     Succeeded
//! ```
//!
//! - **Into Initial** leads one write: the UUIDs and the step together. Whoever reads a UUID reads that the host is untested,
//!   and no other stage enables a host while `Onboarding` is absent or `True`.
//! - **Initial** waits for the test aggregates (stage `aggregates` sets them), the zone label, the configured [`Checks`] and
//!   the end of a maintenance. Waiting is no error; the condition says what is waited for.
//! - **Testing** repeats the [smoke test](SmokeTest) until it passes. What failed last stands in the condition.
//! - **Handover** ends in the stage of that name, which runs after those it waits for.
//! - **Aborted** of a host that leaves with its Hypervisor waits until its test servers are gone, so that it can be taken out
//!   of Nova. Else it is not the end: the next wish for the host begins anew, once no servers of others are on it. With
//!   `skipTests` a host with such servers is in service as it is.
//! - **Succeeded** stays: a host in service is not tested again because somebody stops managing it for a while. Only a
//!   host that Nova knows by other UUIDs is a new one; where none are recorded, they are filled in. One that has servers of
//!   others all the same is no new host: earlier programs never looked at what they had recorded again, so that is mended.
//!
//! All memory of a test is in Nova, so that an operator that was killed goes on where it was.

mod checks;
mod enable;
mod handover;
mod identity;
mod occupied;
mod settings;
mod smoke_test;

use std::{sync::Arc, time::Duration};

pub use checks::{Checks, LibvirtVersion};
pub use handover::Handover;
pub use settings::{OnboardingArgs, OnboardingSettings};
pub use smoke_test::{BootFrom, SmokeTest, SmokeTestArgs, SmokeTestLogin, SmokeTestSettings};

use enable::EnableService;
use identity::Identity;
use occupied::LookForOthers;
use smoke_test::Asked;

use super::{
    Cloud, Outcome, Plan, Snapshot, Stage,
    acting::{self, SLOWLY},
    offboarding,
};
use crate::api::{
    Condition, ConditionStatus, Maintenance,
    condition_types::{AGGREGATES_UPDATED, ONBOARDING},
    labels, reasons,
};

const INITIAL: &str = "Initial onboarding";
const RUNNING: &str = "Running onboarding tests";
const WAITING: &str = "Waiting for other controllers to take over";
const COMPLETED: &str = "Onboarding completed";
const UNMANAGED: &str = "Aborted due to LifecycleEnabled being false";
const TERMINATION: &str = "Aborted due to MaintenanceTermination";
const DELETION: &str = "Aborted due to deletion";

/// How soon to try again what failed, where nothing else wakes us.
const AGAIN: Duration = Duration::from_secs(30);
/// How soon to look whether Nova has deleted what we told it to.
const DELETED_SOON: Duration = Duration::from_secs(3);

/// The beginning: lookup, test aggregates, checks, smoke test.
#[derive(Clone, Debug)]
pub struct Onboarding {
    cloud: Cloud,
    settings: OnboardingSettings,
}

impl Onboarding {
    /// On this cloud.
    pub fn new(cloud: Cloud, settings: OnboardingSettings) -> Self {
        Self { cloud, settings }
    }
}

impl Stage for Onboarding {
    fn name(&self) -> &'static str {
        "onboarding"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if seen.hypervisor.is_none() && !plan.create {
            return;
        }
        let step = Step::of(plan.condition(ONBOARDING));
        if seen.is_leaving() {
            // One that is let go at once is made anew, and the next one deletes what this one leaves.
            if seen.is_held() && !offboarding::is_made_anew(seen) {
                self.abort(seen, plan, step, unwanted(plan).unwrap_or(DELETION));
            }
            return;
        }
        if let Some(why) = unwanted(plan) {
            self.abort(seen, plan, step, why);
            return;
        }
        let Some(identity) = self.identify(step, seen, plan) else { return };
        if let Identity::Incomplete { hypervisor, service } | Identity::Registered { hypervisor, service, .. } =
            &identity
            && step != Step::Foreign
        {
            plan.status.hypervisor_id = Some(hypervisor.to_string());
            plan.status.service_id = Some(service.to_string());
        }
        match (step, &identity) {
            // Where nothing is known about Nova, what is written stays; for whom nova-compute is waited, Ready says.
            // The servers of an aborted one are read once it is known by its new UUIDs.
            (_, Identity::NotSeen)
            | (Step::Foreign, _)
            | (Step::None | Step::Aborted, Identity::Unregistered)
            | (Step::Aborted, Identity::Registered { .. }) => {}
            (Step::None, Identity::Known | Identity::Incomplete { .. }) | (_, Identity::Registered { .. }) => {
                plan.set(underway(reasons::INITIAL, INITIAL));
            }
            (Step::Aborted, _) => self.anew(seen, plan),
            // Nova may not tell of a host for a while, when a cell of it is down. That it is another one is only
            // known when there is another one.
            (Step::Initial, Identity::Unregistered) => plan.set(underway(reasons::INITIAL, lost(INITIAL, seen))),
            (Step::Testing, Identity::Unregistered) => plan.set(underway(reasons::TESTING, lost(RUNNING, seen))),
            (Step::Handover, Identity::Unregistered) => plan.set(underway(reasons::HANDOVER, lost(WAITING, seen))),
            (Step::Succeeded, Identity::Unregistered) => plan.set(over(reasons::SUCCEEDED, lost(COMPLETED, seen))),
            (Step::Initial, _) => self.initial(seen, plan),
            (Step::Testing, _) => self.testing(seen, plan),
            (Step::Handover, _) => plan.set(underway(reasons::HANDOVER, WAITING)),
            (Step::Succeeded, _) => plan.set(over(reasons::SUCCEEDED, COMPLETED)),
        }
    }
}

impl Onboarding {
    /// Which host of Nova's this is. One that is let to others and has their servers is the host it was, by whatever UUIDs:
    /// a test would take it out of its aggregates under them. `None` until that is known.
    fn identify(&self, step: Step, seen: &Snapshot, plan: &mut Plan) -> Option<Identity> {
        let (host, hypervisor, service) = match Identity::of(seen) {
            Identity::Registered { host, hypervisor, service } if matches!(step, Step::Handover | Step::Succeeded) => {
                (host, hypervisor, service)
            }
            identity => return Some(identity),
        };
        let look = LookForOthers::new(&self.cloud, host.clone(), seen, self.settings.smoke_test.as_ref());
        match acting::want(seen, plan, Arc::new(look))? {
            Outcome::Done => Some(Identity::Registered { host, hypervisor, service }),
            Outcome::Underway(_) => Some(Identity::Incomplete { hypervisor, service }),
            Outcome::Failed { .. } => {
                plan.again_after(AGAIN);
                None
            }
        }
    }

    /// A host whose onboarding was aborted is wanted again. It may have been in service all the time: earlier programs took
    /// `Succeeded` back. A test would take it out of its aggregates under the servers on it, so it waits for them to leave.
    fn anew(&self, seen: &Snapshot, plan: &mut Plan) {
        let servers = seen.nova_hypervisor().and_then(|hypervisor| hypervisor.servers.as_deref());
        let Some(servers) = servers else { return }; // Not read yet.
        if servers.is_empty() {
            plan.set(underway(reasons::INITIAL, INITIAL));
            return;
        }
        if plan.effective_spec().skip_tests() {
            // There is nothing to be fenced off for.
            plan.set(over(reasons::SUCCEEDED, COMPLETED));
            return;
        }
        let look = LookForOthers::new(&self.cloud, seen.host(), seen, self.settings.smoke_test.as_ref());
        match acting::want(seen, plan, Arc::new(look)) {
            Some(Outcome::Done) => plan.set(underway(reasons::INITIAL, INITIAL)),
            Some(Outcome::Underway(others)) => {
                plan.set(over(reasons::ABORTED, others));
                plan.again_after(SLOWLY);
            }
            Some(Outcome::Failed { .. }) => plan.again_after(AGAIN),
            None => {}
        }
    }

    fn initial(&self, seen: &Snapshot, plan: &mut Plan) {
        let wait = |plan: &mut Plan, what: &str| {
            plan.set(underway(reasons::INITIAL, format!("{INITIAL}: {what}")));
        };
        let Some(zone) = seen.zone() else {
            return wait(plan, &format!("waiting for the label {} of the Node", labels::ZONE));
        };
        let maintenance = plan.effective_spec().maintenance().clone();
        if !maintenance.is_off() {
            return wait(plan, &format!("waiting for the end of maintenance {maintenance}"));
        }
        if let Some(missing) = self.settings.checks.unmet(seen) {
            return wait(plan, &format!("waiting for {missing}"));
        }
        if !self.is_fenced_off(seen, zone) {
            let failed = plan.condition(AGGREGATES_UPDATED).filter(|condition| condition.reason == reasons::FAILED);
            match failed.map(|condition| condition.message.clone()) {
                Some(why) => wait(plan, &format!("waiting for test aggregates: {why}")),
                None => plan.set(underway(reasons::INITIAL, INITIAL)),
            }
            return;
        }
        let Some(service) = seen.service() else { return };
        let enable = EnableService::new(&self.cloud, service);
        let outcome = seen.outcomes.get(&enable.identity()).cloned();
        match outcome {
            Some(Outcome::Done) if plan.effective_spec().skip_tests() => {
                plan.set(underway(reasons::HANDOVER, WAITING));
                return;
            }
            Some(Outcome::Done) => {
                plan.set(underway(reasons::TESTING, RUNNING));
                return;
            }
            Some(Outcome::Failed { message, .. }) => {
                wait(plan, &format!("failed to enable the compute service: {message}"));
                plan.again_after(AGAIN);
            }
            Some(Outcome::Underway(_)) | None => plan.set(underway(reasons::INITIAL, INITIAL)),
        }
        plan.act(Arc::new(enable));
    }

    /// Whether the host is in its test aggregates and in none any more that we had put it into before. Those that
    /// others have put it into are theirs.
    fn is_fenced_off(&self, seen: &Snapshot, zone: &str) -> bool {
        let wanted = [zone, self.settings.test_aggregate.as_str()];
        let inside: Vec<&str> = seen.nova_aggregates().into_iter().map(|aggregate| aggregate.name.as_str()).collect();
        let applied = seen.status().aggregates.unwrap_or_default();
        let left = applied.iter().map(|aggregate| aggregate.name.as_str()).filter(|name| !wanted.contains(name));
        wanted.iter().all(|name| inside.contains(name)) && !left.into_iter().any(|name| inside.contains(&name))
    }

    fn testing(&self, seen: &Snapshot, plan: &mut Plan) {
        let skipped = plan.effective_spec().skip_tests();
        let Some(test) = &self.settings.smoke_test else {
            if skipped {
                plan.set(underway(reasons::HANDOVER, WAITING));
            } else {
                let why = "no project for the smoke test is configured; configure one, or set skipTests";
                plan.set(underway(reasons::TESTING, format!("{RUNNING}: {why}")));
            }
            return;
        };
        let Some(host) = Asked::of(seen) else { return };
        if skipped {
            // Whoever wants no test wants no login either: the handover looks once more, with our own.
            let clean_up = test.clean_up(&self.cloud, &host, false, seen.now);
            match seen.outcomes.get(&clean_up.identity()) {
                Some(Outcome::Done | Outcome::Failed { .. }) => {
                    plan.set(underway(reasons::HANDOVER, WAITING));
                    return;
                }
                Some(Outcome::Underway(_)) | None => plan.act(Arc::new(clean_up)),
            }
            return;
        }
        let (key, settings) = (test.key(&host), &test.settings);
        // What failed last is said until something else is known of the test.
        let last = plan.condition(ONBOARDING).map(|condition| condition.message.clone());
        let last = last.filter(|said| !said.is_empty() && !said.starts_with(RUNNING));
        let last = last.unwrap_or_else(|| RUNNING.to_owned());
        let (message, pause) = match seen.outcomes.get(&key) {
            Some(Outcome::Done) => {
                plan.set(underway(reasons::HANDOVER, WAITING));
                return;
            }
            Some(Outcome::Underway(said)) if said == RUNNING => (last, settings.poll_interval),
            Some(Outcome::Underway(failure) | Outcome::Failed { message: failure, .. }) => {
                // The condition does not turn by it.
                plan.warn(failure.clone());
                (failure.clone(), settings.retry_interval)
            }
            None => (last, settings.poll_interval),
        };
        plan.set(underway(reasons::TESTING, message));
        plan.again_after(pause);
        plan.act(test.action(&host, seen.zone(), seen.now));
    }

    fn abort(&self, seen: &Snapshot, plan: &mut Plan, step: Step, why: &str) {
        match step {
            Step::None | Step::Succeeded | Step::Foreign => return,
            Step::Aborted if plan.condition(ONBOARDING).is_some_and(Condition::is_false) => {
                plan.set(over(reasons::ABORTED, why));
                return;
            }
            Step::Initial | Step::Testing | Step::Handover | Step::Aborted => {}
        }
        // With skipTests too: it may have been set after a test had begun.
        let (Some(test), Some(host)) = (&self.settings.smoke_test, Asked::of(seen)) else {
            plan.set(over(reasons::ABORTED, why));
            return;
        };
        let clean_up = test.clean_up(&self.cloud, &host, seen.is_leaving(), seen.now);
        match seen.outcomes.get(&clean_up.identity()) {
            Some(Outcome::Done) => {
                plan.set(over(reasons::ABORTED, why));
                return;
            }
            Some(Outcome::Underway(what)) => {
                plan.set(underway(reasons::ABORTED, what.clone()));
                plan.again_after(DELETED_SOON);
            }
            Some(Outcome::Failed { message, .. }) => {
                plan.set(underway(reasons::ABORTED, format!("failed to delete test servers: {message}")));
                plan.again_after(AGAIN);
            }
            None => {}
        }
        plan.act(Arc::new(clean_up));
    }
}

/// Where a host is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    None,
    Initial,
    Testing,
    Handover,
    Succeeded,
    Aborted,
    /// A word that is none of ours.
    Foreign,
}

impl Step {
    fn of(condition: Option<&Condition>) -> Self {
        let Some(condition) = condition else { return Self::None };
        match (condition.status, condition.reason.as_str()) {
            (ConditionStatus::True, reasons::INITIAL) => Self::Initial,
            (ConditionStatus::True, reasons::TESTING) => Self::Testing,
            (ConditionStatus::True, reasons::HANDOVER) => Self::Handover,
            (ConditionStatus::False, reasons::SUCCEEDED) => Self::Succeeded,
            (_, reasons::ABORTED) => Self::Aborted,
            _ => Self::Foreign,
        }
    }
}

/// Why a host is not to be onboarded now.
fn unwanted(plan: &Plan) -> Option<&'static str> {
    let spec = plan.effective_spec();
    if !spec.lifecycle_enabled() {
        Some(UNMANAGED)
    } else if spec.maintenance() == &Maintenance::Termination {
        Some(TERMINATION)
    } else {
        None
    }
}

fn lost(step: &str, seen: &Snapshot) -> String {
    let id = |id: Option<String>| id.unwrap_or_else(|| "(unknown)".into());
    format!(
        "{step}: Nova does not tell of hypervisor {} with service {} any more; waiting for nova-compute to register",
        id(seen.provider_id().map(|id| id.to_string())),
        id(seen.service_id().map(|id| id.to_string())),
    )
}

fn underway(step: &str, message: impl Into<String>) -> Condition {
    Condition::new(ONBOARDING, ConditionStatus::True, step, message)
}

fn over(reason: &str, message: impl Into<String>) -> Condition {
    Condition::new(ONBOARDING, ConditionStatus::False, reason, message)
}
