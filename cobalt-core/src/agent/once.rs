//! One look at a host, for people at a shell: what an agent would publish, without a cluster.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use kube::Resource;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::{
    collect::{Collector, Dirty},
    incident::Incidents,
    node::Config,
    status::{self, Wanted},
};
use crate::{
    api::{Hypervisor, HypervisorSpec, conditions},
    backend::{BackendEvent, HypervisorBackend},
    host::HostSystem,
    runtime::clock::Clock,
};

/// What an agent would publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Once {
    /// The Hypervisor with its status and conditions, as far as this host knows them.
    pub hypervisor: Value,
    /// Why the hypervisor could not be reached, if it could not.
    pub disconnected: Option<String>,
}

/// Asks the host once. A hypervisor that is not connected yet is given this long.
///
/// There is no spec to look at, so the effective capacity is that of a host without overcommit.
///
/// ```no_run
/// use cobalt_core::{agent::{Config, once}, backend::HypervisorBackend, host::HostSystem, runtime::clock::Clock};
/// use std::{sync::Arc, time::Duration};
///
/// # async fn example(backend: Arc<dyn HypervisorBackend>, host: Arc<dyn HostSystem>) {
/// let seen = once(backend, host, &Config::new("node-1"), &Clock::system(), Duration::from_secs(10)).await;
/// assert!(seen.disconnected.is_none(), "{}", seen.hypervisor["status"]["conditions"]);
/// # }
/// ```
pub async fn once(
    backend: Arc<dyn HypervisorBackend>,
    host: Arc<dyn HostSystem>,
    config: &Config,
    clock: &Clock,
    patience: Duration,
) -> Once {
    let deadline = Instant::now() + patience;
    let mut events = backend.events();
    let mut collector = Collector::new(backend, host, config);
    collector.refresh(Dirty::all()).await;
    while collector.report().disconnected.is_some() {
        let connected = async {
            while let Some(event) = events.next().await {
                if event == BackendEvent::Connected {
                    return true;
                }
            }
            false
        };
        if !timeout_at(deadline, connected).await.unwrap_or(false) {
            break;
        }
        collector.refresh(Dirty { backend: true, ..Dirty::default() }).await;
    }
    let report = collector.report();
    let Wanted { mut status, conditions: mut wanted } = status::decide(report, &HypervisorSpec::default(), &[]);
    if let Some(domains) = report.domains.known() {
        let mut incidents = Incidents::new(config.incidents);
        incidents.list(domains, Instant::now());
        wanted.push(incidents.condition());
    }
    for condition in wanted {
        conditions::set_condition(&mut status.conditions, condition, clock.now());
    }
    let hypervisor = json!({
        "apiVersion": Hypervisor::api_version(&()),
        "kind": Hypervisor::kind(&()),
        "metadata": {"name": config.node_name},
        "status": status,
    });
    Once { hypervisor, disconnected: report.disconnected.clone() }
}
