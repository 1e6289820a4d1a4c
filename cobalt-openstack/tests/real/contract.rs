//! The clients keep the contracts of their seams on a real cloud, completely: nothing is skipped.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use cobalt_core::{
    contract::{self, Provoked, Stop, nova::NovaFixture, placement::PlacementFixture, test_bed::TestBedFixture},
    ids::{AggregateId, HostName, InstanceId, ProviderId},
    nova::{AfterEvacuation, NewServer, NovaClient, PlacementClient, ServerStatus, TestBed},
};
use cobalt_openstack::OpenStack;
use cobalt_rig::{Account, Boot, ControlPlane};
use serde_json::json;

use super::rig::{HOSTS, Turn, tried, until};

struct Region {
    plane: Arc<ControlPlane>,
    openstack: OpenStack,
    made: usize,
    used: Option<InstanceId>,
    dead: Option<HostName>,
}

impl Region {
    fn name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what}-{}", self.made)
    }

    /// What the rig cannot do is a fault of the fixture, and told as one.
    async fn done<T: Send + 'static>(
        &self,
        act: impl FnOnce(&ControlPlane) -> cobalt_rig::Result<T> + Send + 'static,
    ) -> Provoked<T> {
        tried(&self.plane, act).await.map_err(Stop::Failed)
    }

    async fn provider(&self, host: &HostName) -> Provoked<ProviderId> {
        Ok(self.openstack.nova().hypervisor_named(host.as_str()).await?.id)
    }
}

#[async_trait]
impl NovaFixture for Region {
    fn nova(&self) -> Arc<dyn NovaClient> {
        Arc::new(self.openstack.nova())
    }

    fn hosts(&self) -> Vec<HostName> {
        ["hv-1", "hv-2", "hv-3"].map(HostName::from).to_vec()
    }

    async fn similar_hosts(&mut self) -> Provoked<Vec<HostName>> {
        Ok(HOSTS.into_iter().filter(|name| name.starts_with("hv-1")).map(HostName::from).collect())
    }

    async fn spare_host(&mut self) -> Provoked<HostName> {
        let name = self.name("spare");
        let host = HostName::from(name.as_str());
        self.done(move |plane| {
            plane.start_compute(&name)?;
            plane.wait_for_compute(&name)?;
            plane.kill_compute(&name)
        })
        .await?;
        Ok(host)
    }

    async fn add_server(&mut self, host: &HostName) -> Provoked<InstanceId> {
        let (name, host) = (self.name("server"), host.to_string());
        Ok(self.done(move |plane| plane.boot(&host, &name)).await?.into())
    }

    async fn stop_server(&mut self, id: &InstanceId) -> Provoked<()> {
        let id = id.to_string();
        self.done(move |plane| plane.act(&id, "os-stop", &json!(null))).await
    }

    async fn migrations_last(&mut self, last: bool) -> Provoked<()> {
        let time = if last { Duration::from_secs(3600) } else { Duration::from_millis(200) };
        self.done(move |plane| HOSTS.iter().try_for_each(|host| plane.compute(host).migrations_take(time))).await
    }

    fn new_server(&self) -> Provoked<NewServer> {
        Ok(NewServer {
            name: "smoke-test".into(),
            flavor: self.plane.flavors().0.into(),
            image: self.plane.image().into(),
            network: None,
            availability_zone: None,
            volume: None,
        })
    }

    async fn kill_host(&mut self, host: &HostName) -> Provoked<()> {
        let host = host.to_string();
        self.done(move |plane| plane.kill_compute(&host)).await
    }

    async fn revive_host(&mut self, host: &HostName) -> Provoked<()> {
        let host = host.to_string();
        self.done(move |plane| plane.start_compute(&host)).await
    }

    async fn add_apart(&mut self) -> Provoked<[InstanceId; 2]> {
        let names = [self.name("group"), self.name("apart"), self.name("apart")];
        let ids = self.done(move |plane| {
            let group = plane.add_server_group(&names[0], "anti-affinity")?;
            let ask = |name: &str| plane.request(&Boot::new(name).group(&group));
            let ids = [ask(&names[1])?, ask(&names[2])?];
            ids.iter().try_for_each(|id| plane.wait_for_server(id, "ACTIVE"))?;
            Ok(ids)
        });
        Ok(ids.await?.map(InstanceId::from))
    }

