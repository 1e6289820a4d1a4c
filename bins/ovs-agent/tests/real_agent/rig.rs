//! A node, an API server, and the agent between them.

use std::time::Duration;

use cobalt_core::{
    api::{Condition, Issue, OVSNode},
    ids::HostName,
    k8s_openapi::api::core::v1::Namespace,
    kube::{Api, api::PostParams},
};
use cobalt_rig::ovs::Node;
use cobalt_sim::{Cluster, Region};
use serde_json::json;
use tokio::net::TcpListener;

use crate::testing::{Running, Scratch, command};

const NAMESPACE: &str = "ovn-system";

/// Whatever is to happen has happened by then, also on a loaded machine.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) struct Rig {
    // In the order of their end: who looks first, then what is looked at.
    pub(crate) agent: Running,
    cluster: Cluster,
    host: HostName,
    _scratch: Scratch,
    _region: Region,
    pub(crate) node: Node,
}

impl Rig {
    /// An agent that has published; `None` after telling why there is none.
    pub(crate) async fn up(test: &str) -> Option<Rig> {
        if !cobalt_rig::ovs::available(test) {
            return None;
        }
        let node = Node::up().expect("a node");
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
        let host = region.hosts()[0].clone();
        let mut command = command(env!("CARGO_BIN_EXE_cobalt-ovs-agent"));
        command.env("NODE_NAME", host.as_str()).args(["--kubeconfig", &scratch.file("kubeconfig", &text)]);
        command.args(["--admin-bind-address", "127.0.0.1:0", "--troubleshooting-bind-address", "127.0.0.1:0"]);
        command.args(["--southbound", "controller"]);
        command.arg("--ovs-run-dir").arg(node.directory()).arg("--ovn-run-dir").arg(node.directory());
        // Everything that it waits for by default, sooner.
        command.args(["--probe-interval", "1s", "--orphan-observations", "2", "--settle-time", "1s"]);
        command.args(["--migration-grace", "1s", "--stale-flows-interval", "2s", "--required-bridges", "br-int,br-ex"]);
        let agent = Running::start(&mut command);
        let rig = Rig { agent, cluster, host, _scratch: scratch, _region: region, node };
        rig.until("published as sound", |found| found.condition("Ready").is_some_and(Condition::is_true)).await;
        Some(rig)
    }

    /// Waits until the OVSNode shows it.
    pub(crate) async fn until(&self, what: &str, shows: impl Fn(&OVSNode) -> bool) -> OVSNode {
        let api: Api<OVSNode> = Api::namespaced(self.cluster.client("test"), NAMESPACE);
        let deadline = tokio::time::Instant::now() + LIMIT;
        loop {
            match api.get_opt(self.host.as_str()).await.unwrap() {
                Some(found) if shows(&found) => return found,
                last if tokio::time::Instant::now() > deadline => {
                    panic!("never {what}; last: {last:#?}\n{}", self.agent.err());
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Waits for an issue of this type about this object, and that the condition is what it should be then.
    pub(crate) async fn broken(&self, issue: &str, object: &str, condition: &str) -> OVSNode {
        let what = format!("{issue} of {object}, and {condition} no longer true");
        self.until(&what, |found| {
            find(found, issue, object).is_some() && found.condition(condition).is_some_and(|found| !found.is_true())
        })
        .await
    }

    /// Waits until nothing is wrong.
    pub(crate) async fn mended(&self) -> OVSNode {
        self.until("mended", |found| {
            let none = found.status.as_ref().and_then(|status| status.issues.as_ref()).is_none_or(Vec::is_empty);
            none && found.condition("Ready").is_some_and(Condition::is_true)
        })
        .await
    }
}

/// An issue of this type about this object.
pub(crate) fn find<'a>(node: &'a OVSNode, issue: &str, object: &str) -> Option<&'a Issue> {
    let issues = node.status.as_ref()?.issues.as_deref()?;
    issues.iter().find(|found| found.type_.as_deref() == Some(issue) && found.object.as_deref() == Some(object))
}
