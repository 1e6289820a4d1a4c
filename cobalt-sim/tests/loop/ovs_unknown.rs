//! The OVS agent when it cannot tell: what was wrong before is neither mended nor found anew.

use std::time::Duration;

use cobalt_core::{api::OVSNode, runtime::shutdown::Shutdown};
use cobalt_sim::{DaemonState, SwitchFault};
use serde_json::json;

use super::ovs::{Net, find, state_of};

impl Net {
    /// With a Node and an agent that has published and writes Events.
    async fn told(stop: Shutdown) -> Self {
        let net = Self::new(1).await;
        net.rig.add_node(net.host.as_str(), json!({}), json!({})).await;
        net.telling(stop);
        net.until("published", |node| node.condition("Ready").is_some()).await;
        net
    }

    /// What was told of this issue.
    async fn told_of(&self, type_: &str) -> Vec<String> {
        let reasons = self.events().await.into_iter().map(|(_, reason)| reason);
        let mut reasons: Vec<String> = reasons.filter(|reason| reason.starts_with(type_)).collect();
        reasons.sort();
        reasons
    }
}

fn is_well(node: &OVSNode) -> bool {
    state_of(node, "Ready") == ("True", "Ready")
}

#[tokio::test(start_paused = true)]
async fn a_bond_that_was_down_is_not_called_mended_because_the_switch_hangs() {
    let net = Net::told(Shutdown::new()).await;
    net.fault(SwitchFault::Lacp(false));
    let (_, issue) = net.issue("BondDown", "bond0").await;
    for state in [DaemonState::Hung, DaemonState::Dead] {
        net.fault(SwitchFault::Switch(state));
        let node = net.until("without a switch", |node| state_of(node, "OVSDaemonResponsive").0 == "False").await;
        assert_eq!(find(&node, "BondDown", "bond0"), Some(&issue), "{state:?}");
        assert!(find(&node, "BridgeIsolated", "br-ex").is_some(), "{state:?}");
        assert_eq!(state_of(&node, "AllBondsHealthy").0, "Unknown", "{state:?}");
        let cards = serde_json::to_value(node.status.unwrap().interfaces.unwrap().physical.unwrap()).unwrap();
        assert_eq!(cards[0], json!({"name": "eth1", "status": "Unknown", "bond": "bond0"}), "{state:?}");
        net.fault(SwitchFault::Switch(DaemonState::Running));
        let node = net.until("with it", |node| state_of(node, "OVSDaemonResponsive").0 == "True").await;
        assert_eq!(find(&node, "BondDown", "bond0"), Some(&issue), "nor found anew");
        assert_eq!(net.told_of("BondDown").await, ["BondDown"], "{state:?}");
    }
    net.fault(SwitchFault::Lacp(true));
    net.until("mended", is_well).await;
    assert_eq!(net.told_of("BondDown").await, ["BondDown", "BondDownResolved"]);
}

#[tokio::test(start_paused = true)]
async fn a_stale_flow_is_not_called_gone_because_the_agent_began_anew_and_has_not_looked() {
    let first = Shutdown::new();
    let net = Net::told(first.clone()).await;
    net.fault(SwitchFault::StaleFlows(9));
    let (node, issue) = net.issue("StaleFlows", "br-int").await;
    let condition = node.condition("NoStaleFlows").unwrap().clone();
    first.trigger();
    tokio::time::sleep(Duration::from_secs(60)).await;
    net.telling(net.rig.stop.clone());
    // Before its first look, and after it.
    for wait in [30, 180] {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        let node = net.node().await;
        assert_eq!(find(&node, "StaleFlows", "br-int"), Some(&issue));
        assert_eq!(node.condition("NoStaleFlows"), Some(&condition));
        assert_eq!(net.told_of("StaleFlows").await, ["StaleFlows"]);
    }
    // A look that fails finds nothing, and clears nothing.
    net.fault(SwitchFault::Southbound(false));
    let node = net.until("a failed look", |node| state_of(node, "NoStaleFlows").0 == "Unknown").await;
    assert_eq!(find(&node, "StaleFlows", "br-int"), Some(&issue));
    net.fault(SwitchFault::Southbound(true));
    net.fault(SwitchFault::StaleFlows(0));
    net.until("gone", is_well).await;
    assert_eq!(net.told_of("StaleFlows").await, ["StaleFlows", "StaleFlowsResolved"]);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_to_nowhere_is_not_called_gone_because_the_southbound_database_cannot_be_read() {
    let net = Net::told(Shutdown::new()).await;
    net.fault(SwitchFault::StaleTunnel("hv-gone".into()));
    let (_, issue) = net.issue("StaleTunnel", "ovn-hv-gone-0").await;
    net.fault(SwitchFault::Southbound(false));
    let (node, _) = net.issue("SouthboundDisconnected", "ovn-controller").await;
    assert_eq!(find(&node, "StaleTunnel", "ovn-hv-gone-0"), Some(&issue));
    net.fault(SwitchFault::Southbound(true));
    let node = net.until("reachable", |node| find(node, "SouthboundDisconnected", "ovn-controller").is_none()).await;
    assert_eq!(find(&node, "StaleTunnel", "ovn-hv-gone-0"), Some(&issue));
    assert_eq!(net.told_of("StaleTunnel").await, ["StaleTunnel"]);
    net.fault(SwitchFault::Repaired);
    net.until("gone", is_well).await;
    assert_eq!(net.told_of("StaleTunnel").await, ["StaleTunnel", "StaleTunnelResolved"]);
}
