//! libvirt's states in the terms of the seam.

use cobalt_core::backend::{DomainState, PowerAction};

use crate::rpc;

/// Whether a domain runs, as the seam says it.
pub(super) fn domain_state(status: &rpc::DomainStatus) -> DomainState {
    match status.state {
        // A domain that waits for a resource runs as far as anybody outside can tell.
        rpc::DomainState::Running | rpc::DomainState::Blocked => DomainState::Running,
        rpc::DomainState::Paused if status.is_paused_on_io_error() => DomainState::PausedOnIoError,
        rpc::DomainState::Paused => DomainState::Paused,
        rpc::DomainState::ShuttingDown => DomainState::ShuttingDown,
        rpc::DomainState::ShutOff => DomainState::ShutOff,
        rpc::DomainState::Crashed => DomainState::Crashed,
        rpc::DomainState::Suspended => DomainState::Suspended,
        _ => DomainState::Unknown,
    }
}

/// Why this state forbids the action, if it does.
pub(super) fn forbids(state: DomainState, action: PowerAction) -> Option<&'static str> {
    let paused = matches!(state, DomainState::Paused | DomainState::PausedOnIoError);
    match action {
        PowerAction::Start if state.is_active() => Some("the domain runs already"),
        PowerAction::Resume if state.is_active() && !paused => Some("the domain is not paused"),
        PowerAction::Destroy | PowerAction::Reset | PowerAction::Suspend | PowerAction::Resume
            if !state.is_active() =>
        {
            Some("the domain does not run")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_for_a_failed_disk_is_told_apart() {
        let paused = |reason| domain_state(&rpc::DomainStatus { state: rpc::DomainState::Paused, reason });
        assert_eq!(paused(5), DomainState::PausedOnIoError);
        assert_eq!(paused(1), DomainState::Paused);
        let unknown = rpc::DomainStatus { state: 99.into(), reason: 0 };
        assert_eq!(domain_state(&unknown), DomainState::Unknown);
    }

    #[test]
    fn a_state_forbids_only_what_makes_no_sense_in_it() {
        assert!(forbids(DomainState::Running, PowerAction::Start).is_some());
        assert!(forbids(DomainState::Running, PowerAction::Resume).is_some());
        assert!(forbids(DomainState::PausedOnIoError, PowerAction::Resume).is_none());
        assert!(forbids(DomainState::ShutOff, PowerAction::Start).is_none());
        assert!(forbids(DomainState::ShutOff, PowerAction::Destroy).is_some());
        assert!(forbids(DomainState::Unknown, PowerAction::Destroy).is_none());
    }
}
