//! The contract suites find what they are for: an implementation with one flaw fails the one law it breaks.

use std::sync::Arc;

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    backend::{
        BackendEvent, Domain, DomainCapabilities, DomainStats, Features, HostCapabilities, HypervisorBackend, Job,
        MigrateRequest, PowerAction, Versions,
    },
    contract::{self, Outcome, Provoked, Report, backend::BackendFixture, fence::FencerFixture},
    fence::{Fencer, PowerReading, PowerState},
    ids::{HostName, InstanceId},
};
use cobalt_sim::{Driver, Region, SimBackend, SimFencer};
use futures::{StreamExt, stream::BoxStream};

use crate::contracts::Backend;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    UnorderedInventory,
    AloneIsDifferent,
    UnknownIsUnavailable,
    StatsOfEverybody,
    AbortsNothing,
    SilentAboutConnected,
    SwallowsEvents,
    NeverLags,
    CutIsRefused,
    ClaimsMigration,
    StartsTwice,
}

#[derive(Clone)]
struct Flawed {
    inner: SimBackend,
    flaw: Flaw,
}

#[async_trait]
impl HypervisorBackend for Flawed {
    fn driver(&self) -> String {
        self.inner.driver()
    }

    fn features(&self) -> Features {
        let features = self.inner.features();
        Features { migration: features.migration || self.flaw == Flaw::ClaimsMigration, ..features }
    }

    async fn versions(&self) -> Result<Versions> {
        self.inner.versions().await
    }

    async fn capabilities(&self) -> Result<HostCapabilities> {
        self.inner.capabilities().await
    }

    async fn domain_capabilities(&self) -> Result<DomainCapabilities> {
        self.inner.domain_capabilities().await
    }

    async fn inventory(&self) -> Result<Vec<Domain>> {
        let mut all = self.inner.inventory().await.map_err(|error| match self.flaw {
            Flaw::CutIsRefused => Error::refused("list domains", "the daemon is gone"),
            _ => error,
        })?;
        if self.flaw == Flaw::UnorderedInventory {
            all.reverse();
        }
        Ok(all)
    }

    async fn domain(&self, id: &InstanceId) -> Result<Domain> {
        let mut domain = self.inner.domain(id).await.map_err(|error| match self.flaw {
            Flaw::UnknownIsUnavailable => Error::unavailable("get domain", std::io::Error::other("nobody")),
            _ => error,
        })?;
        if self.flaw == Flaw::AloneIsDifferent {
            domain.vcpus += 1;
        }
        Ok(domain)
    }

    async fn stats(&self) -> Result<Vec<DomainStats>> {
        let mut all = self.inner.stats().await?;
        if self.flaw == Flaw::StatsOfEverybody
            && let Some(first) = all.first().cloned()
        {
            all.insert(0, DomainStats { id: InstanceId::from("00000000-0000-4000-8000-000000000000"), ..first });
        }
        Ok(all)
    }

    fn events(&self) -> BoxStream<'static, BackendEvent> {
        let flaw = self.flaw;
        let events = self.inner.events();
        let passes = move |event: &BackendEvent| match event {
            BackendEvent::Connected => flaw != Flaw::SilentAboutConnected,
            BackendEvent::Domain { .. } => flaw != Flaw::SwallowsEvents,
            BackendEvent::Lagged(_) => flaw != Flaw::NeverLags,
            _ => true,
        };
        events.filter(move |event| std::future::ready(passes(event))).boxed()
    }

    async fn job(&self, id: &InstanceId) -> Result<Option<Job>> {
        self.inner.job(id).await
    }

    async fn abort_job(&self, id: &InstanceId) -> Result<()> {
        match self.inner.abort_job(id).await {
            Err(Error::Conflict { .. }) if self.flaw == Flaw::AbortsNothing => Ok(()),
            answer => answer,
        }
    }

    async fn migrate(&self, id: &InstanceId, request: &MigrateRequest) -> Result<()> {
        self.inner.migrate(id, request).await
    }

    async fn power(&self, id: &InstanceId, action: PowerAction) -> Result<()> {
        match self.inner.power(id, action).await {
            Err(Error::Conflict { .. }) if self.flaw == Flaw::StartsTwice => Ok(()),
            answer => answer,
        }
    }
}

struct Fixture {
    sound: Backend,
    flaw: Flaw,
}