    async fn add_aggregate(&mut self, name: &str, zone: Option<&str>) -> Provoked<AggregateId> {
        let (name, zone) = (name.to_owned(), zone.map(str::to_owned));
        let id = self.done(move |plane| plane.add_aggregate(&name, zone.as_deref())).await?;
        Ok(AggregateId::from(id.to_string()))
    }
}

#[async_trait]
impl PlacementFixture for Region {
    fn placement(&self) -> Arc<dyn PlacementClient> {
        Arc::new(self.openstack.placement())
    }

    async fn used_provider(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        let host = HostName::from("hv-1");
        let server = match &self.used {
            Some(server) => server.clone(),
            None => self.add_server(&host).await?,
        };
        self.used = Some(server.clone());
        Ok((self.provider(&host).await?, server))
    }

    async fn spare_provider(&mut self) -> Provoked<ProviderId> {
        let host = self.spare_host().await?;
        self.provider(&host).await
    }

    async fn evacuate(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        let last = self.dead.take();
        let host = self.hosts().into_iter().skip(1).find(|host| Some(host) != last.as_ref()).unwrap();
        let server = self.add_server(&host).await?;
        let (nova, provider) = (self.openstack.nova(), self.provider(&host).await?);
        self.kill_host(&host).await?;
        let service = nova.service_on(&host).await?;
        nova.force_service_down(&service.id, true).await?;
        nova.evacuate(&server, None, AfterEvacuation::Run).await?;
        // Not the server: it is seen elsewhere, or running, before its evacuation is over.
        until("the end of the evacuation", || async {
            let Ok(all) = nova.migrations(&host).await else { return false };
            all.iter().any(|migration| migration.server == server && migration.phase.is_over())
        })
        .await;
        if nova.server(&server).await?.status != ServerStatus::Active {
            return Stop::failed(format!("{server} was not evacuated"));
        }
        self.dead = Some(host);
        Ok((provider, server))
    }

    async fn revive(&mut self) -> Provoked<()> {
        let host = self.dead.clone().unwrap();
        let nova = self.openstack.nova();
        self.revive_host(&host).await?;
        let service = nova.service_on(&host).await?;
        until("the declaration to be taken back", || async {
            nova.force_service_down(&service.id, false).await.is_ok()
        })
        .await;
        Ok(())
    }
}

#[async_trait]
impl TestBedFixture for Region {
    fn bed(&self) -> Arc<dyn TestBed> {
        Arc::new(self.openstack.test_bed())
    }

    async fn add_image(&mut self, name: &str) -> Provoked<String> {
        // Glance tells the age of images in seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let name = name.to_owned();
        self.done(move |plane| plane.add_image(&name)).await
    }

    async fn add_network(&mut self, name: &str, shared: bool) -> Provoked<String> {
        let name = name.to_owned();
        self.done(move |plane| plane.add_network(Account::Operator, &name, shared)).await
    }

    async fn add_flavor(&mut self, id: &str, name: &str) -> Provoked<()> {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.done(move |plane| plane.add_flavor(&id, &name, 0, &[])).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_cloud_keeps_the_contracts_of_its_seams() {
    let test = "a_real_cloud_keeps_the_contracts_of_its_seams";
    let Some(turn) = tokio::task::block_in_place(|| Turn::wait(test)) else { return };
    let openstack = turn.connect().await;
    let mut region = Region { plane: turn.plane().clone(), openstack, made: 0, used: None, dead: None };
    region.migrations_last(false).await.unwrap();
    let nova = contract::nova::run(&mut region).await;
    let placement = contract::placement::run(&mut region).await;
    let bed = contract::test_bed::run(&mut region).await;
    // All, also when the first has failed: a run takes minutes.
    eprintln!("{nova}\n{placement}\n{bed}");
    nova.assert_complete();
    placement.assert_complete();
    bed.assert_complete();
}
