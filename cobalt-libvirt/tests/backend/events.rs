//! Events as they come through.

use cobalt_core::{
    backend::{BackendEvent, DomainEvent, EventKind, HypervisorBackend, IoErrorAction, Lifecycle},
    ids::InstanceId,
};
use cobalt_libvirt::testing::{Event, Recording};

use super::fixture::{is_connected, next, recording, replayed, until, uuid};

#[tokio::test]
async fn every_recorded_event_comes_through_in_its_order() {
    let (server, backend) = replayed("qemu-9.0").await;
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    let mut told = 0;
    let recordings = [recording("qemu-9.0"), recording("qemu-9.0-migration")];
    for message in recordings.iter().flat_map(Recording::messages) {
        let Some(event) = message.event() else { continue };
        server.emit(&event);
        let BackendEvent::Domain { id, event, .. } = next(&mut events).await else { panic!("no domain event") };
        assert_eq!(id.as_str().len(), 36);
        let kind = match message.frame.header.procedure {
            318 => EventKind::Lifecycle,
            319 => EventKind::Reboot,
            321 => EventKind::Watchdog,
            324 => EventKind::IoError,
            325 => EventKind::ControlError,
            333 => EventKind::DeviceRemoved,
            348 => EventKind::AgentLifecycle,
            359 => EventKind::MigrationIteration,
            363 => EventKind::JobCompleted,
            other => panic!("procedure {other}"),
        };
        assert_eq!(event.kind(), kind);
        told += 1;
    }
    assert!(told > 60, "{told}");
}

#[tokio::test]
async fn a_failed_disk_is_told_once_and_by_its_target_name() {
    let (server, backend) = replayed("qemu-9.0").await;
    let xml = format!(
        "<domain type='kvm'><name>a</name><uuid>{}</uuid><memory>1024</memory><vcpu>1</vcpu><devices>\
         <disk type='file' device='disk'><target dev='vdb' bus='virtio'/><alias name='virtio-disk1'/></disk>\
         </devices></domain>",
        uuid(1)
    );
    let domain = server.put_domain(&xml, true).unwrap();
    backend.inventory().await.unwrap();
    let mut events = backend.events();
    assert!(is_connected(&next(&mut events).await));
    server.emit(&Event::io_error(&domain, "/srv/b.img", "virtio-disk1", 1, "enospc"));
    let wanted = BackendEvent::Domain {
        id: InstanceId::from(uuid(1)),
        name: "a".into(),
        event: DomainEvent::IoError { device: "vdb".into(), action: IoErrorAction::Pause, reason: "enospc".into() },
    };
    assert_eq!(next(&mut events).await, wanted);
}

#[tokio::test]
async fn one_reset_is_passed_on_as_often_as_the_driver_tells_it() {
    let (server, backend) = replayed("qemu-9.0").await;
    server.start_domain("a", &uuid(1)).unwrap();
    let mut events = backend.events();
    backend.power(&InstanceId::from(uuid(1)), cobalt_core::backend::PowerAction::Reset).await.unwrap();
    backend.power(&InstanceId::from(uuid(1)), cobalt_core::backend::PowerAction::Suspend).await.unwrap();
    let mut reboots = 0;
    loop {
        match next(&mut events).await {
            BackendEvent::Domain { event: DomainEvent::Reboot, .. } => reboots += 1,
            BackendEvent::Domain { event: DomainEvent::Lifecycle(Lifecycle::Suspended), .. } => break,
            _ => {}
        }
    }
    assert_eq!(reboots, 3);
}

#[tokio::test]
async fn readers_come_and_go_without_a_word_to_the_daemon() {
    let (server, backend) = replayed("ch-11.3").await;
    server.reset_counts();
    let streams: Vec<_> = (0..50).map(|_| backend.events()).collect();
    assert_eq!(backend.listeners(), 50);
    drop(streams);
    let mut events = backend.events();
    server.start_domain("a", &uuid(1)).unwrap();
    until(&mut events, |event| format!("{event:?}").contains("Started")).await;
    assert_eq!((backend.listeners(), server.counts().len()), (1, 0));
}
