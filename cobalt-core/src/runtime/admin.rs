//! The admin server: probes, metrics, and a look inside.
//!
//! | Path | Answer |
//! |---|---|
//! | `/healthz` | 200, or 503 with the liveness checks that fail |
//! | `/readyz` | 200, or 503 with the readiness checks that fail |
//! | `/metrics` | OpenMetrics text |
//! | `/debug/state` | every watch, queue and lease; JSON, or a page for `Accept: text/html` |

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Write as _,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{Html, IntoResponse, Json, Response},
    routing::get,
};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::net::TcpListener;

use super::{
    metrics::Metrics,
    shutdown::Shutdown,
    state::{StateReport, Status},
};

/// Opens a listener; a failure names the address and the flag that chose it.
pub async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, AdminError> {
    TcpListener::bind(address).await.map_err(|cause| AdminError::Bind { address, flag, cause })
}

/// Answers on `listener` until `stop`.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    status: Status,
    stop: Shutdown,
) -> Result<(), AdminError> {
    let stopped = stop.clone();
    let server = axum::serve(listener, router(metrics, status))
        .with_graceful_shutdown(async move { stop.triggered().await })
        .into_future();
    let mut server = std::pin::pin!(server);
    tokio::select! {
        result = &mut server => result.map_err(|cause| AdminError::Serve { cause }),
        () = stopped.triggered() => {
            // A scraper that keeps its connection open must not keep the program alive.
            match tokio::time::timeout(std::time::Duration::from_secs(1), server).await {
                Ok(result) => result.map_err(|cause| AdminError::Serve { cause }),
                Err(_) => Ok(()),
            }
        }
    }
}

/// The routes, for a server of one's own.
pub fn router(metrics: Arc<Metrics>, status: Status) -> Router {
    Router::new()
        .route("/healthz", get(|State(parts): State<Parts>| async move { probe(&parts.status.not_live()) }))
        .route("/readyz", get(|State(parts): State<Parts>| async move { probe(&parts.status.not_ready()) }))
        .route("/metrics", get(|State(parts): State<Parts>| async move { encode(&parts.metrics).await }))
        .route("/debug/state", get(debug_state))
        .with_state(Parts { metrics, status })
}

#[derive(Clone)]
struct Parts {
    metrics: Arc<Metrics>,
    status: Status,
}

fn probe(failing: &[(String, String)]) -> (StatusCode, String) {
    if failing.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    let text = failing.iter().fold(String::new(), |mut text, (name, reason)| {
        let _ = writeln!(text, "{name}: {reason}");
        text
    });
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

async fn encode(metrics: &Metrics) -> impl IntoResponse + use<> {
    let page = Body::new(Page(metrics.parts().await));
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], page)
}

/// A body of parts, which are sent as they are.
struct Page(VecDeque<Bytes>);

impl http_body::Body for Page {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

async fn debug_state(State(parts): State<Parts>, headers: HeaderMap) -> Response {
    let report = parts.status.report();
    let wants_html = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    if wants_html { Html(page(&report)).into_response() } else { Json(report).into_response() }
}

fn page(report: &StateReport) -> String {
    let mut out = String::from(
        "<!doctype html><meta charset=utf-8><title>state</title><style>body{font:14px system-ui;margin:2em}\
         table{border-collapse:collapse;margin-bottom:2em}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;\
         text-align:left;vertical-align:top}.bad{color:#b00}</style>",
    );
    if let Some(time) = report.time {
        let _ = write!(out, "<p>{time}</p>");
    }
    if !report.not_ready.is_empty() {
        let rows = report.not_ready.iter().map(|(name, reason)| vec![name.clone(), reason.clone()]);
        table(&mut out, "Not ready", &["Check", "Reason"], rows);
    }
    let rows = report.watches.iter().map(|watch| {
        let mut error = watch.last_error.clone().unwrap_or_default();
        for bad in &watch.malformed {
            let _ = write!(error, " malformed {}@{}: {}.", bad.name, bad.resource_version, bad.error);
        }
        vec![
            watch.kind.to_owned(),
            if watch.synced { "yes" } else { "no" }.to_owned(),
            watch.objects.to_string(),
            watch.last_event.map(|at| at.to_string()).unwrap_or_default(),
            watch.restarts.to_string(),
            error,
        ]
    });
    table(&mut out, "Watches", &["Kind", "Synced", "Objects", "Last event", "Restarts", "Trouble"], rows);
    let rows = report.queues.iter().map(|queue| {
        vec![
            queue.name.to_owned(),
            queue.depth.to_string(),
            queue.delayed.to_string(),
            queue.in_flight.to_string(),
            queue.retries.to_string(),
            queue.oldest_seconds.map(|age| format!("{age:.1} s")).unwrap_or_default(),
            queue.failing.iter().map(|(key, times)| format!("{key} ({times}×)")).collect::<Vec<_>>().join(", "),
        ]
    });
    table(&mut out, "Queues", &["Name", "Depth", "Delayed", "In flight", "Retries", "Oldest", "Failing"], rows);
    let rows = report.leases.iter().map(|lease| {
        vec![
            lease.name.clone(),
            lease.identity.clone(),
            lease.holder.clone().unwrap_or_default(),
            if lease.mine { "yes" } else { "no" }.to_owned(),
            lease.renew_age_seconds.map(|age| format!("{age:.1} s")).unwrap_or_default(),
            lease.transitions.to_string(),
        ]
    });
    table(&mut out, "Leases", &["Name", "We are", "Holder", "Mine", "Renewed", "Transitions"], rows);
    for (name, section) in &report.sections {
        let text = serde_json::to_string_pretty(section).unwrap_or_default();
        let _ = write!(out, "<h2>{}</h2><pre>{}</pre>", escape(name), escape(&text));
    }
    out
}

fn table(out: &mut String, title: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = write!(out, "<h2>{title}</h2><table><tr>");
    for cell in head {
        let _ = write!(out, "<th>{cell}</th>");
    }
    for row in rows {
        out.push_str("</tr><tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(&cell));
        }
    }
    out.push_str("</tr></table>");
}

/// Names and messages come from the cluster: they are text, never markup.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Why the admin server could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("listen on {address} (choose another address with {flag})")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The flag that chose it.
        flag: &'static str,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// The server stopped.
    #[error("serve admin requests")]
    Serve {
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
}

impl AdminError {
    /// The class of the error.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Bind { .. } => "bind",
            Self::Serve { .. } => "serve",
        }
    }

    /// Whether waiting may help.
    pub fn is_transient(&self) -> bool {
        false
    }
}
