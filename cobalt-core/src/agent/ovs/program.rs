//! The OVS agent as a program, around any inspector.

use std::{sync::Arc, time::Duration};

use clap::Args as ClapArgs;
use tokio::net::TcpListener;

use super::{
    Config, Demand, OvsAgent,
    endpoints::{EndpointArgs, Endpoints, Published},
    exporter::Exporter,
    figures,
};
use crate::{
    ovs::OvsInspector,
    runtime::{
        args::{AdminArgs, KubeArgs, LogArgs, duration},
        program::{Program, ProgramError},
        shutdown::Phase,
        watch::ObjectKey,
    },
};

const NAME: &str = super::FIELD_MANAGER;

/// A little more than the exporter's own patience, which answers with `ovs_up 0`.
const SCRAPE_LIMIT: Duration = Duration::from_secs(9);

const HEALTH: &str = "What is healthy";
const WRITES: &str = "What is written";

/// The arguments every OVS agent has, whatever its inspector; to be flattened into a program's own.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// Name of the Node this agent runs on, which is the name of its OVSNode too [default: the machine's name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,

    /// Namespace of the OVSNode and of its Lease
    #[arg(long, default_value = "ovn-system", value_name = "NAMESPACE")]
    pub namespace: String,

    /// How long to gather changes before looking and publishing once
    #[arg(long, default_value = "100ms", value_parser = duration, value_name = "DURATION")]
    pub coalesce: Duration,

    /// How often to look at the whole switch without any change; a daemon that hangs makes no event
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub probe_interval: Duration,

    /// The longest time for one look at the switch
    #[arg(long, default_value = "20s", value_parser = duration, value_name = "DURATION")]
    pub look_timeout: Duration,

    /// Pause between two renewals of the agent's Lease, which lasts four times as long
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub heartbeat_interval: Duration,

    /// How long to wait for work in flight when asked to end
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_grace_period: Duration,

    /// The bridge that OVN works with
    #[arg(long, default_value = "br-int", value_name = "BRIDGE", help_heading = HEALTH)]
    pub integration_bridge: String,

    /// Bridges that must be there; one that is missing makes the switch not ready
    #[arg(long, value_delimiter = ',', value_name = "BRIDGE", help_heading = HEALTH)]
    pub required_bridges: Vec<String>,

    /// How many looks in a row, the probe interval apart, make a port an orphan
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = HEALTH, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub orphan_observations: u32,

    /// How long a port whose device lives may be bound to another host: that is what a VM on its way here looks like
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "DURATION", help_heading = HEALTH)]
    pub migration_grace: Duration,

    /// How long the switch may take for a new configuration, and ovn-controller for the latest of the cloud
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION", help_heading = HEALTH)]
    pub settle_time: Duration,

    /// How often to look for stale flows, which takes a dump of all flows
    #[arg(long, default_value = "30m", value_parser = duration, value_name = "DURATION", help_heading = HEALTH)]
    pub stale_flows_interval: Duration,

    /// Look for stale flows on demand only
    #[arg(long, help_heading = HEALTH)]
    pub no_stale_flows_interval: bool,

    /// Shortest time between two writes that are made for counters alone
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION", help_heading = WRITES)]
    pub figures_interval: Duration,

    /// By how much the number of flows must have moved to be written on its own
    #[arg(long, default_value_t = 10, value_name = "PERCENT", help_heading = WRITES, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub figures_flows_percent: u32,

    /// And by how many flows
    #[arg(long, default_value_t = 100, value_name = "FLOWS", help_heading = WRITES)]
    pub figures_flows_least: u32,

    /// How many more packets must have been dropped or broken to be written on their own
    #[arg(long, default_value_t = 1000, value_name = "PACKETS", help_heading = WRITES)]
    pub figures_drops: u32,

    /// How many issues of one type to list one by one; the rest is counted
    #[arg(long, default_value_t = 50, value_name = "N", help_heading = WRITES, value_parser = clap::value_parser!(u16).range(1..=500))]
    pub issues_per_type: u16,

    /// Questions about the switch.
    #[command(flatten)]
    pub endpoints: EndpointArgs,
    /// How to reach the Kubernetes API.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// The admin server.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

