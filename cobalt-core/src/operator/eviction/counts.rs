//! The metrics of drains. All are sums over the region: an Eviction's name is no label.

use std::{collections::BTreeMap, sync::Mutex};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use crate::{
    api::{EvictedInstance, EvictionStatus, InstanceState},
    runtime::{lock, metrics::Metrics},
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct How {
    how: &'static str,
}

/// How far one drain is.
#[derive(Clone, Copy, Default)]
struct Progress {
    outstanding: i64,
    memory_mb: i64,
    in_flight: i64,
    blocked: i64,
}

pub(super) struct Counts {
    ended: Family<Outcome, Counter>,
    seconds: Family<How, Histogram>,
    running: Gauge,
    outstanding: Gauge,
    memory_mb: Gauge,
    in_flight: Gauge,
    blocked: Gauge,
    drains: Mutex<BTreeMap<String, Progress>>,
}

impl Counts {
    pub(super) fn registered(metrics: &Metrics) -> Self {
        let length: fn() -> Histogram =
            || Histogram::new([1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0]);
        let counts = Self {
            ended: Family::default(),
            seconds: Family::new_with_constructor(length),
            running: Gauge::default(),
            outstanding: Gauge::default(),
            memory_mb: Gauge::default(),
            in_flight: Gauge::default(),
            blocked: Gauge::default(),
            drains: Mutex::default(),
        };
        metrics.register(|registry| {
            let r = registry.sub_registry_with_prefix("eviction");
            r.register("instances", "Moves of instances that ended, by outcome", counts.ended.clone());
            r.register("move_seconds", "Time from asking for a move to its end", counts.seconds.clone());
            r.register("running", "Evictions whose host is not empty yet", counts.running.clone());
            r.register("outstanding_instances", "Instances that have not left yet", counts.outstanding.clone());
            r.register("outstanding_memory_mb", "Their memory", counts.memory_mb.clone());
            r.register("in_flight_instances", "Instances that move now", counts.in_flight.clone());
            r.register("blocked_instances", "Instances that cannot move", counts.blocked.clone());
        });
        counts
    }

    /// One instance has changed its state.
    pub(super) fn changed(&self, record: &EvictedInstance) {
        let outcome = match record.state {
            InstanceState::Moved => "moved",
            InstanceState::Gone => "gone",
            InstanceState::Failed => "failed",
            InstanceState::Blocked => "blocked",
            _ => return,
        };
        self.ended.get_or_create(&Outcome { outcome }).inc();
        if let (InstanceState::Moved, Some(asked), Some(ended)) =
            (&record.state, &record.requested_at, &record.finished_at)
        {
            let how = if record.how == Some(crate::api::MoveKind::Cold) { "cold" } else { "live" };
            let length = ended.0.duration_since(asked.0).as_secs_f64();
            self.seconds.get_or_create(&How { how }).observe(length.max(0.0));
        }
    }

    /// How far a drain is; `None` if it is over.
    pub(super) fn progress(&self, name: &str, status: Option<&EvictionStatus>) {
        let mut drains = lock(&self.drains);
        match status {
            None => drop(drains.remove(name)),
            Some(status) => {
                let count = |test: fn(&InstanceState) -> bool| {
                    let found = status.instances().iter().filter(|record| test(&record.state)).count();
                    i64::try_from(found).unwrap_or(i64::MAX)
                };
                let progress = Progress {
                    outstanding: i64::try_from(status.outstanding_instances().len()).unwrap_or(i64::MAX),
                    memory_mb: status.outstanding_ram_mb.unwrap_or(0),
                    in_flight: count(InstanceState::is_in_flight),
                    blocked: count(|state| matches!(state, InstanceState::Blocked | InstanceState::Overdue)),
                };
                drains.insert(name.to_owned(), progress);
            }
        }
        let sum = |part: fn(&Progress) -> i64| drains.values().map(part).sum();
        self.running.set(i64::try_from(drains.len()).unwrap_or(i64::MAX));
        self.outstanding.set(sum(|drain| drain.outstanding));
        self.memory_mb.set(sum(|drain| drain.memory_mb));
        self.in_flight.set(sum(|drain| drain.in_flight));
        self.blocked.set(sum(|drain| drain.blocked));
    }
}
