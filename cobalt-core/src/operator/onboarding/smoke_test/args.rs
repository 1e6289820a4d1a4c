//! The smoke test on the command line, and whose login it uses.

use std::{collections::BTreeMap, fmt, time::Duration};

use clap::Args;

use super::{BootFrom, SmokeTestSettings};
use crate::runtime::{args::duration, program::ProgramError};

const HEADING: &str = "Smoke test";
/// Where the earlier programs tested.
const PROJECT: &str = "test";
const DOMAIN: &str = "cc3test";

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
    pub fn login(&self, variables: impl IntoIterator<Item = (String, String)>) -> Result<SmokeTestLogin, ProgramError> {
        const MEANT: &str = "SMOKE_TEST_";
        let (mut own, mut meant) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in variables {
            match name.strip_prefix(MEANT) {
                Some(name) if name.starts_with("OS_") && !value.is_empty() => {
                    drop(meant.insert(name.to_owned(), value));
                }
                Some(_) => {}
                None => drop(own.insert(name, value)),
            }
        }
        if let Some(cloud) = &self.smoke_test_cloud {
            meant.insert("OS_CLOUD".into(), cloud.clone());
        }
        let project = self.place(&mut meant)?;
        Ok(SmokeTestLogin { own, meant, project })
    }

    /// Puts the project of the test among what is meant, or answers the one to take if the login may choose.
    fn place(&self, meant: &mut BTreeMap<String, String>) -> Result<Option<(String, String)>, ProgramError> {
        const OTHER_SCOPES: [&str; 5] =
            ["OS_PROJECT_ID", "OS_TENANT_ID", "OS_DOMAIN_ID", "OS_DOMAIN_NAME", "OS_SYSTEM_SCOPE"];
        const CREDENTIALS: [&str; 2] = ["OS_APPLICATION_CREDENTIAL_ID", "OS_APPLICATION_CREDENTIAL_NAME"];
        const DOMAINS: [&str; 2] = ["OS_PROJECT_DOMAIN_ID", "OS_PROJECT_DOMAIN_NAME"];
        let any = |meant: &BTreeMap<String, String>, names: &[&str]| names.iter().any(|name| meant.contains_key(*name));
        let (project, domain) = (&self.smoke_test_project, &self.smoke_test_project_domain);
        if any(meant, &CREDENTIALS) {
            if project.is_none() && domain.is_none() {
                return Ok(None);
            }
            let text = "the application credential of the smoke test is bound to its project: leave --smoke-test-project \
                        and --smoke-test-project-domain out, or give SMOKE_TEST_OS_USERNAME and \
                        SMOKE_TEST_OS_PASSWORD instead of the credential";
            return Err(ProgramError::Arguments(text.into()));
        }
        if let Some(project) = project {
            meant.retain(|name, _| !OTHER_SCOPES.contains(&name.as_str()) && name != "OS_TENANT_NAME");
            meant.insert("OS_PROJECT_NAME".into(), project.clone());
        }
        let named = any(meant, &["OS_PROJECT_NAME", "OS_TENANT_NAME"]);
        let cloud = meant.contains_key("OS_CLOUD");
        if any(meant, &OTHER_SCOPES) || cloud && !named {
            if domain.is_none() {
                return Ok(None);
            }
            let text = "--smoke-test-project-domain goes with --smoke-test-project, and the project is given in another \
                        way: leave the domain out, or name the project";
            return Err(ProgramError::Arguments(text.into()));
        }
        if let Some(domain) = domain {
            meant.retain(|name, _| !DOMAINS.contains(&name.as_str()));
            meant.insert("OS_PROJECT_DOMAIN_NAME".into(), domain.clone());
        }
        let domained = any(meant, &DOMAINS);
        if !named && !domained {
            return Ok(Some((PROJECT.to_owned(), DOMAIN.to_owned())));
        }
        if !named {
            meant.insert("OS_PROJECT_NAME".into(), PROJECT.to_owned());
        }
        if !domained && !cloud {
            meant.insert("OS_PROJECT_DOMAIN_NAME".into(), DOMAIN.to_owned());
        }
        Ok(None)
    }
}

