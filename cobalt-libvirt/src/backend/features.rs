//! What each driver can do.

use cobalt_core::backend::{EventKind, Features};

/// What may turn out to be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ability {
    DomainCapabilities,
    Stats,
    Jobs,
    Migration,
}

/// What the driver of this name is known to do; `None` for one that must be asked.
///
/// Registering for an event says nothing about it ever coming (every driver takes every registration), so that the
/// kinds of event can only come from a table.
pub(super) fn known(driver: &str) -> Option<Features> {
    match driver {
        "qemu" => Some(Features {
            domain_capabilities: true,
            stats: true,
            jobs: true,
            migration: true,
            power: true,
            events: EventKind::ALL.to_vec(),
        }),
        "ch" => Some(Features { power: true, events: vec![EventKind::Lifecycle], ..Features::default() }),
        "test" => {
            Some(Features { stats: true, power: true, events: vec![EventKind::Lifecycle], ..Features::default() })
        }
        _ => None,
    }
}

/// What may be expected of a driver nobody knows, before it is asked: everything but kinds of event that may never
/// come, so that they are polled for.
pub(super) fn hoped() -> Features {
    Features {
        domain_capabilities: true,
        stats: true,
        jobs: true,
        migration: true,
        power: true,
        events: vec![EventKind::Lifecycle],
    }
}

/// The features without what the driver said that it lacks.
pub(super) fn without(features: &mut Features, ability: Ability) {
    match ability {
        Ability::DomainCapabilities => features.domain_capabilities = false,
        Ability::Stats => features.stats = false,
        Ability::Jobs => features.jobs = false,
        Ability::Migration => features.migration = false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cloud_hypervisor_has_power_and_lifecycle_events_and_nothing_else() {
        let features = known("ch").unwrap_or_default();
        let wanted = Features { power: true, events: vec![EventKind::Lifecycle], ..Features::default() };
        assert_eq!(features, wanted);
        assert!(known("bhyve").is_none());
    }

    #[test]
    fn what_a_driver_lacks_is_taken_away() {
        let mut features = hoped();
        for ability in [Ability::DomainCapabilities, Ability::Stats, Ability::Jobs, Ability::Migration] {
            without(&mut features, ability);
        }
        let wanted = Features { power: true, events: vec![EventKind::Lifecycle], ..Features::default() };
        assert_eq!(features, wanted);
    }
}
