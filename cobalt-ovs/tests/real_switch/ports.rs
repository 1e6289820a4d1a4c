//! Ports that have no business on br-int, each class of them.

use cobalt_core::ovs::{Binding, InterfaceRole};
use cobalt_rig::ovs::{Daemon, Node, Orphan};

use crate::rig::{controller, interface, own, seen, switch};

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_orphan_is_told_apart() {
    let Some(node) = own("every_kind_of_orphan_is_told_apart") else { return };
    let switch = switch(&node).await;
    for orphan in Orphan::ALL {
        node.orphan(orphan).unwrap();
    }
    let found = seen(&switch, "all of them", |found| {
        let named = |name: &str| found.interfaces.iter().find(|interface| interface.name == name);
        let shows = |orphan: Orphan| {
            let Some(port) = named(orphan.port()) else { return false };
            match orphan {
                Orphan::NeverExisted => port.error.is_some() && port.ofport == Some(-1),
                Orphan::Vanished => port.ifindex == Some(0),
                Orphan::Unknown => port.binding == Some(Binding::Unknown),
                // The newer one has the claim, and the other lost it.
                Orphan::Duplicate => {
                    let both = [Some(port), named("tap-vm1")].map(|port| port.and_then(|port| port.binding.clone()));
                    both.iter().filter(|binding| **binding == Some(Binding::Here)).count() == 1
                        && both.iter().filter(|binding| matches!(binding, Some(Binding::Elsewhere(_)))).count() == 1
                }
                Orphan::Elsewhere => port.binding == Some(Binding::Elsewhere(Node::OTHER_CHASSIS.into())),
                _ => false,
            }
        };
        Orphan::ALL.into_iter().all(shows)
    })
    .await;
    let never = interface(&found, Orphan::NeverExisted.port());
    assert!(never.error.as_ref().is_some_and(|error| error.contains("No such device")), "{never:?}");
    // What misleads: the switch has no complaint about a device that is gone.
    let vanished = interface(&found, Orphan::Vanished.port());
    assert_eq!(vanished.error, None, "{vanished:?}");
    for orphan in Orphan::ALL {
        assert_eq!(interface(&found, orphan.port()).logical_port.as_deref(), Some(orphan.logical_port()));
        node.adopt(orphan).unwrap();
    }
    seen(&switch, "nothing but guests", |found| {
        let mut ports = found.interfaces.iter().filter(|interface| interface.role == InterfaceRole::Instance);
        ports.clone().count() == 2 && ports.all(|port| port.binding == Some(Binding::Here))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logical_port_without_an_interface_and_a_tunnel_to_nobody_are_seen() {
    let Some(node) = own("a_logical_port_without_an_interface_and_a_tunnel_to_nobody_are_seen") else { return };
    let switch = switch(&node).await;
    // With the controller gone nobody tidies up.
    node.kill(Daemon::Controller).unwrap();
    node.remove_port("tap-vm2").unwrap();
    node.sbctl(["chassis-del", Node::OTHER_CHASSIS]).unwrap();
    let found = seen(&switch, "both", |found| {
        let tunnel = found.interfaces.iter().find(|interface| interface.role == InterfaceRole::Tunnel);
        controller(found).unplugged.as_ref().is_some_and(|ports| !ports.is_empty())
            && tunnel.is_some_and(|tunnel| tunnel.remote_known == Some(false))
    })
    .await;
    assert_eq!(controller(&found).unplugged.as_deref(), Some(&["vm2".to_owned()][..]));
}
