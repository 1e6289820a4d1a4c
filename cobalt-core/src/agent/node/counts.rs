//! What the agent counts of its own work.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use crate::{
    agent::Report,
    backend::{BackendEvent, DomainState},
    runtime::metrics::Metrics,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriverLabels {
    driver: String,
}

/// Every state there is, with its word.
const STATES: [(DomainState, &str); 8] = [
    (DomainState::Running, "running"),
    (DomainState::Paused, "paused"),
    (DomainState::PausedOnIoError, "paused_on_io_error"),
    (DomainState::ShuttingDown, "shutting_down"),
    (DomainState::ShutOff, "shut_off"),
    (DomainState::Crashed, "crashed"),
    (DomainState::Suspended, "suspended"),
    (DomainState::Unknown, "unknown"),
];

pub(super) struct Counts {
    events: Family<EventLabels, Counter>,
    lost: Counter,
    connected: Gauge,
    connections: Counter,
    disconnections: Counter,
    domains: Family<StateLabels, Gauge>,
    driver: Family<DriverLabels, Gauge>,
    event_to_status: Histogram,
}

impl Counts {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let counts = Self {
            events: Family::default(),
            lost: Counter::default(),
            connected: Gauge::default(),
            connections: Counter::default(),
            disconnections: Counter::default(),
            domains: Family::default(),
            driver: Family::default(),
            // The promise is a quarter of a second; most of it is the coalescing.
            event_to_status: Histogram::new([0.05, 0.1, 0.125, 0.15, 0.2, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]),
        };
        metrics.register(|registry| {
            let r = registry.sub_registry_with_prefix("agent");
            r.register("libvirt_events", "Events of the hypervisor, by kind", counts.events.clone());
            r.register("libvirt_events_lost", "Events that came faster than they were read", counts.lost.clone());
            r.register("libvirt_connected", "1 while the hypervisor is connected", counts.connected.clone());
            r.register("libvirt_connections", "Connections made to the hypervisor", counts.connections.clone());
            r.register("libvirt_disconnections", "Connections lost", counts.disconnections.clone());
            r.register("domains", "Domains on this host, by state", counts.domains.clone());
            r.register("driver", "1 for the driver behind the connection", counts.driver.clone());
            r.register(
                "event_to_status_seconds",
                "Time from an event of the hypervisor to the answer to the write that shows it",
                counts.event_to_status.clone(),
            );
        });
        counts
    }

    pub(super) fn event(&self, event: &BackendEvent) {
        match event {
            BackendEvent::Connected => {
                self.connections.inc();
                self.connected.set(1);
            }
            BackendEvent::Disconnected(_) => {
                self.disconnections.inc();
                self.connected.set(0);
            }
            BackendEvent::Lagged(lost) => {
                self.lost.inc_by(*lost);
            }
            BackendEvent::Domain { event, .. } => {
                self.events.get_or_create(&EventLabels { kind: event.kind().as_str() }).inc();
            }
        }
    }

    pub(super) fn report(&self, report: &Report) {
        self.connected.set(i64::from(report.disconnected.is_none() && report.versions.known().is_some()));
        if !report.driver.is_empty() {
            // One at a time: after a change the old one would stay at 1 for ever.
            self.driver.clear();
            self.driver.get_or_create(&DriverLabels { driver: report.driver.clone() }).set(1);
        }
        let Some(domains) = report.domains.known() else { return };
        for (state, word) in STATES {
            let count = domains.iter().filter(|domain| domain.state == state).count();
            self.domains.get_or_create(&StateLabels { state: word }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn event_to_status(&self, time: Duration) {
        self.event_to_status.observe(time.as_secs_f64());
    }
}
