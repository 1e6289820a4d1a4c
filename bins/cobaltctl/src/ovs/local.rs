//! The switch of this machine, on its own sockets.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, Hasher, RandomState},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cobalt_core::{
    agent::{
        Section,
        ovs::{
            Config, Stands,
            endpoints::{
                diagnose, resolve,
                wire::{CaptureQuestion, Port, PortAnswer, StaleFlows, TraceAnswer, TraceQuestion},
            },
            look_for_stale_flows,
            memory::Memory,
            once,
        },
    },
    api::OVSNode,
    ovs::{CaptureRequest, OvsInspector, OvsSnapshot},
    runtime::clock::Clock,
};
use cobalt_ovs::{OvsOptions, OvsSwitch, Pki, Southbound};
use futures::StreamExt;
use hyper::body::Bytes;
use tokio::time::timeout;

use super::{
    OvsError, Place,
    doctor::{Answer, Looked},
    http::Packets,
    print::tell,
};

const HEADING: &str = "This machine";

/// Where the sockets of the switch are.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Sockets {
    /// Directory with the sockets of Open vSwitch, for --local
    #[arg(long, env = "OVS_RUNDIR", default_value = "/var/run/openvswitch", value_name = "DIR", help_heading = HEADING)]
    pub ovs_run_dir: PathBuf,

    /// Directory with the socket of ovn-controller, for --local
    #[arg(long, env = "OVN_RUNDIR", default_value = "/var/run/ovn", value_name = "DIR", help_heading = HEADING)]
    pub ovn_run_dir: PathBuf,
}

/// Who we are to a southbound database at an `ssl:` address.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Certificates {
    /// Authority that signed the certificate of a southbound database at an `ssl:` address, as PEM, for --local with
    /// --stale-flows
    #[arg(long = "ssl-ca-cert", value_name = "FILE", requires = "stale_flows", conflicts_with = "node", help_heading = HEADING)]
    pub ca: Option<PathBuf>,

    /// Our own certificate for it, as PEM
    #[arg(long = "ssl-certificate", value_name = "FILE", requires = "ca", requires = "key", help_heading = HEADING)]
    pub certificate: Option<PathBuf>,

    /// And its key
    #[arg(long = "ssl-private-key", value_name = "FILE", requires = "certificate", help_heading = HEADING)]
    pub key: Option<PathBuf>,
}

impl Certificates {
    fn pki(&self) -> Option<Pki> {
        let identity = self.certificate.clone().zip(self.key.clone());
        self.ca.clone().map(|ca| Pki { ca, identity, verify_name: false })
    }
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> OvsError {
    OvsError::Local(cause.into())
}

/// An owner of our own, and of this run: what the agent of this host captures is not ours to end, nor is what somebody
/// else at another terminal does.
fn owner() -> String {
    format!("cobaltctl-{:08x}", RandomState::new().build_hasher().finish() >> 32)
}

/// How long the removal of a mirror may take when a capture is over.
const TIDYING: Duration = Duration::from_secs(30);

fn options(place: &Place) -> OvsOptions {
    OvsOptions::new()
        .run_dir(&place.sockets.ovs_run_dir)
        .ovn_run_dir(&place.sockets.ovn_run_dir)
        .owner(owner())
        // Each question has its share of the time for all of them: what hangs is told, and not waited for in vain.
        .control_timeout(place.timeout / 15)
        .openflow_timeout(place.timeout / 6)
        .trace_timeout(place.timeout / 3)
}

async fn open(options: OvsOptions) -> Result<OvsSwitch, OvsError> {
    let switch = OvsSwitch::connect(options).await.map_err(failed)?;
    // Nobody may be left to do it: there need be no agent on this host. Where it fails, what is asked for tells more.
    if let Ok(Ok(mirrors @ 1..)) = timeout(TIDYING, switch.remove_overdue()).await {
        tell(&format!("removed what captures that were killed left on the switch: {mirrors} mirrored ports"));
    }
    Ok(switch)
}

async fn look(place: &Place, options: OvsOptions) -> Result<(OvsSwitch, OvsSnapshot), OvsError> {
    let switch = open(options).await?;
    let snapshot = snapshot(place, &switch).await?;
    Ok((switch, snapshot))
}

async fn snapshot(place: &Place, switch: &OvsSwitch) -> Result<OvsSnapshot, OvsError> {
    let late = || OvsError::Timeout { what: "look at the switch of this machine".into(), limit: place.timeout };
    timeout(place.timeout, switch.snapshot()).await.map_err(|_| late())?.map_err(failed)
}

pub(super) async fn status(place: &Place) -> Result<OVSNode, OvsError> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(failed)?;
    let seen =
        once(Arc::new(open(options(place)).await?), &Config::new(name.trim()), &Clock::system(), place.timeout).await;
    if let Some(why) = seen.disconnected {
        return Err(failed(why));
    }
    let mut node = OVSNode::new(name.trim(), cobalt_core::api::OVSNodeSpec::default());
    node.status = Some(seen.status);
    Ok(node)
}

