//! Clients: bad configurations, timeouts, counting.

use std::{
    error::Error,
    future::{Future, pending},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cobalt_core::runtime::{
    api_category,
    args::KubeArgs,
    client::{self, ClientError},
    metrics::Metrics,
};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, WatchParams},
    client::{Body, ClientBuilder},
};
use tower::{BoxError, service_fn};

fn kubeconfig(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

fn valid(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
         contexts: [{{name: a, context: {{cluster: c, user: u, namespace: monsoon3}}}}]\n\
         users: [{{name: u, user: {{}}}}]\n"
    )
}

async fn connect(path: PathBuf, context: Option<&str>) -> Result<client::Connection, ClientError> {
    let args = KubeArgs { kubeconfig: Some(path), context: context.map(Into::into), ..KubeArgs::default() };
    client::connect(&args, "cobalt-test", Arc::new(Metrics::new())).await
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let error = connect("/nonexistent/kubeconfig".into(), None).await.unwrap_err();
    assert_eq!(error.to_string(), "read kubeconfig /nonexistent/kubeconfig");
    assert!(error.source().unwrap().to_string().contains("No such file"));
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_kubeconfig_that_is_none_is_refused() {
    for text in ["", "  \n", "{{{", "- just\n- a list\n", "clusters: 5\n", "apiVersion: v1\nkind: Config\n"] {
        let (_dir, path) = kubeconfig(text);
        let error = connect(path.clone(), None).await.unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{text:?}: {error}");
        assert_eq!(error.category(), "configuration", "{text:?}");
    }
}

#[tokio::test]
async fn an_unknown_context_is_named() {
    let (_dir, path) = kubeconfig(&valid("http://127.0.0.1:1"));
    let error = connect(path.clone(), Some("production")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("use context \"production\" of kubeconfig {}: no such context", path.display())
    );
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    let (_dir, path) = kubeconfig(&valid("http://127.0.0.1:1"));
    let connection = connect(path, None).await.unwrap();
    assert_eq!(connection.namespace, "monsoon3");
    let error = connection.probe().await.unwrap_err();
    assert_eq!(error.to_string(), "reach the Kubernetes API at http://127.0.0.1:1/");
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_client_over_a_socket_writes_under_the_name_of_its_program() {
    let server = cobalt_apiserver::ApiServer::start();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_dir, path) = kubeconfig(&server.kubeconfig(listener.local_addr().unwrap()));
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener, pending()).await }
    });
    let connection = connect(path, None).await.unwrap();
    assert!(connection.probe().await.unwrap().starts_with('v'));
    let nodes: Api<Node> = Api::all(connection.client);
    let node: Node =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "node-1"}, "spec": {"unschedulable": true}}))
            .unwrap();
    let created = nodes.create(&kube::api::PostParams::default(), &node).await.unwrap();
    assert_eq!(created.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("cobalt-test"));
    serving.abort();
}

fn over<F, R>(metrics: &Arc<Metrics>, answer: F) -> Client
where
    F: Fn(Request<Body>) -> R + Clone + Send + 'static,
    R: Future<Output = Result<Response<Body>, BoxError>> + Send + 'static,
{
    ClientBuilder::new(service_fn(answer), "default")
        .with_layer(&client::limits(Duration::from_secs(20), metrics.clone()))
        .build()
}

fn no_nodes() -> Response<Body> {
    Response::new(Body::from(br#"{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}"#.to_vec()))
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_ends_in_time() {
    let metrics = Arc::new(Metrics::new());
    let nodes: Api<Node> = Api::all(over(&metrics, |_| pending()));
    let began = tokio::time::Instant::now();
    let error = nodes.get("node-1").await.unwrap_err();
    assert_eq!(api_category(&error), "timeout");
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    assert_eq!(metrics.requests("get", "nodes"), 1);
    assert!(metrics.encode().contains(r#"verb="get",resource="nodes",code="error""#));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_begin_ends_in_time() {
    let metrics = Arc::new(Metrics::new());
    let nodes: Api<Node> = Api::all(over(&metrics, |_| pending()));
    let error = nodes.watch(&WatchParams::default(), "0").await.map(drop).unwrap_err();
    assert_eq!(api_category(&error), "timeout");
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_resource() {
    let metrics = Arc::new(Metrics::new());
    let nodes: Api<Node> = Api::all(over(&metrics, |_| async { Ok(no_nodes()) }));
    nodes.list(&ListParams::default()).await.unwrap();
    nodes.list(&ListParams::default()).await.unwrap();
    assert_eq!((metrics.requests("list", "nodes"), metrics.requests("get", "nodes")), (2, 0));
}
