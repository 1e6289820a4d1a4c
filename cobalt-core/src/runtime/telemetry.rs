//! Logs on standard error, as JSON or for people.

use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

use super::args::{LogArgs, LogFormat};

/// Starts logging for the whole process. To be called once, by `main`.
pub fn init(args: &LogArgs) -> Result<(), TelemetryError> {
    subscriber(args, std::io::stderr)?.try_init().map_err(|_| TelemetryError::AlreadyStarted)
}

/// A log subscriber that writes to `writer`.
///
/// ```
/// use cobalt_core::runtime::{args::LogArgs, telemetry};
///
/// let quiet = telemetry::subscriber(&LogArgs::default(), std::io::sink).unwrap();
/// tracing::subscriber::with_default(quiet, || tracing::info!(node = "node-1", "created"));
/// ```
pub fn subscriber<W>(args: &LogArgs, writer: W) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&args.log_level)
        .map_err(|cause| TelemetryError::Filter { filter: args.log_level.clone(), cause: Box::new(cause) })?;
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let registry = tracing_subscriber::registry().with(filter);
    Ok(match args.log_format {
        LogFormat::Json => Box::new(registry.with(layer.json().flatten_event(true).with_span_list(false))),
        LogFormat::Human => {
            // Colours belong on a terminal, not into a file.
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            Box::new(registry.with(layer.with_ansi(ansi).with_target(false)))
        }
    })
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The filter is not a level and not a list of directives.
    #[error("parse log filter {filter:?} (--log-level or RUST_LOG)")]
    Filter {
        /// The text that was given.
        filter: String,
        /// What is wrong with it.
        #[source]
        cause: Box<tracing_subscriber::filter::ParseError>,
    },
    /// Something else in this process has set a global subscriber.
    #[error("start logging: a global subscriber is already set")]
    AlreadyStarted,
}

impl TelemetryError {
    /// The class of the error.
    pub fn category(&self) -> &'static str {
        "configuration"
    }

    /// Whether waiting may help.
    pub fn is_transient(&self) -> bool {
        false
    }
}
