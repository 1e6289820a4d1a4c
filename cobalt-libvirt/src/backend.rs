//! [`HypervisorBackend`] over libvirt.

mod cache;
mod events;
mod features;
mod inventory;
mod job;
mod link;
mod options;
mod state;
mod stats;
mod topic;

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    Result,
    backend::{
        BackendEvent, Domain, DomainCapabilities, DomainStats, Features, HostCapabilities, HypervisorBackend, Job,
        MigrateRequest, PowerAction, Versions,
    },
    ids::InstanceId,
};
use futures::{StreamExt, stream::BoxStream};
use tokio::task::AbortHandle;
use uuid::Uuid;

use self::{
    features::Ability,
    inventory::Inventory,
    link::{Live, Shared},
};
pub use self::{link::ConnectionState, options::BackendOptions};
use crate::{
    Error,
    client::{JobQuery, Libvirt, MigrateOptions},
    error::code,
    rpc::{DomainCapabilitiesArguments, DomainRef, ShutdownFlags, StartFlags},
    uri::LibvirtUri,
    xml::DomainCapabilitiesXml,
};

type Seam = cobalt_core::Error;

/// There is no connection now, and why.
#[derive(Debug, thiserror::Error)]
#[error("not connected to {uri}{}", .last_error.as_ref().map(|why| format!(" ({why})")).unwrap_or_default())]
struct NotConnected {
    uri: String,
    last_error: Option<String>,
}

/// The VMs of one host behind a libvirt daemon, whichever driver it has.
///
/// It connects by itself and, when the daemon goes, connects again: with growing, jittered waits, registering for all
/// events anew, and telling [`BackendEvent::Connected`] when that is done. Calls fail with
/// [`Error::Unavailable`](cobalt_core::Error::Unavailable) meanwhile. Clones share the connection; it ends with the last
/// of them.
///
/// Lists are cheap to repeat: an inventory is one list and one bulk call, and XML is read once per domain until an
/// event or a new number says that it has changed, and once per hour in any case.
///
/// ```no_run
/// use cobalt_libvirt::{BackendOptions, HypervisorBackend, LibvirtBackend};
/// use futures::StreamExt;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = LibvirtBackend::connect("qemu:///system", BackendOptions::new()).await?;
/// let mut events = backend.events();
/// for domain in backend.inventory().await? {
///     println!("{} ({}): {:?}", domain.name, domain.id, domain.state);
/// }
/// while let Some(event) = events.next().await {
///     println!("{event:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LibvirtBackend {
    shared: Arc<Shared>,
    _supervisor: Arc<Supervisor>,
}

/// Ends the connection with the last handle.
#[derive(Debug)]
struct Supervisor(AbortHandle);

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl LibvirtBackend {
    /// A backend for the daemon that `uri` names. It returns after the first attempt to connect, whether that went well
    /// or not: a daemon that is down is no reason not to start. Only a URI that cannot work is an error.
    pub async fn connect(uri: &str, options: BackendOptions) -> Result<Self, Error> {
        let backend = Self::start(uri.parse()?, options);
        backend.shared.first_attempt().await;
        Ok(backend)
    }

    /// The same without waiting for anything. Must be called within a tokio runtime.
    pub fn start(uri: LibvirtUri, options: BackendOptions) -> Self {
        let shared = Arc::new(Shared::new(uri, options));
        let task = tokio::spawn(Arc::clone(&shared).supervise());
        Self { shared, _supervisor: Arc::new(Supervisor(task.abort_handle())) }
    }

    /// How the connection fares.
    pub fn connection_state(&self) -> ConnectionState {
        self.shared.state()
    }

    /// The daemon's URI.
    pub fn uri(&self) -> &LibvirtUri {
        &self.shared.uri
    }

    /// How many event streams are open.
    pub fn listeners(&self) -> usize {
        self.shared.readers()
    }

    fn live(&self, operation: impl FnOnce() -> String) -> Result<Arc<Live>> {
        self.shared.live().map_err(|last_error| {
            let uri = self.shared.uri.to_string();
            Seam::unavailable(operation(), NotConnected { uri, last_error })
        })
    }

    fn inventory_of<'a>(&'a self, live: &'a Live) -> Inventory<'a> {
        let options = &self.shared.options;
        Inventory { live, cache: &self.shared.cache, pipeline: options.pipeline, xml_max_age: options.xml_max_age }
    }

    /// Refuses what the driver lacks.
    fn able(&self, has: fn(&Features) -> bool, operation: impl FnOnce() -> String) -> Result<()> {
        if has(&self.shared.features()) { Ok(()) } else { Err(Seam::unsupported(operation(), self.shared.driver())) }
    }

    /// What the daemon said, in the terms of the seam; what it lacks is remembered.
    fn learn(&self, live: &Live, error: Error, ability: Ability) -> Seam {
        if error.is_no_support() {
            self.shared.lacks(ability);
        }
        error.into_core(&live.driver)
    }
}

