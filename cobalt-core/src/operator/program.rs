//! The operator as a program: its arguments, and leader election around it.

use std::{sync::Arc, time::Duration};

use clap::Parser;

use super::{
    AgentPodsSettings, AggregatesArgs, CertificateArgs, Cloud, CloudCalls, GardenerArgs, HaArgs, HypervisorSync,
    OffboardingArgs, OnboardingArgs, Operator, Released, Selector, Settings, SmokeTest, SmokeTestArgs,
    eviction::DrainArgs, release_finalizers,
};
use crate::{
    api::labels,
    nova::{NovaClient, PlacementClient, view::ViewOptions},
    runtime::{
        args::{AdminArgs, KubeArgs, LeaderArgs, LogArgs, duration},
        earlier::EarlierArgs,
        lease::{KubeLeases, LeaseConfig, LeaseElector, names},
        program::{Program, ProgramError},
        shutdown::{Phase, TaskError},
    },
};

const NAME: &str = "cobalt-operator";

/// The arguments of every operator, however it reaches its cloud; to be flattened into a program's own.
// Clap names a group after each struct, and the program's own is likely called `Args` too.
#[derive(Parser, Clone, Debug)]
#[command(name = NAME, version)]
#[group(skip)]
pub struct Args {
    /// Write and do nothing, and list on /debug/state what would be done: for a first start on a living cloud
    #[arg(long)]
    pub observe_only: bool,

    /// Work without OpenStack: Hypervisors are kept in step with their Nodes and judged, and certificates asked for
    #[arg(long)]
    pub no_openstack: bool,

    /// Work on these Nodes and their Hypervisors only; an operator for each part has a Lease of its own
    #[arg(long, default_value = "", value_name = "SELECTOR", value_parser = selector, hide_default_value = true)]
    pub label_selector: String,

    /// Labels of Nodes that their Hypervisors carry too, and Evictions after these. Those of --label-selector are always
    /// among them
    #[arg(long, value_delimiter = ',', value_name = "LABEL", value_parser = label, default_values_t = labels::TRANSFERRED.map(str::to_owned))]
    pub transfer_labels: Vec<String>,

    /// How many Hypervisors to work on at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub workers: u16,

    /// Namespaces of the agents that must have left a host before it is taken out of OpenStack
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACE")]
    pub agent_namespaces: Vec<String>,

    /// Pause between two looks for those agents
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub agent_pods_interval: Duration,

    /// Namespace of the Leases of the node agents; empty to look at none [default: the namespace of the pod or context]
    #[arg(long, value_name = "NAMESPACE")]
    pub heartbeat_namespace: Option<String>,

    /// Namespace of the OVSNodes, whose health becomes a condition of the Hypervisors; empty for none
    #[arg(long, default_value = "ovn-system", value_name = "NAMESPACE")]
    pub ovs_namespace: String,

    /// Take this operator's finalizers off all Hypervisors and Evictions and end: before going back to programs that do
    /// not know them
    #[arg(long, conflicts_with = "observe_only")]
    pub release_finalizers: bool,

    /// How long to wait for work in flight when asked to end
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_grace_period: Duration,

    /// How the region is looked at.
    #[command(flatten)]
    pub view: ViewArgs,
    /// Bringing hosts into Nova.
    #[command(flatten)]
    pub onboarding: OnboardingArgs,
    /// Trying them before.
    #[command(flatten)]
    pub smoke_test: SmokeTestArgs,
    /// Their aggregates.
    #[command(flatten)]
    pub aggregates: AggregatesArgs,
    /// Draining them.
    #[command(flatten)]
    pub drain: DrainArgs,
    /// Taking them out of Nova.
    #[command(flatten)]
    pub offboarding: OffboardingArgs,
    /// Who owns `HaEnabled`.
    #[command(flatten)]
    pub ha: HaArgs,
    /// Holding Nodes back from Gardener.
    #[command(flatten)]
    pub gardener: GardenerArgs,
    /// Certificates for Nodes.
    #[command(flatten)]
    pub certificate: CertificateArgs,
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
    /// What earlier operators were told.
    #[command(flatten)]
    pub earlier: EarlierArgs,
}

const VIEW: &str = "View of the region";

/// How often the region is looked at.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct ViewArgs {
    /// Pause between two listings of all services, hypervisors and aggregates
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION", help_heading = VIEW)]
    pub view_interval: Duration,

    /// Shortest pause between two reads of a host's traits
    #[arg(long, default_value = "1s", value_parser = duration, value_name = "DURATION", help_heading = VIEW)]
    pub view_trait_interval: Duration,

    /// How old a host's traits become before they are read again, if the above allows it
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION", help_heading = VIEW)]
    pub view_trait_age: Duration,
}

impl ViewArgs {
    /// What they say.
    pub fn options(&self) -> ViewOptions {
        ViewOptions {
            interval: self.view_interval,
            trait_interval: self.view_trait_interval,
            trait_age: self.view_trait_age,
            ..ViewOptions::default()
        }
    }
}

