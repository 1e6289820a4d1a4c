//! `cobaltctl ovs`: one host's virtual switch, from wherever one is.
//!
//! ```text
//!   status ──────────────▶ the OVSNode in the cluster, and its agent's Lease
//!   trace, capture,        the OVSNode says where its agent answers and who vouches for it
//!   doctor ──▶ token ──▶ straight to the host, or through a port-forward to its agent's pod ──▶ endpoints
//!                        └─ --local: the switch's own sockets, no cluster at all
//! ```

mod capture;
mod doctor;
mod error;
mod find;
mod http;
mod interrupt;
mod life;
mod local;
mod print;
mod reach;
mod stale;
mod token;

use std::{io::Write, net::IpAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::{Subcommand, ValueEnum};
use cobalt_core::{
    agent::ovs::endpoints::wire::{CaptureQuestion, Protocol, TraceAnswer, TraceQuestion, Verdict},
    runtime::{
        args::{KubeArgs, duration},
        program::finish,
    },
};

pub use self::error::OvsError;
use self::{find::Cluster, http::Agent, interrupt::Interrupt, life::Life};

/// The answer is there, and it is bad news: not ready, dropped, something critical was found.
const BAD_NEWS: u8 = 3;
/// The agent or the cluster does not let this person do it.
const NOT_ALLOWED: u8 = 4;

/// How long a capture lasts where nobody says, as with the agents.
const SECONDS: u64 = 30;

const EXIT_CODES: &str = "Exit codes:
  0  the answer is there, and nothing is wrong
  1  there is no answer: the cluster, the host or its switch could not be reached, or nobody can tell
  2  the command line makes no sense
  3  the answer is there, and it is bad news: not ready, the packet is dropped, something critical was found
  4  you are not allowed to do this";

/// Looks into the virtual switch of one host.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be asked.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show how the switch is: conditions, issues, bridges, bonds, cards
    Status(Status),
    /// Follow a packet through the switch's tables
    Trace(Trace),
    /// Capture the packets of a port into a pcap file
    Capture(Capture),
    /// Say what is wrong with the switch, or with one port, and what to do about it
    Doctor(Doctor),
}

/// Which switch, and how to get there.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Place {
    /// The host, by the name of its Node
    #[arg(value_name = "NODE", required_unless_present = "local")]
    pub node: Option<String>,

    /// Ask the switch of this machine on its own sockets, without a cluster
    #[arg(long, conflicts_with = "node")]
    pub local: bool,

    /// How to print the answer
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Output,

    /// Namespace of the OVSNode, which is that of the agents [default: ovn-system]
    #[arg(long, short, value_name = "NAMESPACE", help_heading = "Agent")]
    pub namespace: Option<String>,

    /// How to reach the agent
    #[arg(long, value_enum, default_value_t, value_name = "WAY", help_heading = "Agent")]
    pub via: Via,

    /// Ask with a token of this service account instead of your own; you need the right to request one [default for a
    /// kubeconfig with a client certificate, which has no token: ovs-troubleshooter in the OVSNode's namespace]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = token::account, help_heading = "Agent")]
    pub as_service_account: Option<token::Account>,

    /// Label selector of the agents' pods, for a port-forward
    #[arg(long, default_value = "app=ovs-agent", value_name = "SELECTOR", help_heading = "Agent")]
    pub agent_selector: String,

    /// The longest time to wait for a connection, and again for an answer
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION", help_heading = "Agent")]
    pub timeout: Duration,

    /// Where the sockets of the switch are, for --local.
    #[command(flatten)]
    pub sockets: local::Sockets,

    /// How to reach the Kubernetes API.
    #[command(flatten)]
    pub kube: KubeArgs,
}

/// How to print.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For programs: as the agent answered it.
    Json,
}

/// How to reach an agent.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Via {
    /// Straight, and through a port-forward if there is no route.
    #[default]
    Auto,
    /// Straight to the host's address.
    Direct,
    /// Through a port-forward to the agent's pod.
    PortForward,
}

/// Shows how the switch of a host is.
///
/// The status is read from the OVSNode. Whether its agent lives is told by the Lease beside it, for whoever may read that.
/// Exit code 3: the switch is not ready. Exit code 1: the agent gives no sign of life, so nobody can tell.
#[derive(clap::Args, Clone, Debug)]
pub struct Status {
    /// Which switch.
    #[command(flatten)]
    pub place: Place,
}

