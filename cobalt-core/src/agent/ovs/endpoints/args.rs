//! The arguments of the endpoints.

use std::{net::IpAddr, time::Duration};

use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::net::TcpListener;

use super::{Endpoints, Limits, TlsSource};
use crate::runtime::{
    admin::{self, AdminError},
    args::{BindAddress, duration},
    queue::Backoff,
    shutdown::Chain,
    watch::ObjectKey,
};

// Given to each argument, because a heading for the next ones would reach into the arguments of others.
const HEADING: &str = "Troubleshooting endpoints";

/// Where the endpoints listen, how they show who they are, and what they allow.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct EndpointArgs {
    /// Address of the troubleshooting endpoints (HTTPS); `0` turns them off
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "IP:PORT", help_heading = HEADING)]
    pub troubleshooting_bind_address: BindAddress,

    /// Address of this host to publish for them [default: the Node's InternalIP]
    #[arg(long, env = "NODE_IP", value_name = "ADDRESS", help_heading = HEADING)]
    pub troubleshooting_address: Option<IpAddr>,

    /// Secret with their certificate (tls.crt, tls.key, ca.crt), as NAME or NAMESPACE/NAME [default: one is made]
    #[arg(long, value_name = "SECRET", help_heading = HEADING)]
    pub troubleshooting_tls_secret: Option<String>,

    /// Name that clients are to expect in that certificate [default: the Node's name]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub troubleshooting_server_name: Option<String>,

    /// Audience that tokens must be meant for [default: the API server]
    #[arg(long, value_name = "AUDIENCE", help_heading = HEADING)]
    pub troubleshooting_audience: Option<String>,

    /// How many captures run at a time
    #[arg(long, default_value_t = 2, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub capture_concurrency: u16,

    /// How long a capture lasts at most
    #[arg(long, default_value = "5m", value_parser = capture_time, value_name = "DURATION", help_heading = HEADING)]
    pub capture_max_duration: Duration,

    /// How many bytes a streamed capture has at most
    #[arg(long, default_value_t = 256 << 20, value_name = "BYTES", help_heading = HEADING, value_parser = clap::value_parser!(u64).range(65_536..))]
    pub capture_max_bytes: u64,

    /// How many bytes a capture has at most that is started and fetched later; up to four are kept in memory
    #[arg(long, default_value_t = 2 << 20, value_name = "BYTES", help_heading = HEADING, value_parser = clap::value_parser!(u64).range(65_536..=67_108_864))]
    pub capture_kept_bytes: u64,

    /// How many bytes of a packet are captured at most
    #[arg(long, default_value_t = 1 << 18, value_name = "BYTES", help_heading = HEADING, value_parser = clap::value_parser!(u32).range(64..=262_144))]
    pub capture_max_snap_len: u32,

    /// How many flows an answer has at most
    #[arg(long, default_value_t = 200_000, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u64).range(1..))]
    pub flows_max: u64,
}

fn capture_time(text: &str) -> Result<Duration, String> {
    const MOST: Duration = Duration::from_secs(3600);
    let parsed = duration(text)?;
    if parsed < Duration::from_secs(1) || parsed > MOST { Err("expected 1s to 1h".to_owned()) } else { Ok(parsed) }
}

impl EndpointArgs {
    /// Opens the listener, if there shall be one.
    pub async fn listen(&self) -> Result<Option<TcpListener>, AdminError> {
        match self.troubleshooting_bind_address {
            BindAddress::Off => Ok(None),
            BindAddress::On(address) => admin::bind(address, "--troubleshooting-bind-address").await.map(Some),
        }
    }

    /// The address of this host to publish: as given, or the internal one of its Node, which is waited for.
    pub async fn address(&self, client: &Client, node: &str) -> IpAddr {
        if let Some(given) = self.troubleshooting_address {
            return given;
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let backoff = Backoff { first: Duration::from_secs(1), limit: Duration::from_secs(60) };
        let mut failures = 0;
        loop {
            match nodes.get_opt(node).await {
                Ok(found) => {
                    let addresses = found.and_then(|node| node.status?.addresses).unwrap_or_default();
                    let mut internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
                    if let Some(address) = internal.find_map(|address| address.address.parse().ok()) {
                        return address;
                    }
                }
                Err(error) => tracing::warn!(node, error = %Chain(&error), "could not ask for the Node's address"),
            }
            failures += 1;
            tokio::time::sleep(backoff.after(failures)).await;
        }
    }

    /// The bounds.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits { flows: self.flows_max, ..Limits::default() };
        limits.captures.running = self.capture_concurrency.into();
        limits.captures.duration = self.capture_max_duration;
        limits.captures.bytes = self.capture_max_bytes;
        limits.captures.kept_bytes = self.capture_kept_bytes.min(self.capture_max_bytes);
        limits.captures.snap_len = self.capture_max_snap_len;
        // A connection must outlive the longest capture.
        limits.connections.life = limits.connections.life.max(self.capture_max_duration + Duration::from_secs(60));
        limits
    }

    /// Configures the endpoints of the host with this address.
    pub fn apply(&self, endpoints: Endpoints, address: IpAddr) -> Endpoints {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let object = endpoints.object.clone();
        let name = given(&self.troubleshooting_server_name).unwrap_or_else(|| object.name.clone());
        let source = match given(&self.troubleshooting_tls_secret) {
            Some(secret) => TlsSource::Secret(match secret.split_once('/') {
                Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
                None => ObjectKey { namespace: object.namespace, name: secret },
            }),
            None => TlsSource::SelfSigned(vec![name.clone(), address.to_string()]),
        };
        let audience = given(&self.troubleshooting_audience);
        endpoints.tls(source).server_name(name).audience(audience).limits(self.limits())
    }
}
