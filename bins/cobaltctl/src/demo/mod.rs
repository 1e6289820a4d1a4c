//! `cobaltctl demo`: a region, the operator and its agents in one process, and somebody who tells what happens.

mod narrate;
mod observe;
mod stage;
mod story;
mod table;

use std::{
    env, fs,
    io::{self, IsTerminal},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cobalt_core::runtime::{
    args::{LogArgs, LogFormat},
    clock::Clock,
    metrics::Metrics,
    shutdown::{Phase, Shutdown, StopError},
    state::Status,
    telemetry::{self, TelemetryError},
};
use cobalt_sim::SimError;
use tokio::net::TcpListener;

use self::{
    narrate::{Look, Narrator},
    observe::Observer,
    stage::Stage,
    story::Story,
};

/// Tells the story of a simulated region, live: no cluster, no root, one process.
///
/// An API server, hosts and VMs are simulated; the operator and the node agents are the programs themselves, and
/// everything told was seen through the API.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How many hosts
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    pub nodes: u16,

    /// How many VMs on them, all together
    #[arg(long, default_value_t = 24, value_name = "N", value_parser = clap::value_parser!(u16).range(..=10_000))]
    pub vms: u16,

    /// What all randomness comes from
    #[arg(long, default_value_t = 7, value_name = "S")]
    pub seed: u64,

    /// Leave out the pauses for reading
    #[arg(long)]
    pub fast: bool,

    /// Keep running after the story, until Ctrl-C, with the API server on a socket for kubectl
    #[arg(long)]
    pub hold: bool,

    /// Port of that socket on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "P", requires = "hold", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Show the logs of the operator and the agents on standard error
    #[arg(long, short)]
    pub verbose: bool,
}

/// Runs the demo on the terminal it was started from.
pub fn main(args: Args) -> Result<(), DemoError> {
    if args.verbose {
        drop(telemetry::init(&LogArgs { log_format: LogFormat::Human, ..LogArgs::default() }, "cobaltctl")?);
    }
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    // Logs between the lines would tear the table apart.
    let live = io::stdout().is_terminal() && !no_colour && !args.verbose;
    let narrator = Narrator::new(io::stdout(), Look { live, fast: args.fast });
    let runtime = tokio::runtime::Runtime::new().map_err(DemoError::Start)?;
    runtime.block_on(run(args, Arc::new(narrator)))
}

/// Sets the stage, tells the story, and clears up.
async fn run(args: Args, narrator: Arc<Narrator>) -> Result<(), DemoError> {
    let interrupted = Shutdown::on_signals().map_err(DemoError::Start)?;
    let listener = if args.hold { Some(listen(args.port.unwrap_or(0)).await?) } else { None };
    let stage = Stage::set(&args).await?;
    // A part of the stage that fails triggers this; clearing up then says which one it was.
    let failed = stage.life().shutdown().clone();
    let told = tokio::select! {
        told = tell(&args, &stage, &narrator, listener) => told,
        () = interrupted.triggered() => Err(DemoError::Interrupted),
        () = failed.triggered() => Ok(None),
    };
    if let Ok(Some(_kubeconfig)) = &told {
        interrupted.or(&failed).triggered().await;
    }
    narrator.release();
    let struck = stage.strike().await;
    told.and(struck)
}

/// Tells the story. What is to be held after it is the file that leads others to the region.
async fn tell(
    args: &Args,
    stage: &Stage,
    narrator: &Arc<Narrator>,
    listener: Option<(TcpListener, SocketAddr)>,
) -> Result<Option<Kubeconfig>, DemoError> {
    let work = stage.life().phase(Phase::Work);
    let status = Status::new(Clock::system());
    let observer = Observer::start(stage.client(stage::DEMO), &status, Arc::new(Metrics::new()), work);
    // Served from the first word on, for those who want to watch the story with kubectl.
    let kubeconfig = match listener {
        Some((listener, address)) => Some(Kubeconfig::write(address, &stage.serve(listener, address))?),
        None => None,
    };
    work.spawn("table", draw(observer.clone(), narrator.clone(), work.stopping()));
    let story = Story::new(stage, narrator, &observer);
    story.tell(args, kubeconfig.as_ref().map(|file| file.path.as_path())).await?;
    if let Some(file) = &kubeconfig {
        narrator.heading("The region stays until Ctrl-C. In another terminal:")?;
        narrator.line(&format!("export KUBECONFIG={}; kubectl get hypervisors", file.path.display()))?;
    }
    Ok(kubeconfig)
}