/// Follows a packet through the switch's tables.
///
/// Ports are named as on the host, by their logical port, or by the UUID of their VM. The packet's hardware addresses
/// are filled in from them. For another subnet, --destination is the gateway's hardware address. Needs the right to
/// create ovsnodes/trace. Exit code 3: the packet is dropped.
#[derive(clap::Args, Clone, Debug)]
pub struct Trace {
    /// Which switch.
    #[command(flatten)]
    pub place: Place,

    /// The port, VM or logical port the packet comes from
    #[arg(long, value_name = "PORT", help_heading = "Packet")]
    pub from: String,

    /// Where it shall go: a port, VM, logical port, hardware address or IP address
    #[arg(long, value_name = "PORT", help_heading = "Packet")]
    pub to: Option<String>,

    /// Its source at the link layer [default: that of --from]
    #[arg(long, value_name = "MAC", help_heading = "Packet")]
    pub source: Option<String>,

    /// Its destination at the link layer [default: that of --to]
    #[arg(long, value_name = "MAC", help_heading = "Packet")]
    pub destination: Option<String>,

    /// The VLAN it is tagged with
    #[arg(long, value_name = "VLAN", help_heading = "Packet")]
    pub vlan: Option<u16>,

    /// Its source address, for an IP packet
    #[arg(long, value_name = "IP", help_heading = "Packet")]
    pub source_address: Option<IpAddr>,

    /// Its destination address, for an IP packet [default: --to, if that is one]
    #[arg(long, value_name = "IP", help_heading = "Packet")]
    pub destination_address: Option<IpAddr>,

    /// What IP carries
    #[arg(long, value_enum, value_name = "PROTOCOL", help_heading = "Packet")]
    pub protocol: Option<TraceProtocol>,

    /// The port it comes from, of tcp, udp or sctp
    #[arg(long, value_name = "N", help_heading = "Packet")]
    pub source_port: Option<u16>,

    /// The port it goes to, of tcp, udp or sctp
    #[arg(long, value_name = "N", help_heading = "Packet")]
    pub destination_port: Option<u16>,
}

/// What an IP packet carries.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// An echo request.
    Icmp,
}

impl Trace {
    fn question(&self) -> TraceQuestion {
        TraceQuestion {
            from: self.from.clone(),
            to: self.to.clone(),
            bridge: None,
            source: self.source.clone(),
            destination: self.destination.clone(),
            vlan: self.vlan,
            source_address: self.source_address,
            destination_address: self.destination_address,
            protocol: self.protocol.map(|protocol| match protocol {
                TraceProtocol::Tcp => Protocol::Tcp,
                TraceProtocol::Udp => Protocol::Udp,
                TraceProtocol::Sctp => Protocol::Sctp,
                TraceProtocol::Icmp => Protocol::Icmp,
            }),
            source_port: self.source_port,
            destination_port: self.destination_port,
        }
    }
}

/// Captures the packets of a port into a pcap file.
///
/// Ctrl-C ends the capture and leaves a file that can be read. Needs the right to create ovsnodes/capture. What one
/// capture may cost is bounded by the agent, which says so when it refuses.
#[derive(clap::Args, Clone, Debug)]
pub struct Capture {
    /// Which switch.
    #[command(flatten)]
    pub place: Place,

    /// The port, or the VM or logical port behind it
    #[arg(long, short, value_name = "PORT", help_heading = "Capture")]
    pub port: String,

    /// The file to write; `-` is standard output
    #[arg(long, short, value_name = "FILE", help_heading = "Capture")]
    pub write: PathBuf,

    /// Stop after so many seconds
    #[arg(long, value_name = "N", help_heading = "Capture")]
    pub seconds: Option<u64>,

    /// Stop after so many bytes
    #[arg(long, value_name = "N", help_heading = "Capture")]
    pub max_bytes: Option<u64>,

    /// Keep so many bytes of each packet
    #[arg(long, value_name = "N", help_heading = "Capture")]
    pub snap_len: Option<u32>,
}

impl Capture {
    fn question(&self) -> CaptureQuestion {
        CaptureQuestion {
            port: self.port.clone(),
            seconds: self.seconds,
            max_bytes: self.max_bytes,
            snap_len: self.snap_len,
        }
    }
}

