//! libvirt's events in the terms of the seam.

use cobalt_core::backend::{DomainEvent, IoErrorAction, Lifecycle, WatchdogAction};

use super::job;
use crate::event::{
    self, AgentState, EventId, EventKind, MemoryFailureAction, ResumedDetail, StartedDetail, StoppedDetail,
    SuspendedDetail,
};

/// What is registered for. A failed disk is told twice by libvirt; only the one with the reason is wanted.
pub(super) const WANTED: [EventId; 13] = [
    EventId::Lifecycle,
    EventId::Reboot,
    EventId::Watchdog,
    EventId::IoErrorReason,
    EventId::ControlError,
    EventId::DeviceRemoved,
    EventId::AgentLifecycle,
    EventId::MigrationIteration,
    EventId::JobCompleted,
    EventId::MemoryFailure,
    EventId::DeviceAdded,
    EventId::Tunable,
    EventId::MetadataChange,
];

/// The event as the seam tells it; `None` for what nobody above has a word for.
pub(super) fn domain_event(kind: &EventKind, disk_target: impl FnOnce(&str) -> Option<String>) -> Option<DomainEvent> {
    Some(match kind {
        EventKind::Lifecycle(step) => DomainEvent::Lifecycle(lifecycle(*step)?),
        EventKind::Reboot => DomainEvent::Reboot,
        EventKind::Watchdog { action } => DomainEvent::Watchdog(watchdog(*action)),
        EventKind::IoErrorReason { device, action, reason, .. } => DomainEvent::IoError {
            device: disk_target(device).unwrap_or_else(|| device.clone()),
            action: io_error(*action),
            reason: reason.clone(),
        },
        EventKind::ControlError => DomainEvent::ControlError,
        EventKind::DeviceRemoved { device } => DomainEvent::DeviceRemoved(device.clone()),
        EventKind::AgentLifecycle { state, .. } => DomainEvent::AgentConnected(*state == AgentState::Connected),
        EventKind::MigrationIteration { iteration } => {
            DomainEvent::MigrationIteration(u32::try_from(*iteration).unwrap_or_default())
        }
        EventKind::JobCompleted { params } => DomainEvent::JobCompleted(Box::new(job::completed(params))),
        EventKind::MemoryFailure { action, .. } => DomainEvent::MemoryFailure {
            recovered: matches!(action, MemoryFailureAction::Ignore | MemoryFailureAction::Inject),
        },
        // The seam's word for a description that is another one now.
        EventKind::DeviceAdded { .. } | EventKind::Tunable { .. } | EventKind::MetadataChange { .. } => {
            DomainEvent::Lifecycle(Lifecycle::Defined)
        }
        _ => return None,
    })
}

fn lifecycle(step: event::Lifecycle) -> Option<Lifecycle> {
    Some(match step {
        event::Lifecycle::Defined(_) => Lifecycle::Defined,
        event::Lifecycle::Undefined(_) => Lifecycle::Undefined,
        event::Lifecycle::Started(StartedDetail::Migrated) => Lifecycle::StartedByMigration,
        event::Lifecycle::Started(_) => Lifecycle::Started,
        event::Lifecycle::Suspended(SuspendedDetail::Migrated | SuspendedDetail::PostCopy) => {
            Lifecycle::SuspendedByMigration
        }
        event::Lifecycle::Suspended(SuspendedDetail::IoError) => Lifecycle::SuspendedOnIoError,
        // A guest that sleeps does not run either; its state says which of the two it is.
        event::Lifecycle::Suspended(_) | event::Lifecycle::PmSuspended(_) => Lifecycle::Suspended,
        event::Lifecycle::Resumed(ResumedDetail::Migrated | ResumedDetail::PostCopy) => Lifecycle::ResumedByMigration,
        event::Lifecycle::Resumed(_) => Lifecycle::Resumed,
        event::Lifecycle::Shutdown(_) => Lifecycle::Shutdown,
        event::Lifecycle::Stopped(StoppedDetail::Destroyed) => Lifecycle::Destroyed,
        event::Lifecycle::Stopped(StoppedDetail::Crashed) | event::Lifecycle::Crashed(_) => Lifecycle::Crashed,
        event::Lifecycle::Stopped(StoppedDetail::Migrated) => Lifecycle::Migrated,
        event::Lifecycle::Stopped(StoppedDetail::Failed) => Lifecycle::Failed,
        event::Lifecycle::Stopped(_) => Lifecycle::Stopped,
        event::Lifecycle::Other { .. } => return None,
    })
}

fn watchdog(action: event::WatchdogAction) -> WatchdogAction {
    match action {
        event::WatchdogAction::Pause => WatchdogAction::Pause,
        event::WatchdogAction::Reset => WatchdogAction::Reset,
        event::WatchdogAction::PowerOff => WatchdogAction::PowerOff,
        event::WatchdogAction::Shutdown => WatchdogAction::Shutdown,
        event::WatchdogAction::Debug => WatchdogAction::Debug,
        event::WatchdogAction::InjectNmi => WatchdogAction::InjectNmi,
        event::WatchdogAction::None | event::WatchdogAction::Other(_) => WatchdogAction::None,
    }
}

fn io_error(action: event::IoErrorAction) -> IoErrorAction {
    match action {
        event::IoErrorAction::Pause => IoErrorAction::Pause,
        event::IoErrorAction::Report => IoErrorAction::Report,
        event::IoErrorAction::None | event::IoErrorAction::Other(_) => IoErrorAction::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(event: i32, detail: i32) -> Option<DomainEvent> {
        domain_event(&EventKind::Lifecycle(event::Lifecycle::from_numbers(event, detail)), |_| None)
    }

    #[test]
    fn details_that_change_what_one_does_are_kept() {
        for ((event, detail), wanted) in [
            ((0, 1), Lifecycle::Defined),
            ((2, 0), Lifecycle::Started),
            ((2, 1), Lifecycle::StartedByMigration),
            ((3, 1), Lifecycle::SuspendedByMigration),
            ((3, 2), Lifecycle::SuspendedOnIoError),
            ((3, 3), Lifecycle::Suspended),
            ((4, 1), Lifecycle::ResumedByMigration),
            ((5, 0), Lifecycle::Stopped),
            ((5, 1), Lifecycle::Destroyed),
            ((5, 2), Lifecycle::Crashed),
            ((5, 3), Lifecycle::Migrated),
            ((5, 5), Lifecycle::Failed),
            ((5, 77), Lifecycle::Stopped),
            ((8, 0), Lifecycle::Crashed),
        ] {
            assert_eq!(told(event, detail), Some(DomainEvent::Lifecycle(wanted)), "{event}/{detail}");
        }
        assert_eq!(told(99, 0), None);
    }

    #[test]
    fn a_failed_disk_has_its_target_name_where_it_is_known_and_its_alias_else() {
        let failed = EventKind::IoErrorReason {
            path: "/srv/a.img".into(),
            device: "virtio-disk0".into(),
            action: event::IoErrorAction::Pause,
            reason: "enospc".into(),
        };
        let event = |device: &str| {
            Some(DomainEvent::IoError { device: device.into(), action: IoErrorAction::Pause, reason: "enospc".into() })
        };
        assert_eq!(domain_event(&failed, |_| Some("vda".into())), event("vda"));
        assert_eq!(domain_event(&failed, |_| None), event("virtio-disk0"));
    }
}