impl Args {
    /// The Node's name: as given, or else the machine's.
    pub fn node(&self, machine: &str) -> String {
        self.node_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| machine.to_owned())
    }

    /// How the agent of this Node behaves.
    pub fn config(&self, node: &str) -> Config {
        Config {
            namespace: self.namespace.clone(),
            integration_bridge: self.integration_bridge.clone(),
            required_bridges: self.required_bridges.clone(),
            coalesce: self.coalesce,
            probe: self.probe_interval,
            call_timeout: self.look_timeout,
            observations: self.orphan_observations,
            migration_grace: self.migration_grace,
            settle: self.settle_time,
            stale_flows: (!self.no_stale_flows_interval).then_some(self.stale_flows_interval),
            figures: figures::Limits {
                pause: self.figures_interval,
                flows_percent: self.figures_flows_percent,
                flows_least: self.figures_flows_least,
                drops: self.figures_drops,
            },
            issues_per_type: self.issues_per_type.into(),
            ..Config::new(node)
        }
    }
}

/// A program that has begun, and has no inspector yet.
#[derive(Debug)]
pub struct Started {
    args: Args,
    listener: Option<TcpListener>,
    /// What all programs have: whoever adds to this agent (an endpoint, a metric) adds it here.
    pub program: Program,
    /// How the agent will behave.
    pub config: Config,
}

/// Begins: logging, the admin server, the way to the Kubernetes API.
pub async fn start(args: Args) -> Result<Started, ProgramError> {
    let program = Program::start(NAME, &args.log, &args.admin, &args.kube).await?;
    let listener = args.endpoints.listen().await?;
    let config = args.config(&args.node(&program.host));
    Ok(Started { args, listener, program, config })
}

impl Started {
    /// The Node's name.
    pub fn node(&self) -> &str {
        &self.config.node_name
    }

    /// Runs until SIGTERM or SIGINT.
    pub async fn run(self, inspector: Arc<dyn OvsInspector>) -> Result<(), ProgramError> {
        let Self { args, listener, program, config } = self;
        tracing::info!(node = config.node_name, namespace = config.namespace, "watching the switch of this host");
        let mut agent = OvsAgent::new(program.client.clone(), config.clone(), inspector.clone())
            .clock(program.clock.clone())
            .metrics(program.metrics.clone())
            .status(program.status.clone())
            .recorder(program.recorder.clone())
            // Half of it, so that what did not end in time is named before the time of the whole program is up.
            .grace(args.shutdown_grace_period / 2)
            .heartbeat(args.heartbeat_interval);
        if let Some(listener) = listener {
            let demand = agent.demand();
            agent =
                agent.troubleshooting(endpoints(args.endpoints, listener, &program, config, inspector.clone(), demand));
        }
        let exporter = Exporter::new(inspector, &program.metrics).verdict(agent.verdict());
        program.metrics.source("ovs", SCRAPE_LIMIT, exporter);
        let work = program.life.phase(Phase::Work);
        work.spawn("ovs agent", agent.run(work.stopping()));
        program.until_stopped(args.shutdown_grace_period).await
    }
}

/// Starts the troubleshooting endpoints. They wait for the address of the host; the agent does not wait for them.
fn endpoints(
    args: EndpointArgs,
    listener: TcpListener,
    program: &Program,
    config: Config,
    inspector: Arc<dyn OvsInspector>,
    demand: Demand,
) -> Published {
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "troubleshooting endpoints listen");
    }
    let object = ObjectKey::namespaced(&config.namespace, &config.node_name);
    let node = config.node_name.clone();
    let endpoints = Endpoints::new(program.client.clone(), object, inspector)
        .config(config)
        .demand(demand)
        .recorder(program.recorder.clone())
        .clock(program.clock.clone())
        .metrics(program.metrics.clone());
    let published = endpoints.published();
    let work = program.life.phase(Phase::Work);
    let (client, stop) = (program.client.clone(), work.stopping());
    work.spawn("troubleshooting endpoints", async move {
        let address = tokio::select! {
            () = stop.triggered() => return Ok(()),
            address = args.address(&client, &node) => address,
        };
        args.apply(endpoints, address).serve(listener, address, stop).await
    });
    published
}
