//! The listener: TLS, one request per connection, everything bounded.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::ConnectInfo};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tower::Service;

use super::peers::{self, Seats};
use crate::runtime::shutdown::Shutdown;

/// How long an answer in flight may take when the agent ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A pause after the system refused a connection (too many open files), so that the loop does not spin.
const BREATH: Duration = Duration::from_millis(200);

/// What connections may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many are open at a time; others wait to be accepted.
    pub open: usize,
    /// How many of them from one address; more are hung up on. An IPv6 network of 64 bits is one address.
    pub open_per_peer: usize,
    /// The longest time for the TLS handshake, and again for the head of the request.
    pub greeting: Duration,
    /// The longest head of a request in bytes.
    pub head_bytes: usize,
    /// The longest body of a request in bytes.
    pub body_bytes: usize,
    /// The longest time from the head of a request to the head of its answer.
    pub answer: Duration,
    /// The longest life of a connection, which bounds slow readers.
    pub life: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            open: 64,
            open_per_peer: 16,
            greeting: Duration::from_secs(10),
            head_bytes: 32 << 10,
            body_bytes: 64 << 10,
            answer: Duration::from_secs(30),
            life: Duration::from_secs(600),
        }
    }
}

/// Serves until `stop`, then lets what is in flight end, briefly.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    router: Router,
    limits: ConnectionLimits,
    stop: &Shutdown,
) {
    let places = Arc::new(Semaphore::new(limits.open.max(1)));
    let seats = Seats::default();
    let limits = Arc::new(limits);
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            () = stop.triggered() => break,
            place = places.clone().acquire_owned() => place,
        };
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            () = stop.triggered() => break,
            accepted = listener.accept() => accepted,
        };
        // Those that have ended are forgotten, so that the set stays as small as the semaphore.
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let Some(seat) = seats.take(peers::place(peer.ip()), limits.open_per_peer.max(1)) else {
            tracing::debug!(%peer, "a connection too many from one address");
            continue;
        };
        let (acceptor, router, limits, stop) = (acceptor.clone(), router.clone(), limits.clone(), stop.clone());
        connections.spawn(async move {
            let served = connection(stream, peer, &acceptor, router, &limits, &stop);
            if timeout(limits.life, served).await.is_err() {
                tracing::debug!(%peer, "a connection took too long");
            }
            drop((place, seat));
        });
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    // Dropping the set ends what is left.
    let _ = timeout(LAST_WORDS, ended).await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: &TlsAcceptor,
    router: Router,
    limits: &ConnectionLimits,
    stop: &Shutdown,
) {
    let stream = match timeout(limits.greeting, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.greeting)
        .max_buf_size(limits.head_bytes.max(8192))
        .max_headers(64)
        // One request per connection: nothing idles, and a slow reader holds one place only.
        .keep_alive(false);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        // A router is always ready.
        router.clone().call(request)
    });
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let result = tokio::select! {
        result = &mut served => result,
        () = stop.triggered() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}
