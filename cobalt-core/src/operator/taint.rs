//! Stage `taint`: whether somebody edited the object by hand.
//!
//! ```text
//!   a field manager that begins with `kubectl` ──▶ True, Kubectl
//!   none ─────────────────────────────────────────▶ False, NoKubectl
//! ```
//!
//! It is a hint for people and stops nothing: an edit by hand may be perfectly right.

use kube::ResourceExt;

use super::{Plan, Snapshot, Stage};
use crate::api::{Condition, ConditionStatus, condition_types, reasons};

/// How the field managers of kubectl begin: `kubectl-edit`, `kubectl-client-side-apply` and their like.
pub(super) const MANAGER: &str = "kubectl";

/// Computes `Tainted`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taint;

impl Stage for Taint {
    fn name(&self) -> &'static str {
        "taint"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if (seen.hypervisor.is_none() && !plan.create) || seen.is_leaving() {
            return;
        }
        let managers = seen.hypervisor.iter().flat_map(|hypervisor| hypervisor.managed_fields());
        let by_hand = managers.filter_map(|entry| entry.manager.as_deref()).any(|name| name.starts_with(MANAGER));
        let (reason, message) = if by_hand { (reasons::KUBECTL, "⚠️") } else { (reasons::NO_KUBECTL, "🟢") };
        plan.set_of_generation(Condition::new(
            condition_types::TAINTED,
            ConditionStatus::from(by_hand),
            reason,
            message,
        ));
    }
}
