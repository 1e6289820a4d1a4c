//! A node, an API server, and the agent between them.

use std::{sync::Arc, time::Duration};

use cobalt_core::{
    api::{Condition, Issue, OVSNode},
    ids::HostName,
    k8s_openapi::api::{
        authentication::v1::TokenRequest,
        core::v1::{Namespace, ServiceAccount},
    },
    kube::{Api, api::PostParams},
};
use cobalt_rig::ovs::Node;
use cobalt_sim::{Cluster, Region};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::testing::{Running, Scratch, command};

const NAMESPACE: &str = "ovn-system";

/// Whatever is to happen has happened by then, also on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);

pub(crate) struct Rig {
    // In the order of their end: who looks first, then what is looked at.
    pub(crate) agent: Running,
    cluster: Cluster,
    host: HostName,
    kubeconfig: String,
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
        // In the network of the node, where the agent is: it has to see the node's devices.
        let listener = node.inside(|| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let kubeconfig = cluster.server().kubeconfig(listener.local_addr().unwrap());
        let serving = cluster.clone();
        tokio::spawn(async move { serving.serve(listener, std::future::pending()).await });
        let namespaces: Api<Namespace> = Api::all(cluster.client("test"));
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        cluster.join_all().await.unwrap();
        let scratch = Scratch::new();
        let host = region.hosts()[0].clone();
        let kubeconfig = scratch.file("kubeconfig", &kubeconfig);
        let agent = start(&node, &host, &kubeconfig);
        let rig = Rig { agent, cluster, host, kubeconfig, _scratch: scratch, _region: region, node };
        rig.until("published as sound", |found| found.condition("Ready").is_some_and(Condition::is_true)).await;
        Some(rig)
    }

    /// Kills the agent, as a crash does.
    pub(crate) fn crash(&mut self) {
        self.agent.signal("KILL");
        self.agent.wait();
    }

    /// Starts it again.
    pub(crate) fn restart(&mut self) {
        self.agent = start(&self.node, &self.host, &self.kubeconfig);
    }

    /// Asks the agent's endpoints, as somebody who may: the answer from its head on, for as long as it is held.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> TlsStream<TcpStream> {
        // What an agent published that is gone is good for nothing, until the next one publishes.
        let deadline = tokio::time::Instant::now() + LIMIT;
        let mut stream = loop {
            match self.connect().await {
                Ok(stream) => break stream,
                Err(error) if tokio::time::Instant::now() > deadline => panic!("{error}: {}", self.agent.err()),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        };
        let (token, length) = (self.token().await, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let told = self.until("published where it answers", |found| {
            found.status.as_ref().is_some_and(|status| status.troubleshooting.is_some())
        });
        let told = told.await.status.unwrap().troubleshooting.unwrap();
        let port = told.url.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let mut roots = RootCertStore::empty();
        let bundle = told.ca_bundle.unwrap();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = self.node.inside(|| std::net::TcpStream::connect(("127.0.0.1", port))).unwrap()?;
        stream.set_nonblocking(true)?;
        let name = ServerName::try_from(told.server_name.unwrap()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, TcpStream::from_std(stream)?).await
    }

    /// A token of a service account.
    async fn token(&self) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.cluster.client("test"), NAMESPACE);
        if accounts.get_opt("troubleshooter").await.unwrap().is_none() {
            let account = serde_json::from_value(json!({"metadata": {"name": "troubleshooter"}})).unwrap();
            accounts.create(&PostParams::default(), &account).await.unwrap();
        }
        let wanted = TokenRequest::default();
        let made = accounts.create_token_request("troubleshooter", &PostParams::default(), &wanted).await.unwrap();
        made.status.unwrap().token
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

/// The agent, in the network of the node.
fn start(node: &Node, host: &HostName, kubeconfig: &str) -> Running {
    let mut command = command("nsenter");
    command.args(node.enter().split(' ')).arg("--").arg(env!("CARGO_BIN_EXE_cobalt-ovs-agent"));
    command.env("NODE_NAME", host.as_str()).args(["--kubeconfig", kubeconfig]);
    command.args(["--admin-bind-address", "127.0.0.1:0", "--troubleshooting-bind-address", "127.0.0.1:0"]);
    command.args(["--southbound", "controller"]);
    // Its end is waited for like everything else.
    command.args(["--shutdown-grace-period", "4m"]);
    command.arg("--ovs-run-dir").arg(node.directory()).arg("--ovn-run-dir").arg(node.directory());
    // Everything that it waits for by default, sooner.
    command.args(["--probe-interval", "1s", "--orphan-observations", "2", "--settle-time", "1s"]);
    command.args(["--migration-grace", "1s", "--stale-flows-interval", "2s", "--required-bridges", "br-int,br-ex"]);
    Running::start(&mut command)
}

/// An issue of this type about this object.
pub(crate) fn find<'a>(node: &'a OVSNode, issue: &str, object: &str) -> Option<&'a Issue> {
    let issues = node.status.as_ref()?.issues.as_deref()?;
    issues.iter().find(|found| found.type_.as_deref() == Some(issue) && found.object.as_deref() == Some(object))
}
