//! The OVS agent: what is wrong with a switch reaches its OVSNode, and nothing else does.

use std::{sync::Arc, time::Duration};

use cobalt_apiserver::{
    Verb,
    faults::{Effect, Fault, Matcher},
};
use cobalt_core::{
    agent::ovs::{Config, OvsAgent, lease_name},
    api::{Condition, Issue, OVSNode, labels},
    ids::HostName,
    ovs::OvsInspector,
    runtime::{
        events::{self, Recorder},
        metrics::Metrics,
        shutdown::Shutdown,
    },
};
use cobalt_sim::{DaemonState, Orphan, Region, SwitchFault};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::{LONG, Rig, clock};

const NAMESPACE: &str = "ovn-system";
const BEAT: Duration = Duration::from_secs(10);

pub(super) struct Net {
    pub(super) rig: Rig,
    region: Region,
    pub(super) host: HostName,
}

impl Net {
    pub(super) async fn new(vms: usize) -> Self {
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

    fn agent_on(&self, switch: Arc<dyn OvsInspector>, stop: Shutdown, with: impl FnOnce(Config) -> Config) {
        let config = with(Config::new(self.host.as_str()));
        let agent = OvsAgent::new(self.rig.program("ovs-agent"), config, switch).clock(clock()).jitter(|| 0.0);
        tokio::spawn(agent.run(stop));
    }

    /// An agent whose Events are written.
    pub(super) fn telling(&self, stop: Shutdown) {
        let (recorder, client) = self.recorder();
        let switch = Arc::new(self.region.switch(&self.host).unwrap());
        let agent = OvsAgent::new(client, Config::new(self.host.as_str()), switch).clock(clock()).jitter(|| 0.0);
        tokio::spawn(agent.recorder(recorder).run(stop));
    }

    fn recorder(&self) -> (Recorder, Client) {
        let client = self.rig.program("ovs-agent");
        let (recorder, publisher) =
            events::recorder(client.clone(), "cobalt-ovs-agent", "test", clock(), Arc::new(Metrics::new()));
        tokio::spawn(publisher.run(self.rig.stop.clone()));
        (recorder, client)
    }

    /// Type and reason of every Event, in order.
    pub(super) async fn events(&self) -> Vec<(String, String)> {
        // They are written beside everything else.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let api: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(self.rig.client.clone(), NAMESPACE);
        let all = api.list(&kube::api::ListParams::default()).await.unwrap();
        let mut told: Vec<_> = all.into_iter().map(|event| (event.type_.unwrap(), event.reason.unwrap())).collect();
        told.sort();
        told
    }

    fn nodes(&self) -> Api<OVSNode> {
        Api::namespaced(self.rig.client.clone(), NAMESPACE)
    }

    pub(super) fn fault(&self, fault: SwitchFault) {
        self.region.world().switch_fault(&self.host, fault).unwrap();
    }

    pub(super) async fn node(&self) -> OVSNode {
        self.nodes().get(self.host.as_str()).await.unwrap()
    }

    pub(super) async fn until(&self, what: &str, test: impl Fn(&OVSNode) -> bool) -> OVSNode {
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
    pub(super) async fn issue(&self, type_: &str, object: &str) -> (OVSNode, Issue) {
        let node = self.until(&format!("{type_} of {object}"), |node| find(node, type_, object).is_some()).await;
        let issue = find(&node, type_, object).unwrap().clone();
        (node, issue)
    }
}

pub(super) fn find<'a>(node: &'a OVSNode, type_: &str, object: &str) -> Option<&'a Issue> {
    let issues = node.status.as_ref()?.issues.as_deref()?;
    issues.iter().find(|issue| issue.type_.as_deref() == Some(type_) && issue.object.as_deref() == Some(object))
}

fn states(node: &OVSNode) -> Vec<(&str, &str)> {
    node.conditions().iter().map(|condition| (condition.type_.as_str(), condition.status.as_str())).collect()
}

