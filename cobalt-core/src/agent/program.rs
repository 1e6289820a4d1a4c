//! The node agent as a program, around any backend.

mod earlier;
mod libvirt;

use std::{sync::Arc, time::Duration};

use clap::{Args as ClapArgs, ValueEnum};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};

pub use self::{
    earlier::EarlierArgs,
    libvirt::{LibvirtArgs, LibvirtDriver},
};
use super::{
    CephArgs, CertificateArgs, Config, HeartbeatArgs, MigrationArgs, NodeAgent, RebootArgs, UpdateArgs,
    exporter::{Exporter, Names},
};
use crate::{
    api::labels,
    backend::HypervisorBackend,
    host::HostSystem,
    runtime::{
        args::{AdminArgs, KubeArgs, LogArgs, duration},
        program::{Program, ProgramError},
        shutdown::{Chain, Phase},
    },
};

const NAME: &str = "cobalt-node-agent";

/// A little more than the exporter's own patience, which answers with `libvirt_up 0`.
const SCRAPE_LIMIT: Duration = Duration::from_secs(9);

/// The arguments every node agent has, whatever its backend; to be flattened into a program's own.
// Clap names a group after each struct, and the program's own is likely called `Args` too.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// Name of the Node this agent runs on, which is the name of its Hypervisor too [default: the machine's name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: Option<String>,

    /// The same, by the name it has in the environment of earlier agents
    #[arg(long, env = "HOSTNAME", value_name = "NAME", hide_env_values = true)]
    pub hostname: Option<String>,

    /// Service units to report as conditions
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = unit,
        value_name = "UNIT",
        default_value = "openvswitch-switch.service"
    )]
    pub units: Vec<String>,

    /// Service units of libvirt to report as conditions; they are alternatives, and those a host lacks are left out
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = unit,
        value_name = "UNIT",
        default_value = "libvirtd.service,virtqemud.service,virtchd.service"
    )]
    pub libvirt_units: Vec<String>,

    /// How long to gather events before publishing once
    #[arg(long, default_value = "100ms", value_parser = duration, value_name = "DURATION")]
    pub coalesce: Duration,

    /// How often to read everything again, in case an event was lost
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub resync: Duration,

    /// The longest time for one question to the host
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub call_timeout: Duration,

    /// How long an incident of a VM (crash, I/O error, watchdog, reboot) is shown after it is over
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub incident_quiet: Duration,

    /// Spelling of the metrics of VMs: that of the documents, that of the exporters in the distributions, both, or none
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SPELLING",
        default_value = "documented,distributions"
    )]
    pub libvirt_metrics: Vec<MetricNames>,

    /// How long to wait for work in flight when asked to end
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_grace_period: Duration,

    /// Where libvirt is.
    #[command(flatten)]
    pub libvirt: LibvirtArgs,
    /// The sign of life.
    #[command(flatten)]
    pub heartbeat: HeartbeatArgs,
    /// Migrations as objects.
    #[command(flatten)]
    pub migration: MigrationArgs,
    /// Shutdowns of the host.
    #[command(flatten)]
    pub reboot: RebootArgs,
    /// Updates of the operating system.
    #[command(flatten)]
    pub update: UpdateArgs,
    /// Certificates of libvirt.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// The way to the storage.
    #[command(flatten)]
    pub ceph: CephArgs,
    /// How to reach the Kubernetes API.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// The admin server.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// What earlier agents were told.
    #[command(flatten)]
    pub earlier: EarlierArgs,
}

/// A spelling of the metrics of VMs.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricNames {
    /// `libvirt_domain_block_read_bytes_total` and the like.
    Documented,
    /// `libvirt_domain_block_stats_read_bytes_total` and the like.
    Distributions,
    /// No metrics of VMs.
    None,
}

/// A unit's name as it can stand as the type of a condition: the API server would refuse others, and with them every
/// status of this host.
fn unit(name: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if name.len() <= 316 && name.chars().all(inner) && outer(name.chars().next()) && outer(name.chars().last()) {
        return Ok(name.to_owned());
    }
    Err("a unit becomes the type of a condition: only letters, digits, '-', '_' and '.', no '@'".to_owned())
}

impl Args {
    /// The Node's name: as given, or else the machine's.
    pub fn node(&self, machine: &str) -> String {
        let given = [&self.node_name, &self.hostname].into_iter().flatten().find(|name| !name.is_empty());
        given.cloned().unwrap_or_else(|| machine.to_owned())
    }

