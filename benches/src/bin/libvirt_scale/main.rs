//! A full inventory and one scrape of a host with 300 domains: ours, and what people read libvirt with today, all against
//! the same real daemon, in turns; and what 50, 300 and 1000 domains cost ours.
//!
//! Each client is a process of its own with one connection, made beforehand (Debian's exporter connects for every page).
//! CPU is the client's, user and system; what the daemon spends is the same for all who ask the same. Peers that are not
//! installed are left out, and that is said.
//!
//! The scale of ours is measured with a scripted daemon whose domains answer like recorded ones of QEMU, because a
//! thousand real ones do not fit on the machines this runs on.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

mod ours;
mod peers;

use std::{path::PathBuf, process::Command};

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use cobalt_benches::{
    Figure,
    steps::{Cost, Steps},
};
use cobalt_libvirt::{BackendOptions, HypervisorBackend, LibvirtBackend};
use cobalt_rig::{Guest, Hosts};

use self::{
    ours::{Scripted, What},
    peers::{Client, OtherExporter, Virsh},
};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// How many domains the real daemon has
    #[arg(long, default_value_t = 300)]
    domains: usize,
    /// How many of them run: as paused QEMUs, which cost memory but no CPU
    #[arg(long, default_value_t = 100)]
    running: usize,
    /// How many turns everybody gets; the median counts
    #[arg(long, default_value_t = 9)]
    turns: usize,
    /// The example `inventory` of the crate on `virt`, if it is built already
    #[arg(long)]
    virt: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Role {
    /// Our client, for the one who measures
    Client { uri: String, what: What },
    /// A scripted daemon, for the one who measures
    Serve { domains: usize },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &args.role {
        Some(Role::Client { uri, what }) => runtime.block_on(ours::client(uri, *what)),
        Some(Role::Serve { domains }) => runtime.block_on(ours::serve(*domains)),
        None => {
            runtime.block_on(calls())?;
            scale(&args)?;
            compare(&args)
        }
    }
}

fn our(uri: &str, what: What) -> anyhow::Result<Steps> {
    Steps::start("ours", Command::new(std::env::current_exe()?).args(["client", uri, what.name()]))
}

fn boxed(client: impl Client + 'static) -> Box<dyn Client> {
    Box::new(client)
}

/// How many calls go over the wire, counted by the scripted daemon.
async fn calls() -> anyhow::Result<()> {
    const DOMAINS: usize = 300;
    let server = ours::scripted(DOMAINS)?;
    let uri = format!("qemu+tcp://{}/system", server.listen_tcp().await?);
    let backend = LibvirtBackend::connect(&uri, BackendOptions::new()).await?;
    for what in [What::Inventory, What::InventoryAgain, What::Scrape] {
        server.reset_counts();
        let found = if what == What::Scrape { backend.stats().await?.len() } else { backend.inventory().await?.len() };
        ensure!(found == DOMAINS, "{found} domains of {DOMAINS}");
        let count: u64 = server.counts().values().sum();
        Figure::new(format!("libvirt_scale.{}.calls", what.name()), count as f64, "calls").print()?;
    }
    Ok(())
}

/// What ours costs with more and more domains.
fn scale(args: &Args) -> anyhow::Result<()> {
    for domains in [50, 300, 1000] {
        let scripted = Scripted::start(domains)?;
        for what in [What::Inventory, What::InventoryAgain, What::Scrape, What::Page] {
            let mut client = [("ours", boxed(our(&scripted.uri, what)?))];
            let cost = Cost::median(&turns(args.turns, domains, &mut client)?[0]);
            let name = format!("libvirt_scale.{}.{domains}_domains", what.name());
            Figure::new(format!("{name}.cpu"), cost.cpu_ms, "ms").print()?;
            Figure::new(format!("{name}.wall"), cost.wall_ms, "ms").print()?;
        }
    }
    Ok(())
}