fn selector(text: &str) -> Result<String, String> {
    text.parse::<Selector>().map(|_| text.to_owned())
}

/// A label's key as the API server takes it, or nothing.
fn label(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_key = |part: &str, longest: usize| {
        let ends = |letter: char| letter.is_ascii_alphanumeric();
        part.len() <= longest
            && part.starts_with(ends)
            && part.ends_with(ends)
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
    };
    if text.is_empty() || is_key(name, 63) && prefix.is_none_or(|prefix| is_key(prefix, 253)) {
        Ok(text.to_owned())
    } else {
        Err("expected a label's key, such as topology.kubernetes.io/zone".into())
    }
}

impl Args {
    /// The settings they describe, for a program in this namespace. An error is one of the person who gave them.
    pub fn settings(&self, own_namespace: &str) -> Result<Settings, String> {
        let mut namespaces: Vec<String> = Vec::new();
        for namespace in self.agent_namespaces.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
            if !namespaces.iter().any(|known| known == namespace) {
                namespaces.push(namespace.to_owned());
            }
        }
        if namespaces.is_empty() && !self.no_openstack {
            return Err(
                "--agent-namespaces names no namespace: with none, no host would wait for its agents to leave \
                        before it is taken out of OpenStack"
                    .to_owned(),
            );
        }
        let heartbeats = self.heartbeat_namespace.clone().unwrap_or_else(|| own_namespace.to_owned());
        let transferred_labels = self.transfer_labels.iter().filter(|label| !label.is_empty()).cloned().collect();
        Ok(Settings {
            hypervisor: HypervisorSync { transferred_labels },
            onboarding: self.onboarding.settings(),
            aggregates: self.aggregates.settings(),
            drain: self.drain.settings(),
            offboarding: self.offboarding.settings(),
            ha: self.ha.settings(),
            gardener: self.gardener.settings(),
            certificates: self.certificate.settings()?,
            agent_namespaces: namespaces,
            agent_pods: AgentPodsSettings { interval: self.agent_pods_interval },
            heartbeat_namespace: Some(heartbeats).filter(|namespace| !namespace.is_empty()),
            label_selector: self.label_selector.clone(),
            ..Settings::default()
        })
    }
}

/// The way into a cloud, as a program has found it.
#[derive(Clone)]
pub struct Clients {
    /// The compute service.
    pub nova: Arc<dyn NovaClient>,
    /// Who has what, and who uses it.
    pub placement: Arc<dyn PlacementClient>,
    /// The smoke test, with a way into its own project; without it only hosts that skip it get through.
    pub smoke_test: Option<SmokeTest>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clients")
    }
}

/// Runs the program until SIGTERM or SIGINT.
///
/// `reach` finds the way into the cloud and tells the calls it is given of every call. It is asked first, so that what
/// is missing in the environment is said before anything is touched; it should not log in yet, because a program must be
/// able to start before its cloud does.
pub async fn run(args: Args, reach: impl FnOnce(CloudCalls) -> Result<Clients, TaskError>) -> Result<(), ProgramError> {
    if args.release_finalizers {
        return release(&args).await;
    }
    let calls = CloudCalls::default();
    args.settings("").map_err(ProgramError::Arguments)?;
    let clients = if args.no_openstack { None } else { Some(reach(calls.clone()).map_err(ProgramError::Cloud)?) };
    let program = Program::start(NAME, &args.earlier.log(&args.log), &args.admin, &args.kube).await?;
    args.earlier.warn();
    let mut settings = args.settings(&program.namespace).map_err(ProgramError::Arguments)?;
    let operator = Operator::new(program.client.clone())
        .workers(args.workers.into())
        .observe_only(args.observe_only)
        .ovs_namespace(Some(args.ovs_namespace.clone()).filter(|namespace| !namespace.is_empty()))
        .clock(program.clock.clone())
        .metrics(program.metrics.clone())
        .status(program.status.clone())
        .recorder(program.recorder.clone());
    let operator = match clients {
        Some(Clients { nova, placement, smoke_test }) => {
            calls.register(&program.metrics);
            settings.onboarding = settings.onboarding.tested_by(smoke_test);
            operator.cloud(Cloud::new(nova, placement, args.view.options()), settings)
        }
        None => operator.settings(settings),
    };
    let work = program.life.phase(Phase::Work).clone();
    if args.leader.leader_elect {
        let name = names::operator(&args.label_selector);
        let config = LeaseConfig::new(&args.leader, &name, &program.namespace, &program.host)?;
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

/// Lets all Hypervisors and Evictions go, and ends.
async fn release(args: &Args) -> Result<(), ProgramError> {
    let program = Program::start(NAME, &args.earlier.log(&args.log), &args.admin, &args.kube).await?;
    let released = release_finalizers(program.client.clone()).await;
    if let Ok(Released { hypervisors, evictions }) = &released {
        tracing::info!(hypervisors, evictions, "took our finalizers off the objects that had them");
    }
    program.life.shutdown().trigger();
    program.until_stopped(args.shutdown_grace_period).await?;
    released.map(drop).map_err(ProgramError::Release)
}
