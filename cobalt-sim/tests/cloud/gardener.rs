//! What holds a Node back from Gardener, until its host is onboarded and again until it is offboarded.

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    ids::HostName,
    operator::{Gardener, GardenerSettings, Ha, HypervisorSync, Settings, Stage},
};
use cobalt_sim::Region;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Rig, say};

struct Held {
    rig: Rig,
    host: HostName,
}

impl Held {
    async fn new() -> Self {
        let rig = Rig::new(Region::builder().hosts(1).build()).await;
        let host = rig.region.hosts().remove(0);
        rig.cluster.join_all().await.unwrap();
        rig.cluster.manage(&host, true).await.unwrap();
        Self { rig, host }
    }

    /// An operator that does nothing but hold Nodes back.
    fn operator(&self) {
        let gardener = GardenerSettings { image: "registry.example/busybox:1".into(), ..GardenerSettings::default() };
        let mut settings = Settings::default();
        settings.gardener = Some(gardener.clone());
        let client = self.rig.program("operator");
        let stages: Vec<Arc<dyn Stage>> =
            vec![Arc::new(HypervisorSync::default()), Arc::new(Gardener::new(client, gardener, Ha::default()))];
        tokio::spawn(self.rig.new_operator(settings).stages(stages).run(self.rig.stop.clone()));
    }

