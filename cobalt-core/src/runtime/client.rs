//! A Kubernetes client with limits, metrics and readable errors.
//!
//! kube's own client waits for ever by default. Here every request ends in time: an ordinary one, answer and body
//! together, within the request timeout; a watch must *begin* within it and is then limited by kube's watcher, which
//! gives a silent stream up.

use std::{
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited, combinators::UnsyncBoxBody};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::{args::KubeArgs, metrics::Metrics};

/// Larger than any answer the API server gives (it pages lists and limits objects to about 1.5 MB).
const MAX_BODY: usize = 256 * 1024 * 1024;

/// A client and what it talks to.
#[derive(Clone)]
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The address of the API server, for messages.
    pub url: String,
    /// The namespace of the pod or of the context.
    pub namespace: String,
}

impl Connection {
    /// Asks the server for its version: the way to learn early, and in plain words, that it cannot be reached.
    pub async fn probe(&self) -> Result<String, ClientError> {
        let version = self.client.apiserver_version().await;
        version.map(|version| version.git_version).map_err(|cause| match &cause {
            kube::Error::Api(_) => ClientError::Refused { url: self.url.clone(), cause: Box::new(cause) },
            _ => ClientError::Unreachable { url: self.url.clone(), cause: Box::new(cause) },
        })
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Builds a client from the arguments. Nothing is sent yet; see [`Connection::probe`].
///
/// `program` is the name in the `User-Agent` header (`cobalt-operator/0.1.0`), which is also what the API server calls
/// the writer of a request that names no field manager.
pub async fn connect(args: &KubeArgs, program: &str, metrics: Arc<Metrics>) -> Result<Connection, ClientError> {
    let config = config(args).await?;
    let url = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let agent = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
    let builder = ClientBuilder::try_from(with_limits(config, &agent))
        .map_err(|cause| ClientError::Build { url: url.clone(), cause: Box::new(cause) })?;
    let client = builder.with_layer(&limits(args.kube_request_timeout, metrics)).build();
    Ok(Connection { client, url, namespace })
}

/// The layer that limits and counts, for a client over a service of one's own (an in-process server, for instance).
///
/// ```
/// use cobalt_core::runtime::{client, metrics::Metrics};
/// use kube::client::ClientBuilder;
/// use std::{sync::Arc, time::Duration};
/// use tower::service_fn;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let metrics = Arc::new(Metrics::new());
/// let server = service_fn(|_request| async {
///     Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(b"{}".to_vec())))
/// });
/// let client = ClientBuilder::new(server, "default")
///     .with_layer(&client::limits(Duration::from_secs(5), metrics.clone()))
///     .build();
/// # let _ = client;
/// # });
/// ```
pub fn limits(timeout: Duration, metrics: Arc<Metrics>) -> LimitsLayer {
    LimitsLayer { timeout, metrics }
}

fn with_limits(mut config: Config, agent: &str) -> Config {
    config.connect_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(Duration::from_secs(30));
    // Longer than the silence kube's watcher tolerates (295 s): a stream is never cut from below it.
    config.read_timeout = Some(Duration::from_secs(330));
    config.reset_reader_on_write = true;
    if let Ok(value) = http::HeaderValue::from_str(agent) {
        config.headers.push((http::header::USER_AGENT, value));
    }
    config
}

/// The configuration the arguments stand for: of a kubeconfig, or of the pod's service account.
pub async fn config(args: &KubeArgs) -> Result<Config, ClientError> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    let Some(path) = &args.kubeconfig else {
        if args.context.is_some() {
            return Config::from_kubeconfig(&options)
                .await
                .map_err(|cause| ClientError::kubeconfig(PathBuf::from("$KUBECONFIG or ~/.kube/config"), args, cause));
        }
        return Config::infer().await.map_err(|cause| ClientError::NoConfig { cause: Box::new(cause) });
    };
    // An empty or cut file parses as an empty kubeconfig; reading it ourselves keeps the system's own words.
    let text = std::fs::read_to_string(path).map_err(|cause| ClientError::Unreadable { path: path.clone(), cause })?;
    if text.trim().is_empty() {
        return Err(ClientError::Empty { path: path.clone() });
    }
    let parsed = Kubeconfig::read_from(path).map_err(|cause| ClientError::kubeconfig(path.clone(), args, cause))?;
    Config::from_custom_kubeconfig(parsed, &options)
        .await
        .map_err(|cause| ClientError::kubeconfig(path.clone(), args, cause))
}

/// Makes a [`Limits`] around a client's service.
#[derive(Clone, Debug)]
pub struct LimitsLayer {
    timeout: Duration,
    metrics: Arc<Metrics>,
}

impl<S> Layer<S> for LimitsLayer {
    type Service = Limits<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limits { inner, timeout: self.timeout, metrics: self.metrics.clone() }
    }
}

/// Limits every request in time and counts it.
#[derive(Clone, Debug)]
pub struct Limits<S> {
    inner: S,
    timeout: Duration,
    metrics: Arc<Metrics>,
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<S, B> Service<Request<Body>> for Limits<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = Call::of(request.method(), request.uri());
        let (metrics, timeout) = (self.metrics.clone(), self.timeout);
        let began = Instant::now();
        let answer = self.inner.call(request);
        let streams = call.streams;
        let work = async move {
            let (head, body) = answer.await.map_err(Into::into)?.into_parts();
            let body = if streams {
                body.map_err(Into::into).boxed_unsync()
            } else {
                let whole = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
                Full::new(whole).map_err(|never| match never {}).boxed_unsync()
            };
            Ok(Response::from_parts(head, body))
        };
        Box::pin(async move {
            let result = match tokio::time::timeout(timeout, work).await {
                Ok(result) => result,
                Err(_) => Err(Box::new(RequestTimeout { timeout }) as BoxError),
            };
            let code = result.as_ref().map_or("error", |answer| class(answer.status().as_u16()));
            metrics.request(call.verb, &call.resource, code, began.elapsed());
            result
        })
    }
}