/// The domain with this id. What is no UUID is no id of any domain.
fn domain_ref(id: &InstanceId, operation: impl FnOnce() -> String) -> Result<DomainRef> {
    let uuid = Uuid::try_parse(id.as_str()).map_err(|_| Seam::not_found(operation()))?;
    Ok(DomainRef::from_uuid(uuid))
}

#[async_trait]
impl HypervisorBackend for LibvirtBackend {
    fn driver(&self) -> String {
        self.shared.driver()
    }

    fn features(&self) -> Features {
        self.shared.features()
    }

    async fn versions(&self) -> Result<Versions> {
        Ok(self.live(|| "get versions".into())?.versions.clone())
    }

    async fn capabilities(&self) -> Result<HostCapabilities> {
        let live = self.live(|| "get capabilities".into())?;
        Ok(live.fresh_host().await?.capabilities())
    }

    async fn domain_capabilities(&self) -> Result<DomainCapabilities> {
        let operation = || "get domain capabilities".to_owned();
        self.able(|features| features.domain_capabilities, operation)?;
        let live = self.live(operation)?;
        // No arguments at all: the host's own emulator, architecture, machine and, where it can, KVM.
        let request =
            DomainCapabilitiesArguments { emulator: None, arch: None, machine: None, virt_type: None, flags: 0 };
        let text = live.libvirt.domain_capabilities(&request).await;
        let text = text.map_err(|error| self.learn(&live, error, Ability::DomainCapabilities))?;
        let xml = DomainCapabilitiesXml::parse(&text).map_err(|error| error.into_seam(operation()))?;
        Ok(xml.capabilities)
    }

    async fn inventory(&self) -> Result<Vec<Domain>> {
        let live = self.live(|| "list domains".into())?;
        self.inventory_of(&live).all(self.shared.features().stats).await
    }

    async fn domain(&self, id: &InstanceId) -> Result<Domain> {
        let operation = || format!("get domain {id}");
        let live = self.live(operation)?;
        self.inventory_of(&live).one(domain_ref(id, operation)?.uuid).await
    }

    async fn stats(&self) -> Result<Vec<DomainStats>> {
        let operation = || "get domain statistics".to_owned();
        self.able(|features| features.stats, operation)?;
        let live = self.live(operation)?;
        let counters = self.inventory_of(&live).counters().await;
        if counters.as_ref().is_err_and(Seam::is_unsupported) {
            self.shared.lacks(Ability::Stats);
        }
        counters
    }

