//! The hypervisor of one simulated host.

use std::collections::BTreeMap;

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    backend::{
        BackendEvent, BlockStats, CpuStats, Domain, DomainCapabilities, DomainState, DomainStats, Features,
        HostCapabilities, HypervisorBackend, Job, JobOutcome, Lifecycle, MemoryStats, MigrateRequest, NetDirection,
        NetStats, NovaMetadata, PowerAction, VcpuState, VcpuStats, Versions,
    },
    ids::{HostName, InstanceId},
};
use futures::{StreamExt, stream::BoxStream};
use uuid::Uuid;

use crate::{
    faults::{CALL_TIMEOUT, Faults},
    topic::Delivery,
    world::{self, Driver, HostId, Os, State, World, instance, parse},
};

/// The hypervisor of one simulated host. Clones share their faults; a new one from
/// [`Region::backend`](crate::Region::backend) has its own.
#[derive(Debug, Clone)]
pub struct SimBackend {
    world: World,
    host: HostId,
    name: HostName,
    driver: Driver,
    faults: Faults,
}

impl SimBackend {
    pub(crate) fn new(world: World, host: HostId) -> Self {
        let (name, driver) = world.with(|state| (state.host(host).name.clone(), state.host(host).driver));
        Self { world, host, name, driver, faults: Faults::default() }
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How many event streams of this host are open, whoever opened them.
    pub fn listeners(&self) -> usize {
        self.world.with(|state| state.host(self.host).events.readers())
    }

    async fn call<T>(
        &self,
        method: &'static str,
        what: impl FnOnce() -> String + Send,
        act: impl FnOnce(&mut State, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let operation = format!("{} on {}", what(), self.name);
        let call = || async {
            if self.world.with(|state| state.host(self.host).os == Os::Hung) {
                tokio::time::sleep(CALL_TIMEOUT).await;
                return Err(Error::timeout(operation.clone(), CALL_TIMEOUT));
            }
            self.world.with(|state| {
                if !state.host(self.host).answers() {
                    let cause = std::io::Error::other("the libvirt daemon does not answer");
                    return Err(Error::unavailable(operation.clone(), cause));
                }
                act(state, &operation)
            })
        };
        self.faults.run(method, || operation.clone(), call).await
    }

    fn lacks(&self, what: impl Into<String>) -> Error {
        Error::unsupported(what, self.driver())
    }

    fn find(&self, state: &State, operation: &str, id: &InstanceId) -> Result<Uuid> {
        let known = parse(id).filter(|id| state.host(self.host).domains.contains_key(id));
        known.ok_or_else(|| Error::not_found(operation))
    }
}

fn show(state: &State, id: Uuid, domain: &world::Domain) -> Domain {
    let nova = state.nova.servers.get(&id).filter(|_| domain.managed).map(|server| NovaMetadata {
        name: Some(server.name.clone()),
        flavor: Some(server.flavor.name.clone()),
        project_id: Some(server.project.to_string()),
        user_id: Some(format!("owner-of-{}", server.project)),
    });
    Domain {
        id: instance(id),
        name: domain.name(),
        state: domain.state,
        vcpus: domain.vcpus,
        memory_bytes: domain.memory_bytes(),
        cells: domain.shares(),
        nova,
    }
}

fn count(state: &State, id: Uuid, domain: &world::Domain) -> DomainStats {
    // Every guest is a little busy, some more than others, and always as its id says.
    let load = u64::from(id.as_bytes()[0] % 50 + 1);
    let millis = u64::try_from(domain.run_time(state.now).as_millis()).unwrap_or(u64::MAX);
    let per_cpu = millis.saturating_mul(load * 10_000);
    let moved = |rate: u64| (Some(millis * rate / 4096), Some(millis * rate));
    let ((reads, read_bytes), (writes, written_bytes)) = (moved(load * 512), moved(load * 256));
    let block = BlockStats {
        reads,
        read_bytes,
        writes,
        written_bytes,
        errors: Some(u64::from(domain.state == DomainState::PausedOnIoError)),
        ..BlockStats::default()
    };
    let direction = |rate: u64| {
        let (packets, bytes) = moved(rate);
        NetDirection { bytes, packets, errors: Some(0), drops: Some(0) }
    };
    let vcpu = VcpuStats {
        state: Some(VcpuState::Running),
        time_ns: Some(per_cpu),
        delay_ns: Some(0),
        ..VcpuStats::default()
    };
    let memory = Some(domain.memory_bytes());
    DomainStats {
        cpu: CpuStats { time_ns: Some(per_cpu.saturating_mul(u64::from(domain.vcpus))), ..CpuStats::default() },
        memory: MemoryStats { maximum_bytes: memory, current_bytes: memory, ..MemoryStats::default() },
        vcpus_maximum: Some(domain.vcpus),
        vcpus: (0..domain.vcpus).map(|cpu| (cpu, vcpu)).collect(),
        blocks: BTreeMap::from([("vda".to_owned(), block)]),
        nets: BTreeMap::from([(super::ovs::tap(id), NetStats { rx: direction(load * 128), tx: direction(load * 64) })]),
        ..DomainStats::new(instance(id), domain.name(), domain.state)
    }
}

/// The host a migration URI such as `qemu+tcp://hv-001/system` names, by its whole name.
fn destination(uri: &str) -> &str {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    host.rsplit_once(':').filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit())).map_or(host, |(host, _)| host)
}

