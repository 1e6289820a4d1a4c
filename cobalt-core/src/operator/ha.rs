//! Stage `ha`: who owns `HaEnabled`, and what is said where nobody does.
//!
//! ```text
//!   somebody else wrote HaEnabled ──▶ theirs: never written here, and the gates wait for it
//!   --ha-owner=external ────────────▶ the same before they did; ours, if there is one, is let go
//!   nobody ─────────────────────────▶ Unknown, NotConfigured; the gates do not wait
//! ```
//!
//! Two gates depend on it: the end of an onboarding waits for `True`, the release of a Node after its offboarding for
//! `False`. Without an owner both would wait for ever, so they ask [`ha_gate`].

use clap::{Args, ValueEnum};

use super::{Plan, Snapshot, Stage};
use crate::api::{
    Condition, ConditionStatus,
    condition_types::{HA_ENABLED, ONBOARDING},
    reasons,
};

const NOBODY: &str = "No owner of HA is configured: nothing waits for it";

/// Who owns `HaEnabled`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HaOwner {
    /// Nobody, unless somebody has written it.
    #[default]
    #[value(name = "none")]
    Nobody,
    /// A service outside of Cobalt.
    External,
}

const HEADING: &str = "High availability";

/// Who owns `HaEnabled`, as arguments.
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct HaArgs {
    /// Who writes HaEnabled: with `none` nothing waits for it, unless somebody has written it
    #[arg(long, value_enum, default_value_t, value_name = "OWNER", help_heading = HEADING)]
    pub ha_owner: HaOwner,
}

impl HaArgs {
    /// The stage they describe.
    pub fn settings(&self) -> Ha {
        Ha { owner: self.ha_owner }
    }
}

/// Says who owns `HaEnabled`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ha {
    /// As configured.
    pub owner: HaOwner,
}

impl Ha {
    /// Whether `HaEnabled` is somebody's who is waited for.
    fn is_owned(self, seen: &Snapshot) -> bool {
        self.owner == HaOwner::External || seen.has_foreign_ha()
    }
}

impl Stage for Ha {
    fn name(&self) -> &'static str {
        "ha"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if seen.is_leaving() || seen.hypervisor.is_none() && !plan.create {
            return;
        }
        if seen.has_foreign_ha() {
            // Theirs. Who updates a condition of ours leaves its key to us: letting that go would delete what they say.
        } else if self.owner == HaOwner::External {
            if seen.condition(HA_ENABLED).is_some() {
                plan.remove(HA_ENABLED);
            }
        } else if plan.condition(ONBOARDING).is_some() {
            plan.set(Condition::new(HA_ENABLED, ConditionStatus::Unknown, reasons::NOT_CONFIGURED, NOBODY));
        }
    }
}

/// What those are told who wait for HA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaGate {
    /// Nobody is there who could answer.
    NotWaitedFor,
    /// The owner has not said yet, or cannot tell.
    Undecided,
    /// A failure of the host leads to evacuation.
    Enabled,
    /// It does not.
    Disabled,
}

/// Whether to wait for HA, and what its owner says of this host.
pub fn ha_gate(seen: &Snapshot, plan: &Plan, ha: &Ha) -> HaGate {
    if !ha.is_owned(seen) {
        return HaGate::NotWaitedFor;
    }
    // A word of ours that was not let go yet is none.
    let said = plan.condition(HA_ENABLED).filter(|condition| condition.reason != reasons::NOT_CONFIGURED);
    match said.map(|condition| condition.status) {
        Some(ConditionStatus::True) => HaGate::Enabled,
        Some(ConditionStatus::False) => HaGate::Disabled,
        _ => HaGate::Undecided,
    }
}
