//! The contract of [`NovaClient`].

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::{Provoked, Report, Stop, Suite, ascending, ensure, eventually, nova_moves, rejects, same};
use crate::{
    Error,
    ids::{AggregateId, HostName, InstanceId, MigrationId, ProviderId, ServiceId},
    nova::{
        BlockMigration, ComputeService, GroupPolicy, NewServer, NovaClient, ServerName, ServerStatus, ServiceState,
    },
};

/// An id that no server, service or migration has.
pub(super) const NOBODY: &str = "00000000-dead-4000-8000-000000000000";

/// A cloud to be checked, and how to make things happen in it.
///
/// The suite wants a region with at least three hosts whose services are enabled and up, with room for a dozen small
/// servers. It cleans up after itself as far as the trait allows.
#[async_trait]
pub trait NovaFixture: Send + Sync {
    /// The cloud.
    fn nova(&self) -> Arc<dyn NovaClient>;

    /// Hosts that may be disabled, killed and revived; at least three.
    fn hosts(&self) -> Vec<HostName>;

    /// Two or more hosts whose names begin with each other, such as `hv-1` and `hv-10`, or `a` and `a.b`.
    async fn similar_hosts(&mut self) -> Provoked<Vec<HostName>> {
        Stop::cannot("offer hosts with similar names")
    }

    /// A host whose service may be deleted for good: empty, its agent not running.
    async fn spare_host(&mut self) -> Provoked<HostName> {
        Stop::cannot("offer a host to be deleted")
    }

    /// Puts a running server on a host.
    async fn add_server(&mut self, _host: &HostName) -> Provoked<InstanceId> {
        Stop::cannot("add a server")
    }

    /// Stops a server inside, so that Nova sees it shut off.
    async fn stop_server(&mut self, _id: &InstanceId) -> Provoked<()> {
        Stop::cannot("stop a server")
    }

    /// A small server that the cloud can make, without a wish for a host.
    fn new_server(&self) -> Provoked<NewServer> {
        Stop::cannot("describe a new server")
    }

    /// Lets live migrations last until they are aborted or forced to complete, or end by themselves again, also those
    /// that run. Where that is not possible, each must last for some seconds anyhow, so that it is seen to run.
    async fn migrations_last(&mut self, _last: bool) -> Provoked<()> {
        Ok(())
    }

    /// Kills a host: nothing runs on it any more.
    async fn kill_host(&mut self, _host: &HostName) -> Provoked<()> {
        Stop::cannot("kill a host")
    }

    /// Brings a killed host back, with its compute agent.
    async fn revive_host(&mut self, _host: &HostName) -> Provoked<()> {
        Stop::cannot("revive a host")
    }

    /// Puts two running servers on hosts of the scheduler's choice, in a group that keeps them apart.
    async fn add_apart(&mut self) -> Provoked<[InstanceId; 2]> {
        Stop::cannot("add a server group")
    }

