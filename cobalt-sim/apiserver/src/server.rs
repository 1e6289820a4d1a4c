//! The server: its builder and its handle.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::admission::Admission;
use crate::auth::tokens::Tokens;
use crate::auth::{AuthConfig, Identity};
use crate::clock::{Clock, Entropy, Sequence};
use crate::controllers;
use crate::counters::Counters;
use crate::faults::{Fault, Faults};
use crate::http::{ApiService, serve};
use crate::registry::Registry;
use crate::store::{Bounds, Key, NAMESPACES, Object, Store};

/// Events each resource remembers unless the builder says otherwise.
const LOG_CAPACITY: usize = 10_000;

/// Bytes of JSON each resource remembers unless the builder says otherwise: ten thousand states of a large object.
const LOG_BYTES: usize = 64 * 1024 * 1024;

/// How a server is set up.
#[derive(Debug, Clone, Default)]
pub struct ServerBuilder {
    start: Option<Timestamp>,
    seed: Option<u64>,
    log_capacity: Option<usize>,
    log_bytes: Option<usize>,
    auth: AuthConfig,
    faults: Vec<Fault>,
    service_accounts: bool,
    controller_manager: bool,
}

impl ServerBuilder {
    /// The time the server's clock shows at its start; the present time unless set.
    pub fn start_time(mut self, start: Timestamp) -> Self {
        self.start = Some(start);
        self
    }

    /// Makes uids and generated names the same in every run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many events each resource remembers. Watches and pages older than that answer 410.
    pub fn log_capacity(mut self, events: usize) -> Self {
        self.log_capacity = Some(events);
        self
    }

    /// How many bytes of JSON each resource remembers, about: 64 MiB unless set. The older of the events that
    /// [`ServerBuilder::log_capacity`] would keep are forgotten first.
    pub fn log_bytes(mut self, bytes: usize) -> Self {
        self.log_bytes = Some(bytes);
        self
    }

    /// Accepts a bearer token.
    pub fn token(mut self, token: impl Into<String>, identity: Identity) -> Self {
        self.auth.tokens.insert(token.into(), identity);
        self
    }

    /// Requests without a token are anonymous. Without this they are an administrator's.
    pub fn require_auth(mut self) -> Self {
        self.auth.required = true;
        self
    }

    /// Stored roles and bindings decide who may do what. Implies [`ServerBuilder::require_auth`].
    pub fn rbac(mut self) -> Self {
        self.auth.required = true;
        self.auth.rbac = true;
        self
    }

    /// Pods need a service account that exists, and its token is mounted into them. Without this, pods are stored
    /// as they come.
    pub fn service_accounts(mut self) -> Self {
        self.service_accounts = true;
        self
    }

    /// Does what a cluster's controller manager does to nodes, namespaces and admission policies: nodes that are not
    /// ready, unreachable or unschedulable are tainted, namespaces get their default service account, and policies
    /// say in their status that they were checked. Implies [`ServerBuilder::service_accounts`].
    pub fn controller_manager(mut self) -> Self {
        self.service_accounts = true;
        self.controller_manager = true;
        self
    }

    /// Faults from the start.
    pub fn faults(mut self, plan: impl IntoIterator<Item = Fault>) -> Self {
        self.faults.extend(plan);
        self
    }

    /// Starts the server. Must be called within a Tokio runtime, where its background controllers run until the
    /// last handle is gone.
    pub fn start(self) -> ApiServer {
        let start = self.start.unwrap_or_else(Timestamp::now);
        let bounds = Bounds {
            events: self.log_capacity.unwrap_or(LOG_CAPACITY).max(1),
            bytes: self.log_bytes.unwrap_or(LOG_BYTES),
        };
        let inner = Arc::new(Inner {
            store: Store::new(bounds, 1),
            registry: Registry::new(),
            clock: Clock::starting_at(start),
            entropy: Entropy::new(self.seed),
            auth: self.auth,
            faults: Faults::default(),
            counters: Counters::default(),
            admission: Admission::default(),
            service_accounts: self.service_accounts,
            controller_manager: self.controller_manager,
            tokens: Tokens::default(),
            addresses: Sequence::default(),
            watches: AtomicUsize::new(0),
            controllers: OnceLock::new(),
        });
        inner.faults.set(self.faults);
        inner.populate();
        // What was before the first request is not remembered, as after a start of the real server.
        inner.store.compact();
        let task = tokio::spawn(controllers::run(Arc::downgrade(&inner)));
        let _ = inner.controllers.set(task.abort_handle());
        ApiServer(inner)
    }
}

