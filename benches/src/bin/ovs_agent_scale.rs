//! The OVS agent on a switch with 1000 ports: memory, CPU and writes at rest, and how long a change takes to the OVSNode.
//! At rest its metrics are scraped as Prometheus does by default.
//!
//! The agent is the program that people deploy, in a process of its own, on a real ovsdb-server and ovs-vswitchd with
//! imagined ports. Around it, in this process: the API server on a socket. A change is a port that `ovs-vsctl` adds or
//! removes; the time counts from its start, so the tool's own is in it, and so is the agent's wait for further changes
//! (`--coalesce`).

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use cobalt_apiserver::ApiServer;
use cobalt_benches::{Figure, Usage, steps::cpu_ns};
use cobalt_core::api::{OVSNode, crd};
use cobalt_rig::ovs::{Scale, missing};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    process::Command,
    time::{sleep, timeout, timeout_at},
};

/// Memory of the agent with 1000 ports, at most.
const PROMISED_MB: f64 = 15.0;
/// CPU of the agent at rest, at most, in percent of a core.
const PROMISED_CPU: f64 = 0.1;
/// How often its metrics are read meanwhile.
const SCRAPE: Duration = Duration::from_secs(15);
/// Nothing that is waited for takes longer.
const LIMIT: Duration = Duration::from_secs(120);
const NODE: &str = "hv-0001";
const NAMESPACE: &str = "ovn-system";
const AGENT: &str = "cobalt-ovs-agent";

#[derive(Parser)]
struct Args {
    /// How many ports
    #[arg(long, default_value_t = 1000)]
    ports: usize,
    /// How many changes are timed
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// How long to watch the agent at rest, in seconds; its metrics are read every 15
    #[arg(long, default_value_t = 60)]
    rest: u64,
    /// The agent's program, if it is built already
    #[arg(long)]
    agent: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let missing = missing();
    if !missing.is_empty() {
        eprintln!("no figures without a real Open vSwitch: there is no {missing:?}");
        return Ok(());
    }
    let program = args.agent.clone().map_or_else(build, Ok)?;
    let scale = Scale::up(args.ports)?;
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
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &node).await?;

    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(address))?;
    let admin = free_address().await?;
    let mut agent = Command::new(program)
        .args(["--node-name", NODE, "--log-level", "warn", "--admin-bind-address", &admin.to_string()])
        .args(["--troubleshooting-bind-address", "127.0.0.1:0", "--kubeconfig"])
        .arg(&kubeconfig)
        .arg("--ovs-run-dir")
        .arg(scale.directory())
        .arg("--ovn-run-dir")
        .arg(scale.directory())
        .env_remove("HOSTNAME")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start the agent")?;
    let pid = agent.id().context("the agent has no process id")?;

    let api: Api<OVSNode> = Api::namespaced(client, NAMESPACE);
    let mut watch = Ports::of(&api).await?;
    // The bridge's own port is one more.
    let ports = args.ports as u64 + 1;
    watch.until(ports).await?;
    Figure::new("ovs_agent_scale.rss_after_start", Usage::of(pid)?.resident_mb, "MB").print()?;
    latency(&args, &scale, &mut watch, ports).await?;
    quiet(&server).await;

    server.counters().reset();
    let before = cpu_ns(pid)?;
    let (scrapes, took) = scraping(admin, Duration::from_secs(args.rest)).await?;
    let share = (cpu_ns(pid)?.saturating_sub(before)) as f64 / 1e9 / args.rest as f64 * 100.0;
    let writes = |resource: &str| {
        let ours = server.counters().sum(|key| key.client != "bench" && key.resource.starts_with(resource));
        ours.writes as f64
    };
    Figure::new("ovs_agent_scale.writes_at_rest", writes("ovsnodes"), "writes").against("promise", 0.0).print()?;
    Figure::new("ovs_agent_scale.events_at_rest", writes("events"), "writes").against("promise", 0.0).print()?;
    Figure::new("ovs_agent_scale.lease_writes_at_rest", writes("leases") * 60.0 / args.rest as f64, "writes/min")
        .print()?;
    Figure::new("ovs_agent_scale.cpu_at_rest", share, "% of a core").against("promise", PROMISED_CPU).print()?;
    Figure::new("ovs_agent_scale.scrapes_at_rest", f64::from(scrapes), "scrapes").print()?;
    Figure::new("ovs_agent_scale.slowest_scrape", took.as_secs_f64() * 1000.0, "ms").print()?;
    let usage = Usage::of(pid)?;
    Figure::new("ovs_agent_scale.rss", usage.resident_mb, "MB").against("promise", PROMISED_MB).print()?;
    Figure::new("ovs_agent_scale.rss_peak", usage.peak_mb, "MB").against("promise", PROMISED_MB).print()?;
    agent.kill().await?;
    Ok(())
}