    /// Makes an aggregate, which makes an availability zone if one is named.
    async fn add_aggregate(&mut self, _name: &str, _zone: Option<&str>) -> Provoked<AggregateId> {
        Stop::cannot("add an aggregate")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn NovaFixture) -> Report {
    let mut suite = Suite::new("NovaClient");
    suite.check("services", "services are ordered by host, one each", services(fixture)).await;
    suite.check("service-disable", "disabling is idempotent and the last reason stands", disable(fixture)).await;
    suite
        .check(
            "service-forced-down",
            "a service declared down is down at once, and up when taken back",
            forced(fixture),
        )
        .await;
    suite.check("service-unknown", "an unknown service is not found", service_unknown(fixture)).await;
    suite.check("service-delete", "a service with servers cannot be deleted", service_delete(fixture)).await;
    suite.check("service-gone", "a deleted service takes its hypervisor along", service_gone(fixture)).await;
    suite.check("hypervisors", "each hypervisor has a service, and knows its servers", hypervisors(fixture)).await;
    suite
        .check("hypervisor-exact", "services and hypervisors are found by whole names and UUIDs", exact(fixture))
        .await;
    suite.check("servers-exact", "hosts are matched by their whole names", servers_exact(fixture)).await;
    suite
        .check("server-unknown", "an unknown server is not found, whatever is asked of it", server_unknown(fixture))
        .await;
    suite
        .check("server-create", "a new server is built, runs where it was sent, and can be deleted", create(fixture))
        .await;
    suite
        .check("server-impossible", "a server that fits nowhere ends in error and says why", impossible(fixture))
        .await;
    suite
        .check("servers-named", "servers of ours are found by their whole names, or by a beginning", named(fixture))
        .await;
    suite.check("server-reset", "a server's status can be set by decree", reset(fixture)).await;
    suite.check("aggregate", "a host is added once and removed once", aggregate(fixture)).await;
    suite.check("aggregate-zone", "a host with servers does not change its zone", aggregate_zone(fixture)).await;
    suite.check("aggregate-unknown", "an unknown aggregate or host is not found", aggregate_unknown(fixture)).await;
    suite.check("server-group", "a server group has its policy and those members that exist", group(fixture)).await;
    nova_moves::run(&mut suite, fixture).await;
    suite.0
}

/// One of the fixture's hosts.
pub(super) fn host(fixture: &dyn NovaFixture, index: usize) -> Provoked<HostName> {
    let hosts = fixture.hosts();
    hosts.get(index).cloned().map_or_else(|| Stop::cannot(format!("offer {} hosts", index + 1)), Ok)
}

/// The compute service of exactly this host.
pub(super) async fn service(nova: &dyn NovaClient, host: &HostName) -> Provoked<ComputeService> {
    let found = nova.services().await?.into_iter().find(|service| service.host == *host);
    found.map_or_else(|| Stop::failed(format!("{host} has no compute service")), Ok)
}

/// Deletes a server and waits until it is gone.
pub(super) async fn remove(nova: &dyn NovaClient, id: &InstanceId) -> Provoked<()> {
    match nova.delete_server(id).await {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        _ => {}
    }
    eventually("the server to be gone", || async {
        match nova.server(id).await {
            Err(error) if error.is_not_found() => Ok(true),
            Ok(server) => Ok(server.status == ServerStatus::Deleted),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

async fn services(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let all = fixture.nova().services().await?;
    let hosts: Vec<HostName> = all.iter().map(|service| service.host.clone()).collect();
    ascending("services", &hosts)?;
    for host in fixture.hosts() {
        ensure(hosts.contains(&host), || format!("{host} has no service"))?;
    }
    let mut ids: Vec<&ServiceId> = all.iter().map(|service| &service.id).collect();
    ids.sort();
    ascending("service ids", &ids)
}

async fn disable(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 0)?);
    let id = service(&*nova, &host).await?.id;
    nova.disable_service(&id, "first reason").await?;
    nova.disable_service(&id, "first reason").await?;
    nova.disable_service(&id, "second reason").await?;
    let found = service(&*nova, &host).await?;
    same("enabled", found.enabled, false)?;
    same("reason", found.disabled_reason.as_deref(), Some("second reason"))?;
    nova.enable_service(&id).await?;
    nova.enable_service(&id).await?;
    let found = service(&*nova, &host).await?;
    same("enabled", found.enabled, true)?;
    same("reason", found.disabled_reason, None)?;
    same("state", found.state, ServiceState::Up)
}

async fn forced(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 0)?);
    let id = service(&*nova, &host).await?.id;
    for down in [true, true, false, false] {
        nova.force_service_down(&id, down).await?;
        let found = service(&*nova, &host).await?;
        same("forced_down", found.forced_down, down)?;
        if down {
            same("state", found.state, ServiceState::Down)?;
        }
    }
    eventually("the service to be up", || async { Ok(service(&*nova, &host).await?.state == ServiceState::Up) }).await
}

async fn service_unknown(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, nobody) = (fixture.nova(), ServiceId::from(NOBODY));
    rejects("enable", "not_found", nova.enable_service(&nobody).await)?;
    rejects("disable", "not_found", nova.disable_service(&nobody, "why").await)?;
    rejects("force down", "not_found", nova.force_service_down(&nobody, true).await)?;
    rejects("delete", "not_found", nova.delete_service(&nobody).await)?;
    rejects("get by host", "not_found", nova.service_on(&HostName::from("no-such-host")).await)
}

