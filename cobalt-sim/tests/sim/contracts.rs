//! The simulated implementations keep the contract of every seam, completely: nothing is skipped.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use cobalt_core::{
    backend::{DomainEvent, EventKind, HypervisorBackend, MigrateRequest, WatchdogAction},
    contract::{
        self, Provoked, Stop, backend::BackendFixture, fence::FencerFixture, host::HostFixture, nova::NovaFixture,
        ovs::OvsFixture, placement::PlacementFixture, test_bed::TestBedFixture,
    },
    fence::Fencer,
    host::{ActiveState, HostSystem},
    ids::{AggregateId, HostName, InstanceId, ProviderId},
    nova::{
        AfterEvacuation, BlockMigration, GroupPolicy, NewServer, NovaClient, PlacementClient, ServerStatus, TestBed,
    },
    ovs::{OvsInspector, TraceRequest},
};
use cobalt_sim::{DaemonState, Driver, Flavor, Orphan, Region, SimBackend, SimError, SwitchFault, VmSpec};

/// What the world refuses is a fault of the fixture, not of the seam.
fn done<T>(result: Result<T, SimError>) -> Provoked<T> {
    result.map_err(|error| Stop::Failed(error.to_string()))
}

pub(crate) struct Backend {
    region: Region,
    host: HostName,
    pub(crate) handle: SimBackend,
}

impl Backend {
    pub(crate) fn new(driver: Driver) -> Self {
        let region = Region::builder().hosts(2).vms_per_host(5).driver(driver).event_capacity(64).build();
        let host = region.hosts()[0].clone();
        let handle = region.backend(&host).unwrap();
        Self { region, host, handle }
    }
}

#[async_trait]
impl BackendFixture for Backend {
    fn backend(&self) -> Arc<dyn HypervisorBackend> {
        Arc::new(self.handle.clone())
    }

    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        done(self.region.world().start_domain(&self.host, &VmSpec::default()))
    }

    async fn remove_domain(&mut self, id: &InstanceId) -> Provoked<()> {
        done(self.region.world().remove_domain(&self.host, id))
    }

    async fn provoke(&mut self, id: &InstanceId, kind: EventKind) -> Provoked<()> {
        let world = self.region.world();
        match kind {
            EventKind::Reboot => done(world.guest_reboot(id))?,
            EventKind::Watchdog => done(world.guest_watchdog(id, WatchdogAction::Reset))?,
            EventKind::IoError => done(world.disk_error(id, "vda", "enospc"))?,
            EventKind::ControlError => done(world.guest_event(id, DomainEvent::ControlError))?,
            EventKind::AgentLifecycle => done(world.guest_event(id, DomainEvent::AgentConnected(false)))?,
            EventKind::MemoryFailure => done(world.guest_event(id, DomainEvent::MemoryFailure { recovered: true }))?,
            EventKind::DeviceRemoved => done(world.guest_event(id, DomainEvent::DeviceRemoved("net1".into())))?,
            // Nova moves the guests of a driver that cannot be asked to.
            EventKind::JobCompleted | EventKind::MigrationIteration if !self.handle.features().migration => {
                let server = done(world.boot(&self.host, "2"))?;
                let nova = self.region.nova();
                nova.live_migrate(&server, None, BlockMigration::Auto).await?;
                while nova.server(&server).await?.status != ServerStatus::Active {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                return Ok(());
            }
            EventKind::JobCompleted | EventKind::MigrationIteration => {
                let (destination, _) = self.other_host().await?;
                let request = MigrateRequest { destination, live: true, copy_storage: false, persist: true };
                return Ok(self.handle.migrate(id, &request).await?);
            }
            _ => return Stop::cannot(format!("provoke {kind:?}")),
        };
        Ok(())
    }

    async fn flood(&mut self) -> Provoked<u64> {
        for _ in 0..100 {
            let id = self.start_domain().await?;
            self.remove_domain(&id).await?;
        }
        Ok(400)
    }

    async fn cut_connection(&mut self) -> Provoked<()> {
        done(self.region.world().stop_daemon(&self.host))
    }

    async fn restore_connection(&mut self) -> Provoked<()> {
        done(self.region.world().start_daemon(&self.host))
    }

    async fn other_host(&mut self) -> Provoked<(String, Arc<dyn HypervisorBackend>)> {
        let other = self.region.hosts()[1].clone();
        let backend = done(self.region.backend(&other))?;
        Ok((format!("qemu+tcp://{other}/system"), Arc::new(backend)))
    }

    fn open_streams(&self) -> Provoked<usize> {
        Ok(self.handle.listeners())
    }
}

