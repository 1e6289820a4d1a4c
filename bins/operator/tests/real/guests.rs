//! The hypervisor of a host as its node agent sees it: the guests that Nova's compute runs there.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    backend::{
        BackendEvent, Domain, DomainEvent, DomainState, EventKind, Features, HostCapabilities, HostCell,
        HypervisorBackend, Lifecycle, NovaMetadata, Versions,
    },
    ids::InstanceId,
};
use cobalt_rig::{Compute, ComputeGuest, GuestState, GuestWatch};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};

/// How often the list of guests is looked at. Looking costs one system call.
const LOOK: Duration = Duration::from_millis(100);

const GIB: u64 = 1 << 30;

/// The guests of one compute.
pub(crate) struct Guests {
    compute: Compute,
}

impl Guests {
    pub(crate) fn new(compute: Compute) -> Self {
        Self { compute }
    }
}

#[async_trait]
impl HypervisorBackend for Guests {
    fn driver(&self) -> String {
        "qemu".into()
    }

    fn features(&self) -> Features {
        Features { events: vec![EventKind::Lifecycle], ..Features::default() }
    }

    async fn versions(&self) -> Result<Versions> {
        Ok(Versions { library: Some("10.0.0".into()), hypervisor: Some("8.2.0".into()) })
    }

    async fn capabilities(&self) -> Result<HostCapabilities> {
        let cell = HostCell { id: 0, memory_bytes: 256 * GIB, cpus: 64 };
        Ok(HostCapabilities { cpu_arch: Some("x86_64".into()), cells: vec![cell] })
    }

    async fn inventory(&self) -> Result<Vec<Domain>> {
        Ok(self.compute.guests().into_iter().map(domain).collect())
    }

    async fn domain(&self, id: &InstanceId) -> Result<Domain> {
        let found = self.compute.guests().into_iter().find(|guest| guest.id == id.as_str());
        found.map(domain).ok_or_else(|| Error::not_found(format!("get domain {id}")))
    }

    fn events(&self) -> BoxStream<'static, BackendEvent> {
        let follower = Follower { watch: self.compute.watch(), known: None };
        stream::unfold(follower, |mut follower| async move {
            loop {
                let events = follower.look();
                if !events.is_empty() {
                    return Some((stream::iter(events), follower));
                }
                tokio::time::sleep(LOOK).await;
            }
        })
        .flatten()
        .boxed()
    }
}

fn domain(guest: ComputeGuest) -> Domain {
    Domain {
        id: InstanceId::from(guest.id),
        name: guest.name,
        state: match guest.state {
            GuestState::Running => DomainState::Running,
            GuestState::Paused => DomainState::Paused,
            GuestState::Suspended => DomainState::Suspended,
            _ => DomainState::ShutOff,
        },
        vcpus: guest.vcpus,
        memory_bytes: guest.memory_mb << 20,
        cells: Vec::new(),
        nova: Some(NovaMetadata { name: Some(guest.server), ..NovaMetadata::default() }),
    }
}

/// Makes events of two lists.
struct Follower {
    watch: GuestWatch,
    known: Option<BTreeMap<String, ComputeGuest>>,
}

impl Follower {
    fn look(&mut self) -> Vec<BackendEvent> {
        let Some(guests) = self.watch.changed() else { return Vec::new() };
        let now: BTreeMap<String, ComputeGuest> = guests.into_iter().map(|guest| (guest.id.clone(), guest)).collect();
        let Some(before) = self.known.replace(now.clone()) else { return vec![BackendEvent::Connected] };
        let told = |guest: &ComputeGuest, step| BackendEvent::Domain {
            id: InstanceId::from(guest.id.as_str()),
            name: guest.name.clone(),
            event: DomainEvent::Lifecycle(step),
        };
        let gone = before.values().filter(|guest| !now.contains_key(&guest.id));
        let other = now.values().filter(|guest| before.get(&guest.id) != Some(guest));
        let gone = gone.map(|guest| told(guest, Lifecycle::Undefined));
        gone.chain(other.map(|guest| told(guest, Lifecycle::Defined))).collect()
    }
}
