//! Taking a host's power away, and knowing that it is gone.
//!
//! Nothing may be evacuated from a host that could still be running its VMs. A [`Fencer`] is what turns "it does not
//! answer" into proof: it can observe the power state and switch it off. Whether an observation suffices is decided
//! by the high-availability logic, not here.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{Result, ids::HostName};

/// What the power supply says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PowerState {
    /// The host has power.
    On,
    /// The host has no power: nothing runs on it.
    Off,
    /// The controller answers, but does not say, or says something in between (`PoweringOff`).
    Unknown,
}

/// One observation of a host's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PowerReading {
    /// What was read.
    pub state: PowerState,
    /// When it was read.
    pub at: Timestamp,
}

impl PowerReading {
    /// Whether this reading proves that nothing runs on the host.
    pub fn is_proof(&self) -> bool {
        self.state == PowerState::Off
    }
}

/// The power switches of a region's hosts.
///
/// A controller that cannot be reached is [`Error::Unavailable`](crate::Error::Unavailable), a host nobody knows a
/// controller for is [`Error::NotFound`](crate::Error::NotFound): neither is ever reported as `Off`.
///
/// ```
/// use cobalt_core::{fence::Fencer, ids::HostName};
///
/// /// Off, and seen to be off.
/// async fn fence(fencer: &dyn Fencer, host: &HostName) -> cobalt_core::Result<bool> {
///     if fencer.power(host).await?.is_proof() {
///         return Ok(true); // already off is success
///     }
///     fencer.power_off(host).await?;
///     Ok(fencer.power(host).await?.is_proof())
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait Fencer: Send + Sync {
    /// Reads the power state, now and from the controller itself.
    async fn power(&self, host: &HostName) -> Result<PowerReading>;

    /// Asks for a hard power-off. Success means the request was accepted; only [`Fencer::power`] proves the result.
    async fn power_off(&self, host: &HostName) -> Result<()>;

    /// Asks for power.
    async fn power_on(&self, host: &HostName) -> Result<()>;
}
