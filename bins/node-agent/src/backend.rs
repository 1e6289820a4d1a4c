//! Which hypervisor the agent speaks to.

use std::sync::Arc;

use clap::ValueEnum;
use cobalt_core::{backend::HypervisorBackend, host::HostSystem, jiff::Timestamp};
use cobalt_sim::{Driver, Region, SimError};

// Given to each argument, because a heading for the next ones would reach into the arguments of others.
const HEADING: &str = "Hypervisor";

/// The choice of a backend and what the simulated one needs to know.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct BackendArgs {
    /// Where the VMs are. `simulated` invents a host of the Node's name; the libvirt backend is not part of this version
    #[arg(long, value_enum, help_heading = HEADING)]
    backend: Kind,

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

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Kind {
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
    /// Opens the backend and the operating system of the host.
    pub(crate) fn open(&self, node: &str) -> Result<Opened, SimError> {
        let Kind::Simulated = self.backend;
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
