//! A hypervisor of your own on the unmodified node agent.
//!
//! The toy below "runs" VMs that are lines in a list. It implements the five methods a backend must have; what it does
//! not implement it lacks, `features()` says so, and the agent leaves it out.
//!
//!     cargo run -p cobalt-examples --example custom_backend
#![allow(clippy::print_stdout)]

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    agent::{Config, NodeAgent},
    backend::{BackendEvent, Domain, DomainState, Features, HostCapabilities, HostCell, HypervisorBackend, Versions},
    ids::InstanceId,
    operator::Operator,
    runtime::shutdown::Shutdown,
};
use cobalt_sim::Region;
use futures::{StreamExt, stream, stream::BoxStream};

struct Toy {
    names: Vec<&'static str>,
}

#[async_trait]
impl HypervisorBackend for Toy {
    fn driver(&self) -> String {
        "toy".into()
    }

    fn features(&self) -> Features {
        Features::default()
    }

    async fn versions(&self) -> Result<Versions> {
        Ok(Versions { library: Some("0.1.0".into()), hypervisor: None })
    }

    async fn capabilities(&self) -> Result<HostCapabilities> {
        let cell = HostCell { id: 0, memory_bytes: 8 << 30, cpus: 4 };
        Ok(HostCapabilities { cpu_arch: Some("x86_64".into()), cells: vec![cell] })
    }

    async fn inventory(&self) -> Result<Vec<Domain>> {
        let domain = |(n, name): (usize, &&str)| Domain {
            id: InstanceId::new(format!("00000000-0000-4000-8000-{n:012}")),
            name: (*name).to_owned(),
            state: DomainState::Running,
            vcpus: 1,
            memory_bytes: 1 << 30,
            cells: Vec::new(),
            nova: None,
        };
        Ok(self.names.iter().enumerate().map(domain).collect())
    }

    async fn domain(&self, id: &InstanceId) -> Result<Domain> {
        let found = self.inventory().await?.into_iter().find(|domain| domain.id == *id);
        found.ok_or_else(|| Error::not_found(format!("get domain {id}")))
    }

    fn events(&self) -> BoxStream<'static, BackendEvent> {
        stream::iter([BackendEvent::Connected]).chain(stream::pending()).boxed()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A cluster to publish to: simulated here; `kube::Client::try_default()` on a real one.
    let region = Region::builder().named(["toy-host"]).build();
    let host = region.hosts().remove(0);
    let cluster = region.cluster().await?;
    cluster.join(&host).await?;

    let stop = Shutdown::new();
    tokio::spawn(Operator::new(cluster.client("cobalt-operator")).run(stop.clone()));
    let backend = Arc::new(Toy { names: vec!["romeo", "juliet"] });
    let system = Arc::new(region.host_system(&host)?);
    let client = cluster.client("cobalt-node-agent");
    tokio::spawn(NodeAgent::new(client.clone(), Config::new(host.as_str()), backend, system).run(stop.clone()));

    let reported = cobalt_examples::wait_for(client, host.as_str(), |hypervisor| {
        hypervisor.status.as_ref().is_some_and(|status| status.num_instances() == 2)
    })
    .await?;
    let status = reported.status.unwrap_or_default();
    for instance in status.instances() {
        println!("{host}: {} (running: {})", instance.name, instance.active);
    }
    let kind = status.domain_capabilities.and_then(|capabilities| capabilities.hypervisor_type).unwrap_or_default();
    println!("{host}: reported by the unmodified agent as hypervisor type {kind:?}");
    stop.trigger();
    Ok(())
}
