//! Which switch the agent looks at.

use std::sync::Arc;

use clap::ValueEnum;
use cobalt_core::{jiff::Timestamp, ovs::OvsInspector, runtime::shutdown::TaskError};
use cobalt_sim::Region;

// Given to each argument, because a heading for the next ones would reach into the arguments of others.
const HEADING: &str = "Switch";

/// The choice of an inspector and what each needs to know.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InspectorArgs {
    /// Which switch to look at
    #[arg(long, value_enum, default_value_t, help_heading = HEADING)]
    inspector: Kind,

    /// How many VMs the simulated host runs
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u16).range(..=1000))]
    simulated_vms: u16,

    /// What the simulated host's randomness comes from
    #[arg(long, default_value_t = 0, value_name = "S", help_heading = HEADING)]
    simulated_seed: u64,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// One that exists in this process only.
    #[default]
    Simulated,
}

impl InspectorArgs {
    /// The switch of this node.
    pub(crate) async fn open(&self, node: &str) -> Result<Arc<dyn OvsInspector>, TaskError> {
        match self.inspector {
            Kind::Simulated => self.simulated(node),
        }
    }

    /// A switch that is invented, on a host of this name.
    fn simulated(&self, node: &str) -> Result<Arc<dyn OvsInspector>, TaskError> {
        let region = Region::builder()
            .named([node])
            .vms_per_host(self.simulated_vms.into())
            .seed(self.simulated_seed)
            .starting_at(Timestamp::now())
            .build();
        Ok(Arc::new(region.switch(&node.into())?))
    }
}
