//! Switches: what a fault looks like from the seam.

use cobalt_core::ovs::{Binding, Daemon, OvsChange, OvsInspector};
use cobalt_sim::{DaemonState, Region, SwitchFault};
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
    let told: Vec<OvsChange> = changes.by_ref().take(3).collect().await;
    assert_eq!(told.last(), Some(&OvsChange::Connected(false)));
    world.power_cut(&host).unwrap();
    assert_eq!(switch.snapshot().await.unwrap_err().category(), "unavailable");
}
