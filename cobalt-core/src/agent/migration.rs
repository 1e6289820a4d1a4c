//! Migrations of the host's instances as objects: who goes where, how far it is, and what came of it.
//!
//! Two agents write one Migration, which has the instance's UUID as its name: the origin tells when it began, how far
//! it is and how it ended; the destination tells that it is the destination, since when, and when the instance ran
//! there. Each applies under a field manager of its own, so that neither takes back what the other said. A later
//! migration of the same instance takes the object over; a finished one is deleted after a while by the side that
//! wrote its end.
//!
//! What happens is followed by events ([`track`]). While a migration runs its job is asked for once per second, because
//! libvirt tells of iterations only.

mod figures;
mod track;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use self::track::{Phase, Polled, Side, Tracker, Update};
use super::part::{Context, Part};
use crate::{
    api::{Migration, MigrationStatus},
    backend::{BackendEvent, JobOutcome},
    ids::InstanceId,
    runtime::{
        api_category, api_transient,
        args::duration,
        events::Event,
        metrics::{Metrics, Write},
        queue::Backoff,
        shutdown::{Chain, Shutdown, TaskError},
    },
};

const HEADING: &str = "Migrations";

/// What is kept of finished migrations whose end could not be written yet.
const PENDING_LIMIT: usize = 256;

/// Where Migrations are written, and for how long they stay.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct MigrationArgs {
    /// Namespace of the Migrations [default: the namespace of the pod or context]
    #[arg(long, env = "NAMESPACE", value_name = "NAMESPACE", help_heading = HEADING)]
    pub migration_namespace: Option<String>,

    /// Name of this host as origin and destination of Migrations [default: the Node's name]
    #[arg(long, env = "NODE_LABEL", value_name = "NAME", help_heading = HEADING)]
    pub node_label: Option<String>,

    /// How long a finished Migration is kept
    #[arg(long, default_value = "24h", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub migration_ttl: Duration,

    /// Do not write Migrations
    #[arg(long, help_heading = HEADING)]
    pub no_migrations: bool,
}

impl MigrationArgs {
    /// The part they describe.
    pub fn part(&self, node_name: &str, own_namespace: &str) -> Option<Migrations> {
        let namespace = self.migration_namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(own_namespace);
        let label = self.node_label.as_deref().filter(|label| !label.is_empty()).unwrap_or(node_name);
        (!self.no_migrations).then(|| Migrations::new(namespace, label).ttl(self.migration_ttl))
    }
}

/// Follows the migrations of one host.
#[derive(Clone, Debug)]
pub struct Migrations {
    namespace: String,
    label: String,
    ttl: Duration,
    poll: Duration,
    limit: usize,
}

impl Migrations {
    /// Objects in this namespace, in which the host is called so.
    pub fn new(namespace: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            label: label.into(),
            ttl: Duration::from_secs(24 * 3600),
            poll: Duration::from_secs(1),
            limit: 64,
        }
    }

    /// Keeps finished ones for this long.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Asks a running job for its figures this often.
    #[must_use]
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Follows at most so many at once; more are not told of.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

#[async_trait]
impl Part for Migrations {
    fn name(&self) -> &'static str {
        "migrations"
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        let mut follower = Follower::new(*self, context);
        follower.run(&stop).await;
        Ok(())
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    side: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    running: Gauge,
    ended: Family<OutcomeLabel, Counter>,
}

impl Counts {
    fn registered(metrics: &Metrics) -> Self {
        let counts = Self::default();
        metrics.register(|registry| {
            registry.register("agent_migrations_running", "Migrations under way on this host", counts.running.clone());
            registry.register("agent_migrations", "Migrations that ended, by outcome", counts.ended.clone());
        });
        counts
    }
}

struct Follower {
    config: Migrations,
    context: Context,
    api: Api<Migration>,
    tracker: Tracker,
    /// What is to be written; the newest of each side.
    pending: BTreeMap<(InstanceId, Side), Update>,
    failures: u32,
    retry_at: Option<Instant>,
    /// When finished ones are to be deleted.
    expiries: BTreeMap<InstanceId, Instant>,
    /// Those of an earlier run were looked after.
    recovered: bool,
    counts: Counts,
}

