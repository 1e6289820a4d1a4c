//! The drain of 100 VMs on a real Nova: how long it takes when 1, 2, 4 or 8 may leave at a time.
//!
//! Two hosts of a control plane with simulated guests, whose migrations all take the same time; everything else is
//! Nova's own. All VMs are driven from one host to the other and back, once per limit. The operator runs here, as a
//! library.

#![allow(clippy::cast_precision_loss, reason = "figures are read by people")]

#[path = "../../../bins/operator/tests/real/guests.rs"]
mod guests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Parser;
use cobalt_benches::Figure;
use cobalt_core::{
    agent::{Config, NodeAgent},
    api::{Hypervisor, labels},
    ids::HostName,
    jiff::Timestamp,
    nova::view::ViewOptions,
    operator::{Cloud, Operator, Settings},
    runtime::shutdown::Shutdown,
};
use cobalt_openstack::OpenStack;
use cobalt_rig::{Boot, ControlPlane, Venv};
use cobalt_sim::Region;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, block_in_place};

use guests::Guests;

const HOSTS: [&str; 2] = ["hv-1", "hv-2"];
const ZONE: &str = "zone-a";
const LIMITS: [usize; 4] = [1, 2, 4, 8];

/// Longer than the slowest drain takes.
const LONG: Duration = Duration::from_secs(3600);

#[derive(Parser)]
struct Args {
    /// How many VMs
    #[arg(long, default_value_t = 100)]
    servers: usize,
    /// How long the guest's part of each migration takes, in seconds
    #[arg(long, default_value_t = 2)]
    migration: u64,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&Args::parse()))
}

async fn measure(args: &Args) -> anyhow::Result<()> {
    let executable = std::env::current_exe()?;
    let target = executable.ancestors().nth(2).context("a target directory")?;
    let plane = Arc::new(ControlPlane::up(&Venv::find(target)?, &HOSTS)?);
    plane.add_aggregate(ZONE, Some(ZONE))?;
    plane.add_aggregate(labels::TEST_AGGREGATE, None)?;
    for host in HOSTS {
        plane.compute(host).migrations_take(Duration::from_secs(args.migration))?;
    }
    let bench = Bench::new(plane).await?;

    let operator = bench.operator(1).await?;
    for host in HOSTS {
        bench.until(host, |hypervisor| hypervisor.is_true("Ready")).await?;
    }
    bench.boot(HOSTS[0], args.servers)?;
    operator.end().await;

    let mut one = None;
    for (limit, turn) in LIMITS.into_iter().zip(0..) {
        let host = HOSTS[turn % HOSTS.len()];
        let operator = bench.operator(limit).await?;
        bench.until(host, |hypervisor| hypervisor.is_true("Ready")).await?;
        let seconds = bench.drain(host).await?;
        let figure = Figure::new(format!("drain_scale.{limit}_at_a_time"), seconds, "s");
        let one = *one.get_or_insert(seconds);
        if limit == 1 { figure } else { figure.against("one at a time", one) }.print()?;
        bench.patch(host, json!({"maintenance": null, "maintenanceReason": null})).await?;
        bench.until(host, |hypervisor| hypervisor.is_true("Ready")).await?;
        operator.end().await;
    }
    Ok(())
}

/// A running operator.
struct Running {
    stop: Shutdown,
    task: JoinHandle<()>,
}

impl Running {
    async fn end(self) {
        self.stop.trigger();
        let _ = self.task.await;
    }
}

struct Bench {
    plane: Arc<ControlPlane>,
    region: Region,
    client: Client,
}

impl Bench {
    async fn new(plane: Arc<ControlPlane>) -> anyhow::Result<Self> {
        let region = Region::builder().named(HOSTS).unregistered().starting_at(Timestamp::now()).build();
        let cluster = region.cluster().await?;
        for host in HOSTS {
            let name = HostName::from(host);
            let (backend, system) = (Arc::new(Guests::new(plane.compute(host))), Arc::new(region.host_system(&name)?));
            let agent = NodeAgent::new(cluster.client(host), Config::new(host), backend, system);
            tokio::spawn(agent.run(Shutdown::new()));
            cluster.join(&name).await?;
            cluster.label(&name, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await?;
        }
        Ok(Self { plane, client: cluster.client("bench"), region })
    }

    /// Starts an operator that lets so many leave at a time.
    async fn operator(&self, limit: usize) -> anyhow::Result<Running> {
        let openstack = OpenStack::connect(&cobalt_openstack::Cloud::from_vars(self.plane.environment())?).await?;
        let (nova, placement) = (Arc::new(openstack.nova()), Arc::new(openstack.placement()));
        let cloud = Cloud::new(nova, placement, ViewOptions::default());
        let mut settings = Settings::default();
        settings.drain.concurrency = limit;
        settings.drain.poll = Duration::from_secs(1);
        let stop = Shutdown::new();
        let operator = Operator::new(self.region.cluster().await?.client("operator")).cloud(cloud, settings);
        let running = operator.run(stop.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = running.await {
                eprintln!("the operator ended: {error}");
            }
        });
        Ok(Running { stop, task })
    }

    fn boot(&self, host: &str, count: usize) -> anyhow::Result<()> {
        block_in_place(|| {
            let names: Vec<String> = (0..count).map(|number| format!("server-{number}")).collect();
            // In portions: Nova builds only some at a time, and the others would wait too long.
            for names in names.chunks(10) {
                let ids: cobalt_rig::Result<Vec<String>> =
                    names.iter().map(|name| self.plane.request(&Boot::new(name).on(host))).collect();
                for id in ids? {
                    self.plane.wait_for_server(&id, "ACTIVE")?;
                }
            }
            Ok(())
        })
    }

    /// Empties a host, and tells how many seconds that took.
    async fn drain(&self, host: &str) -> anyhow::Result<f64> {
        let began = Instant::now();
        self.patch(host, json!({"maintenance": "manual", "maintenanceReason": "to see how long it takes"})).await?;
        self.until(host, |hypervisor| hypervisor.is_false("Evicting")).await?;
        let seconds = began.elapsed().as_secs_f64();
        let left = block_in_place(|| self.plane.servers_on(host))?.len();
        if left > 0 {
            bail!("{left} servers are still on {host}");
        }
        Ok(seconds)
    }

    async fn patch(&self, host: &str, spec: Value) -> anyhow::Result<()> {
        let api: Api<Hypervisor> = Api::all(self.client.clone());
        api.patch(host, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    async fn until(&self, host: &str, test: impl Fn(&Hypervisor) -> bool) -> anyhow::Result<()> {
        let (api, since) = (Api::<Hypervisor>::all(self.client.clone()), Instant::now());
        loop {
            let seen = api.get_opt(host).await?;
            if seen.as_ref().is_some_and(&test) {
                return Ok(());
            }
            if since.elapsed() > LONG {
                bail!("{host} stays as it is: {:?}", seen.map(|hypervisor| hypervisor.status));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