/// Says what is wrong with the switch, or with one port, and what to do about it.
///
/// Needs the right to get ovsnodes/diagnose. Exit code 3: something critical was found. Exit code 1 with --stale-flows:
/// nobody can tell which flows are stale.
#[derive(clap::Args, Clone, Debug)]
pub struct Doctor {
    /// Which switch.
    #[command(flatten)]
    pub place: Place,

    /// One port instead, or the VM or logical port behind it
    #[arg(long, short, value_name = "PORT")]
    pub port: Option<String>,

    /// Have the host look for stale flows first, which takes a dump of its flows and up to a few minutes
    #[arg(long)]
    pub stale_flows: bool,

    /// Who we are to the southbound database, for --local with --stale-flows.
    #[command(flatten)]
    pub certificates: local::Certificates,
}

/// How an answer ends the program.
type Ending = Result<ExitCode, OvsError>;

/// Does what was asked for.
pub fn main(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return finish(Err(error.into())),
    };
    let done = runtime.block_on(async {
        match args.command {
            Command::Status(args) => status(args).await,
            Command::Trace(args) => trace(args).await,
            Command::Capture(args) => capture(args).await,
            Command::Doctor(args) => doctor::run(args).await,
        }
    });
    // A read of a terminal or a file that hangs must not keep the program.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(error) if super::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if error.is_not_allowed() { ExitCode::from(NOT_ALLOWED) } else { ExitCode::FAILURE };
            // Some of the words come from a host.
            let _ = finish(Err(print::plain(&reach::chain(&error)).into()));
            code
        }
    }
}

/// Good news or bad.
fn ending(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(BAD_NEWS) }
}

fn say(text: &str) -> Result<(), OvsError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(OvsError::Print)
}

async fn agent(place: &Place) -> Result<Agent, OvsError> {
    let cluster = Cluster::connect(&place.kube).await?;
    let node = cluster.node(place).await?;
    let token = token::get(&cluster, place, &node).await?;
    Agent::new(Arc::new(cluster), place.clone(), &node, token)
}

async fn status(args: Status) -> Ending {
    let place = args.place;
    let cluster = if place.local { None } else { Some(Cluster::connect(&place.kube).await?) };
    let node = match &cluster {
        None => local::status(&place).await?,
        Some(cluster) => cluster.node(&place).await?,
    };
    say(&match place.output {
        Output::Json => print::json(&node)?,
        Output::Table => print::status(&node),
    })?;
    if let Some(cluster) = &cluster {
        match life::of(cluster, &node).await? {
            Life::Alive => {}
            Life::Silent(how) => {
                print::tell(&format!("nobody can tell how the switch is now: {how}"));
                return Ok(ExitCode::FAILURE);
            }
            Life::Untold(why) => print::tell(&why),
        }
    }
    let ready = node.condition(cobalt_core::api::condition_types::READY);
    Ok(ending(ready.is_some_and(cobalt_core::api::Condition::is_true)))
}

async fn trace(args: Trace) -> Ending {
    let question = args.question();
    let answer: TraceAnswer = if args.place.local {
        local::trace(&args.place, &question).await?
    } else {
        agent(&args.place).await?.post("/v1/trace", &question).await?
    };
    say(&match args.place.output {
        Output::Json => print::json(&answer)?,
        Output::Table => print::trace(&answer),
    })?;
    Ok(ending(answer.verdict != Verdict::Dropped))
}

async fn capture(args: Capture) -> Ending {
    let question = args.question();
    let written = if args.place.local {
        let (switch, request) = local::capture(&args.place, &question).await?;
        // From here on the switch may be changed, and nobody ends us before that is undone.
        let interrupt = Interrupt::listen().map_err(OvsError::Signals)?;
        let written = match local::packets(&switch, &request).await {
            Ok(packets) => capture::write(packets, &args.write, request.duration, interrupt.came()).await,
            Err(error) => Err(error),
        };
        local::tidy(&switch).await;
        written?
    } else {
        let packets = agent(&args.place).await?.capture(&question).await?;
        let interrupt = Interrupt::listen().map_err(OvsError::Signals)?;
        let time = Duration::from_secs(question.seconds.unwrap_or(SECONDS));
        capture::write(packets, &args.write, time, interrupt.came()).await?
    };
    if args.place.output == Output::Json {
        eprintln!("{}", print::json(&written)?.trim_end());
    } else {
        eprintln!("{written}");
    }
    Ok(ExitCode::SUCCESS)
}
