//! The operator on a whole simulated region: Nodes, Nova, Placement and agents, in one process and in virtual time.
#![allow(clippy::unwrap_used)]

mod agent_pods;
mod aggregates;
mod certificates;
mod drain;
mod drain_metrics;
mod gardener;
mod heartbeats;
mod leaving;
mod maintenance;
mod observing;
mod offboarding;
mod onboarding;
mod partition;
mod plan;
mod play;
mod rbd;
mod traits;

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::Verb;
use cobalt_core::{
    agent::{Config, NodeAgent},
    api::{Eviction, Hypervisor},
    ids::HostName,
    nova::{ComputeService, NovaClient, view::ViewOptions},
    operator::{Cloud, Operator, Settings},
    runtime::{
        client,
        clock::Clock,
        events::{self},
        metrics::Metrics,
        shutdown::Shutdown,
        state::Status,
    },
};
use cobalt_sim::{Cluster, Region, SimNova, SimPlacement};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// Longer than anything here takes, in virtual time.
const LONG: Duration = Duration::from_secs(3600);

/// A region with its cluster, and programs that end with it.
struct Rig {
    region: Region,
    cluster: Cluster,
    client: Client,
    nova: SimNova,
    placement: SimPlacement,
    stop: Shutdown,
}

impl Rig {
    /// A region as built; its hosts have no Nodes yet.
    async fn new(region: Region) -> Self {
        let cluster = region.cluster().await.unwrap();
        let client = cluster.client("test");
        let (nova, placement) = (region.nova(), region.placement());
        Self { client, nova, placement, cluster, region, stop: Shutdown::new() }
    }

    fn clock(&self) -> Clock {
        Clock::starting_at(self.region.world().now())
    }

    /// A client as programs have it: no answer is waited for without end.
    fn program(&self, name: &str) -> Client {
        let limits = client::limits(Duration::from_secs(20), Arc::new(Metrics::new()));
        Client::new(tower::Layer::layer(&limits, self.cluster.server().service(name)), "default")
    }

    /// The seams to the region's cloud, and a view of it.
    fn cloud(&self) -> Cloud {
        Cloud::new(Arc::new(self.nova.clone()), Arc::new(self.placement.clone()), ViewOptions::default())
    }

    /// Starts the operator with these settings.
    fn operator_until(&self, settings: Settings, stop: Shutdown) {
        tokio::spawn(self.new_operator(settings).run(stop));
    }

    /// An operator that records its Events too, not started yet.
    fn new_operator(&self, settings: Settings) -> Operator {
        let (client, metrics) = (self.program("operator"), Arc::new(Metrics::new()));
        let (recorder, publisher) =
            events::recorder(self.program("events"), "cobalt-operator", "test", self.clock(), metrics.clone());
        tokio::spawn(publisher.run(self.stop.clone()));
        Operator::new(client)
            .clock(self.clock())
            .metrics(metrics)
            .status(Status::new(self.clock()))
            .recorder(recorder)
            .cloud(self.cloud(), settings)
    }

    /// Starts the node agent of a host.
    fn agent(&self, host: &HostName) {
        let backend = Arc::new(self.region.backend(host).unwrap());
        let system = Arc::new(self.region.host_system(host).unwrap());
        let agent = NodeAgent::new(self.program("agent"), Config::new(host.as_str()), backend, system);
        tokio::spawn(agent.clock(self.clock()).run(self.stop.clone()));
    }

    fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.client.clone())
    }

    fn evictions(&self) -> Api<Eviction> {
        Api::all(self.client.clone())
    }

    async fn hypervisor(&self, host: &HostName) -> Hypervisor {
        self.hypervisors().get(host.as_str()).await.unwrap()
    }

    /// The compute service of a host, by Nova itself.
    async fn service(&self, host: &HostName) -> ComputeService {
        self.nova.service_on(host).await.unwrap()
    }

    /// The names of the aggregates a host is in, by Nova itself, ordered.
    async fn aggregates_of(&self, host: &HostName) -> Vec<String> {
        let all = self.nova.aggregates().await.unwrap();
        all.into_iter().filter(|aggregate| aggregate.hosts.contains(host)).map(|aggregate| aggregate.name).collect()
    }

    /// Changes a Hypervisor's spec as a person does.
    async fn patch(&self, host: &HostName, spec: Value) {
        let params = PatchParams { field_manager: Some("person".into()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": spec}));
        self.hypervisors().patch(host.as_str(), &params, &patch).await.unwrap();
    }

    /// Waits until the Hypervisor satisfies the test; fails with its last state otherwise.
    async fn until(&self, host: &HostName, what: &str, test: impl Fn(&Hypervisor) -> bool) -> Hypervisor {
        let deadline = tokio::time::Instant::now() + LONG;
        loop {
            let seen = self.hypervisors().get_opt(host.as_str()).await.unwrap();
            match seen {
                Some(found) if test(&found) => return found,
                last if tokio::time::Instant::now() > deadline => panic!("{host}: never {what}; last: {last:#?}"),
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Nothing is asked of the API server or written to it by the operator for this long, but for its watches.
    async fn at_rest(&self, time: Duration) {
        self.cluster.server().counters().reset();
        tokio::time::sleep(time).await;
        let asked = self.cluster.server().counters().all();
        let asked: Vec<_> =
            asked.iter().filter(|(key, _)| key.client == "operator" && key.verb != Verb::Watch).collect();
        assert!(asked.is_empty(), "{asked:?}");
    }

    /// Waits until the operator has nothing left to do for a minute.
    async fn at_rest_soon(&self) {
        let asked = || {
            let counters = self.cluster.server().counters();
            counters.sum(|key| key.client == "operator" && key.verb != Verb::Watch).requests
        };
        let mut before = None;
        while before != Some(asked()) {
            before = Some(asked());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }

    /// Waits until something else holds.
    async fn wait(&self, what: &str, test: impl AsyncFn() -> bool) {
        let deadline = tokio::time::Instant::now() + LONG;
        while !test().await {
            assert!(tokio::time::Instant::now() < deadline, "never {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.trigger();
    }
}

/// The sum of the samples whose line begins so.
fn total(metrics: &Metrics, beginning: &str) -> u64 {
    let page = metrics.encode();
    let values = page.lines().filter(|line| line.starts_with(beginning)).filter_map(|line| line.rsplit_once(' '));
    values.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

fn reason<'a>(hypervisor: &'a Hypervisor, type_: &str) -> Option<&'a str> {
    hypervisor.condition(type_).map(|condition| condition.reason.as_str())
}

fn message<'a>(hypervisor: &'a Hypervisor, type_: &str) -> Option<&'a str> {
    hypervisor.condition(type_).map(|condition| condition.message.as_str())
}

/// Sets a condition as somebody else than the operator does.
async fn say(rig: &Rig, host: &HostName, type_: &str, status: &str, reason: &str) {
    let now = rig.clock().now().to_string();
    let condition = json!({
        "type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": now,
    });
    let body = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "status": {"numInstances": 0, "conditions": [condition]},
    });
    // One manager each, so that one word does not take back another.
    let params = PatchParams::apply(&format!("somebody-{}", type_.to_lowercase())).force();
    rig.hypervisors().patch_status(host.as_str(), &params, &Patch::Apply(&body)).await.unwrap();
}
