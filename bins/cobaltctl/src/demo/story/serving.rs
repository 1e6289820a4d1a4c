//! A host is brought into service, tested, and lent to maintenance.

use cobalt_core::{
    api::{Hypervisor, condition_types, labels, reasons},
    ids::HostName,
    nova::NovaClient,
};
use serde_json::json;
use tokio::time::Instant;

use super::{DemoError, Story, Told, after, drain::targets, failed};

/// The aggregate and the trait that the story gives its hosts.
const AGGREGATE: &str = "general-purpose";
const TRAIT: &str = "CUSTOM_DEMO";

impl Story<'_> {
    pub(super) async fn hosts_go_into_service(&self) -> Told {
        self.chapter("Hosts go into service")?;
        self.stage.region.add_aggregate(AGGREGATE, None);
        let since = Instant::now();
        for host in &self.hosts {
            self.patch_node(
                host,
                json!({"metadata": {
                    "labels": {labels::LIFECYCLE: ""},
                    "annotations": {labels::AGGREGATES_ANNOTATION: AGGREGATE, labels::CUSTOM_TRAITS_ANNOTATION: TRAIT},
                }}),
            )
            .await?;
        }
        let host = self.first();
        let testing = |hypervisor: &Hypervisor| step(hypervisor) == Some(reasons::TESTING);
        let (hypervisor, time) = self.follow(since, host, "to be tested", testing).await?;
        self.say(format!(
            "Every Node got the lifecycle label. The operator looked each host up in Nova, by its whole name, put it \
             into the aggregate {}, where nobody's servers go, and enabled it. {time} later {host} was being tested: \
             its id in Nova is {}.",
            labels::TEST_AGGREGATE,
            hypervisor.status.as_ref().and_then(|status| status.hypervisor_id.as_deref()).unwrap_or("unknown"),
        ))
        .await?;
        let wanted = self.hosts.len();
        self.seen
            .until("every host to be ready", |seen| {
                (seen.all().iter().filter(|one| is_ready(one)).count() == wanted).then_some(())
            })
            .await?;
        self.say(format!(
            "A server was booted on each of them, and wrote its name on its console: that is the smoke test. It was \
             deleted again, the traits went to Placement, the host to its own aggregates, and {} after the label {} \
             in service. No HA service is configured, so nobody waits for one: HaEnabled says so.",
            after(since),
            if wanted == 1 { "the host was".into() } else { format!("all {wanted} were") },
        ))
        .await?;
        self.say(format!("In Nova {host} is in: {}.", self.aggregates_of(host).await?.join(", "))).await?;
        self.end().await
    }

    async fn aggregates_of(&self, host: &HostName) -> Result<Vec<String>, DemoError> {
        let all = self.stage.region.nova().aggregates().await.map_err(DemoError::Cloud)?;
        Ok(all.into_iter().filter(|one| one.hosts.contains(host)).map(|one| one.name).collect())
    }

    pub(super) async fn maintenance(&self) -> Told {
        self.chapter("Maintenance: a host is drained")?;
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
        let disabled = |hypervisor: &Hypervisor| hypervisor.is_true(condition_types::HYPERVISOR_DISABLED);
        let (_, time) = self.follow(since, host, "to be disabled", disabled).await?;
        self.say(format!(
            "With a reason (replace a fan) it was accepted. {time} later its compute service was disabled in Nova, so \
             that nothing new lands there, and an Eviction began to move its servers to other hosts.",
        ))
        .await?;
        let hypervisor = self.drained(host).await?;
        let eviction = self.seen.eviction(host.as_str());
        let moved = eviction.as_deref().and_then(|eviction| eviction.status.clone()).unwrap_or_default();
        if hypervisor.is_false(condition_types::EVICTING) {
            self.say(format!(
                "{} after the wish the host was empty: Nova has no server there and libvirt no guest. {}",
                after(since),
                targets(&moved),
            ))
            .await?;
        } else {
            let evicting = hypervisor.condition(condition_types::EVICTING).cloned().unwrap_or_default();
            self.say(format!(
                "There is no other host for its servers, and the operator does not pretend: Evicting stays True, \
                 reason {}: {}.",
                evicting.reason, evicting.message,
            ))
            .await?;
        }
        self.end().await?;
        self.back_in_service(host).await
    }

    async fn back_in_service(&self, host: &HostName) -> Told {
        let since = Instant::now();
        let wish = json!({"spec": {"maintenance": "", "maintenanceReason": null}});
        self.patch_hypervisor("kubectl", host, wish).await.map_err(failed(format!("end maintenance of {host}")))?;
        let (_, time) = self.follow(since, host, "to be ready again", is_ready).await?;
        self.say(format!(
            "The fan is replaced, maintenance ended, and {time} later {host} was enabled in Nova and Ready again.",
        ))
        .await?;
        self.end().await
    }
}

/// The step of the onboarding that runs.
fn step(hypervisor: &Hypervisor) -> Option<&str> {
    let onboarding = hypervisor.condition(condition_types::ONBOARDING)?;
    onboarding.is_true().then_some(onboarding.reason.as_str())
}

fn is_ready(hypervisor: &Hypervisor) -> bool {
    hypervisor.is_true(condition_types::READY)
}