/// The login of the smoke test.
#[derive(Clone, PartialEq, Eq)]
pub struct SmokeTestLogin {
    /// The operator's own variables.
    pub own: BTreeMap<String, String>,
    /// Those that win over them, and over an entry of clouds.yaml: what was meant for the test, by the names a login has
    /// in the environment.
    pub meant: BTreeMap<String, String>,
    /// The project to work in and the name of its domain, unless the login is bound to a project of its own.
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

    fn login(line: &[&str], more: &[(&str, &str)]) -> Result<SmokeTestLogin, ProgramError> {
        let all = OWN.iter().chain(more);
        args(line).login(all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn without_arguments_a_test_is_the_one_of_the_earlier_programs() {
        assert_eq!(args(&[]).settings(), SmokeTestSettings::default());
        let login = login(&[], &[]).unwrap();
        assert_eq!(login.project, Some(("test".into(), "cc3test".into())));
        assert_eq!(login.own["OS_USERNAME"], "operator");
        assert!(login.meant.is_empty());
        assert!(!format!("{login:?}").contains("hush"));
    }

    #[test]
    fn what_is_meant_for_the_test_is_told_apart_and_names_its_project() {
        let name = ("OS_PROJECT_NAME", "smoke");
        let standard = ("OS_PROJECT_DOMAIN_NAME", "cc3test");
        let given = ("OS_PROJECT_DOMAIN_NAME", "Default");
        let flag = "--smoke-test-project=smoke";
        for (line, variables, wanted) in [
            (&[flag][..], &[][..], &[name, standard][..]),
            (&[flag, "--smoke-test-project-domain=Default"], &[], &[name, given]),
            (&["--smoke-test-project-domain=Default"], &[], &[("OS_PROJECT_NAME", "test"), given]),
            (&[], &[("SMOKE_TEST_OS_PROJECT_NAME", "smoke")], &[name, standard]),
            (&[], &[("SMOKE_TEST_OS_PROJECT_ID", "4711")], &[("OS_PROJECT_ID", "4711")]),
            (&[flag], &[("SMOKE_TEST_OS_PROJECT_ID", "4711")], &[name, standard]),
            (&[flag], &[("SMOKE_TEST_OS_PROJECT_DOMAIN_NAME", "Default")], &[name, given]),
            // The domain that the entry names stays.
            (&[flag, "--smoke-test-cloud=smoke"], &[], &[("OS_CLOUD", "smoke"), name]),
            (&["--smoke-test-cloud=smoke"], &[], &[("OS_CLOUD", "smoke")]),
            (&[], &[("SMOKE_TEST_OS_APPLICATION_CREDENTIAL_ID", "17")], &[("OS_APPLICATION_CREDENTIAL_ID", "17")]),
        ] {
            let login = login(line, variables).unwrap();
            let mut wanted: Vec<_> = wanted.to_vec();
            wanted.sort_unstable();
            let meant: Vec<_> = login.meant.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(meant, wanted, "{line:?} {variables:?}");
            assert_eq!(login.project, None, "{line:?} {variables:?}");
            assert!(!login.own.keys().any(|name| name.starts_with("SMOKE_TEST_")));
        }
        // Another user, or an entry of their own: the operator's project is not meant.
        for more in [("SMOKE_TEST_OS_USERNAME", "tester"), ("OS_CLOUD", "own"), ("OS_APPLICATION_CREDENTIAL_ID", "17")]
        {
            assert_eq!(login(&[], &[more]).unwrap().project, Some(("test".into(), "cc3test".into())), "{more:?}");
        }
    }

    #[test]
    fn a_flag_that_cannot_apply_is_refused_with_what_to_do() {
        let credential = ("SMOKE_TEST_OS_APPLICATION_CREDENTIAL_NAME", "bot");
        for (line, variables, wanted) in [
            (&["--smoke-test-project=smoke"][..], &[credential][..], "leave --smoke-test-project"),
            (&["--smoke-test-project-domain=d"], &[credential], "SMOKE_TEST_OS_USERNAME"),
            (&["--smoke-test-project-domain=d"], &[("SMOKE_TEST_OS_PROJECT_ID", "17")], "name the project"),
            (&["--smoke-test-project-domain=d", "--smoke-test-cloud=smoke"], &[], "name the project"),
        ] {
            let error = login(line, variables).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
