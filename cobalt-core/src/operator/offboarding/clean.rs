//! Taking a host out of Nova and Placement.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::REMOVING;
use crate::{
    Error, Result,
    ids::{HostName, ProviderId, ServiceId},
    nova::ServiceState,
    operator::{Action, Cloud, Progress, Snapshot},
};

/// What is waited for where Nova's word for a service is somebody's declaration.
pub(super) const FORCED_DOWN: &str = "Waiting for nova-compute to end: the compute service of the host was declared down \
                                      (forced_down), so Nova cannot tell whether its agent runs: take that back, and \
                                      stop nova-compute";

/// Deletes a host's compute service and its resource provider, with what is still booked on it.
///
/// It may be done in part and be done again: what is gone already is as wanted.
#[derive(Debug)]
pub(super) struct CleanUp {
    cloud: Cloud,
    host: HostName,
    /// The recorded service, and that of the host where it is another one.
    services: BTreeSet<ServiceId>,
    /// The same for its providers.
    providers: BTreeSet<ProviderId>,
    /// The name of its provider: the one its hypervisor gives itself.
    provider_name: String,
    /// Whether the agents' Pods are known to be gone, so that a service which was declared down may be deleted.
    agents_gone: bool,
}

impl CleanUp {
    pub(super) fn new(cloud: &Cloud, seen: &Snapshot, agents_gone: bool) -> Self {
        let (host, service, hypervisor) = (seen.host(), seen.service(), seen.nova_hypervisor());
        Self {
            cloud: cloud.clone(),
            provider_name: hypervisor.map_or_else(|| host.to_string(), |hypervisor| hypervisor.hostname.clone()),
            host,
            services: seen.service_id().into_iter().chain(service.map(|service| service.id.clone())).collect(),
            providers: seen.provider_id().into_iter().chain(hypervisor.map(|one| one.id.clone())).collect(),
            agents_gone,
        }
    }

    /// Whether Nova has the host's service and does not hear from it; `Err` with what is waited for otherwise.
    async fn delete_service(&self) -> Result<std::result::Result<(), String>> {
        let service = match self.cloud.nova.service_on(&self.host).await {
            Ok(service) => service,
            Err(error) if error.is_not_found() => return Ok(Ok(())),
            Err(error) => return Err(error),
        };
        if service.state != ServiceState::Down {
            self.cloud.view.learn_service(service);
            return Ok(Err("Waiting for nova-compute to end: the compute service of the host is up again".to_owned()));
        }
        if service.forced_down && !self.agents_gone {
            self.cloud.view.learn_service(service);
            return Ok(Err(FORCED_DOWN.to_owned()));
        }
        gone(self.cloud.nova.delete_service(&service.id).await)?;
        self.cloud.view.forget_service(&service.id);
        Ok(Ok(()))
    }

    /// What is booked on a host without servers is a leftover: of servers that were evacuated from it and live elsewhere,
    /// whose other bookings must stay, or of nobody.
    async fn release(&self, provider: &ProviderId) -> Result<()> {
        let placement = &self.cloud.placement;
        for allocation in placement.allocations(provider).await? {
            match self.cloud.nova.server(&allocation.consumer).await {
                // One without a host is being scheduled, perhaps to this one, or its cell is down.
                Ok(server) if server.host.as_ref().is_none_or(|host| *host == self.host) => {
                    let place = if server.host.is_some() { "is on the host" } else { "has no host yet" };
                    let reason = format!("server {} {place}", server.id);
                    return Err(Error::conflict(format!("clear resource provider {provider}"), reason));
                }
                Ok(_) => {}
                // A server that is no more, or a migration.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
            gone(placement.release(&allocation.consumer, provider).await)?;
        }
        Ok(())
    }

    /// The provider of exactly this host's name, if nobody recorded it: an agent that outlived its service makes such.
    async fn stray(&self) -> Result<Option<ProviderId>> {
        let named = self.cloud.placement.provider_named(&self.provider_name).await?;
        Ok(named.map(|provider| provider.id).filter(|id| !self.providers.contains(id)))
    }

    async fn delete_provider(&self, provider: &ProviderId) -> Result<()> {
        match self.release(provider).await {
            // Nova deletes the provider with the service.
            Err(error) if error.is_not_found() => return Ok(()),
            released => released?,
        }
        gone(self.cloud.placement.delete_provider(provider).await)
    }
}

/// What is not there any more is as wanted.
fn gone(answer: Result<()>) -> Result<()> {
    answer.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

#[async_trait]
impl Action for CleanUp {
    fn key(&self) -> String {
        "remove the host from nova".to_owned()
    }

    fn describe(&self) -> String {
        let services: Vec<&str> = self.services.iter().map(ServiceId::as_str).collect();
        let providers: Vec<&str> = self.providers.iter().map(ProviderId::as_str).collect();
        let (services, providers) = (services.join(", "), providers.join(", "));
        format!("{REMOVING}{} from Nova: compute service {services}, resource provider {providers}", self.host)
    }

    fn is_irreversible(&self) -> bool {
        true
    }

    async fn run(&self) -> Result<Progress> {
        if !self.cloud.nova.servers_on(&self.host).await?.is_empty() {
            let operation = format!("remove {} from Nova", self.host);
            return Err(Error::conflict(operation, "servers are on the host again"));
        }
        if let Err(waits_for) = self.delete_service().await? {
            return Ok(Progress::Underway(waits_for));
        }
        for id in &self.services {
            self.cloud.view.forget_service(id);
        }
        for provider in self.providers.iter().chain(&self.stray().await?) {
            self.delete_provider(provider).await?;
            self.cloud.view.forget_hypervisor(provider);
        }
        Ok(Progress::Done)
    }
}
