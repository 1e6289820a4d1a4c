//! The parts of others in a host's life, played by the test: its onboarding, its drain, its agents' Pods.

use std::sync::Arc;

use cobalt_core::{
    api::{Condition, ConditionStatus, Eviction, condition_types as types, labels},
    ids::{HostName, ServiceId},
    nova::{ComputeService, NovaClient, PlacementClient},
    operator::{Operator, Settings, stages},
    runtime::{events, metrics::Metrics, shutdown::Shutdown},
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::Rig;

/// The stages whose part is played.
const PLAYED: [&str; 5] = ["onboarding", "agent-pods", "ha", "handover", "gardener"];

fn condition(type_: &str, status: ConditionStatus, reason: &str) -> Value {
    let mut condition = serde_json::to_value(Condition::new(type_, status, reason, reason)).unwrap();
    condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    condition
}

impl Rig {
    /// Starts an operator that leaves to the test what is played here.
    pub(super) fn life(&self, settings: Settings) {
        self.life_until(settings, self.stop.clone());
    }

    pub(super) fn life_until(&self, settings: Settings, stop: Shutdown) {
        let (client, cloud, metrics) = (self.program("operator"), self.cloud(), Arc::new(Metrics::new()));
        let (recorder, publisher) =
            events::recorder(self.program("events"), "cobalt-operator", "test", self.clock(), metrics.clone());
        tokio::spawn(publisher.run(self.stop.clone()));
        let mut list = stages(&settings, &cloud, &client);
        list.retain(|stage| !PLAYED.contains(&stage.name()));
        let operator = Operator::new(client).clock(self.clock()).metrics(metrics).recorder(recorder);
        tokio::spawn(operator.cloud(cloud, settings).stages(list).drains(false).run(stop));
    }

    /// Writes a part of a Hypervisor's status under a name of its own.
    async fn apply_status(&self, host: &HostName, manager: &str, status: Value) {
        let mut body = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor"});
        body["metadata"] = json!({"name": host.as_str()});
        body["status"] = status;
        let params = PatchParams::apply(manager).force();
        self.hypervisors().patch_status(host.as_str(), &params, &Patch::Apply(&body)).await.unwrap();
    }

    /// Says how far the onboarding of a host is, with its identities.
    pub(super) async fn play_onboarding(&self, host: &HostName, status: ConditionStatus, reason: &str) {
        let service = self.service(host).await;
        let provider = self.nova.hypervisor_named(host.as_str()).await.unwrap().id;
        let told = json!({
            "serviceId": service.id, "hypervisorId": provider, "numInstances": 0,
            "conditions": [condition(types::ONBOARDING, status, reason)],
        });
        self.apply_status(host, "player", told).await;
    }

    /// Makes a Node whose life is managed, and says that its host is onboarded.
    pub(super) async fn onboarded(&self, host: &HostName) {
        self.cluster.join(host).await.unwrap();
        self.cluster.manage(host, true).await.unwrap();
        self.until(host, "there", |_| true).await;
        self.play_onboarding(host, ConditionStatus::False, "Succeeded").await;
    }

    /// Says what became of a host's drain.
    pub(super) async fn play_drain(&self, host: &HostName, status: ConditionStatus, reason: &str) {
        self.wait("an Eviction", async || self.eviction(host).await.is_some()).await;
        let mut body = json!({"apiVersion": "kvm.cloud.sap/v1", "kind": "Eviction"});
        body["metadata"] = json!({"name": host.as_str()});
        body["status"] = json!({"conditions": [condition(types::EVICTING, status, reason)]});
        let params = PatchParams::apply("player").force();
        self.evictions().patch_status(host.as_str(), &params, &Patch::Apply(&body)).await.unwrap();
    }

    /// Says that no agent's Pod is left on a host.
    pub(super) async fn play_agents_gone(&self, host: &HostName) {
        let gone = condition(types::AGENT_PODS_EVICTED, ConditionStatus::True, "NoAgentPods");
        self.apply_status(host, "kubelet-player", json!({"conditions": [gone]})).await;
    }

    pub(super) async fn eviction(&self, host: &HostName) -> Option<Eviction> {
        self.evictions().get_opt(host.as_str()).await.unwrap()
    }

    /// The traits of a host's provider, by Placement itself.
    pub(super) async fn traits_of(&self, host: &HostName) -> Vec<String> {
        let provider = self.nova.hypervisor_named(host.as_str()).await.unwrap().id;
        self.placement.traits(&provider).await.unwrap().names.into_iter().collect()
    }

    /// Waits until Nova has the host's service as wanted.
    pub(super) async fn until_service(&self, host: &HostName, what: &str, test: impl Fn(&ComputeService) -> bool) {
        self.wait(what, async || test(&self.service(host).await)).await;
    }

    pub(super) async fn service_id(&self, host: &HostName) -> ServiceId {
        self.service(host).await.id
    }

    /// Whether our finalizer holds a Hypervisor.
    pub(super) async fn is_held(&self, host: &HostName) -> bool {
        let finalizers = self.hypervisor(host).await.metadata.finalizers.unwrap_or_default();
        finalizers.iter().any(|finalizer| finalizer == labels::FINALIZER)
    }

    pub(super) async fn is_gone(&self, host: &HostName) -> bool {
        self.hypervisors().get_opt(host.as_str()).await.unwrap().is_none()
    }

    /// Whether Nova and Placement know nothing of a host any more.
    pub(super) async fn is_out_of_nova(&self, host: &HostName) -> bool {
        let service = self.nova.service_on(host).await.is_ok();
        let provider = self.placement.providers().await.unwrap().iter().any(|one| one.name == host.as_str());
        !service && !provider && self.aggregates_of(host).await.is_empty()
    }

    /// The Events about a host, as `reason: note`.
    pub(super) async fn warnings(&self, host: &HostName) -> Vec<String> {
        let events: Api<k8s_openapi::api::events::v1::Event> = Api::all(self.client.clone());
        let all = events.list(&ListParams::default()).await.unwrap();
        let about = all.items.into_iter().filter(|event| {
            event.type_.as_deref() == Some("Warning")
                && event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(host.as_str())
        });
        about.map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }
}
