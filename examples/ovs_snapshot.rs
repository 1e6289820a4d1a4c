//! What the switch of this host looks like now: daemons, bridges, ports, bonds, OVN's controller.
//!
//!     cargo run -p cobalt-examples --example ovs_snapshot
//!     cargo run -p cobalt-examples --example ovs_snapshot -- --run-dir /var/run/openvswitch --southbound --stale

use std::{io::Write, path::PathBuf};

use clap::Parser;
use cobalt_core::ovs::{Binding, Daemon, OvsSnapshot};
use cobalt_ovs::{OvsInspector, OvsOptions, OvsSwitch, Pki, Southbound};

/// Shows the switch of this host.
#[derive(Parser)]
struct Args {
    /// Where the sockets of Open vSwitch are.
    #[arg(long, default_value = "/run/openvswitch")]
    run_dir: PathBuf,
    /// Where the socket of ovn-controller is.
    #[arg(long, default_value = "/run/ovn")]
    ovn_run_dir: PathBuf,
    /// Ask OVN's southbound database too, where ovn-controller finds it.
    #[arg(long)]
    southbound: bool,
    /// Look for flows that no row of the southbound database explains. Reads all flows.
    #[arg(long, requires = "southbound")]
    stale: bool,
    /// The authority, our certificate and its key, if the southbound database is reached over ssl.
    #[arg(long, num_args = 3, value_names = ["CA", "CERTIFICATE", "KEY"])]
    pki: Option<Vec<PathBuf>>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut options = OvsOptions::new().run_dir(args.run_dir).ovn_run_dir(args.ovn_run_dir);
    if args.southbound {
        options = options.southbound(Southbound::AsController);
    }
    if let Some([ca, certificate, key]) = args.pki.as_deref() {
        options = options.pki(Pki::new(ca, certificate, key));
    }
    let switch = OvsSwitch::connect(options).await?;
    let mut out = std::io::stdout();
    let snapshot = switch.snapshot().await?;
    show(&snapshot, &mut out)?;
    if let Some(state) = switch.southbound_state().filter(|state| !state.connected) {
        writeln!(out, "southbound database: not connected: {}", state.last_error.unwrap_or_default())?;
    }
    if args.stale {
        for bridge in &snapshot.bridges {
            let stale = switch.stale_flows(&bridge.name).await?;
            writeln!(out, "{}: {} flows that nothing explains", bridge.name, stale.values().sum::<u64>())?;
            for (cookie, flows) in stale {
                writeln!(out, "    cookie {cookie:#x}: {flows}")?;
            }
        }
    }
    Ok(())
}

fn show(snapshot: &OvsSnapshot, out: &mut impl Write) -> std::io::Result<()> {
    let connected =
        if snapshot.database_connected { "connected" } else { "NOT CONNECTED, this is what was known last" };
    writeln!(out, "ovsdb-server    {} ({connected})", daemon(&snapshot.database))?;
    writeln!(out, "ovs-vswitchd    {}", daemon(&snapshot.switch))?;
    if snapshot.configuration_pending {
        writeln!(out, "                has not taken up the last change of its configuration")?;
    }
    if let Some(controller) = &snapshot.controller {
        let southbound = controller.southbound.as_deref().unwrap_or("nowhere");
        let connected = if controller.southbound_connected { "connected to" } else { "NOT CONNECTED to" };
        writeln!(out, "ovn-controller  {}, {connected} {southbound}", daemon(&controller.daemon))?;
        if let Some(lag) = controller.lag {
            writeln!(out, "                {lag} configuration steps behind")?;
        }
        if controller.openflow_connected == Some(false) {
            writeln!(out, "                has no OpenFlow connection to the switch")?;
        }
        for port in controller.unplugged.iter().flatten() {
            writeln!(out, "                logical port {port} is bound here and plugged nowhere")?;
        }
    }
    for bridge in &snapshot.bridges {
        let flows = bridge.total_flows().map_or_else(|| "unknown".to_owned(), |flows| flows.to_string());
        writeln!(out, "\n{} ({}): {} ports, {flows} flows", bridge.name, bridge.datapath_type, bridge.ports)?;
        for port in snapshot.interfaces.iter().filter(|port| port.bridge == bridge.name) {
            let link = port.link_up.map_or("?", |up| if up { "up" } else { "DOWN" });
            let received = port.statistics.get("rx_packets").copied().unwrap_or_default();
            let role = format!("{:?}", port.role);
            write!(out, "    {:<16} {role:<9} {link:<5} {received:>10} packets in", port.name)?;
            if let Some(logical) = &port.logical_port {
                write!(out, "  {logical}: {}", binding(port.binding.as_ref()))?;
            }
            if let Some(chassis) = &port.remote_chassis {
                write!(out, "  to {chassis}{}", if port.remote_known == Some(false) { " (GONE)" } else { "" })?;
            }
            if let Some(error) = &port.error {
                write!(out, "  {error}")?;
            }
            writeln!(out)?;
        }
    }
    for bond in &snapshot.bonds {
        let (active, all) = (bond.active_members(), bond.members.len());
        writeln!(out, "\nbond {} ({}): {active} of {all} members carry traffic", bond.name, bond.mode)?;
        for member in &bond.members {
            let enabled = member.enabled.map_or("?", |enabled| if enabled { "enabled" } else { "DISABLED" });
            let lacp = member.lacp.as_deref().unwrap_or("no LACP");
            writeln!(out, "    {:<16} {enabled:<9} {lacp}", member.name)?;
        }
    }
    Ok(())
}

fn daemon(daemon: &Daemon) -> String {
    match daemon {
        Daemon::Responsive { version } => version.clone().unwrap_or_else(|| "of unknown version".into()),
        Daemon::Unresponsive => "DOES NOT ANSWER".into(),
        Daemon::Inaccessible { why } => format!("CANNOT BE ASKED ({why})"),
        _ => "does not run".into(),
    }
}

fn binding(binding: Option<&Binding>) -> String {
    match binding {
        Some(Binding::Here) => "bound here".into(),
        Some(Binding::Elsewhere(place)) => format!("BOUND TO {place}"),
        Some(Binding::Unknown) => "UNKNOWN TO OVN".into(),
        _ => "nobody says whether it is bound".into(),
    }
}
