//! The smoke test on the command line, and whose login it uses.

use std::{collections::BTreeMap, fmt, time::Duration};

use clap::Args;

use super::{BootFrom, SmokeTestSettings};
use crate::runtime::args::duration;

const HEADING: &str = "Smoke test";

/// How hosts are tested, and where, as arguments.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct SmokeTestArgs {
    /// Entry of clouds.yaml to log in with for the smoke test [default: the operator's login, in another project]
    ///
    /// Every variable OS_X of the operator's login can be given for this one as SMOKE_TEST_OS_X.
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub smoke_test_cloud: Option<String>,

    /// Project of the smoke test [default: test, unless SMOKE_TEST_OS_PROJECT_NAME or a cloud is given]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub smoke_test_project: Option<String>,

    /// Domain of that project [default: cc3test, unless SMOKE_TEST_OS_PROJECT_DOMAIN_NAME or a cloud is given]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub smoke_test_project_domain: Option<String>,

    /// Image of the test server, by its name or its UUID
    #[arg(long, default_value = "cirros-kvm", value_name = "IMAGE", help_heading = HEADING)]
    pub smoke_test_image: String,

    /// Flavor of the test server, by its id or its name
    #[arg(long, default_value = "1", value_name = "FLAVOR", help_heading = HEADING)]
    pub smoke_test_flavor: String,

    /// Network of the test server, by its name or its UUID; `none` for none [default: the first of its project's own]
    #[arg(long, value_name = "NETWORK", help_heading = HEADING)]
    pub smoke_test_network: Option<String>,

    /// What the test server boots from; a volume tests the host's way to the storage too
    #[arg(long, value_enum, default_value_t, value_name = "WHAT", help_heading = HEADING)]
    pub smoke_test_boot_from: BootFrom,

    /// Size of its volume in GiB
    #[arg(long, default_value_t = 64, value_name = "GIB", value_parser = clap::value_parser!(u32).range(1..), help_heading = HEADING)]
    pub smoke_test_volume_size: u32,

    /// Type of its volume; empty for the cloud's default
    #[arg(long, default_value = "premium", value_name = "TYPE", help_heading = HEADING)]
    pub smoke_test_volume_type: String,

    /// Availability zone of the test server, which must lead it to the host
    #[arg(long, default_value = "{zone}:{host}", value_name = "FORMAT", help_heading = HEADING)]
    pub smoke_test_zone_format: String,

    /// How long after it was asked for the test server must have been built
    #[arg(long, default_value = "15m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub smoke_test_build_timeout: Duration,

    /// How long after its launch the test server must have said its name on the console
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub smoke_test_timeout: Duration,

    /// How many lines of its console are looked at
    #[arg(long, default_value_t = 11, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = HEADING)]
    pub smoke_test_console_lines: u32,

    /// Pause between two looks at the test server
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub smoke_test_poll_interval: Duration,

    /// Pause before a failed test is repeated
    #[arg(long, default_value = "1m", value_parser = duration, value_name = "DURATION", help_heading = HEADING)]
    pub smoke_test_retry_interval: Duration,

    /// What the names of test servers begin with
    #[arg(long, default_value = "ohooc--", value_name = "TEXT", help_heading = HEADING)]
    pub smoke_test_prefix: String,
}

impl SmokeTestArgs {
    /// The settings they describe.
    pub fn settings(&self) -> SmokeTestSettings {
        SmokeTestSettings {
            prefix: self.smoke_test_prefix.clone(),
            image: self.smoke_test_image.clone(),
            flavor: self.smoke_test_flavor.clone(),
            network: self.smoke_test_network.clone().filter(|name| !name.is_empty()),
            boot_from: self.smoke_test_boot_from,
            volume_size_gb: self.smoke_test_volume_size,
            volume_type: Some(self.smoke_test_volume_type.clone()).filter(|kind| !kind.is_empty()),
            zone_format: self.smoke_test_zone_format.clone(),
            build_timeout: self.smoke_test_build_timeout,
            timeout: self.smoke_test_timeout,
            console_lines: self.smoke_test_console_lines,
            poll_interval: self.smoke_test_poll_interval,
            retry_interval: self.smoke_test_retry_interval,
        }
    }