impl Follower {
    fn new(config: Migrations, context: Context) -> Self {
        Self {
            api: Api::namespaced(context.client.clone(), &config.namespace),
            tracker: Tracker::new(&config.label, config.limit),
            pending: BTreeMap::new(),
            failures: 0,
            retry_at: None,
            expiries: BTreeMap::new(),
            recovered: false,
            counts: Counts::registered(&context.metrics),
            config,
            context,
        }
    }

    fn now(&self) -> Timestamp {
        self.context.clock.now()
    }

    async fn run(&mut self, stop: &Shutdown) {
        let mut events = self.context.backend.events();
        let mut events_ended = false;
        let mut ticks = interval(self.config.poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let expiry = self.expiries.values().min().copied();
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                () = stop.triggered() => return,
                event = events.next(), if !events_ended => match event {
                    Some(event) => self.event(event).await,
                    None => events_ended = true,
                },
                _ = ticks.tick(), if !self.tracker.polled().is_empty() => self.poll().await,
                () = sleep_until(self.retry_at.unwrap_or(far)), if self.retry_at.is_some() => {}
                () = sleep_until(expiry.unwrap_or(far)), if expiry.is_some() => self.expire().await,
            }
            if self.retry_at.is_none_or(|at| at <= Instant::now()) {
                self.write().await;
            }
            self.counts.running.set(i64::try_from(self.tracker.len()).unwrap_or(i64::MAX));
        }
    }

    async fn event(&mut self, event: BackendEvent) {
        match event {
            BackendEvent::Domain { id, name, event } => {
                let update = self.tracker.event(&id, &name, &event, self.now());
                self.take(update);
            }
            // What happened meanwhile is not known: look.
            BackendEvent::Connected | BackendEvent::Lagged(_) => self.look().await,
            BackendEvent::Disconnected(_) => {}
        }
    }

    async fn poll(&mut self) {
        for id in self.tracker.polled() {
            let answer = match timeout(self.context.call_timeout, self.context.backend.job(&id)).await {
                Ok(Ok(Some(job))) => Polled::Job(Box::new(job)),
                Ok(Ok(None)) => Polled::None,
                Ok(Err(error)) if error.is_not_found() => Polled::Gone,
                // Not an answer: the next one may be.
                Ok(Err(_)) | Err(_) => continue,
            };
            let update = self.tracker.answered(&id, answer, self.now());
            self.take(update);
        }
    }

    /// Finds the migrations that run already, and ends those that an earlier run of the agent left unfinished.
    async fn look(&mut self) {
        let context = self.context.clone();
        if !context.backend.features().jobs {
            return;
        }
        let limit = context.call_timeout;
        let Ok(Ok(domains)) = timeout(limit, context.backend.inventory()).await else { return };
        for domain in domains.iter().filter(|domain| domain.state.is_active()) {
            match timeout(limit, context.backend.job(&domain.id)).await {
                Ok(Ok(Some(job))) => {
                    let update = self.tracker.found(&domain.id, &domain.name, &job, self.now());
                    self.take(update);
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) if !error.is_transient() => {} // a target of a migration may not be asked
                // The daemon is gone again; the next connection brings us back here.
                Ok(Err(_)) | Err(_) => return,
            }
        }
        if !self.recovered {
            self.recovered = self.recover(&domains).await;
        }
    }

    async fn recover(&mut self, domains: &[crate::backend::Domain]) -> bool {
        let objects = match self.api.list(&ListParams::default()).await {
            Ok(objects) => objects,
            Err(error) => {
                tracing::warn!(category = api_category(&error), error = %Chain(&error), "cannot list Migrations");
                // Without the kind there is nothing to recover, ever; anything else may pass.
                return !api_transient(&error);
            }
        };
        let tracked = self.tracker.polled();
        for object in objects {
            let id = InstanceId::from(object.name_any());
            let Some(status) = &object.status else { continue };
            if status.origin.as_deref() != Some(&self.config.label) || tracked.contains(&id) {
                continue;
            }
            if let Some(ended) = &status.ended {
                self.expire_at(&id, ended.0);
                continue;
            }
            let here = domains.iter().find(|domain| domain.id == id && domain.state.is_active());
            let name = here.map_or_else(String::new, |domain| domain.name.clone());
            let status = track::forgotten(status, here.is_some(), self.now());
            let outcome = match status.type_.as_deref() {
                Some("completed") => JobOutcome::Completed,
                _ => JobOutcome::Failed,
            };
            self.take(Some(Update { id, name, side: Side::Origin, phase: Phase::Ended(outcome), status }));
        }
        true
    }

    fn take(&mut self, update: Option<Update>) {
        let Some(update) = update else { return };
        self.tell(&update);
        let key = (update.id.clone(), update.side);
        // What began is not forgotten because there is news of it already.
        let began = self.pending.get(&key).is_some_and(|before| before.phase == Phase::Began);
        let phase = if began && update.phase == Phase::Running { Phase::Began } else { update.phase };
        if self.pending.len() < PENDING_LIMIT || self.pending.contains_key(&key) {
            self.pending.insert(key, Update { phase, ..update });
        } else {
            tracing::warn!(instance = %update.id, "too many Migrations wait to be written, this one is not");
        }
    }

    /// Counts it, and tells people.
    fn tell(&self, update: &Update) {
        let side = match update.side {
            Side::Origin => "origin",
            Side::Destination => "destination",
        };
        if let Phase::Ended(outcome) = update.phase {
            let outcome = figures::outcome(outcome);
            self.counts.ended.get_or_create(&OutcomeLabel { side, outcome }).inc();
        }
        let Some(own) = self.context.own.get() else { return };
        let whose = if update.name.is_empty() {
            format!("instance {}", update.id)
        } else {
            format!("instance {} ({})", update.id, update.name)
        };
        let event = match (update.side, update.phase) {
            (Side::Origin, Phase::Began) => {
                Event::normal(own.as_ref(), "Migrate", "MigrationStarted", format!("{whose} is leaving by migration"))
            }
            (Side::Origin, Phase::Ended(JobOutcome::Completed)) => {
                Event::normal(own.as_ref(), "Migrate", "MigrationCompleted", format!("{whose} has left by migration"))
            }
            (Side::Origin, Phase::Ended(_)) => {
                let why = update.status.err_msg.as_deref().unwrap_or("no reason was given");
                Event::warning(
                    own.as_ref(),
                    "Migrate",
                    "MigrationFailed",
                    format!("{whose} has not left by migration: {why}"),
                )
            }
            (Side::Destination, Phase::Ended(_)) => {
                Event::normal(own.as_ref(), "Migrate", "MigrationArrived", format!("{whose} has come by migration"))
            }
            _ => return,
        };
        self.context.recorder.publish(event);
    }

    /// Writes everything that waits; what fails waits longer.
    async fn write(&mut self) {
        let keys: Vec<_> = self.pending.keys().cloned().collect();
        self.retry_at = None;
        for key in keys {
            let Some(update) = self.pending.get(&key).cloned() else { continue };
            match self.publish(&update).await {
                Ok(()) => {
                    self.failures = 0;
                    self.pending.remove(&key);
                    if let (Side::Origin, Some(ended)) = (update.side, &update.status.ended) {
                        self.expire_at(&update.id, ended.0);
                    }
                }
                Err(error) if matches!(error, kube::Error::Api(ref status) if matches!(status.code, 400 | 422)) => {
                    // The same again would be refused again.
                    tracing::warn!(migration = %update.id, error = %Chain(&error), "a Migration was refused");
                    self.pending.remove(&key);
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };
                    let pause = backoff.after(self.failures);
                    let category = api_category(&error);
                    tracing::warn!(category, retry_in = ?pause, error = %Chain(&error), "cannot write a Migration");
                    self.retry_at = Some(Instant::now() + pause);
                    return;
                }
            }
        }
    }

    async fn publish(&self, update: &Update) -> Result<(), kube::Error> {
        let name = update.id.to_string();
        if update.phase == Phase::Began && update.side == Side::Origin {
            self.clear_stale(&name).await?;
        }
        let applied = match self.apply(update).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // The first word about it, by whichever side is first.
                let object = json!({
                    "apiVersion": "kvm.cloud.sap/v1alpha1",
                    "kind": "Migration",
                    "metadata": {"name": name},
                    "spec": {},
                });
                let params = PatchParams::apply(manager(update.side)).force();
                self.api.patch(&name, &params, &Patch::Apply(object)).await?;
                self.apply(update).await
            }
            answer => answer,
        };
        let written = if applied.is_ok() { Write::Applied } else { Write::Failed };
        self.context.metrics.write("Migration", "status", written);
        applied
    }

    /// Removes the destination of an earlier migration.
    async fn clear_stale(&self, name: &str) -> Result<(), kube::Error> {
        let params = PatchParams { field_manager: Some(manager(Side::Origin).into()), ..Default::default() };
        while let Some(earlier) = self.api.get_opt(name).await? {
            if !earlier.status.as_ref().is_some_and(|status| track::is_stale(status, &self.config.label)) {
                break;
            }
            let clear = json!({
                "metadata": {"resourceVersion": earlier.resource_version()},
                "status": {"destination": null, "receivingSince": null, "arrived": null},
            });
            match self.api.patch_status(name, &params, &Patch::Merge(clear)).await {
                // Somebody wrote since we looked. It may be the new destination, which must stay.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => return answer.map(drop),
            }
        }
        Ok(())
    }

    async fn apply(&self, update: &Update) -> Result<(), kube::Error> {
        let name = update.id.to_string();
        let body = json!({
            "apiVersion": "kvm.cloud.sap/v1alpha1",
            "kind": "Migration",
            "metadata": {"name": name},
            "status": update.status,
        });
        let params = PatchParams::apply(manager(update.side)).force();
        self.api.patch_status(&name, &params, &Patch::Apply(body)).await.map(drop)
    }

    fn expire_at(&mut self, id: &InstanceId, ended: Timestamp) {
        let age = Duration::try_from(self.now().duration_since(ended)).unwrap_or_default();
        self.expiries.insert(id.clone(), Instant::now() + self.config.ttl.saturating_sub(age));
    }

    /// Deletes what has been over for long enough, unless it is about something newer by now.
    async fn expire(&mut self) {
        let now = Instant::now();
        let due: Vec<InstanceId> =
            self.expiries.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.expiries.remove(&id);
            if let Err(error) = self.delete(&id).await {
                tracing::warn!(migration = %id, error = %Chain(&error), "cannot delete an old Migration");
                self.expiries.insert(id, now + Duration::from_secs(60));
            }
        }
    }

    async fn delete(&mut self, id: &InstanceId) -> Result<(), kube::Error> {
        let name = id.to_string();
        let Some(object) = self.api.get_opt(&name).await? else { return Ok(()) };
        let status: Option<&MigrationStatus> = object.status.as_ref();
        let mine = status.is_some_and(|status| status.origin.as_deref() == Some(&self.config.label));
        let Some(ended) = status.and_then(|status| status.ended.as_ref()).filter(|_| mine) else { return Ok(()) };
        if Duration::try_from(self.now().duration_since(ended.0)).unwrap_or_default() < self.config.ttl {
            self.expire_at(id, ended.0); // it migrated again
            return Ok(());
        }
        let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api.delete(&name, &params).await {
            // Gone, or changed since we looked: whoever changed it is its owner now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// The field manager of one side.
fn manager(side: Side) -> &'static str {
    match side {
        Side::Origin => "cobalt-node-agent-origin",
        Side::Destination => "cobalt-node-agent-destination",
    }
}
