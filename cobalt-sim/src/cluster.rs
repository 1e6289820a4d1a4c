//! The Kubernetes side of the region: an API server with Cobalt's kinds, and a kubelet for every host.

use std::{collections::BTreeMap, future::Future, net::IpAddr, sync::Arc, time::Duration};

use cobalt_apiserver::ApiServer;
use cobalt_core::{
    api::{crd, labels},
    ids::HostName,
};
use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    error::{ClusterCause, Result, SimError},
    programs::{self, FromHost},
    world::{HostId, Vitals, World},
};

/// The field manager of what the simulated kubelets write.
pub const KUBELET: &str = "kubelet";

/// The Kubernetes side of a region. Clones are handles to the same cluster.
///
/// Nodes do not appear by themselves: [`Cluster::join`] makes a host's Node, with the labels and addresses that a
/// compute node has. Whether Cobalt manages its life is a label that somebody has to set, here as in reality.
#[derive(Debug, Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    server: ApiServer,
    kubelet: KubeletClient,
    world: World,
    over: CancellationToken,
    _guard: DropGuard,
}

/// `kube::Client` without Debug output of its own.
#[derive(Clone)]
struct KubeletClient(Client);

impl std::fmt::Debug for KubeletClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("kubelet client")
    }
}

fn failed(operation: &str, error: &kube::Error) -> SimError {
    SimError::Cluster { operation: operation.to_owned(), cause: ClusterCause(error.to_string()) }
}

impl Cluster {
    /// Starts an API server whose clock is the world's, and teaches it Cobalt's kinds.
    pub(crate) async fn start(world: World, seed: u64) -> Result<Self> {
        let server = ApiServer::builder().seed(seed).start_time(world.now()).start();
        let client = Client::new(server.service(KUBELET), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(Client::new(server.service("installer"), "default"));
        for definition in crd::all() {
            let created = definitions.create(&PostParams::default(), &definition).await;
            created.map_err(|error| failed("install the definitions", &error))?;
        }
        server.settle().await;
        server.counters().reset();
        let over = CancellationToken::new();
        let inner = Inner { server, kubelet: KubeletClient(client), world, _guard: over.clone().drop_guard(), over };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The API server, for its faults and counters.
    pub fn server(&self) -> &ApiServer {
        &self.inner.server
    }

    /// A client of this name, in process. Faults and counters of the server know it by the name.
    pub fn client(&self, name: &str) -> Client {
        Client::new(self.inner.server.service(name), "default")
    }

    /// A client of this name for a program that runs on a host: it is cut off when the host is.
    pub fn client_on(&self, host: &HostName, name: &str) -> Result<Client> {
        let vitals = self.vitals(host)?;
        Ok(Client::new(FromHost { server: self.inner.server.service(name), vitals }, "default"))
    }

    /// Runs a program on a host: it starts when the host is up, anew after each boot, stands still while the host
    /// hangs, and dies with it. Ends when the program ends by itself, or with the region.
    pub fn run_on<F>(
        &self,
        host: &HostName,
        program: impl FnMut() -> F + Send + 'static,
    ) -> Result<tokio::task::JoinHandle<()>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let running = programs::run_on(self.vitals(host)?, program);
        let over = self.inner.over.clone();
        Ok(tokio::spawn(async move {
            tokio::select! {
                () = over.cancelled() => {}
                () = running => {}
            }
        }))
    }

    /// Serves the API on a socket until `shutdown` is ready. Time is real there.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
        self.inner.server.serve(listener, shutdown).await
    }

