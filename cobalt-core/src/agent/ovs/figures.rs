//! Which moves of a counter are worth a write.
//!
//! Packets and flows are counted all the time, and an OVSNode is not a place to count: every write of it goes through
//! etcd and to everybody who watches. So figures are written *with* something else, and only rarely on their own:
//!
//! - packets and bytes never; Prometheus has them as they are;
//! - the number of flows, once it has moved by a good part ([`Limits::flows_percent`], [`Limits::flows_least`]);
//! - drops and errors, once there are many more of them ([`Limits::drops`]);
//! - and none of them more often than [`Limits::pause`].
//!
//! Whether there is a figure at all is no figure: a bridge that stops answering is told at once.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::memory::elapsed;
use crate::api::OVSNodeStatus;

/// How far a figure may move unwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The shortest time between two writes of figures alone.
    pub pause: Duration,
    /// By how much of itself the number of flows must have moved, in percent.
    pub flows_percent: u32,
    /// And by how many flows.
    pub flows_least: u32,
    /// How many more packets must have been dropped or broken.
    pub drops: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pause: Duration::from_secs(600), flows_percent: 10, flows_least: 100, drops: 1000 }
    }
}

/// What to publish of a status: itself if anything else than figures is new or they have moved far, or else what is
/// published already.
pub fn hold(
    mut wanted: OVSNodeStatus,
    published: Option<&OVSNodeStatus>,
    now: Timestamp,
    limits: &Limits,
) -> OVSNodeStatus {
    if let Some(published) = published {
        let held = with_figures_of(wanted.clone(), published);
        if held == *published && !have_moved(&wanted, published, now, limits) {
            return held;
        }
    }
    if let Some(metrics) = &mut wanted.metrics {
        metrics.observed_at = Some(Time(now));
    }
    wanted
}

/// The same status with the figures of another, where both have them.
fn with_figures_of(mut status: OVSNodeStatus, other: &OVSNodeStatus) -> OVSNodeStatus {
    for bridge in status.bridges.iter_mut().flatten() {
        let known = other.bridges.iter().flatten().find(|known| known.name == bridge.name);
        if let Some(flows) = known.and_then(|known| known.flows).filter(|_| bridge.flows.is_some()) {
            bridge.flows = Some(flows);
        }
    }
    if status.flow_stats.is_some() && other.flow_stats.is_some() {
        status.flow_stats.clone_from(&other.flow_stats);
    }
    if status.metrics.is_some() && other.metrics.is_some() {
        status.metrics.clone_from(&other.metrics);
    }
    status
}

fn have_moved(wanted: &OVSNodeStatus, published: &OVSNodeStatus, now: Timestamp, limits: &Limits) -> bool {
    let counted = published.metrics.as_ref().and_then(|metrics| metrics.observed_at.as_ref());
    if counted.is_some_and(|at| elapsed(at.0, now) < limits.pause) {
        return false;
    }
    let flows = |status: &OVSNodeStatus| status.flow_stats.as_ref().and_then(|stats| stats.total_flows).unwrap_or(0);
    let (before, after) = (flows(published), flows(wanted));
    let moved = before.abs_diff(after);
    let part = u64::from(before.unsigned_abs()) * u64::from(limits.flows_percent) / 100;
    let lost = |status: &OVSNodeStatus| {
        let metrics = status.metrics.clone().unwrap_or_default();
        metrics.drops.unwrap_or(0).saturating_add(metrics.errors.unwrap_or(0))
    };
    (moved >= limits.flows_least.max(1) && u64::from(moved) >= part)
        || lost(wanted).saturating_sub(lost(published)) >= i64::from(limits.drops.max(1))
}
