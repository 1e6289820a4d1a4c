//! Questions to one host's switch, over HTTPS: why does this packet not arrive, what passes this port, what is wrong.
//!
//! | Request under `/v1` | Right (`ovs.c5c3.io`) | Answer |
//! |---|---|---|
//! | `POST trace` | `create ovsnodes/trace` | a packet's way through the tables, and a verdict |
//! | `POST capture` | `create ovsnodes/capture` | a pcap file as it is made; leaving ends it |
//! | `POST captures`, `GET captures` | `create ovsnodes/capture` | starts a small capture to be fetched later; the caller's |
//! | `GET captures/{id}`, `DELETE captures/{id}` | `create ovsnodes/capture` | its pcap file; its end |
//! | `GET flows?bridge=&table=&limit=` | `get ovsnodes/diagnose` | flows, a JSON object per line |
//! | `GET bridges`, `bonds`, `fdb?bridge=` | `get ovsnodes/diagnose` | what the switch has |
//! | `GET ports/{name}` | `get ovsnodes/diagnose` | a port, and what is wrong with it in words |
//! | `GET doctor` | `get ovsnodes/diagnose` | everything that is wrong, in words |
//! | `POST stale-flows`, `GET stale-flows` | `get ovsnodes/diagnose` | asks for a look for stale flows; what the last one found |
//!
//! ```text
//!   TLS ──▶ limits ──▶ guard (TokenReview, SubjectAccessReview) ──▶ resolve (names → ports, pure) ──▶ OvsInspector
//!                        │                                                                            │
//!                        └── 401, 403, 503                    diagnose (snapshot → words, pure) ◀─────┘
//! ```
//!
//! Rights are asked for on the OVSNode of the host. What a caller writes never reaches the switch as text: names are
//! looked up in a snapshot, addresses are parsed and written anew. Each trace and capture is an Event on the OVSNode
//! with the caller's name, and a line in the log. Of reads every one is in the log, and the first of a caller in a while
//! is an Event.
//!
//! [`Endpoints`] is the server, [`wire`] the JSON it speaks, [`resolve`] and [`diagnose`] the pure parts.

mod answer;
mod args;
mod audit;
mod capture;
pub mod diagnose;
mod guard;
mod peers;
pub mod resolve;
mod routes;
mod server;
mod tls;
pub mod wire;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use kube::Client;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_rustls::TlsAcceptor;

pub use self::{
    args::EndpointArgs,
    capture::CaptureLimits,
    guard::GuardLimits,
    server::ConnectionLimits,
    tls::{TlsError, TlsSource},
};
use self::{audit::Auditor, capture::Captures, guard::Guard, routes::Parts, tls::Certificates};
use super::{Config, Demand};
use crate::{
    api::Troubleshooting,
    ovs::OvsInspector,
    runtime::{
        clock::Clock,
        events::Recorder,
        metrics::Metrics,
        shutdown::{Shutdown, TaskError},
        watch::ObjectKey,
    },
};

/// Everything that is bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections and requests.
    pub connections: ConnectionLimits,
    /// Tokens and rights.
    pub guard: GuardLimits,
    /// Captures.
    pub captures: CaptureLimits,
    /// How many questions are put to the switch at a time.
    pub questions: usize,
    /// How many flows an answer has at most.
    pub flows: u64,
    /// The longest time to read them.
    pub flows_time: Duration,
    /// How many such readings run at a time.
    pub dumps: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: ConnectionLimits::default(),
            guard: GuardLimits::default(),
            captures: CaptureLimits::default(),
            questions: 4,
            flows: 200_000,
            flows_time: Duration::from_secs(120),
            dumps: 2,
        }
    }
}

/// The server.
///
/// ```no_run
/// use cobalt_core::{
///     agent::ovs::endpoints::{Endpoints, TlsSource}, ovs::OvsInspector,
///     runtime::{shutdown::{Shutdown, TaskError}, watch::ObjectKey},
/// };
/// use std::sync::Arc;
///
/// # async fn example(client: kube::Client, switch: Arc<dyn OvsInspector>, stop: Shutdown) -> Result<(), TaskError> {
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:9443").await?;
/// let node = ObjectKey::namespaced("ovn-system", "node-1");
/// let endpoints = Endpoints::new(client, node, switch).tls(TlsSource::SelfSigned(vec!["node-1".into()]));
/// let published = endpoints.published(); // for the status of the OVSNode
/// # let _ = published;
/// endpoints.serve(listener, [192, 0, 2, 1].into(), stop).await
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoints {
    client: Client,
    object: ObjectKey,
    switch: Arc<dyn OvsInspector>,
    config: Config,
    demand: Option<Demand>,
    tls: TlsSource,
    server_name: String,
    audience: Option<String>,
    recorder: Recorder,
    clock: Clock,
    metrics: Arc<Metrics>,
    limits: Limits,
    certificates: Certificates,
    told: watch::Sender<Option<Troubleshooting>>,
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("object", &self.object).field("tls", &self.tls).finish_non_exhaustive()
    }
}

