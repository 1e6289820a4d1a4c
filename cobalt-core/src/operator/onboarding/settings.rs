//! What is configurable about an onboarding.

use clap::Args;

use super::{Checks, LibvirtVersion, SmokeTest};
use crate::api::labels;

const HEADING: &str = "Onboarding";

/// How hosts are brought into Nova.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OnboardingSettings {
    /// The aggregate that keeps everybody but the smoke test away from a host: the one that stage `aggregates` puts it
    /// into.
    pub test_aggregate: String,
    /// What must be so before a host is tested.
    pub checks: Checks,
    /// The smoke test; without one, only hosts with `skipTests` get through.
    pub smoke_test: Option<SmokeTest>,
}

impl Default for OnboardingSettings {
    fn default() -> Self {
        Self { test_aggregate: labels::TEST_AGGREGATE.into(), checks: Checks::default(), smoke_test: None }
    }
}

impl OnboardingSettings {
    /// The same with this smoke test.
    #[must_use]
    pub fn tested_by(mut self, smoke_test: Option<SmokeTest>) -> Self {
        self.smoke_test = smoke_test;
        self
    }
}

/// How hosts are brought into Nova, as arguments. The smoke test has [its own](super::SmokeTestArgs).
#[derive(Args, Clone, Debug, Default)]
#[group(skip)]
pub struct OnboardingArgs {
    /// Test a host only when its agent is connected to libvirt
    #[arg(long, help_heading = HEADING)]
    pub onboarding_require_libvirt: bool,

    /// Test a host only when its libvirt is of this version or newer
    #[arg(long, value_name = "VERSION", help_heading = HEADING)]
    pub onboarding_min_libvirt_version: Option<LibvirtVersion>,

    /// Test a host only when its switch has these bridges and its OVS agent calls them healthy
    #[arg(long, value_delimiter = ',', value_name = "BRIDGE", help_heading = HEADING)]
    pub onboarding_require_bridge: Vec<String>,

    /// Test a host only when these conditions of its Hypervisor are True, whoever writes them; for instance what a
    /// storage agent says of the host's way to RBD
    #[arg(long, value_delimiter = ',', value_name = "TYPE", help_heading = HEADING)]
    pub onboarding_require_condition: Vec<String>,
}

impl OnboardingArgs {
    /// The settings they describe, still without a smoke test.
    pub fn settings(&self) -> OnboardingSettings {
        OnboardingSettings {
            checks: Checks {
                libvirt: self.onboarding_require_libvirt,
                libvirt_version: self.onboarding_min_libvirt_version.clone(),
                bridges: self.onboarding_require_bridge.clone(),
                conditions: self.onboarding_require_condition.clone(),
            },
            ..OnboardingSettings::default()
        }
    }
}
