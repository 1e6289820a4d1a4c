//! Hosts, an API server, and agents between them.

use std::{path::Path, time::Duration};

use cobalt_apiserver::ApiServer;
use cobalt_core::{
    api::{Hypervisor, HypervisorStatus, Migration, crd},
    kube::{
        Api, Client,
        api::{ListParams, PostParams},
    },
};
use cobalt_rig::{Act, Guest, Host, HostOptions, Hosts, Kernel};
use k8s_openapi::api::{coordination::v1::Lease, events::v1::Event};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{Running, Scratch, command},
};

/// Whatever is to happen has happened by then, also on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

/// Some hosts, each with a Hypervisor that nobody has reported on yet.
pub(crate) struct Region {
    pub(crate) hosts: Hosts,
    pub(crate) server: ApiServer,
    client: Client,
    kernel: Option<Kernel>,
    kubeconfig: String,
    scratch: Scratch,
}

/// The Node's name of the host with this index.
pub(crate) fn node(index: usize) -> String {
    format!("node-{}", index + 1)
}

impl Region {
    /// So many hosts, or `None` after telling why there are none.
    pub(crate) async fn up(test: &str, hosts: usize) -> Option<Region> {
        Self::up_with(test, &vec![HostOptions::default(); hosts]).await
    }

    pub(crate) async fn up_with(test: &str, options: &[HostOptions]) -> Option<Region> {
        if !cobalt_rig::available(test) {
            return None;
        }
        let hosts = Hosts::up_with(options).expect("hosts");
        // Cargo's directory for integration tests lies directly below the target directory.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let kernel = Kernel::prepare(target, &hosts.shared());
        if let Err(error) = &kernel {
            cobalt_rig::skip(&format!("{test} (what its guests do)"), &error.to_string());
        }
        let server = ApiServer::builder().seed(1).start();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scratch = Scratch::new();
        let kubeconfig = scratch.file("kubeconfig", &server.kubeconfig(listener.local_addr().unwrap()));
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
        let client = Client::new(server.service("test"), "default");
        for definition in crd::all() {
            Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
        }
        server.settle().await;
        let hypervisors: Api<Hypervisor> = Api::all(client.clone());
        for index in 0..options.len() {
            let object = json!({"metadata": {"name": node(index)}, "spec": {}});
            hypervisors.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        }
        Some(Region { hosts, server, client, kernel: kernel.ok(), kubeconfig, scratch })
    }

    pub(crate) fn host(&self, index: usize) -> &Host {
        self.hosts.host(index)
    }

    /// A guest that does something, if there is a kernel to do it.
    pub(crate) fn guest(&self, name: &str, act: Act) -> Option<Guest> {
        self.kernel.as_ref().map(|kernel| Guest::new(name).act(kernel, act))
    }

    /// Runs the agent of a host, with libvirt at this URI.
    pub(crate) fn agent(&self, index: usize, uri: &str, more: &[&str]) -> Running {
        let mut command = command(PROGRAM);
        command
            .env("NODE_NAME", node(index))
            .args(["--libvirt-uri", uri, "--kubeconfig", &self.kubeconfig, "--admin-bind-address", "127.0.0.1:0"])
            .args(["--migration-namespace", "default", "--heartbeat-namespace", "default"])
            // Its end is waited for like everything else.
            .args(["--shutdown-grace-period", "4m"])
            // A machine of its own: whatever this one has of systemd is not looked at.
            .arg("--host-root")
            .arg(self.scratch.path("nothing"))
            .args(more);
        Running::start(&mut command)
    }

    /// Waits until a host's Hypervisor satisfies the test; fails with its last state otherwise.
    pub(crate) async fn until(&self, index: usize, what: &str, test: impl Fn(&Hypervisor) -> bool) -> Hypervisor {
        let api: Api<Hypervisor> = Api::all(self.client.clone());
        until(what, &api, &node(index), test).await
    }

    /// Waits until the Migration of a guest satisfies the test.
    pub(crate) async fn migration(&self, guest: &Guest, what: &str, test: impl Fn(&Migration) -> bool) -> Migration {
        let api: Api<Migration> = Api::namespaced(self.client.clone(), "default");
        until(what, &api, &guest.uuid(), test).await
    }

    /// Waits until the Lease of a host satisfies the test.
    pub(crate) async fn lease(&self, index: usize, what: &str, test: impl Fn(&Lease) -> bool) -> Lease {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), "default");
        until(what, &api, &format!("cobalt-node-agent-{}", node(index)), test).await
    }

    /// The reasons of all Events so far, with what they say.
    pub(crate) async fn told(&self) -> Vec<(String, String)> {
        let api: Api<Event> = Api::all(self.client.clone());
        let events = api.list(&ListParams::default()).await.unwrap();
        events.into_iter().map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default())).collect()
    }

    /// Waits for an Event with this reason about somebody.
    pub(crate) async fn hears(&self, reason: &str, about: &str) {
        let heard = async {
            while !self.told().await.iter().any(|(why, note)| why == reason && note.contains(about)) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let came = tokio::time::timeout(LIMIT, heard).await;
        assert!(came.is_ok(), "no {reason} about {about} in {:?}", self.told().await);
    }

    /// How often anybody but this test has written a Hypervisor or a Migration.
    pub(crate) fn writes(&self) -> u64 {
        let ours = |resource: &str| resource.ends_with(".kvm.cloud.sap");
        self.server.counters().sum(|key| key.client != "test" && ours(&key.resource)).writes
    }
}

/// Waits until an object satisfies the test; fails with its last state otherwise.
async fn until<K>(what: &str, api: &Api<K>, name: &str, test: impl Fn(&K) -> bool) -> K
where
    K: cobalt_core::kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        match api.get_opt(name).await.unwrap() {
            Some(found) if test(&found) => return found,
            last if tokio::time::Instant::now() > deadline => panic!("{name}: never {what}; last: {last:#?}"),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Waits for a condition that nobody announces.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"));
}

/// Defines a guest and starts it.
pub(crate) fn start(host: &Host, guest: &Guest) {
    host.define(guest).unwrap();
    host.virsh(["start", guest.name()]).unwrap();
}

/// Whether the Hypervisor lists this guest so.
pub(crate) fn lists(hypervisor: &Hypervisor, guest: &Guest, active: bool) -> bool {
    let instances = hypervisor.status.as_ref().map(HypervisorStatus::instances).unwrap_or_default();
    instances.iter().any(|instance| instance.id == guest.uuid() && instance.active == active)
}
