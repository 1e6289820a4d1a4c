//! The contract of [`TestBed`].

use std::sync::Arc;

use async_trait::async_trait;

use super::{Provoked, Report, Stop, Suite, ensure, rejects, same};
use crate::nova::TestBed;

/// A cloud to be checked, and how to furnish it. What is added may stay.
#[async_trait]
pub trait TestBedFixture: Send + Sync {
    /// The cloud.
    fn bed(&self) -> Arc<dyn TestBed>;

    /// Makes an image that can be booted, newer than all others; answers its id.
    async fn add_image(&mut self, _name: &str) -> Provoked<String> {
        Stop::cannot("add an image")
    }

    /// Makes a network in the project of the login; answers its id.
    async fn add_network(&mut self, _name: &str, _shared: bool) -> Provoked<String> {
        Stop::cannot("add a network")
    }

    /// Makes a flavor.
    async fn add_flavor(&mut self, _id: &str, _name: &str) -> Provoked<()> {
        Stop::cannot("add a flavor")
    }
}

/// Checks every law of the trait.
pub async fn run(fixture: &mut dyn TestBedFixture) -> Report {
    let mut suite = Suite::new("TestBed");
    suite.check("image", "an image is found by its whole name", image(fixture)).await;
    suite.check("image-newest", "of images with one name the newest is taken", newest(fixture)).await;
    suite.check("network", "a network is found by its whole name", network(fixture)).await;
    suite.check("network-twice", "two networks of one name are a conflict", network_twice(fixture)).await;
    suite.check("network-any", "without a name one of our own is taken, and no shared one", network_any(fixture)).await;
    suite.check("flavor", "a flavor is found by its id, or else by its name", flavor(fixture)).await;
    suite.0
}

async fn image(fixture: &mut dyn TestBedFixture) -> Provoked<()> {
    let long = fixture.add_image("contract-image-kvm").await?;
    let short = fixture.add_image("contract-image").await?;
    let bed = fixture.bed();
    same("the short name", bed.image_named("contract-image").await?, short)?;
    same("the long name", bed.image_named("contract-image-kvm").await?, long)?;
    for part in ["contract-imag", "image", "CONTRACT-IMAGE", "in:contract-image", ""] {
        rejects(&format!("`{part}`"), "not_found", bed.image_named(part).await)?;
    }
    Ok(())
}

async fn newest(fixture: &mut dyn TestBedFixture) -> Provoked<()> {
    fixture.add_image("contract-again").await?;
    let newer = fixture.add_image("contract-again").await?;
    same("the image", fixture.bed().image_named("contract-again").await?, newer)
}

async fn network(fixture: &mut dyn TestBedFixture) -> Provoked<()> {
    let long = fixture.add_network("contract-net-2", false).await?;
    let short = fixture.add_network("contract-net", true).await?;
    let bed = fixture.bed();
    same("the short name", bed.network(Some("contract-net")).await?, Some(short))?;
    same("the long name", bed.network(Some("contract-net-2")).await?, Some(long))?;
    rejects("a part of a name", "not_found", bed.network(Some("contract-ne")).await)
}

async fn network_twice(fixture: &mut dyn TestBedFixture) -> Provoked<()> {
    fixture.add_network("contract-twin", true).await?;
    fixture.add_network("contract-twin", true).await?;
    rejects("a name of two", "conflict", fixture.bed().network(Some("contract-twin")).await)
}

async fn network_any(fixture: &mut dyn TestBedFixture) -> Provoked<()> {
    // Before all others by its name, and yet not to be taken.
    let shared = fixture.add_network("a-contract-shared", true).await?;
    let own = fixture.add_network("a-contract-own", false).await?;
    let bed = fixture.bed();
    let found = bed.network(None).await?;
    ensure(found.as_ref() != Some(&shared), || "a shared network was taken".into())?;
    same("the first by name", found, Some(own))
}

async fn flavor(fixture: &mut dyn TestBedFixture) -> Provoked<()> {
    fixture.add_flavor("contract-id", "contract-flavor").await?;
    fixture.add_flavor("contract-other", "contract-id").await?;
    let bed = fixture.bed();
    same("by name", bed.flavor_called("contract-flavor").await?, "contract-id".to_owned())?;
    same("by id", bed.flavor_called("contract-other").await?, "contract-other".to_owned())?;
    same("what is both", bed.flavor_called("contract-id").await?, "contract-id".to_owned())?;
    rejects("a part of a name", "not_found", bed.flavor_called("contract-flavo").await)
}
