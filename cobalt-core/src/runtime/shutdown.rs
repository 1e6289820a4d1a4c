//! Ending in order.
//!
//! A program ends in phases, each of which ends completely before the next one is asked to:
//!
//! ```text
//!   SIGTERM / SIGINT / a task failed
//!        │
//!        ▼
//!   Work ───► Events ───► Lease ───► Admin ───► exit
//!   no new    flushed     released   closed
//!   work, in              (others    (probes and metrics
//!   flight                take over  answer until the very end)
//!   finishes              at once)
//! ```
//!
//! A second signal exits at once.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::lock;

/// A boxed error of a task.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// The wish that something ends; cloned freely, waited for by everybody.
///
/// ```
/// use cobalt_core::runtime::shutdown::Shutdown;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let shutdown = Shutdown::new();
/// let part = shutdown.child();
/// part.trigger(); // ends the part only
/// assert!(!shutdown.is_triggered());
/// shutdown.trigger();
/// shutdown.triggered().await;
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// One that only [`trigger`](Self::trigger) ends.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM or SIGINT trigger. The second signal exits the process with code 130 at once: whoever presses
    /// Ctrl-C twice does not want to wait.
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = Self::new();
        let triggered = shutdown.clone();
        tokio::spawn(async move {
            let name = tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" };
            tracing::info!(signal = name, "shutting down; a second signal exits at once");
            triggered.trigger();
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            tracing::warn!("second signal, exiting without waiting for work in flight");
            std::process::exit(130);
        });
        Ok(shutdown)
    }

    /// Ends this and every child.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// Whether it has been triggered.
    pub fn is_triggered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits for the trigger.
    pub async fn triggered(&self) {
        self.0.cancelled().await;
    }

    /// One that ends with this one, or earlier on its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }

    /// One that ends with this one or with `other`, whichever comes first. Must be called on a tokio runtime.
    #[must_use]
    pub fn or(&self, other: &Shutdown) -> Self {
        let both = self.child();
        let (either, other) = (both.clone(), other.clone());
        tokio::spawn(async move {
            tokio::select! { () = other.triggered() => either.trigger(), () = either.triggered() => {} }
        });
        both
    }
}

/// Tasks that end together.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    name: &'static str,
    stopping: Shutdown,
    program: Shutdown,
    tracker: TaskTracker,
    running: Arc<Mutex<Vec<&'static str>>>,
    failure: Arc<Mutex<Option<(&'static str, TaskError)>>>,
}

impl TaskGroup {
    /// An empty group. A task of it that fails triggers `program`.
    pub fn new(name: &'static str, program: Shutdown) -> Self {
        Self {
            name,
            stopping: Shutdown::new(),
            program,
            tracker: TaskTracker::new(),
            running: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// What the group's tasks wait for in order to end.
    pub fn stopping(&self) -> Shutdown {
        self.stopping.clone()
    }

    /// Starts a task. When it fails or panics, the whole program is asked to end: a program of which a part has died
    /// silently is worse than one that restarts.
    pub fn spawn<F, E>(&self, task: &'static str, future: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<TaskError>,
    {
        lock(&self.running).push(task);
        let group = self.clone();
        let work = tokio::spawn(async move { future.await.map_err(Into::into) });
        // A task of its own, so that a panic is seen here; the outer one waits for it and tells.
        self.tracker.spawn(async move {
            let result = match work.await {
                Ok(result) => result,
                Err(panic) => Err(Box::new(panic) as TaskError),
            };
            let mut running = lock(&group.running);
            if let Some(at) = running.iter().position(|name| *name == task) {
                running.swap_remove(at);
            }
            drop(running);
            if let Err(error) = result {
                tracing::error!(task, error = %Chain(error.as_ref()), "task failed, ending the program");
                lock(&group.failure).get_or_insert((task, error));
                group.program.trigger();
            }
        });
    }

    /// Lets the group wait for a future that something else runs (the work of a leader, say, which the elector must be
    /// able to abort). Its result is the runner's business.
    pub fn track<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        self.tracker.track_future(future)
    }

    /// Asks the tasks to end and waits for them until `deadline`.
    pub async fn stop(&self, deadline: Instant) -> Result<(), StopError> {
        self.stopping.trigger();
        self.tracker.close();
        if tokio::time::timeout_at(deadline, self.tracker.wait()).await.is_err() {
            let mut tasks = lock(&self.running).clone();
            tasks.sort_unstable();
            return Err(StopError::Unfinished { phase: self.name, tasks: tasks.join(", ") });
        }
        match lock(&self.failure).take() {
            Some((task, cause)) => Err(StopError::Failed { task, cause }),
            None => Ok(()),
        }
    }
}

/// When a part of the program ends, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Watches, queues, controllers: first, so that nothing new begins.
    Work,
    /// The publisher of Events, which still sends what the work reported.
    Events,
    /// The leader lease: released only when nothing works any more.
    Lease,
    /// The admin server: probes and metrics answer to the end.
    Admin,
}

impl Phase {
    const ORDER: [Phase; 4] = [Phase::Work, Phase::Events, Phase::Lease, Phase::Admin];