/// What is wrong; also which flows are stale, where somebody asks.
pub(super) async fn doctor(place: &Place, port: Option<&str>, with: Option<&Certificates>) -> Result<Looked, OvsError> {
    let config = Config::new("this machine");
    let Some(certificates) = with else {
        let (_, seen) = look(place, options(place)).await?;
        let answer = diagnosed(&seen, port, &Memory::default(), &config)?;
        return Ok(Looked { answer, stale: None });
    };
    let mut options = options(place).southbound(Southbound::AsController);
    let pki = certificates.pki();
    let shown = pki.is_some();
    if let Some(pki) = pki {
        options = options.pki(pki);
    }
    let (switch, seen) = look(place, options).await?;
    // A port that is not there is told before a minute has passed.
    diagnosed(&seen, port, &Memory::default(), &config)?;
    let found = look_for_stale_flows(&switch, &config.integration_bridge).await;
    let seen = snapshot(place, &switch).await?;
    let answer = diagnosed(&seen, port, &Memory::of_stale_flows(found.clone()), &config)?;
    Ok(Looked { answer, stale: Some(told(found, shown)) })
}

fn diagnosed(seen: &OvsSnapshot, port: Option<&str>, memory: &Memory, config: &Config) -> Result<Answer, OvsError> {
    let Some(name) = port else { return Ok(Answer::Switch(diagnose::switch(seen, memory, config))) };
    let port = resolve::port(seen, "port", name)?;
    let diagnosis = diagnose::port(seen, port, memory, config);
    Ok(Answer::Port(Box::new(PortAnswer { port: Port::from(port), diagnosis })))
}

/// What was found, or why nothing was; `shown` if certificates were given.
fn told(found: Section<BTreeMap<u64, u64>>, shown: bool) -> StaleFlows {
    let offered = found != Section::NotOffered;
    let mut told = StaleFlows::from(Stands { looking: false, looks: 1, at: None, found });
    if !offered {
        told.unknown = Some("the southbound database of this machine's ovn-controller cannot be read".to_owned());
    }
    if let Some(why) = told.unknown.as_mut().filter(|_| !shown) {
        why.push_str(" (for ssl: --ssl-ca-cert, --ssl-certificate, --ssl-private-key)");
    }
    told
}

pub(super) async fn trace(place: &Place, question: &TraceQuestion) -> Result<TraceAnswer, OvsError> {
    let (switch, snapshot) = look(place, options(place)).await?;
    let packet = resolve::packet(&snapshot, question)?;
    let late = || OvsError::Timeout { what: "trace a packet on this machine".into(), limit: place.timeout };
    let traced = timeout(place.timeout, switch.trace(&packet)).await.map_err(|_| late())?;
    Ok(TraceAnswer::new(&packet, traced.map_err(failed)?, &snapshot))
}

/// What is to be captured, and on which switch. Nothing has been changed there yet.
pub(super) async fn capture(
    place: &Place,
    question: &CaptureQuestion,
) -> Result<(OvsSwitch, CaptureRequest), OvsError> {
    let (switch, snapshot) = look(place, options(place)).await?;
    let port = resolve::port(&snapshot, "port", &question.port)?;
    let request = CaptureRequest {
        port: port.name.clone(),
        duration: Duration::from_secs(question.seconds.unwrap_or(super::SECONDS).max(1)),
        max_bytes: question.max_bytes.unwrap_or(16 << 20),
        snap_len: question.snap_len.unwrap_or(65_535),
    };
    Ok((switch, request))
}

/// The packets. Whoever has read them, or got none, waits until the switch is [`tidy`].
pub(super) async fn packets(switch: &OvsSwitch, request: &CaptureRequest) -> Result<Packets, OvsError> {
    let packets = switch.capture(request).await.map_err(failed)?;
    Ok(packets.map(|chunk| chunk.map(Bytes::from).map_err(Into::into)).boxed())
}

/// Waits until nothing of a capture is left on the switch.
pub(super) async fn tidy(switch: &OvsSwitch) {
    if timeout(TIDYING, switch.settled()).await.is_err() {
        tell(
            "a mirrored port may be left on the switch; after the capture's time it is removed by this host's agent, or \
             by the next cobaltctl ovs --local",
        );
    }
}
