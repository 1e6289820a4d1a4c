//! The operator as a program: its arguments, and leader election around it.

use std::{sync::Arc, time::Duration};

use clap::Parser;

use super::Operator;
use crate::runtime::{
    args::{AdminArgs, KubeArgs, LeaderArgs, LogArgs, duration},
    lease::{KubeLeases, LeaseConfig, LeaseElector, names},
    program::{Program, ProgramError},
    shutdown::Phase,
};

const NAME: &str = "cobalt-operator";

/// Creates a Hypervisor for every hypervisor Node, keeps it in step, and says whether it is ready.
///
/// A Node is a hypervisor if it has the label nova.openstack.cloud.sap/virt-driver.
#[derive(Parser, Clone, Debug)]
#[command(name = NAME, version)]
pub struct Args {
    /// How many Hypervisors to work on at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,

    /// Namespace of the OVSNodes, whose health becomes a condition of the Hypervisors; empty for none
    #[arg(long, default_value = "ovn-system", value_name = "NAMESPACE")]
    pub ovs_namespace: String,

    /// How long to wait for work in flight when asked to end
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_grace_period: Duration,

    /// How to reach the Kubernetes API.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Leader election.
    #[command(flatten)]
    pub leader: LeaderArgs,
    /// The admin server.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Runs the program until SIGTERM or SIGINT.
pub async fn run(args: Args) -> Result<(), ProgramError> {
    let program = Program::start(NAME, &args.log, &args.admin, &args.kube).await?;
    let operator = Operator::new(program.client.clone())
        .workers(args.workers.into())
        .ovs_namespace(Some(args.ovs_namespace.clone()).filter(|namespace| !namespace.is_empty()))
        .clock(program.clock.clone())
        .metrics(program.metrics.clone())
        .status(program.status.clone())
        .recorder(program.recorder.clone());
    let work = program.life.phase(Phase::Work).clone();
    if args.leader.leader_elect {
        let config = LeaseConfig::new(&args.leader, names::OPERATOR, &program.namespace, &program.host)?;
        let store = KubeLeases::new(program.client.clone(), &config.namespace, &config.name, NAME);
        let elector = LeaseElector::new(config, Arc::new(store), program.clock.clone(), program.metrics.clone());
        elector.show(&program.status);
        let lease = program.life.phase(Phase::Lease);
        let campaign = elector.run(lease.stopping(), move |leadership| {
            let stop = work.stopping().or(&leadership.stopping());
            work.track(operator.while_allowed(move || leadership.is_current()).run(stop))
        });
        lease.spawn("leader election", campaign);
    } else {
        work.spawn("operator", operator.run(work.stopping()));
    }
    program.until_stopped(args.shutdown_grace_period).await
}