async fn service_delete(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 0)?);
    let server = fixture.add_server(&host).await?;
    let id = service(&*nova, &host).await?.id;
    rejects("delete", "conflict", nova.delete_service(&id).await)?;
    same("the service", service(&*nova, &host).await?.id, id)?;
    remove(&*nova, &server).await
}

async fn service_gone(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let host = fixture.spare_host().await?;
    let nova = fixture.nova();
    let id = service(&*nova, &host).await?.id;
    nova.delete_service(&id).await?;
    rejects("delete again", "not_found", nova.delete_service(&id).await)?;
    let left = nova.services().await?.iter().any(|service| service.host == host);
    ensure(!left, || "the service is still listed".into())?;
    let left = nova.hypervisors().await?.iter().any(|hypervisor| hypervisor.host == host);
    ensure(!left, || "the hypervisor is still listed".into())
}

async fn hypervisors(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 0)?);
    let server = fixture.add_server(&host).await?;
    let all = nova.hypervisors().await?;
    let hosts: Vec<HostName> = all.iter().map(|hypervisor| hypervisor.host.clone()).collect();
    ascending("hypervisors", &hosts)?;
    let services = nova.services().await?;
    for hypervisor in &all {
        let its = services.iter().find(|service| service.id == hypervisor.service);
        same("the host of its service", its.map(|service| &service.host), Some(&hypervisor.host))?;
    }
    ensure(all.iter().any(|hypervisor| hypervisor.host == host), || "the hypervisor is not listed".into())?;
    ensure(all.iter().all(|hypervisor| hypervisor.servers.is_none()), || "servers were not asked for".into())?;
    let listed: Vec<InstanceId> = nova.servers_on(&host).await?.into_iter().map(|server| server.id).collect();
    ascending("servers", &listed)?;
    ensure(listed.contains(&server), || "the server is not on its host".into())?;
    remove(&*nova, &server).await
}

async fn exact(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 0)?);
    let server = fixture.add_server(&host).await?;
    let service = nova.service_on(&host).await?;
    same("the host of its service", &service.host, &host)?;
    let listed = nova.hypervisors().await?.into_iter().find(|hypervisor| hypervisor.host == host);
    let listed = listed.map_or_else(|| Stop::failed("the hypervisor is not listed"), Ok)?;
    same("its service", &listed.service, &service.id)?;
    let by_id = nova.hypervisor(&listed.id).await?;
    same("the hypervisor by UUID", (&by_id.hostname, &by_id.host), (&listed.hostname, &listed.host))?;
    let by_name = nova.hypervisor_named(&listed.hostname).await?;
    same("the hypervisor by name", &by_name.id, &listed.id)?;
    for found in [&by_id, &by_name] {
        let listed = found.servers.as_ref().is_some_and(|servers| servers.contains(&server));
        ensure(listed, || "the server is missing".into())?;
    }
    // A part of a name is no name, however Nova searches.
    let part: String = listed.hostname.chars().take(listed.hostname.chars().count() - 1).collect();
    let others = nova.hypervisors().await?;
    if others.iter().all(|other| other.hostname != part) {
        rejects("a part of its name", "not_found", nova.hypervisor_named(&part).await)?;
    }
    rejects("an unknown name", "not_found", nova.hypervisor_named("no-such-host").await)?;
    rejects("an unknown UUID", "not_found", nova.hypervisor(&ProviderId::from(NOBODY)).await)?;
    remove(&*nova, &server).await
}

async fn servers_exact(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let hosts = fixture.similar_hosts().await?;
    let nova = fixture.nova();
    let mut servers = Vec::new();
    for host in &hosts {
        servers.push(fixture.add_server(host).await?);
    }
    for (host, server) in hosts.iter().zip(&servers) {
        let found: Vec<InstanceId> = nova.servers_on(host).await?.into_iter().map(|server| server.id).collect();
        ensure(found.contains(server), || format!("{host} lacks its own server"))?;
        let foreign = servers.iter().filter(|other| *other != server).any(|other| found.contains(other));
        ensure(!foreign, || format!("{host} shows a server of a host with a similar name"))?;
    }
    same("a host nobody has", nova.servers_on(&HostName::from("no-such-host")).await?.len(), 0)?;
    for server in &servers {
        remove(&*nova, server).await?;
    }
    Ok(())
}

