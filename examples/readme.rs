//! The code of the README, compiled with the documentation tests so that it stays true, and what the examples share.
#![doc = include_str!("../README.md")]

use std::time::Duration;

use anyhow::Context;
use cobalt_core::api::Hypervisor;
use kube::{Api, Client, runtime::wait::await_condition};

/// The code of a page of the documentation, compiled for the same reason.
#[cfg(doctest)]
#[doc = include_str!("../docs/simulated-cloud.md")]
pub struct SimulatedCloud;

/// Waits (a minute at most) until the Hypervisor of that name satisfies the test.
pub async fn wait_for(
    client: Client,
    name: &str,
    satisfied: impl Fn(&Hypervisor) -> bool,
) -> anyhow::Result<Hypervisor> {
    let there = |object: Option<&Hypervisor>| object.is_some_and(&satisfied);
    let found = tokio::time::timeout(Duration::from_secs(60), await_condition(Api::all(client), name, there))
        .await
        .with_context(|| format!("Hypervisor {name} did not get there within a minute"))??;
    found.with_context(|| format!("Hypervisor {name} is gone"))
}
