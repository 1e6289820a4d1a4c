//! The contract of [`HostSystem`].

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::StreamExt;

use super::{Provoked, Report, Stop, Suite, ensure, rejects, same, soon};
use crate::host::{HostEvent, HostSystem};

const NO_UNIT: &str = "no-such-unit-anywhere.service";

/// An operating system to be checked, and how to make things happen on it.
#[async_trait]
pub trait HostFixture: Send + Sync {
    /// The operating system.
    fn host(&self) -> Arc<dyn HostSystem>;

    /// The name of a unit that exists.
    fn unit(&self) -> Provoked<String> {
        Stop::cannot("name a unit")
    }

    /// Changes the state of the unit that [`HostFixture::unit`] names.
    async fn change_unit(&mut self) -> Provoked<()> {
        Stop::cannot("change a unit")
    }

    /// A unit that may be started, and does not run.
    async fn startable_unit(&mut self) -> Provoked<String> {
        Stop::cannot("offer a unit to start")
    }

    /// Announces a shutdown that will wait for those who delay it.
    async fn announce_shutdown(&mut self) -> Provoked<()> {
        Stop::cannot("announce a shutdown")
    }

    /// Takes the announced shutdown back.
    async fn cancel_shutdown(&mut self) -> Provoked<()> {
        Stop::cannot("cancel a shutdown")
    }

    /// Whether the host still runs, as it must while somebody delays its shutdown.
    async fn still_runs(&mut self) -> Provoked<bool> {
        Stop::cannot("see whether the host runs")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn HostFixture) -> Report {
    let host = fixture.host();
    let features = host.features();
    let mut suite = Suite::new("HostSystem");
    suite.check("facts", "facts are known and do not change by themselves", facts(fixture)).await;
    if features.units {
        suite
            .check("units", "each unit asked about is answered, in order, the unknown as not-found", units(fixture))
            .await;
        suite
            .check("unit-changed", "a change of a unit is told, and reading it then agrees", unit_changed(fixture))
            .await;
    } else {
        suite
            .check("units-lacking", "a host without units says so", async {
                rejects("units", "unsupported", host.units(&[NO_UNIT.to_owned()]).await)
            })
            .await;
    }
    if features.start_units {
        suite.check("unit-start", "a unit can be started, an unknown one cannot", unit_start(fixture)).await;
    } else {
        suite
            .check("unit-start-lacking", "a host that cannot start units says so", async {
                rejects("start_unit", "unsupported", host.start_unit(NO_UNIT).await)
            })
            .await;
    }
    if features.shutdown_inhibitor {
        suite.check("inhibitor", "a shutdown is announced and waits", inhibitor(fixture)).await;
    } else {
        suite
            .check("inhibitor-lacking", "a host that cannot delay a shutdown says so", async {
                rejects("inhibit_shutdown", "unsupported", host.inhibit_shutdown("why").await.map(|_| ()))
            })
            .await;
    }
    suite.0
}

async fn facts(fixture: &mut dyn HostFixture) -> Provoked<()> {
    let host = fixture.host();
    let first = host.facts().await?;
    let known = first.kernel_name.is_some() || first.kernel_release.is_some() || first.pretty_version.is_some();
    ensure(known, || "not even the kernel or the system's name is known".into())?;
    let texts = [&first.version, &first.kernel_release, &first.hardware_model, &first.boot_id];
    ensure(!texts.iter().any(|text| text.as_deref() == Some("")), || "what is unknown is an empty text".into())?;
    same("a second reading", host.facts().await?, first)
}

async fn units(fixture: &mut dyn HostFixture) -> Provoked<()> {
    let names = vec![NO_UNIT.to_owned(), fixture.unit()?];
    let found = fixture.host().units(&names).await?;
    let order: Vec<String> = found.iter().map(|unit| unit.name.clone()).collect();
    same("units", order, names)?;
    same("the unknown one", found[0].load_state.as_str(), "not-found")?;
    ensure(found[1].load_state != "not-found", || "the known one is not found".into())
}

async fn unit_changed(fixture: &mut dyn HostFixture) -> Provoked<()> {
    let (host, name) = (fixture.host(), fixture.unit()?);
    let before = host.units(std::slice::from_ref(&name)).await?;
    let mut events = host.events();
    fixture.change_unit().await?;
    let told = async {
        while let Some(event) = events.next().await {
            if event == HostEvent::UnitChanged(name.clone()) || event == HostEvent::Resync {
                return true;
            }
        }
        false
    };
    ensure(soon("word of the change", told).await?, || "the stream ended".into())?;
    let after = host.units(std::slice::from_ref(&name)).await?;
    ensure(after != before, || "the unit is as it was".into())
}

async fn unit_start(fixture: &mut dyn HostFixture) -> Provoked<()> {
    let host = fixture.host();
    let answer = host.start_unit(NO_UNIT).await;
    ensure(answer.is_err(), || "an unknown unit was started".into())?;
    let name = fixture.startable_unit().await?;
    let before = host.units(std::slice::from_ref(&name)).await?;
    host.start_unit(&name).await?;
    let after = host.units(std::slice::from_ref(&name)).await?;
    ensure(before != after, || format!("{name} is as it was"))
}

async fn inhibitor(fixture: &mut dyn HostFixture) -> Provoked<()> {
    let host = fixture.host();
    let mut events = host.events();
    let guard = host.inhibit_shutdown("a check of the contract").await?;
    ensure(guard.max_delay().is_none_or(|delay| delay > Duration::ZERO), || "the delay is no delay".into())?;
    fixture.announce_shutdown().await?;
    let told = async {
        while let Some(event) = events.next().await {
            if event == HostEvent::PrepareForShutdown(true) {
                return true;
            }
        }
        false
    };
    ensure(soon("word of the shutdown", told).await?, || "the stream ended".into())?;
    ensure(fixture.still_runs().await?, || "the host did not wait".into())?;
    fixture.cancel_shutdown().await?;
    drop(guard);
    ensure(fixture.still_runs().await?, || "the cancelled shutdown happened".into())
}
