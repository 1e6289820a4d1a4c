//! 1000 Nodes become 1000 Hypervisors that are onboarded into Nova, rest, and one is drained: what the operator costs its
//! API server, its cloud and its machine.
//!
//! The operator is the program that people deploy, in a process of its own. Around it, in this process: the region, with its
//! Kubernetes and its OpenStack on sockets. Everything that is counted is counted by these two servers.
//!
//! The hosts skip the smoke test, so that what is measured is the operator and not a thousand guests that boot. The pace
//! of an onboarding is that of `--openstack-rate`, 20 calls a second unless told.
//!
//! Without a cloud (`--no-openstack`) it is the same on Nodes and Hypervisors alone.
//!
//! At rest the traits of a region are read one host after the other, in rounds of five minutes; with fewer than 300 hosts
//! there are pauses between the rounds, so `--rest 300` gives their average.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

mod costs;
mod world;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use cobalt_benches::{Figure, Usage, steps::cpu_ns};
use tokio::time::sleep;

use costs::Calls;
use world::World;

/// Memory of the operator with 1000 Hypervisors, at most.
const PROMISED_MB: f64 = 40.0;
/// CPU of the operator at rest, in percent of a core, at most.
const PROMISED_CPU: f64 = 0.1;
/// The program, and what it calls itself.
const OPERATOR: &str = "cobalt-operator";

#[derive(Parser)]
struct Args {
    /// How many hosts
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// How many VMs each of them has
    #[arg(long, default_value_t = 50)]
    vms: usize,
    /// How long to watch the operator at rest, in seconds
    #[arg(long, default_value_t = 60)]
    rest: u64,
    /// Leave the cloud out
    #[arg(long)]
    no_openstack: bool,
    /// The operator's program, if it is built already
    #[arg(long)]
    program: Option<PathBuf>,
    /// More arguments for the operator
    #[arg(last = true)]
    operator: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let program = args.program.clone().map_or_else(build, Ok)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&args, &program))
}

/// The operator as it is released.
fn build() -> anyhow::Result<PathBuf> {
    let release = std::env::current_exe()?.parent().context("a target directory")?.to_owned();
    let target = release.parent().context("a target directory")?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(["build", "--quiet", "--profile", "lean", "--package", OPERATOR, "--target-dir"]).arg(target);
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).stdout(Stdio::null()).status()?;
    ensure!(built.success(), "the operator does not build");
    Ok(target.join("lean").join(OPERATOR))
}

async fn measure(args: &Args, program: &Path) -> anyhow::Result<()> {
    let world = World::new(args).await?;
    let (hosts, began) = (args.hosts as f64, Instant::now());
    let mut operator = world.operator(args, program)?;
    let pid = operator.pid()?;
    world.until_all(&mut operator, !args.no_openstack).await?;
    let seconds = began.elapsed().as_secs_f64();
    world.quiet().await;

    let made = Usage::of(pid)?;
    let (objects, status) = world.hypervisor_writes();
    let print =
        |name: &str, value: f64, unit: &'static str| Figure::new(format!("operator_scale.{name}"), value, unit).print();
    print("hosts", hosts, "hosts")?;
    print("time_to_onboard_all", seconds, "s")?;
    print("cpu_to_onboard_all", made.cpu_seconds, "s")?;
    let writes = Figure::new("operator_scale.writes_per_onboarding", (objects + status) as f64 / hosts, "writes");
    if args.no_openstack { writes } else { writes.against("earlier", costs::EARLIER_ONBOARDING) }.print()?;
    print("writes_per_onboarding_to_objects", objects as f64 / hosts, "writes")?;
    print("writes_per_onboarding_to_status", status as f64 / hosts, "writes")?;
    print("events_per_onboarding", world.event_writes() as f64 / hosts, "writes")?;
    print("calls_per_onboarding", Calls::so_far(&world.region).about_hosts() as f64 / hosts, "calls")?;
    print("rss_after_onboarding", made.resident_mb, "MB")?;
    print("rss_peak_onboarding", made.peak_mb, "MB")?;

    world.publish_instances(args).await?;
    world.quiet().await;
    world.reset();
    let before = cpu_ns(pid)?;
    sleep(Duration::from_secs(args.rest)).await;
    let share = cpu_ns(pid)?.saturating_sub(before) as f64 / 1e9 / args.rest as f64 * 100.0;
    let usage = Usage::of(pid)?;
    let (requests, writes) = world.requests_at_rest();
    print("requests_at_rest", requests as f64, "requests")?;
    print("writes_at_rest", writes as f64, "writes")?;
    Figure::new("operator_scale.cpu_at_rest", share, "% of a core").against("promise", PROMISED_CPU).print()?;
    Figure::new("operator_scale.rss", usage.resident_mb, "MB").against("promise", PROMISED_MB).print()?;
    Figure::new("operator_scale.rss_peak", usage.peak_mb, "MB").against("promise", PROMISED_MB).print()?;
    if args.no_openstack {
        return operator.end().await;
    }
    let (calls, minutes) = (Calls::so_far(&world.region), args.rest as f64 / 60.0);
    print("listings_at_rest", calls.listings as f64 / minutes, "calls/min")?;
    print("trait_reads_at_rest", calls.traits as f64 / minutes, "calls/min")?;
    print("other_calls_at_rest", calls.about_hosts() as f64 / minutes, "calls/min")?;

    let vms = world.servers_to_drain().await?;
    ensure!(vms > 0, "there is nothing to drain");
    world.reset();
    let seconds = world.drain(&mut operator).await?;
    world.quiet().await;
    let (evictions, hypervisors) = (world.eviction_writes(), world.hypervisor_writes());
    let (writes, vms) = ((evictions + hypervisors.0 + hypervisors.1) as f64, vms as f64);
    print("drained_vms", vms, "VMs")?;
    print("drain_time", seconds, "s")?;
    let per_vm = Figure::new("operator_scale.writes_per_evicted_vm", writes / vms, "writes");
    per_vm.against("earlier", costs::earlier_drain(vms) / vms).print()?;
    print("writes_per_drain_to_hypervisor", (hypervisors.0 + hypervisors.1) as f64, "writes")?;
    let calls = Calls::so_far(&world.region);
    print("calls_per_evicted_vm", calls.about_hosts() as f64 / vms, "calls")?;
    print("rss_peak_after_drain", Usage::of(pid)?.peak_mb, "MB")?;
    calls.show();
    operator.end().await
}
