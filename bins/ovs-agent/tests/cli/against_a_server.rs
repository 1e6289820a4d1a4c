//! The whole program against a simulated API server on a socket.

use cobalt_core::{
    agent::ovs::lease_name,
    api::OVSNode,
    ids::HostName,
    k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace},
    kube::{Api, ResourceExt, api::PostParams, runtime::wait::await_condition},
};
use cobalt_sim::{Cluster, Region};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{LIMIT, Running, Scratch, command, get, metrics_are},
};

const NAMESPACE: &str = "ovn-system";

/// A cluster with one Node.
struct Served {
    cluster: Cluster,
    kubeconfig: String,
    host: HostName,
    _scratch: Scratch,
    _region: Region,
}

impl Served {
    async fn new() -> Self {
        let region = Region::builder().hosts(1).build();
        let cluster = region.cluster().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = cluster.server().kubeconfig(listener.local_addr().unwrap());
        let serving = cluster.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
        let namespaces: Api<Namespace> = Api::all(cluster.client("test"));
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        cluster.join_all().await.unwrap();
        let scratch = Scratch::new();
        let kubeconfig = scratch.file("kubeconfig", &text);
        let host = region.hosts()[0].clone();
        Self { cluster, kubeconfig, host, _scratch: scratch, _region: region }
    }

    fn agent(&self, more: &[&str]) -> Running {
        let mut command = command(PROGRAM);
        let args = [
            "--inspector",
            "simulated",
            "--kubeconfig",
            &self.kubeconfig,
            "--admin-bind-address",
            "127.0.0.1:0",
            "--troubleshooting-bind-address",
            "127.0.0.1:0",
            // Its end is waited for like everything else.
            "--shutdown-grace-period=4m",
        ];
        command.env("NODE_NAME", self.host.as_str()).args(args).args(more);
        Running::start(&mut command)
    }

    async fn published(&self) -> OVSNode {
        let api: Api<OVSNode> = Api::namespaced(self.cluster.client("test"), NAMESPACE);
        let is_published = |found: Option<&OVSNode>| found.is_some_and(|found| found.condition("Ready").is_some());
        let waiting = await_condition(api, self.host.as_str(), is_published);
        tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_is_published_and_the_program_ends_when_it_is_told_to() {
    let served = Served::new().await;
    let mut agent = served.agent(&["--simulated-vms", "5"]);
    let admin = agent.admin_address();
    let node = served.published().await;
    assert!(node.condition("Ready").unwrap().is_true());
    assert_eq!(node.owner_references()[0].name, served.host.as_str());
    assert_eq!(get(admin, "/readyz"), "ok\n");
    let leases: Api<Lease> = Api::namespaced(served.cluster.client("test"), NAMESPACE);
    let name = lease_name(served.host.as_str());
    let waiting = await_condition(leases, &name, |found: Option<&Lease>| found.is_some());
    tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
}

/// The names are a contract with dashboards and alerts: a change here is a change for their owners.
#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_are_as_in_the_snapshot() {
    let served = Served::new().await;
    // Stale flows are told only after a look for them: without one the list does not depend on when it is taken.
    let mut agent = served.agent(&["--simulated-vms", "2", "--no-stale-flows-interval"]);
    let admin = agent.admin_address();
    served.published().await;
    let text = get(admin, "/metrics");
    assert!(text.contains("\novs_up 1\n") && text.ends_with("# EOF\n"), "{text}");
    metrics_are(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), &text, &["cobalt_ovs_", "ovs_", "ovn_"]);
}
