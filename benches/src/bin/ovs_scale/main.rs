//! An inventory of a switch with 2000 ports, and the flows of one with 100 000 counted: ours, and what people ask Open
//! vSwitch with today, all against the same real daemons, in turns.
//!
//! Each client is a process that starts, connects, reads and is done, because that is what `ovs-vsctl` is; all of it
//! counts. Ours takes a whole snapshot (bridges, ports, interfaces with counters, the daemons' answers, flows per
//! table), the others list the interfaces only. CPU is the client's. Peers that are not there are left out, and that is
//! said.
//!
//! The ports are imagined ones (`--enable-dummy`), so that no kernel has to have them.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

mod once;
mod ours;
mod peers;

use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use cobalt_benches::Figure;
use cobalt_rig::ovs::{Scale, missing};

use self::{
    once::{Cost, Ending, run},
    ours::What,
};

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// How many ports the switch has
    #[arg(long, default_value_t = 2000)]
    ports: usize,
    /// How many flows it has when they are counted
    #[arg(long, default_value_t = 100_000)]
    flows: usize,
    /// How many turns everybody gets; the median counts
    #[arg(long, default_value_t = 7)]
    turns: usize,
}

#[derive(Subcommand)]
enum Role {
    /// Our client, for the one who measures
    Client { directory: std::path::PathBuf, what: What },
}

/// Somebody who does it once, from start to end.
struct Client {
    name: &'static str,
    command: Box<dyn Fn() -> Command>,
    ending: Ending,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(Role::Client { directory, what }) = &args.role {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(ours::client(directory, *what));
    }
    let missing = missing();
    if !missing.is_empty() {
        eprintln!("no figures without a real Open vSwitch: there is no {missing:?}");
        return Ok(());
    }
    let scale = Scale::up(args.ports)?;
    eprintln!("a switch with {} ports is up", args.ports);
    inventory(&args, &scale)?;
    scale.add_flows(args.flows)?;
    eprintln!("it has {} flows", args.flows);
    flows(&args, &scale)
}

fn ours(name: &'static str, scale: &Scale, what: What) -> anyhow::Result<Client> {
    let (program, directory) = (std::env::current_exe()?, scale.directory().to_owned());
    let command = move || {
        let mut command = Command::new(&program);
        command.arg("client").arg(&directory).arg(what.name());
        command
    };
    Ok(Client { name, command: Box::new(command), ending: Ending::Says })
}

fn inventory(args: &Args, scale: &Scale) -> anyhow::Result<()> {
    // The bridge has a port of its own.
    let expected = args.ports + 1;
    let mut all = vec![ours("ours", scale, What::Inventory)?];
    let mut add = |client: anyhow::Result<Client>| match client {
        Ok(client) => all.push(client),
        Err(error) => eprintln!("without a peer: {error:#}"),
    };
    add(Ok(peers::vsctl(scale)));
    add(peers::python(scale));
    add(peers::ovsdb(scale));
    let medians = turns(args.turns, expected, &all)?;
    report("ovs_scale.inventory", &all, &medians)
}

fn flows(args: &Args, scale: &Scale) -> anyhow::Result<()> {
    let all = [
        ours("ours", scale, What::Count)?,
        ours("our dump", scale, What::Dump)?,
        peers::ofctl(scale, "dump-aggregate"),
        peers::ofctl(scale, "dump-flows"),
    ];
    let medians = turns(args.turns, args.flows, &all)?;
    report("ovs_scale.flow_count", &all, &medians)
}

/// Lets everybody do it in turns.
fn turns(count: usize, expected: usize, clients: &[Client]) -> anyhow::Result<Vec<Cost>> {
    let mut costs = vec![Vec::new(); clients.len()];
    for _ in 0..count {
        for (client, costs) in clients.iter().zip(&mut costs) {
            let (cost, found) = run((client.command)(), client.ending).with_context(|| client.name.to_owned())?;
            ensure!(found == expected, "{} found {found} of {expected}", client.name);
            costs.push(cost);
        }
    }
    Ok(costs.iter().map(|costs| Cost::median(costs)).collect())
}

/// The first is ours, and every other one is compared with it.
fn report(name: &str, clients: &[Client], medians: &[Cost]) -> anyhow::Result<()> {
    let [ours, others @ ..] = medians else { return Ok(()) };
    for (client, cost) in clients[1..].iter().zip(others) {
        let figure = |what: &str, unit: &'static str, ours: f64, theirs: f64| {
            let against = format!("{} ({theirs:.1} {unit})", client.name);
            Figure::new(format!("{name}.{what}"), ours, unit).against(against, theirs).print()
        };
        figure("cpu", "ms", ours.cpu_ms, cost.cpu_ms)?;
        figure("wall", "ms", ours.wall_ms, cost.wall_ms)?;
        figure("rss_peak", "MB", ours.peak_mb, cost.peak_mb)?;
    }
    Ok(())
}
