//! Which hypervisor the agent speaks to.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::ValueEnum;
use cobalt_core::{
    agent::program::LibvirtArgs, backend::HypervisorBackend, host::HostSystem, jiff::Timestamp,
    runtime::shutdown::TaskError,
};
use cobalt_libvirt::{BackendOptions, ConnectOptions, Credentials, LibvirtBackend};
use cobalt_sim::{Driver, Region};

// Given to each argument, because a heading for the next ones would reach into the arguments of others.
const HEADING: &str = "Hypervisor";

/// The choice of a backend and what the simulated one needs to know.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BackendArgs {
    /// Where the VMs are: behind libvirt, or invented, on a host of the Node's name [default: libvirt]
    #[arg(long, value_enum, help_heading = HEADING)]
    backend: Option<Kind>,

    /// Any value means `--backend simulated`, as for earlier agents
    #[arg(long, env = "EMULATE", value_name = "ANY", help_heading = HEADING)]
    emulate: Option<String>,

    /// Directory below which the host's files and its system bus are found
    #[arg(long, default_value = "/", value_name = "DIR", help_heading = HEADING)]
    host_root: PathBuf,

    /// How many VMs the simulated host runs
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u16).range(..=1000))]
    simulated_vms: u16,

    /// What the simulated host's randomness comes from
    #[arg(long, default_value_t = 0, value_name = "S", help_heading = HEADING)]
    simulated_seed: u64,

    /// Which hypervisor the simulated host has, and with it what it can tell
    #[arg(long, value_enum, default_value_t, value_name = "DRIVER", help_heading = HEADING)]
    simulated_driver: SimulatedDriver,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The VMs of this host, as libvirt tells of them.
    Libvirt,
    /// A host that exists in this process only.
    Simulated,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum SimulatedDriver {
    /// QEMU behind libvirt.
    #[default]
    Qemu,
    /// Cloud Hypervisor behind libvirt.
    Ch,
}

/// A host's hypervisor and its operating system.
type Opened = (Arc<dyn HypervisorBackend>, Arc<dyn HostSystem>);

impl BackendArgs {
    /// Which one was chosen.
    pub(crate) fn kind(&self) -> Kind {
        let emulated = self.emulate.as_ref().is_some_and(|value| !value.is_empty());
        self.backend.unwrap_or(if emulated { Kind::Simulated } else { Kind::Libvirt })
    }

    /// Libvirt at this URI, and the operating system of this machine. A daemon that is down is waited for.
    pub(crate) async fn libvirt(
        &self,
        uri: &str,
        libvirt: &LibvirtArgs,
        call_timeout: Duration,
    ) -> Result<Opened, TaskError> {
        let mut connection = ConnectOptions::new().call_timeout(call_timeout);
        if let Some((username, password)) = libvirt.credentials()? {
            connection = connection.credentials(Credentials::new(username, password));
        }
        let backend = LibvirtBackend::connect(uri, BackendOptions::new().connection(connection)).await?;
        let host = cobalt_host::detect(&cobalt_host::Options::from_env().root(&self.host_root)).await?;
        Ok((Arc::new(backend), host))
    }

    /// A host of this name that is invented.
    pub(crate) fn simulated(&self, node: &str) -> Result<Opened, TaskError> {
        let driver = match self.simulated_driver {
            SimulatedDriver::Qemu => Driver::Qemu,
            SimulatedDriver::Ch => Driver::CloudHypervisor,
        };
        let region = Region::builder()
            .named([node])
            .vms_per_host(self.simulated_vms.into())
            .seed(self.simulated_seed)
            .driver(driver)
            .starting_at(Timestamp::now())
            .build();
        let host = node.into();
        Ok((Arc::new(region.backend(&host)?), Arc::new(region.host_system(&host)?)))
    }
}
