//! Whether the host reaches its storage: the monitors of a Ceph cluster, heard at the door.
//!
//! A monitor begins every connection with a banner that names its protocol, before it knows who is there, so this takes no
//! key. A banner says that there is a way to a monitor and that it works. It does not say that an image can be opened: that
//! takes a key, a pool and the OSDs, and a smoke test that boots from a volume finds it out.

#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::future::join_all;
use tokio::{
    io::AsyncReadExt,
    net::{TcpStream, lookup_host},
    time::{MissedTickBehavior, interval, timeout},
};

use super::part::{Board, Context, Contribution, Part};
use crate::{
    api::{Condition, ConditionStatus},
    runtime::{
        args::duration,
        shutdown::{Shutdown, TaskError},
    },
};

/// Hypervisor: a monitor of its Ceph cluster answers.
pub const RBD_REACHABLE: &str = "RBDReachable";
const REACHABLE: &str = "Reachable";
const UNREACHABLE: &str = "Unreachable";

const HEADING: &str = "Ceph";
const NAME: &str = "ceph";

/// Where a monitor listens, in the second version of the protocol.
const PORT: u16 = 3300;

/// The first bytes of a monitor, in the second version of the protocol and in the first.
const BANNERS: [&[u8]; 2] = [b"ceph v2\n", b"ceph v027"];
const LONGEST: usize = 9;

/// From the name to the banner.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which monitors are connected to, and how often.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct CephArgs {
    /// Monitors of Ceph, on port 3300 unless another is named; the condition RBDReachable says whether one of them answers
    /// [default: none, and no such condition]
    #[arg(long, env = "CEPH_MONITORS", value_name = "HOST[:PORT],…", help_heading = HEADING)]
    pub ceph_monitors: Option<Monitors>,

    /// Pause between two connections to each monitor
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub ceph_probe_interval: Duration,
}

impl CephArgs {
    /// The part they describe.
    pub fn part(&self) -> Ceph {
        Ceph::new(self.ceph_monitors.clone().unwrap_or_default().0, self.ceph_probe_interval)
    }
}

/// Monitors with commas between; an environment that is set to nothing names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitors(pub Vec<Monitor>);

impl FromStr for Monitors {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let given = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        given.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Where one monitor listens.
///
/// ```
/// use cobalt_core::agent::Monitor;
///
/// assert_eq!("mon-1".parse::<Monitor>().unwrap().to_string(), "mon-1:3300");
/// assert_eq!("[::1]:6789".parse::<Monitor>().unwrap().to_string(), "[::1]:6789");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    host: String,
    port: u16,
}

impl FromStr for Monitor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = inner.parse::<IpAddr>() {
            return Ok(Self { host: address.to_string(), port: PORT });
        }
        let (host, port) = match text.parse::<SocketAddr>() {
            Ok(address) => (address.ip().to_string(), Some(address.port())),
            Err(_) => match text.split_once(':') {
                Some((host, port)) => (host.to_owned(), port.parse().ok()),
                None => (text.to_owned(), Some(PORT)),
            },
        };
        let is_host = |host: &str| {
            let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            host.parse::<IpAddr>().is_ok() || (!host.is_empty() && host.chars().all(known))
        };
        match port.filter(|port| *port > 0 && is_host(&host)) {
            Some(port) => Ok(Self { host, port }),
            None => Err(format!("{text:?} is no monitor: expected HOST or HOST:PORT, such as 192.0.2.7:{PORT}")),
        }
    }
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Says whether the monitors of a Ceph cluster answer.
#[derive(Clone, Debug)]
pub struct Ceph {
    monitors: Vec<Monitor>,
    interval: Duration,
}

impl Ceph {
    /// These monitors, connected to this often. Of none nothing is said, and what was said is taken back.
    pub fn new(monitors: Vec<Monitor>, interval: Duration) -> Self {
        Self { monitors, interval }
    }

    async fn follow(&self, board: &Board) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let heard = join_all(self.monitors.iter().map(|monitor| knock(monitor, PATIENCE))).await;
            board.put(NAME, Contribution::condition(decide(&self.monitors, &heard)));
        }
    }
}

#[async_trait]
impl Part for Ceph {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        if self.monitors.is_empty() {
            // Nobody looks any more, so that what an agent with other arguments has said must not stay.
            context.board.put(NAME, Contribution::without(RBD_REACHABLE));
            stop.triggered().await;
            return Ok(());
        }
        tokio::select! {
            () = stop.triggered() => Ok(()),
            () = self.follow(&context.board) => Ok(()),
        }
    }
}

/// What was heard of a monitor: its banner, or why not. The words are published, so they are the same for the same trouble.
type Heard = Result<(), String>;

/// One monitor is enough: a client that reaches it learns of the others, and those that do not answer are named.
fn decide(monitors: &[Monitor], heard: &[Heard]) -> Condition {
    let silent: Vec<String> = monitors
        .iter()
        .zip(heard)
        .filter_map(|(monitor, heard)| heard.as_ref().err().map(|why| format!("{monitor}: {why}")))
        .collect();
    let answer = heard.len() - silent.len();
    let mut words = vec![format!("{answer} of {} monitors answer", heard.len())];
    words.extend(silent);
    let reason = if answer > 0 { REACHABLE } else { UNREACHABLE };
    Condition::new(RBD_REACHABLE, ConditionStatus::from(answer > 0), reason, words.join("; "))
}

/// Connects to a monitor and waits for its banner.
async fn knock(monitor: &Monitor, patience: Duration) -> Heard {
    timeout(patience, listen(monitor)).await.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")))
}

async fn listen(monitor: &Monitor) -> Heard {
    // The kind alone: the rest of an error tells of one attempt.
    let words = |error: io::Error| error.kind().to_string();
    let found = lookup_host((monitor.host.as_str(), monitor.port)).await;
    let mut addresses: Vec<_> = found.map_err(|_| "its name is not known".to_owned())?.collect();
    // Name servers turn the order round, and it is the last address whose error is told.
    addresses.sort_unstable();
    let mut stream = TcpStream::connect(&addresses[..]).await.map_err(words)?;
    let mut heard = [0; LONGEST];
    let mut length = 0;
    loop {
        match stream.read(&mut heard[length..]).await.map_err(words)? {
            0 => return Err("the connection ended before a banner".to_owned()),
            read => length += read,
        }
        let heard = &heard[..length];
        if BANNERS.iter().any(|banner| heard.starts_with(banner)) {
            return Ok(());
        }
        // Where this is so there is room for more.
        if !BANNERS.iter().any(|banner| banner.starts_with(heard)) {
            return Err("what answers there is no monitor".to_owned());
        }
    }
}
