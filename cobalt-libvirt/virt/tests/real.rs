//! The C library on a real daemon: the contract of the seam, and call by call beside the native client.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use cobalt_core::{
    backend::{DomainStats, HypervisorBackend},
    contract::{self, Outcome, Provoked, Stop, backend::BackendFixture},
    ids::InstanceId,
};
use cobalt_libvirt::{BackendOptions, LibvirtBackend};
use cobalt_libvirt_virt::VirtBackend;
use cobalt_rig::{Guest, Hosts};

/// What the contract asks of this backend and the fixture cannot provoke, because `virt` has no events to answer with.
const WITHOUT_EVENTS: [&str; 2] = ["events-lagged", "events-reconnect"];

fn done<T>(answer: cobalt_rig::Result<T>) -> Provoked<T> {
    answer.or_else(|error| Stop::failed(error.to_string()))
}

struct Fixture {
    hosts: Hosts,
    backend: VirtBackend,
    other: VirtBackend,
    names: BTreeMap<InstanceId, String>,
}

#[async_trait]
impl BackendFixture for Fixture {
    fn backend(&self) -> Arc<dyn HypervisorBackend> {
        Arc::new(self.backend.clone())
    }

    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        let guest = Guest::new(format!("instance-{:08x}", self.names.len() + 1));
        done(self.hosts.host(0).define(&guest))?;
        done(self.hosts.host(0).virsh(["start", guest.name()]))?;
        let id = InstanceId::from(guest.uuid());
        self.names.insert(id.clone(), guest.name().to_owned());
        Ok(id)
    }

    async fn remove_domain(&mut self, id: &InstanceId) -> Provoked<()> {
        let name = &self.names[id];
        done(self.hosts.host(0).virsh(["destroy", name]))?;
        done(self.hosts.host(0).virsh(["undefine", name])).map(drop)
    }

    async fn other_host(&mut self) -> Provoked<(String, Arc<dyn HypervisorBackend>)> {
        Ok((self.hosts.host(1).tcp(), Arc::new(self.other.clone())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_c_library_keeps_the_contract() {
    if !cobalt_rig::available("the_c_library_keeps_the_contract") {
        return;
    }
    let hosts = Hosts::up(2).unwrap();
    let backend = VirtBackend::open(&hosts.host(0).tcp()).await.unwrap().unsafe_migration(true);
    let other = VirtBackend::open(&hosts.host(1).tcp()).await.unwrap();
    let mut fixture = Fixture { hosts, backend, other, names: BTreeMap::new() };
    let report = contract::backend::run(&mut fixture).await;
    report.assert_passed();
    let skipped = report.checks.iter().filter(|checked| matches!(checked.outcome, Outcome::Skipped(_)));
    // Kinds of events that are not announced cannot be shown to stay away either.
    let skipped: Vec<&str> = skipped
        .map(|checked| checked.id.as_str())
        .filter(|id| !(id.starts_with("event-") && id.ends_with("-lacking")) && *id != "events-dropped")
        .collect();
    assert_eq!(skipped, WITHOUT_EVENTS, "{report}");
}

/// The part of the counters that both ways read.
fn common(stats: DomainStats) -> (InstanceId, String, Option<u64>, Option<u64>, Vec<String>, Vec<String>) {
    let DomainStats { id, name, memory, blocks, nets, .. } = stats;
    (id, name, memory.maximum_bytes, memory.current_bytes, blocks.into_keys().collect(), nets.into_keys().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_clients_say_the_same_of_one_daemon() {
    if !cobalt_rig::available("both_clients_say_the_same_of_one_daemon") {
        return;
    }
    let hosts = Hosts::up(1).unwrap();
    let host = hosts.host(0);
    let image = hosts.shared().join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let guests = [
        Guest::new("plain"),
        Guest::new("with-disk").disk(&image).vcpus(2).memory_mib(96),
        Guest::new("paused").memory_mib(64),
        Guest::new("pinned").vcpus(2).with("<cputune><vcpupin vcpu='0' cpuset='0'/></cputune>"),
        Guest::new("off"),
    ];
    for guest in &guests {
        host.define(guest).unwrap();
    }
    for name in ["plain", "with-disk", "paused", "pinned"] {
        host.virsh(["start", name]).unwrap();
    }
    host.virsh(["suspend", "paused"]).unwrap();

    let native = LibvirtBackend::connect(&host.tcp(), BackendOptions::new()).await.unwrap();
    let library = VirtBackend::open(&host.tcp()).await.unwrap();
    assert_eq!(native.driver(), library.driver());
    assert_eq!(native.versions().await.unwrap(), library.versions().await.unwrap());
    assert_eq!(native.capabilities().await.unwrap(), library.capabilities().await.unwrap());
    assert_eq!(native.domain_capabilities().await.unwrap(), library.domain_capabilities().await.unwrap());
    let domains = native.inventory().await.unwrap();
    assert_eq!(domains.len(), guests.len());
    assert_eq!(domains, library.inventory().await.unwrap());
    for domain in &domains {
        assert_eq!(native.domain(&domain.id).await.unwrap(), library.domain(&domain.id).await.unwrap());
    }
    let ours: Vec<_> = native.stats().await.unwrap().into_iter().map(common).collect();
    let theirs: Vec<_> = library.stats().await.unwrap().into_iter().map(common).collect();
    assert_eq!((ours.len(), &ours), (4, &theirs));
    let nobody = InstanceId::from("00000000-dead-4000-8000-000000000000");
    let categories = |error: cobalt_core::Error| error.category();
    assert_eq!(
        native.domain(&nobody).await.map_err(categories).unwrap_err(),
        library.domain(&nobody).await.map_err(categories).unwrap_err()
    );
    let off = &domains.iter().find(|domain| domain.name == "off").unwrap().id;
    let suspend = cobalt_core::backend::PowerAction::Suspend;
    assert_eq!(
        native.power(off, suspend).await.map_err(categories).unwrap_err(),
        library.power(off, suspend).await.map_err(categories).unwrap_err()
    );
}
