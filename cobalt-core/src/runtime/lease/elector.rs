//! The election carried out: requests, time and the leader's work.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    LeaseConfig, LeaseError, LeaseStore, StoreError,
    core::{self, Action, Input, State},
};
use crate::runtime::{
    clock::Clock,
    lock,
    metrics::Metrics,
    shutdown::{Chain, Shutdown, TaskError},
    state::{LeaseReport, Status},
};

/// The right to work, as long as it lasts.
#[derive(Clone, Debug)]
pub struct Leadership {
    stopping: Shutdown,
    valid_until: Arc<Mutex<Instant>>,
}

impl Leadership {
    /// Triggered when the work must end: the lease is lost, or the program ends.
    pub fn stopping(&self) -> Shutdown {
        self.stopping.clone()
    }

    /// Whether we lead at this very moment. To be asked right before an act that must not happen twice: it is right even
    /// when the process was frozen and the renewals have not noticed yet.
    pub fn is_current(&self) -> bool {
        !self.stopping.is_triggered() && Instant::now() < *lock(&self.valid_until)
    }
}

/// Competes for a Lease, and runs the work while holding it.
///
/// ```no_run
/// use cobalt_core::runtime::{
///     clock::Clock, lease::{KubeLeases, LeaseConfig, LeaseElector, Leadership}, metrics::Metrics,
///     shutdown::{Lifecycle, Phase, Shutdown}, state::Status,
/// };
/// use std::{convert::Infallible, sync::Arc};
///
/// async fn controllers(stop: Shutdown, leadership: Leadership) -> Result<(), Infallible> {
///     stop.triggered().await;
///     Ok(())
/// }
///
/// # fn example(life: &Lifecycle, client: kube::Client, config: LeaseConfig, metrics: Arc<Metrics>, status: &Status) {
/// let store = KubeLeases::new(client, &config.namespace, &config.name, "cobalt-operator");
/// let elector = LeaseElector::new(config, Arc::new(store), Clock::system(), metrics);
/// elector.show(status);
///
/// // The controllers end in the phase "work"; the lease is released in its own phase, after the Events are out.
/// let group = life.phase(Phase::Work).clone();
/// let work = move |leadership: Leadership| {
///     let stop = group.stopping().or(&leadership.stopping());
///     group.track(controllers(stop, leadership))
/// };
/// let stop = life.phase(Phase::Lease).stopping();
/// life.phase(Phase::Lease).spawn("leader election", elector.run(stop, work));
/// # }
/// ```
pub struct LeaseElector {
    config: LeaseConfig,
    store: Arc<dyn LeaseStore>,
    clock: Clock,
    metrics: Arc<Metrics>,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for LeaseElector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseElector").field("config", &self.config).finish_non_exhaustive()
    }
}

impl LeaseElector {
    /// An elector that has not looked yet.
    pub fn new(config: LeaseConfig, store: Arc<dyn LeaseStore>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        metrics.leader(&config.name, false);
        Self { config, store, clock, metrics, state: Arc::default() }
    }

