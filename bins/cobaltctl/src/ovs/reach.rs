//! The way to an agent: straight, or through a port-forward.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::{OvsError, Via, find::Cluster, print::tell};

/// How long to try the straight way where there is another one: a missing route often just swallows packets.
const STRAIGHT: Duration = Duration::from_secs(5);

/// A connection, whatever carries it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Where an agent is.
#[derive(Clone, Debug)]
pub(super) struct Whereabouts {
    pub(super) node: String,
    pub(super) namespace: String,
    pub(super) address: SocketAddr,
    pub(super) selector: String,
    pub(super) via: Via,
    pub(super) limit: Duration,
}

/// Connects to an agent.
pub(super) async fn connect(cluster: &Cluster, to: &Whereabouts) -> Result<Box<dyn Stream>, OvsError> {
    match to.via {
        Via::Direct => straight(to, to.limit).await,
        Via::PortForward => forwarded(cluster, to).await,
        Via::Auto => match straight(to, to.limit.min(STRAIGHT)).await {
            Ok(stream) => Ok(stream),
            Err(direct) => {
                tell(&format!("no route to {}, trying a port-forward", to.address));
                let both = |forward: &OvsError| OvsError::NoWay { direct: chain(&direct), forward: chain(forward) };
                match forwarded(cluster, to).await {
                    Ok(stream) => Ok(stream),
                    // Rights are worth more words than routes.
                    Err(forward) if forward.is_not_allowed() => Err(forward),
                    Err(forward) => Err(both(&forward)),
                }
            }
        },
    }
}

async fn straight(to: &Whereabouts, limit: Duration) -> Result<Box<dyn Stream>, OvsError> {
    let unreachable = |cause| OvsError::Unreachable { node: to.node.clone(), address: to.address, cause };
    match timeout(limit, TcpStream::connect(to.address)).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(cause)) => Err(unreachable(cause)),
        Err(_) => Err(unreachable(std::io::ErrorKind::TimedOut.into())),
    }
}

async fn forwarded(cluster: &Cluster, to: &Whereabouts) -> Result<Box<dyn Stream>, OvsError> {
    let late =
        || OvsError::Timeout { what: format!("open a port-forward to the agent of {}", to.node), limit: to.limit };
    timeout(to.limit, forward(cluster, to)).await.unwrap_or_else(|_| Err(late()))
}

async fn forward(cluster: &Cluster, to: &Whereabouts) -> Result<Box<dyn Stream>, OvsError> {
    // A client of its own: the limits of the other one are for requests with an end.
    let client = Client::try_from(cluster.config.clone())
        .map_err(|cause| OvsError::Cluster { what: "prepare a port-forward".into(), cause: Box::new(cause) })?;
    let pods: Api<Pod> = Api::namespaced(client, &to.namespace);
    let wanted = ListParams::default().labels(&to.selector).fields(&format!("spec.nodeName={}", to.node));
    let what = || format!("look for the agent's pod on {} in namespace {}", to.node, to.namespace);
    let found = pods.list(&wanted).await;
    let found = found.map_err(|cause| OvsError::Cluster { what: what(), cause: Box::new(cause) })?;
    let running = |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let Some(pod) = found.items.iter().find(running).map(ResourceExt::name_any) else {
        let problem = format!(
            "no running pod with labels {} on that host in namespace {} (choose others with --agent-selector)",
            to.selector, to.namespace
        );
        return Err(OvsError::PortForward { node: to.node.clone(), problem });
    };
    let port = to.address.port();
    let what = || format!("open a port-forward to pod {}/{pod}", to.namespace);
    let opened = pods.portforward(&pod, &[port]).await;
    let mut opened = opened.map_err(|cause| OvsError::Cluster { what: what(), cause: Box::new(cause) })?;
    let stream = opened.take_stream(port);
    // The forwarder works as long as it is there; it ends with the stream.
    tokio::spawn(async move { drop(opened.join().await) });
    let gone = || OvsError::PortForward { node: to.node.clone(), problem: "it has no stream".into() };
    Ok(Box::new(stream.ok_or_else(gone)?))
}

/// An error with its causes on one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}