/// An address that is free now. The agent does not say which one it chose.
async fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?.local_addr()?)
}

/// Reads the agent's metrics for so long: how often, and how long the slowest took.
async fn scraping(admin: SocketAddr, rest: Duration) -> anyhow::Result<(u32, Duration)> {
    let end = tokio::time::Instant::now() + rest;
    let mut ticks = tokio::time::interval(SCRAPE);
    let (mut scrapes, mut slowest) = (0, Duration::ZERO);
    while timeout_at(end, ticks.tick()).await.is_ok() {
        let began = Instant::now();
        let text = timeout(LIMIT, scrape(admin)).await.context("a scrape never ended")??;
        ensure!(text.contains("\novs_up 1\n"), "no figures of a switch: {text:.400}");
        scrapes += 1;
        slowest = slowest.max(began.elapsed());
    }
    Ok((scrapes, slowest))
}

async fn scrape(admin: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(admin).await.context("connect to the agent's metrics")?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// The agent as it is released: by a profile that makes programs small.
fn build() -> anyhow::Result<PathBuf> {
    let release = std::env::current_exe()?.parent().context("a target directory")?.to_owned();
    let target = release.parent().context("a target directory")?;
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--quiet", "--profile", "lean", "--package", AGENT, "--target-dir"]).arg(target);
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).stdout(Stdio::null()).status()?;
    ensure!(built.success(), "the agent does not build");
    Ok(target.join("lean").join(AGENT))
}

/// How many ports the bridge has in the OVSNode, as it changes.
struct Ports(BoxStream<'static, Result<WatchEvent<OVSNode>, kube::Error>>);

impl Ports {
    async fn of(api: &Api<OVSNode>) -> anyhow::Result<Self> {
        let params = WatchParams::default().timeout(290);
        Ok(Self(api.watch(&params, "0").await?.boxed()))
    }

    async fn until(&mut self, count: u64) -> anyhow::Result<()> {
        let seen = async {
            while let Some(event) = self.0.try_next().await? {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                    && ports(&object) == Some(count)
                {
                    return Ok(());
                }
            }
            anyhow::bail!("the watch ended")
        };
        timeout(LIMIT, seen).await.with_context(|| format!("the OVSNode never had {count} ports"))?
    }
}

fn ports(object: &OVSNode) -> Option<u64> {
    let status = serde_json::to_value(object.status.as_ref()?).ok()?;
    status["bridges"][0]["ports"].as_u64()
}

/// One port comes and goes; how long until the OVSNode says so.
async fn latency(args: &Args, scale: &Scale, watch: &mut Ports, ports: u64) -> anyhow::Result<()> {
    let mut took = Vec::new();
    while took.len() < args.changes {
        let started = Instant::now();
        let words = "--no-wait add-port br-int guest-of-honour -- set Interface guest-of-honour type=dummy";
        scale.vsctl(words.split(' '))?;
        watch.until(ports + 1).await?;
        took.push(started.elapsed());
        let started = Instant::now();
        scale.vsctl(["--no-wait", "del-port", "br-int", "guest-of-honour"])?;
        watch.until(ports).await?;
        took.push(started.elapsed());
    }
    took.sort();
    let quantile = |part: usize| took[(took.len() * part / 100).min(took.len() - 1)].as_secs_f64() * 1000.0;
    Figure::new("ovs_agent_scale.change_to_ovsnode_p50", quantile(50), "ms").print()?;
    Figure::new("ovs_agent_scale.change_to_ovsnode_p99", quantile(99), "ms").print()
}

/// Until nobody but the heartbeat has written anything for longer than the agent takes to make up its mind: a port is
/// called an orphan after three looks, ten seconds apart.
async fn quiet(server: &ApiServer) {
    let writes = || server.counters().sum(|key| !key.resource.starts_with("leases")).writes;
    loop {
        let before = writes();
        sleep(Duration::from_secs(40)).await;
        if writes() == before {
            return;
        }
    }
}
