//! What Ready means, how a host leaves, and that nothing is written while nothing happens.

use std::time::Duration;

use cobalt_core::{
    api::{
        Apply, Condition, ConditionStatus, Hypervisor, HypervisorStatus, condition_types, conditions, labels, reasons,
    },
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::{super::stage::DEMO, DemoError, Story, Told, count, failed};

impl Story<'_> {
    pub(super) async fn ready_explained(&self) -> Told {
        self.chapter("What Ready means")?;
        let host = self.first();
        self.patch_node(host, json!({"metadata": {"labels": {labels::LIFECYCLE: ""}}})).await?;
        let waiting = self
            .seen
            .until_one(host.as_str(), "to wait for its onboarding", |hypervisor| {
                hypervisor.spec.lifecycle_enabled()
                    && message(hypervisor).is_some_and(|message| !message.contains("lifecycle"))
            })
            .await?;
        self.say(format!("{host} was labelled for good. Ready says: {}.", message(&waiting).unwrap_or_default()))
            .await?;
        self.say(
            "Onboarding is not part of this version. So this demo plays a finished one, openly: it writes the \
             condition Onboarding=False with the reason Succeeded itself, as the manager cobaltctl-demo.",
        )
        .await?;
        let since = Instant::now();
        self.play_onboarding().await?;
        let (hypervisor, time) = self.follow(since, host, "to be ready", is_ready).await?;
        self.say(format!("{time} later Ready was True: {}.", message(&hypervisor).unwrap_or_default())).await?;
        self.maintenance().await?;
        self.end().await
    }

    /// Stands in for the onboarding that this version does not have.
    async fn play_onboarding(&self) -> Told {
        let host = self.first();
        let done = Condition::new(
            condition_types::ONBOARDING,
            ConditionStatus::False,
            reasons::SUCCEEDED,
            "Played by cobaltctl demo: onboarding is not part of this version",
        );
        let mut status = HypervisorStatus::default();
        conditions::set_condition(&mut status.conditions, done, Timestamp::now());
        let apply = Apply::<Hypervisor>::to(host.as_str()).status(status);
        let api: Api<Hypervisor> = Api::all(self.stage.client(DEMO));
        let written = api.patch_status(host.as_str(), &PatchParams::apply(DEMO), &Patch::Apply(&apply)).await;
        written.map(drop).map_err(failed(format!("apply the condition Onboarding of Hypervisor {host}")))
    }

    async fn maintenance(&self) -> Told {
        let host = self.first();
        let refused = self.patch_hypervisor("kubectl", host, json!({"spec": {"maintenance": "manual"}})).await;
        if let Err(kube::Error::Api(status)) = refused {
            let why = status.details.as_ref().and_then(|details| details.causes.first()).map(|cause| &cause.message);
            self.say(format!(
                "A person wanted {host} in maintenance without saying why, and the API server refused: {}.",
                why.unwrap_or(&status.message),
            ))
            .await?;
        }
        let since = Instant::now();
        let wish = json!({"spec": {"maintenance": "manual", "maintenanceReason": "replace a fan"}});
        self.patch_hypervisor("kubectl", host, wish).await.map_err(failed(format!("set maintenance of {host}")))?;
        let (hypervisor, time) = self
            .follow(since, host, "to be in maintenance", |hypervisor| reason(hypervisor) == Some(reasons::MAINTENANCE))
            .await?;
        self.say(format!(
            "With a reason (replace a fan) it was accepted, and {time} later Ready was False, reason {}: {}.",
            reason(&hypervisor).unwrap_or_default(),
            message(&hypervisor).unwrap_or_default(),
        ))
        .await?;
        let since = Instant::now();
        let wish = json!({"spec": {"maintenance": "", "maintenanceReason": null}});
        self.patch_hypervisor("kubectl", host, wish).await.map_err(failed(format!("end maintenance of {host}")))?;
        let (_, time) = self.follow(since, host, "to be ready again", is_ready).await?;
        self.say(format!("The fan is replaced, maintenance ended, and {time} later {host} was Ready again.")).await
    }

    pub(super) async fn a_host_leaves(&self) -> Told {
        self.chapter("A host leaves")?;
        let host = self.last();
        let since = Instant::now();
        self.stage.cluster.terminate(host).await?;
        let (hypervisor, time) = self
            .follow(since, host, "to be terminating", |hypervisor| {
                hypervisor.is_true(condition_types::TERMINATING) && reason(hypervisor) == Some(reasons::TERMINATING)
            })
            .await?;
        self.say(format!(
            "Node {host} was marked as terminating. {time} later its Hypervisor was too, and Ready was False: {}.",
            message(&hypervisor).unwrap_or_default(),
        ))
        .await?;
        let since = Instant::now();
        self.stage.cluster.remove(host).await?;
        self.stage.stop_agent(host);
        self.seen
            .until(format!("Hypervisor {host} to go with its Node"), |seen| {
                seen.get(host.as_str()).is_none().then_some(())
            })
            .await?;
        self.say(format!(
            "The Node was deleted, and {} later its Hypervisor was gone: it belonged to the Node, so the API server's \
             garbage collector took it. {} left.",
            super::after(since),
            count(self.seen.all().len(), "Hypervisor"),
        ))
        .await?;
        self.end().await
    }

    pub(super) async fn rest(&self) -> Told {
        self.chapter("Rest")?;
        self.settle().await?;
        let time = Duration::from_secs(if self.narrator.look().fast { 1 } else { 3 });
        let before = self.stage.traffic();
        tokio::time::sleep(time).await;
        let after = self.stage.traffic();
        let writes = after.writes() - before.writes();
        if writes > 0 {
            return Err(DemoError::NotAtRest { writes, time });
        }
        self.say(format!(
            "Nothing happened for {}, and nothing was written: {writes} writes by the operator and the agents, {} other \
             requests. What is as it should be costs nothing.",
            super::seconds(time),
            (after.operator.requests + after.agents.requests) - (before.operator.requests + before.agents.requests),
        ))
        .await?;
        self.end().await
    }

    /// Waits until the last echoes (Events, above all) have been written.
    async fn settle(&self) -> Told {
        const QUIET: Duration = Duration::from_millis(500);
        const LIMIT: Duration = Duration::from_secs(15);
        let since = Instant::now();
        loop {
            let before = self.stage.traffic();
            tokio::time::sleep(QUIET).await;
            let writes = self.stage.traffic().writes() - before.writes();
            if writes == 0 {
                return Ok(());
            }
            if since.elapsed() > LIMIT {
                return Err(DemoError::NotAtRest { writes, time: QUIET });
            }
        }
    }
}

fn is_ready(hypervisor: &Hypervisor) -> bool {
    hypervisor.is_true(condition_types::READY)
}

fn message(hypervisor: &Hypervisor) -> Option<&str> {
    hypervisor.condition(condition_types::READY).map(|ready| ready.message.as_str())
}

fn reason(hypervisor: &Hypervisor) -> Option<&str> {
    hypervisor.condition(condition_types::READY).map(|ready| ready.reason.as_str())
}
