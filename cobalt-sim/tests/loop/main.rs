//! The first full loop, whole programs in one process: Nodes appear, Hypervisors are made, agents report, `Ready` is
//! computed. Time is virtual: a wait of an hour costs nothing, and a test that waits in vain fails at once.
#![allow(clippy::unwrap_used)]

mod actions;
mod agent;
mod bad_input;
mod certificates;
mod faults;
mod heartbeat;
mod incidents;
mod migrations;
mod operator;
mod ovs;
mod ovs_health;
mod ovs_unknown;
mod reboot;
mod takeover;
mod update;

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{ApiServer, Counts, Verb};
use cobalt_core::{
    agent::{Config, NodeAgent},
    api::{Condition, Hypervisor, crd, labels},
    ids::HostName,
    operator::{Operator, Stage, default_stages},
    runtime::{client, clock::Clock, metrics::Metrics, shutdown::Shutdown, state::Status},
};
use cobalt_sim::Region;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// Longer than anything here takes, in virtual time.
const LONG: Duration = Duration::from_secs(600);

/// A server with our CRDs, and programs that end with it.
struct Rig {
    server: ApiServer,
    client: Client,
    stop: Shutdown,
    status: Status,
}

impl Rig {
    async fn new() -> Self {
        Self::with_crds(crd::all().iter().map(|crd| serde_json::to_value(crd).unwrap())).await
    }

    async fn with_crds(crds: impl Iterator<Item = Value>) -> Self {
        let server = ApiServer::builder().seed(1).start();
        let client = Client::new(server.service("test"), "default");
        for crd in crds {
            let definitions: Api<kube::core::DynamicObject> = Api::all_with(
                client.clone(),
                &kube::core::ApiResource::erase::<
                    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
                >(&()),
            );
            definitions.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
        }
        server.settle().await;
        Self { client, stop: Shutdown::new(), status: Status::new(clock()), server }
    }

    fn operator(&self) {
        self.operator_until(self.stop.clone());
    }

    fn operator_until(&self, stop: Shutdown) {
        self.operator_with(default_stages(), stop);
    }

    fn operator_with(&self, stages: Vec<Arc<dyn Stage>>, stop: Shutdown) {
        let operator = Operator::new(self.program("operator")).clock(clock()).status(self.status.clone());
        tokio::spawn(operator.stages(stages).run(stop));
    }

    /// A client as programs have it: no answer is waited for without end.
    fn program(&self, name: &str) -> Client {
        let limits = client::limits(Duration::from_secs(20), Arc::new(Metrics::new()));
        Client::new(tower::Layer::layer(&limits, self.server.service(name)), "default")
    }

    fn agent(&self, region: &Region, host: &HostName) {
        self.agent_until(region, host, self.stop.clone());
    }

    fn agent_until(&self, region: &Region, host: &HostName, stop: Shutdown) {
        self.agent_with(region, host, stop, |agent| agent);
    }

    /// An agent with more duties than to publish its status.
    fn agent_with(&self, region: &Region, host: &HostName, stop: Shutdown, with: impl FnOnce(NodeAgent) -> NodeAgent) {
        let client = self.program("agent");
        let backend = Arc::new(region.backend(host).unwrap());
        let system = Arc::new(region.host_system(host).unwrap());
        let agent = NodeAgent::new(client, Config::new(host.as_str()), backend, system).clock(clock());
        tokio::spawn(with(agent).run(stop));
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }

    async fn add_node(&self, name: &str, labels: Value, annotations: Value) {
        let mut labels = labels;
        labels[labels::VIRT_DRIVER] = json!("kvm");
        let node = json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}});
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        self.patch_node_status(name, json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]})).await;
    }

    async fn patch_node(&self, name: &str, patch: Value) {
        self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn patch_node_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.nodes().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the Hypervisor satisfies the test; fails with its last state otherwise.
    async fn until(&self, name: &str, what: &str, test: impl Fn(&Hypervisor) -> bool) -> Hypervisor {
        let deadline = tokio::time::Instant::now() + LONG;
        loop {
            let seen = self.hypervisors().get_opt(name).await.unwrap();
            match seen {
                Some(found) if test(&found) => return found,
                last if tokio::time::Instant::now() > deadline => panic!("{name}: never {what}; last: {last:#?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Lets everything come to rest: no write by anybody for a while.
    async fn rest(&self) {
        loop {
            let before = self.server.revision();
            // Longer than the time limit of a request that is never answered, and than any pause after a failure here.
            tokio::time::sleep(Duration::from_secs(30)).await;
            if self.server.revision() == before {
                return;
            }
        }
    }

    /// An hour in which nothing happens: watches are renewed as the server ends them (every five minutes or so, each
    /// once), and nothing else is asked or written.
    async fn an_hour_of_rest(&self, clients: &[(&str, u64)]) {
        let before = self.server.revision();
        self.server.counters().reset();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(self.server.revision(), before, "nothing in the whole cluster changed");
        for (client, watches) in clients {
            assert_eq!(self.counts(client).requests, 0, "{client}");
            let of = |verb| self.server.counters().sum(|key| key.client == *client && key.verb == verb).requests;
            assert_eq!(of(Verb::List), 0, "{client} lists nothing anew");
            assert!(of(Verb::Watch) <= watches * 15, "{client} renews {} watches in an hour", of(Verb::Watch));
        }
    }

    /// Requests and writes of a client, watches left out.
    fn counts(&self, client: &str) -> Counts {
        self.server.counters().sum(|key| key.client == client && !matches!(key.verb, Verb::Watch | Verb::List))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.trigger();
    }
}

fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn ready(hypervisor: &Hypervisor) -> Option<&Condition> {
    hypervisor.condition("Ready")
}

fn reason<'a>(hypervisor: &'a Hypervisor, type_: &str) -> Option<&'a str> {
    hypervisor.condition(type_).map(|condition| condition.reason.as_str())
}
