//! Whether agents live, by the Leases they renew.
//!
//! ```text
//!   no Lease ─────────▶ Unknown      an agent that gives no signs of life is not a dead one
//!        │ appears
//!        ▼
//!   NotYet ── renewed ──▶ Alive ◀──┐
//!        │                  │      │ renewed
//!        └── not renewed ───┴──▶ Silent
//!            for as long as it lasts
//! ```
//!
//! How long a Lease was not renewed is measured *by our own clock*: the agent's may be wrong. While our own watch is
//! broken nobody is silent: it is we who cannot hear.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, runtime::watcher};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::AgentSeen;
use crate::runtime::{
    clock::Clock,
    lock,
    metrics::Metrics,
    queue::Queue,
    shutdown::Shutdown,
    state::Status,
    watch::{Store, Touch, Watch, WatchEnded, watched_store},
};

/// How often to look for those that have fallen silent.
const SWEEP: Duration = Duration::from_secs(5);
/// How long a Lease lasts that does not say so.
const USUAL: Duration = Duration::from_secs(40);

/// Which Leases are those of agents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    /// How the watch is called.
    pub(super) watch: &'static str,
    /// What the Leases are called, before the name of the host.
    pub(super) prefix: &'static str,
}

/// The node agents.
pub(super) const NODE_AGENTS: Of = Of { watch: "node agent Lease", prefix: "cobalt-node-agent-" };
/// The OVS agents.
pub(super) const OVS_AGENTS: Of = Of { watch: "Lease", prefix: "cobalt-ovs-agent-" };

#[derive(Clone, Copy, Debug)]
struct Life {
    renewed: Instant,
    lasts: Duration,
    /// Whether it was renewed in our sight, and is not merely there.
    proven: bool,
    /// Whether those concerned know that it lives.
    told: bool,
}

impl Life {
    fn is_fresh(&self, now: Instant, deaf: Option<Instant>) -> bool {
        now < deaf.map_or(self.renewed, |deaf| deaf.max(self.renewed)) + self.lasts
    }
}

/// What is known about the agents of all hosts. Cloned freely; all clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Lives {
    leases: Store<Lease>,
    known: Arc<Mutex<HashMap<String, Life>>>,
}

/// Keeps [`Lives`] current.
#[derive(Debug)]
pub(super) struct FollowLives {
    lives: Lives,
    queue: Queue<String>,
    watch: Watch<Lease>,
}

/// The lives of these agents, whose Leases are in this namespace. Hosts whose agent has turned are put into the queue.
pub(super) fn follow(
    of: Of,
    client: &Client,
    namespace: &str,
    queue: &Queue<String>,
    clock: &Clock,
    metrics: &Arc<Metrics>,
    status: &Status,
) -> (Lives, FollowLives) {
    let known: Arc<Mutex<HashMap<String, Life>>> = Arc::default();
    let (noted, wake) = (known.clone(), queue.clone());
    let (leases, watch) = watched_store::<Lease>(
        of.watch,
        Api::namespaced(client.clone(), namespace),
        watcher::Config::default(),
        metrics.clone(),
    )
    .clock(clock.clone())
    .optional()
    .modify(|lease| lease.metadata.managed_fields = None)
    .on_touch(move |touch| {
        let Some(host) = touch.key.name.strip_prefix(of.prefix) else { return };
        if note(&mut lock(&noted), host, touch, Instant::now()) {
            wake.add(host.to_owned());
        }
    })
    .build(status);
    let lives = Lives { leases, known };
    (lives.clone(), FollowLives { lives, queue: queue.clone(), watch })
}