    fn events(&self) -> BoxStream<'static, BackendEvent> {
        self.shared.subscribe().boxed()
    }

    async fn job(&self, id: &InstanceId) -> Result<Option<Job>> {
        let operation = || format!("get job of domain {id}");
        self.able(|features| features.jobs, operation)?;
        let live = self.live(operation)?;
        let domain = domain_ref(id, operation)?;
        match live.libvirt.job_stats(&domain, JobQuery::Running).await {
            Ok(stats) => {
                if let Some(job) = job::job(&stats) {
                    return Ok(Some(job));
                }
            }
            // What does not run has no running job, but may remember its last one.
            Err(error) if error.code() == Some(code::OPERATION_INVALID) => {}
            // Only where a guest arrives are figures refused like this.
            Err(error) if error.code() == Some(code::OPERATION_UNSUPPORTED) => return Ok(Some(job::arriving())),
            Err(error) => return Err(self.learn(&live, error, Ability::Jobs)),
        }
        let completed = live.libvirt.job_stats(&domain, JobQuery::CompletedKeep).await;
        match completed {
            Ok(stats) => Ok(job::job(&stats)),
            Err(error) if error.code() == Some(code::OPERATION_INVALID) => Ok(None),
            Err(error) => Err(error.into_core(&live.driver)),
        }
    }

    async fn abort_job(&self, id: &InstanceId) -> Result<()> {
        let operation = || format!("abort job of domain {id}");
        self.able(|features| features.jobs, operation)?;
        let live = self.live(operation)?;
        let domain = domain_ref(id, operation)?;
        live.libvirt.abort_job(&domain).await.map_err(|error| self.learn(&live, error, Ability::Jobs))
    }

    async fn migrate(&self, id: &InstanceId, request: &MigrateRequest) -> Result<()> {
        let operation = || format!("migrate domain {id} to {}", request.destination);
        self.able(|features| features.migration, operation)?;
        let live = self.live(operation)?;
        let domain = domain_ref(id, operation)?;
        let options = MigrateOptions {
            live: request.live,
            persist: request.persist,
            undefine_source: request.persist,
            copy_storage: request.copy_storage,
            unsafe_: self.shared.options.migrate_unsafe,
            timeout: self.shared.options.migrate_timeout,
            ..MigrateOptions::live(request.destination.clone())
        };
        // On a connection of its own: a migration holds its place on one to the end, and a few of them would leave none
        // for anything else.
        let Shared { uri, options: backend, .. } = &*self.shared;
        let own =
            Libvirt::connect_with(uri, &backend.connection).await.map_err(|error| error.into_core(&live.driver))?;
        let answer = own.migrate_p2p(&domain, &options).await;
        answer.map_err(|error| self.learn(&live, error, Ability::Migration))
    }

    async fn power(&self, id: &InstanceId, action: PowerAction) -> Result<()> {
        let operation = || format!("{} domain {id}", verb(action));
        self.able(|features| features.power, operation)?;
        let live = self.live(operation)?;
        let domain = domain_ref(id, operation)?;
        let libvirt = &live.libvirt;
        let answer = match action {
            PowerAction::Start => libvirt.start(&domain, StartFlags::NONE).await.map(drop),
            PowerAction::Destroy => libvirt.destroy(&domain).await,
            PowerAction::Suspend => libvirt.suspend(&domain).await,
            PowerAction::Resume => libvirt.resume(&domain).await,
            PowerAction::Reset => match libvirt.reset(&domain).await {
                // Cloud Hypervisor has no reset button, but its reboot asks no guest either.
                Err(error) if error.is_no_support() => libvirt.reboot(&domain, ShutdownFlags::NONE).await,
                other => other,
            },
            _ => return Err(Seam::unsupported(operation(), self.shared.driver())),
        };
        let Err(error) = answer else { return Ok(()) };
        let unclear = error.code().is_some_and(|code| code != code::NO_DOMAIN && code != code::NO_SUPPORT);
        // Drivers disagree on the code for "not in this state", so the state is asked what the matter is.
        if unclear
            && let Ok(state) = self.inventory_of(&live).state(domain.uuid).await
            && let Some(reason) = state::forbids(state, action)
        {
            let (operation, reason) = (operation(), reason.to_owned());
            return Err(Seam::Conflict { operation, reason, cause: Some(error.into()) });
        }
        Err(error.into_core(&live.driver))
    }
}

fn verb(action: PowerAction) -> &'static str {
    match action {
        PowerAction::Start => "start",
        PowerAction::Destroy => "destroy",
        PowerAction::Reset => "reset",
        PowerAction::Suspend => "suspend",
        PowerAction::Resume => "resume",
        _ => "change the power of",
    }
}
