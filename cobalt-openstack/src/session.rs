//! A login that is kept alive, and the way of every request.
//!
//! ```text
//!   call ─▶ slot and rate ─▶ token ─▶ attempt ─▶ answer
//!              ▲               ▲         │ 401: a new token
//!              │               └─────────┤
//!              └──── wait ◀──────────────┘ 429, 503, no connection
//! ```

mod catalog;
mod http;
mod limiter;
mod observer;
mod patience;
mod retry;
mod token;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use bytes::Bytes;
use cobalt_core::{Error as Seam, Result};
use serde_json::Value;
use tokio::{sync::Semaphore, time::Instant};
use tracing::{Instrument, field::Empty};
use url::Url;

pub use self::observer::{CallObserver, CallRecord};
use self::{catalog::Catalog, limiter::Limiter, patience::Patience, retry::Verdict, token::Login};
use crate::{
    cloud::Cloud,
    error::{ConnectionError, Error, HttpError},
    options::Options,
};

/// Keystone's revocations count in seconds: a token that was made in the second of one is rejected too.
const SAME_SECOND: Duration = Duration::from_millis(1100);

/// How long a token that is still good may take to be renewed: whoever calls waits for it.
const RENEWAL: Duration = Duration::from_secs(10);

const LOG_IN: &str = "log in to Keystone";

/// A service of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Identity,
    Compute,
    Placement,
    Image,
    Network,
}

impl Service {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Placement => "placement",
            Self::Image => "image",
            Self::Network => "network",
        }
    }

    /// The name in error texts.
    fn product(self) -> &'static str {
        match self {
            Self::Identity => "this Keystone",
            Self::Compute => "this Nova",
            Self::Placement => "this Placement",
            Self::Image => "this Glance",
            Self::Network => "this Neutron",
        }
    }
}

/// One call, with everything that is fixed about it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) service: Service,
    /// The name of the seam's method: bounded, for metrics.
    pub(crate) name: &'static str,
    /// What a person reads: the call with its arguments.
    pub(crate) operation: String,
    pub(crate) method: Method,
    /// Below the service's endpoint, encoded.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    /// Chosen per call, on purpose; empty for a service that has none.
    pub(crate) microversion: &'static str,
    pub(crate) body: Option<Value>,
}

impl Call {
    /// Whether it changes something. A console is read with a `POST`.
    fn writes(&self) -> bool {
        self.method != Method::GET && self.name != "console_output"
    }
}

/// A success.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// By what the service's own logs name this request.
    pub(crate) request_id: Option<String>,
    pub(crate) body: Bytes,
}

impl Answer {
    /// That it cannot be read, and which answer that was.
    pub(crate) fn malformed(&self, operation: impl Into<String>, detail: impl Into<String>) -> Seam {
        Seam::Malformed { operation: operation.into(), detail: detail.into(), cause: Some(Box::new(self.told())) }
    }

    fn told(&self) -> HttpError {
        let (status, request_id) = (self.status, self.request_id.clone());
        HttpError { status, message: String::new(), request_id, retry_after: None }
    }
}

/// How an attempt ended without one.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The service said no.
    Http(HttpError),
    /// The request was not sent.
    NotSent(ConnectionError),
    /// It was sent, and the connection broke.
    Broken(ConnectionError),
    Timeout(Duration),
    /// The answer cannot be read, and which one it was.
    Malformed(String, HttpError),
    /// The catalog does not lead where the configuration wants to go.
    NoEndpoint(String),
}

impl Failed {
    fn into_core(self, operation: String, service: Service) -> Seam {
        match self {
            Self::Http(error) => error.into_core(operation, service.product()),
            Self::NotSent(error) | Self::Broken(error) => Seam::unavailable(operation, error),
            Self::Timeout(after) => Seam::timeout(operation, after),
            Self::Malformed(detail, answer) => Seam::Malformed { operation, detail, cause: Some(Box::new(answer)) },
            Self::NoEndpoint(detail) => Seam::configuration(operation, detail),
        }
    }
}

