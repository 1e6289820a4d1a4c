//! Logs on standard error, as JSON or for people; with the feature `otlp` also spans to an OpenTelemetry collector.

#[cfg(feature = "otlp")]
mod traces;

use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, Layer, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

#[cfg(feature = "otlp")]
pub use traces::Traces;

use super::args::{LogArgs, LogFormat};

/// What was started, and is to be ended at the end of the program.
#[derive(Debug, Default)]
#[must_use = "spans that were not sent yet are lost unless it is closed"]
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    traces: Option<Traces>,
}

impl Telemetry {
    /// Sends what was not sent yet, for a few seconds at most.
    #[cfg_attr(
        not(feature = "otlp"),
        expect(clippy::unused_async, reason = "there is something to wait for with spans")
    )]
    pub async fn close(self) {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.close().await;
        }
    }
}

/// Starts logging for the whole process, and spans where `--otlp-endpoint` says so. To be called once, by `main`.
///
/// `service` is what the program calls itself among others.
pub fn init(args: &LogArgs, service: &'static str) -> Result<Telemetry, TelemetryError> {
    #[cfg(feature = "otlp")]
    if let Some(endpoint) = &args.otlp_endpoint {
        let traces = Traces::to(endpoint, service)?;
        let subscriber = subscriber(args, std::io::stderr)?.with(traces.layer());
        subscriber.try_init().map_err(|_| TelemetryError::AlreadyStarted)?;
        tracing::info!(endpoint, "sending spans");
        return Ok(Telemetry { traces: Some(traces) });
    }
    subscriber(args, std::io::stderr)?.try_init().map_err(|_| TelemetryError::AlreadyStarted)?;
    if args.otlp_endpoint.is_some() {
        // The variable is often set for all pods of a cluster, so this is no reason not to start.
        tracing::warn!(service, "spans are not sent: built without the feature otlp");
    }
    Ok(Telemetry::default())
}

/// A log subscriber that writes to `writer`.
///
/// ```
/// use cobalt_core::runtime::{args::LogArgs, telemetry};
///
/// let quiet = telemetry::subscriber(&LogArgs::default(), std::io::sink).unwrap();
/// tracing::subscriber::with_default(quiet, || tracing::info!(node = "node-1", "created"));
/// ```
pub fn subscriber<W>(
    args: &LogArgs,
    writer: W,
) -> Result<impl Subscriber + for<'span> tracing_subscriber::registry::LookupSpan<'span> + Send + Sync, TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&args.log_level)
        .map_err(|cause| TelemetryError::Filter { filter: args.log_level.clone(), cause: Box::new(cause) })?;
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = match args.log_format {
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
        LogFormat::Human => {
            // Colours belong on a terminal, not into a file.
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            layer.with_ansi(ansi).with_target(false).boxed()
        }
    };
    // The level is that of the log alone: spans are sent whatever is logged.
    Ok(tracing_subscriber::registry().with(layer.with_filter(filter)))
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
    /// Nothing can be sent to this collector.
    #[cfg(feature = "otlp")]
    #[error("send spans to {endpoint:?} (--otlp-endpoint or OTEL_EXPORTER_OTLP_ENDPOINT)")]
    Collector {
        /// The address that was given.
        endpoint: String,
        /// What is wrong with it.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
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
