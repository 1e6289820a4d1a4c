//! The sign of life of one host: a Lease, renewed at a steady pace.
//!
//! It is the only thing an agent writes while nothing happens. It carries whether libvirt answers, so that whoever
//! looks after dead hosts can tell a dead daemon from a dead machine, and a change of that is written at once. The
//! Lease belongs to the Hypervisor and goes with it; an agent that ends leaves it to expire, because the end of an
//! agent proves nothing about its host.
//!
//! ```text
//!   Hypervisor is there? ──no──▶ wait for it
//!        │ yes
//!        ▼
//!   beat ◀── interval
//!        ◀── connection to libvirt came or went
//! ```

use std::{fmt, time::Duration};

use async_trait::async_trait;
use clap::Args as ClapArgs;
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{
    node::FIELD_MANAGER,
    part::{Context, Part},
};
use crate::{
    Error,
    api::{Hypervisor, labels},
    backend::{BackendEvent, HypervisorBackend},
    runtime::{
        api_category,
        args::duration,
        metrics::Write,
        shutdown::{Chain, Shutdown, TaskError},
    },
};

/// How many intervals a Lease lasts: one lost beat, and one late one, are not a failure.
const INTERVALS: u32 = 4;

/// The longest reason that is carried along.
const REASON_LIMIT: usize = 256;

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
        self.interval * INTERVALS
    }

    fn body(&self, owner: &Hypervisor, context: &Context, health: &Health) -> Value {
        let seconds = i32::try_from(self.lease_duration().as_secs()).unwrap_or(i32::MAX).max(1);
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": Self::lease_name(&context.node_name),
                "annotations": {labels::LIBVIRT_ANNOTATION: health.to_string()},
                "ownerReferences": [{
                    "apiVersion": Hypervisor::api_version(&()),
                    "kind": Hypervisor::kind(&()),
                    "name": owner.name_any(),
                    "uid": owner.uid(),
                }],
            },
            "spec": {
                "holderIdentity": context.node_name,
                "leaseDurationSeconds": seconds,
                "renewTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(context.clock.now()),
            },
        })
    }
}

/// What is known about the connection to libvirt.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Health {
    Unknown,
    Connected,
    Disconnected(String),
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Connected => f.write_str("connected"),
            Self::Disconnected(why) => {
                let short: String = why.chars().take(REASON_LIMIT).collect();
                write!(f, "disconnected: {short}")
            }
        }
    }
}

impl Health {
    /// Notes an event and tells whether the Lease must say something else now.
    fn note(&mut self, event: &BackendEvent) -> bool {
        let now = match event {
            BackendEvent::Connected => Self::Connected,
            BackendEvent::Disconnected(why) => Self::Disconnected(why.clone()),
            _ => return false,
        };
        // A daemon that stays away for another reason is still away: the next beat is soon enough for that.
        let turned = std::mem::discriminant(&now) != std::mem::discriminant(self);
        *self = now;
        turned
    }

    /// Nobody tells of a connection that never was, so it is asked for as long as nothing is known.
    async fn ask(&mut self, backend: &dyn HypervisorBackend, limit: Duration) {
        if *self != Self::Unknown {
            return;
        }
        match timeout(limit, backend.versions()).await {
            Ok(Err(error @ (Error::Unavailable { .. } | Error::Denied { .. } | Error::Timeout { .. }))) => {
                *self = Self::Disconnected(Chain(&error).to_string());
            }
            Ok(_) => *self = Self::Connected,
            Err(_) => {}
        }
    }
}

#[async_trait]
impl Part for Heartbeat {
    fn name(&self) -> &'static str {
        "heartbeat"
    }

    async fn run(self: Box<Self>, context: Context, stop: Shutdown) -> Result<(), TaskError> {
        let api: Api<Lease> = Api::namespaced(context.client.clone(), &self.namespace);
        let name = Self::lease_name(&context.node_name);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let mut own = context.own.clone();
        let mut events = context.backend.events();
        let mut health = Health::Unknown;
        let mut events_ended = false;
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            let mut beat = tokio::select! {
                () = stop.triggered() => return Ok(()),
                _ = ticks.tick() => true,
                event = events.next(), if !events_ended => {
                    events_ended = event.is_none();
                    event.is_some_and(|event| health.note(&event))
                }
            };
            while beat {
                let Some(owner) = context.own.get() else {
                    // Whose sign of life? Nobody's yet: wait until there is a Hypervisor.
                    tokio::select! {
                        () = stop.triggered() => return Ok(()),
                        () = own.changed() => continue,
                        event = events.next(), if !events_ended => {
                            events_ended = event.is_none();
                            event.map(|event| health.note(&event));
                            continue;
                        }
                    }
                };
                beat = false;
                tokio::select! {
                    () = stop.triggered() => return Ok(()),
                    () = health.ask(context.backend.as_ref(), self.interval) => {}
                }
                let body = Patch::Apply(self.body(&owner, &context, &health));
                // Not longer than until the next one is due: beats never pile up.
                let answer = tokio::select! {
                    () = stop.triggered() => return Ok(()),
                    answer = timeout(self.interval, api.patch(&name, &params, &body)) => answer,
                };
                let trouble = match answer {
                    Ok(Ok(_)) => None,
                    Ok(Err(error)) => Some((api_category(&error), Chain(&error).to_string())),
                    Err(_) => Some(("timeout", format!("no answer within {:?}", self.interval))),
                };
                context.metrics.write("Lease", "main", if trouble.is_some() { Write::Failed } else { Write::Applied });
                match trouble {
                    Some((category, error)) if !failing => {
                        tracing::warn!(lease = %name, category, error, "no sign of life could be given");
                        failing = true;
                    }
                    None if failing => {
                        tracing::info!(lease = %name, "signs of life again");
                        failing = false;
                    }
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_turn_of_the_connection_is_written_at_once() {
        let mut health = Health::Unknown;
        assert!(health.note(&BackendEvent::Connected));
        assert!(!health.note(&BackendEvent::Connected));
        assert!(!health.note(&BackendEvent::Lagged(3)));
        assert!(health.note(&BackendEvent::Disconnected("reset".into())));
        assert!(!health.note(&BackendEvent::Disconnected("refused".into())));
        assert_eq!(health.to_string(), "disconnected: refused");
    }

    #[test]
    fn a_long_reason_is_cut() {
        let health = Health::Disconnected("ä".repeat(10_000));
        assert_eq!(health.to_string().chars().count(), "disconnected: ".len() + REASON_LIMIT);
    }
}
