//! Which switch the agent looks at.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::ValueEnum;
use cobalt_core::{
    ovs::OvsInspector,
    runtime::{args::duration, shutdown::TaskError},
};
use cobalt_ovs::{OvsOptions, OvsSwitch, Pki, Remote, Southbound};

// Given to each argument, because a heading for the next ones would reach into the arguments of others.
const HEADING: &str = "Switch";

/// The choice of an inspector and what each needs to know.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InspectorArgs {
    /// Which switch to look at
    #[arg(long, value_enum, default_value_t, help_heading = HEADING)]
    inspector: Kind,

    /// Directory with the sockets and pidfiles of Open vSwitch
    #[arg(long, env = "OVS_RUNDIR", default_value = "/run/openvswitch", value_name = "DIR", help_heading = HEADING)]
    ovs_run_dir: PathBuf,

    /// Directory with the socket and pidfile of ovn-controller, which is another one
    #[arg(long, env = "OVN_RUNDIR", default_value = "/run/ovn", value_name = "DIR", help_heading = HEADING)]
    ovn_run_dir: PathBuf,

    /// Where the switch's database is, such as `tcp:127.0.0.1:6640` [default: `db.sock` in the run directory]
    #[arg(long, value_name = "REMOTE", help_heading = HEADING)]
    ovs_database: Option<String>,

    /// Where OVN's southbound database is, for stale flows, lags and lost chassis: `none`, `controller` for where
    /// ovn-controller finds it, or remotes such as `ssl:192.0.2.1:6642,ssl:192.0.2.2:6642`
    #[arg(long, default_value = "none", value_name = "REMOTES", help_heading = HEADING)]
    southbound: String,

    /// Authority that signed the certificates of databases at `ssl:` remotes, as PEM
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    ssl_ca_cert: Option<PathBuf>,

    /// The agent's own certificate for those, as PEM
    #[arg(long, value_name = "FILE", requires = "ssl_ca_cert", requires = "ssl_private_key", help_heading = HEADING)]
    ssl_certificate: Option<PathBuf>,

    /// And its key
    #[arg(long, value_name = "FILE", requires = "ssl_certificate", help_heading = HEADING)]
    ssl_private_key: Option<PathBuf>,

    /// Directory below which the kernel's bonds are found, in `proc` and `sys`
    #[arg(long, default_value = "/", value_name = "DIR", help_heading = HEADING)]
    host_root: PathBuf,

    /// How long a daemon may take to answer on its control socket before it is called unresponsive
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    control_timeout: Duration,

    /// How long a bridge may take for one answer over OpenFlow
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    openflow_timeout: Duration,

    /// How many VMs the simulated host runs
    #[cfg(feature = "simulated")]
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u16).range(..=1000))]
    simulated_vms: u16,

    /// What the simulated host's randomness comes from
    #[cfg(feature = "simulated")]
    #[arg(long, default_value_t = 0, value_name = "S", help_heading = HEADING)]
    simulated_seed: u64,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// That of this host.
    #[default]
    Ovs,
    /// One that exists in this process only.
    #[cfg(feature = "simulated")]
    Simulated,
}

impl InspectorArgs {
    /// The switch of this node, for a program that runs all the time, and what is to be waited for at its end. One that
    /// is down is waited for.
    #[cfg_attr(not(feature = "simulated"), expect(unused_variables, reason = "a real switch has no name"))]
    pub(crate) async fn follow(&self, node: &str) -> Result<(Arc<dyn OvsInspector>, Option<OvsSwitch>), TaskError> {
        match self.inspector {
            Kind::Ovs => {
                let switch = OvsSwitch::connect(self.options()?.sweep(true)).await?;
                Ok((Arc::new(switch.clone()), Some(switch)))
            }
            #[cfg(feature = "simulated")]
            Kind::Simulated => Ok((self.simulated(node)?, None)),
        }
    }

    /// The same for one look, which changes nothing.
    #[cfg_attr(not(feature = "simulated"), expect(unused_variables, reason = "a real switch has no name"))]
    pub(crate) async fn open(&self, node: &str) -> Result<Arc<dyn OvsInspector>, TaskError> {
        match self.inspector {
            Kind::Ovs => Ok(Arc::new(OvsSwitch::connect(self.options()?).await?)),
            #[cfg(feature = "simulated")]
            Kind::Simulated => self.simulated(node),
        }
    }

    fn options(&self) -> Result<OvsOptions, TaskError> {
        let southbound = match self.southbound.as_str() {
            "none" | "" => Southbound::None,
            "controller" => Southbound::AsController,
            remotes => Southbound::At(Remote::list(remotes)?),
        };
        let mut options = OvsOptions::new()
            .run_dir(&self.ovs_run_dir)
            .ovn_run_dir(&self.ovn_run_dir)
            .host_root(&self.host_root)
            .southbound(southbound)
            .owner("cobalt-ovs-agent")
            .control_timeout(self.control_timeout)
            .openflow_timeout(self.openflow_timeout);
        if let Some(remote) = &self.ovs_database {
            options = options.database(remote.parse()?);
        }
        if let Some(ca) = &self.ssl_ca_cert {
            let identity = self.ssl_certificate.clone().zip(self.ssl_private_key.clone());
            options = options.pki(Pki { ca: ca.clone(), identity, verify_name: false });
        }
        Ok(options)
    }

    /// A switch that is invented, on a host of this name.
    #[cfg(feature = "simulated")]
    fn simulated(&self, node: &str) -> Result<Arc<dyn OvsInspector>, TaskError> {
        let region = cobalt_sim::Region::builder()
            .named([node])
            .vms_per_host(self.simulated_vms.into())
            .seed(self.simulated_seed)
            .starting_at(cobalt_core::jiff::Timestamp::now())
            .build();
        Ok(Arc::new(region.switch(&node.into())?))
    }
}
