//! What becomes of a packet: the tables it meets on this host's switch, and where it leaves or is dropped. Nothing is
//! sent.
//!
//!     cargo run -p cobalt-examples --example trace_packet -- tap0 fa:16:3e:00:00:01 fa:16:3e:00:00:02
//!     cargo run -p cobalt-examples --example trace_packet -- tap0 fa:16:3e:00:00:01 fa:16:3e:00:00:02 \
//!         --from 10.0.0.11 --to 10.0.0.12 --tcp 22

use std::{io::Write, net::IpAddr, path::PathBuf};

use anyhow::Context;
use clap::Parser;
use cobalt_core::ovs::{Trace, TraceRequest, Transport, Verdict};
use cobalt_ovs::{OvsInspector, OvsOptions, OvsSwitch};

/// Follows a packet through the tables.
#[derive(Parser)]
struct Args {
    /// The port it enters by.
    port: String,
    /// Its source at the link layer.
    source: String,
    /// Its destination at the link layer.
    destination: String,
    /// The bridge it enters.
    #[arg(long, default_value = "br-int")]
    bridge: String,
    /// The VLAN it is tagged with.
    #[arg(long)]
    vlan: Option<u16>,
    /// Its source address.
    #[arg(long, requires = "to")]
    from: Option<IpAddr>,
    /// Its destination address.
    #[arg(long, requires = "from")]
    to: Option<IpAddr>,
    /// The TCP port it is for. Without one it is an echo request.
    #[arg(long, requires = "from")]
    tcp: Option<u16>,
    /// Where the sockets of Open vSwitch are.
    #[arg(long, default_value = "/run/openvswitch")]
    run_dir: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let ip = args.from.zip(args.to);
    let request = TraceRequest {
        bridge: args.bridge,
        in_port: args.port,
        ethernet: (args.source, args.destination),
        vlan: args.vlan,
        ip,
        transport: ip.map(|_| args.tcp.map_or(Transport::IcmpEcho, |port| Transport::Tcp(32768, port))),
    };
    let switch = OvsSwitch::connect(OvsOptions::new().run_dir(args.run_dir)).await?;
    let trace = switch.trace(&request).await.context("the switch did not follow it")?;
    show(&trace, &mut std::io::stdout())?;
    Ok(())
}

fn show(trace: &Trace, out: &mut impl Write) -> std::io::Result<()> {
    for step in &trace.steps {
        let matched = if step.matched.is_empty() { "anything" } else { &step.matched };
        writeln!(out, "{} table {}: {matched}", step.bridge, step.table)?;
        for action in &step.actions {
            writeln!(out, "    {action}")?;
        }
    }
    match &trace.verdict {
        Verdict::Forwarded(ports) => writeln!(out, "It leaves by {}.", ports.join(", ")),
        Verdict::Dropped => writeln!(out, "It is dropped."),
        Verdict::Controller => writeln!(out, "It goes to the controller."),
        other => writeln!(out, "{other:?}"),
    }
}
