//! One request from its head to its answer, and the in-process transport.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use tokio::time::sleep;

use super::body::{self, ResponseBody};
use super::page;
use super::params::{Params, negotiate};
use super::protobuf;
use super::response;
use super::route::{Route, route};
use crate::auth::{self, Identity};
use crate::discovery;
use crate::faults::{Effect, Facts, Injected};
use crate::server::Inner;
use crate::status::{ApiError, ApiResult};
use crate::table;
use crate::verbs::{self, Call, Target, Verb};
use crate::watch;

/// Why there is no answer at all.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// An injected fault broke the connection after the request was executed.
    #[error("connection closed before the answer by an injected fault")]
    Dropped,
}

impl ServiceError {
    /// Bounded label for metrics and logs.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Dropped => "Dropped",
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        true
    }
}

/// The in-process transport of one client: a [`tower::Service`] to hand to `kube::Client::new`.
///
/// Nothing is spawned for a request. Dropping the answer's body ends a watch.
#[derive(Debug, Clone)]
pub struct ApiService {
    server: Arc<Inner>,
    client: Arc<str>,
    identity: Arc<Identity>,
}

impl ApiService {
    pub(crate) fn new(server: Arc<Inner>, client: String, identity: Identity) -> Self {
        Self { server, client: client.into(), identity: Arc::new(identity) }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<ResponseBody>;
    type Error = ServiceError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { server, client, identity } = self.clone();
        async move {
            let caller = Caller::Local { client, identity };
            handle(&server, &caller, request).await
        }
        .boxed()
    }
}

/// Where a request comes from.
pub(super) enum Caller {
    Local { client: Arc<str>, identity: Arc<Identity> },
    Remote,
}

/// Reads, routes and answers a request.
pub(super) async fn handle<B>(
    server: &Arc<Inner>,
    caller: &Caller,
    request: Request<B>,
) -> Result<Response<ResponseBody>, ServiceError>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let (mut parts, body) = request.into_parts();
    let head = parts.method == Method::HEAD;
    let answer = match body::read(body).await {
        Ok(body) => {
            let body = protobuf::translate(&mut parts.headers, body);
            match attend(server, caller, &parts, &body).await {
                Ok(answer) => answer?,
                Err(error) => response::error(&error),
            }
        }
        Err(error) => response::error(&error),
    };
    // Documents of other paths are JSON whatever is asked for.
    let yaml = parts.uri.path().starts_with("/api") && negotiate(&parts.headers, false).is_ok_and(|wanted| wanted.yaml);
    let answer = if yaml { response::as_yaml(answer) } else { answer };
    Ok(if head { answer.map(|_| ResponseBody::whole(Bytes::new())) } else { answer })
}

/// The outer result is a refusal told to the client, the inner one a broken connection.
type Outcome = ApiResult<Result<Response<ResponseBody>, ServiceError>>;

async fn attend(server: &Arc<Inner>, caller: &Caller, parts: &Parts, body: &[u8]) -> Outcome {
    let headers = &parts.headers;
    let local = match caller {
        Caller::Local { identity, .. } => Some(identity.as_ref()),
        Caller::Remote => None,
    };
    let identity = server.auth.authenticate(headers, local, |token| auth::tokens::identify(server, token))?;
    let client = match caller {
        Caller::Local { client, .. } => client.to_string(),
        Caller::Remote => auth::client_name(headers, &identity, headers.contains_key(AUTHORIZATION)),
    };
    let identity = auth::impersonate(server, identity, headers)?;
    let params = Params::parse(parts.uri.query().unwrap_or_default());
    let watch = params.flag("watch");
    match route(&server.registry, &parts.method, parts.uri.path(), watch)? {
        Route::Document(path) => {
            auth::authorize_path(server, &identity, &parts.method, parts.uri.path())?;
            if let Some(page) = page::find(server, &path, &params, headers)? {
                return Ok(Ok(page));
            }
            let document = discovery::document(server, &path, headers)?;
            Ok(Ok(match document {
                discovery::Document::Json(value) => response::json(StatusCode::OK, &value),
                discovery::Document::Text(page) => response::text(StatusCode::OK, page),
            }))
        }
        Route::Resource(target) => {
            let facts = Facts::new(&client, &target);
            let counter = server.counters.request(&client, &target);
            auth::authorize(server, &identity, &target, &params)?;
            let call = Call {
                server,
                target: &target,
                params: &params,
                headers,
                body,
                identity: &identity,
                form: table::requested(negotiate(headers, target.verb == Verb::Watch)?.form, &params)?,
            };
            let injected = server.faults.on(&facts);
            before(server, &facts, &injected).await?;
            if target.verb == Verb::Watch && target.subresource.is_none() {
                let lines = watch::open(server, &call, facts, &injected)?;
                return Ok(Ok(response::stream(ResponseBody::stream(lines))));
            }
            let answer = verbs::execute(&call);
            if answer.as_ref().is_ok_and(|a| a.changed) {
                server.counters.write(&counter);
            }
            trace(&facts, &target, answer.as_ref().err().map(AsRef::as_ref));
            if let Some(fault) = injected.crash_after {
                server.faults.signal_crash(fault, Effect::CrashAfter, facts);
                never().await;
            }
            if injected.drop_response {
                return Ok(Err(ServiceError::Dropped));
            }
            let answer = table::answer(&call, answer?);
            Ok(Ok(response::answer(&target.resource, call.form, answer)))
        }
    }
}

/// Faults that hit before the request is executed.
async fn before(server: &Inner, facts: &Facts, injected: &Injected) -> ApiResult<()> {
    if !injected.latency.is_zero() {
        sleep(injected.latency).await;
    }
    if let Some(fault) = injected.crash_before {
        server.faults.signal_crash(fault, Effect::CrashBefore, facts.clone());
        never().await;
    }
    if let Some((code, retry_after)) = injected.status {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return Err(ApiError::injected(code, retry_after));
    }
    Ok(())
}

/// The client waits for an answer that never comes; only its own end ends this.
async fn never() {
    let _: Infallible = pending().await;
}

fn trace(facts: &Facts, target: &Target, error: Option<&ApiError>) {
    tracing::trace!(
        client = %facts.client,
        verb = target.verb.name(),
        resource = %facts.resource,
        namespace = %facts.namespace,
        name = %facts.name,
        refused = error.map_or("", ApiError::category),
        "request"
    );
}
