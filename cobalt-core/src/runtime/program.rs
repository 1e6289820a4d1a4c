//! A program of ours from its start to its end: what every `main` does in the same order.

use std::{process::ExitCode, sync::Arc, time::Duration};

use kube::Client;

use super::{
    admin::{self, AdminError},
    args::{AdminArgs, KubeArgs, LogArgs},
    client::{self, ClientError},
    clock::Clock,
    events::{self, Recorder},
    lease::LeaseError,
    metrics::Metrics,
    shutdown::{Chain, Lifecycle, Phase, Shutdown, StopError, TaskError},
    state::Status,
    telemetry::{self, Telemetry, TelemetryError},
};

/// A started program: it logs, serves its admin pages, has a client and somebody who sends its Events, and ends on
/// SIGTERM. What it is for is up to the caller.
pub struct Program {
    /// The Kubernetes API.
    pub client: Client,
    /// The namespace of the pod or of the context.
    pub namespace: String,
    /// The pod's name, or the machine's.
    pub host: String,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What `/readyz` and `/debug/state` show.
    pub status: Status,
    /// Takes Events.
    pub recorder: Recorder,
    /// The tasks, and the order in which they end.
    pub life: Lifecycle,
    telemetry: Telemetry,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("host", &self.host).field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Program {
    /// Starts what all programs have in common. The admin port is opened first: a second copy on one machine ends with
    /// a clear word before it touches anything.
    pub async fn start(
        name: &'static str,
        log: &LogArgs,
        admin: &AdminArgs,
        kube: &KubeArgs,
    ) -> Result<Self, ProgramError> {
        let telemetry = telemetry::init(log, name)?;
        let listeners = admin.listen().await?;
        let metrics = Arc::new(Metrics::new());
        let clock = Clock::system();
        let status = Status::new(clock.clone());
        let connection = client::connect(kube, name, metrics.clone()).await?;
        tracing::info!(
            program = name,
            version = env!("CARGO_PKG_VERSION"),
            server = connection.url,
            namespace = connection.namespace,
            "starting"
        );
        let life = Lifecycle::new(Shutdown::on_signals().map_err(ProgramError::Signals)?);
        for listener in listeners {
            let group = life.phase(Phase::Admin);
            if let Ok(address) = listener.local_addr() {
                tracing::info!(%address, "admin server listens");
            }
            group.spawn("admin server", admin::serve(listener, metrics.clone(), status.clone(), group.stopping()));
        }
        let host = hostname();
        let (recorder, publisher) =
            events::recorder(connection.client.clone(), name, &host, clock.clone(), metrics.clone());
        life.phase(Phase::Events).spawn("events", publisher.run(life.phase(Phase::Events).stopping()));
        let (client, namespace) = (connection.client, connection.namespace);
        Ok(Self { client, namespace, host, clock, metrics, status, recorder, life, telemetry })
    }

    /// Runs until a signal (or a failed task), then ends everything in order.
    pub async fn until_stopped(self, grace: Duration) -> Result<(), ProgramError> {
        // Whoever publishes must be gone before the publisher can have sent the last Event.
        drop(self.recorder);
        let ended = self.life.run_until_stopped(grace).await;
        self.telemetry.close().await;
        ended?;
        tracing::info!("ended");
        Ok(())
    }
}

fn hostname() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()))
        .unwrap_or_else(|| "unknown".into())
}

/// Ends a `main`: an error goes to standard error, with its causes on one line, and becomes exit code 1.
pub fn finish(result: Result<(), TaskError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", Chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Why a program could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// Logging could not be set up.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The admin server could not listen.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// There is no way to the Kubernetes API.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Signals could not be received.
    #[error("listen for SIGTERM and SIGINT")]
    Signals(#[source] std::io::Error),
    /// What was given on the command line cannot be.
    #[error("{0}")]
    Arguments(String),
    /// There is no way into the cloud.
    #[error(transparent)]
    Cloud(TaskError),
    /// The second login, that of the smoke test, cannot be.
    #[error("login of the smoke test (--smoke-test-X and SMOKE_TEST_OS_X)")]
    SmokeTest(#[source] TaskError),
    /// Leader election is configured wrongly.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// What was to be let go could not be.
    #[error("take the finalizer off the Hypervisors")]
    Release(#[source] crate::Error),
    /// A part failed, or did not end in time.
    #[error(transparent)]
    Stop(#[from] StopError),
}