#[async_trait]
impl HypervisorBackend for SimBackend {
    fn driver(&self) -> String {
        self.driver.name().to_owned()
    }

    fn features(&self) -> Features {
        self.driver.features()
    }

    async fn versions(&self) -> Result<Versions> {
        self.call(
            "versions",
            || "get versions".into(),
            |state, _| {
                let hypervisor = match state.host(self.host).driver {
                    Driver::Qemu => "10.0.2",
                    Driver::CloudHypervisor => "48.0.0",
                };
                Ok(Versions { library: Some("11.3.0".into()), hypervisor: Some(hypervisor.into()) })
            },
        )
        .await
    }

    async fn capabilities(&self) -> Result<HostCapabilities> {
        self.call(
            "capabilities",
            || "get capabilities".into(),
            |state, _| {
                Ok(HostCapabilities { cpu_arch: Some("x86_64".into()), cells: state.host(self.host).cells.clone() })
            },
        )
        .await
    }

    async fn domain_capabilities(&self) -> Result<DomainCapabilities> {
        if !self.features().domain_capabilities {
            return Err(self.lacks("get domain capabilities"));
        }
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        self.call(
            "domain_capabilities",
            || "get domain capabilities".into(),
            |_, _| {
                Ok(DomainCapabilities {
                    arch: Some("x86_64".into()),
                    hypervisor_type: Some("kvm".into()),
                    devices: list(&[
                        "disk",
                        "disk/virtio",
                        "hostdev",
                        "interface",
                        "interface/ethernet",
                        "tpm",
                        "video",
                    ]),
                    cpu_modes: list(&["mode/custom", "mode/host-model", "mode/host-passthrough"]),
                    features: list(&["backup", "genid", "vmcoreinfo"]),
                })
            },
        )
        .await
    }

    async fn inventory(&self) -> Result<Vec<Domain>> {
        self.call(
            "inventory",
            || "list domains".into(),
            |state, _| {
                let domains = &state.host(self.host).domains;
                Ok(domains.iter().map(|(id, domain)| show(state, *id, domain)).collect())
            },
        )
        .await
    }

    async fn domain(&self, id: &InstanceId) -> Result<Domain> {
        self.call(
            "domain",
            || format!("get domain {id}"),
            |state, operation| {
                let id = self.find(state, operation, id)?;
                let domain = state.host(self.host).domains.get(&id).ok_or_else(|| Error::not_found(operation))?;
                Ok(show(state, id, domain))
            },
        )
        .await
    }

    async fn stats(&self) -> Result<Vec<DomainStats>> {
        if !self.features().stats {
            return Err(self.lacks("get domain statistics"));
        }
        self.call(
            "stats",
            || "get domain statistics".into(),
            |state, _| {
                let domains = state.host(self.host).domains.iter().filter(|(_, domain)| domain.state.is_active());
                Ok(domains.map(|(id, domain)| count(state, *id, domain)).collect())
            },
        )
        .await
    }

