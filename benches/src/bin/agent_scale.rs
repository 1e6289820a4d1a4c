//! The node agent on a host with 200 domains: memory, CPU and writes at rest, and how long an event takes to the status.
//!
//! The agent is the program that people deploy, in a process of its own. Around it, in this process: the API server on a
//! socket, and a scripted libvirtd whose domains answer like recorded ones of QEMU. The time from event to status
//! includes the agent's wait for further events (`--coalesce`).

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use cobalt_apiserver::ApiServer;
use cobalt_benches::{Figure, Usage, steps::cpu_ns};
use cobalt_core::api::{Hypervisor, crd};
use cobalt_libvirt::testing::{Recording, Server};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    process::Command,
    time::{sleep, timeout},
};

/// Memory of the agent with 200 domains, at most.
const PROMISED_MB: f64 = 20.0;
/// Nothing that is waited for takes longer.
const LIMIT: Duration = Duration::from_secs(120);
const NODE: &str = "hv-0001";
const AGENT: &str = "cobalt-node-agent";

#[derive(Parser)]
struct Args {
    /// How many domains
    #[arg(long, default_value_t = 200)]
    domains: usize,
    /// How many events are timed
    #[arg(long, default_value_t = 200)]
    events: usize,
    /// How long to watch the agent at rest, in seconds
    #[arg(long, default_value_t = 30)]
    rest: u64,
    /// The agent's program, if it is built already
    #[arg(long)]
    agent: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let program = args.agent.clone().map_or_else(build, Ok)?;
    let libvirtd = libvirtd(args.domains)?;
    let uri = format!("qemu+tcp://{}/system", libvirtd.listen_tcp().await?);
    let server = ApiServer::builder().seed(1).start();
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(listener, std::future::pending::<()>()).await });
    let client = Client::new(server.service("bench"), "default");
    for definition in crd::all() {
        Api::all(client.clone()).create(&PostParams::default(), &definition).await?;
    }
    server.settle().await;
    let hypervisors: Api<Hypervisor> = Api::all(client);
    let object = json!({"metadata": {"name": NODE}, "spec": {}});
    hypervisors.create(&PostParams::default(), &serde_json::from_value(object)?).await?;

    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(address))?;
    // A port that was free a moment ago.
    let admin = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?.local_addr()?;
    let mut agent = Command::new(program)
        .args(["--node-name", NODE, "--libvirt-uri", &uri, "--log-level", "warn"])
        .args(["--admin-bind-address", &admin.to_string(), "--kubeconfig"])
        .arg(&kubeconfig)
        .env_remove("HOSTNAME")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start the agent")?;
    let pid = agent.id().context("the agent has no process id")?;

    let mut watch = Instances::of(&hypervisors).await?;
    watch.until(args.domains).await?;
    Figure::new("agent_scale.rss_after_start", Usage::of(pid)?.resident_mb, "MB").print()?;
    latency(&args, &libvirtd, &mut watch).await?;
    let mut page = 0;
    for _ in 0..10 {
        page = scrape(admin).await?;
    }
    Figure::new("agent_scale.metrics_page", page as f64 / 1000.0, "KB").print()?;
    quiet(&server).await;

    server.counters().reset();
    libvirtd.reset_counts();
    let before = cpu_ns(pid)?;
    sleep(Duration::from_secs(args.rest)).await;
    let share = (cpu_ns(pid)?.saturating_sub(before)) as f64 / 1e9 / args.rest as f64 * 100.0;
    let writes = |lease: bool| {
        let ours = server.counters().sum(|key| key.client != "bench" && key.resource.starts_with("leases") == lease);
        ours.writes as f64
    };
    let calls: u64 = libvirtd.counts().values().sum();
    Figure::new("agent_scale.writes_at_rest", writes(false), "writes").against("promise", 0.0).print()?;
    Figure::new("agent_scale.lease_writes_at_rest", writes(true) * 60.0 / args.rest as f64, "writes/min").print()?;
    Figure::new("agent_scale.libvirt_calls_at_rest", calls as f64, "calls").print()?;
    Figure::new("agent_scale.cpu_at_rest", share, "% of a core").print()?;
    let usage = Usage::of(pid)?;
    Figure::new("agent_scale.rss", usage.resident_mb, "MB").against("promise", PROMISED_MB).print()?;
    Figure::new("agent_scale.rss_peak", usage.peak_mb, "MB").against("promise", PROMISED_MB).print()?;
    agent.kill().await?;
    Ok(())
}