async fn group(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, [one, other]) = (fixture.nova(), fixture.add_apart().await?);
    let found = || async {
        let all = nova.server_groups().await?;
        ascending("groups by id", &all.iter().map(|group| &group.id).collect::<Vec<_>>())?;
        Ok::<_, Stop>(all.into_iter().find(|group| group.members.contains(&one)))
    };
    let Some(group) = found().await? else { return Stop::cannot("see the group: perhaps it is another project's") };
    same("policy", &group.policy, &GroupPolicy::AntiAffinity { per_host: 1 })?;
    same("members", group.members.iter().collect::<BTreeSet<_>>(), [&one, &other].into())?;
    ensure(nova.server(&one).await?.host != nova.server(&other).await?.host, || "they are together".into())?;
    remove(&*nova, &other).await?;
    eventually("the group to have one member", || async {
        Ok(found().await?.is_some_and(|group| group.members == [one.clone()]))
    })
    .await?;
    remove(&*nova, &one).await
}

async fn server_unknown(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, nobody) = (fixture.nova(), InstanceId::from(NOBODY));
    let migration = MigrationId::from("1");
    rejects("server", "not_found", nova.server(&nobody).await)?;
    rejects("delete_server", "not_found", nova.delete_server(&nobody).await)?;
    rejects("console_output", "not_found", nova.console_output(&nobody, 10).await)?;
    rejects("live_migrate", "not_found", nova.live_migrate(&nobody, None, BlockMigration::Auto).await)?;
    rejects("cold_migrate", "not_found", nova.cold_migrate(&nobody, None).await)?;
    rejects("confirm_migration", "not_found", nova.confirm_migration(&nobody).await)?;
    rejects("reset_state", "not_found", nova.reset_state(&nobody, ServerStatus::Error).await)?;
    rejects("abort_migration", "not_found", nova.abort_migration(&nobody, &migration).await)
}

