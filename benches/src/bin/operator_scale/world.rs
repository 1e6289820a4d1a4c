//! The region around the operator.

use std::{
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use cobalt_apiserver::Verb;
use cobalt_core::{
    agent::{Config, NodeAgent},
    api::{Hypervisor, labels},
    ids::HostName,
    jiff::Timestamp,
    nova::NovaClient,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Cluster, Region};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, process::Child, process::Command, time::sleep};

use crate::{Args, OPERATOR};

const HYPERVISORS: &str = "hypervisors.kvm.cloud.sap";
const EVICTIONS: &str = "evictions.kvm.cloud.sap";
const AGGREGATES: [&str; 2] = ["a", "b"];
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct World {
    pub(crate) region: Region,
    cluster: Cluster,
    folder: TempDir,
    openstack: SocketAddr,
}

/// The operator's process.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn pid(&self) -> anyhow::Result<u32> {
        self.0.id().context("the operator has ended")
    }

    fn check(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            Some(status) => bail!("the operator ended early: {status}"),
            None => Ok(()),
        }
    }

    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        Ok(self.0.kill().await?)
    }
}

impl World {
    /// A region with its Nodes, whose hosts are known to Nova and disabled, as new ones are. The agent of the host that
    /// will be drained runs.
    pub(crate) async fn new(args: &Args) -> anyhow::Result<Self> {
        let region =
            Region::builder().hosts(args.hosts).vms_per_host(args.vms).starting_at(Timestamp::now()).seed(1).build();
        for name in AGGREGATES.into_iter().chain([labels::TEST_AGGREGATE]) {
            region.add_aggregate(name, None);
        }
        let nova = region.nova();
        for service in nova.services().await? {
            nova.disable_service(&service.id, "new").await?;
        }
        let cluster = region.cluster().await?;
        let (folder, listener, openstack) = (tempfile::tempdir()?, socket().await?, socket().await?);
        std::fs::write(folder.path().join("kubeconfig"), cluster.server().kubeconfig(listener.local_addr()?))?;
        let world = Self { openstack: openstack.local_addr()?, folder, cluster, region };
        let serving = world.region.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending::<()>()).await });
        let serving = world.region.clone();
        tokio::spawn(async move { serving.serve_openstack(openstack, std::future::pending::<()>()).await });

        let join = |host: HostName| {
            let cluster = &world.cluster;
            async move {
                cluster.join(&host).await?;
                cluster.label(&host, labels::LIFECYCLE, Some(labels::SKIP_TESTS)).await?;
                cluster.annotate(&host, labels::AGGREGATES_ANNOTATION, Some(&AGGREGATES.join(","))).await?;
                cluster.annotate(&host, labels::CUSTOM_TRAITS_ANNOTATION, Some("CUSTOM_A")).await
            }
        };
        stream::iter(world.region.hosts()).map(join).buffer_unordered(16).try_collect::<Vec<()>>().await?;
        let host = world.drained()?;
        let (backend, system) = (Arc::new(world.region.backend(&host)?), Arc::new(world.region.host_system(&host)?));
        let agent = NodeAgent::new(world.cluster.client("agent"), Config::new(host.as_str()), backend, system);
        tokio::spawn(agent.run(Shutdown::new()));
        Ok(world)
    }

    fn drained(&self) -> anyhow::Result<HostName> {
        self.region.hosts().into_iter().next().context("a region without hosts")
    }

    pub(crate) fn operator(&self, args: &Args, program: &Path) -> anyhow::Result<Running> {
        let mut command = Command::new(program);
        command
            .args(["--admin-bind-address", "127.0.0.1:0", "--log-level", "warn"])
            .args(["--agent-namespaces", "default", "--eviction-concurrency", "8"])
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .args(args.no_openstack.then_some("--no-openstack"))
            .args(&args.operator)
            .envs(self.region.openstack().environment(self.openstack))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(Running(command.spawn().context("start the operator")?))
    }

    fn hypervisors(&self) -> Api<Hypervisor> {
        Api::all(self.cluster.client("bench"))
    }

    async fn until<F>(operator: &mut Running, what: &str, mut done: impl FnMut() -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<bool>>,
    {
        let began = Instant::now();
        while !done().await? {
            operator.check()?;
            if began.elapsed() > LONG {
                bail!("waited in vain for {what}");
            }
            // Looking at all of them costs this process time that the operator's servers need.
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// Until there is a Hypervisor of each host, and it is ready, or with no cloud has been judged.
    pub(crate) async fn until_all(&self, operator: &mut Running, ready: bool) -> anyhow::Result<()> {
        let (hosts, api) = (self.region.hosts().len(), &self.hypervisors());
        Self::until(operator, "all Hypervisors", || async move {
            let all = api.list(&ListParams::default()).await?;
            let is_done =
                |one: &&Hypervisor| if ready { one.is_true("Ready") } else { one.condition("Ready").is_some() };
            Ok(all.items.iter().filter(is_done).count() == hosts)
        })
        .await
    }

    /// Until nobody has written anything but a sign of life for a while.
    pub(crate) async fn quiet(&self) {
        let writes = || self.cluster.server().counters().sum(|key| !key.resource.starts_with("leases")).writes;
        loop {
            let before = writes();
            sleep(Duration::from_secs(5)).await;
            if writes() == before {
                return;
            }
        }
    }

    pub(crate) fn reset(&self) {
        self.cluster.server().counters().reset();
        self.region.openstack().counters().reset();
    }

    /// Writes of the operator on Hypervisors: the objects themselves, and their status.
    pub(crate) fn hypervisor_writes(&self) -> (u64, u64) {
        let writes = |status: bool| {
            let ours = self.cluster.server().counters().sum(|key| {
                key.client == OPERATOR && key.resource == HYPERVISORS && (key.subresource == "status") == status
            });
            ours.writes
        };
        (writes(false), writes(true))
    }

    fn writes_on(&self, resource: &str) -> u64 {
        self.cluster.server().counters().sum(|key| key.client == OPERATOR && key.resource == resource).writes
    }

    pub(crate) fn eviction_writes(&self) -> u64 {
        self.writes_on(EVICTIONS)
    }

    pub(crate) fn event_writes(&self) -> u64 {
        self.writes_on("events.events.k8s.io") + self.writes_on("events")
    }

    /// Requests of the operator besides watches and their lists, and how many of them wrote.
    pub(crate) fn requests_at_rest(&self) -> (u64, u64) {
        let ours = |key: &cobalt_apiserver::CounterKey| key.client == OPERATOR;
        let counts =
            self.cluster.server().counters().sum(|key| ours(key) && !matches!(key.verb, Verb::List | Verb::Watch));
        (counts.requests, counts.writes)
    }

    /// A realistic status, as the agents would have published it, so that the operator's cache holds what it would hold.
    pub(crate) async fn publish_instances(&self, args: &Args) -> anyhow::Result<()> {
        let (api, drained) = (self.hypervisors(), self.drained()?);
        let params = PatchParams::apply("cobalt-node-agent").force();
        for (n, host) in self.region.hosts().into_iter().enumerate().filter(|(_, host)| *host != drained) {
            let instances: Vec<_> = (0..args.vms)
                .map(|i| json!({"id": format!("{n:08x}-0000-4000-8000-{i:012x}"), "name": format!("instance-{i:08x}"), "active": true}))
                .collect();
            let body = json!({
                "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor",
                "status": {
                    "libVirtVersion": "9.0.0", "hypervisorVersion": "7.2.22", "numInstances": args.vms,
                    "instances": instances,
                    "capacity": {"cpu": "128", "memory": "1Ti"}, "allocation": {"cpu": "100", "memory": "800Gi"},
                    "effectiveCapacity": {"cpu": "256", "memory": "1Ti"},
                },
            });
            api.patch_status(host.as_str(), &params, &Patch::Apply(body)).await?;
        }
        Ok(())
    }

    /// How many servers the host has that will be drained.
    pub(crate) async fn servers_to_drain(&self) -> anyhow::Result<usize> {
        Ok(self.region.nova().servers_on(&self.drained()?).await?.len())
    }

    /// Empties it, and tells how many seconds that took.
    pub(crate) async fn drain(&self, operator: &mut Running) -> anyhow::Result<f64> {
        let (host, api, began) = (&self.drained()?, &self.hypervisors(), Instant::now());
        let spec: Value = json!({"spec": {"maintenance": "manual", "maintenanceReason": "to count what it costs"}});
        api.patch(host.as_str(), &PatchParams::default(), &Patch::Merge(spec)).await?;
        Self::until(
            operator,
            "an empty host",
            || async move { Ok(api.get(host.as_str()).await?.is_false("Evicting")) },
        )
        .await?;
        let left = self.servers_to_drain().await?;
        if left > 0 {
            bail!("{left} servers are still on {host}");
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

async fn socket() -> anyhow::Result<TcpListener> {
    Ok(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?)
}