    /// Shows the lease on `/debug/state`.
    pub fn show(&self, status: &Status) {
        let (config, state) = (self.config.clone(), self.state.clone());
        status.lease(move || report(&config, &lock(&state)));
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.config.namespace, self.config.name)
    }

    /// Waits for the lease, runs `work` under it, and gives it back.
    ///
    /// - `stop` before the lease is ours: returns.
    /// - `stop` while leading: [`Leadership::stopping`] is triggered, renewals go on until the work has ended, then the
    ///   lease is released.
    /// - The work ends by itself without an error: the lease is kept until `stop`, then released.
    /// - The work fails: the lease is released, the error returned.
    /// - The lease is lost: `Leadership::stopping` is triggered; work that has not ended shortly before the others may
    ///   take over is aborted.
    pub async fn run<W, F, E>(self, stop: Shutdown, work: W) -> Result<(), LeaseError>
    where
        W: FnOnce(Leadership) -> F,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<TaskError>,
    {
        let Some(valid_until) = self.campaign(&stop).await else { return Ok(()) };
        tracing::info!(lease = %self.lease(), identity = %self.config.identity, "leading");
        let leadership = Leadership { stopping: Shutdown::new(), valid_until: Arc::new(Mutex::new(valid_until)) };
        let future = work(leadership.clone());
        // A task of its own: work that computes for a while must not hold up the renewals.
        let mut running = AbortOnDrop(tokio::spawn(async move { future.await.map_err(Into::into) }));

        let mut ended = None;
        let lost = {
            let mut keep = std::pin::pin!(self.keep(&leadership));
            loop {
                tokio::select! {
                    biased;
                    reason = &mut keep => break Some(reason),
                    () = stop.triggered(), if !leadership.stopping.is_triggered() => leadership.stopping.trigger(),
                    result = &mut running.0, if ended.is_none() => ended = Some(flatten(result)),
                }
                match &ended {
                    Some(Err(_)) => break None,
                    Some(Ok(())) if stop.is_triggered() => break None,
                    _ => {}
                }
            }
        };
        leadership.stopping.trigger();
        self.metrics.leader(&self.config.name, false);
        if let Some(reason) = lost {
            self.end_work(&leadership, running, ended.is_some()).await;
            return Err(LeaseError::Lost { lease: self.lease(), reason });
        }
        self.release().await;
        match ended {
            Some(Err(cause)) => Err(LeaseError::Work { lease: self.lease(), cause }),
            _ => Ok(()),
        }
    }

    /// Gives the work of a lost lease the time until shortly before somebody else can hold it, then aborts it.
    async fn end_work(&self, leadership: &Leadership, mut running: AbortOnDrop, ended: bool) {
        if ended {
            return;
        }
        let between = self.config.lease_duration.saturating_sub(self.config.renew_deadline);
        let last = *lock(&leadership.valid_until) + between.mul_f64(0.8);
        if tokio::time::timeout_at(last, &mut running.0).await.is_err() {
            tracing::warn!(lease = %self.lease(), "work did not end in time after the lease was lost, aborting it");
        }
    }

    /// Until we lead (then: until when), or `stop`.
    async fn campaign(&self, stop: &Shutdown) -> Option<Instant> {
        let mut input = Input::Tick;
        loop {
            let action = self.decide(input);
            // A claim whose answer we do not wait for would keep the lease for nobody; so `stop` is looked at between
            // the steps and while waiting, not in the middle of a request (which is limited in time).
            if stop.is_triggered() {
                self.release().await;
                return None;
            }
            if let Some(until) = lock(&self.state).valid_until(&self.config) {
                self.metrics.leader(&self.config.name, true);
                return Some(until);
            }
            input = match action {
                Action::Wait(until) => tokio::select! {
                    () = stop.triggered() => Input::Tick,
                    () = tokio::time::sleep_until(until) => Input::Tick,
                },
                Action::Lost(_) => Input::Tick,
                other => self.carry_out(&other, self.config.renew_deadline).await,
            };
        }
    }

    /// Renews until the lease is lost; returns why.
    async fn keep(&self, leadership: &Leadership) -> String {
        let mut input = None;
        loop {
            let now = Instant::now();
            let (action, until) = match input.take() {
                Some(input) => {
                    let action = self.decide(input);
                    (action, lock(&self.state).valid_until(&self.config))
                }
                // Freshly elected: the claim counts as the first renewal.
                None => (Action::Wait(now + self.config.retry_period), lock(&self.state).valid_until(&self.config)),
            };
            if let Some(until) = until {
                *lock(&leadership.valid_until) = until;
            }
            let until = until.unwrap_or(now);
            input = Some(match action {
                Action::Lost(reason) => return reason,
                Action::Wait(at) => {
                    tokio::time::sleep_until(at.min(until)).await;
                    Input::Tick
                }
                other => self.carry_out(&other, until.saturating_duration_since(now)).await,
            });
        }
    }

    fn decide(&self, input: Input) -> Action {
        let mut state = lock(&self.state);
        let (next, action) = core::decide(std::mem::take(&mut state), input, Instant::now(), &self.config);
        *state = next;
        action
    }

    async fn carry_out(&self, action: &Action, left: Duration) -> Input {
        // Two tries must fit into the time that is left, or one slow answer loses the lease.
        let limit = left.min(self.config.renew_deadline / 2);
        let sent = Instant::now();
        let request = async {
            match action {
                Action::Read => self.store.get().await.map(Input::Read),
                Action::Create => {
                    let claim = self.claim();
                    self.store.create(&claim).await.map(|lease| Input::Written { sent, lease })
                }
                _ => {
                    let claim = self.claim();
                    self.store.update(&claim).await.map(|lease| Input::Written { sent, lease })
                }
            }
        };
        match tokio::time::timeout(limit, request).await {
            Ok(Ok(input)) => input,
            Ok(Err(StoreError::Conflict)) => Input::Conflict,
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.lease(), error = %Chain(&error), "lease request failed");
                Input::Failed
            }
            Err(_) => {
                tracing::warn!(lease = %self.lease(), ?limit, "lease request got no answer in time");
                Input::Failed
            }
        }
    }

    fn claim(&self) -> k8s_openapi::api::coordination::v1::Lease {
        core::claim(&lock(&self.state), self.clock.now(), &self.config)
    }

    /// Gives the lease back, best effort: whoever waits takes it at once instead of after the lease duration.
    async fn release(&self) {
        for attempt in 0..2 {
            let Some(free) = core::release(&lock(&self.state), self.clock.now(), &self.config) else { return };
            match tokio::time::timeout(self.config.renew_deadline / 2, self.store.update(&free)).await {
                Ok(Ok(lease)) => {
                    let mut state = lock(&self.state);
                    state.leading_since_sent = None;
                    state.observed = Some(core::Observed { lease, since: Instant::now() });
                    tracing::info!(lease = %self.lease(), "released");
                    return;
                }
                // A renewal that seemed lost has arrived after all: look once, and free that version.
                Ok(Err(StoreError::Conflict)) if attempt == 0 => {
                    let read = tokio::time::timeout(self.config.renew_deadline / 2, self.store.get()).await;
                    if let Ok(Ok(found)) = read {
                        lock(&self.state).leading_since_sent = None;
                        self.decide(Input::Read(found));
                    }
                }
                _ => break,
            }
        }
        tracing::warn!(lease = %self.lease(), "could not release; it will expire");
    }
}

fn flatten(result: Result<Result<(), TaskError>, tokio::task::JoinError>) -> Result<(), TaskError> {
    result.unwrap_or_else(|panic| Err(Box::new(panic)))
}

struct AbortOnDrop(tokio::task::JoinHandle<Result<(), TaskError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn report(config: &LeaseConfig, state: &State) -> LeaseReport {
    let observed = state.observed.as_ref();
    LeaseReport {
        name: format!("{}/{}", config.namespace, config.name),
        identity: config.identity.clone(),
        holder: state.holder().map(str::to_owned),
        mine: state.leading_since_sent.is_some(),
        renew_age_seconds: observed.map(|observed| observed.since.elapsed().as_secs_f64()),
        transitions: observed.and_then(|observed| observed.lease.spec.as_ref()?.lease_transitions).unwrap_or_default(),
    }
}
