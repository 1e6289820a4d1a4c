//! The socket transport.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::service::{Caller, handle};
use crate::server::Inner;

/// Rest after a failure to accept. Without file descriptors the next attempt fails at once, and no event tells when
/// there are some again.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `shutdown`, then closes all of them.
pub(crate) async fn serve(
    server: Arc<Inner>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    let (stop, stopped) = watch::channel(());
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
            // Finished connections are forgotten as they end.
            Some(_) = connections.join_next() => continue,
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
        let server = server.clone();
        let mut stopped = stopped.clone();
        connections.spawn(async move {
            let service = service_fn(move |request: http::Request<Incoming>| {
                let server = server.clone();
                async move { handle(&server, &Caller::Remote, request).await }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(socket), service);
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, %error, "connection broken");
                    }
                }
                _ = stopped.changed() => {}
            }
        });
    }
    drop(stop);
    connections.shutdown().await;
    Ok(())
}