    /// Where libvirt is, with everything that is known about this node's address.
    pub fn libvirt(&self) -> LibvirtArgs {
        self.libvirt.or_address(self.certificate.address())
    }

    /// How the agent of this Node behaves with libvirt at this URI.
    pub fn config(&self, node: &str, uri: Option<&str>) -> Config {
        let mut config = Config::new(node);
        config.units.clone_from(&self.units);
        config.libvirt_units.clone_from(&self.libvirt_units);
        config.insecure = uri.and_then(|uri| self.libvirt().insecure(uri, node));
        config.coalesce = self.coalesce;
        config.resync = self.resync;
        config.call_timeout = self.call_timeout;
        config.incidents.quiet = self.incident_quiet;
        config
    }

    fn metric_names(&self) -> Option<Names> {
        let has = |names: MetricNames| self.libvirt_metrics.contains(&names);
        (!has(MetricNames::None))
            .then(|| Names { documented: has(MetricNames::Documented), distributions: has(MetricNames::Distributions) })
    }
}

/// A program that has begun, and has no backend yet.
#[derive(Debug)]
pub struct Started {
    args: Args,
    program: Program,
    node: String,
}

/// Begins: logging, the admin server, the way to the Kubernetes API.
pub async fn start(args: Args) -> Result<Started, ProgramError> {
    let program = Program::start(NAME, &args.earlier.log(&args.log), &args.admin, &args.kube).await?;
    args.earlier.common.warn();
    let node = args.node(&program.host);
    Ok(Started { args, program, node })
}

impl Started {
    /// The Node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Where libvirt is. The Node is asked for its virt-driver label if that makes a difference; an agent that cannot or
    /// may not read its Node goes on without.
    pub async fn libvirt_uri(&self) -> String {
        let mut label = None;
        if self.args.libvirt.wants_label() {
            match Api::<Node>::all(self.program.client.clone()).get_metadata_opt(&self.node).await {
                Ok(node) => label = node.and_then(|node| node.labels().get(labels::VIRT_DRIVER).cloned()),
                Err(error) => tracing::warn!(
                    node = self.node, label = labels::VIRT_DRIVER, error = %Chain(&error),
                    "could not read the Node's virt-driver label, --driver decides"
                ),
            }
        }
        self.args.libvirt().uri(label.as_deref())
    }

    /// Runs until SIGTERM or SIGINT. `uri` is where libvirt is, if the backend is libvirt's.
    pub async fn run(
        self,
        backend: Arc<dyn HypervisorBackend>,
        host: Arc<dyn HostSystem>,
        uri: Option<&str>,
    ) -> Result<(), ProgramError> {
        let Self { args, program, node } = self;
        let config = args.config(&node, uri);
        let namespace = program.namespace.clone();
        if let Some(why) = &config.insecure {
            tracing::warn!("{why}");
        }
        if let Some(names) = args.metric_names() {
            let exporter = Exporter::new(backend.clone(), &program.metrics).names(names);
            program.metrics.source("libvirt", SCRAPE_LIMIT, exporter);
        }
        tracing::info!(node, libvirt = uri.unwrap_or("none"), driver = backend.driver(), "watching this host");
        let agent = NodeAgent::new(program.client.clone(), config, backend, host)
            .clock(program.clock.clone())
            .metrics(program.metrics.clone())
            .status(program.status.clone())
            .recorder(program.recorder.clone())
            // Half of it, so that what did not end in time is named before the time of the whole program is up.
            .grace(args.shutdown_grace_period / 2)
            .part(args.heartbeat.part(&namespace))
            .parts(args.migration.part(&node, &namespace))
            .parts(args.reboot.part())
            .parts(args.update.part())
            .part(args.certificate.part(&namespace))
            .part(args.ceph.part());
        let work = program.life.phase(Phase::Work);
        work.spawn("node agent", agent.run(work.stopping()));
        program.until_stopped(args.shutdown_grace_period).await
    }
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn a_unit_that_cannot_be_a_condition_is_refused_at_the_start() {
        assert!(unit("openvswitch-switch.service").is_ok());
        for bad in ["", "getty@tty1.service", ".service", "a b"] {
            assert!(unit(bad).is_err(), "{bad:?}");
        }
    }
}
