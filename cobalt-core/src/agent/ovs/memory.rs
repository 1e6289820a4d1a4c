//! What the agent has seen before.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{
    Config,
    finding::{Finding, IssueType, Patience, find},
};
use crate::{
    agent::Section,
    api::{Issue, OVSNodeStatus},
    ovs::OvsSnapshot,
};

/// What one snapshot cannot tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Cookies of flows that nothing in OVN explains, and how many flows each has.
    pub stale_flows: Section<BTreeMap<u64, u64>>,
    /// The agent is told not to read the southbound database: what takes it, nobody will ever know.
    pub without_southbound: bool,
    suspects: BTreeMap<(IssueType, String), Suspect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspect {
    since: Timestamp,
    counted: Timestamp,
    observations: u32,
    /// What OVN's controller has to reach until the lag that began then is over.
    goal: Option<u64>,
    /// Whether the goal before that was reached soon enough.
    kept_up: Option<bool>,
}

impl Memory {
    /// Of somebody who has seen nothing but stale flows.
    pub fn of_stale_flows(found: Section<BTreeMap<u64, u64>>) -> Self {
        Self { stale_flows: found, ..Self::default() }
    }

    /// Takes note of what is suspicious in a snapshot. However many snapshots are taken in a burst of changes, they are
    /// one observation; and one taken while the switch or its database does not answer is none, since it shows what was
    /// true before.
    pub fn observe(&mut self, seen: &OvsSnapshot, now: Timestamp, config: &Config) {
        let found = find(seen, self, config);
        self.suspects.retain(|(type_, object), _| found.iter().any(|f| f.type_ == *type_ && f.object == *object));
        let trustworthy = seen.database_connected && seen.switch.is_responsive();
        // In a cloud where something always changes the controller is behind at every look, and may be well: what counts
        // is how long it takes for what was wanted when it was first seen behind.
        let steps = seen.controller.as_ref().and_then(|controller| Some((controller.wanted?, controller.lag?)));
        for finding in found.into_iter().filter(|finding| finding.patience != Patience::None) {
            let known = self.suspects.get_mut(&(finding.type_, finding.object.clone()));
            match known {
                None if trustworthy || matches!(finding.patience, Patience::For(_)) => {
                    let goal = steps.map(|(wanted, _)| wanted).filter(|_| finding.type_ == IssueType::SouthboundLag);
                    let new = Suspect { since: now, counted: now, observations: 1, goal, kept_up: None };
                    self.suspects.insert((finding.type_, finding.object), new);
                }
                Some(known) if steps.is_some_and(|steps| known.is_reached(steps)) => {
                    known.kept_up = Some(elapsed(known.since, now) < config.settle);
                    (known.since, known.goal) = (now, steps.map(|(wanted, _)| wanted));
                }
                Some(known) if trustworthy && elapsed(known.counted, now) >= config.probe => {
                    known.observations = known.observations.saturating_add(1);
                    known.counted = now;
                }
                _ => {}
            }
        }
    }

    /// Whether a finding counts by now. One that was published counts: an agent that begins anew need not find out again.
    pub(super) fn confirms(&self, finding: &Finding, previous: &OVSNodeStatus, now: Timestamp) -> bool {
        let suspect = self.suspects.get(&(finding.type_, finding.object.clone()));
        let is_published = published(previous, finding.type_, &finding.object).is_some();
        match finding.patience {
            Patience::None => true,
            Patience::Observations(wanted) => {
                is_published || suspect.is_some_and(|suspect| suspect.observations >= wanted)
            }
            Patience::For(time) => {
                let lasts = suspect.is_some_and(|suspect| elapsed(suspect.since, now) >= time);
                // Who keeps up now is mended, although another step is wanted already.
                lasts || !suspect.and_then(|suspect| suspect.kept_up).unwrap_or(!is_published)
            }
        }
    }
}

impl Suspect {
    /// Whether the goal is reached so many steps behind what is wanted now, or no goal any more: a cloud that was set up
    /// again counts from zero.
    fn is_reached(&self, (wanted, lag): (u64, u64)) -> bool {
        self.goal.is_some_and(|goal| wanted.saturating_sub(lag) >= goal || wanted < goal)
    }
}

/// The issue as it was published.
pub(super) fn published<'a>(previous: &'a OVSNodeStatus, type_: IssueType, object: &str) -> Option<&'a Issue> {
    let issues = previous.issues.as_deref().unwrap_or_default();
    issues
        .iter()
        .find(|issue| issue.type_.as_deref() == Some(type_.as_str()) && issue.object.as_deref() == Some(object))
}

/// The time from one moment to another; none if the clock went back.
pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
