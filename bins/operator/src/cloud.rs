//! The way into OpenStack.

use std::{ffi::OsString, sync::Arc, time::Duration};

use cobalt_core::{
    operator::{CloudCalls, SmokeTest, SmokeTestArgs, program::Clients},
    runtime::{args::duration, program::ProgramError, shutdown::TaskError},
};
use cobalt_openstack::{CallRecord, Cloud, OpenStack, Options};

const HEADING: &str = "OpenStack";

/// Limits of the calls to OpenStack; where it is and who we are there is in the environment.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[expect(clippy::struct_field_names, reason = "they are the flags' names")]
pub(crate) struct OpenStackArgs {
    /// Time limit of a call, with its repetitions and waits
    #[arg(long, default_value = "90s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    openstack_call_timeout: Duration,

    /// Time limit of one attempt at a call
    #[arg(long, default_value = "30s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    openstack_attempt_timeout: Duration,

    /// Requests on their way at a time
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u16).range(1..))]
    openstack_concurrency: u16,

    /// Requests per second in the long run
    #[arg(long, default_value_t = 20, value_name = "N", help_heading = HEADING, value_parser = clap::value_parser!(u16).range(1..))]
    openstack_rate: u16,
}

impl OpenStackArgs {
    /// The clients of the cloud in the environment, and those of the project where hosts are tried. Nobody logs in before
    /// the first call: a cloud that is down is waited for, and who tries no hosts needs no such project.
    pub(crate) fn reach(&self, smoke_test: &SmokeTestArgs, calls: CloudCalls) -> Result<Clients, TaskError> {
        let options = Options {
            call_timeout: self.openstack_call_timeout,
            attempt_timeout: self.openstack_attempt_timeout,
            concurrency: self.openstack_concurrency.into(),
            rate: self.openstack_rate.into(),
            burst: u32::from(self.openstack_rate) * 2,
            user_agent: concat!("cobalt-operator/", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Options::default()
        };
        let observer = Arc::new(move |record: &CallRecord| {
            calls.observe(record.service, record.call, record.outcome, record.elapsed);
        });
        let openstack = OpenStack::lazy(&Cloud::from_env()?, options, Some(observer.clone()))?;
        let texts = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let login = smoke_test.login(std::env::vars_os().filter_map(texts))?;
        let cloud = Cloud::from_vars_with(login.own, login.meant);
        let mut cloud = cloud.map_err(|error| ProgramError::SmokeTest(error.into()))?;
        if let Some((project, domain)) = &login.project {
            cloud = cloud.in_project(project, domain);
        }
        let tests = openstack.beside(&cloud, Some(observer))?;
        let smoke_test = SmokeTest::new(Arc::new(tests.nova()), Arc::new(tests.test_bed()), smoke_test.settings());
        Ok(Clients {
            nova: Arc::new(openstack.nova()),
            placement: Arc::new(openstack.placement()),
            smoke_test: Some(smoke_test),
        })
    }
}
