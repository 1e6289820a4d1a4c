//! The node agent as a program, around any backend.

use std::{sync::Arc, time::Duration};

use clap::Args as ClapArgs;

use super::{Config, NodeAgent};
use crate::{
    backend::HypervisorBackend,
    host::HostSystem,
    runtime::{
        args::{AdminArgs, KubeArgs, LogArgs, duration},
        program::{Program, ProgramError},
        shutdown::Phase,
    },
};

const NAME: &str = "cobalt-node-agent";

/// The arguments every node agent has, whatever its backend; to be flattened into a program's own.
// Clap names a group after each struct, and the program's own is likely called `Args` too.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// Name of the Node this agent runs on, which is the name of its Hypervisor too
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,

    /// Service units to report as conditions
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = unit,
        value_name = "UNIT",
        default_value = "libvirtd.service,openvswitch-switch.service"
    )]
    pub units: Vec<String>,

    /// How long to gather events before publishing once
    #[arg(long, default_value = "100ms", value_parser = duration, value_name = "DURATION")]
    pub coalesce: Duration,

    /// How often to read everything again, in case an event was lost
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub resync: Duration,

    /// The longest time for one question to the host
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub call_timeout: Duration,

    /// How long to wait for work in flight when asked to end
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_grace_period: Duration,

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

/// Runs the program until SIGTERM or SIGINT.
pub async fn run(
    args: Args,
    backend: Arc<dyn HypervisorBackend>,
    host: Arc<dyn HostSystem>,
) -> Result<(), ProgramError> {
    let program = Program::start(NAME, &args.log, &args.admin, &args.kube).await?;
    let config = Config {
        node_name: args.node_name,
        units: args.units,
        coalesce: args.coalesce,
        resync: args.resync,
        call_timeout: args.call_timeout,
    };
    let agent = NodeAgent::new(program.client.clone(), config, backend, host)
        .clock(program.clock.clone())
        .metrics(program.metrics.clone())
        .status(program.status.clone())
        .recorder(program.recorder.clone());
    let work = program.life.phase(Phase::Work);
    work.spawn("node agent", agent.run(work.stopping()));
    program.until_stopped(args.shutdown_grace_period).await
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
