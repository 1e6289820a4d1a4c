//! 1000 Nodes become 1000 Hypervisors: writes per Hypervisor, requests at rest, memory and CPU of the operator.
//!
//! The API server runs here, on a socket; the operator is this same executable started as a process of its own, with
//! the library's program and nothing else in it.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use std::{net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use clap::Parser;
use cobalt_apiserver::{ApiServer, Verb};
use cobalt_benches::{Figure, Usage};
use cobalt_core::{
    api::{Hypervisor, crd, labels},
    operator::program,
};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::{net::TcpListener, process::Command, time::sleep};

/// Memory of the operator with 1000 Hypervisors, at most.
const PROMISED_MB: f64 = 40.0;

#[derive(Parser)]
struct Args {
    /// How many Nodes
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// How long to watch the operator at rest, in seconds
    #[arg(long, default_value_t = 20)]
    rest: u64,
    /// How many instances each status lists, as an agent would publish them
    #[arg(long, default_value_t = 50)]
    instances: usize,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // The child: everything after `operator` is the operator's own command line.
    if std::env::args().nth(1).as_deref() == Some("operator") {
        let args = program::Args::parse_from(std::env::args().skip(1));
        return Ok(runtime.block_on(program::run(args))?);
    }
    runtime.block_on(measure(Args::parse()))
}

async fn measure(args: Args) -> anyhow::Result<()> {
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

    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(address))?;
    let mut operator = Command::new(std::env::current_exe()?)
        .arg("operator")
        .args(["--admin-bind-address", "0", "--log-level", "warn", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("start the operator")?;
    let pid = operator.id().context("the operator has no process id")?;

    create_nodes(&client, args.nodes).await?;
    let hypervisors: Api<Hypervisor> = Api::all(client.clone());
    wait_until(&mut operator, || async {
        let list = hypervisors.list(&kube::api::ListParams::default()).await?;
        let judged = list.items.iter().filter(|hypervisor| hypervisor.condition("Ready").is_some()).count();
        Ok(judged == args.nodes)
    })
    .await?;
    quiet(&server).await;
    let by_operator = |writes_only: bool| {
        let counts = server
            .counters()
            .sum(|key| key.client == "cobalt-operator" && !matches!(key.verb, Verb::List | Verb::Watch));
        if writes_only { counts.writes } else { counts.requests }
    };
    let made = Usage::of(pid)?;
    let nodes = args.nodes as f64;
    let writes_on_hypervisors = server
        .counters()
        .sum(|key| key.client == "cobalt-operator" && key.resource == "hypervisors.kvm.cloud.sap")
        .writes;
    Figure::new("operator_scale.writes_per_hypervisor", writes_on_hypervisors as f64 / nodes, "writes").print()?;
    Figure::new("operator_scale.cpu_to_create_all", made.cpu_seconds, "s").print()?;
    Figure::new("operator_scale.rss_after_create", made.resident_mb, "MB").print()?;

    publish_instances(&client, &args).await?;
    quiet(&server).await;
    server.counters().reset();
    let before = Usage::of(pid)?;
    sleep(Duration::from_secs(args.rest)).await;
    let after = Usage::of(pid)?;
    Figure::new("operator_scale.requests_at_rest", by_operator(false) as f64, "requests").print()?;
    Figure::new("operator_scale.writes_at_rest", by_operator(true) as f64, "writes").print()?;
    let share = (after.cpu_seconds - before.cpu_seconds) / args.rest as f64 * 100.0;
    Figure::new("operator_scale.cpu_at_rest", share, "% of a core").against("promise", 0.1).print()?;
    Figure::new("operator_scale.rss", after.resident_mb, "MB").against("promise", PROMISED_MB).print()?;
    Figure::new("operator_scale.rss_peak", after.peak_mb, "MB").against("promise", PROMISED_MB).print()?;
    operator.kill().await?;
    Ok(())
}

async fn create_nodes(client: &Client, count: usize) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let make = |n: usize| {
        let nodes = nodes.clone();
        async move {
            let node = json!({
                "metadata": {
                    "name": format!("hv-{n:04}"),
                    "labels": {labels::VIRT_DRIVER: "kvm", labels::LIFECYCLE: "", labels::ZONE: "qa-1a",
                               labels::REGION: "qa", labels::HOSTNAME: format!("hv-{n:04}"), labels::BUILDING_BLOCK: "bb01"},
                    "annotations": {labels::AGGREGATES_ANNOTATION: "a,b", labels::CUSTOM_TRAITS_ANNOTATION: "CUSTOM_A"},
                },
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
            anyhow::Ok(())
        }
    };
    let results: Vec<_> = stream::iter(0..count).map(make).buffer_unordered(16).collect().await;
    results.into_iter().collect()
}

/// A realistic status, as the agents would have published it, so that the operator's cache holds what it would hold.
async fn publish_instances(client: &Client, args: &Args) -> anyhow::Result<()> {
    let api: Api<Hypervisor> = Api::all(client.clone());
    let params = kube::api::PatchParams::apply("cobalt-node-agent").force();
    for n in 0..args.nodes {
        let instances: Vec<_> = (0..args.instances)
            .map(|i| json!({"id": format!("{n:08x}-0000-4000-8000-{i:012x}"), "name": format!("instance-{i:08x}"), "active": true}))
            .collect();
        let body = json!({
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
            "status": {
                "libVirtVersion": "9.0.0", "hypervisorVersion": "7.2.22", "numInstances": args.instances,
                "instances": instances,
                "capacity": {"cpu": "128", "memory": "1Ti"}, "allocation": {"cpu": "100", "memory": "800Gi"},
                "effectiveCapacity": {"cpu": "256", "memory": "1Ti"},
            },
        });
        api.patch_status(&format!("hv-{n:04}"), &params, &kube::api::Patch::Apply(body)).await?;
    }
    Ok(())
}

/// Until nobody has written anything for a while.
async fn quiet(server: &ApiServer) {
    loop {
        let before = server.revision();
        sleep(Duration::from_secs(2)).await;
        if server.revision() == before {
            return;
        }
    }
}

async fn wait_until<F, Fut>(operator: &mut tokio::process::Child, mut done: F) -> anyhow::Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<bool>>,
{
    for _ in 0..1200 {
        if let Some(status) = operator.try_wait()? {
            bail!("the operator ended early: {status}");
        }
        if done().await? {
            return Ok(());
        }
        sleep(Duration::from_millis(250)).await;
    }
    bail!("the operator did not finish within five minutes")
}
