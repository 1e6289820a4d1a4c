//! The socket.

use std::{future::Future, time::Duration};

use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, task::JoinSet};

use super::{OpenStackApi, PATIENCE};

/// Connections at a time; more wait until one ends.
const MOST: usize = 1024;
/// Rest after a failure to accept: without file descriptors the next attempt fails at once.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn serve(
    api: &OpenStackApi,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            // Finished connections are forgotten as they end.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < MOST => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "connection not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Small answers go out at once.
        let _ = socket.set_nodelay(true);
        let api = api.clone();
        connections.spawn(async move {
            let service = service_fn(move |request: http::Request<Incoming>| {
                let api = api.clone();
                async move { api.answer(request).await }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            if let Err(error) = builder.serve_connection(TokioIo::new(socket), service).await {
                tracing::debug!(%peer, %error, "connection broken");
            }
        });
    }
    connections.shutdown().await;
    Ok(())
}
