//! What every long-running Cobalt program shares.
//!
//! Each module is one part a `main` wires together; none of them starts anything by itself, and all take their clock,
//! their client and their shutdown from outside:
//!
//! | Module | What it gives |
//! |---|---|
//! | [`args`], [`earlier`] | command-line arguments as structs, flattened into each program's own |
//! | [`telemetry`], [`metrics`] | logs, spans and Prometheus metrics |
//! | [`admin`], [`state`] | `/healthz`, `/readyz`, `/metrics`, `/debug/state` |
//! | [`client`] | a `kube::Client` with timeouts, metrics and readable errors |
//! | [`lease`] | leader election that never has two leaders |
//! | [`watch`] | a cache of one kind that survives malformed objects |
//! | [`queue`] | a keyed work queue and its runner |
//! | [`apply`], [`fields`], [`takeover`] | apply-on-change: an unchanged object costs no request |
//! | [`events`] | Kubernetes Events, aggregated and never blocking |
//! | [`shutdown`] | what ends first when the program ends |
//! | [`clock`] | wall time that follows tokio's (paused) time in tests |
//! | [`program`] | all of it in the order every `main` needs |
//!
//! ```no_run
//! use cobalt_core::runtime::{
//!     admin, args::AdminArgs, clock::Clock, metrics::Metrics, shutdown::{Lifecycle, Phase, Shutdown}, state::Status,
//! };
//! use std::{sync::Arc, time::Duration};
//!
//! # async fn example(admin: AdminArgs) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let life = Lifecycle::new(Shutdown::on_signals()?);
//! let metrics = Arc::new(Metrics::new());
//! let status = Status::new(Clock::system());
//! for listener in admin.listen().await? {
//!     let stop = life.phase(Phase::Admin).stopping();
//!     life.phase(Phase::Admin).spawn("admin server", admin::serve(listener, metrics.clone(), status.clone(), stop));
//! }
//! life.run_until_stopped(Duration::from_secs(30)).await?;
//! # Ok(()) }
//! ```

pub mod admin;
pub mod apply;
pub mod args;
pub mod client;
pub mod clock;
pub mod earlier;
pub mod events;
pub mod fields;
pub mod lease;
pub mod metrics;
pub mod program;
pub mod queue;
pub mod shutdown;
pub mod state;
pub mod takeover;
pub mod telemetry;
pub mod watch;

/// An error that knows which bounded class it belongs to: the label of a metric, the reason of an Event.
pub trait Categorized: std::error::Error {
    /// A short `snake_case` word out of a small fixed set.
    fn category(&self) -> &'static str;

    /// Whether the same call may succeed later without anybody doing anything.
    fn is_transient(&self) -> bool;
}

impl Categorized for crate::Error {
    fn category(&self) -> &'static str {
        crate::Error::category(self)
    }

    fn is_transient(&self) -> bool {
        crate::Error::is_transient(self)
    }
}

/// The class of an answer of the Kubernetes API (or of its absence).
///
/// ```
/// use cobalt_core::runtime::api_category;
///
/// let status = kube::core::Status { code: 409, reason: "AlreadyExists".into(), ..Default::default() };
/// assert_eq!(api_category(&kube::Error::Api(Box::new(status))), "already_exists");
/// ```
pub fn api_category(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => match (status.code, status.reason.as_str()) {
            (409, "AlreadyExists") => "already_exists",
            (409, _) => "conflict",
            (404, _) => "not_found",
            (401 | 403, _) => "forbidden",
            (400 | 415 | 422, _) => "invalid",
            (410, _) => "expired",
            (429, _) => "throttled",
            (504, _) => "timeout",
            _ => "server_error",
        },
        kube::Error::SerdeError(_) => "malformed",
        kube::Error::Service(cause) if cause.is::<client::RequestTimeout>() => "timeout",
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => "unreachable",
        kube::Error::Auth(_) => "forbidden",
        _ => "client_error",
    }
}

/// Whether a failed call to the Kubernetes API is worth repeating as it is.
pub fn api_transient(error: &kube::Error) -> bool {
    matches!(api_category(error), "throttled" | "timeout" | "server_error" | "unreachable" | "expired")
}

/// Takes a lock whose holder may have panicked: the state of these maps is valid between any two statements.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
