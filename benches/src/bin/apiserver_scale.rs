//! The simulated API server with 10 000 Hypervisors: list, watch fan-out, applies, memory.
//!
//! Everything runs in this process and through the in-process transport, so the figures are the server's and not a
//! socket's. The clients read bytes and lines only: decoding objects would measure them and not the server.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Parser;
use cobalt_apiserver::ApiServer;
use cobalt_benches::{Figure, Usage};
use cobalt_core::api::crd;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use http::Request;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Nothing here may take longer.
const LIMIT: Duration = Duration::from_secs(600);
const HYPERVISORS: &str = "/apis/kvm.cloud.sap/v1/hypervisors";

#[derive(Parser)]
struct Args {
    /// How many Hypervisors
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// How many clients watch at once
    #[arg(long, default_value_t = 50)]
    watchers: usize,
    /// How many changes each of them must see
    #[arg(long, default_value_t = 1000)]
    changes: usize,
    /// How many applies are timed
    #[arg(long, default_value_t = 5000)]
    applies: usize,
    /// How many clients apply at once
    #[arg(long, default_value_t = 2)]
    appliers: usize,
    /// How many instances each status lists; 45 make about 5 KB
    #[arg(long, default_value_t = 45)]
    instances: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let server = ApiServer::builder().seed(1).start();
    let client = Client::new(server.service("bench"), "default");
    for definition in crd::all() {
        Api::all(client.clone()).create(&PostParams::default(), &definition).await?;
    }
    server.settle().await;

    let pid = std::process::id();
    let empty = Usage::of(pid)?;
    let started = Instant::now();
    each(args.objects, args.appliers, |n| fill(client.clone(), n, args.instances)).await?;
    let seconds = started.elapsed().as_secs_f64();
    let full = Usage::of(pid)?;
    let objects = args.objects as f64;
    let one = get(&client, &format!("{HYPERVISORS}/{}", name(0))).await?;
    Figure::new("apiserver_scale.object_size", one.len() as f64, "B").print()?;
    Figure::new("apiserver_scale.create_and_apply_per_second", objects / seconds, "1/s").print()?;
    let each_kb = (full.resident_mb - empty.resident_mb) * 1000.0 / objects;
    Figure::new("apiserver_scale.memory_per_object", each_kb, "KB").print()?;

    list(&client).await?;
    fan_out(&server, &client, &args).await?;
    applies(&client, &args).await?;
    Figure::new("apiserver_scale.rss_peak", Usage::of(pid)?.peak_mb, "MB").print()
}

fn name(n: usize) -> String {
    format!("hv-{n:05}")
}

async fn call(client: &Client, method: &str, path: &str, media: &str, body: &Value) -> anyhow::Result<String> {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(serde_json::to_vec(body)?)?;
    timeout(LIMIT, client.request_text(request)).await?.with_context(|| format!("{method} {path}"))
}

async fn get(client: &Client, path: &str) -> anyhow::Result<String> {
    timeout(LIMIT, client.request_text(Request::get(path).body(Vec::new())?)).await?.with_context(|| path.to_owned())
}

/// Does something `count` times, some of them at once.
async fn each<F, Fut>(count: usize, at_once: usize, act: F) -> anyhow::Result<()>
where
    F: FnMut(usize) -> Fut,
    Fut: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let tasks = stream::iter(0..count).map(act).map(|act| async { tokio::spawn(act).await? });
    tasks.buffer_unordered(at_once).try_collect().await
}

async fn fill(client: Client, n: usize, instances: usize) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "metadata": {"name": name(n), "labels": {"topology.kubernetes.io/zone": "qa-1a"}}, "spec": {},
    });
    call(&client, "POST", HYPERVISORS, "application/json", &object).await?;
    apply(client, n, instances, 0).await
}

/// Publishes a status as an agent does; `round` makes it another one.
async fn apply(client: Client, n: usize, instances: usize, round: usize) -> anyhow::Result<()> {
    let listed: Vec<_> = (0..instances)
        .map(|i| json!({"id": format!("{n:08x}-0000-4000-8000-{i:012x}"), "name": format!("instance-{i:08x}"), "active": true}))
        .collect();
    let status = json!({
        "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
        "status": {
            "libVirtVersion": "9.0.0", "hypervisorVersion": format!("7.2.{round}"), "numInstances": instances,
            "instances": listed,
            "capacity": {"cpu": "128", "memory": "1Ti"}, "allocation": {"cpu": "100", "memory": "800Gi"},
        },
    });
    let path = format!("{HYPERVISORS}/{}/status?fieldManager=agent&force=true", name(n));
    call(&client, "PATCH", &path, "application/apply-patch+yaml", &status).await?;
    Ok(())
}

/// One list from the cache and one that is read anew.
async fn list(client: &Client) -> anyhow::Result<()> {
    for what in ["first", "again"] {
        let started = Instant::now();
        let text = get(client, HYPERVISORS).await?;
        let seconds = started.elapsed().as_secs_f64();
        Figure::new(format!("apiserver_scale.list_{what}"), seconds * 1000.0, "ms").print()?;
        if what == "again" {
            Figure::new("apiserver_scale.list_size", text.len() as f64 / 1e6, "MB").print()?;
        }
    }
    Ok(())
}

/// How fast changes reach all watchers.
async fn fan_out(server: &ApiServer, client: &Client, args: &Args) -> anyhow::Result<()> {
    let path = format!("{HYPERVISORS}?watch=true&resourceVersion={}", server.revision());
    let mut watching = Vec::new();
    for n in 0..args.watchers {
        let client = Client::new(server.service(format!("watcher-{n}")), "default");
        let lines = client.request_stream(Request::get(&path).body(Vec::new())?).await?;
        let changes = args.changes;
        watching.push(tokio::spawn(async move {
            lines.lines().take(changes).try_fold(0, |n, _| async move { Ok(n + 1) }).await
        }));
    }
    let started = Instant::now();
    for n in 0..args.changes {
        let path = format!("{HYPERVISORS}/{}", name(n % args.objects));
        let patch = json!({"spec": {"version": format!("v{n}")}});
        call(client, "PATCH", &path, "application/merge-patch+json", &patch).await?;
    }
    for task in watching {
        let seen: usize = timeout(LIMIT, task).await???;
        anyhow::ensure!(seen == args.changes, "a watcher saw {seen} of {} changes", args.changes);
    }
    let events = (args.changes * args.watchers) as f64;
    let seconds = started.elapsed().as_secs_f64();
    Figure::new("apiserver_scale.watch_events_per_second", events / seconds, "1/s").print()?;
    Figure::new("apiserver_scale.watched_change", seconds * 1000.0 / args.changes as f64, "ms").print()
}

async fn applies(client: &Client, args: &Args) -> anyhow::Result<()> {
    let started = Instant::now();
    each(args.applies, args.appliers, |n| {
        apply(client.clone(), n % args.objects, args.instances, 1 + n / args.objects)
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    Figure::new("apiserver_scale.applies_per_second", args.applies as f64 / seconds, "1/s").print()
}
