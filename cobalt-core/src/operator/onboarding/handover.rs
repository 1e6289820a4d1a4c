//! Stage `handover`: the end of an onboarding, after the stages it waits for.

use std::sync::Arc;

use super::{
    AGAIN, COMPLETED, DELETED_SOON, OnboardingSettings, Step, WAITING, over,
    smoke_test::{Asked, DELETING},
    underway,
};
use crate::{
    api::{
        Condition,
        condition_types::{AGGREGATES_UPDATED, ONBOARDING, TRAITS_UPDATED},
        reasons,
    },
    operator::{
        Cloud, Ha, Outcome, Plan, Snapshot, Stage,
        ha::{HaGate, ha_gate},
    },
};

/// The end: waits for the stages between, which wake it by what they write.
#[derive(Clone, Debug)]
pub struct Handover {
    cloud: Cloud,
    settings: OnboardingSettings,
    ha: Ha,
}

impl Handover {
    /// On this cloud, with an owner of `HaEnabled` or without.
    pub fn new(cloud: Cloud, settings: OnboardingSettings, ha: Ha) -> Self {
        Self { cloud, settings, ha }
    }

    fn is_taken_over(&self, seen: &Snapshot, plan: &Plan) -> bool {
        let is_true = |type_| plan.condition(type_).is_some_and(Condition::is_true);
        let protected = !plan.effective_spec().high_availability()
            || matches!(ha_gate(seen, plan, &self.ha), HaGate::NotWaitedFor | HaGate::Enabled);
        is_true(AGGREGATES_UPDATED) && is_true(TRAITS_UPDATED) && protected
    }
}

impl Stage for Handover {
    fn name(&self) -> &'static str {
        "handover"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let lost = plan.condition(ONBOARDING).is_some_and(|condition| condition.message != WAITING);
        if seen.is_leaving() || Step::of(plan.condition(ONBOARDING)) != Step::Handover || lost {
            return;
        }
        let is_taken_over = self.is_taken_over(seen, plan);
        // Under a server of its test a host cannot leave its zone.
        let is_stuck = plan.condition(AGGREGATES_UPDATED).is_some_and(|it| it.reason == reasons::FAILED);
        if !is_taken_over && !is_stuck {
            return;
        }
        let end = |plan: &mut Plan| {
            if is_taken_over {
                plan.set(over(reasons::SUCCEEDED, COMPLETED));
            }
        };
        // Only now, so that a host that waits long for its HA costs nothing.
        let (Some(test), Some(host)) = (&self.settings.smoke_test, Asked::of(seen)) else { return end(plan) };
        let clean_up = test.clean_up(&self.cloud, &host, true, seen.now);
        // Tests may have been skipped after one had begun. Where none ever is, no login for them is needed.
        let clean_up = if plan.effective_spec().skip_tests() { clean_up.with_own_login() } else { clean_up };
        match seen.outcomes.get(&clean_up.identity()) {
            Some(Outcome::Done) => return end(plan),
            Some(Outcome::Underway(what)) if what == DELETING => plan.again_after(DELETED_SOON),
            Some(Outcome::Underway(what)) => {
                plan.set(underway(reasons::HANDOVER, format!("{WAITING}: {what}")));
                plan.again_after(AGAIN);
            }
            Some(Outcome::Failed { message, .. }) => {
                let what = format!("{WAITING}: failed to delete test servers: {message}");
                plan.set(underway(reasons::HANDOVER, what));
                plan.again_after(AGAIN);
            }
            None => {}
        }
        plan.act(Arc::new(clean_up));
    }
}
