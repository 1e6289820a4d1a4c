//! The process behind `cargo xtask rig up`: a simulated region, one API server, some hosts or a switch, until SIGTERM.
//!
//! `rig sim|kube|libvirt|ovs|openstack DIRECTORY` prints one line of JSON when everything is ready, and nothing after it. The API
//! servers write a kubeconfig into the directory, the simulated region also an openrc.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use cobalt_apiserver::conformance::envtest::{Assets, Envtest};
use cobalt_rig::{Act, ControlPlane, Guest, Hosts, Kernel, Venv, ovs};
use cobalt_sim::Region;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, directory] = arguments.as_slice() else {
        bail!("usage: rig sim|kube|libvirt|ovs|openstack DIRECTORY");
    };
    let directory = Path::new(directory);
    // Before anything is started: a signal must not end us without its Drop.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    match name.as_str() {
        "sim" => simulated(directory, stop).await,
        "kube" => real(directory, stop).await,
        "libvirt" => hosts(directory, stop).await,
        "ovs" => node(stop).await,
        "openstack" => openstack(directory, stop).await,
        other => bail!("there is no rig {other}"),
    }
}

/// Three hosts with some servers each: their Nodes in Kubernetes, themselves in OpenStack.
async fn simulated(directory: &Path, stop: impl Future<Output = ()>) -> Result<()> {
    let bind = || async { TcpListener::bind("127.0.0.1:0").await.context("cannot bind a port of 127.0.0.1") };
    let (kubernetes, openstack) = (bind().await?, bind().await?);
    let (address, cloud) = (kubernetes.local_addr()?, openstack.local_addr()?);
    // Programs beside it have the time of the machine.
    let region = Region::builder().hosts(3).vms_per_host(8).starting_at(jiff::Timestamp::now()).build();
    let cluster = region.cluster().await.context("cannot start the cluster")?;
    cluster.join_all().await.context("the hosts cannot join the cluster")?;
    cluster.follow_hosts();
    let kubeconfig = keep(directory, "kubeconfig", &cluster.server().kubeconfig(address))?;
    let openrc = keep(directory, "openrc", &region.openstack().openrc(cloud))?;
    let line = serde_json::json!({
        "what": "a simulated region", "server": format!("http://{address}"), "kubeconfig": kubeconfig,
        "cloud": format!("http://{cloud}"), "openrc": openrc,
    });
    println!("{line}");
    // Both end with the first: the region is over then.
    tokio::select! {
        () = stop => Ok(()),
        served = region.serve(kubernetes, std::future::pending()) => served.context("the Kubernetes API stopped"),
        served = region.serve_openstack(openstack, std::future::pending()) => served.context("the OpenStack API stopped"),
    }
}

async fn real(directory: &Path, stop: impl Future<Output = ()>) -> Result<()> {
    let server = Envtest::start(&Assets::from_environment()?).await?;
    let kubeconfig = keep(directory, "kubeconfig", &server.kubeconfig())?;
    ready("a real kube-apiserver", server.server(), &kubeconfig);
    stop.await;
    Ok(())
}

async fn hosts(directory: &Path, stop: impl Future<Output = ()>) -> Result<()> {
    let hosts = Hosts::up(2).context("cannot bring the hosts up")?;
    // The directory lies in `rigs` below the target directory, where the kernel is if somebody has fetched it.
    let target = directory.ancestors().nth(2).context("the directory is not below a target directory")?;
    let guest = match Kernel::prepare(target, &hosts.shared()) {
        Ok(kernel) => Guest::new("vm1").act(&kernel, Act::Idle),
        Err(_) => Guest::new("vm1"),
    };
    hosts.host(0).define(&guest).context("cannot define a domain")?;
    let uris: Vec<String> = hosts.iter().flat_map(|host| [host.tcp(), host.tls(), host.unix()]).collect();
    println!("{}", serde_json::json!({"what": "libvirt on two hosts", "uris": uris}));
    stop.await;
    Ok(())
}

async fn node(stop: impl Future<Output = ()>) -> Result<()> {
    let node = ovs::Node::up().context("cannot bring the node up")?;
    let at = |name: &str| node.directory().join(name).display().to_string();
    let commands = [
        format!("export OVS_RUNDIR={0} OVN_RUNDIR={0}", node.directory().display()),
        format!("ovs-vsctl --db={} show", node.database(ovs::Way::Unix)),
        format!("ovs-appctl -t {} bond/show", at("ovs-vswitchd.ctl")),
        format!("ovs-ofctl dump-flows unix:{}", at("br-int.mgmt")),
        format!("ovn-sbctl --db={} show", node.southbound(ovs::Way::Unix)),
        format!("nsenter {} ping 10.0.0.12   # from one VM to the other", node.vm(0).enter()),
        format!("nsenter {} bash             # the node's own network", node.enter()),
        format!("# over the network: {} and {}", node.database(ovs::Way::Tcp), node.database(ovs::Way::Ssl)),
        format!("# with the certificates in {}", node.pki().display()),
    ];
    println!("{}", serde_json::json!({"what": "Open vSwitch with OVN on a node", "commands": commands}));
    stop.await;
    Ok(())
}

async fn openstack(directory: &Path, stop: impl Future<Output = ()>) -> Result<()> {
    let target = directory.ancestors().nth(2).context("the directory is not below a target directory")?;
    let venv = Venv::find(target).context("cannot use OpenStack")?;
    let plane = ControlPlane::up(&venv, &["hv-1", "hv-2", "hv-3"]).context("cannot bring the control plane up")?;
    for number in 1..=3 {
        plane.boot("hv-1", &format!("server-{number}")).context("cannot boot a server")?;
    }
    let environment: serde_json::Map<_, _> =
        plane.environment().into_iter().map(|(name, value)| (name, value.into())).collect();
    println!("{}", serde_json::json!({"what": "OpenStack with three computes", "environment": environment}));
    stop.await;
    Ok(())
}

fn keep(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = directory.join(name);
    // It holds a secret; a file of an earlier run may have other rights.
    std::fs::remove_file(&path).ok();
    let opened = std::fs::File::options().create_new(true).write(true).mode(0o600).open(&path);
    let written = opened.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn ready(what: &str, server: &str, kubeconfig: &Path) {
    println!("{}", serde_json::json!({"what": what, "server": server, "kubeconfig": kubeconfig}));
}
