//! What a snapshot says of a node that is well.

use std::time::Duration;

use cobalt_core::ovs::{Binding, BondKind, Bridge, InterfaceRole, OvsInspector, OvsSnapshot};
use cobalt_ovs::{OvsSwitch, Southbound};
use cobalt_rig::ovs::{Daemon, Node, NodeOptions, Way, available};

use crate::rig::{LIMIT, bond, controller, interface, own, seen, shared, switch, switch_options, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_described_as_it_is() {
    let Some(node) = shared("a_node_is_described_as_it_is") else { return };
    let switch = switch(&node).await;
    let found = seen(&switch, "a node that is well", |found| {
        // The partner's word may be late, and then a member is out for a moment.
        let negotiated = found.bonds.iter().all(|bond| bond.active_members() == 2);
        negotiated && found.controller.as_ref().is_some_and(|controller| controller.lag == Some(0))
    })
    .await;
    assert!(found.database_connected && !found.configuration_pending, "{found:?}");
    let version = node.appctl(["version"]).unwrap();
    let version = version.split_whitespace().last();
    assert_eq!((found.switch.version(), found.database.version()), (version, version));
    assert_eq!(found.dpdk, None);

    let names: Vec<&str> = found.bridges.iter().map(|bridge| bridge.name.as_str()).collect();
    assert_eq!(names, ["br-ex", "br-int", "br-provider"]);
    for Bridge { name, ports, datapath_type, .. } in &found.bridges {
        assert_eq!(datapath_type, "netdev", "{name}");
        let rows = node.vsctl(["--bare", "get", "Bridge", name, "ports"]).unwrap();
        assert_eq!(*ports as usize, rows.split(',').count(), "{name}: {rows}");
    }
    let flows = node.ofctl("dump-flows", "br-int", &[]).unwrap().matches("cookie=").count() as u64;
    assert_eq!(found.bridges[1].total_flows(), Some(flows));

    let card = interface(&found, "eth1");
    assert_eq!(
        (card.role, card.bridge.as_str(), card.bond.as_deref()),
        (InterfaceRole::Physical, "br-ex", Some("bond0"))
    );
    assert_eq!((card.link_up, card.error.as_deref()), (Some(true), None));
    assert!(card.ifindex.is_some_and(|index| index > 0) && card.ofport.is_some_and(|port| port > 0), "{card:?}");
    assert_eq!(interface(&found, "eth3").bond, None);
    assert_eq!(interface(&found, "br-int").role, InterfaceRole::Internal);
    for number in 0..2 {
        let vm = node.vm(number);
        let port = interface(&found, &vm.tap());
        assert_eq!((port.role, port.bridge.as_str()), (InterfaceRole::Instance, "br-int"));
        assert_eq!((port.instance.as_deref(), port.logical_port.as_deref()), (Some(&*vm.uuid()), Some(vm.name())));
        assert_eq!((port.mac.as_deref(), &port.binding), (Some(&*vm.mac()), &Some(Binding::Here)));
    }
    let tunnel = found.interfaces.iter().find(|interface| interface.role == InterfaceRole::Tunnel).unwrap();
    assert_eq!(tunnel.remote_chassis.as_deref(), Some(Node::OTHER_CHASSIS));
    assert_eq!(tunnel.remote_known, Some(true));

    let bond = bond(&found);
    assert_eq!(
        (bond.name.as_str(), bond.kind, bond.mode.as_str(), bond.lacp),
        ("bond0", BondKind::Ovs, "balance-tcp", true)
    );
    assert_eq!(bond.active_members(), 2);
    for member in &bond.members {
        assert_eq!((member.link_up, member.lacp.as_deref()), (Some(true), Some("current")), "{member:?}");
        assert!(member.partner.as_ref().is_some_and(|partner| partner.contains(':')), "{member:?}");
    }

    let controller = controller(&found);
    assert!(controller.daemon.is_responsive() && controller.southbound_connected, "{controller:?}");
    assert_eq!(controller.southbound.as_deref(), Some(&*node.ovn_remote()));
    assert_eq!(controller.chassis_id.as_deref(), Some(Node::CHASSIS));
    assert_eq!((controller.openflow_connected, controller.unplugged.as_deref()), (Some(true), Some(&[][..])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_of_devices_and_of_the_controllers_configuration_is_told() {
    let Some(node) = own("what_is_said_of_devices_and_of_the_controllers_configuration_is_told") else { return };
    let switch = switch(&node).await;
    let configured = |key: &str| {
        let said = node.vsctl(["get", "Open_vSwitch", ".", &format!("external_ids:{key}")]).unwrap();
        Some(said.trim().trim_matches('"').to_owned())
    };
    let said = |column: &str| node.vsctl(["get", "Interface", "eth3", column]).unwrap().trim().to_owned();
    node.vsctl(["set", "Interface", "eth3", "ingress_policing_rate=10000", "ingress_policing_burst=8"]).unwrap();
    let policed = |found: &OvsSnapshot| interface(found, "eth3").device.policing_bps == Some(10_000_000);
    let found = seen(&switch, "the bound", policed).await;
    let configuration = &controller(&found).configuration;
    assert_eq!(configuration.encap_ip, configured("ovn-encap-ip"));
    assert_eq!(configuration.encap_type.as_deref(), Some("geneve"));
    assert_eq!(configuration.bridge_mappings, configured("ovn-bridge-mappings"));
    let device = |name: &str| interface(&found, name).device.clone();
    let kinds = [device("eth3").kind, device("br-int").kind, device(&node.tunnel().unwrap()).kind];
    assert_eq!(kinds.map(Option::unwrap), ["system", "internal", "geneve"]);
    assert_eq!((device("eth3").policing_burst_bits, device("eth3").mtu), (Some(8000), said("mtu").parse().ok()));
    // A counter that nobody follows, and that is new with each look all the same.
    let before = device("eth3").link_resets.unwrap();
    assert_eq!(said("link_resets"), before.to_string());
    node.cable("eth3", false).unwrap();
    seen(&switch, "a link that is gone", |found| {
        interface(found, "eth3").device.link_resets.is_some_and(|resets| resets > before)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_and_learned_addresses_are_those_of_the_switch() {
    let Some(node) = shared("counters_and_learned_addresses_are_those_of_the_switch") else { return };
    let switch = switch(&node).await;
    until("the guests reach each other", async || node.vm(0).ping(&node.vm(1).address(), 3).is_ok()).await;
    // A daemon adds its events up some seconds after they happened.
    let counted = async {
        loop {
            let counters = switch.counters().await.unwrap();
            if counters.coverage["ovs-vswitchd"].contains_key("netdev_received") {
                return counters;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let counters = tokio::time::timeout(LIMIT, counted).await.expect("events of the switch");
    let datapath = counters.datapaths.values().next().expect("a datapath");
    assert!(datapath.hit + datapath.missed > 0, "{counters:?}");
    assert!(datapath.flow_limit.is_some_and(|limit| limit > 0) && datapath.dump.is_some(), "{datapath:?}");
    assert!(counters.pmds.iter().any(|pmd| pmd.thread == "main" && pmd.received > Some(0)), "{:?}", counters.pmds);
    assert!(counters.memory["ovs-vswitchd"].get("ports").is_some_and(|ports| *ports > 0), "{:?}", counters.memory);
    let found = seen(&switch, "packets of the guest", |found| {
        interface(found, "tap-vm1").statistics.get("rx_packets").is_some_and(|packets| *packets >= 3)
    })
    .await;
    assert!(interface(&found, "tap-vm1").statistics.contains_key("tx_dropped"));
    // The partner's bridge has an address of its own and says so now and then; ours learns it.
    node.run(["ping", "-c", "1", "-W", "1", "172.31.0.200"]).expect_err("nobody has that address");
    for entry in switch.fdb("br-ex").await.unwrap() {
        assert!(entry.mac.len() == 17 && !entry.port.is_empty(), "{entry:?}");
    }
    switch.fdb("br-nowhere").await.expect_err("no such bridge");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_southbound_database_less_is_said_and_nothing_is_guessed() {
    let Some(node) = shared("without_the_southbound_database_less_is_said_and_nothing_is_guessed") else { return };
    let options = switch_options(&node).southbound(Southbound::None);
    let switch = OvsSwitch::connect(options).await.unwrap();
    assert!(!switch.features().southbound);
    let found = seen(&switch, "a connection", |found| found.database_connected).await;
    let tunnel = found.interfaces.iter().find(|interface| interface.role == InterfaceRole::Tunnel).unwrap();
    assert_eq!(tunnel.remote_known, None);
    // The controller itself knows what it has bound.
    assert_eq!(interface(&found, "tap-vm1").binding, Some(Binding::Here));
    assert_eq!(controller(&found).unplugged, None);
    assert_eq!(switch.stale_flows("br-int").await.unwrap_err().category(), "unsupported");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_databases_may_be_behind_tls() {
    const NAME: &str = "both_databases_may_be_behind_tls";
    if !available(NAME) {
        return;
    }
    let node = Node::up_with(&NodeOptions { southbound: Way::Ssl }).unwrap();
    let options = switch_options(&node).database(node.database(Way::Ssl).parse().unwrap());
    let switch = OvsSwitch::connect(options).await.unwrap();
    let found = seen(&switch, "both databases", |found| {
        found.controller.as_ref().is_some_and(|controller| controller.unplugged.is_some())
    })
    .await;
    assert_eq!(interface(&found, "tap-vm2").binding, Some(Binding::Here));
    assert_eq!(switch.stale_flows("br-int").await.unwrap().len(), 0);
    // The southbound database comes back at the same address.
    node.kill(Daemon::Southbound).unwrap();
    seen(&switch, "the loss", |found| !controller(found).southbound_connected).await;
    node.start(Daemon::Southbound).unwrap();
    seen(&switch, "the return", |found| controller(found).southbound_connected && controller(found).lag == Some(0))
        .await;
}