    fn name(&self) -> String {
        format!("maint-{}", self.host)
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.rig.client.clone(), "kube-system")
    }

    fn budgets(&self) -> Api<PodDisruptionBudget> {
        Api::namespaced(self.rig.client.clone(), "kube-system")
    }

    /// How many Pods there are to be, how many must be left, and how the Pod says that it has started.
    async fn state(&self) -> Option<(i64, i64, String)> {
        let value = |object: Option<Value>| object.unwrap_or_default();
        let deployment = self.deployments().get_opt(&self.name()).await.unwrap();
        let deployment = value(deployment.map(|one| serde_json::to_value(one).unwrap()));
        let budget = self.budgets().get_opt(&self.name()).await.unwrap();
        let budget = value(budget.map(|one| serde_json::to_value(one).unwrap()));
        let probe = "/spec/template/spec/containers/0/startupProbe/exec/command/0";
        Some((
            deployment["spec"]["replicas"].as_i64()?,
            budget["spec"]["minAvailable"].as_i64()?,
            deployment.pointer(probe)?.as_str()?.to_owned(),
        ))
    }

    async fn until(&self, replicas: i64, probe: &str) {
        let wanted = Some((replicas, replicas, probe.to_owned()));
        self.rig.wait(&format!("{wanted:?}"), async || self.state().await == wanted).await;
    }

    async fn say(&self, type_: &str, status: &str, reason: &str) {
        say(&self.rig, &self.host, type_, status, reason).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_held_back_until_onboarded_and_again_until_offboarded() {
    let held = Held::new().await;
    held.operator();
    held.until(1, "/bin/false").await;
    held.say("Onboarding", "True", "Testing").await;
    held.rig.at_rest_soon().await;
    held.until(1, "/bin/false").await;
    held.say("Onboarding", "False", "Succeeded").await;
    held.until(1, "/bin/true").await;

    let deployment = held.deployments().get(&held.name()).await.unwrap();
    let owner = &deployment.owner_references()[0];
    let node = Api::<Node>::all(held.rig.client.clone()).get(held.host.as_str()).await.unwrap();
    assert_eq!((owner.api_version.as_str(), owner.kind.as_str()), ("v1", "Node"));
    assert_eq!(Some(owner.uid.clone()), node.uid());
    let template = deployment.spec.unwrap().template;
    let labels = template.metadata.unwrap().labels.unwrap();
    assert_eq!(labels["node.gardener.cloud/critical-component"], "true");
    assert_eq!(labels["cobaltcore-maintenance-controller"], held.name());
    let pod = template.spec.unwrap();
    assert_eq!(pod.containers[0].image.as_deref(), Some("registry.example/busybox:1"));
    assert_eq!(pod.node_selector.unwrap()["kubernetes.io/hostname"], held.host.as_str());

    held.say("Offboarded", "True", "Offboarded").await;
    held.until(0, "/bin/true").await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changed_is_mended_and_nothing_is_written_at_rest() {
    let held = Held::new().await;
    held.operator();
    held.until(1, "/bin/false").await;
    held.rig.at_rest_soon().await;
    held.rig.at_rest(Duration::from_secs(3600)).await;

    held.budgets().delete(&held.name(), &DeleteParams::default()).await.unwrap();
    held.until(1, "/bin/false").await;
    let open = Patch::Merge(json!({"spec": {"replicas": 0}}));
    held.deployments().patch(&held.name(), &PatchParams::default(), &open).await.unwrap();
    held.until(1, "/bin/false").await;
    // What the cluster itself writes there concerns nobody.
    held.rig.at_rest_soon().await;
    let running = Patch::Merge(json!({"status": {"replicas": 1, "readyReplicas": 0}}));
    held.deployments().patch_status(&held.name(), &PatchParams::default(), &running).await.unwrap();
    held.rig.at_rest(Duration::from_secs(600)).await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_earlier_operators_are_taken_over_and_what_was_wrong_with_them_is_mended() {
    let held = Held::new().await;
    let node = Api::<Node>::all(held.rig.client.clone()).get(held.host.as_str()).await.unwrap();
    let name = held.name();
    let label = json!({"cobaltcore-maintenance-controller": name});
    let earlier = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": label, "ownerReferences": [
            // As they wrote it: a group that is empty, and a slash.
            {"apiVersion": "/v1", "kind": "Node", "name": held.host.as_str(), "uid": node.uid()},
        ]},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": label}},
    });
    let params = PatchParams::apply("maintenance").force();
    held.budgets().patch(&name, &params, &Patch::Apply(&earlier)).await.unwrap();
    held.operator();
    held.until(1, "/bin/false").await;
    held.rig
        .wait("owned by its Node", async || {
            let owners = held.budgets().get(&name).await.unwrap().owner_references().to_vec();
            owners.len() == 1 && owners[0].api_version == "v1"
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_ha_is_waited_for_and_not_for_ever() {
    let held = Held::new().await;
    held.operator();
    held.until(1, "/bin/false").await;
    held.say("Onboarding", "False", "Succeeded").await;
    held.say("HaEnabled", "True", "Succeeded").await;
    held.rig.cluster.terminate(&held.host).await.unwrap();
    held.rig.until(&held.host, "terminating", |hv| hv.is_true("Terminating")).await;
    held.say("Offboarded", "True", "Offboarded").await;
    let since = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(600)).await;
    held.until(1, "/bin/true").await;
    held.until(0, "/bin/true").await;
    let waited = since.elapsed().as_secs();
    assert!((890..=960).contains(&waited), "released after {waited} s");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_written_is_told_once_until_it_can() {
    let held = Held::new().await;
    let applies = Matcher::client("operator").resource("deployments.apps");
    held.rig
        .cluster
        .server()
        .faults()
        .add(Fault::new(applies.verb(Verb::Patch), Effect::Status { code: 403, retry_after: None }));
    held.operator();
    let told = async || {
        let warnings = held.rig.warnings(&held.host).await;
        warnings.iter().filter(|event| event.starts_with("Failed: apply the Deployment kube-system/maint-")).count()
    };
    held.rig.wait("told", async || told().await == 1).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(told().await, 1, "however often it is tried");
    assert!(held.deployments().get_opt(&held.name()).await.unwrap().is_none());
    held.rig.cluster.server().faults().clear();
    held.rig.wait("written", async || held.deployments().get_opt(&held.name()).await.unwrap().is_some()).await;
}
