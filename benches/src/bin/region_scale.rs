//! 1000 hosts with 50 VMs each in one process: the memory of the simulated world and of what it costs to ask it.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

use anyhow::Context;
use clap::Parser;
use cobalt_benches::{Figure, Usage};
use cobalt_core::backend::HypervisorBackend;
use cobalt_sim::Region;

#[derive(Parser)]
struct Args {
    /// How many hosts
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// How many VMs on each
    #[arg(long, default_value_t = 50)]
    vms: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let pid = std::process::id();
    let empty = Usage::of(pid)?;
    let region = Region::builder().hosts(args.hosts).vms_per_host(args.vms).seed(1).build();
    let full = Usage::of(pid)?;
    let mut domains = 0;
    for host in region.hosts() {
        domains += region.backend(&host)?.inventory().await.context("inventory")?.len();
    }
    let asked = Usage::of(pid)?;
    Figure::new("region_scale.vms", domains as f64, "VMs").print()?;
    Figure::new("region_scale.rss", full.resident_mb - empty.resident_mb, "MB").print()?;
    let per_vm = (full.resident_mb - empty.resident_mb) * 1e6 / domains.max(1) as f64;
    Figure::new("region_scale.bytes_per_vm", per_vm, "bytes").print()?;
    Figure::new("region_scale.cpu_to_build", full.cpu_seconds - empty.cpu_seconds, "s").print()?;
    Figure::new("region_scale.cpu_of_all_inventories", asked.cpu_seconds - full.cpu_seconds, "s").print()?;
    Ok(())
}