    fn name(self) -> &'static str {
        match self {
            Phase::Work => "work",
            Phase::Events => "events",
            Phase::Lease => "lease",
            Phase::Admin => "admin",
        }
    }
}

/// The life of a program: its task groups and the order in which they end.
///
/// ```
/// use cobalt_core::runtime::shutdown::{Lifecycle, Phase, Shutdown};
/// use std::{convert::Infallible, time::Duration};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let shutdown = Shutdown::new();
/// let life = Lifecycle::new(shutdown.clone());
/// let stop = life.phase(Phase::Work).stopping();
/// life.phase(Phase::Work).spawn("worker", async move {
///     stop.triggered().await; // and finish what is in flight
///     Ok::<(), Infallible>(())
/// });
/// shutdown.trigger();
/// life.run_until_stopped(Duration::from_secs(5)).await.unwrap();
/// # });
/// ```
#[derive(Debug)]
pub struct Lifecycle {
    shutdown: Shutdown,
    groups: [TaskGroup; 4],
}

impl Lifecycle {
    /// A program that ends when `shutdown` says so, or when one of its tasks fails.
    pub fn new(shutdown: Shutdown) -> Self {
        let groups = Phase::ORDER.map(|phase| TaskGroup::new(phase.name(), shutdown.clone()));
        Self { shutdown, groups }
    }

    /// The group of tasks that ends in this phase.
    pub fn phase(&self, phase: Phase) -> &TaskGroup {
        &self.groups[phase as usize]
    }

    /// What ends the program.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for the shutdown, then ends the phases in order. Work gets the grace period; each later phase gets what is
    /// left of it, but never less than two seconds, so that a stuck worker cannot keep the lease from being released.
    pub async fn run_until_stopped(self, grace: Duration) -> Result<(), StopError> {
        self.shutdown.triggered().await;
        let deadline = Instant::now() + grace;
        let mut result = Ok(());
        for group in &self.groups {
            let least = Instant::now() + Duration::from_secs(2).min(grace);
            let ended = group.stop(deadline.max(least)).await;
            if let Err(error) = &ended {
                tracing::warn!(phase = group.name, error = %Chain(error), "phase did not end cleanly");
            }
            if result.is_ok() {
                result = ended;
            }
        }
        result
    }
}

/// Why a program did not end as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// Tasks were still running when the time was up.
    #[error("shut down phase {phase}: still running after the grace period: {tasks}")]
    Unfinished {
        /// The phase that did not end.
        phase: &'static str,
        /// The names of its tasks.
        tasks: String,
    },
    /// A task failed, which is why the program ends.
    #[error("task {task} failed")]
    Failed {
        /// The task's name.
        task: &'static str,
        /// What it reported.
        #[source]
        cause: TaskError,
    },
}

impl StopError {
    /// The class of the error.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unfinished { .. } => "unfinished",
            Self::Failed { .. } => "task_failed",
        }
    }

    /// Whether waiting may help. The program is over either way.
    pub fn is_transient(&self) -> bool {
        false
    }
}

/// An error and its causes on one line.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn std::error::Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        f.write_str(&text)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let next = error.to_string();
            // Some libraries repeat the cause in their own text; saying it once is enough.
            if !text.contains(&next) {
                write!(f, ": {next}")?;
            }
            text = next;
            source = error.source();
        }
        Ok(())
    }
}