/// Everything a running server knows.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) clock: Clock,
    pub(crate) entropy: Entropy,
    pub(crate) auth: AuthConfig,
    pub(crate) faults: Faults,
    pub(crate) counters: Counters,
    pub(crate) admission: Admission,
    /// Pods are held to their service accounts.
    pub(crate) service_accounts: bool,
    /// Nodes and namespaces are looked after.
    pub(crate) controller_manager: bool,
    pub(crate) tokens: Tokens,
    /// Cluster IPs of services that were handed out.
    pub(crate) addresses: Sequence,
    /// Watches that are open.
    pub(crate) watches: AtomicUsize,
    controllers: OnceLock<AbortHandle>,
}

impl Inner {
    /// Makes the buckets of the built-in kinds and the namespaces every cluster has.
    fn populate(&self) {
        for resource in self.registry.all() {
            self.store.add_bucket(&resource.bucket);
        }
        let now = self.clock.rfc3339();
        for name in ["kube-system", "kube-public", "default", "kube-node-lease"] {
            let namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": self.entropy.uid(),
                    "creationTimestamp": now,
                    "labels": {"kubernetes.io/metadata.name": name},
                    "managedFields": [{
                        "manager": "kube-apiserver",
                        "operation": "Update",
                        "apiVersion": "v1",
                        "time": now,
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}},
                    }],
                },
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            // The store is empty, so nobody can have been faster.
            let _ = self.store.put(NAMESPACES, &Key::new("", name), None, namespace);
        }
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<Arc<Object>> {
        self.store.get(NAMESPACES, &Key::new("", name))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.controllers.get() {
            task.abort();
        }
    }
}

/// A running API server. Clones are handles to the same server.
#[derive(Debug, Clone)]
pub struct ApiServer(pub(crate) Arc<Inner>);

impl ApiServer {
    /// A server with default settings; see [`ServerBuilder::start`].
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Settings of a new server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The in-process transport for a client of that name, acting as an administrator. Faults and counters know
    /// the client by this name.
    pub fn service(&self, client: impl Into<String>) -> ApiService {
        let client = client.into();
        let identity = Identity::admin(client.clone());
        ApiService::new(self.0.clone(), client, identity)
    }

    /// The in-process transport for a client that acts as somebody.
    pub fn service_as(&self, client: impl Into<String>, identity: Identity) -> ApiService {
        ApiService::new(self.0.clone(), client.into(), identity)
    }

    /// Serves HTTP/1.1 and HTTP/2 (both without TLS) until `shutdown` is ready.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
        serve(self.0.clone(), listener, shutdown).await
    }

    /// A kubeconfig for a server that listens on `address`, without credentials.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        kubeconfig(address, None)
    }

    /// A kubeconfig with a bearer token.
    pub fn kubeconfig_with_token(&self, address: SocketAddr, token: &str) -> String {
        kubeconfig(address, Some(token))
    }

    /// The faults of this server.
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// The request counters of this server.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The clock of this server.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The present revision of the store.
    pub fn revision(&self) -> u64 {
        self.0.store.revision()
    }

    /// How many objects of a resource are stored. The resource is named `plural.group`.
    pub fn count(&self, resource: &str) -> usize {
        self.0.store.len(resource)
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.0.watches.load(Ordering::Relaxed)
    }

    /// Forgets all past events: whoever asks for an older revision is told 410.
    pub fn compact(&self) {
        self.0.store.compact();
    }

    /// Waits until the background controllers (definitions, garbage collection, namespaces) have nothing to do.
    pub async fn settle(&self) {
        loop {
            let idle = self.0.store.idle.notified();
            if self.0.store.is_idle() {
                return;
            }
            idle.await;
        }
    }
}

fn kubeconfig(address: SocketAddr, token: Option<&str>) -> String {
    let user = token.map_or_else(|| "{}".to_owned(), |token| format!("{{token: {token:?}}}"));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: simulated\nclusters:\n- name: simulated\n  cluster:\n    server: http://{address}\ncontexts:\n- name: simulated\n  context:\n    cluster: simulated\n    user: simulated\n    namespace: default\nusers:\n- name: simulated\n  user: {user}\n"
    )
}
