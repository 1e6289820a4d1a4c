//! The election as a pure function: `(state, input, now, config) → (state, action)`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tokio::time::Instant;

use super::LeaseConfig;

/// The record as last seen, and since when it has looked like this *to us*.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The Lease.
    pub lease: Lease,
    /// When this version of it was first seen, on our clock.
    pub since: Instant,
}

/// What an elector knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The record, if there is one (or was one: see [`State::missing`]).
    pub observed: Option<Observed>,
    /// The record has been deleted. Its holder may still work, so it counts until its time is up.
    pub missing: bool,
    /// When the last successful write was *sent*; present while we lead.
    pub leading_since_sent: Option<Instant>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// It is time to do something.
    Tick,
    /// The record was read.
    Read(Option<Lease>),
    /// Our write was accepted.
    Written {
        /// When it was sent.
        sent: Instant,
        /// What is stored now.
        lease: Lease,
    },
    /// Our write was refused because the record had changed.
    Conflict,
    /// A request failed, or its answer did not come: it may or may not have had its effect.
    Failed,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the record.
    Read,
    /// Create the record in our name.
    Create,
    /// Write ourselves into the observed version of the record.
    Update,
    /// Do nothing until then, then [`Input::Tick`].
    Wait(Instant),
    /// Stop working: the lease is no longer ours.
    Lost(String),
}

impl State {
    /// Until when we may work.
    pub fn valid_until(&self, config: &LeaseConfig) -> Option<Instant> {
        Some(self.leading_since_sent? + config.renew_deadline)
    }

    /// Who holds the lease as far as we have seen.
    pub fn holder(&self) -> Option<&str> {
        holder(&self.observed.as_ref()?.lease)
    }

    /// When the observed holder has been silent for too long.
    fn expires(&self, config: &LeaseConfig) -> Option<Instant> {
        let observed = self.observed.as_ref()?;
        holder(&observed.lease)?;
        let promised = observed.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = match promised {
            Some(seconds) if seconds > 0 => Duration::from_secs(u64::from(seconds.unsigned_abs())),
            _ => config.lease_duration,
        };
        Some(observed.since + duration)
    }
}

/// The holder of a Lease; a released one has none.
pub fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// The next step of the election.
pub fn decide(mut state: State, input: Input, now: Instant, config: &LeaseConfig) -> (State, Action) {
    let was_leading = state.leading_since_sent.is_some();
    let action = match input {
        Input::Tick if was_leading => Action::Update,
        Input::Tick => Action::Read,
        Input::Read(found) => {
            observe(&mut state, found, now);
            after_read(&state, now, config, was_leading)
        }
        Input::Written { sent, lease } => {
            observe(&mut state, Some(lease), now);
            // An answer that comes after the deadline gives nothing: the time counts from when we asked.
            if was_leading || now < sent + config.renew_deadline {
                state.leading_since_sent = Some(sent);
            }
            Action::Wait((sent + config.retry_period).max(now))
        }
        // Somebody wrote. If we lead it was most likely our own request that seemed lost; look at once.
        Input::Conflict if was_leading => Action::Read,
        Input::Conflict | Input::Failed => Action::Wait(now + config.retry_period),
    };
    match state.valid_until(config) {
        Some(until) if now >= until => {
            state.leading_since_sent = None;
            (state, Action::Lost(format!("not renewed within {:?}", config.renew_deadline)))
        }
        _ => {
            if matches!(action, Action::Lost(_)) {
                state.leading_since_sent = None;
            }
            (state, action)
        }
    }
}

fn observe(state: &mut State, found: Option<Lease>, now: Instant) {
    match found {
        Some(lease) => {
            let same = !state.missing
                && state
                    .observed
                    .as_ref()
                    .is_some_and(|seen| seen.lease.metadata.resource_version == lease.metadata.resource_version);
            if !same {
                state.observed = Some(Observed { lease, since: now });
            }
            state.missing = false;
        }
        None => state.missing = true,
    }
}

fn after_read(state: &State, now: Instant, config: &LeaseConfig, leading: bool) -> Action {
    let ours = state.holder() == Some(config.identity.as_str());
    if leading && !ours && !state.missing {
        return Action::Lost(format!("held by {}", state.holder().unwrap_or("nobody")));
    }
    let write = if state.missing { Action::Create } else { Action::Update };
    if leading || ours {
        return write;
    }
    match state.expires(config) {
        Some(at) if now < at => Action::Wait(at.min(now + config.retry_period)),
        _ => write,
    }
}

/// The Lease we want to store: the observed one with our name in it, or a new one.
pub fn claim(state: &State, now: Timestamp, config: &LeaseConfig) -> Lease {
    let observed = state.observed.as_ref().filter(|_| !state.missing).map(|observed| &observed.lease);
    let renewing = observed.is_some_and(|lease| holder(lease) == Some(config.identity.as_str()));
    let old = observed.and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let transitions = old.lease_transitions.unwrap_or(0);
    let spec = LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: Some(whole_seconds(config.lease_duration)),
        acquire_time: if renewing { old.acquire_time.clone() } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if renewing || observed.is_none() { transitions } else { transitions + 1 }),
        ..old
    };
    let metadata = observed.map_or_else(
        || ObjectMeta {
            name: Some(config.name.clone()),
            namespace: Some(config.namespace.clone()),
            ..Default::default()
        },
        |lease| lease.metadata.clone(),
    );
    Lease { metadata, spec: Some(spec) }
}

/// Rounded up: the record must never promise less time than we take.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// The Lease that sets the others free, if it is ours to free.
pub fn release(state: &State, now: Timestamp, config: &LeaseConfig) -> Option<Lease> {
    if state.missing || state.holder() != Some(config.identity.as_str()) {
        return None;
    }
    let mut lease = state.observed.as_ref()?.lease.clone();
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    // As client-go does: whoever ignores an empty holder waits for a second only.
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(MicroTime(now));
    Some(lease)
}

#[cfg(test)]
mod tests;