#[async_trait]
impl BackendFixture for Fixture {
    fn backend(&self) -> Arc<dyn HypervisorBackend> {
        Arc::new(Flawed { inner: self.sound.handle.clone(), flaw: self.flaw })
    }

    async fn start_domain(&mut self) -> Provoked<InstanceId> {
        self.sound.start_domain().await
    }

    async fn remove_domain(&mut self, id: &InstanceId) -> Provoked<()> {
        self.sound.remove_domain(id).await
    }

    async fn flood(&mut self) -> Provoked<u64> {
        self.sound.flood().await
    }

    async fn cut_connection(&mut self) -> Provoked<()> {
        self.sound.cut_connection().await
    }

    async fn restore_connection(&mut self) -> Provoked<()> {
        self.sound.restore_connection().await
    }

    async fn other_host(&mut self) -> Provoked<(String, Arc<dyn HypervisorBackend>)> {
        self.sound.other_host().await
    }
}

fn broken(report: &Report) -> Vec<&str> {
    let failed = report.checks.iter().filter(|checked| matches!(checked.outcome, Outcome::Failed(_)));
    failed.map(|checked| checked.id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_flaw_of_a_backend_breaks_its_law_and_no_other() {
    let table: [(Flaw, Driver, &[&str]); 12] = [
        (Flaw::None, Driver::Qemu, &[]),
        (Flaw::UnorderedInventory, Driver::Qemu, &["inventory", "stats"]),
        (Flaw::AloneIsDifferent, Driver::Qemu, &["domain"]),
        (Flaw::UnknownIsUnavailable, Driver::Qemu, &["domain", "unknown"]),
        (Flaw::StatsOfEverybody, Driver::Qemu, &["stats"]),
        (Flaw::AbortsNothing, Driver::Qemu, &["jobs"]),
        (Flaw::SilentAboutConnected, Driver::Qemu, &["events-connected", "events-reconnect"]),
        (Flaw::SwallowsEvents, Driver::Qemu, &["events-start", "events-stop", "events-everybody", "events-reconnect"]),
        (Flaw::NeverLags, Driver::Qemu, &["events-lagged"]),
        (Flaw::CutIsRefused, Driver::Qemu, &["events-reconnect"]),
        (Flaw::ClaimsMigration, Driver::CloudHypervisor, &["migrate", "migrate-nowhere"]),
        (Flaw::StartsTwice, Driver::CloudHypervisor, &["power"]),
    ];
    for (flaw, driver, laws) in table {
        let report = contract::backend::run(&mut Fixture { sound: Backend::new(driver), flaw }).await;
        assert_eq!(broken(&report), laws, "{flaw:?}\n{report}");
        assert!(report.skipped() > 0, "this fixture cannot provoke every event, and says so");
    }
}

/// A BMC client that takes silence for darkness: the most dangerous mistake there is.
struct Optimist(SimFencer);

#[async_trait]
impl Fencer for Optimist {
    async fn power(&self, host: &HostName) -> Result<PowerReading> {
        match self.0.power(host).await {
            Err(_) => Ok(PowerReading { state: PowerState::Off, at: "2026-01-01T00:00:00Z".parse().unwrap() }),
            reading => reading,
        }
    }

    async fn power_off(&self, host: &HostName) -> Result<()> {
        self.0.power_off(host).await
    }

    async fn power_on(&self, host: &HostName) -> Result<()> {
        self.0.power_on(host).await
    }
}

struct Bmcs(Region, Arc<Optimist>);

#[async_trait]
impl FencerFixture for Bmcs {
    fn fencer(&self) -> Arc<dyn Fencer> {
        self.1.clone()
    }

    async fn host(&mut self) -> Provoked<HostName> {
        Ok(self.0.hosts()[0].clone())
    }

    async fn cut_controller(&mut self, host: &HostName, cut: bool) -> Provoked<()> {
        self.0.world().set_bmc_reachable(host, !cut).unwrap();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_fencer_that_takes_silence_for_darkness_is_found_out() {
    let region = Region::builder().hosts(1).build();
    let fencer = Arc::new(Optimist(region.fencer()));
    let report = contract::fence::run(&mut Bmcs(region, fencer)).await;
    assert_eq!(broken(&report), ["unknown", "unreachable"], "{report}");
    assert_eq!(report.skipped(), 1, "nobody looked at the host itself");
}