    fn vitals(&self, host: &HostName) -> Result<tokio::sync::watch::Receiver<Vitals>> {
        let found = self.inner.world.with(|state| state.host_id(host).map(|id| state.host(id).vitals.subscribe()));
        found.ok_or_else(|| SimError::UnknownHost { operation: "reach a host".into(), host: host.clone() })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.inner.kubelet.0.clone())
    }

    /// Makes the Node of a host. It is a compute node whose life nobody manages yet.
    pub async fn join(&self, host: &HostName) -> Result<()> {
        let operation = format!("join {host}");
        let node = self.inner.world.with(|state| {
            let id = state.host_id(host)?;
            let zone = state.nova.zone_of(id).unwrap_or("zone-a").to_owned();
            Some(node(id, host, state.host(id).driver.name(), &zone, state.timestamp()))
        });
        let node = node.ok_or_else(|| SimError::UnknownHost { operation: operation.clone(), host: host.clone() })?;
        let created = self.nodes().create(&PostParams::default(), &node).await;
        created.map_err(|error| failed(&operation, &error))?;
        let status = json!({ "status": node.status });
        self.patch_status(&operation, host, &status).await
    }

    /// Makes the Nodes of all hosts.
    pub async fn join_all(&self) -> Result<()> {
        for host in self.inner.world.hosts() {
            self.join(&host).await?;
        }
        Ok(())
    }

    async fn patch(&self, operation: &str, host: &HostName, change: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(KUBELET.into()), ..PatchParams::default() };
        let patched = self.nodes().patch(host.as_str(), &params, &Patch::Merge(change)).await;
        patched.map(|_| ()).map_err(|error| failed(operation, &error))
    }

    async fn patch_status(&self, operation: &str, host: &HostName, change: &Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(KUBELET.into()), ..PatchParams::default() };
        let patched = self.nodes().patch_status(host.as_str(), &params, &Patch::Strategic(change)).await;
        patched.map(|_| ()).map_err(|error| failed(operation, &error))
    }

    /// Sets a label of a Node, or removes it with `None`.
    pub async fn label(&self, host: &HostName, key: &str, value: Option<&str>) -> Result<()> {
        let change = json!({ "metadata": { "labels": { key: value } } });
        self.patch(&format!("label {host}"), host, &change).await
    }

    /// Sets an annotation of a Node, or removes it with `None`.
    pub async fn annotate(&self, host: &HostName, key: &str, value: Option<&str>) -> Result<()> {
        let change = json!({ "metadata": { "annotations": { key: value } } });
        self.patch(&format!("annotate {host}"), host, &change).await
    }

    /// Lets Cobalt manage the life of a host (`true`), or no longer.
    pub async fn manage(&self, host: &HostName, managed: bool) -> Result<()> {
        self.label(host, labels::LIFECYCLE, managed.then_some("true")).await
    }

    /// Replaces a Node's addresses inside the cluster, in this order.
    pub async fn set_internal_ips(&self, host: &HostName, addresses: &[IpAddr]) -> Result<()> {
        let hostname = json!({ "type": "Hostname", "address": host.as_str() });
        let internal = addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address.to_string() }));
        let all: Vec<Value> = internal.chain([hostname]).collect();
        let params = PatchParams { field_manager: Some(KUBELET.into()), ..PatchParams::default() };
        let change = json!({ "status": { "addresses": all } });
        let patched = self.nodes().patch_status(host.as_str(), &params, &Patch::Merge(&change)).await;
        patched.map(|_| ()).map_err(|error| failed(&format!("set addresses of {host}"), &error))
    }

    /// Sets a condition of a Node.
    pub async fn set_condition(&self, host: &HostName, type_: &str, status: &str, reason: &str) -> Result<()> {
        let now = Time(self.inner.world.now());
        let condition = NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(String::new()),
            last_transition_time: Some(now.clone()),
            last_heartbeat_time: Some(now),
        };
        let change = json!({ "status": { "conditions": [condition] } });
        self.patch_status(&format!("set condition {type_} of {host}"), host, &change).await
    }

    /// Announces that a Node is to go, as Gardener does: condition `Terminating`.
    pub async fn terminate(&self, host: &HostName) -> Result<()> {
        self.set_condition(host, "Terminating", "True", "MachineTerminating").await
    }

    /// Deletes a Node. One with finalizers only gets its deletion timestamp.
    pub async fn remove(&self, host: &HostName) -> Result<()> {
        let deleted = self.nodes().delete(host.as_str(), &DeleteParams::default()).await;
        deleted.map(|_| ()).map_err(|error| failed(&format!("remove {host}"), &error))
    }

    /// From now on keeps each Node's `Ready` condition in step with its host: `Unknown` once the host was silent for
    /// the grace time, `True` again when it is heard. Ends with the cluster.
    pub fn follow_hosts(&self) {
        let cluster = Arc::downgrade(&self.inner);
        let (over, world) = (self.inner.over.clone(), self.inner.world.clone());
        let (mut changes, grace) = world.with(|state| (state.changes.subscribe(), state.timing.node_grace));
        let mut follower = Follower { grace, silent: BTreeMap::new() };
        tokio::spawn(async move {
            loop {
                let next = {
                    let Some(inner) = cluster.upgrade() else { return };
                    follower.step(&Cluster { inner }).await
                };
                let grace_over = async {
                    match next {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = over.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                    () = grace_over => {}
                }
            }
        });
    }
}