#[tokio::test(start_paused = true)]
async fn a_qemu_host_keeps_the_contract_of_a_backend() {
    let mut fixture = Backend::new(Driver::Qemu);
    let report = contract::backend::run(&mut fixture).await;
    report.assert_complete();
    assert_eq!(fixture.region.world().check(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_hypervisor_host_keeps_the_contract_of_a_backend() {
    let mut fixture = Backend::new(Driver::CloudHypervisor);
    let report = contract::backend::run(&mut fixture).await;
    report.assert_complete();
    let lacking = report.checks.iter().filter(|checked| checked.id.ends_with("-lacking")).count();
    assert_eq!(lacking, 4 + 9, "statistics, capabilities, jobs, migration, and nine kinds of event\n{report}");
}

struct Cloud {
    region: Region,
    image: String,
    added: usize,
    dead: Option<HostName>,
}

impl Cloud {
    fn new() -> Self {
        let region = Region::builder().hosts(4).vms_per_host(2).seed(3).build();
        Self { image: region.world().add_image("smoke"), region, added: 0, dead: None }
    }

    async fn new_host(&mut self, name: &str) -> Provoked<HostName> {
        let host = done(self.region.add_host(name, Driver::Qemu, &[(16, 64)]))?;
        done(self.region.world().start_compute(&host))?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(host)
    }

    async fn provider(&self, host: &HostName) -> Provoked<ProviderId> {
        let all = self.region.placement().providers().await?;
        let mine = all.into_iter().find(|provider| provider.name == host.as_str());
        mine.map_or_else(|| Stop::failed(format!("{host} has no provider")), |mine| Ok(mine.id))
    }
}

#[async_trait]
impl NovaFixture for Cloud {
    fn nova(&self) -> Arc<dyn NovaClient> {
        Arc::new(self.region.nova())
    }

    fn hosts(&self) -> Vec<HostName> {
        self.region.hosts().into_iter().take(4).collect()
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
        done(self.region.world().stop_compute(&host))?;
        Ok(host)
    }

    async fn add_server(&mut self, host: &HostName) -> Provoked<InstanceId> {
        done(self.region.boot(host, "2"))
    }

    async fn stop_server(&mut self, id: &InstanceId) -> Provoked<()> {
        done(self.region.world().guest_shutdown(id)).map(|_| ())
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
        done(self.region.world().power_cut(host))
    }

    async fn revive_host(&mut self, host: &HostName) -> Provoked<()> {
        done(self.region.world().power_on(host))?;
        tokio::time::sleep(Duration::from_secs(90)).await;
        Ok(())
    }

    async fn add_apart(&mut self) -> Provoked<[InstanceId; 2]> {
        let hosts = self.hosts();
        let servers = [self.add_server(&hosts[0]).await?, self.add_server(&hosts[1]).await?];
        let policy = GroupPolicy::AntiAffinity { per_host: 1 };
        done(self.region.world().add_server_group("apart", policy, &servers))?;
        Ok(servers)
    }

    async fn add_aggregate(&mut self, name: &str, zone: Option<&str>) -> Provoked<AggregateId> {
        Ok(self.region.add_aggregate(name, zone))
    }
}

#[async_trait]
impl PlacementFixture for Cloud {
    fn placement(&self) -> Arc<dyn PlacementClient> {
        Arc::new(self.region.placement())
    }

    async fn used_provider(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        let host = self.region.hosts()[0].clone();
        let server = self.region.nova().servers_on(&host).await?.remove(0);
        Ok((self.provider(&host).await?, server.id))
    }

    async fn spare_provider(&mut self) -> Provoked<ProviderId> {
        let host = self.spare_host().await?;
        self.provider(&host).await
    }

    async fn evacuate(&mut self) -> Provoked<(ProviderId, InstanceId)> {
        let last = self.dead.take();
        let host = self.region.hosts().into_iter().skip(1).find(|host| Some(host) != last.as_ref()).unwrap();
        let nova = self.region.nova();
        let server = done(self.region.boot(&host, "2"))?;
        done(self.region.world().power_cut(&host))?;
        let services = nova.services().await?;
        let service = services.iter().find(|service| service.host == host).unwrap();
        nova.force_service_down(&service.id, true).await?;
        nova.evacuate(&server, None, AfterEvacuation::Run).await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(nova.server(&server).await?.status, ServerStatus::Active);
        self.dead = Some(host.clone());
        Ok((self.provider(&host).await?, server))
    }

    async fn revive(&mut self) -> Provoked<()> {
        done(self.region.world().power_on(&self.dead.clone().unwrap()))
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulated_nova_keeps_its_contract() {
    let mut fixture = Cloud::new();
    contract::nova::run(&mut fixture).await.assert_complete();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(fixture.region.world().check(), []);
}

#[async_trait]
impl TestBedFixture for Cloud {
    fn bed(&self) -> Arc<dyn TestBed> {
        Arc::new(self.region.test_bed())
    }

    async fn add_image(&mut self, name: &str) -> Provoked<String> {
        Ok(self.region.world().add_image(name))
    }

    async fn add_network(&mut self, name: &str, shared: bool) -> Provoked<String> {
        Ok(self.region.world().add_network(name, shared))
    }

    async fn add_flavor(&mut self, id: &str, name: &str) -> Provoked<()> {
        self.region.world().add_flavor(Flavor::new(id, name, 1, 64));
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulated_test_bed_keeps_its_contract() {
    contract::test_bed::run(&mut Cloud::new()).await.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn the_simulated_placement_keeps_its_contract() {
    let mut fixture = Cloud::new();
    contract::placement::run(&mut fixture).await.assert_complete();
    assert_eq!(fixture.region.world().check(), []);
}

/// One host, seen by its operating system, its switch and its BMC.
pub(crate) struct Machine {
    region: Region,
    host: HostName,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let region = Region::builder().hosts(3).vms_per_host(3).build();
        let host = region.hosts()[0].clone();
        Self { region, host }
    }
}

#[async_trait]
impl HostFixture for Machine {
    fn host(&self) -> Arc<dyn HostSystem> {
        Arc::new(self.region.host_system(&self.host).unwrap())
    }

    fn unit(&self) -> Provoked<String> {
        Ok("openvswitch-switch.service".into())
    }

    async fn change_unit(&mut self) -> Provoked<()> {
        done(self.region.world().set_unit(&self.host, "openvswitch-switch.service", ActiveState::Failed))
    }

    async fn startable_unit(&mut self) -> Provoked<String> {
        Ok("openvswitch-switch.service".into())
    }

    async fn announce_shutdown(&mut self) -> Provoked<()> {
        done(self.region.world().shut_down(&self.host))
    }

    async fn cancel_shutdown(&mut self) -> Provoked<()> {
        done(self.region.world().cancel_shutdown(&self.host))
    }

    async fn still_runs(&mut self) -> Provoked<bool> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(done(self.region.world().host(&self.host))?.running)
    }
}

#[async_trait]
impl OvsFixture for Machine {
    fn switch(&self) -> Arc<dyn OvsInspector> {
        Arc::new(self.region.switch(&self.host).unwrap())
    }

    async fn change_ports(&mut self) -> Provoked<()> {
        done(self.region.boot(&self.host, "2")).map(|_| ())
    }

    async fn packet(&mut self) -> Provoked<TraceRequest> {
        let learned = self.switch().fdb("br-int").await?;
        let (from, to) = (&learned[0], &learned[1]);
        Ok(TraceRequest {
            bridge: "br-int".into(),
            in_port: from.port.clone(),
            ethernet: (from.mac.clone(), to.mac.clone()),
            vlan: None,
            ip: Some(([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
            transport: None,
        })
    }

    async fn hang_switch(&mut self, hang: bool) -> Provoked<()> {
        let state = if hang { DaemonState::Hung } else { DaemonState::Running };
        done(self.region.world().switch_fault(&self.host, SwitchFault::Switch(state)))
    }

    async fn hang_controller(&mut self, hang: bool) -> Provoked<()> {
        let state = if hang { DaemonState::Hung } else { DaemonState::Running };
        done(self.region.world().switch_fault(&self.host, SwitchFault::Controller(state)))
    }

    async fn stop_database(&mut self, stop: bool) -> Provoked<()> {
        let state = if stop { DaemonState::Dead } else { DaemonState::Running };
        done(self.region.world().switch_fault(&self.host, SwitchFault::Database(state)))
    }

    async fn plug_stranger(&mut self, plug: bool) -> Provoked<String> {
        let fault =
            if plug { SwitchFault::Orphan(Orphan::NoLogicalPort, "stranger".into()) } else { SwitchFault::Repaired };
        done(self.region.world().switch_fault(&self.host, fault))?;
        Ok("tapstranger".into())
    }

    async fn kernel_bond(&mut self, there: bool) -> Provoked<String> {
        done(self.region.world().switch_fault(&self.host, SwitchFault::KernelBond(there)))?;
        Ok("bond1".into())
    }

    async fn break_bond(&mut self, broken: bool) -> Provoked<String> {
        done(self.region.world().switch_fault(&self.host, SwitchFault::Lacp(!broken)))?;
        Ok("eth1".into())
    }
}

#[async_trait]
impl FencerFixture for Machine {
    fn fencer(&self) -> Arc<dyn Fencer> {
        Arc::new(self.region.fencer())
    }

    async fn host(&mut self) -> Provoked<HostName> {
        Ok(self.host.clone())
    }

    async fn cut_controller(&mut self, host: &HostName, cut: bool) -> Provoked<()> {
        done(self.region.world().set_bmc_reachable(host, !cut))
    }

    async fn runs(&mut self, host: &HostName) -> Provoked<bool> {
        let status = done(self.region.world().host(host))?;
        Ok(status.running || status.active_vms > 0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_simulated_operating_system_keeps_its_contract() {
    contract::host::run(&mut Machine::new()).await.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn a_simulated_switch_keeps_its_contract() {
    contract::ovs::run(&mut Machine::new()).await.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn the_simulated_bmcs_keep_their_contract() {
    contract::fence::run(&mut Machine::new()).await.assert_complete();
}
