//! OpenStack's compute side: Nova and Placement.
//!
//! Two seams, because they are two services with two ways of failing: [`NovaClient`] for services, hypervisors,
//! servers, migrations and aggregates, [`PlacementClient`] for resource providers and what they hold. A third,
//! [`TestBed`], finds what the smoke test of a new host boots from: by names, which people write. Microversions
//! are the implementation's business, except where they change what happens to a VM: those are arguments
//! ([`AfterEvacuation`]).
//!
//! Hosts are matched by their whole name or their UUID. There is no pattern search, because Nova's is a substring
//! match: asking for `hv-1` finds `hv-10`.

#![allow(clippy::ref_option_ref, reason = "the expansion of mockall's attribute")]

mod placement;
mod test_bed;
mod types;
pub mod view;

use async_trait::async_trait;

pub use placement::{
    Allocation, Candidate, Inventory, PlacementClient, Provider, Resources, TraitChange, Traits, change_traits,
};
pub use test_bed::TestBed;
pub use types::{
    AfterEvacuation, Aggregate, BlockMigration, ComputeService, GroupPolicy, Migration, MigrationKind, MigrationPhase,
    NewServer, NewVolume, NovaHypervisor, Server, ServerGroup, ServerName, ServerStatus, ServiceState, TaskState,
};

#[cfg(feature = "testing")]
pub use placement::MockPlacementClient;
#[cfg(feature = "testing")]
pub use test_bed::MockTestBed;

use crate::{
    Result,
    ids::{AggregateId, HostName, InstanceId, MigrationId, ProviderId, ServiceId},
};

/// OpenStack's compute service.
///
/// Every call is one request (or one list with its pages), with a timeout, and is safe to repeat: a write that finds
/// its work done succeeds or answers [`Error::Conflict`](crate::Error::Conflict) /
/// [`Error::NotFound`](crate::Error::NotFound), as documented per method. `202 Accepted` is no proof; look at the
/// server afterwards.
///
/// ```
/// use cobalt_core::{ids::HostName, nova::NovaClient};
///
/// async fn is_empty(nova: &dyn NovaClient, host: &HostName) -> cobalt_core::Result<bool> {
///     Ok(nova.servers_on(host).await?.is_empty())
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait NovaClient: Send + Sync {
    /// All compute services of the region, ordered by host.
    async fn services(&self) -> Result<Vec<ComputeService>>;

    /// The compute service of exactly this host.
    async fn service_on(&self, host: &HostName) -> Result<ComputeService>;

    /// Lets the scheduler use a host again. Repeating it changes nothing.
    async fn enable_service(&self, id: &ServiceId) -> Result<()>;

    /// Keeps the scheduler from using a host, with the reason people will read. Repeating it updates the reason.
    async fn disable_service(&self, id: &ServiceId, reason: &str) -> Result<()>;

    /// Declares a host dead (`true`) before Nova notices, or takes that back, which is a
    /// [`Error::Conflict`](crate::Error::Conflict) until the host's agent has cleaned up after evacuations.
    async fn force_service_down(&self, id: &ServiceId, down: bool) -> Result<()>;

    /// Removes a service. [`Error::Conflict`](crate::Error::Conflict) while servers are on the host.
    async fn delete_service(&self, id: &ServiceId) -> Result<()>;

    /// All hypervisors of the region, ordered by host, without their servers.
    async fn hypervisors(&self) -> Result<Vec<NovaHypervisor>>;

    /// The hypervisor with this UUID, with its servers.
    async fn hypervisor(&self, id: &ProviderId) -> Result<NovaHypervisor>;

    /// The hypervisor that gives itself exactly this name, with its servers.
    async fn hypervisor_named(&self, hostname: &str) -> Result<NovaHypervisor>;

    /// The servers whose host is exactly this one, of all projects, ordered by id.
    async fn servers_on(&self, host: &HostName) -> Result<Vec<Server>>;

    /// The servers of our own project with this name, ordered by id: what an earlier smoke test left behind.
    async fn servers_named(&self, name: &ServerName) -> Result<Vec<Server>>;

    /// One server.
    async fn server(&self, id: &InstanceId) -> Result<Server>;

    /// Makes a server; for the smoke test of a new host.
    async fn create_server(&self, server: &NewServer) -> Result<InstanceId>;

    /// Deletes a server. [`Error::NotFound`](crate::Error::NotFound) if it is gone already.
    async fn delete_server(&self, id: &InstanceId) -> Result<()>;

    /// The last lines of a server's console.
    async fn console_output(&self, id: &InstanceId, lines: u32) -> Result<String>;

    /// Moves a running server, to a host of the scheduler's choice or to this one.
    /// [`Error::Conflict`](crate::Error::Conflict) while another task runs on it.
    async fn live_migrate<'a>(
        &self,
        id: &InstanceId,
        target: Option<&'a HostName>,
        block_migration: BlockMigration,
    ) -> Result<()>;

    /// Moves a server that may be shut off, to a host of the scheduler's choice or to this one; it ends in
    /// [`ServerStatus::VerifyResize`] and wants [`NovaClient::confirm_migration`].
    async fn cold_migrate<'a>(&self, id: &InstanceId, target: Option<&'a HostName>) -> Result<()>;

    /// Confirms a cold migration. That takes its time: until it is over the migration is
    /// [`Confirming`](MigrationPhase::Confirming), the server looks as before, and a second yes is refused.
    async fn confirm_migration(&self, id: &InstanceId) -> Result<()>;

    /// Rebuilds a server of a dead host elsewhere. [`Error::Refused`](crate::Error::Refused) while the host's
    /// service is up, [`Error::Conflict`](crate::Error::Conflict) while something is done with the server: Nova itself
    /// would rebuild it twice, so an implementation looks first.
    ///
    /// It is over when its record among the [`migrations`](NovaClient::migrations) is, and not before: Nova shows a
    /// rebuilt server for a moment as running, without a task and still on the dead host, before it shuts it off (if
    /// it is to stay off) and says where it is.
    async fn evacuate<'a>(&self, id: &InstanceId, target: Option<&'a HostName>, after: AfterEvacuation) -> Result<()>;

    /// Sets a server's status by decree.
    async fn reset_state(&self, id: &InstanceId, status: ServerStatus) -> Result<()>;

    /// Migrations from or to this host, newest first.
    async fn migrations(&self, host: &HostName) -> Result<Vec<Migration>>;

    /// Stops a live migration. [`Error::Conflict`](crate::Error::Conflict) when it is past the point of return.
    async fn abort_migration(&self, server: &InstanceId, migration: &MigrationId) -> Result<()>;

    /// Pauses the guest so that its live migration can end.
    async fn force_complete_migration(&self, server: &InstanceId, migration: &MigrationId) -> Result<()>;

    /// All server groups of all projects, ordered by id, with their members that exist. Whoever is no administrator sees
    /// those of their own project only.
    async fn server_groups(&self) -> Result<Vec<ServerGroup>>;

    /// All aggregates, ordered by name.
    async fn aggregates(&self) -> Result<Vec<Aggregate>>;

    /// Adds a host. [`Error::Conflict`](crate::Error::Conflict) if it is a member, or if that would change the
    /// availability zone of its servers.
    async fn add_to_aggregate(&self, id: &AggregateId, host: &HostName) -> Result<()>;

    /// Removes a host. [`Error::NotFound`](crate::Error::NotFound) if it is no member.
    async fn remove_from_aggregate(&self, id: &AggregateId, host: &HostName) -> Result<()>;
}
