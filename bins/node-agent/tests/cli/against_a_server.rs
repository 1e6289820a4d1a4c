//! The whole program against a simulated API server on a socket, with the operator as a library beside it.

use std::time::Duration;

use cobalt_core::{
    api::{Hypervisor, HypervisorStatus, condition_types},
    ids::HostName,
    kube::{Api, runtime::wait::await_condition},
    operator::Operator,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{Cluster, Region};
use tokio::net::TcpListener;

use crate::{
    PROGRAM,
    testing::{LIMIT, Running, Scratch, command, get, libvirt_is_up, metrics_are},
};

/// A cluster with one Node that the operator has made a Hypervisor for.
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
        tokio::spawn(Operator::new(cluster.client("operator")).run(Shutdown::new()));
        let scratch = Scratch::new();
        let kubeconfig = scratch.file("kubeconfig", &text);
        let host = region.hosts()[0].clone();
        Self { cluster, kubeconfig, host, _scratch: scratch, _region: region }
    }

    fn agent(&self, more: &[&str]) -> Running {
        let mut command = command(PROGRAM);
        command
            .env("NODE_NAME", self.host.as_str())
            .args(["--backend", "simulated", "--kubeconfig", &self.kubeconfig, "--admin-bind-address", "127.0.0.1:0"])
            // Its end is waited for like everything else.
            .args(["--shutdown-grace-period", "4m"])
            .args(more);
        Running::start(&mut command)
    }

    async fn reported(&self) -> (Hypervisor, HypervisorStatus) {
        let api: Api<Hypervisor> = Api::all(self.cluster.client("test"));
        let is_reported = |found: Option<&Hypervisor>| {
            let status = found.and_then(|found| found.status.as_ref());
            status.is_some_and(|status| status.instances.is_some() && status.internal_ip.is_some())
        };
        let waiting = await_condition(api, self.host.as_str(), is_reported);
        let found = tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap().unwrap();
        let status = found.status.clone().unwrap();
        (found, status)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_appears_and_its_hypervisor_gets_a_status() {
    let served = Served::new().await;
    let mut agent = served.agent(&["--simulated-vms", "5", "--simulated-seed", "9"]);
    let admin = agent.admin_address();
    // The agent is there before its Node: it waits, and makes nothing of its own.
    served.cluster.join_all().await.unwrap();
    let (hypervisor, status) = served.reported().await;
    assert_eq!(status.num_instances(), 5);
    assert_eq!(status.instances().len(), 5);
    assert!(hypervisor.is_true(condition_types::LIBVIRT_CONNECTION));
    assert!(hypervisor.condition(condition_types::READY).is_some(), "the operator's part is there too");
    assert_eq!(get(admin, "/readyz"), "ok\n");
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_can_tell_less_is_reported_as_it_is() {
    let served = Served::new().await;
    served.cluster.join_all().await.unwrap();
    let mut agent = served.agent(&["--simulated-driver", "ch", "--simulated-vms", "0"]);
    let (_, status) = served.reported().await;
    assert_eq!(status.num_instances(), 0);
    let kind = status.domain_capabilities.and_then(|capabilities| capabilities.hypervisor_type);
    assert_eq!(kind.as_deref(), Some("ch"));
    agent.signal("TERM");
    assert_eq!(agent.wait().code(), Some(0), "{}", agent.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_at_rest_writes_nothing() {
    let served = Served::new().await;
    served.cluster.join_all().await.unwrap();
    let _agent = served.agent(&[]);
    served.reported().await;
    let writes = || served.cluster.server().counters().sum(|key| key.resource == "hypervisors.kvm.cloud.sap").writes;
    // Quiet for two seconds in a row, once the first report and its echo are through.
    let quiet = async {
        let mut before = writes();
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = writes();
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::time::timeout(LIMIT, quiet).await.unwrap();
}

/// The names are a contract with dashboards and alerts: a change here is a change for their owners.
#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_are_as_in_the_snapshot() {
    let served = Served::new().await;
    let mut agent = served.agent(&["--simulated-vms", "2"]);
    let admin = agent.admin_address();
    served.cluster.join_all().await.unwrap();
    served.reported().await;
    let text = libvirt_is_up(admin);
    assert!(text.ends_with("# EOF\n"), "{text}");
    metrics_are(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots"), &text, &["cobalt_agent_", "libvirt_"]);
}
