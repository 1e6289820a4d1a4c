//! The BMCs of the simulated hosts.

use async_trait::async_trait;
use cobalt_core::{
    Error, Result,
    fence::{Fencer, PowerReading, PowerState},
    ids::HostName,
};

use crate::{
    faults::Faults,
    world::{HostId, State, World},
};

/// The BMCs of all hosts of the region. Clones share their faults; a new one from
/// [`Region::fencer`](crate::Region::fencer) has its own.
#[derive(Debug, Clone)]
pub struct SimFencer {
    world: World,
    faults: Faults,
}

impl SimFencer {
    pub(crate) fn new(world: World) -> Self {
        Self { world, faults: Faults::default() }
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn call<T>(
        &self,
        method: &'static str,
        what: &str,
        host: &HostName,
        act: impl FnOnce(&mut State, HostId) -> T + Send,
    ) -> Result<T> {
        let operation = format!("{what} {host}");
        let call = || async {
            self.world.with(|state| {
                let id = state.host_id(host).ok_or_else(|| Error::not_found(operation.clone()))?;
                if !state.host(id).bmc_reachable {
                    let cause = std::io::Error::other("the BMC does not answer");
                    return Err(Error::unavailable(operation.clone(), cause));
                }
                Ok(act(state, id))
            })
        };
        self.faults.run(method, || operation.clone(), call).await
    }
}

#[async_trait]
impl Fencer for SimFencer {
    async fn power(&self, host: &HostName) -> Result<PowerReading> {
        self.call("power", "read power of", host, |state, id| PowerReading {
            state: if state.host(id).power { PowerState::On } else { PowerState::Off },
            at: state.timestamp(),
        })
        .await
    }

    async fn power_off(&self, host: &HostName) -> Result<()> {
        self.call("power_off", "power off", host, State::request_power_off).await
    }

    async fn power_on(&self, host: &HostName) -> Result<()> {
        self.call("power_on", "power on", host, State::power_on).await
    }
}
