//! The host's operating system, as the node agent sees it.
//!
//! A [`HostSystem`] answers what the machine is (facts), how its services are ([`units`](HostSystem::units)), and
//! lets the agent delay a shutdown until the VMs are gone. Systemd on D-Bus is one implementation; a host without
//! systemd is another, with [`HostFeatures`] that say what it lacks.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;

use crate::{Error, Result};

/// What this host can do for us.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostFeatures {
    /// Service units can be listed and followed.
    pub units: bool,
    /// Service units can be started.
    pub start_units: bool,
    /// A shutdown can be delayed.
    pub shutdown_inhibitor: bool,
}

/// Facts about the operating system and the machine. What is unknown is `None`, never an invented text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OsFacts {
    /// The OS version in the vendor's short form (Garden Linux: `1877.2`).
    pub version: Option<String>,
    /// `VARIANT_ID` of os-release.
    pub variant_id: Option<String>,
    /// `PRETTY_NAME` of os-release.
    pub pretty_version: Option<String>,
    /// `Linux`.
    pub kernel_name: Option<String>,
    /// The kernel release, as `uname -r` prints it.
    pub kernel_release: Option<String>,
    /// The kernel version, as `uname -v` prints it.
    pub kernel_version: Option<String>,
    /// The kernel's command line.
    pub kernel_command_line: Option<String>,
    /// Who made the machine.
    pub hardware_vendor: Option<String>,
    /// Which machine it is.
    pub hardware_model: Option<String>,
    /// Its serial number.
    pub hardware_serial: Option<String>,
    /// The firmware's version.
    pub firmware_version: Option<String>,
    /// Who made the firmware.
    pub firmware_vendor: Option<String>,
    /// When the firmware was built.
    pub firmware_date: Option<Timestamp>,
    /// Garden Linux: the commit the image was built from.
    pub garden_linux_commit_id: Option<String>,
    /// Garden Linux: the features of the image.
    pub garden_linux_features: Vec<String>,
    /// Changes with every boot; tells a reboot from a restart of the agent.
    pub boot_id: Option<String>,
}

/// Whether a unit runs, in systemd's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ActiveState {
    /// It runs.
    Active,
    /// It runs and reads its configuration anew.
    Reloading,
    /// It does not run.
    Inactive,
    /// It ended badly.
    Failed,
    /// It is on its way up.
    Activating,
    /// It is on its way down.
    Deactivating,
    /// A word a newer systemd may use.
    Other(String),
}

impl ActiveState {
    /// Reads systemd's word. Every word is understood, if only as [`ActiveState::Other`].
    ///
    /// ```
    /// use cobalt_core::host::ActiveState;
    ///
    /// assert_eq!(ActiveState::parse("reloading"), ActiveState::Reloading);
    /// assert_eq!(ActiveState::parse("maintenance").as_str(), "maintenance");
    /// ```
    pub fn parse(word: &str) -> Self {
        match word {
            "active" => Self::Active,
            "reloading" => Self::Reloading,
            "inactive" => Self::Inactive,
            "failed" => Self::Failed,
            "activating" => Self::Activating,
            "deactivating" => Self::Deactivating,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Systemd's word for it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Active => "active",
            Self::Reloading => "reloading",
            Self::Inactive => "inactive",
            Self::Failed => "failed",
            Self::Activating => "activating",
            Self::Deactivating => "deactivating",
            Self::Other(word) => word,
        }
    }
}

/// One service unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its full name, such as `libvirtd.service`.
    pub name: String,
    /// Whether it runs.
    pub active: ActiveState,
    /// Whether its file was found: `loaded`, `not-found`, `masked`, …
    pub load_state: String,
}

/// Something changed on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostEvent {
    /// A unit changed; ask [`HostSystem::units`] how it is now.
    UnitChanged(String),
    /// The host is about to shut down (`true`), or changed its mind (`false`).
    PrepareForShutdown(bool),
    /// Events may have been missed; read everything again.
    Resync,
}

/// Holds a shutdown back for as long as it lives. Dropping it lets the shutdown go on, in every path.
pub trait ShutdownInhibitor: Send + Sync {
    /// How long the host will wait at most.
    fn max_delay(&self) -> Option<Duration>;
}

/// The operating system of one host.
///
/// ```
/// use cobalt_core::host::{HostSystem, OsFacts};
///
/// async fn kernel(host: &dyn HostSystem) -> cobalt_core::Result<String> {
///     let OsFacts { kernel_release, .. } = host.facts().await?;
///     Ok(kernel_release.unwrap_or_else(|| "unknown".into()))
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait HostSystem: Send + Sync {
    /// What this host can do for us.
    fn features(&self) -> HostFeatures;

    /// What the machine is, read anew at each call: a kernel or firmware changes with a reboot.
    async fn facts(&self) -> Result<OsFacts>;

    /// The state of the named units. A unit that does not exist is reported as `not-found`, not left out.
    async fn units(&self, names: &[String]) -> Result<Vec<Unit>>;

    /// What happens from now on. Ends only when the implementation is dropped.
    fn events(&self) -> BoxStream<'static, HostEvent>;

    /// Starts a unit and returns when the host has accepted the job.
    async fn start_unit(&self, name: &str) -> Result<()> {
        Err(Error::unsupported(format!("start unit {name}"), "this host"))
    }

    /// Delays shutdowns until the returned guard is dropped.
    async fn inhibit_shutdown(&self, why: &str) -> Result<Box<dyn ShutdownInhibitor>> {
        Err(Error::unsupported(format!("delay shutdown ({why})"), "this host"))
    }
}