/// Which hosts are silent, since when, and whether their Nodes say so.
struct Follower {
    grace: Duration,
    silent: BTreeMap<HostName, (Instant, bool)>,
}

impl Follower {
    /// Brings the Nodes up to date; answers when to look again at the latest.
    async fn step(&mut self, cluster: &Cluster) -> Option<Instant> {
        let heard: Vec<(HostName, bool)> = cluster
            .inner
            .world
            .with(|state| state.hosts.iter().map(|host| (host.name.clone(), host.vitals.borrow().heard())).collect());
        let now = Instant::now();
        let mut next = None;
        for (host, heard) in heard {
            if heard {
                if self.silent.remove(&host).is_some_and(|(_, told)| told) {
                    tell(cluster, &host, "True", "KubeletReady").await;
                }
                continue;
            }
            let (since, told) = self.silent.entry(host.clone()).or_insert((now, false));
            let due = *since + self.grace;
            if *told {
                continue;
            }
            if due <= now {
                *told = true;
                tell(cluster, &host, "Unknown", "NodeStatusUnknown").await;
            } else {
                next = Some(next.map_or(due, |next: Instant| next.min(due)));
            }
        }
        next
    }
}

async fn tell(cluster: &Cluster, host: &HostName, status: &str, reason: &str) {
    // A host without a Node has nothing to be told about.
    if let Err(error) = cluster.set_condition(host, "Ready", status, reason).await {
        tracing::debug!(%host, status, %error, "the Node's condition was not written");
    }
}

/// The Node of a host, as its kubelet would register it.
fn node(id: HostId, host: &HostName, driver: &str, zone: &str, now: jiff::Timestamp) -> Node {
    let text = |text: &str| text.to_owned();
    let labels = [
        (labels::HOSTNAME, text(host.as_str())),
        (labels::VIRT_DRIVER, text(if driver == "ch" { "ch" } else { "kvm" })),
        (labels::REGION, text("region-1")),
        (labels::ZONE, text(zone)),
        (labels::BUILDING_BLOCK, format!("bb{:03}", id.number() / 16)),
        (labels::METAL_CLUSTER, text("sim")),
        (labels::METAL_NAME, text(host.as_str())),
        (labels::METAL_TYPE, text("baremetal")),
        (labels::WORKER_GROUP, text("kvm")),
        (labels::WORKER_POOL, text("kvm")),
    ];
    let address = |type_: &str, address: String| NodeAddress { type_: text(type_), address };
    let [_, b2, b1, b0] = id.number().to_be_bytes();
    let condition = |type_: &str, status: &str, reason: &str| NodeCondition {
        type_: text(type_),
        status: text(status),
        reason: Some(text(reason)),
        message: Some(String::new()),
        last_transition_time: Some(Time(now)),
        last_heartbeat_time: Some(Time(now)),
    };
    Node {
        metadata: ObjectMeta {
            name: Some(text(host.as_str())),
            labels: Some(labels.into_iter().map(|(key, value)| (text(key), value)).collect()),
            ..ObjectMeta::default()
        },
        spec: None,
        status: Some(NodeStatus {
            addresses: Some(vec![
                address("InternalIP", format!("10.{}.{}.{}", 180 + b2 % 64, b1, b0)),
                address("Hostname", text(host.as_str())),
            ]),
            conditions: Some(vec![
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("Ready", "True", "KubeletReady"),
            ]),
            node_info: Some(NodeSystemInfo {
                architecture: text("amd64"),
                operating_system: text("linux"),
                os_image: text("Garden Linux 1877.2"),
                kernel_version: text("6.12.44-cloud-amd64"),
                kubelet_version: text("v1.33.0"),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}