pub(super) fn state_of<'a>(node: &'a OVSNode, type_: &str) -> (&'a str, &'a str) {
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

/// What hangs or dies leaves the database as it was: only the probe finds out.
#[tokio::test(start_paused = true)]
async fn a_daemon_that_hangs_or_dies_is_found_by_the_probe_and_told_apart() {
    for (state, type_) in [(DaemonState::Hung, "DaemonUnresponsive"), (DaemonState::Dead, "DaemonAbsent")] {
        let net = Net::publishing(2).await;
        let began = tokio::time::Instant::now();
        net.fault(SwitchFault::Switch(state));
        let (node, issue) = net.issue(type_, "ovs-vswitchd").await;
        assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
        assert_eq!(issue.severity, "Critical");
        assert_eq!(state_of(&node, "Ready"), ("False", type_));
        assert_eq!(state_of(&node, "OVSDaemonResponsive"), ("False", type_));
        assert_eq!(state_of(&node, "OVSDBConnected").0, "True");
        assert_eq!(state_of(&node, "OVNControllerConnected").0, "True");
        assert_eq!(state_of(&node, "OpenFlowConnected"), ("Unknown", "SwitchUnresponsive"));
        assert_eq!(state_of(&node, "AllBridgesHealthy"), ("False", "BridgeUnresponsive"));
        assert_eq!(state_of(&node, "AllBondsHealthy"), ("Unknown", "SwitchUnresponsive"));
        let status = serde_json::to_value(&node.status).unwrap();
        assert_eq!(status["ovsVersion"], "3.5.0", "the last known");
        assert_eq!(status["bridges"][0]["status"], "Unresponsive");
        assert!(status["bridges"][0]["flows"].is_null() && status["flowStats"].is_null(), "nobody can count");
        assert!(status["interfaces"]["bonds"][0]["activeMembers"].is_null(), "nobody can tell");

        net.fault(SwitchFault::Switch(DaemonState::Running));
        let mended = net.until("mended", |node| state_of(node, "Ready") == ("True", "Ready")).await;
        assert!(mended.status.unwrap().flow_stats.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_hangs_or_dies_is_told_apart_from_a_lost_database_and_a_lost_switch() {
    let net = Net::publishing(2).await;
    net.fault(SwitchFault::Controller(DaemonState::Hung));
    let (node, _) = net.issue("DaemonUnresponsive", "ovn-controller").await;
    assert_eq!(state_of(&node, "OVNControllerConnected"), ("False", "DaemonUnresponsive"));
    assert_eq!(state_of(&node, "OpenFlowConnected"), ("Unknown", "ControllerUnresponsive"), "its connection stands");
    assert_eq!(state_of(&node, "OVSDaemonResponsive").0, "True");
    assert_eq!(node.status.unwrap().ovn_controller.unwrap().connected, None, "nobody can tell");

    net.fault(SwitchFault::Controller(DaemonState::Dead));
    let (node, _) = net.issue("DaemonAbsent", "ovn-controller").await;
    assert_eq!(state_of(&node, "OVNControllerConnected"), ("False", "DaemonAbsent"));
    assert_eq!(state_of(&node, "OpenFlowConnected"), ("False", "DaemonAbsent"));
    assert_eq!(node.status.unwrap().ovn_controller.unwrap().connected, Some(false));

    net.fault(SwitchFault::Controller(DaemonState::Running));
    net.fault(SwitchFault::Southbound(false));
    let (node, _) = net.issue("SouthboundDisconnected", "ovn-controller").await;
    assert_eq!(state_of(&node, "OVNControllerConnected"), ("False", "SouthboundDisconnected"));
    assert_eq!(state_of(&node, "OpenFlowConnected").0, "True");

    net.fault(SwitchFault::Southbound(true));
    net.fault(SwitchFault::OpenFlow(false));
    let (node, _) = net.issue("OpenFlowDisconnected", "ovn-controller").await;
    assert_eq!(state_of(&node, "OpenFlowConnected"), ("False", "OpenFlowDisconnected"));
    assert_eq!(state_of(&node, "OVNControllerConnected").0, "True");
    assert_eq!(state_of(&node, "Ready").0, "False");
}

#[tokio::test(start_paused = true)]
async fn a_silent_partner_and_a_lost_link_are_told_by_the_members_and_not_by_the_links() {
    let net = Net::publishing(1).await;
    net.fault(SwitchFault::Lacp(false));
    let (node, issue) = net.issue("BondDown", "bond0").await;
    assert!(issue.message.contains("LACP expired"), "{}", issue.message);
    assert_eq!(state_of(&node, "AllBondsHealthy"), ("False", "BondDown"));
    assert!(find(&node, "BridgeIsolated", "br-ex").is_some());
    let status = serde_json::to_value(&node.status).unwrap();
    assert_eq!(status["interfaces"]["bonds"][0]["status"], "Down");
    assert_eq!(
        status["interfaces"]["bonds"][0]["memberStatus"][0],
        json!({"name": "eth1", "enabled": false, "lacp": "expired"})
    );
    assert_eq!(status["interfaces"]["physical"][0]["status"], "Up", "the links are up all the same");

    net.fault(SwitchFault::Repaired);
    net.fault(SwitchFault::Link("eth2".into(), false));
    let (node, issue) = net.issue("BondDegraded", "bond0").await;
    assert!(issue.message.contains("eth2: no link"), "{}", issue.message);
    assert_eq!(issue.severity, "Warning");
    assert_eq!(state_of(&node, "Ready"), ("True", "Degraded"), "it still works");

    net.fault(SwitchFault::Link("eth1".into(), false));
    net.issue("BondDown", "bond0").await;
}

#[tokio::test(start_paused = true)]
async fn a_bond_of_the_kernels_is_listed_with_its_members() {
    let net = Net::publishing(1).await;
    net.fault(SwitchFault::KernelBond(true));
    let bonds = |node: &OVSNode| node.status.clone().unwrap().interfaces.unwrap().bonds.unwrap();
    let node = net.until("two bonds", |node| bonds(node).len() == 2).await;
    assert_eq!(bonds(&node)[1].status.as_deref(), Some("Active"), "one carries traffic, the other waits");
    assert_eq!(state_of(&node, "AllBondsHealthy").0, "True");
    net.fault(SwitchFault::Link("eno2".into(), false));
    let (node, _) = net.issue("BondDegraded", "bond1").await;
    let status = serde_json::to_value(&node.status).unwrap();
    let bonds = &status["interfaces"]["bonds"];
    assert_eq!((&bonds[0]["kind"], &bonds[1]["kind"]), (&json!("ovs"), &json!("kernel")));
    let cards: Vec<&str> = status["interfaces"]["physical"]
        .as_array()
        .unwrap()
        .iter()
        .map(|card| card["name"].as_str().unwrap())
        .collect();
    assert_eq!(cards, ["eno1", "eno2", "eth1", "eth2"], "and the bond itself is no card");
    assert_eq!(
        status["interfaces"]["physical"][0],
        json!({"name": "eno1", "status": "Up", "speed": "100Gbps", "bond": "bond1"})
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_database_keeps_what_was_known_and_says_that_it_is_lost() {
    let net = Net::publishing(2).await;
    for state in [DaemonState::Hung, DaemonState::Dead] {
        net.fault(SwitchFault::Database(state));
        let (node, _) = net.issue("DatabaseDisconnected", "ovsdb-server").await;
        assert_eq!(state_of(&node, "OVSDBConnected"), ("False", "DatabaseDisconnected"));
        assert_eq!(state_of(&node, "OVSDaemonResponsive").0, "False");
        assert_eq!(node.status.unwrap().bridges.unwrap().len(), 3);
        net.fault(SwitchFault::Database(DaemonState::Running));
        net.until("connected", |node| state_of(node, "Ready") == ("True", "Ready")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bridges_cards_and_complaints_of_the_switch_are_told() {
    let net = Net::publishing(1).await;
    net.fault(SwitchFault::Bridge("br-int".into(), false));
    let (node, _) = net.issue("BridgeUnresponsive", "br-int").await;
    assert_eq!(state_of(&node, "AllBridgesHealthy"), ("False", "BridgeUnresponsive"));
    net.fault(SwitchFault::Repaired);

    net.fault(SwitchFault::Link("eth3".into(), false));
    let (node, _) = net.issue("LinkDown", "eth3").await;
    assert!(find(&node, "BridgeIsolated", "br-provider").is_some());
    net.fault(SwitchFault::Repaired);

    net.fault(SwitchFault::InterfaceError("eth1".into()));
    let (_, issue) = net.issue("InterfaceError", "eth1").await;
    assert!(issue.message.contains("could not set configuration"), "{}", issue.message);
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_must_be_there_and_is_not_makes_the_switch_not_ready() {
    let net = Net::new(1).await;
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    net.agent(net.rig.stop.clone(), |config| Config { required_bridges: vec!["br-storage".into()], ..config });
    let (node, _) = net.issue("BridgeMissing", "br-storage").await;
    assert_eq!(state_of(&node, "Ready"), ("False", "BridgeMissing"));
}

/// A lag and a pending configuration are everyday things: only one that lasts is worth a word.
#[tokio::test(start_paused = true)]
async fn what_settles_by_itself_is_not_told_and_what_does_not_is() {
    let net = Net::publishing(1).await;
    net.until("looked for everything", |node| state_of(node, "NoStaleFlows").0 == "True").await;
    let before = net.node().await.resource_version();
    net.fault(SwitchFault::Lag(4));
    net.fault(SwitchFault::Pending(true));
    tokio::time::sleep(Duration::from_secs(45)).await;
    net.fault(SwitchFault::Lag(0));
    net.fault(SwitchFault::Pending(false));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(net.node().await.resource_version(), before, "nobody was bothered");
    net.fault(SwitchFault::Lag(7));
    net.fault(SwitchFault::Pending(true));
    net.issue("SouthboundLag", "ovn-controller").await;
    let (node, _) = net.issue("ConfigurationPending", "ovs-vswitchd").await;
    assert_eq!(state_of(&node, "Ready"), ("True", "Degraded"));
}

#[tokio::test(start_paused = true)]
async fn a_port_is_an_orphan_after_three_looks_whatever_the_sign_and_however_much_happens_meanwhile() {
    for why in [Orphan::NeverOpened, Orphan::DeviceGone, Orphan::NoLogicalPort, Orphan::Duplicate] {
        let net = Net::publishing(2).await;
        net.fault(SwitchFault::Orphan(why, "lost".into()));
        let began = tokio::time::Instant::now();
        // A burst of changes is no reason to hurry.
        for number in 0..20 {
            net.fault(SwitchFault::Link("eth1".into(), number % 2 == 1));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(find(&net.node().await, "OrphanPort", "taplost").is_none(), "{why:?}: too early");
        let (node, issue) = net.issue("OrphanPort", "taplost").await;
        let took = began.elapsed();
        assert!((20..=40).contains(&took.as_secs()), "{why:?}: {took:?}");
        assert!(issue.message.starts_with("Orphan port detected: taplost: "), "{}", issue.message);
        assert_eq!((issue.severity.as_str(), state_of(&node, "Ready").0), ("Warning", "True"));
        assert!(
            net.region
                .switch(&net.host)
                .unwrap()
                .snapshot()
                .await
                .unwrap()
                .interfaces
                .iter()
                .any(|p| p.name == "taplost"),
            "reported, and left alone"
        );
        net.fault(SwitchFault::Repaired);
        net.until("gone", |node| find(node, "OrphanPort", "taplost").is_none()).await;
    }
}

/// A VM on its way here has a port that is bound elsewhere, for as long as its memory is copied.
#[tokio::test(start_paused = true)]
async fn a_port_bound_to_another_host_is_given_the_time_of_a_migration() {
    let net = Net::publishing(1).await;
    net.fault(SwitchFault::Orphan(Orphan::Elsewhere, "moving".into()));
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(find(&net.node().await, "OrphanPort", "tapmoving").is_none());
    tokio::time::sleep(Duration::from_secs(1900)).await;
    let (_, issue) = net.issue("OrphanPort", "tapmoving").await;
    assert!(issue.message.contains("another-chassis"), "{}", issue.message);
}

#[tokio::test(start_paused = true)]
async fn the_reverse_of_an_orphan_and_a_tunnel_to_nowhere_are_told() {
    let net = Net::publishing(1).await;
    net.fault(SwitchFault::Unplugged("port-7".into()));
    net.fault(SwitchFault::StaleTunnel("hv-gone".into()));
    net.issue("UnpluggedPort", "port-7").await;
    net.issue("StaleTunnel", "ovn-hv-gone-0").await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_orphans_are_some_lines_and_a_number() {
    let net = Net::publishing(1).await;
    for number in 0..1000 {
        net.fault(SwitchFault::Orphan(Orphan::NoLogicalPort, format!("{number:04}")));
    }
    let (node, issue) = net.issue("OrphanPort", "").await;
    assert_eq!(issue.message, "950 more of this type");
    assert_eq!(node.status.unwrap().issues.unwrap().len(), 51);
}

#[tokio::test(start_paused = true)]
async fn stale_flows_are_confirmed_by_a_second_look_and_unknown_without_the_southbound_database() {
    let net = Net::publishing(1).await;
    let node = net.until("looked", |node| state_of(node, "NoStaleFlows").0 == "True").await;
    assert_eq!(state_of(&node, "NoStaleFlows"), ("True", "NoneFound"));
    net.fault(SwitchFault::StaleFlows(9));
    tokio::time::sleep(Duration::from_secs(1900)).await;
    let (node, issue) = net.issue("StaleFlows", "br-int").await;
    assert!(issue.message.starts_with("9 flows with 1 cookie that"), "{}", issue.message);
    assert_eq!(state_of(&node, "NoStaleFlows"), ("False", "StaleFlows"));
    net.fault(SwitchFault::StaleFlows(0));
    net.until("gone", |node| state_of(node, "NoStaleFlows").0 == "True").await;
    net.fault(SwitchFault::Southbound(false));
    tokio::time::sleep(Duration::from_secs(1900)).await;
    assert_eq!(state_of(&net.node().await, "NoStaleFlows"), ("Unknown", "LookFailed"));

    let blind = Net::new(1).await;
    blind.rig.add_node(blind.host.as_str(), json!({}), json!({})).await;
    let switch = blind.region.switch(&blind.host).unwrap().without_southbound();
    blind.agent_on(Arc::new(switch), blind.rig.stop.clone(), |config| config);
    let node =
        blind.until("looked", |node| node.condition("NoStaleFlows").is_some_and(|c| c.reason == "NoSouthbound")).await;
    assert_eq!(state_of(&node, "NoStaleFlows").0, "Unknown");
    assert_eq!(state_of(&node, "Ready"), ("True", "Ready"), "nobody is blamed for what nobody can tell");
}

#[tokio::test(start_paused = true)]
async fn a_look_for_stale_flows_is_made_on_demand() {
    let net = Net::new(1).await;
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    let config = Config { stale_flows: None, ..Config::new(net.host.as_str()) };
    let switch = Arc::new(net.region.switch(&net.host).unwrap());
    let agent = OvsAgent::new(net.rig.program("ovs-agent"), config, switch).clock(clock());
    let demand = agent.demand();
    tokio::spawn(agent.run(net.rig.stop.clone()));
    net.until("published", |node| node.condition("Ready").is_some()).await;
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(state_of(&net.node().await, "NoStaleFlows"), ("Unknown", "NotLookedYet"));
    net.fault(SwitchFault::StaleFlows(3));
    demand.look();
    net.issue("StaleFlows", "br-int").await;
    // Whoever may read must not keep the switch busy.
    let before = demand.stands().looks;
    for _ in 0..600 {
        demand.look();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let looks = demand.stands().looks - before;
    assert!((1..=10).contains(&looks), "{looks} looks in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn an_hour_at_rest_with_traffic_writes_nothing_but_the_lease() {
    let net = Net::new(20).await;
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    let (recorder, client) = net.recorder();
    let switch = Arc::new(net.region.switch(&net.host).unwrap());
    let agent = OvsAgent::new(client, Config::new(net.host.as_str()), switch).clock(clock()).jitter(|| 0.0);
    tokio::spawn(agent.recorder(recorder).heartbeat(BEAT).run(net.rig.stop.clone()));
    net.until("looked for everything", |node| node.condition("NoStaleFlows").is_some_and(Condition::is_true)).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let before = net.node().await;
    net.rig.server.counters().reset();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let of = |resource: &str| {
        net.rig.server.counters().sum(|key| key.client == "ovs-agent" && key.resource == resource).writes
    };
    assert_eq!(of("ovsnodes.ovs.c5c3.io"), 0, "packets flow, and are nobody's business here");
    let beats = of("leases.coordination.k8s.io");
    assert!((359..=361).contains(&beats), "{beats} beats in an hour");
    assert_eq!(net.rig.counts("ovs-agent").writes, beats);
    assert_eq!(net.events().await, [], "nor is there anything to tell");
    assert_eq!(net.node().await.resource_version(), before.resource_version());
    let leases: Api<Lease> = Api::namespaced(net.rig.client.clone(), NAMESPACE);
    let lease = leases.get(&lease_name(net.host.as_str())).await.unwrap();
    assert_eq!(lease.annotations()[labels::SWITCH_ANNOTATION], "ready");
    assert_eq!(lease.owner_references()[0].kind, "OVSNode");
    net.fault(SwitchFault::Switch(DaemonState::Hung));
    net.issue("DaemonUnresponsive", "ovs-vswitchd").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lease = leases.get(&lease_name(net.host.as_str())).await.unwrap();
    assert!(lease.annotations()[labels::SWITCH_ANNOTATION].starts_with("not ready: ovs-vswitchd"), "{lease:?}");
}

#[tokio::test(start_paused = true)]
async fn counters_are_fresh_with_every_other_write_and_written_alone_only_after_moving_far() {
    let net = Net::publishing(20).await;
    net.until("looked", |node| node.condition("NoStaleFlows").is_some_and(Condition::is_true)).await;
    let metrics = |node: &OVSNode| node.status.clone().unwrap().metrics.unwrap();
    let before = metrics(&net.node().await);
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(metrics(&net.node().await), before, "traffic alone is not written");

    net.fault(SwitchFault::Link("eth3".into(), false));
    let (node, _) = net.issue("LinkDown", "eth3").await;
    let fresh = metrics(&node);
    assert!(fresh.packets_received > before.packets_received, "with a reason, the counters are current");
    assert!(fresh.observed_at > before.observed_at);
    net.fault(SwitchFault::Link("eth3".into(), true));
    net.until("mended", |node| state_of(node, "Ready") == ("True", "Ready")).await;

    net.rig.server.counters().reset();
    net.fault(SwitchFault::Flows(20));
    net.fault(SwitchFault::Drops(900));
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let writes = || {
        net.rig.server.counters().sum(|key| key.client == "ovs-agent" && key.resource == "ovsnodes.ovs.c5c3.io").writes
    };
    assert_eq!(writes(), 0, "a little is not worth a write");
    net.fault(SwitchFault::Flows(400));
    let node = net
        .until("more flows", |node| node.status.as_ref().unwrap().flow_stats.as_ref().unwrap().total_flows > Some(1000))
        .await;
    assert_eq!(metrics(&node).drops, Some(900));
    assert_eq!(writes(), 1);
    // Whatever they do, not more often than every ten minutes.
    for number in 0..120 {
        net.fault(SwitchFault::Flows(400 + 1000 * (number % 2)));
        net.fault(SwitchFault::Drops(5000 * number));
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert!((5..=7).contains(&(writes() - 1)), "{} writes in an hour of wild counters", writes() - 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_detected_keeps_its_time_over_a_restart_of_the_agent() {
    let net = Net::new(1).await;
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    let first = Shutdown::new();
    net.agent(first.clone(), |config| config);
    net.until("published", |node| node.condition("Ready").is_some()).await;
    net.fault(SwitchFault::Orphan(Orphan::NoLogicalPort, "lost".into()));
    let (node, issue) = net.issue("OrphanPort", "taplost").await;
    first.trigger();
    tokio::time::sleep(Duration::from_secs(300)).await;
    net.agent(net.rig.stop.clone(), |config| config);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = net.node().await;
    assert_eq!(find(&after, "OrphanPort", "taplost").unwrap(), &issue, "not found out anew");
    net.fault(SwitchFault::Link("eth3".into(), false));
    let (later, _) = net.issue("LinkDown", "eth3").await;
    assert_eq!(find(&later, "OrphanPort", "taplost").unwrap().detected_at, issue.detected_at);
    assert_eq!(
        later.condition("OVSDBConnected").unwrap().last_transition_time,
        node.condition("OVSDBConnected").unwrap().last_transition_time
    );
}

#[tokio::test(start_paused = true)]
async fn an_ovsnode_is_made_for_a_node_goes_with_it_and_comes_back_with_it() {
    let net = Net::new(1).await;
    net.agent(net.rig.stop.clone(), |config| config);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(net.nodes().get_opt(net.host.as_str()).await.unwrap().is_none(), "without a Node it would stay for ever");
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    let first = net.until("made", |node| node.condition("Ready").is_some()).await;
    net.rig.nodes().delete(net.host.as_str(), &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(net.nodes().get_opt(net.host.as_str()).await.unwrap().is_none(), "gone with its Node, and not made again");
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    let second = net.until("made again", |node| node.condition("Ready").is_some()).await;
    assert_ne!(first.owner_references()[0].uid, second.owner_references()[0].uid);

    net.nodes().delete(net.host.as_str(), &DeleteParams::default()).await.unwrap();
    net.until("made once more", |node| node.uid() != second.uid() && node.condition("Ready").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_the_api_server_does_the_end_is_the_same() {
    let patch = || Matcher::client("ovs-agent").verb(Verb::Patch);
    let watch = || Matcher::client("ovs-agent").verb(Verb::Watch);
    let status = |code| Effect::Status { code, retry_after: None };
    let mut faults = vec![
        Fault::new(patch().every(2).times(4), Effect::DropResponse),
        Fault::new(patch().every(2).times(3), Effect::CrashAfter),
        Fault::new(watch().every(2).times(8), Effect::CutWatch { after_events: 1, abrupt: true }),
        Fault::new(watch().every(2).times(8), Effect::CutWatch { after_events: 0, abrupt: false }),
        Fault::new(watch().every(2).times(8), Effect::LagWatch { millis: 5000 }),
        Fault::new(watch().every(2).times(8), Effect::Relist),
        Fault::new(Matcher::client("ovs-agent").verb(Verb::Get).times(3), status(500)),
    ];
    faults.extend([409, 429, 500, 503].map(|code| Fault::new(patch().every(2).times(6), status(code))));
    for fault in faults {
        let net = Net::new(2).await;
        let what = format!("{fault:?}");
        net.rig.server.faults().set([fault]);
        net.agent(net.rig.stop.clone(), |config| config);
        net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
        net.until(&format!("published under {what}"), |node| node.condition("Ready").is_some()).await;
        net.fault(SwitchFault::Lacp(false));
        net.issue("BondDown", "bond0").await;
        net.fault(SwitchFault::Lacp(true));
        net.fault(SwitchFault::Orphan(Orphan::DeviceGone, "lost".into()));
        let (node, _) = net.issue("OrphanPort", "taplost").await;
        assert_eq!(state_of(&node, "Ready"), ("True", "Degraded"), "{what}");
        net.until("looked", |node| state_of(node, "NoStaleFlows").0 == "True").await;
        net.rig.rest().await;
        net.rig.server.counters().reset();
        tokio::time::sleep(Duration::from_secs(1800)).await;
        assert_eq!(net.rig.counts("ovs-agent").requests, 0, "and at rest: {what}");
        assert!(!net.rig.server.faults().fired().is_empty(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_as_a_whole_makes_everything_unknown_and_loses_nothing() {
    let net = Net::publishing(2).await;
    net.region.world().power_cut(&net.host).unwrap();
    let node = net.until("unknown", |node| state_of(node, "Ready") == ("Unknown", "InspectionFailed")).await;
    assert_eq!(state_of(&node, "OVSDBConnected").0, "Unknown");
    assert_eq!(node.status.unwrap().bridges.unwrap().len(), 3, "what was known is kept");
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_is_an_event_each() {
    let net = Net::new(1).await;
    net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
    net.telling(net.rig.stop.clone());
    net.until("published", |node| node.condition("Ready").is_some()).await;
    net.fault(SwitchFault::Lacp(false));
    net.issue("BondDown", "bond0").await;
    net.fault(SwitchFault::Lacp(true));
    net.until("mended", |node| state_of(node, "Ready") == ("True", "Ready")).await;
    let wanted = [
        ("Normal", "BondDownResolved"),
        ("Normal", "BridgeIsolatedResolved"),
        ("Warning", "BondDown"),
        ("Warning", "BridgeIsolated"),
    ];
    assert_eq!(net.events().await, wanted.map(|(type_, reason)| (type_.to_owned(), reason.to_owned())));
}
