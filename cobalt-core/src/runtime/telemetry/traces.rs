//! Spans to an OpenTelemetry collector: OTLP over HTTP.
//!
//! What the standard says in variables besides the address is heeded: `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`. Spans wait in a bounded queue; what has no room there
//! while the collector is away is lost, and the program goes on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchSpanProcessor, SdkTracerProvider},
};
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::runtime::Handle;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

use super::TelemetryError;

/// The most that one request takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the end of the program waits for the last spans.
const FAREWELL: Duration = Duration::from_secs(5);

/// Those through which spans are sent: a span about sending spans would have to be sent.
const OWN_WAY: [&str; 5] = ["opentelemetry", "opentelemetry_sdk", "hyper_util", "reqwest", "h2"];

/// A way to a collector.
///
/// ```no_run
/// use cobalt_core::runtime::{args::LogArgs, telemetry::{self, Traces}};
/// use tracing_subscriber::layer::SubscriberExt;
///
/// # async fn example() -> Result<(), telemetry::TelemetryError> {
/// let traces = Traces::to("http://collector.monitoring:4318", "my-operator")?;
/// let subscriber = telemetry::subscriber(&LogArgs::default(), std::io::stderr)?.with(traces.layer());
/// let guard = tracing::subscriber::set_default(subscriber);
/// tracing::info_span!("action", kind = "Demonstrate").in_scope(|| ());
/// traces.close().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Sends to the collector at this base address, such as `http://collector:4318`. To be called inside a tokio runtime.
    pub fn to(endpoint: &str, service: &'static str) -> Result<Self, TelemetryError> {
        let wrong = |cause| TelemetryError::Collector { endpoint: endpoint.to_owned(), cause };
        let address = url(endpoint).map_err(|cause| wrong(cause.into()))?;
        let client = Post { client: client().map_err(wrong)?, runtime: Handle::current(), failing: Arc::default() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(address)
            .with_timeout(PATIENCE)
            .build()
            .map_err(|cause| wrong(Box::new(cause)))?;
        let processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder().with_service_name(service).build();
        let provider = SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource).build();
        Ok(Self { provider })
    }

    /// What turns spans of level info and above into those of the collector.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let quiet = OWN_WAY.map(|target| (target, LevelFilter::OFF));
        let wanted = Targets::new().with_default(LevelFilter::INFO).with_targets(quiet);
        tracing_opentelemetry::layer().with_tracer(self.provider.tracer("cobalt")).with_filter(wanted)
    }

    /// Sends what was not sent yet, for a few seconds at most.
    pub async fn close(self) {
        // It blocks, and what it waits for needs this runtime.
        let closed = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(FAREWELL)).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::warn!("the last spans could not be sent");
        }
    }
}

fn url(endpoint: &str) -> Result<String, &'static str> {
    let address = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let parsed: Option<http::Uri> = address.parse().ok();
    match parsed.as_ref().map(|it| (it.scheme_str(), it.host())) {
        Some((Some("http" | "https"), Some(_))) => Ok(address),
        _ => Err("expected http://HOST[:PORT] or https://HOST[:PORT]"),
    }
}

fn client() -> Result<reqwest::Client, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    // Named here and not installed for the process, which may have another one.
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = reqwest::Client::builder().timeout(PATIENCE).redirect(Policy::none()).tls_backend_preconfigured(tls);
    Ok(builder.build()?)
}

/// Sends on our runtime, because who asks has a thread of its own and none.
#[derive(Debug)]
struct Post {
    client: reqwest::Client,
    runtime: Handle,
    /// That it fails is said once, and that it works again.
    failing: Arc<AtomicBool>,
}

#[async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move { HttpClient::send_bytes(&client, request).await });
        let answer = sending.await.unwrap_or_else(|error| Err(error.into()));
        let trouble = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(answer.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        match trouble {
            Some(why) if !self.failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(why, "the collector takes no spans; they are lost until it does");
            }
            None if self.failing.swap(false, Ordering::Relaxed) => tracing::info!("the collector takes spans again"),
            _ => {}
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::url;

    #[test]
    fn an_address_is_that_of_a_server() {
        assert_eq!(url("http://collector:4318").as_deref(), Ok("http://collector:4318/v1/traces"));
        assert_eq!(url("https://collector/otlp/").as_deref(), Ok("https://collector/otlp/v1/traces"));
        for wrong in ["", "collector:4318", "grpc://collector:4317", "http://", "http://a b"] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
    }
}
