//! The switch of this machine, on its own sockets.

use std::{path::PathBuf, sync::Arc, time::Duration};

use cobalt_core::{
    agent::{
        Section,
        ovs::{
            Config,
            endpoints::{
                diagnose, resolve,
                wire::{CaptureQuestion, Diagnosis, Port, PortAnswer, TraceAnswer, TraceQuestion},
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
use cobalt_ovs::{OvsOptions, OvsSwitch, Southbound};
use futures::StreamExt;
use hyper::body::Bytes;
use tokio::time::timeout;

use super::{OvsError, Place, http::Packets};

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

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> OvsError {
    OvsError::Local(cause.into())
}

/// An owner of our own: what the agent of this host captures is not ours to end.
const OWNER: &str = "cobaltctl";

/// How long the removal of a mirror may take when a capture is over.
const TIDYING: Duration = Duration::from_secs(5);

async fn open(place: &Place, southbound: Southbound) -> Result<OvsSwitch, OvsError> {
    let options = OvsOptions::new()
        .southbound(southbound)
        .run_dir(&place.sockets.ovs_run_dir)
        .ovn_run_dir(&place.sockets.ovn_run_dir)
        .owner(OWNER);
    OvsSwitch::connect(options).await.map_err(failed)
}

async fn look(place: &Place) -> Result<(OvsSwitch, OvsSnapshot), OvsError> {
    look_with(place, Southbound::None).await
}

async fn look_with(place: &Place, southbound: Southbound) -> Result<(OvsSwitch, OvsSnapshot), OvsError> {
    let switch = open(place, southbound).await?;
    let late = || OvsError::Timeout { what: "look at the switch of this machine".into(), limit: place.timeout };
    let seen = timeout(place.timeout, switch.snapshot()).await.map_err(|_| late())?;
    Ok((switch, seen.map_err(failed)?))
}

pub(super) async fn status(place: &Place) -> Result<OVSNode, OvsError> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").map_err(failed)?;
    let seen = once(
        Arc::new(open(place, Southbound::None).await?),
        &Config::new(name.trim()),
        &Clock::system(),
        place.timeout,
    )
    .await;
    if let Some(why) = seen.disconnected {
        return Err(failed(why));
    }
    let mut node = OVSNode::new(name.trim(), cobalt_core::api::OVSNodeSpec::default());
    node.status = Some(seen.status);
    Ok(node)
}

/// What is wrong; also which flows are stale, where somebody asks and the southbound database can be read without
/// certificates.
pub(super) async fn doctor(place: &Place, stale_flows: bool) -> Result<Diagnosis, OvsError> {
    let config = Config::new("this machine");
    if !stale_flows {
        let (_, snapshot) = look(place).await?;
        return Ok(diagnose::switch(&snapshot, &Memory::default(), &config));
    }
    let (switch, _) = look_with(place, Southbound::AsController).await?;
    let found = look_for_stale_flows(&switch, &config.integration_bridge).await;
    match &found {
        Section::Failed(why) => eprintln!("nobody can tell which flows are stale: {why}"),
        Section::NotOffered => eprintln!("nobody can tell which flows are stale without the southbound database"),
        Section::Known(_) | Section::NotYet => {}
    }
    let late = || OvsError::Timeout { what: "look at the switch of this machine".into(), limit: place.timeout };
    let seen = timeout(place.timeout, switch.snapshot()).await.map_err(|_| late())?.map_err(failed)?;
    Ok(diagnose::switch(&seen, &Memory::of_stale_flows(found), &config))
}

pub(super) async fn port(place: &Place, name: &str) -> Result<PortAnswer, OvsError> {
    let (_, snapshot) = look(place).await?;
    let port = resolve::port(&snapshot, "port", name)?;
    let diagnosis = diagnose::port(&snapshot, port, &Memory::default(), &Config::new("this machine"));
    Ok(PortAnswer { port: Port::from(port), diagnosis })
}

pub(super) async fn trace(place: &Place, question: &TraceQuestion) -> Result<TraceAnswer, OvsError> {
    let (switch, snapshot) = look(place).await?;
    let packet = resolve::packet(&snapshot, question)?;
    let late = || OvsError::Timeout { what: "trace a packet on this machine".into(), limit: place.timeout };
    let traced = timeout(place.timeout, switch.trace(&packet)).await.map_err(|_| late())?;
    Ok(TraceAnswer::new(&packet, traced.map_err(failed)?, &snapshot))
}

/// The packets, and the switch they come from: whoever has read them waits until it is [`tidy`].
pub(super) async fn capture(place: &Place, question: &CaptureQuestion) -> Result<(Packets, OvsSwitch), OvsError> {
    let (switch, snapshot) = look(place).await?;
    let port = resolve::port(&snapshot, "port", &question.port)?;
    let request = CaptureRequest {
        port: port.name.clone(),
        duration: Duration::from_secs(question.seconds.unwrap_or(30).max(1)),
        max_bytes: question.max_bytes.unwrap_or(16 << 20),
        snap_len: question.snap_len.unwrap_or(65_535),
    };
    let packets = switch.capture(&request).await.map_err(failed)?;
    Ok((packets.map(|chunk| chunk.map(Bytes::from).map_err(Into::into)).boxed(), switch))
}

/// Waits until nothing of a capture is left on the switch.
pub(super) async fn tidy(switch: &OvsSwitch) {
    if timeout(TIDYING, switch.settled()).await.is_err() {
        eprintln!("a mirror may be left on the switch; the next capture of a port without a device removes it");
    }
}