    /// The second login, made from the variables of the program: the operator's own, with those meant for the test on
    /// top, in the project of the test.
    pub fn login(&self, variables: impl IntoIterator<Item = (String, String)>) -> SmokeTestLogin {
        const MEANT: &str = "SMOKE_TEST_";
        let (mut login, mut meant) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in variables {
            match name.strip_prefix(MEANT) {
                Some(name) if name.starts_with("OS_") && !value.is_empty() => {
                    drop(meant.insert(name.to_owned(), value));
                }
                Some(_) => {}
                None => drop(login.insert(name, value)),
            }
        }
        if let Some(cloud) = &self.smoke_test_cloud {
            meant.insert("OS_CLOUD".into(), cloud.clone());
        }
        let names = |name: &str| meant.contains_key(name);
        if names("OS_CLOUD") {
            // The variables of another login would fill in what the entry leaves out.
            login.retain(|name, _| !name.starts_with("OS_") || name == "OS_CLIENT_CONFIG_FILE");
        }
        // What these name, or an application credential is bound to, is a project already.
        let bound = ["OS_CLOUD", "OS_PROJECT_NAME", "OS_PROJECT_ID", "OS_APPLICATION_CREDENTIAL_ID"];
        let bound = bound.iter().any(|name| names(name)) || login.contains_key("OS_APPLICATION_CREDENTIAL_ID");
        let project = self.smoke_test_project.clone().or_else(|| (!bound).then(|| "test".to_owned()));
        let domain = self.smoke_test_project_domain.clone().or_else(|| meant.get("OS_PROJECT_DOMAIN_NAME").cloned());
        let domain = domain.unwrap_or_else(|| "cc3test".to_owned());
        if names("OS_PROJECT_NAME") || names("OS_PROJECT_ID") {
            // An id, or the domain of another project, would win over what is meant.
            login.retain(|name, _| !name.starts_with("OS_PROJECT_") && !name.starts_with("OS_TENANT_"));
        }
        login.extend(meant);
        SmokeTestLogin { variables: login, project: project.map(|name| (name, domain)) }
    }
}

/// The login of the smoke test.
#[derive(Clone, PartialEq, Eq)]
pub struct SmokeTestLogin {
    /// Variables as a login reads them from the environment.
    pub variables: BTreeMap<String, String>,
    /// The project to work in whatever the variables say, and the name of its domain.
    pub project: Option<(String, String)>,
}

// Passwords are in the variables.
impl fmt::Debug for SmokeTestLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmokeTestLogin").field("project", &self.project).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SmokeTestArgs,
    }

    fn args(line: &[&str]) -> SmokeTestArgs {
        Line::parse_from(["operator"].iter().chain(line)).args
    }

    const OWN: [(&str, &str); 5] = [
        ("OS_AUTH_URL", "http://keystone"),
        ("OS_USERNAME", "operator"),
        ("OS_PASSWORD", "hush"),
        ("OS_PROJECT_NAME", "admin"),
        ("OS_PROJECT_DOMAIN_NAME", "Default"),
    ];

    fn login(line: &[&str], more: &[(&str, &str)]) -> SmokeTestLogin {
        let all = OWN.iter().chain(more);
        args(line).login(all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    fn project(name: &str, domain: &str) -> (String, String) {
        (name.to_owned(), domain.to_owned())
    }

    #[test]
    fn without_arguments_a_test_is_the_one_of_the_earlier_programs() {
        assert_eq!(args(&[]).settings(), SmokeTestSettings::default());
        let login = login(&[], &[]);
        assert_eq!(login.project, Some(project("test", "cc3test")));
        assert_eq!(login.variables["OS_USERNAME"], "operator");
        assert!(!format!("{login:?}").contains("hush"));
    }

    #[test]
    fn a_test_may_have_another_project_another_user_or_another_cloud() {
        let other = login(&["--smoke-test-project=smoke", "--smoke-test-project-domain=Default"], &[]);
        assert_eq!(other.project, Some(project("smoke", "Default")));

        let meant = [("SMOKE_TEST_OS_PROJECT_ID", "4711"), ("SMOKE_TEST_OS_USERNAME", "tester")];
        let other = login(&[], &meant);
        assert_eq!(other.project, None);
        assert_eq!((&*other.variables["OS_PROJECT_ID"], &*other.variables["OS_USERNAME"]), ("4711", "tester"));
        assert!(!other.variables.contains_key("OS_PROJECT_NAME"), "the operator's project is not meant");
        assert!(!other.variables.keys().any(|name| name.starts_with("SMOKE_TEST_")));

        let file = [("OS_CLIENT_CONFIG_FILE", "/etc/clouds.yaml"), ("OS_CLOUD", "own"), ("HOME", "/root")];
        let other = login(&["--smoke-test-cloud=smoke"], &file);
        let kept: Vec<&str> = other.variables.keys().map(String::as_str).collect();
        assert_eq!(kept, ["HOME", "OS_CLIENT_CONFIG_FILE", "OS_CLOUD"]);
        assert_eq!((&*other.variables["OS_CLOUD"], other.project), ("smoke", None));
        // The operator's own entry names a project; the test is not run there.
        assert_eq!(login(&[], &file).project, Some(project("test", "cc3test")));
        assert_eq!(login(&[], &[("OS_APPLICATION_CREDENTIAL_ID", "17")]).project, None);
    }
}
