//! Flags of earlier agents, so that their manifests keep working.

use clap::{ArgAction, Args as ClapArgs};

use crate::runtime::{
    args::LogArgs,
    earlier::{self, HEADING},
};

/// Accepted for the sake of existing manifests. Those with a meaning here say which.
#[derive(ClapArgs, Clone, Debug, Default)]
#[group(skip)]
pub struct EarlierArgs {
    /// What all earlier programs had.
    #[command(flatten)]
    pub common: earlier::EarlierArgs,

    /// No effect: there is one agent per node, and nobody to elect
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", help_heading = HEADING)]
    pub leader_elect: Option<bool>,

    /// No effect, as before: spec.createCertManagerCertificate of the Hypervisor decides
    #[arg(long, env = "DISABLE_CREATE_CERT_MANAGER_CERTIFICATE", value_name = "ANY", help_heading = HEADING)]
    pub disable_create_cert_manager_certificate: Option<String>,
}

impl EarlierArgs {
    /// How to log, with those of the flags that were given on top.
    pub fn log(&self, args: &LogArgs) -> LogArgs {
        self.common.log(args)
    }
}