fn class(code: u16) -> &'static str {
    match code {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

/// A request that got no complete answer in time.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {timeout:?}")]
pub struct RequestTimeout {
    timeout: Duration,
}

/// What a request asks for, in Kubernetes words.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    verb: &'static str,
    resource: String,
    streams: bool,
}

impl Call {
    fn of(method: &http::Method, uri: &http::Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let has = |wanted: &str| query.split('&').any(|pair| pair == wanted);
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        // A base path before `/api` (a proxy, a shared gateway) is skipped.
        let skip = loop {
            match parts.next() {
                Some("api") => break 1,
                Some("apis") => break 2,
                Some(_) => {}
                None => return Self { verb: "get", resource: "meta".into(), streams: false },
            }
        };
        let mut rest: Vec<&str> = parts.skip(skip).collect();
        // `/namespaces/NAME` is a namespace, `/namespaces/NAME/KIND` is a kind in one.
        if rest.first() == Some(&"namespaces") && rest.len() > 2 && rest[2] != "status" && rest[2] != "finalize" {
            rest.drain(..2);
        }
        let named = rest.len() > 1;
        let resource = match rest.as_slice() {
            [] => "meta".to_owned(),
            [kind, _, subresource, ..] => format!("{kind}/{subresource}"),
            [kind, ..] => (*kind).to_owned(),
        };
        let watching = has("watch=true") || has("watch=1");
        let verb = match (method.as_str(), named) {
            ("GET", _) if watching => "watch",
            ("GET", true) => "get",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "other",
        };
        Self { verb, resource, streams: watching || has("follow=true") }
    }
}

/// Why there is no client, or no answer to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The kubeconfig file cannot be read.
    #[error("read kubeconfig {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// The kubeconfig file is empty.
    #[error("read kubeconfig {}: the file is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The context does not exist in the kubeconfig.
    #[error("use context {context:?} of kubeconfig {}: no such context", path.display())]
    UnknownContext {
        /// The file.
        path: PathBuf,
        /// The context asked for.
        context: String,
        /// What kube said.
        #[source]
        cause: Box<KubeconfigError>,
    },
    /// The kubeconfig is not one.
    #[error("use kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: Box<KubeconfigError>,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("find the Kubernetes API: no --kubeconfig, no usable $KUBECONFIG or ~/.kube/config, no service account")]
    NoConfig {
        /// What kube tried.
        #[source]
        cause: Box<kube::config::InferConfigError>,
    },
    /// The configuration makes no client: unreadable certificates, or TLS without a TLS stack.
    #[error("build a client for {url}")]
    Build {
        /// The server.
        url: String,
        /// What is wrong.
        #[source]
        cause: Box<kube::Error>,
    },
    /// The server does not answer.
    #[error("reach the Kubernetes API at {url}")]
    Unreachable {
        /// The server.
        url: String,
        /// What happened.
        #[source]
        cause: Box<kube::Error>,
    },
    /// The server answers, and refuses.
    #[error("ask the Kubernetes API at {url} for its version")]
    Refused {
        /// The server.
        url: String,
        /// What it said.
        #[source]
        cause: Box<kube::Error>,
    },
}

impl ClientError {
    fn kubeconfig(path: PathBuf, args: &KubeArgs, cause: KubeconfigError) -> Self {
        match (&args.context, &cause) {
            (Some(context), KubeconfigError::LoadContext(_)) => {
                Self::UnknownContext { path, context: context.clone(), cause: Box::new(cause) }
            }
            _ => Self::Kubeconfig { path, cause: Box::new(cause) },
        }
    }

    /// The class of the error.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { cause, .. } => super::api_category(cause),
            _ => "configuration",
        }
    }

    /// Whether waiting may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { cause, .. } => super::api_transient(cause),
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_in_kubernetes_words() {
        for (method, uri, verb, resource, streams) in [
            ("GET", "/api/v1/nodes", "list", "nodes", false),
            ("GET", "/api/v1/nodes?watch=true&timeoutSeconds=290", "watch", "nodes", true),
            ("GET", "/api/v1/nodes/node-1", "get", "nodes", false),
            ("GET", "/api/v1/namespaces/kube-system", "get", "namespaces", false),
            ("GET", "/api/v1/namespaces", "list", "namespaces", false),
            ("POST", "/apis/events.k8s.io/v1/namespaces/default/events", "create", "events", false),
            ("PATCH", "/apis/kvm.cloud.sap/v1/hypervisors/n1/status?force=true", "patch", "hypervisors/status", false),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "update", "leases", false),
            ("DELETE", "/k8s/clusters/c1/api/v1/namespaces/a/pods/b", "delete", "pods", false),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", "pods", false),
            ("GET", "/version", "get", "meta", false),
        ] {
            let call = Call::of(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(call, Call { verb, resource: resource.into(), streams }, "{method} {uri}");
        }
    }
}
