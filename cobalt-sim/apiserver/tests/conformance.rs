//! The conformance suite against the simulated server, on both transports, and against a real one where there is one.
#![cfg(feature = "conformance")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write;
use std::net::SocketAddr;

use cobalt_apiserver::conformance::envtest::{Assets, Envtest};
use cobalt_apiserver::conformance::{self, Capabilities, Outcome, Report, Target};
use cobalt_apiserver::faults::{Effect, Fault, Matcher};
use cobalt_apiserver::{ApiServer, Identity, Verb};
use http::{HeaderValue, Request};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::ServiceExt;

const ADMIN: &str = "token-of-the-admin";
const VISITOR: &str = "token-of-the-visitor";

fn server() -> ApiServer {
    ApiServer::builder().token(ADMIN, Identity::admin("admin")).token(VISITOR, visitor()).rbac().start()
}

fn visitor() -> Identity {
    Identity::new("visitor", ["system:authenticated"])
}

/// The counts and the skipped checks are said aloud, past the capture of test output; the table of a run that
/// failed is shown by the test runner.
fn judge(report: &Report) {
    println!("{report}");
    let mut aloud = std::io::stderr().lock();
    writeln!(aloud, "conformance of {}: {}", report.server, report.summary()).unwrap();
    for (id, reason) in report.skips() {
        writeln!(aloud, "SKIPPED check {id} of {}: {reason}", report.server).unwrap();
    }
    assert!(report.is_success(), "{}", report.summary());
}

// Time is virtual here: a watch that lasts eight seconds takes none.
#[tokio::test(start_paused = true)]
async fn the_simulated_server_in_process_conforms() {
    let server = server();
    let admin = Client::new(server.service_as("admin", Identity::admin("admin")), "default");
    let visitor = Client::new(server.service_as("visitor", visitor()), "default");
    let stranger = server.service("stranger").map_request(|mut request: Request<_>| {
        request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer nobody-knows-this"));
        request
    });
    let capabilities = Capabilities::detect(&admin).await.unwrap();
    let target = Target::new("the simulated server in process", "conformance", admin)
        .with_unprivileged("visitor", visitor)
        .with_unknown_token(Client::new(stranger, "default"))
        .with_capabilities(capabilities);
    judge(&conformance::run(&target).await);
}

// A suite that cannot fail proves nothing.
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_otherwise_fails_exactly_the_checks_concerned() {
    let server = server();
    let wrong = Matcher::client("admin").verb(Verb::DeleteCollection);
    server.faults().set([Fault::new(wrong, Effect::Status { code: 500, retry_after: None })]);
    let admin = Client::new(server.service_as("admin", Identity::admin("admin")), "default");
    let report = conformance::run(&Target::new("a broken server", "broken", admin)).await;
    let failed: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| matches!(check.outcome, Outcome::Failed { .. }))
        .map(|check| check.id)
        .collect();
    assert_eq!(failed, ["delete-collection"], "{report}");
    assert!(!report.is_success());
    // No identities were given: these checks say so instead of passing.
    let skipped: Vec<&str> = report.skips().map(|(id, _)| id).collect();
    assert_eq!(skipped, ["unknown-token", "no-rights", "no-rights-write", "rbac-grant"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_server_on_a_socket_conforms() {
    let server = server();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener, async { drop(stopped.await) }).await }
    });
    let admin = client(&server, address, ADMIN).await;
    let capabilities = Capabilities::detect(&admin).await.unwrap();
    let target = Target::new("the simulated server on a socket", "conformance", admin)
        .with_unprivileged("visitor", client(&server, address, VISITOR).await)
        .with_unknown_token(client(&server, address, "nobody-knows-this").await)
        .with_capabilities(capabilities);
    judge(&conformance::run(&target).await);
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}

async fn client(server: &ApiServer, address: SocketAddr, token: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig_with_token(address, token)).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    // One check wants to see a 504, not to have it retried.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_conforms() {
    let assets = match Assets::from_environment() {
        Ok(assets) => assets,
        Err(error) if error.is_not_configured() => {
            let mut aloud = std::io::stderr().lock();
            writeln!(aloud, "\nSKIPPED conformance of a real kube-apiserver: {error}").unwrap();
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let server = Envtest::start(&assets).await.unwrap();
    judge(&conformance::run(&server.target().await.unwrap()).await);
}
