//! Stage `traits`: the custom traits of a host in Placement.
//!
//! ```text
//!                                      spec differs from Placement
//!   TraitsUpdated=True/Succeeded ◀──────────────────────────────────▶ change (made known, set, read back)
//!                  ▲                                                       │ fails
//!                  └──────────── tried again ◀── False/Failed ◀────────────┘
//! ```
//!
//! **What is ours.** A provider has many traits: Nova's own, ours, and those that a person added. Removed are only those
//! that we have applied, which `status.appliedTraits` records; a trait of a person is left alone even if it is a custom
//! one. Earlier programs kept no such record: they took every custom trait of `status.traits` for theirs, and so it is
//! read where the record is missing.
//!
//! What Placement says comes from the region's view, so that a trait somebody removed is put back when the round robin
//! finds out. Only a host about whose traits nothing is settled yet is read at once.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::{
    Action, Cloud, Outcome, Plan, Progress, Snapshot, Stage,
    acting::{self, SLOWLY},
};
use crate::{
    Result,
    api::{Condition, ConditionStatus, HypervisorStatus, Maintenance, condition_types, reasons},
    ids::ProviderId,
    nova::{TraitChange, change_traits},
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Traits {
    cloud: Cloud,
}

impl Traits {
    /// On this cloud.
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud }
    }
}

impl Stage for Traits {
    fn name(&self) -> &'static str {
        "traits"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        let spec = plan.effective_spec();
        let concerned = !seen.is_leaving()
            && spec.lifecycle_enabled()
            && spec.maintenance() != &Maintenance::Termination
            && is_due(plan);
        let Some(provider) = seen.provider_id().filter(|_| concerned && seen.region().is_some()) else { return };

        let (wanted, refused) = sorted_out(spec.custom_traits());
        let status = seen.status();
        let applied = applied(&status);
        let change = TraitChange {
            remove: applied.iter().filter(|name| !wanted.contains(*name)).cloned().collect(),
            add: wanted.clone(),
        };
        let known = seen.nova_traits();
        let settled = match known {
            Some(traits) => change.applied_to(&traits.names).is_none(),
            // Not read yet. A thousand hosts at a start wait for their turn; one with something to do does not.
            None => is_said(plan) && applied == wanted,
        };
        if settled {
            plan.status.traits = known.map(|traits| traits.names.iter().cloned().collect());
            plan.status.applied_traits = Some(wanted.into_iter().collect());
            plan.set(if refused.is_empty() { succeeded() } else { failed(&refusal(&refused)) });
            return;
        }
        let action = Change { cloud: self.cloud.clone(), host: seen.name.clone(), provider, wanted: change };
        if let Some(Outcome::Failed { message, .. }) = acting::want(seen, plan, Arc::new(action)) {
            // It may have been done and the answer lost: from here on both count as ours.
            plan.status.applied_traits = Some(applied.union(&wanted).cloned().collect());
            plan.set(failed(&format!("Failed to update traits in placement: {message}")));
            plan.again_after(SLOWLY);
        }
    }
}

/// Not before the host was tested: traits are what tenants are drawn by.
fn is_due(plan: &Plan) -> bool {
    let onboarding = plan.condition(condition_types::ONBOARDING);
    onboarding.is_some_and(|it| it.is_false() || it.reason == reasons::HANDOVER)
}

fn is_said(plan: &Plan) -> bool {
    plan.condition(condition_types::TRAITS_UPDATED).is_some_and(Condition::is_true)
}

fn succeeded() -> Condition {
    let (type_, reason) = (condition_types::TRAITS_UPDATED, reasons::SUCCEEDED);
    Condition::new(type_, ConditionStatus::True, reason, "Traits successfully updated")
}

fn failed(message: &str) -> Condition {
    Condition::new(condition_types::TRAITS_UPDATED, ConditionStatus::False, reasons::FAILED, message)
}

fn refusal(names: &[String]) -> String {
    let names = acting::words(&names.join(", "));
    format!("Not custom traits (CUSTOM_ and capitals, digits, underscores), the others are applied: {names}")
}

/// What may be wanted of the wished names, and what may not, each once and ordered.
fn sorted_out(wished: &[String]) -> (BTreeSet<String>, Vec<String>) {
    let (good, bad): (BTreeSet<String>, BTreeSet<String>) = wished.iter().cloned().partition(|name| is_custom(name));
    (good, bad.into_iter().collect())
}

/// Whether Placement lets people make a trait of that name.
fn is_custom(name: &str) -> bool {
    let legal = |letter: u8| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == b'_';
    name.len() <= 255 && name.strip_prefix("CUSTOM_").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(legal))
}

/// What was applied before.
fn applied(status: &HypervisorStatus) -> BTreeSet<String> {
    match &status.applied_traits {
        Some(recorded) => recorded.iter().cloned().collect(),
        None => status.traits().iter().filter(|name| name.starts_with("CUSTOM_")).cloned().collect(),
    }
}

#[derive(Debug)]
struct Change {
    cloud: Cloud,
    host: String,
    provider: ProviderId,
    wanted: TraitChange,
}

impl Change {
    fn words(&self) -> String {
        let mut text = String::new();
        for (sign, names) in [(" +", &self.wanted.add), (" -", &self.wanted.remove)] {
            for name in names {
                text.extend([sign, name]);
            }
        }
        text
    }
}

#[async_trait]
impl Action for Change {
    fn key(&self) -> String {
        format!("traits:{}", self.words())
    }

    fn describe(&self) -> String {
        format!("change the traits of {}:{}", self.host, self.words())
    }

    async fn run(&self) -> Result<Progress> {
        let now = change_traits(self.cloud.placement.as_ref(), &self.provider, &self.wanted).await?;
        self.cloud.view.learn_traits(&self.provider, now);
        Ok(Progress::Done)
    }
}