/// The agent as it is released, beside this program.
fn build() -> anyhow::Result<PathBuf> {
    let release = std::env::current_exe()?.parent().context("a target directory")?.to_owned();
    let target = release.parent().context("a target directory")?;
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--quiet", "--release", "--package", AGENT, "--target-dir"]).arg(target);
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).stdout(Stdio::null()).status()?;
    ensure!(built.success(), "the agent does not build");
    Ok(target.join("release").join(AGENT))
}

/// A libvirtd with so many running domains.
fn libvirtd(domains: usize) -> anyhow::Result<Server> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cobalt-libvirt/tests/recorded/qemu-9.0.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let server = Server::replay(Recording::parse(&text)?);
    for n in 0..domains {
        server.start_domain(&format!("instance-{n:08x}"), &uuid(n)).context("a domain")?;
    }
    Ok(server)
}

fn uuid(n: usize) -> String {
    format!("55555555-bbbb-4000-8000-{n:012}")
}

/// How many instances the status lists, as it changes.
struct Instances(BoxStream<'static, Result<WatchEvent<Hypervisor>, kube::Error>>);

impl Instances {
    async fn of(api: &Api<Hypervisor>) -> anyhow::Result<Self> {
        let params = WatchParams::default().timeout(290);
        Ok(Self(api.watch(&params, "0").await?.boxed()))
    }

    async fn until(&mut self, count: usize) -> anyhow::Result<()> {
        let seen = async {
            while let Some(event) = self.0.try_next().await? {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && object.status.as_ref().is_some_and(|status| status.instances().len() == count)
                {
                    return Ok(());
                }
            }
            anyhow::bail!("the watch ended")
        };
        timeout(LIMIT, seen).await.with_context(|| format!("the status never listed {count} instances"))?
    }
}

/// One domain comes and goes; how long until the status says so.
async fn latency(args: &Args, libvirtd: &Server, watch: &mut Instances) -> anyhow::Result<()> {
    let mut took = Vec::new();
    while took.len() < args.events {
        let started = Instant::now();
        let domain = libvirtd.start_domain("guest-of-honour", &uuid(args.domains)).context("a domain")?;
        watch.until(args.domains + 1).await?;
        took.push(started.elapsed());
        let started = Instant::now();
        libvirtd.remove_domain(&domain);
        watch.until(args.domains).await?;
        took.push(started.elapsed());
    }
    took.sort();
    let quantile = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)].as_secs_f64() * 1000.0;
    Figure::new("agent_scale.event_to_status_p50", quantile(50), "ms").print()?;
    Figure::new("agent_scale.event_to_status_p99", quantile(99), "ms").print()
}

/// What Prometheus would do; returns the size of the page.
async fn scrape(admin: SocketAddr) -> anyhow::Result<usize> {
    let mut stream = TcpStream::connect(admin).await.context("reach the agent's admin server")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: agent\r\n\r\n").await?;
    let mut page = String::new();
    timeout(LIMIT, stream.read_to_string(&mut page)).await??;
    ensure!(page.contains("libvirt_up 1"), "the agent's metrics do not say that libvirt is up");
    Ok(page.len())
}

/// Until nobody but the heartbeat has written anything for a while.
async fn quiet(server: &ApiServer) {
    let writes = || server.counters().sum(|key| !key.resource.starts_with("leases")).writes;
    loop {
        let before = writes();
        sleep(Duration::from_secs(5)).await;
        if writes() == before {
            return;
        }
    }
}