/// Notes a change of a Lease and tells whether the host's agent has turned by it.
fn note(known: &mut HashMap<String, Life>, host: &str, touch: &Touch<Lease>, now: Instant) -> bool {
    let renewal = |lease: &Option<Arc<Lease>>| lease.as_ref()?.spec.as_ref()?.renew_time.clone();
    let Some(lease) = &touch.after else { return known.remove(host).is_some() };
    if touch.before.is_some() && renewal(&touch.before) == renewal(&touch.after) {
        return false;
    }
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let lasts = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(USUAL, Duration::from_secs);
    let life = Life { renewed: now, lasts, proven: touch.before.is_some(), told: true };
    let before = known.insert(host.to_owned(), life);
    before.is_none_or(|before| !before.told || before.proven != life.proven)
}

impl Lives {
    /// Whether the first listing is complete.
    pub(super) fn is_synced(&self) -> bool {
        self.leases.is_synced()
    }

    /// Waits for the first listing.
    pub(super) async fn ready(&self) -> bool {
        self.leases.ready().await
    }

    /// Whether the agent of a host lives.
    pub(super) fn of(&self, host: &str) -> AgentSeen {
        if !self.is_synced() {
            return AgentSeen::NotYet;
        }
        let deaf = self.leases.deaf_until();
        match lock(&self.known).get(host) {
            None => AgentSeen::Unknown,
            // Who was found silent stays so until heard, whatever becomes of our watch meanwhile.
            Some(life) if !life.told || !life.is_fresh(Instant::now(), deaf) => AgentSeen::Silent,
            Some(life) if life.proven => AgentSeen::Alive,
            Some(_) => AgentSeen::NotYet,
        }
    }

    /// Those that have fallen silent since the last sweep.
    fn silent(&self, now: Instant) -> Vec<String> {
        let deaf = self.leases.deaf_until();
        let mut known = lock(&self.known);
        let silent = known.iter_mut().filter(|(_, life)| life.told && !life.is_fresh(now, deaf));
        silent
            .map(|(host, life)| {
                life.told = false;
                host.clone()
            })
            .collect()
    }
}

impl FollowLives {
    /// Follows until `stop`.
    pub(super) async fn run(self, stop: Shutdown) -> Result<(), WatchEnded> {
        let Self { lives, queue, watch } = self;
        let sweeping = async {
            let mut ticks = interval(SWEEP);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for host in lives.silent(Instant::now()) {
                    queue.add(host);
                }
            }
        };
        tokio::select! {
            ended = watch.run(stop) => ended,
            () = sweeping => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

    use super::*;
    use crate::runtime::watch::ObjectKey;

    #[expect(clippy::unnecessary_wraps, reason = "as a touch has it")]
    fn lease(second: i64) -> Option<Arc<Lease>> {
        let renew_time = jiff::Timestamp::from_second(second).ok().map(MicroTime);
        let spec = LeaseSpec { renew_time, lease_duration_seconds: Some(40), ..LeaseSpec::default() };
        Some(Arc::new(Lease { spec: Some(spec), ..Lease::default() }))
    }

    #[test]
    fn hosts_are_named_when_their_agent_turns_and_not_at_every_renewal() {
        let mut known = HashMap::new();
        let now = Instant::now();
        let mut turned = |before, after| {
            let touch = Touch { key: ObjectKey::cluster("cobalt-node-agent-a"), before, after };
            note(&mut known, "a", &touch, now)
        };
        assert!(turned(None, lease(1)), "first seen");
        assert!(turned(lease(1), lease(2)), "the first renewal proves that it lives");
        assert!(!turned(lease(2), lease(3)));
        assert!(!turned(lease(3), lease(3)), "something else of it has changed");
        assert!(turned(lease(3), None), "gone");
        assert!(!turned(None, None));
    }

    #[test]
    fn nobody_is_silent_while_we_cannot_hear() {
        let start = Instant::now();
        let life = Life { renewed: start, lasts: USUAL, proven: true, told: true };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(life.is_fresh(at(39), None) && !life.is_fresh(at(40), None));
        assert!(life.is_fresh(at(60), Some(at(30))), "our watch was broken until then");
        assert!(!life.is_fresh(at(70), Some(at(30))));
    }
}
