//! The parts a pass is made of.

use std::fmt;

use async_trait::async_trait;

use super::{Plan, Snapshot};
use crate::Result;

/// One concern of a Hypervisor's life: it looks at what was seen and says what it wants.
///
/// `decide` is a pure function. It does no IO and reads no clock; what it needs to know is in the [`Snapshot`] or in
/// the stage's own configuration, and what it wants goes into the [`Plan`]: conditions, fields, and [`Action`]s to be
/// taken. Stages run in the order of their list, and a later one sees in the plan what an earlier one decided.
///
/// A condition that no stage decided in a pass is kept as it is, so leaving a stage out of the list deletes nothing.
///
/// ```
/// use cobalt_core::api::{Condition, ConditionStatus};
/// use cobalt_core::operator::{Plan, Snapshot, Stage};
///
/// /// Says whether a host is big enough to be worth its power.
/// struct Size {
///     least_instances: i32,
/// }
///
/// impl Stage for Size {
///     fn name(&self) -> &'static str {
///         "size"
///     }
///
///     fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
///         let Some(status) = seen.hypervisor.as_ref().and_then(|hypervisor| hypervisor.status.as_ref()) else {
///             return;
///         };
///         let busy = status.num_instances() >= self.least_instances;
///         let message = format!("{} instances, {} wanted", status.num_instances(), self.least_instances);
///         plan.set(Condition::new("Busy", busy.into(), if busy { "Enough" } else { "TooFew" }, message));
///     }
/// }
/// ```
pub trait Stage: Send + Sync {
    /// A short name for logs and metrics.
    fn name(&self) -> &'static str;

    /// Adds what this stage wants to the plan.
    fn decide(&self, seen: &Snapshot, plan: &mut Plan);
}

/// Something to be done outside of the Hypervisor object: a call to the cloud, a patch of a Node.
///
/// An action is idempotent: it looks again right before it acts, and doing it twice does no harm. It is run once per
/// pass; what became of it is in [`Snapshot::outcomes`] when the stages decide anew.
#[async_trait]
pub trait Action: fmt::Debug + Send + Sync {
    /// What makes this action the same as another one: two with one key are one action.
    fn key(&self) -> String;

    /// What it does, in words for people: `disable the compute service of hv-1`.
    fn describe(&self) -> String {
        self.key()
    }

    /// What kind of action it is, for metrics: the name of its type.
    fn kind(&self) -> &'static str {
        std::any::type_name::<Self>().rsplit("::").next().unwrap_or("Action")
    }

    /// Whether it cannot be taken back. The plan is published *before* such an action is run, so that what was done
    /// is never more than what was said.
    fn is_irreversible(&self) -> bool {
        false
    }

    /// Does it, or does the next step of it.
    async fn run(&self) -> Result<Progress>;
}

/// How far an action has come that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is done.
    Done,
    /// It goes on elsewhere; this is what it waits for. The stage asks again after a while.
    Underway(String),
}
