//! What the agent has heard and not yet published.

use tokio::time::Instant;

use super::counts::Counts;
use crate::{
    agent::{
        Report,
        collect::Dirty,
        incident::{Incidents, Limits, Told},
    },
    api::Condition,
    backend::BackendEvent,
};

/// As many incidents as wait to become Events; more than the API server would be sent anyway.
const WAITING: usize = 64;

pub(super) struct Heard {
    /// What must be asked again.
    pub(super) dirty: Dirty,
    incidents: Incidents,
    told: Vec<Told>,
    /// When the earliest event arrived whose outcome is not yet in the status.
    since: Option<Instant>,
    counts: Counts,
}

impl Heard {
    /// Nothing, so everything must be asked.
    pub(super) fn new(limits: Limits, counts: Counts) -> Self {
        Self { dirty: Dirty::all(), incidents: Incidents::new(limits), told: Vec::new(), since: None, counts }
    }

    /// An event of the hypervisor, which arrived at this moment at the earliest.
    pub(super) fn backend(&mut self, event: BackendEvent, at: Instant) {
        self.counts.event(&event);
        match &event {
            BackendEvent::Domain { id, name, event } => {
                self.since.get_or_insert(at);
                let told = self.incidents.observe(id, name, event, Instant::now());
                self.told.extend(told.filter(|_| self.told.len() < WAITING));
            }
            BackendEvent::Disconnected(_) => {
                self.since.get_or_insert(at);
            }
            BackendEvent::Connected | BackendEvent::Lagged(_) => {}
        }
        self.dirty.note(event);
    }

    /// The host has been asked.
    pub(super) fn collected(&mut self, report: &Report, now: Instant) {
        self.counts.report(report);
        if let Some(domains) = report.domains.known() {
            self.incidents.list(domains, now);
        }
    }

    /// What has been heard is in the status; `written` if that took a write.
    pub(super) fn published(&mut self, written: bool, now: Instant) {
        if let Some(since) = self.since.take().filter(|_| written) {
            self.counts.event_to_status(now.saturating_duration_since(since));
        }
    }

    /// When what is shown of incidents changes by time alone.
    pub(super) fn next(&self) -> Option<Instant> {
        self.incidents.next()
    }

    pub(super) fn grow_old(&mut self, now: Instant) {
        self.incidents.expire(now);
    }

    /// The incidents that became Events.
    pub(super) fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// How the VMs are, if that is known.
    pub(super) fn condition(&self, report: &Report) -> Option<Condition> {
        (report.domains.known().is_some() || !self.incidents.is_empty()).then(|| self.incidents.condition())
    }
}
