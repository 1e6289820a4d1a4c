//! What the story plays on: a simulated region, its API server, and our programs, unmodified and in real time.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cobalt_apiserver::Counts;
use cobalt_core::{
    agent::{Config, NodeAgent},
    api::labels,
    ids::HostName,
    jiff::Timestamp,
    nova::view::ViewOptions,
    operator::{Cloud, OnboardingSettings, Operator, Settings, SmokeTest, SmokeTestSettings},
    runtime::{
        client::limits,
        clock::Clock,
        events::{self, Recorder},
        metrics::Metrics,
        shutdown::{Lifecycle, Phase, Shutdown},
        state::Status,
    },
};
use cobalt_sim::{Cluster, Region, SimNova, SimPlacement, Timing};
use kube::{Client, client::ClientBuilder};
use tokio::net::TcpListener;

use super::{Args, DemoError};

/// The name the operator is known by to the API server.
pub(super) const OPERATOR: &str = "cobalt-operator";
/// What the names of the agents begin with there.
pub(super) const AGENT: &str = "cobalt-node-agent";
/// The name the demo is known by there, and its field manager.
pub(super) const DEMO: &str = "cobaltctl-demo";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Stage {
    /// The hosts and the VMs.
    pub(super) region: Region,
    /// The API server and the kubelets.
    pub(super) cluster: Cluster,
    life: Lifecycle,
    clock: Clock,
    nova: SimNova,
    placement: SimPlacement,
    agents: Mutex<BTreeMap<HostName, Shutdown>>,
}

impl Stage {
    /// Builds the hosts and the API server. None of our programs runs yet, and the cluster has no Nodes.
    pub(super) async fn set(args: &Args) -> Result<Self, DemoError> {
        let (nodes, vms) = (usize::from(args.nodes), usize::from(args.vms));
        let region = Region::builder()
            .hosts(nodes)
            .vms_per_host(vms / nodes)
            .seed(args.seed)
            .zones(["zone-a", "zone-b"])
            .timing(timing())
            .starting_at(Timestamp::now())
            .build();
        for host in region.hosts().iter().take(vms % nodes) {
            region.boot(host, "2")?;
        }
        region.add_aggregate(labels::TEST_AGGREGATE, None);
        region.world().add_image("cirros-kvm");
        let cluster = region.cluster().await?;
        Ok(Self {
            nova: region.nova(),
            placement: region.placement(),
            region,
            cluster,
            life: Lifecycle::new(Shutdown::new()),
            clock: Clock::system(),
            agents: Mutex::default(),
        })
    }

    /// A client by that name, in this process.
    pub(super) fn client(&self, name: &str) -> Client {
        self.counting_client(name, Arc::new(Metrics::new()))
    }

    fn counting_client(&self, name: &str, metrics: Arc<Metrics>) -> Client {
        ClientBuilder::new(self.cluster.server().service(name), "default")
            .with_layer(&limits(REQUEST_TIMEOUT, metrics))
            .build()
    }

    /// What ends everything, and in which order.
    pub(super) fn life(&self) -> &Lifecycle {
        &self.life
    }

    /// Serves the API on a socket as well, and answers with a kubeconfig for it.
    pub(super) fn serve(&self, listener: TcpListener, address: SocketAddr) -> String {
        let (cluster, group) = (self.cluster.clone(), self.life.phase(Phase::Admin));
        let stop = group.stopping();
        group.spawn("API server", async move { cluster.serve(listener, async move { stop.triggered().await }).await });
        self.cluster.server().kubeconfig(address)
    }

    /// Starts the operator.
    pub(super) fn start_operator(&self) {
        let metrics = Arc::new(Metrics::new());
        let client = self.counting_client(OPERATOR, metrics.clone());
        let recorder = self.recorder(&client, OPERATOR, OPERATOR, metrics.clone());
        let operator = Operator::new(client)
            .clock(self.clock.clone())
            .metrics(metrics)
            .status(Status::new(self.clock.clone()))
            .recorder(recorder)
            .cloud(self.cloud(), self.settings());
        let work = self.life.phase(Phase::Work);
        work.spawn("operator", operator.run(work.stopping()));
    }

    /// The region's cloud behind the seams. It is looked at more often than one would in a real region: the story is short.
    fn cloud(&self) -> Cloud {
        let options = ViewOptions {
            interval: Duration::from_secs(1),
            trait_interval: Duration::from_millis(20),
            ..ViewOptions::default()
        };
        Cloud::new(Arc::new(self.nova.clone()), Arc::new(self.placement.clone()), options)
    }

