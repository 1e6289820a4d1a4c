//! The OVS agent: what is wrong with a switch reaches its OVSNode, and nothing else does.

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    agent::ovs::{Config, OvsAgent, lease_name},
    api::{Issue, OVSNode, labels},
    ids::HostName,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::{DaemonState, Region, SwitchFault};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::{LONG, Rig, clock};

const NAMESPACE: &str = "ovn-system";
const BEAT: Duration = Duration::from_secs(10);

struct Net {
    rig: Rig,
    region: Region,
    host: HostName,
}

impl Net {
    async fn new(vms: usize) -> Self {
        let rig = Rig::new().await;
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let namespaces: Api<Namespace> = Api::all(rig.client.clone());
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
        let region = Region::builder().hosts(2).vms_per_host(vms).seed(3).build();
        let host = region.hosts().remove(0);
        Self { rig, region, host }
    }

    /// With a Node, and an agent that has published.
    async fn publishing(vms: usize) -> Self {
        let net = Self::new(vms).await;
        net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
        net.agent(net.rig.stop.clone(), |config| config);
        net.until("published", |node| node.condition("Ready").is_some()).await;
        net
    }

    fn agent(&self, stop: Shutdown, with: impl FnOnce(Config) -> Config) {
        self.agent_on(Arc::new(self.region.switch(&self.host).unwrap()), stop, with);
    }

    fn agent_on(
        &self,
        switch: Arc<dyn cobalt_core::ovs::OvsInspector>,
        stop: Shutdown,
        with: impl FnOnce(Config) -> Config,
    ) {
        let config = with(Config::new(self.host.as_str()));
        let agent = OvsAgent::new(self.rig.program("ovs-agent"), config, switch).clock(clock());
        tokio::spawn(agent.run(stop));
    }

    fn nodes(&self) -> Api<OVSNode> {
        Api::namespaced(self.rig.client.clone(), NAMESPACE)
    }

    fn fault(&self, fault: SwitchFault) {
        self.region.world().switch_fault(&self.host, fault).unwrap();
    }

    async fn node(&self) -> OVSNode {
        self.nodes().get(self.host.as_str()).await.unwrap()
    }

    async fn until(&self, what: &str, test: impl Fn(&OVSNode) -> bool) -> OVSNode {
        let deadline = tokio::time::Instant::now() + LONG;
        loop {
            match self.nodes().get_opt(self.host.as_str()).await.unwrap() {
                Some(found) if test(&found) => return found,
                last if tokio::time::Instant::now() > deadline => panic!("never {what}; last: {last:#?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Waits for an issue of this type about this object.
    async fn issue(&self, type_: &str, object: &str) -> (OVSNode, Issue) {
        let node = self.until(&format!("{type_} of {object}"), |node| find(node, type_, object).is_some()).await;
        let issue = find(&node, type_, object).unwrap().clone();
        (node, issue)
    }
}

fn find<'a>(node: &'a OVSNode, type_: &str, object: &str) -> Option<&'a Issue> {
    let issues = node.status.as_ref()?.issues.as_deref()?;
    issues.iter().find(|issue| issue.type_.as_deref() == Some(type_) && issue.object.as_deref() == Some(object))
}

fn states(node: &OVSNode) -> Vec<(&str, &str)> {
    node.conditions().iter().map(|condition| (condition.type_.as_str(), condition.status.as_str())).collect()
}

fn state<'a>(node: &'a OVSNode, type_: &str) -> (&'a str, &'a str) {
    let condition = node.condition(type_).unwrap();
    (condition.status.as_str(), &condition.reason)
}

#[tokio::test(start_paused = true)]
async fn a_sound_switch_is_published_in_the_words_of_the_specification() {
    let net = Net::publishing(4).await;
    let node = net.node().await;
    assert_eq!(node.spec.node_ref.as_ref().unwrap().name, net.host.as_str());
    let owner = node.owner_references()[0].clone();
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", net.host.as_str()));
    let status = serde_json::to_value(node.status.as_ref().unwrap()).unwrap();
    assert_eq!(status["ovsVersion"], "3.5.0");
    assert_eq!(status["dpdkEnabled"], false);
    assert_eq!(
        status["bridges"][0],
        json!({"name": "br-ex", "ports": 2, "flows": 1, "datapathType": "system", "status": "Active"})
    );
    assert_eq!(
        status["interfaces"]["physical"][0],
        json!({"name": "eth1", "status": "Up", "speed": "100Gbps", "bond": "bond0"})
    );
    let bond = &status["interfaces"]["bonds"][0];
    assert_eq!((&bond["mode"], &bond["status"]), (&json!("balance-tcp"), &json!("Active")));
    assert_eq!((&bond["members"], &bond["activeMembers"]), (&json!(2), &json!(2)));
    assert_eq!(status["ovnController"]["connected"], true);
    assert_eq!(status["issues"], json!([]));
    let sum: i64 =
        status["flowStats"]["flowsPerTable"].as_array().unwrap().iter().map(|t| t["flows"].as_i64().unwrap()).sum();
    assert_eq!(status["flowStats"]["totalFlows"], sum);
    assert!(status["metrics"]["packetsReceived"].as_i64().unwrap() >= 0);
    assert_eq!(
        states(&node),
        [
            ("AllBondsHealthy", "True"),
            ("AllBridgesHealthy", "True"),
            ("NoStaleFlows", "Unknown"),
            ("OVNControllerConnected", "True"),
            ("OVSDBConnected", "True"),
            ("OVSDaemonResponsive", "True"),
            ("OpenFlowConnected", "True"),
            ("Ready", "True"),
        ]
    );
}