impl Endpoints {
    /// Answers about this switch whoever has rights on this OVSNode. The client must give up on a silent server.
    pub fn new(client: Client, object: ObjectKey, switch: Arc<dyn OvsInspector>) -> Self {
        let name = object.name.clone();
        Self {
            client,
            object,
            switch,
            config: Config::new(name.clone()),
            demand: None,
            tls: TlsSource::SelfSigned(vec![name.clone()]),
            server_name: name,
            audience: None,
            recorder: Recorder::silent(),
            clock: Clock::system(),
            metrics: Arc::default(),
            limits: Limits::default(),
            certificates: Certificates::new(),
            told: watch::Sender::new(None),
        }
    }

    /// Judges the switch as this agent does; as one with the usual configuration unless told.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Has an agent look for stale flows when somebody asks; nobody looks unless told.
    #[must_use]
    pub fn demand(mut self, demand: Demand) -> Self {
        self.demand = Some(demand);
        self
    }

    /// Takes the certificate from there.
    #[must_use]
    pub fn tls(mut self, source: TlsSource) -> Self {
        self.tls = source;
        self
    }

    /// Tells clients to expect this name in the certificate; the node's unless told.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = name.into();
        self
    }

    /// Takes tokens that are meant for this audience only; for the API server unless told.
    #[must_use]
    pub fn audience(mut self, audience: Option<String>) -> Self {
        self.audience = audience;
        self
    }

    /// Sends Events there.
    #[must_use]
    pub fn recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = recorder;
        self
    }

    /// Tells the time by this clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Counts there.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Keeps these bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What to publish in the OVSNode's status, now and when it changes: nothing while nobody answers.
    pub fn published(&self) -> Published {
        Published(self.told.subscribe())
    }

    /// The routes without TLS, for a server of one's own. What they start ends with `stop`. A server that tells whom it
    /// serves ([`ConnectInfo`](axum::extract::ConnectInfo)) has each address held to its part of what is allowed.
    pub fn router(&self, stop: &Shutdown) -> Router {
        let Self { client, object, limits, .. } = self;
        let auditor = Auditor::new(client.clone(), object.clone(), self.recorder.clone());
        routes::router(Arc::new(Parts {
            switch: self.switch.clone(),
            config: self.config.clone(),
            demand: self.demand.clone(),
            guard: Guard::new(client.clone(), object.clone(), self.audience.clone(), limits.guard.clone()),
            captures: Captures::new(limits.captures.clone(), auditor.clone(), stop.child()),
            auditor,
            clock: self.clock.clone(),
            questions: Semaphore::new(limits.questions.max(1)),
            dumps: Arc::new(Semaphore::new(limits.dumps.max(1))),
            limits: limits.clone(),
        }))
    }

    /// Serves until `stop`. Clients reach this listener at this address.
    pub async fn serve(self, listener: TcpListener, address: IpAddr, stop: Shutdown) -> Result<(), TaskError> {
        let acceptor = TlsAcceptor::from(Arc::new(self.certificates.server_config()?));
        let described = Troubleshooting {
            url: format!("https://{}", SocketAddr::new(address, listener.local_addr()?.port())),
            server_name: Some(self.server_name.clone()),
            ca_bundle: None,
            audience: self.audience.clone(),
        };
        let router = self.router(&stop);
        let limits = self.limits.connections.clone();
        let mut authority = self.certificates.authority();
        let told = self.told;
        let tell = async {
            loop {
                let pem = authority.borrow_and_update().clone();
                told.send_replace(pem.map(|pem| Troubleshooting { ca_bundle: Some(pem), ..described.clone() }));
                if authority.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let certificates = self.certificates.run(self.tls, self.client, self.clock, self.metrics, stop.clone());
        let served = async {
            tokio::select! {
                () = server::serve(listener, acceptor, router, limits, &stop) => Ok(()),
                never = tell => never,
            }
        };
        tokio::try_join!(certificates, served).map(|_| ())
    }
}

/// What the OVSNode's status says of the endpoints.
#[derive(Clone, Debug)]
pub struct Published(watch::Receiver<Option<Troubleshooting>>);

impl Published {
    /// What to publish now.
    pub fn get(&self) -> Option<Troubleshooting> {
        self.0.borrow().clone()
    }

    /// Waits for the next change. It never ends once the server has.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
