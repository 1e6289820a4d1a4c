//! The clients keep the contracts of their seams on the simulated API, completely: nothing is skipped.

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    contract::{self, Provoked, Stop, nova::NovaFixture, placement::PlacementFixture, test_bed::TestBedFixture},
    ids::{AggregateId, HostName, InstanceId, ProviderId},
    nova::{AfterEvacuation, GroupPolicy, NewServer, NovaClient, PlacementClient, ServerStatus, ServiceState, TestBed},
};
use cobalt_openstack::OpenStack;
use cobalt_sim::{Driver, Flavor, Region};

use super::{Served, brisk, until};

struct Cloud {
    served: Served,
    openstack: OpenStack,
    image: String,
    added: usize,
    dead: Option<HostName>,
}

fn done<T>(answer: Result<T, cobalt_sim::SimError>) -> Provoked<T> {
    answer.map_err(|error| Stop::Failed(error.to_string()))
}

impl Cloud {
    async fn new() -> Self {
        let region = Region::builder().hosts(4).vms_per_host(2).seed(3).timing(brisk()).build();
        let image = region.world().add_image("smoke");
        let served = Served::start(region).await;
        // Pages of three, so that no list of the suites comes in one.
        served.api.set_page_size(3);
        let openstack = served.connect().await;
        Self { served, openstack, image, added: 0, dead: None }
    }

    fn region(&self) -> &Region {
        &self.served.region
    }

    async fn up(&self, host: &HostName) {
        let nova = self.openstack.nova();
        until("the compute service", || async {
            nova.service_on(host).await.is_ok_and(|service| service.state == ServiceState::Up)
        })
        .await;
    }

    async fn new_host(&mut self, name: &str) -> Provoked<HostName> {
        let host = done(self.region().add_host(name, Driver::Qemu, &[(16, 64)]))?;
        done(self.region().world().start_compute(&host))?;
        self.up(&host).await;
        Ok(host)
    }

    async fn provider(&self, host: &HostName) -> Provoked<ProviderId> {
        Ok(self.openstack.nova().hypervisor_named(host.as_str()).await?.id)
    }

    /// Until its agent has cleaned up, which it does when it starts.
    async fn started(&self, host: &HostName) -> Provoked<()> {
        done(self.region().world().power_on(host))?;
        let world = self.region().world();
        until("the host and its agent", || async { world.host(host).unwrap().running && world.planned() == 0 }).await;
        Ok(())
    }
}

#[async_trait]
impl NovaFixture for Cloud {
    fn nova(&self) -> Arc<dyn NovaClient> {
        Arc::new(self.openstack.nova())
    }

    fn hosts(&self) -> Vec<HostName> {
        self.region().hosts().into_iter().take(4).collect()
    }

    async fn similar_hosts(&mut self) -> Provoked<Vec<HostName>> {
        let mut hosts = Vec::new();
        for name in ["zz-1", "zz-10", "zz-1.a.example", "zz-1.b.example"] {
            hosts.push(self.new_host(name).await?);
        }
        Ok(hosts)
    }

    async fn spare_host(&mut self) -> Provoked<HostName> {
        self.added += 1;
        let host = self.new_host(&format!("spare-{}", self.added)).await?;
        done(self.region().world().stop_compute(&host))?;
        Ok(host)
    }

    async fn add_server(&mut self, host: &HostName) -> Provoked<InstanceId> {
        done(self.region().boot(host, "2"))
    }

    async fn stop_server(&mut self, id: &InstanceId) -> Provoked<()> {
        done(self.region().world().guest_shutdown(id)).map(|_| ())
    }

    fn new_server(&self) -> Provoked<NewServer> {
        Ok(NewServer {
            name: "smoke-test".into(),
            flavor: "1".into(),
            image: self.image.clone(),
            network: None,
            availability_zone: None,
            volume: None,
        })
    }

    async fn kill_host(&mut self, host: &HostName) -> Provoked<()> {
        done(self.region().world().power_cut(host))
    }

    async fn revive_host(&mut self, host: &HostName) -> Provoked<()> {
        self.started(host).await
    }

    async fn add_apart(&mut self) -> Provoked<[InstanceId; 2]> {
        let hosts = self.hosts();
        let servers = [self.add_server(&hosts[0]).await?, self.add_server(&hosts[1]).await?];
        let policy = GroupPolicy::AntiAffinity { per_host: 1 };
        done(self.region().world().add_server_group("apart", policy, &servers))?;
        Ok(servers)
    }

    async fn add_aggregate(&mut self, name: &str, zone: Option<&str>) -> Provoked<AggregateId> {
        Ok(self.region().add_aggregate(name, zone))
    }
}

#[async_trait]
impl PlacementFixture for Cloud {
    fn placement(&self) -> Arc<dyn PlacementClient> {
        Arc::new(self.openstack.placement())
    }

    async fn used_provider(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        let host = self.region().hosts()[0].clone();
        let server = self.openstack.nova().servers_on(&host).await?.remove(0);
        Ok((self.provider(&host).await?, server.id))
    }

    async fn spare_provider(&mut self) -> Provoked<ProviderId> {
        let host = self.spare_host().await?;
        self.provider(&host).await
    }

    async fn evacuate(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        let last = self.dead.take();
        let host = self.region().hosts().into_iter().skip(1).find(|host| Some(host) != last.as_ref()).unwrap();
        let (nova, server) = (self.openstack.nova(), done(self.region().boot(&host, "2"))?);
        let provider = self.provider(&host).await?;
        done(self.region().world().power_cut(&host))?;
        let service = nova.service_on(&host).await?;
        nova.force_service_down(&service.id, true).await?;
        nova.evacuate(&server, None, AfterEvacuation::Run).await?;
        until("the end of the evacuation", || async {
            let all = nova.migrations(&host).await.unwrap();
            all.iter().any(|migration| migration.server == server && migration.phase.is_over())
        })
        .await;
        assert_eq!(nova.server(&server).await?.status, ServerStatus::Active);
        self.dead = Some(host);
        Ok((provider, server))
    }

    async fn revive(&mut self) -> Provoked<()> {
        let host = self.dead.clone().unwrap();
        self.started(&host).await
    }
}

#[async_trait]
impl TestBedFixture for Cloud {
    fn bed(&self) -> Arc<dyn TestBed> {
        Arc::new(self.openstack.test_bed())
    }

    async fn add_image(&mut self, name: &str) -> Provoked<String> {
        Ok(self.region().world().add_image(name))
    }

    async fn add_network(&mut self, name: &str, shared: bool) -> Provoked<String> {
        Ok(self.region().world().add_network(name, shared))
    }

    async fn add_flavor(&mut self, id: &str, name: &str) -> Provoked<()> {
        self.region().world().add_flavor(Flavor::new(id, name, 1, 64));
        Ok(())
    }
}

#[tokio::test]
async fn nova_keeps_its_contract_over_the_simulated_api() {
    let mut cloud = Cloud::new().await;
    contract::nova::run(&mut cloud).await.assert_complete();
    assert_eq!(cloud.region().world().check(), []);
}

#[tokio::test]
async fn placement_keeps_its_contract_over_the_simulated_api() {
    let mut cloud = Cloud::new().await;
    contract::placement::run(&mut cloud).await.assert_complete();
    assert_eq!(cloud.region().world().check(), []);
}

#[tokio::test]
async fn the_test_bed_keeps_its_contract_over_the_simulated_api() {
    contract::test_bed::run(&mut Cloud::new().await).await.assert_complete();
}
