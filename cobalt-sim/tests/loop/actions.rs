//! Stages that act: what is done, in which order, and what becomes of failures.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    api::{Condition, ConditionStatus, Hypervisor},
    operator::{Action, Outcome, Plan, Progress, Snapshot, Stage, default_stages},
};
use serde_json::json;

use super::Rig;

/// Wants its action done once, and says in a condition how that went.
#[derive(Clone)]
struct Switch {
    failures: usize,
    irreversible: bool,
    tries: Arc<AtomicUsize>,
    /// What was published when the action ran.
    published: Arc<Mutex<Vec<Option<String>>>>,
    api: kube::Api<Hypervisor>,
}

#[derive(Clone)]
struct Flip(Switch, String);

impl std::fmt::Debug for Flip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("flip")
    }
}

impl Stage for Switch {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn decide(&self, seen: &Snapshot, plan: &mut Plan) {
        if plan.condition("Flipped").is_some_and(Condition::is_true) {
            return;
        }
        plan.act(Arc::new(Flip(self.clone(), seen.name.clone())));
        let (status, reason, message) = match seen.outcomes.get("flip") {
            None | Some(Outcome::Underway(_)) => (ConditionStatus::False, "Flipping", String::new()),
            Some(Outcome::Done) => (ConditionStatus::True, "Done", String::new()),
            Some(Outcome::Failed { message, .. }) => (ConditionStatus::False, "Failed", message.clone()),
        };
        plan.set(Condition::new("Flipped", status, reason, message));
    }
}

#[async_trait]
impl Action for Flip {
    fn key(&self) -> String {
        "flip".into()
    }

    fn is_irreversible(&self) -> bool {
        self.0.irreversible
    }

    async fn run(&self) -> Result<Progress> {
        let seen = self.0.api.get_opt(&self.1).await.ok().flatten();
        let reason = seen.and_then(|hv| hv.condition("Flipped").map(|condition| condition.reason.clone()));
        self.0.published.lock().unwrap().push(reason);
        if self.0.tries.fetch_add(1, Ordering::Relaxed) < self.0.failures {
            return Err(Error::unavailable("flip the switch", std::io::Error::other("it is stuck")));
        }
        Ok(Progress::Done)
    }
}

async fn flipped(rig: &Rig, failures: usize, irreversible: bool) -> Switch {
    let switch =
        Switch { failures, irreversible, tries: Arc::default(), published: Arc::default(), api: rig.hypervisors() };
    let mut stages = default_stages();
    stages.insert(1, Arc::new(switch.clone()));
    rig.operator_with(stages, rig.stop.clone());
    rig.add_node("hv-1", json!({}), json!({})).await;
    rig.until("hv-1", "flipped", |hv| hv.is_true("Flipped")).await;
    rig.rest().await;
    switch
}

#[tokio::test(start_paused = true)]
async fn an_action_is_done_once_and_its_outcome_is_in_the_same_pass() {
    let rig = Rig::new().await;
    let switch = flipped(&rig, 0, false).await;
    assert_eq!(switch.tries.load(Ordering::Relaxed), 1);
    let writes = rig.counts("operator").writes;
    assert!(writes <= 3, "creation and one status with the outcome, not one per step: {writes}");
}

#[tokio::test(start_paused = true)]
async fn an_irreversible_action_is_published_before_it_is_done() {
    let rig = Rig::new().await;
    let switch = flipped(&rig, 0, true).await;
    assert_eq!(switch.tries.load(Ordering::Relaxed), 1, "and not done again because of the cache's delay");
    assert_eq!(*switch.published.lock().unwrap(), [Some("Flipping".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_action_is_said_with_its_cause_and_tried_again() {
    let rig = Rig::new().await;
    let switch = flipped(&rig, 2, false).await;
    assert_eq!(switch.tries.load(Ordering::Relaxed), 3);
    assert_eq!(switch.published.lock().unwrap()[2].as_deref(), Some("Failed"));
}
