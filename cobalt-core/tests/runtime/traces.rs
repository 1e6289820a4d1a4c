//! Spans as a collector gets them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, http::StatusCode, routing::post};
use cobalt_core::runtime::{
    args::LogArgs,
    telemetry::{self, Traces},
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message;
use tokio::net::TcpListener;
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

/// A collector that keeps what it gets, and answers with this.
async fn collector(status: StatusCode) -> (SocketAddr, Arc<Mutex<Vec<ExportTraceServiceRequest>>>) {
    let kept: Arc<Mutex<Vec<ExportTraceServiceRequest>>> = Arc::default();
    let keep = kept.clone();
    let take = move |body: Bytes| async move {
        keep.lock().unwrap().push(ExportTraceServiceRequest::decode(body).unwrap());
        status
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await });
    (address, kept)
}

/// What a span says under this name.
fn said<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let value = span.attributes.iter().find(|one| one.key == key)?.value.as_ref()?.value.as_ref()?;
    if let Value::StringValue(text) = value { Some(text) } else { None }
}

#[tokio::test]
async fn spans_reach_the_collector_whatever_is_logged_and_the_last_ones_too() {
    let (address, kept) = collector(StatusCode::OK).await;
    let traces = Traces::to(&format!("http://{address}"), "cobalt-test").unwrap();
    // Logs are for warnings only.
    let args = LogArgs { log_level: "warn".into(), ..LogArgs::default() };
    let subscriber = telemetry::subscriber(&args, std::io::sink).unwrap().with(traces.layer());
    let guard = tracing::subscriber::set_default(subscriber);
    let pass = async {
        let action = tracing::info_span!("action", kind = "DisableService");
        async { tracing::info!("at work") }.instrument(action).await;
    };
    pass.instrument(tracing::info_span!("reconcile", key = "node-1")).await;
    tracing::debug_span!("detail").in_scope(|| ());
    drop(guard);
    traces.close().await;

    let requests = kept.lock().unwrap().clone();
    let resource = requests[0].resource_spans[0].resource.clone().unwrap();
    let service = resource.attributes.iter().find(|one| one.key == "service.name").unwrap();
    assert!(format!("{service:?}").contains("cobalt-test"), "{service:?}");
    let spans: Vec<Span> = requests
        .into_iter()
        .flat_map(|request| request.resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect();
    let find = |name: &str| spans.iter().find(|span| span.name == name);
    let (pass, action) = (find("reconcile").unwrap(), find("action").unwrap());
    assert_eq!((said(pass, "key"), said(action, "kind")), (Some("node-1"), Some("DisableService")));
    assert_eq!((&action.trace_id, &action.parent_span_id), (&pass.trace_id, &pass.span_id));
    assert_eq!(spans.len(), 2, "nothing below info: {spans:?}");
}

#[tokio::test]
async fn a_collector_that_is_away_holds_nobody_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let traces = Traces::to(&format!("http://{}", listener.local_addr().unwrap()), "cobalt-test").unwrap();
    drop(listener);
    let subscriber = telemetry::subscriber(&LogArgs::default(), std::io::sink).unwrap().with(traces.layer());
    let guard = tracing::subscriber::set_default(subscriber);
    for _ in 0..5000 {
        // More than the queue holds.
        tracing::info_span!("action").in_scope(|| ());
    }
    drop(guard);
    tokio::time::timeout(Duration::from_secs(60), traces.close()).await.expect("it ends");
}

#[tokio::test]
async fn what_is_no_address_is_refused_by_its_flag() {
    let error = Traces::to("collector:4318", "cobalt-test").unwrap_err();
    let named = "send spans to \"collector:4318\" (--otlp-endpoint or OTEL_EXPORTER_OTLP_ENDPOINT)";
    assert_eq!(error.to_string(), named);
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("http://HOST"), "{cause}");
}