async fn create(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 1)?);
    let zone = service(&*nova, &host).await?.zone.unwrap_or_default();
    let wanted = NewServer { availability_zone: Some(format!("{zone}:{host}")), ..fixture.new_server()? };
    let id = nova.create_server(&wanted).await?;
    eventually("the server to run", || async {
        let server = nova.server(&id).await?;
        ensure(server.status != ServerStatus::Error, || format!("it is in error: {:?}", server.fault))?;
        Ok(server.status == ServerStatus::Active && server.task.is_none())
    })
    .await?;
    let server = nova.server(&id).await?;
    same("its host", server.host.as_ref(), Some(&host))?;
    same("its name", &server.name, &wanted.name)?;
    ensure(server.powered && server.launched_at.is_some(), || "it does not run".into())?;
    let console = || async { Ok(!nova.console_output(&id, 10).await?.is_empty()) };
    eventually("something on the console", console).await?;
    remove(&*nova, &id).await?;
    // A cloud may show it as deleted for a moment, and takes another request as long as it does.
    eventually("the server to be unknown", || async {
        match nova.delete_server(&id).await {
            Err(error) if error.is_not_found() => Ok(true),
            Ok(()) | Err(Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

async fn named(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let nova = fixture.nova();
    // Letters that mean something to whoever takes a name for a pattern.
    let names = ["contract-hv-1", "contract-hv-10", "contract-hv.1", "contract-hv|(1", "a-contract-hv-1"];
    let mut ids = Vec::new();
    for name in names {
        let wanted = NewServer { name: name.into(), ..fixture.new_server()? };
        ids.push(nova.create_server(&wanted).await?);
    }
    for (name, id) in names.iter().zip(&ids) {
        let found = nova.servers_named(&ServerName::Exactly((*name).into())).await?;
        let found: Vec<InstanceId> = found.into_iter().map(|server| server.id).collect();
        same(name, found, vec![id.clone()])?;
    }
    for (beginning, count) in [("contract-hv", 4), ("contract-hv-", 2), ("contract-hv|(", 1), ("ontract-hv", 0)] {
        let found = nova.servers_named(&ServerName::StartingWith(beginning.into())).await?;
        let found: Vec<InstanceId> = found.into_iter().map(|server| server.id).collect();
        ascending("servers", &found)?;
        same(beginning, found.len(), count)?;
    }
    same("another case", nova.servers_named(&ServerName::Exactly("Contract-hv-1".into())).await?.len(), 0)?;
    for id in &ids {
        remove(&*nova, id).await?;
    }
    same("what is gone", nova.servers_named(&ServerName::StartingWith("contract-hv".into())).await?.len(), 0)
}

async fn impossible(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let nova = fixture.nova();
    let hosts: Vec<ServiceId> =
        nova.services().await?.into_iter().filter(|service| service.enabled).map(|service| service.id).collect();
    for id in &hosts {
        nova.disable_service(id, "nobody may come").await?;
    }
    let outcome = async {
        let id = nova.create_server(&fixture.new_server()?).await?;
        let failed = || async { Ok(nova.server(&id).await?.status == ServerStatus::Error) };
        eventually("the server to fail", failed).await?;
        ensure(nova.server(&id).await?.fault.is_some(), || "it does not say why".into())?;
        remove(&*nova, &id).await
    }
    .await;
    for id in &hosts {
        nova.enable_service(id).await?;
    }
    outcome
}

async fn reset(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let (nova, host) = (fixture.nova(), host(fixture, 0)?);
    let id = fixture.add_server(&host).await?;
    nova.reset_state(&id, ServerStatus::Error).await?;
    same("status", nova.server(&id).await?.status, ServerStatus::Error)?;
    rejects("live-migrate in error", "conflict", nova.live_migrate(&id, None, BlockMigration::Auto).await)?;
    nova.reset_state(&id, ServerStatus::Active).await?;
    same("status", nova.server(&id).await?.status, ServerStatus::Active)?;
    remove(&*nova, &id).await
}

async fn aggregate(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let host = host(fixture, 0)?;
    let id = fixture.add_aggregate("contract", None).await?;
    let nova = fixture.nova();
    nova.add_to_aggregate(&id, &host).await?;
    rejects("add twice", "conflict", nova.add_to_aggregate(&id, &host).await)?;
    let all = nova.aggregates().await?;
    let names: Vec<&str> = all.iter().map(|aggregate| aggregate.name.as_str()).collect();
    ascending("aggregates", &names)?;
    let mine = all.iter().find(|aggregate| aggregate.id == id);
    same("its hosts", mine.map(|mine| mine.hosts.clone()), Some(vec![host.clone()]))?;
    nova.remove_from_aggregate(&id, &host).await?;
    rejects("remove twice", "not_found", nova.remove_from_aggregate(&id, &host).await)
}

async fn aggregate_zone(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let host = host(fixture, 0)?;
    let id = fixture.add_aggregate("contract-zone", Some("another-zone")).await?;
    let server = fixture.add_server(&host).await?;
    let nova = fixture.nova();
    rejects("add a host with servers", "conflict", nova.add_to_aggregate(&id, &host).await)?;
    remove(&*nova, &server).await
}

async fn aggregate_unknown(fixture: &mut dyn NovaFixture) -> Provoked<()> {
    let host = host(fixture, 0)?;
    let id = fixture.add_aggregate("contract-empty", None).await?;
    let (nova, nothing, nowhere) = (fixture.nova(), AggregateId::from("999999"), HostName::from("no-such-host"));
    rejects("add to nothing", "not_found", nova.add_to_aggregate(&nothing, &host).await)?;
    rejects("remove from nothing", "not_found", nova.remove_from_aggregate(&nothing, &host).await)?;
    rejects("add nobody", "not_found", nova.add_to_aggregate(&id, &nowhere).await)?;
    rejects("remove nobody", "not_found", nova.remove_from_aggregate(&id, &nowhere).await)
}