    fn events(&self) -> BoxStream<'static, BackendEvent> {
        let reader = self.world.with(|state| {
            let capacity = state.event_capacity;
            let host = state.host_mut(self.host);
            let first = host.answers().then_some(BackendEvent::Connected);
            host.events.subscribe(capacity, first)
        });
        reader
            .map(|delivery| match delivery {
                Delivery::Item(event) => event,
                Delivery::Lost(count) => BackendEvent::Lagged(count),
            })
            .boxed()
    }

    async fn job(&self, id: &InstanceId) -> Result<Option<Job>> {
        if !self.features().jobs {
            return Err(self.lacks(format!("get job of domain {id}")));
        }
        self.call(
            "job",
            || format!("get job of domain {id}"),
            |state, operation| {
                let id = self.find(state, operation, id)?;
                Ok(state.host(self.host).domains.get(&id).and_then(|domain| domain.job_at(state.now)))
            },
        )
        .await
    }

    async fn abort_job(&self, id: &InstanceId) -> Result<()> {
        if !self.features().jobs {
            return Err(self.lacks(format!("abort job of domain {id}")));
        }
        self.call(
            "abort_job",
            || format!("abort job of domain {id}"),
            |state, operation| {
                let id = self.find(state, operation, id)?;
                if !state.host(self.host).domains.get(&id).is_some_and(world::Domain::job_running) {
                    return Err(Error::conflict(operation, "no job runs on it"));
                }
                // Nova hears of it when the copying that it waits for comes to nothing.
                match state.nova.current_migration(id) {
                    Some(number) => state.undo_migration(number, cobalt_core::nova::MigrationPhase::Cancelled),
                    None => state.end_copy(self.host, id, JobOutcome::Cancelled),
                }
                Ok(())
            },
        )
        .await
    }

    async fn migrate(&self, id: &InstanceId, request: &MigrateRequest) -> Result<()> {
        let what = || format!("migrate domain {id} to {}", request.destination);
        if !self.features().migration {
            return Err(self.lacks(what()));
        }
        let operation = format!("{} on {}", what(), self.name);
        let done = self
            .call("migrate", what, |state, operation| {
                let id = self.find(state, operation, id)?;
                let to = state.host_id(&HostName::from(destination(&request.destination)));
                let to = to.filter(|to| *to != self.host && state.host(*to).answers());
                let to = to.ok_or_else(|| Error::refused(operation, "the destination cannot be reached"))?;
                if state.host(to).driver != state.host(self.host).driver {
                    return Err(Error::refused(operation, "the destination has another hypervisor"));
                }
                let domain = state.host(self.host).domains.get(&id).ok_or_else(|| Error::not_found(operation))?;
                if domain.job_running() {
                    return Err(Error::conflict(operation, "another job runs on it"));
                }
                if !domain.state.is_active() {
                    return Err(Error::conflict(operation, "it does not run"));
                }
                Ok(state.begin_direct_migration(self.host, id, to))
            })
            .await?;
        match done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Error::refused(operation, why)),
            Err(_) => Err(Error::unavailable(operation, std::io::Error::other("the region is gone"))),
        }
    }

    async fn power(&self, id: &InstanceId, action: PowerAction) -> Result<()> {
        self.call(
            "power",
            || format!("{action:?} domain {id}"),
            |state, operation| {
                let id = self.find(state, operation, id)?;
                let current =
                    state.host(self.host).domains.get(&id).map_or(DomainState::Unknown, |domain| domain.state);
                let wrong = |reason: &str| Err(Error::conflict(operation, reason));
                let host = self.host;
                match action {
                    PowerAction::Start if current.is_active() => return wrong("it runs already"),
                    PowerAction::Start => {
                        state.enter(host, id, DomainState::Running);
                        state.lifecycle(host, id, Lifecycle::Resumed);
                        state.lifecycle(host, id, Lifecycle::Started);
                    }
                    _ if !current.is_active() => return wrong("it does not run"),
                    PowerAction::Destroy => {
                        state.lifecycle(host, id, Lifecycle::Shutdown);
                        state.enter(host, id, DomainState::ShutOff);
                        state.lifecycle(host, id, Lifecycle::Destroyed);
                    }
                    PowerAction::Reset => {
                        for _ in 0..2 {
                            state.emit(host, id, cobalt_core::backend::DomainEvent::Reboot);
                        }
                    }
                    PowerAction::Suspend => {
                        state.enter(host, id, DomainState::Paused);
                        state.lifecycle(host, id, Lifecycle::Suspended);
                    }
                    PowerAction::Resume => {
                        state.enter(host, id, DomainState::Running);
                        state.lifecycle(host, id, Lifecycle::Resumed);
                    }
                    _ => return Err(self.lacks(operation)),
                }
                Ok(())
            },
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::destination;

    #[test]
    fn a_destination_is_a_whole_name() {
        assert_eq!(destination("qemu+tcp://hv-001/system"), "hv-001");
        assert_eq!(destination("qemu+tcp://hv-001.a.example:16509/system?x=y"), "hv-001.a.example");
        assert_eq!(destination("hv-1"), "hv-1");
    }
}
