//! The Lease of an agent: renewed at a steady pace, and at once when the health it carries turns.
//!
//! ```text
//!   own object is there? ──no──▶ wait for it
//!        │ yes
//!        ▼
//!   beat ◀── interval
//!        ◀── health turned
//!        ◀── what could not be written, after a pause
//! ```

use std::{fmt, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::part::Own;
use crate::runtime::{
    api_category,
    clock::Clock,
    metrics::{Metrics, Write},
    queue::Backoff,
    shutdown::{Chain, Shutdown},
};

/// How many intervals a Lease lasts: one lost beat, and one late one, are not a failure.
const INTERVALS: u32 = 4;

/// The longest time for one write. With a long interval one lost answer must not make a host look silent.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// The pauses before what could not be written is tried again, unless a beat is due earlier.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };

/// The longest reason that is carried along.
const REASON_LIMIT: usize = 256;

/// How long a Lease that is renewed this often lasts without a renewal.
pub(super) fn lease_duration(interval: Duration) -> Duration {
    interval * INTERVALS
}

/// What an agent says about what it looks after, besides that it lives itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sign {
    /// One word; a change of it is written at once.
    pub(super) state: &'static str,
    /// Why, if there is something to say.
    pub(super) why: Option<String>,
}

impl Sign {
    /// Nothing is known yet.
    pub(super) const UNKNOWN: Self = Self { state: "unknown", why: None };

    /// Notes what is said now and tells whether the Lease must say something else at once. One that stays bad for another
    /// reason is still bad: the next beat is soon enough for that.
    fn note(&mut self, now: Self) -> bool {
        let turned = now.state != self.state;
        *self = now;
        turned
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            None => f.write_str(self.state),
            Some(why) => {
                let short: String = why.chars().take(REASON_LIMIT).collect();
                write!(f, "{}: {short}", self.state)
            }
        }
    }
}

/// Finds out what to say where nobody tells. It brings its own limit of time.
pub(super) type Ask = Box<dyn Fn() -> BoxFuture<'static, Option<Sign>> + Send + Sync>;

/// Renews one Lease, which belongs to the agent's own object and goes with it.
pub(super) struct Beats<K> {
    pub(super) client: Client,
    pub(super) namespace: String,
    /// The Lease's name.
    pub(super) name: String,
    /// Whose sign of life it is.
    pub(super) holder: String,
    pub(super) interval: Duration,
    pub(super) manager: &'static str,
    /// The annotation that carries the sign.
    pub(super) annotation: &'static str,
    /// Asked before a beat for as long as nothing is known.
    pub(super) ask: Option<Ask>,
    pub(super) own: Own<K>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
}

impl<K: Resource<DynamicType = ()>> Beats<K> {
    fn body(&self, owner: &K, sign: &Sign) -> Value {
        let seconds = i32::try_from(lease_duration(self.interval).as_secs()).unwrap_or(i32::MAX).max(1);
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.name,
                "annotations": {self.annotation: sign.to_string()},
                "ownerReferences": [{
                    "apiVersion": K::api_version(&()),
                    "kind": K::kind(&()),
                    "name": owner.name_any(),
                    "uid": owner.uid(),
                }],
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": seconds,
                "renewTime": MicroTime(self.clock.now()),
            },
        })
    }

    /// Beats until `stop`.
    pub(super) async fn run(self, mut signs: BoxStream<'static, Sign>, stop: Shutdown) {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply(self.manager).force();
        let mut own = self.own.clone();
        let mut sign = Sign::UNKNOWN;
        let mut ended = false;
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failures: u32 = 0;
        let mut again = None;
        loop {
            let mut beat = tokio::select! {
                () = stop.triggered() => return,
                _ = ticks.tick() => true,
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => true,
                said = signs.next(), if !ended => {
                    ended = said.is_none();
                    said.is_some_and(|said| sign.note(said))
                }
            };
            while beat {
                let Some(owner) = self.own.get() else {
                    // Whose sign of life? Nobody's yet: wait until there is an object it belongs to.
                    tokio::select! {
                        () = stop.triggered() => return,
                        () = own.changed() => continue,
                        said = signs.next(), if !ended => {
                            ended = said.is_none();
                            said.map(|said| sign.note(said));
                            continue;
                        }
                    }
                };
                beat = false;
                if let Some(ask) = self.ask.as_ref().filter(|_| sign == Sign::UNKNOWN) {
                    tokio::select! {
                        () = stop.triggered() => return,
                        said = ask() => said.into_iter().for_each(|said| { sign.note(said); }),
                    }
                }
                let body = Patch::Apply(self.body(&owner, &sign));
                // Not longer than until the next one is due: beats never pile up.
                let limit = self.interval.min(WRITE_LIMIT);
                let answer = tokio::select! {
                    () = stop.triggered() => return,
                    answer = timeout(limit, api.patch(&self.name, &params, &body)) => answer,
                };
                let trouble = match answer {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some((api_category(&error), Chain(&error).to_string())),
                    Err(_) => Some(("timeout", format!("no answer within {limit:?}"))),
                };
                let failed = trouble.is_some();
                self.metrics.write("Lease", "main", if failed { Write::Failed } else { Write::Applied });
                match trouble {
                    Some((category, error)) if failures == 0 => {
                        tracing::warn!(lease = %self.name, category, error, "no sign of life could be given");
                    }
                    None if failures > 0 => tracing::info!(lease = %self.name, "signs of life again"),
                    _ => {}
                }
                failures = if failed { failures.saturating_add(1) } else { 0 };
                again = failed.then(|| Instant::now() + BACKOFF.after(failures));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(why: &str) -> Sign {
        Sign { state: "disconnected", why: Some(why.to_owned()) }
    }

    #[test]
    fn only_a_turn_of_the_health_is_written_at_once() {
        let mut sign = Sign::UNKNOWN;
        let good = Sign { state: "connected", why: None };
        assert!(sign.note(good.clone()));
        assert!(!sign.note(good));
        assert!(sign.note(bad("reset")));
        assert!(!sign.note(bad("refused")));
        assert_eq!(sign.to_string(), "disconnected: refused");
    }

    #[test]
    fn a_long_reason_is_cut() {
        let text = bad(&"ä".repeat(10_000)).to_string();
        assert_eq!(text.chars().count(), "disconnected: ".len() + REASON_LIMIT);
    }
}
