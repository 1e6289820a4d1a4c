#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::xdr::{XdrError, to_bytes};

fn event(kind: EventKind) -> Message {
    let domain = DomainRef { name: "web-1".into(), uuid: Uuid::from_u128(7), id: Some(3) };
    Message::Event(Event { callback: 19, domain, kind })
}

#[test]
fn every_kind_reads_back() {
    let (path, device) = (String::from("/srv/a.img"), String::from("virtio-disk0"));
    let (job, status) = (BlockJobKind::Copy, BlockJobStatus::Ready);
    for kind in [
        EventKind::Lifecycle(Lifecycle::Stopped(StoppedDetail::Migrated)),
        EventKind::Lifecycle(Lifecycle::Other { event: 77, detail: 5 }),
        EventKind::Reboot,
        EventKind::Watchdog { action: WatchdogAction::Reset },
        EventKind::IoError { path: path.clone(), device: device.clone(), action: IoErrorAction::Pause },
        EventKind::IoErrorReason {
            path,
            device: device.clone(),
            action: IoErrorAction::Report,
            reason: "enospc".into(),
        },
        EventKind::ControlError,
        EventKind::BlockJob { disk: "/srv/a.img".into(), job, status },
        EventKind::BlockJob2 { disk: "vda".into(), job, status },
        EventKind::DeviceRemoved { device: device.clone() },
        EventKind::DeviceAdded { device: device.clone() },
        EventKind::DeviceRemovalFailed { device },
        EventKind::Tunable { params: TypedParams::builder().with("cputune.vcpupin0", "1-2").build() },
        EventKind::MetadataChange { kind: MetadataKind::Element, uri: Some("urn:x".into()) },
        EventKind::AgentLifecycle { state: AgentState::Connected, reason: 2 },
        EventKind::MigrationIteration { iteration: 2 },
        EventKind::JobCompleted { params: TypedParams::builder().with("downtime", 161_u64).build() },
        EventKind::MemoryFailure {
            recipient: MemoryFailureRecipient::Guest,
            action: MemoryFailureAction::Inject,
            flags: 1,
        },
    ] {
        let message = event(kind);
        let read = Message::decode(message.procedure(), &to_bytes(&message).into()).unwrap();
        assert_eq!(read, message);
        assert_eq!(read.callback(), Some(19));
    }
}

#[test]
fn a_message_of_the_future_is_kept_as_it_came() {
    let payload = Bytes::from_static(&[0, 0, 0, 9, 1, 2, 3, 4]);
    let message = Message::decode(9999, &payload).unwrap();
    assert_eq!(message, Message::Unknown { procedure: 9999, payload: payload.clone() });
    assert_eq!(message.callback(), Some(9));
    assert_eq!(to_bytes(&message), payload);
}

#[test]
fn a_detail_of_the_future_keeps_its_number() {
    let lifecycle = Lifecycle::from_numbers(5, 42);
    assert_eq!(lifecycle, Lifecycle::Stopped(StoppedDetail::Other(42)));
    assert_eq!(lifecycle.numbers(), (5, 42));
}

#[test]
fn a_known_message_that_ends_early_is_an_error() {
    let mut wire = to_bytes(&event(EventKind::Watchdog { action: WatchdogAction::Pause }));
    wire.truncate(wire.len() - 4);
    assert!(matches!(Message::decode(321, &wire.into()), Err(XdrError::Truncated { wanted: 4, left: 0, .. })));
}

proptest! {
    #[test]
    fn arbitrary_messages_never_panic(procedure in 310_u32..430, bytes in any::<Vec<u8>>()) {
        let _ = Message::decode(procedure, &bytes.into());
    }

    #[test]
    fn every_pair_of_lifecycle_numbers_survives(event in -1..12, detail in -1..12) {
        prop_assert_eq!(Lifecycle::from_numbers(event, detail).numbers(), (event, detail));
    }
}