/// Lets everybody do it in turns.
fn turns(count: usize, expected: usize, clients: &mut [(&str, Box<dyn Client>)]) -> anyhow::Result<Vec<Vec<Cost>>> {
    let mut costs = vec![Vec::new(); clients.len()];
    for _ in 0..count {
        for ((name, client), costs) in clients.iter_mut().zip(&mut costs) {
            let (cost, found) = client.step().with_context(|| format!("a step of {name}"))?;
            ensure!(found == expected, "{name} found {found} domains of {expected}");
            costs.push(cost);
        }
    }
    Ok(costs)
}

/// Everybody against the same real daemon.
fn compare(args: &Args) -> anyhow::Result<()> {
    let missing = cobalt_rig::missing();
    if !missing.is_empty() {
        eprintln!("no comparison against a real libvirtd: there is no {missing:?}");
        return Ok(());
    }
    let hosts = Hosts::up(1)?;
    let host = hosts.host(0);
    let disk = hosts.shared().join("disk.raw");
    std::fs::File::create(&disk)?.set_len(1 << 20)?;
    let guests: Vec<Guest> = (0..args.domains)
        .map(|n| {
            let mac = format!("52:54:00:00:{:02x}:{:02x}", n / 256, n % 256);
            // The one disk is never written to: nobody runs.
            let shared = format!(
                "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/>\
                 <target dev='vda' bus='virtio'/><shareable/></disk>",
                disk.display()
            );
            Guest::new(format!("instance-{n:08x}")).memory_mib(16).nic(mac).device(&shared)
        })
        .collect();
    host.define_all(&guests)?;
    let names: Vec<String> = guests.iter().map(|guest| guest.name().to_owned()).collect();
    let running = args.running.min(args.domains);
    for name in &names[..running] {
        host.virsh(["start", "--paused", name])?;
    }
    eprintln!("{} domains are defined, {running} of them are active", args.domains);

    let uri = host.unix();
    let program = args.virt.clone().map_or_else(peers::build_virt, Ok);
    let program = program.inspect_err(|error| eprintln!("without virt: {error:#}")).ok();
    for what in [What::Inventory, What::Scrape, What::Page] {
        let expected = if what == What::Inventory { args.domains } else { running };
        let mut all: Vec<(&str, Box<dyn Client>)> = vec![("ours", Box::new(our(&uri, what)?))];
        let mut add = |name: &'static str, client: anyhow::Result<Box<dyn Client>>| match client {
            Ok(client) => all.push((name, client)),
            Err(error) => eprintln!("{} without {name}: {error:#}", what.name()),
        };
        if what == What::Inventory {
            add("ours again", our(&uri, What::InventoryAgain).map(boxed));
        }
        if what == What::Page {
            add("prometheus-libvirt-exporter", OtherExporter::start(&uri).map(boxed));
        } else {
            add("virsh", Virsh::start(&uri, what, &names).map(boxed));
            if let Some(program) = &program {
                add("virt", peers::virt(program, &uri, what).map(boxed));
            }
            add("libvirt-python", peers::python(&uri, what).map(boxed));
        }
        let costs = turns(args.turns, expected, &mut all)?;
        let medians: Vec<(&str, Cost)> =
            all.iter().zip(&costs).map(|((name, _), costs)| (*name, Cost::median(costs))).collect();
        report(what, &medians)?;
    }
    Ok(())
}

/// The first is ours, and every other one but ours again is compared with it.
fn report(what: What, medians: &[(&str, Cost)]) -> anyhow::Result<()> {
    let [(_, ours), others @ ..] = medians else { return Ok(()) };
    let name = format!("libvirt_scale.{}", what.name());
    for (peer, cost) in others {
        if *peer == "ours again" {
            Figure::new(format!("{name}-again.cpu"), cost.cpu_ms, "ms").print()?;
            Figure::new(format!("{name}-again.wall"), cost.wall_ms, "ms").print()?;
            continue;
        }
        let label = |measure: f64| format!("{peer} ({measure:.1} ms)");
        Figure::new(format!("{name}.cpu"), ours.cpu_ms, "ms").against(label(cost.cpu_ms), cost.cpu_ms).print()?;
        Figure::new(format!("{name}.wall"), ours.wall_ms, "ms").against(label(cost.wall_ms), cost.wall_ms).print()?;
    }
    Ok(())
}
