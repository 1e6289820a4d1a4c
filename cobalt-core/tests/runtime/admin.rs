//! The admin server over a real socket.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use cobalt_core::runtime::{
    admin,
    args::{AdminArgs, BindAddress},
    clock::Clock,
    metrics::{EventOutcome, Metrics, Source, Write},
    shutdown::Shutdown,
    state::{LeaseReport, QueueReport, Status, WatchReport},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

struct Admin {
    address: SocketAddr,
    status: Status,
    metrics: Arc<Metrics>,
    stop: Shutdown,
    running: tokio::task::JoinHandle<()>,
}

async fn start() -> Admin {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let status = Status::new(Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
    let (metrics, stop) = (Arc::new(Metrics::new()), Shutdown::new());
    let serve = admin::serve(listener, metrics.clone(), status.clone(), stop.clone());
    let running = tokio::spawn(async move { serve.await.unwrap() });
    Admin { address, status, metrics, stop, running }
}

impl Admin {
    async fn get(&self, path: &str, accept: &str) -> (u16, String) {
        let (head, body) = self.raw(path, accept).await;
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    async fn raw(&self, path: &str, accept: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

#[tokio::test]
async fn probes_name_the_checks_that_fail() {
    let admin = start().await;
    assert_eq!(admin.get("/healthz", "*/*").await, (200, "ok\n".into()));
    assert_eq!(admin.get("/readyz", "*/*").await, (200, "ok\n".into()));
    admin.status.ready_check("watch nodes", || Err("first listing not complete".into()));
    admin.status.ready_check("watch hypervisors", || Ok(()));
    assert_eq!(admin.get("/readyz", "*/*").await, (503, "watch nodes: first listing not complete\n".into()));
    assert_eq!(admin.get("/healthz", "*/*").await.0, 200, "not ready is no reason for a restart");
    admin.status.live_check("queue", || Err("stuck".into()));
    assert_eq!(admin.get("/healthz", "*/*").await, (503, "queue: stuck\n".into()));
}

#[tokio::test]
async fn the_state_is_json_for_programs_and_a_page_for_people() {
    let admin = start().await;
    admin.status.watch(|| WatchReport {
        kind: "hypervisors",
        synced: true,
        objects: 3,
        last_error: Some("<script>alert(1)</script>".into()),
        ..WatchReport::default()
    });
    admin.status.queue(|| QueueReport { name: "hypervisors", depth: 2, ..QueueReport::default() });
    admin.status.lease(|| LeaseReport { name: "default/x".into(), mine: true, ..LeaseReport::default() });

    let (code, json) = admin.get("/debug/state", "application/json").await;
    let state: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(code, 200);
    assert_eq!(state["time"], "2026-01-01T00:00:00Z".replace("00Z", &state["time"].as_str().unwrap()[17..]));
    assert_eq!(state["watches"][0]["objects"], 3);
    assert_eq!(state["queues"][0]["depth"], 2);
    assert_eq!(state["leases"][0]["mine"], true);

    let (code, html) = admin.get("/debug/state", "text/html,*/*").await;
    assert_eq!(code, 200);
    assert!(html.contains("<td>hypervisors</td>") && html.contains("default/x"), "{html}");
    assert!(!html.contains("<script>") && html.contains("&lt;script&gt;"), "text from the cluster is no markup");
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_the_address_and_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let args = AdminArgs { admin_bind_address: BindAddress::On(address), metrics_bind_address: BindAddress::Off };
    let error = args.listen().await.unwrap_err();
    assert_eq!(error.to_string(), format!("listen on {address} (choose another address with --admin-bind-address)"));
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("in use"), "{cause}");
}

#[tokio::test]
async fn the_server_ends_on_shutdown_even_with_a_connection_open() {
    let admin = start().await;
    let _idle = TcpStream::connect(admin.address).await.unwrap();
    admin.stop.trigger();
    tokio::time::timeout(std::time::Duration::from_secs(30), admin.running).await.unwrap().unwrap();
}

/// The names and labels are a contract with dashboards and alerts: a change here is a change for their owners.
#[tokio::test]
async fn the_metrics_are_the_documented_ones() {
    let admin = start().await;
    let metrics = &admin.metrics;
    let second = std::time::Duration::from_secs(1);
    metrics.request("get", "nodes", "2xx", second);
    metrics.reconcile("hypervisor", second, Some("conflict"));
    metrics.queue("hypervisor", 1, 1);
    metrics.queue_retry("hypervisor");
    metrics.write("Hypervisor", "status", Write::Applied);
    metrics.event(EventOutcome::Created);
    metrics.leader("4c28796a.cloud.sap", true);
    metrics.watch_objects("nodes", 1);
    metrics.watch_restart("nodes");
    metrics.watch_malformed("nodes");
    let (code, text) = admin.get("/metrics", "*/*").await;
    assert_eq!(code, 200);
    let names: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("_bucket{") || line.contains("+Inf"))
        .filter(|line| !line.starts_with("# EOF"))
        .collect();
    insta::assert_snapshot!(names.join("\n"));
}

/// More than one write of a socket takes.
struct Large;

#[async_trait]
impl Source for Large {
    async fn scrape(&self) -> String {
        "large 1\n".repeat(100_000)
    }
}

#[tokio::test]
async fn a_large_page_arrives_whole_and_its_length_is_said() {
    let admin = start().await;
    admin.metrics.source("large", Duration::from_secs(60), Large);
    admin.metrics.source("empty", Duration::from_secs(60), Nothing);
    let (head, body) = admin.raw("/metrics", "*/*").await;
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    assert_eq!(length, Some(body.len()), "{head}");
    assert!(body.ends_with("large 1\n# EOF\n") && body.matches("large 1\n").count() == 100_000);
    assert_eq!(body, admin.metrics.scrape().await);
}

struct Nothing;

#[async_trait]
impl Source for Nothing {
    async fn scrape(&self) -> String {
        String::new()
    }
}

#[test]
fn labels_are_bounded() {
    let metrics = Metrics::new();
    for n in 0..1000 {
        metrics.request("get", &format!("kind-{n}"), "2xx", std::time::Duration::ZERO);
    }
    let lines = metrics.encode().lines().filter(|line| line.starts_with("cobalt_api_requests_total")).count();
    assert!(lines <= 65, "{lines}");
    assert_eq!(metrics.requests("get", "other"), 936);
}