    /// The settings of the operator: a smoke test that does not wait for long, four servers at a time in a drain, and
    /// little patience with what was deleted.
    fn settings(&self) -> Settings {
        let smoke = SmokeTestSettings {
            poll_interval: Duration::from_millis(250),
            retry_interval: Duration::from_secs(1),
            ..SmokeTestSettings::default()
        };
        let bed = Arc::new(self.region.test_bed());
        let mut settings = Settings::default();
        settings.onboarding =
            OnboardingSettings::default().tested_by(Some(SmokeTest::new(Arc::new(self.nova.clone()), bed, smoke)));
        settings.drain.concurrency = 4;
        settings.drain.poll = Duration::from_millis(300);
        settings.offboarding.deletion_grace = Duration::from_secs(2);
        settings
    }

    /// How often Nova and Placement were asked something.
    pub(super) fn cloud_calls(&self) -> u64 {
        let (nova, placement) = (self.nova.faults().all_calls(), self.placement.faults().all_calls());
        nova.values().chain(placement.values()).sum()
    }

    /// Starts the node agent of a host.
    pub(super) fn start_agent(&self, host: &HostName) -> Result<(), DemoError> {
        let name = format!("{AGENT}@{host}");
        let metrics = Arc::new(Metrics::new());
        let client = self.counting_client(&name, metrics.clone());
        let recorder = self.recorder(&client, AGENT, &name, metrics.clone());
        let backend = Arc::new(self.region.backend(host)?);
        let system = Arc::new(self.region.host_system(host)?);
        let agent = NodeAgent::new(client, Config::new(host.to_string()), backend, system)
            .clock(self.clock.clone())
            .metrics(metrics)
            .recorder(recorder);
        let work = self.life.phase(Phase::Work);
        let stop = work.stopping().child();
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).insert(host.clone(), stop.clone());
        work.spawn("node agent", agent.run(stop));
        Ok(())
    }

    /// Ends the node agent of a host, as it ends with its Node.
    pub(super) fn stop_agent(&self, host: &HostName) {
        if let Some(stop) = self.agents.lock().unwrap_or_else(PoisonError::into_inner).remove(host) {
            stop.trigger();
        }
    }

    fn recorder(&self, client: &Client, program: &'static str, instance: &str, metrics: Arc<Metrics>) -> Recorder {
        let (recorder, publisher) = events::recorder(client.clone(), program, instance, self.clock.clone(), metrics);
        let group = self.life.phase(Phase::Events);
        group.spawn("events", publisher.run(group.stopping()));
        recorder
    }

    /// What our programs have asked for and changed so far, as the API server counted it.
    pub(super) fn traffic(&self) -> Traffic {
        let counters = self.cluster.server().counters();
        let of = |program: &str, resource: Option<&str>| {
            counters
                .sum(|key| key.client.starts_with(program) && resource.is_none_or(|resource| key.resource == resource))
        };
        let hypervisors = Some("hypervisors.kvm.cloud.sap");
        Traffic {
            operator: of(OPERATOR, None),
            agents: of(AGENT, None),
            operator_writes: of(OPERATOR, hypervisors).writes,
            agent_writes: of(AGENT, hypervisors).writes,
            events: counters
                .sum(|key| key.client.starts_with("cobalt-") && key.resource == "events.events.k8s.io")
                .writes,
        }
    }

    /// Ends everything in order.
    pub(super) async fn strike(self) -> Result<(), DemoError> {
        self.life.shutdown().trigger();
        Ok(self.life.run_until_stopped(Duration::from_secs(5)).await?)
    }
}

/// Requests as the API server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Everything the operator asked for.
    pub(super) operator: Counts,
    /// Everything the agents asked for.
    pub(super) agents: Counts,
    /// Changes of Hypervisors by the operator.
    pub(super) operator_writes: u64,
    /// Changes of Hypervisors by the agents.
    pub(super) agent_writes: u64,
    /// Changes of Events by either.
    pub(super) events: u64,
}

impl Traffic {
    /// Requests for anything by anybody of ours.
    pub(super) fn requests(&self) -> u64 {
        self.operator.requests + self.agents.requests
    }

    /// Changes of anything by anybody of ours.
    pub(super) fn writes(&self) -> u64 {
        self.operator.writes + self.agents.writes
    }
}

/// A world in which everything goes faster than in reality, so that the story does not bore.
fn timing() -> Timing {
    Timing {
        service_down: Duration::from_secs(3),
        compute_periodic: Duration::from_secs(5),
        build: Duration::from_millis(800),
        delete: Duration::from_millis(300),
        guest_boot: Duration::from_millis(800),
        prepare: Duration::from_millis(200),
        copy_per_gib: Duration::from_millis(60),
        finish: Duration::from_millis(150),
        ..Timing::default()
    }
}