/// The Hypervisors, and the drains that are under way.
fn picture(observer: &Observer, live: bool) -> String {
    let mut text = table::render(&observer.all(), live);
    text.push_str(&story::progress(&observer.evictions()));
    text
}

/// Keeps the table as the API server shows the Hypervisors.
async fn draw(mut observer: Observer, narrator: Arc<Narrator>, stop: Shutdown) -> Result<(), DemoError> {
    loop {
        narrator.table(picture(&observer, narrator.look().live))?;
        // A watch that ends outside of the end is the story's to report; it waits for what never comes.
        tokio::select! {
            () = stop.triggered() => return Ok(()),
            changed = observer.changed() => if changed.is_err() { return Ok(()) },
        }
        // Nobody sees more pictures than that.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn listen(port: u16) -> Result<(TcpListener, SocketAddr), DemoError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |cause| DemoError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// The file that leads kubectl to us; it goes when we go.
struct Kubeconfig {
    path: PathBuf,
}

impl Kubeconfig {
    fn write(address: SocketAddr, text: &str) -> Result<Self, DemoError> {
        let path = env::temp_dir().join(format!("cobaltctl-demo-{}.kubeconfig", address.port()));
        fs::write(&path, text).map_err(|cause| DemoError::Kubeconfig { path: path.clone(), cause })?;
        Ok(Self { path })
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // Whoever has taken it away already did what we want.
        let _ = fs::remove_file(&self.path);
    }
}

/// Why the story did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// The process could not be set up.
    #[error("start the demo")]
    Start(#[source] io::Error),
    /// Logging could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The port is taken.
    #[error("serve the API on {address} (choose another port with --port, or none to get a free one)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The kubeconfig could not be written.
    #[error("write kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// Standard output is gone.
    #[error("print the story")]
    Print(#[from] io::Error),
    /// The simulated region refused.
    #[error(transparent)]
    Region(#[from] SimError),
    /// The simulated cloud refused.
    #[error("look at the simulated cloud")]
    Cloud(#[source] cobalt_core::Error),
    /// The API server refused a request of the demo itself.
    #[error("{operation}")]
    Request {
        /// What the demo wanted.
        operation: String,
        /// What the server said.
        #[source]
        cause: Box<kube::Error>,
    },
    /// Something that should have happened did not.
    #[error("waited {limit:?} for {what}, and it did not come")]
    NotSeen {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// The demo's own watch ended.
    #[error("watch the Hypervisors: the watch has ended")]
    WatchEnded,
    /// Something was written while nothing happened.
    #[error(
        "the region does not come to rest: nothing has happened for {limit:?}, and {writes} writes in the last {time:?}"
    )]
    NotAtRest {
        /// How many writes.
        writes: u64,
        /// In what time.
        time: Duration,
        /// How long rest was waited for.
        limit: Duration,
    },
    /// A part of the stage failed.
    #[error(transparent)]
    Stage(#[from] StopError),
    /// Somebody pressed Ctrl-C before the end.
    #[error("interrupted")]
    Interrupted,
}

#[cfg(test)]
mod tests {
    use super::{narrate::tests::Paper, *};

    #[tokio::test(flavor = "multi_thread")]
    async fn on_a_terminal_a_drain_has_a_bar_that_fills() -> Result<(), DemoError> {
        let args = Args { nodes: 2, vms: 8, seed: 7, fast: true, hold: false, port: None, verbose: false };
        let paper = Paper::default();
        let narrator = Narrator::new(paper.clone(), Look { live: true, fast: true });
        run(args, Arc::new(narrator)).await?;
        let text = paper.text();
        assert!(text.contains("░ 0 of ") && text.contains("█"), "{text}");
        assert!(!text.contains("hv-000: "), "lines are for paper: {text}");
        Ok(())
    }
}
