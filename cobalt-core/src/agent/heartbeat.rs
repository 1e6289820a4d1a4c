//! The sign of life of one host: a Lease, renewed at a steady pace.
//!
//! It is the only thing an agent writes while nothing happens. It carries whether libvirt answers, so that whoever
//! looks after dead hosts can tell a dead daemon from a dead machine, and a change of that is written at once. The
//! Lease belongs to the Hypervisor and goes with it; an agent that ends leaves it to expire, because the end of an
//! agent proves nothing about its host.

use std::time::Duration;

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::{FutureExt, StreamExt};
use tokio::time::timeout;

use super::{
    beats::{Beats, Sign, lease_duration},
    node::FIELD_MANAGER,
    part::{Context, Part},
};
use crate::{
    Error,
    api::labels,
    backend::{BackendEvent, HypervisorBackend},
    runtime::{
        args::duration,
        shutdown::{Chain, Shutdown, TaskError},
    },
};

const HEADING: &str = "Heartbeat";

/// How often, and where.
#[derive(ClapArgs, Clone, Debug)]
#[group(skip)]
pub struct HeartbeatArgs {
    /// Pause between two renewals of the host's Lease, which lasts four times as long
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub heartbeat_interval: Duration,

    /// Namespace of the host's Lease [default: the namespace of the pod or context]
    #[arg(long, value_name = "NAMESPACE", help_heading = HEADING)]
    pub heartbeat_namespace: Option<String>,
}

impl HeartbeatArgs {
    /// The part they describe.
    pub fn part(&self, own_namespace: &str) -> Heartbeat {
        let namespace = self.heartbeat_namespace.clone().unwrap_or_else(|| own_namespace.to_owned());
        Heartbeat::new(namespace, self.heartbeat_interval)
    }
}

/// Renews the Lease of one host.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    namespace: String,
    interval: Duration,
}

impl Heartbeat {
    /// A Lease in this namespace, renewed this often.
    pub fn new(namespace: impl Into<String>, interval: Duration) -> Self {
        Self { namespace: namespace.into(), interval }
    }

    /// The Lease of a host.
    ///
    /// ```
    /// use cobalt_core::agent::Heartbeat;
    ///
    /// assert_eq!(Heartbeat::lease_name("node-1"), "cobalt-node-agent-node-1");
    /// ```
    pub fn lease_name(node: &str) -> String {
        format!("cobalt-node-agent-{node}")
    }

    /// How long the Lease lasts without a renewal.
    pub fn lease_duration(&self) -> Duration {
        lease_duration(self.interval)
    }
}

/// What an event tells about the connection to libvirt.
fn sign(event: BackendEvent) -> Option<Sign> {
    match event {
        BackendEvent::Connected => Some(CONNECTED),
        BackendEvent::Disconnected(why) => Some(disconnected(why)),
        _ => None,
    }
}

const CONNECTED: Sign = Sign { state: "connected", why: None };

fn disconnected(why: String) -> Sign {
    Sign { state: "disconnected", why: Some(why) }
}

/// Nobody tells of a connection that never was, so it is asked for as long as nothing is known.
async fn ask(backend: &dyn HypervisorBackend, limit: Duration) -> Option<Sign> {
    match timeout(limit, backend.versions()).await {
        Ok(Err(error @ (Error::Unavailable { .. } | Error::Denied { .. } | Error::Timeout { .. }))) => {
            Some(disconnected(Chain(&error).to_string()))
        }
        Ok(_) => Some(CONNECTED),
        Err(_) => None,
    }
}

#[async_trait]
impl Part for Heartbeat {
    fn name(&self) -> &'static str {
        "heartbeat"
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        let signs = context.backend.events().filter_map(|event| std::future::ready(sign(event))).boxed();
        let (backend, limit) = (context.backend.clone(), self.interval);
        let beats = Beats {
            client: context.client,
            namespace: self.namespace.clone(),
            name: Self::lease_name(&context.node_name),
            holder: context.node_name,
            interval: self.interval,
            manager: FIELD_MANAGER,
            annotation: labels::LIBVIRT_ANNOTATION,
            ask: Some(Box::new(move || {
                let backend = backend.clone();
                async move { ask(backend.as_ref(), limit).await }.boxed()
            })),
            own: context.own,
            clock: context.clock,
            metrics: context.metrics,
        };
        beats.run(signs, stop).await;
        Ok(())
    }
}
