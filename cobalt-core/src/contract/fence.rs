//! The contract of [`Fencer`].

use std::sync::Arc;

use async_trait::async_trait;

use super::{Provoked, Report, Stop, Suite, ensure, eventually, rejects, same};
use crate::{
    fence::{Fencer, PowerState},
    ids::HostName,
};

/// Power switches to be checked, and how to make things happen to them.
#[async_trait]
pub trait FencerFixture: Send + Sync {
    /// The power switches.
    fn fencer(&self) -> Arc<dyn Fencer>;

    /// A host that has power and may lose it.
    async fn host(&mut self) -> Provoked<HostName> {
        Stop::cannot("offer a host to switch off")
    }

    /// Makes the controller of [`FencerFixture::host`] unreachable, or reachable again.
    async fn cut_controller(&mut self, _host: &HostName, _cut: bool) -> Provoked<()> {
        Stop::cannot("cut a controller off")
    }

    /// Whether anything still runs on the host, seen without its controller.
    async fn runs(&mut self, _host: &HostName) -> Provoked<bool> {
        Stop::cannot("look at the host itself")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn FencerFixture) -> Report {
    let mut suite = Suite::new("Fencer");
    suite.check("unknown", "a host without a controller is not found, and never off", unknown(fixture)).await;
    suite.check("off", "a host is switched off, seen to be off, and can be switched on", off(fixture)).await;
    suite.check("proof", "a host that reads as off runs nothing", proof(fixture)).await;
    suite
        .check("unreachable", "a controller that does not answer is unavailable, and never off", unreachable(fixture))
        .await;
    suite.0
}

async fn unknown(fixture: &mut dyn FencerFixture) -> Provoked<()> {
    let (fencer, nowhere) = (fixture.fencer(), HostName::from("no-such-host"));
    rejects("power", "not_found", fencer.power(&nowhere).await)?;
    rejects("power_off", "not_found", fencer.power_off(&nowhere).await)?;
    rejects("power_on", "not_found", fencer.power_on(&nowhere).await)
}

/// Switches a host and waits until it reads so.
async fn switch(fencer: &dyn Fencer, host: &HostName, wanted: PowerState) -> Provoked<()> {
    if wanted == PowerState::Off {
        fencer.power_off(host).await?;
    } else {
        fencer.power_on(host).await?;
    }
    eventually(&format!("{host} to be {wanted:?}"), || async { Ok(fencer.power(host).await?.state == wanted) }).await
}

async fn off(fixture: &mut dyn FencerFixture) -> Provoked<()> {
    let host = fixture.host().await?;
    let fencer = fixture.fencer();
    let before = fencer.power(&host).await?;
    same("to begin with", before.state, PowerState::On)?;
    switch(&*fencer, &host, PowerState::Off).await?;
    let reading = fencer.power(&host).await?;
    ensure(reading.is_proof(), || "off is no proof".into())?;
    ensure(reading.at >= before.at, || "a later reading has an earlier time".into())?;
    // Already off is success.
    switch(&*fencer, &host, PowerState::Off).await?;
    switch(&*fencer, &host, PowerState::On).await?;
    switch(&*fencer, &host, PowerState::On).await
}

async fn proof(fixture: &mut dyn FencerFixture) -> Provoked<()> {
    let host = fixture.host().await?;
    let fencer = fixture.fencer();
    switch(&*fencer, &host, PowerState::Off).await?;
    let runs = fixture.runs(&host).await;
    switch(&*fencer, &host, PowerState::On).await?;
    ensure(!runs?, || "something runs on a host that reads as off".into())
}

async fn unreachable(fixture: &mut dyn FencerFixture) -> Provoked<()> {
    let host = fixture.host().await?;
    let fencer = fixture.fencer();
    fixture.cut_controller(&host, true).await?;
    let (power, off) = (fencer.power(&host).await, fencer.power_off(&host).await);
    fixture.cut_controller(&host, false).await?;
    let lost = |what: &str, category: &str| {
        ensure(["unavailable", "timeout"].contains(&category), || format!("{what}: got {category}"))
    };
    lost("power", power.map_or_else(|error| error.category(), |_| "an answer"))?;
    lost("power_off", off.map_or_else(|error| error.category(), |()| "an answer"))?;
    same("afterwards", fencer.power(&host).await?.state, PowerState::On)
}