/// One login to one cloud, shared by its clients.
pub(crate) struct Session {
    cloud: Cloud,
    options: Options,
    client: reqwest::Client,
    limits: Arc<Limits>,
    login: Mutex<Option<Arc<Login>>>,
    patience: Mutex<Patience>,
    /// Held while somebody logs in, so that others wait for the same token.
    logging_in: tokio::sync::Mutex<()>,
    observer: Option<Arc<dyn CallObserver>>,
}

/// What sessions may share: requests on their way, and their rate.
pub(crate) struct Limits {
    slots: Semaphore,
    limiter: Mutex<Limiter>,
}

impl Limits {
    pub(crate) fn new(options: &Options) -> Self {
        let limiter = Limiter::new(options.rate, options.burst, Instant::now());
        Self { slots: Semaphore::new(options.concurrency.max(1)), limiter: Mutex::new(limiter) }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("cloud", &self.cloud).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(
        cloud: &Cloud,
        options: Options,
        limits: Arc<Limits>,
        observer: Option<Arc<dyn CallObserver>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            client: http::client(cloud, &options)?,
            limits,
            login: Mutex::new(None),
            patience: Mutex::default(),
            logging_in: tokio::sync::Mutex::new(()),
            cloud: cloud.clone(),
            options,
            observer,
        })
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.clone()
    }

    /// Makes sure that there is a login, and that the catalog has what we need.
    pub(crate) async fn connect(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.call_timeout;
        let login = self.login(None, deadline).await.map_err(|error| Error::Login(Box::new(error)))?;
        for service in [Service::Compute, Service::Placement] {
            login.catalog.endpoint(service, &self.cloud)?;
        }
        Ok(())
    }

    /// The project that the login is for, if it is for one.
    pub(crate) async fn project(&self) -> Result<Option<String>> {
        let login = self.login(None, Instant::now() + self.options.call_timeout).await?;
        Ok(login.project.clone())
    }

    /// One request, as often as it takes.
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer> {
        self.send_before(call, Instant::now() + self.options.call_timeout).await
    }

    pub(crate) async fn send_before(&self, call: &Call, deadline: Instant) -> Result<Answer> {
        let started = Instant::now();
        let mut attempts = 0;
        let (service, name) = (call.service.as_str(), call.name);
        let span =
            tracing::info_span!("openstack", service, call = name, status = Empty, request_id = Empty, outcome = Empty);
        let outcome = self.attempts(call, deadline, &mut attempts).instrument(span.clone()).await;
        span.record("outcome", outcome.as_ref().map_or_else(Seam::category, |_| "ok"));
        if let Ok(answer) = &outcome {
            let (operation, request_id) = (call.operation.as_str(), answer.request_id.as_deref());
            let status = answer.status.as_u16();
            span.record("status", status);
            span.record("request_id", request_id);
            // A 202 is a promise: the id is what leads to what became of it.
            if call.writes() {
                tracing::info!(service, call = name, operation, status, request_id, "OpenStack took it");
            } else {
                tracing::debug!(service, call = name, operation, status, request_id, "OpenStack answered");
            }
        }
        if let Some(observer) = &self.observer {
            let outcome = outcome.as_ref().map_or_else(Seam::category, |_| "ok");
            let (service, elapsed) = (call.service.as_str(), started.elapsed());
            observer.observe(&CallRecord { service, call: call.name, outcome, attempts, elapsed });
        }
        outcome
    }

    async fn attempts(&self, call: &Call, deadline: Instant, attempts: &mut u32) -> Result<Answer> {
        let mut renewals = 0;
        loop {
            self.turn(call, deadline).await?;
            let login = self.login(None, deadline).await?;
            *attempts += 1;
            let failed = match self.attempt(call, &login, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if let Failed::Http(error) = &failed
                && error.status == StatusCode::UNAUTHORIZED
                && renewals < 2
            {
                tracing::debug!(call = call.name, request_id = error.request_id, "the token is not accepted any more");
                if renewals > 0 {
                    tokio::time::sleep(SAME_SECOND).await;
                }
                renewals += 1;
                self.login(Some(login.number), deadline).await?;
                continue;
            }
            let verdict = retry::verdict(&failed, &call.method, *attempts, &self.options);
            let Verdict::Wait(wait) = verdict else {
                return Err(failed.into_core(call.operation.clone(), call.service));
            };
            if matches!(&failed, Failed::Http(error) if error.retry_after.is_some()) {
                // It is tired of all of us, not of this call.
                self.limiter().pause(Instant::now() + wait);
            }
            if Instant::now() + wait >= deadline {
                return Err(failed.into_core(call.operation.clone(), call.service));
            }
            tracing::debug!(call = call.name, ?failed, ?wait, attempt = *attempts, "trying again");
            tokio::time::sleep(wait).await;
        }
    }

    /// Waits for our turn under the rate.
    async fn turn(&self, call: &Call, deadline: Instant) -> Result<()> {
        let now = Instant::now();
        let at = self.limiter().reserve(now);
        if at >= deadline {
            return Err(Seam::Unavailable {
                operation: call.operation.clone(),
                retry_after: Some(at - now),
                cause: Some("the cloud asked for a pause, or we ask too much of it".into()),
            });
        }
        tokio::time::sleep_until(at).await;
        Ok(())
    }

    async fn attempt(&self, call: &Call, login: &Login, deadline: Instant) -> Result<Answer, Failed> {
        let endpoint = login.catalog.endpoint(call.service, &self.cloud);
        let endpoint = endpoint.map_err(|error| {
            Failed::NoEndpoint(match error {
                Error::Configuration { detail, .. } => detail,
                other => other.to_string(),
            })
        })?;
        let mut request = reqwest::Request::new(call.method.clone(), address(&endpoint, &call.path, &call.query));
        let headers = request.headers_mut();
        headers.insert("x-auth-token", login.token.clone());
        version(headers, call);
        if let Some(body) = &call.body {
            headers.insert(::http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.to_string().into());
        }
        let (answer, _) = self.exchange(request, deadline).await?;
        Ok(answer)
    }

    /// One request and its answer, bounded in time and size.
    async fn exchange(&self, request: reqwest::Request, deadline: Instant) -> Result<(Answer, HeaderMap), Failed> {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = self.options.attempt_timeout.min(left);
        let exchange = async {
            // Slots are never closed; a permit is for the time of the exchange only, not for waits between attempts.
            let _slot = self.limits.slots.acquire().await;
            http::exchange(&self.client, request, self.options.max_body).await
        };
        tokio::time::timeout(limit, exchange).await.unwrap_or(Err(Failed::Timeout(limit)))
    }

    /// The login to use: the one there is, or a new one when there is none, it is near its end, or it is the one
    /// that was `rejected`.
    async fn login(&self, rejected: Option<u64>, deadline: Instant) -> Result<Arc<Login>> {
        let current = || self.current().filter(|login| Some(login.number) != rejected);
        let will_do =
            |login: &Arc<Login>, now| login.is_fresh(now) || login.is_valid(now) && !self.patience().may_renew(now);
        let now = Instant::now();
        let known = current().filter(|login| login.is_valid(now));
        if let Some(login) = known.as_ref().filter(|login| will_do(login, now)) {
            return Ok(login.clone());
        }
        let _turn = match (self.logging_in.try_lock(), known) {
            (Ok(turn), _) => turn,
            // Somebody else renews it, and it is good meanwhile.
            (Err(_), Some(login)) => return Ok(login),
            (Err(_), None) => {
                let turn = tokio::time::timeout_at(deadline, self.logging_in.lock()).await;
                turn.map_err(|_| Seam::timeout(LOG_IN, self.options.call_timeout))?
            }
        };
        let now = Instant::now();
        let current = current();
        if let Some(login) = current.as_ref().filter(|login| will_do(login, now)) {
            return Ok(login.clone());
        }
        let number = current.as_ref().map(|login| login.number).or(rejected).unwrap_or(0) + 1;
        let Some(spare) = current.filter(|login| login.is_valid(now)) else {
            return self.log_in(number, deadline, self.options.attempts).await;
        };
        // What we have is good for a while: Keystone gets one chance, and the call keeps most of its time.
        let limit = RENEWAL.min(deadline.saturating_duration_since(now) / 3);
        match self.log_in(number, now + limit, 1).await {
            Ok(login) => Ok(login),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot renew the token yet");
                self.patience().not_renewed(Instant::now());
                Ok(spare)
            }
        }
    }

    async fn log_in(&self, number: u64, deadline: Instant, most: u32) -> Result<Arc<Login>> {
        let mut attempts = 0;
        loop {
            if let Some(held_back) = self.patience().held_back(Instant::now()) {
                return Err(Seam::Denied { operation: LOG_IN.to_owned(), cause: Some(Box::new(held_back)) });
            }
            let limit = deadline.saturating_duration_since(Instant::now());
            let proof = tokio::time::timeout_at(deadline, self.cloud.credentials.prove(&self.cloud.scope)).await;
            let proof = proof.map_err(|_| Seam::timeout(LOG_IN, limit))??;
            let mut request = reqwest::Request::new(Method::POST, address(&self.cloud.auth_url, "/auth/tokens", &[]));
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(::http::header::CONTENT_TYPE, json);
            *request.body_mut() = Some(proof.to_string().into());
            attempts += 1;
            let asked = Instant::now();
            let failed = match self.exchange(request, deadline).await {
                Ok((answer, headers)) => match Login::read(&answer.body, &headers, number, asked, &self.options) {
                    Ok(login) => return Ok(self.logged_in(login)),
                    Err(detail) => Failed::Malformed(detail, answer.told()),
                },
                Err(failed) => failed,
            };
            if let Failed::Http(error) = &failed
                && error.status == StatusCode::UNAUTHORIZED
            {
                self.patience().refused(error, Instant::now());
            }
            // A login may be repeated: at worst there is one token more.
            match retry::verdict(&failed, &Method::GET, attempts, &self.options) {
                Verdict::Wait(wait) if attempts < most && Instant::now() + wait < deadline => {
                    tokio::time::sleep(wait).await;
                }
                _ => return Err(failed.into_core(LOG_IN.to_owned(), Service::Identity)),
            }
        }
    }

    fn logged_in(&self, login: Login) -> Arc<Login> {
        tracing::debug!(cloud = %self.cloud.auth_url, request_id = login.request_id, "logged in");
        self.patience().logged_in();
        let login = Arc::new(login);
        *self.login.lock().unwrap_or_else(PoisonError::into_inner) = Some(login.clone());
        login
    }

    fn patience(&self) -> std::sync::MutexGuard<'_, Patience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<Login>> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn limiter(&self) -> std::sync::MutexGuard<'_, Limiter> {
        self.limits.limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version(headers: &mut HeaderMap, call: &Call) {
    if call.microversion.is_empty() {
        return;
    }
    let text = format!("{} {}", call.service.as_str(), call.microversion);
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert("openstack-api-version", value);
    }
    if call.service == Service::Compute {
        headers.insert("x-openstack-nova-api-version", HeaderValue::from_static(call.microversion));
    }
}

fn address(base: &Url, path: &str, query: &[(&'static str, String)]) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_below_any_endpoint() {
        for (base, wanted) in [
            ("http://a/v2.1", "http://a/v2.1/servers?host=hv-1"),
            ("http://a/v2.1/", "http://a/v2.1/servers?host=hv-1"),
            ("http://a", "http://a/servers?host=hv-1"),
            ("http://a/nova/v2.1/4711", "http://a/nova/v2.1/4711/servers?host=hv-1"),
        ] {
            let url = address(&Url::parse(base).unwrap(), "/servers", &[("host", "hv-1".into())]);
            assert_eq!(url.as_str(), wanted);
        }
    }
}
