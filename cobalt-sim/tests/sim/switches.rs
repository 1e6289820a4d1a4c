//! Switches: what a fault looks like from the seam.

use cobalt_core::ovs::{Binding, BondKind, Daemon, OvsChange, OvsInspector};
use cobalt_sim::{DaemonState, Orphan, Region, SwitchFault};
use futures::StreamExt;

#[tokio::test(start_paused = true)]
async fn a_lost_card_an_orphan_port_and_stale_flows_are_seen_and_mended() {
    let region = Region::builder().hosts(3).vms_per_host(2).build();
    let (world, host) = (region.world(), region.hosts()[0].clone());
    let switch = region.switch(&host).unwrap();
    let sound = switch.snapshot().await.unwrap();
    let mut changes = switch.changes();

    world.switch_fault(&host, SwitchFault::Link("eth2".into(), false)).unwrap();
    assert_eq!(changes.next().await, Some(OvsChange::Changed));
    world.switch_fault(&host, SwitchFault::OrphanPort("lost-port".into())).unwrap();
    world.switch_fault(&host, SwitchFault::StaleFlows(9)).unwrap();
    let broken = switch.snapshot().await.unwrap();
    assert_eq!(broken.bonds[0].active_members(), 1);
    let orphan = broken.interfaces.iter().find(|port| port.logical_port.as_deref() == Some("lost-port")).unwrap();
    assert_eq!((orphan.ofport, &orphan.binding), (Some(-1), &Some(Binding::Unknown)));
    assert_eq!(switch.stale_flows("br-int").await.unwrap().values().sum::<u64>(), 9);

    world.switch_fault(&host, SwitchFault::Repaired).unwrap();
    let mended = switch.snapshot().await.unwrap();
    assert_eq!((mended.bonds, mended.bridges), (sound.bonds, sound.bridges));
}

#[tokio::test(start_paused = true)]
async fn dead_daemons_and_a_lost_southbound_database_are_findings_of_their_own() {
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let (world, host) = (region.world(), region.hosts()[0].clone());
    let switch = region.switch(&host).unwrap();
    let mut changes = switch.changes();
    world.switch_fault(&host, SwitchFault::Southbound(false)).unwrap();
    let controller = switch.snapshot().await.unwrap().controller.unwrap();
    assert!(controller.daemon.is_responsive() && !controller.southbound_connected);
    assert_eq!(switch.stale_flows("br-int").await.unwrap_err().category(), "unavailable");

    world.switch_fault(&host, SwitchFault::Controller(DaemonState::Dead)).unwrap();
    assert_eq!(switch.snapshot().await.unwrap().controller.unwrap().daemon, Daemon::Absent);
    world.switch_fault(&host, SwitchFault::Database(DaemonState::Dead)).unwrap();
    assert!(!switch.snapshot().await.unwrap().database_connected);
    // The first thing that is told at all: neither a controller nor its database is any business of the switch's own.
    assert_eq!(changes.next().await, Some(OvsChange::Connected(false)));
    world.power_cut(&host).unwrap();
    assert_eq!(switch.snapshot().await.unwrap_err().category(), "unavailable");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_orphan_shows_in_its_own_way() {
    let region = Region::builder().hosts(1).vms_per_host(1).build();
    let (world, host) = (region.world(), region.hosts()[0].clone());
    let switch = region.switch(&host).unwrap();
    let vm = switch.snapshot().await.unwrap().interfaces.into_iter().find(|port| port.instance.is_some()).unwrap().name;
    for (why, ifindex, binding) in [
        (Orphan::NeverOpened, 0, Binding::Unknown),
        (Orphan::DeviceGone, 0, Binding::Here),
        (Orphan::NoLogicalPort, 1, Binding::Unknown),
        (Orphan::Duplicate, 1, Binding::Elsewhere(vm)),
        (Orphan::Elsewhere, 1, Binding::Elsewhere("another-chassis".into())),
    ] {
        world.switch_fault(&host, SwitchFault::Orphan(why, "lost".into())).unwrap();
        let seen = switch.snapshot().await.unwrap();
        let port = seen.interfaces.iter().find(|port| port.name == "taplost").unwrap();
        assert_eq!((port.ifindex, port.binding.as_ref()), (Some(ifindex), Some(&binding)), "{why:?}");
        assert_eq!(port.error.is_some(), why == Orphan::NeverOpened);
        world.switch_fault(&host, SwitchFault::Repaired).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_kernels_bond_is_one_interface_of_the_switch_and_does_not_hang_with_it() {
    let region = Region::builder().hosts(1).build();
    let (world, host) = (region.world(), region.hosts()[0].clone());
    let switch = region.switch(&host).unwrap();
    world.switch_fault(&host, SwitchFault::KernelBond(true)).unwrap();
    world.switch_fault(&host, SwitchFault::Link("eno1".into(), false)).unwrap();
    world.switch_fault(&host, SwitchFault::Switch(DaemonState::Hung)).unwrap();
    let seen = switch.snapshot().await.unwrap();
    let bond = seen.bonds.iter().find(|bond| bond.kind == BondKind::Kernel).unwrap();
    assert_eq!((bond.members.len(), bond.active_members()), (2, 1));
    assert!(seen.interfaces.iter().any(|card| card.name == bond.name));
    assert!(!seen.interfaces.iter().any(|card| card.name == "eno1"));
}

#[tokio::test(start_paused = true)]
async fn who_may_not_read_the_southbound_database_is_told_nothing_of_it() {
    let region = Region::builder().hosts(2).vms_per_host(1).build();
    let (world, host) = (region.world(), region.hosts()[0].clone());
    let switch = region.switch(&host).unwrap().without_southbound();
    world.switch_fault(&host, SwitchFault::StaleTunnel("gone".into())).unwrap();
    world.switch_fault(&host, SwitchFault::Unplugged("port".into())).unwrap();
    let seen = switch.snapshot().await.unwrap();
    assert!(seen.interfaces.iter().all(|tunnel| tunnel.remote_known.is_none()));
    let controller = seen.controller.unwrap();
    assert_eq!((controller.unplugged, controller.lag), (None, None));
    assert_eq!(switch.stale_flows("br-int").await.unwrap_err().category(), "unsupported");
}
