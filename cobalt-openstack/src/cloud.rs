//! Which cloud, and as whom.
//!
//! [`Cloud::from_env`] reads what every OpenStack client reads. With `OS_CLOUD` set, the entry of that name in
//! `clouds.yaml` (and `secure.yaml`, and the vendor profiles of `clouds-public.yaml`) is taken, and the other variables
//! fill in what it leaves out; without it the variables are all there is.
//!
//! | Variable | Meaning |
//! |---|---|
//! | `OS_CLOUD`, `OS_CLIENT_CONFIG_FILE` | the entry of `clouds.yaml`, and where the file is |
//! | `OS_AUTH_URL` | Keystone, with or without `/v3` |
//! | `OS_USERNAME` or `OS_USER_ID`, `OS_USER_DOMAIN_NAME` or `OS_USER_DOMAIN_ID` | the user |
//! | `OS_PASSWORD` | their password |
//! | `OS_PW_CMD` | a command line whose output is the password; run with `sh -c` at every login, so that a rotated password is picked up |
//! | `OS_APPLICATION_CREDENTIAL_ID` or `_NAME`, `OS_APPLICATION_CREDENTIAL_SECRET` | an application credential instead of a user |
//! | `OS_PROJECT_NAME` or `OS_PROJECT_ID`, `OS_PROJECT_DOMAIN_NAME` or `OS_PROJECT_DOMAIN_ID` | the project to work in |
//! | `OS_DOMAIN_NAME`, `OS_DOMAIN_ID`, `OS_SYSTEM_SCOPE=all` | other scopes |
//! | `OS_REGION_NAME` | the region; without it there must be only one |
//! | `OS_INTERFACE` or `OS_ENDPOINT_TYPE` | `public` (default), `internal` or `admin` |
//! | `OS_CACERT` | a file of certificates to trust instead of the system's |
//! | `OS_INSECURE` | `true` trusts everybody: not for production |
//! | `OS_COMPUTE_ENDPOINT_OVERRIDE`, `OS_PLACEMENT_ENDPOINT_OVERRIDE` | an address instead of the catalog's |

mod credentials;
mod files;
mod settings;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) use credentials::Credentials;
use serde_json::{Value, json};
use settings::Settings;
use url::Url;

use crate::error::{Error, Result};

/// A cloud to connect to: an address, who we are there, and where in it we want to work.
///
/// ```
/// use cobalt_openstack::Cloud;
///
/// let cloud = Cloud::from_vars([
///     ("OS_AUTH_URL", "https://keystone.example/v3"),
///     ("OS_USERNAME", "operator"),
///     ("OS_USER_DOMAIN_NAME", "Default"),
///     ("OS_PASSWORD", "open sesame"),
///     ("OS_PROJECT_NAME", "admin"),
///     ("OS_PROJECT_DOMAIN_NAME", "Default"),
///     ("OS_REGION_NAME", "west"),
/// ])?;
/// assert_eq!(cloud.region(), Some("west"));
/// assert!(!format!("{cloud:?}").contains("sesame"));
/// # Ok::<(), cobalt_openstack::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cloud {
    pub(crate) auth_url: Url,
    pub(crate) credentials: Credentials,
    /// As Keystone wants it; `null` for none.
    pub(crate) scope: Value,
    pub(crate) region: Option<String>,
    pub(crate) interface: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) overrides: BTreeMap<String, Url>,
}

impl Cloud {
    /// From the environment of this process.
    pub fn from_env() -> Result<Self> {
        // A variable that is no text cannot be one of ours.
        let texts = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::from_vars(std::env::vars_os().filter_map(texts))
    }

    /// From variables with the names of the environment.
    pub fn from_vars(vars: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Result<Self> {
        Self::from_vars_with(vars, std::iter::empty::<(String, String)>())
    }

    /// The same, with variables for a second login on top. They win over the others and over the entry of `clouds.yaml`,
    /// and what they say replaces all that answers the same: another user comes with another password, another project
    /// without the id of the first. With an `OS_CLOUD` among them nothing is taken from the others but where the files are.
    ///
    /// What cannot apply is an error: a password for an application credential, a project for a login that is bound to one.
    ///
    /// ```
    /// use cobalt_openstack::Cloud;
    ///
    /// let own = [("OS_AUTH_URL", "https://keystone.example"), ("OS_USER_ID", "4711"), ("OS_PASSWORD", "open sesame")];
    /// let tester = [("OS_USERNAME", "tester"), ("OS_USER_DOMAIN_NAME", "Default")];
    /// let error = Cloud::from_vars_with(own, tester).unwrap_err();
    /// assert!(error.to_string().contains("OS_PASSWORD"), "the first one's password is not the tester's");
    /// ```
    pub fn from_vars_with(
        vars: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
        on_top: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Self> {
        let mut vars: BTreeMap<String, String> =
            vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let above: BTreeMap<String, String> =
            on_top.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let (mut settings, above_settings) = (Settings::from_vars(&vars), Settings::from_vars(&above));
        if above_settings.has(&["cloud"]) {
            // Another cloud: the variables of this one would fill in what its entry leaves out.
            settings = Settings::default();
        }
        if let Some(name) = above_settings.get("cloud").or_else(|| settings.get("cloud")).map(str::to_owned) {
            vars.extend(above);
            let mut chosen = files::find(&vars)?.entry(&name)?;
            chosen.fill_in(&settings);
            settings = chosen;
        }
        settings.put_on_top(&above_settings);
        let cloud = Self::build(&settings)?;
        cloud.credentials.takes(&above_settings)?;
        Ok(cloud)
    }

    /// The entry `name` of these files, later ones over earlier ones: `clouds.yaml`, then `secure.yaml`.
    pub fn from_files(name: &str, files: &[&Path]) -> Result<Self> {
        Self::build(&files::Files::read(files)?.entry(name)?)
    }

    /// The same login in another project, named with its domain. An application credential is bound to its own and
    /// stays there; [`Cloud::from_vars_with`] refuses what this leaves out.
    #[must_use]
    pub fn in_project(mut self, name: &str, domain: &str) -> Self {
        if matches!(self.credentials, Credentials::Password { .. }) {
            self.scope = json!({"project": {"name": name, "domain": {"name": domain}}});
        }
        self
    }

    /// The region, if one is named.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// The endpoint interface: `public`, `internal` or `admin`.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    fn build(settings: &Settings) -> Result<Self> {
        let address = settings.get("auth_url").ok_or_else(|| missing("OS_AUTH_URL (auth_url)"))?;
        let interface = settings.get("interface").or_else(|| settings.get("endpoint_type")).unwrap_or("public");
        let interface = interface.trim_end_matches("URL").to_owned();
        if !["public", "internal", "admin"].contains(&interface.as_str()) {
            return Err(Error::configuration(format!("`{interface}` is no endpoint interface")));
        }
        let overrides = settings.overrides().map(|(service, text)| Ok((service, address_of(text)?)));
        let verify = settings.boolean("verify")?.unwrap_or(true);
        Ok(Self {
            auth_url: identity(address_of(address)?),
            credentials: Credentials::read(settings)?,
            scope: settings.scope(),
            region: settings.get("region_name").map(str::to_owned),
            interface,
            ca: settings.get("cacert").map(PathBuf::from),
            insecure: settings.boolean("insecure")?.unwrap_or(!verify),
            overrides: overrides.collect::<Result<_>>()?,
        })
    }
}

fn missing(what: &str) -> Error {
    Error::configuration(format!("{what} is not set"))
}

fn address_of(text: &str) -> Result<Url> {
    // What may be a password in front of the host is never sent, and never shown.
    let shown = text.rsplit('@').next().unwrap_or(text);
    let parsed = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    let mut url = parsed.ok_or_else(|| Error::configuration(format!("`{shown}` is no http or https address")))?;
    // An http address has a place for them, so neither can fail.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    Ok(url)
}

/// Keystone's v3 API below an address with or without it.
fn identity(mut url: Url) -> Url {
    let path = url.path().trim_end_matches('/').to_owned();
    let base = path.strip_suffix("/v2.0").unwrap_or(&path);
    let path = if base.ends_with("/v3") { base.to_owned() } else { format!("{base}/v3") };
    url.set_path(&path);
    url
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use secrecy::ExposeSecret;

    use super::*;

    const PLAIN: [(&str, &str); 6] = [
        ("OS_AUTH_URL", "http://keystone.example:5000"),
        ("OS_USERNAME", "nova"),
        ("OS_USER_DOMAIN_NAME", "Default"),
        ("OS_PASSWORD", "hush"),
        ("OS_PROJECT_NAME", "service"),
        ("OS_PROJECT_DOMAIN_ID", "default"),
    ];

    fn with(more: &[(&str, &str)]) -> Result<Cloud> {
        Cloud::from_vars(PLAIN.iter().chain(more).copied())
    }

    #[test]
    fn the_usual_variables_are_enough() {
        let cloud = with(&[]).unwrap();
        assert_eq!(cloud.auth_url.as_str(), "http://keystone.example:5000/v3");
        assert_eq!(cloud.interface(), "public");
        assert_eq!(cloud.region(), None);
        let body = cloud.credentials.body("hush", &cloud.scope);
        assert_eq!(body["auth"]["identity"]["password"]["user"]["name"], "nova");
        assert_eq!(body["auth"]["scope"]["project"]["name"], "service");
        assert_eq!(body["auth"]["scope"]["project"]["domain"]["id"], "default");
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        for more in [&[][..], &[("OS_PW_CMD", "cat /hush")][..]] {
            let cloud = with(more).unwrap();
            assert!(!format!("{cloud:?}").contains("hush\""), "{cloud:?}");
        }
        for name in ["OS_AUTH_URL", "OS_COMPUTE_ENDPOINT_OVERRIDE"] {
            let cloud = with(&[(name, "https://me:open-sesame@keystone.example/v3")]).unwrap();
            assert!(!format!("{cloud:?}").contains("sesame"), "{cloud:?}");
            let error = with(&[(name, "ftp://me:open-sesame@keystone.example/v3")]).unwrap_err();
            assert!(!error.to_string().contains("sesame"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named_as_people_set_it() {
        for absent in ["OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_USER_DOMAIN_NAME"] {
            let error = Cloud::from_vars(PLAIN.into_iter().filter(|(name, _)| *name != absent)).unwrap_err();
            assert!(error.to_string().contains(absent), "{error}");
            // An empty one is not set.
            let error = Cloud::from_vars(PLAIN.map(|(name, value)| (name, if name == absent { "" } else { value })));
            assert!(error.unwrap_err().to_string().contains(absent));
        }
    }

    #[test]
    fn region_interface_and_trust_are_configurable() {
        let cloud = with(&[
            ("OS_REGION_NAME", "west"),
            ("OS_ENDPOINT_TYPE", "internalURL"),
            ("OS_CACERT", "/etc/ca.pem"),
            ("OS_INSECURE", "yes"),
            ("OS_PLACEMENT_ENDPOINT_OVERRIDE", "http://placement.example"),
        ])
        .unwrap();
        assert_eq!((cloud.region(), cloud.interface()), (Some("west"), "internal"));
        assert_eq!(cloud.ca.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert!(cloud.insecure);
        assert_eq!(cloud.overrides["placement"].as_str(), "http://placement.example/");
        for wrong in [("OS_INTERFACE", "secret"), ("OS_INSECURE", "maybe"), ("OS_AUTH_URL", "ftp://x")] {
            assert_eq!(with(&[wrong]).unwrap_err().category(), "configuration");
        }
    }

    #[test]
    fn an_application_credential_needs_no_user_and_brings_its_own_scope() {
        let cloud = Cloud::from_vars([
            ("OS_AUTH_URL", "https://keystone.example/identity/v3/"),
            ("OS_APPLICATION_CREDENTIAL_ID", "4711"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "hush"),
        ])
        .unwrap();
        assert_eq!(cloud.auth_url.as_str(), "https://keystone.example/identity/v3");
        let body = cloud.credentials.body("hush", &cloud.scope);
        assert_eq!(body["auth"]["identity"]["methods"][0], "application_credential");
        assert_eq!(body["auth"]["identity"]["application_credential"]["id"], "4711");
        assert!(body["auth"].get("scope").is_none());
    }

    #[test]
    fn a_login_can_be_had_in_another_project() {
        let cloud = with(&[("OS_PROJECT_ID", "4711")]).unwrap().in_project("test", "cc3test");
        let scope = &cloud.credentials.body("hush", &cloud.scope)["auth"]["scope"];
        assert_eq!(*scope, json!({"project": {"name": "test", "domain": {"name": "cc3test"}}}));
        let bound = [("OS_APPLICATION_CREDENTIAL_ID", "17"), ("OS_APPLICATION_CREDENTIAL_SECRET", "hush")];
        let cloud = with(&bound).unwrap().in_project("test", "cc3test");
        assert!(cloud.credentials.body("hush", &cloud.scope)["auth"].get("scope").is_none());
    }

    /// A login by its body: who proves it how, and where they want to work.
    fn login(cloud: &Cloud) -> String {
        let body = cloud.credentials.body("", &cloud.scope);
        let mut auth = body["auth"].clone();
        let method = auth["identity"]["methods"][0].as_str().unwrap().to_owned();
        let proof = &mut auth["identity"][method.as_str()];
        let who = if method == "password" { proof["user"].take() } else { proof.take() };
        let secret = match cloud.credentials.secret() {
            credentials::Secret::Text(text) => text.expose_secret().to_owned(),
            credentials::Secret::Command(line) => format!("$({line})"),
        };
        format!("{who} {secret} {}", auth["scope"]).replace('"', "")
    }

    #[test]
    fn what_is_meant_for_the_second_login_replaces_all_that_answers_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clouds.yaml");
        let text = "clouds:\n  own:\n    auth: {auth_url: http://k, username: operator, user_domain_name: Default, \
                    password: hush, project_name: admin, project_domain_name: Default}\n  bot:\n    auth: {auth_url: \
                    http://k, application_credential_id: c0, application_credential_secret: hush}\n";
        std::fs::write(&path, text).unwrap();
        let file = ("OS_CLIENT_CONFIG_FILE", path.to_str().unwrap());
        let vars = &PLAIN[..];
        let by_id = &[PLAIN[0], ("OS_USER_ID", "u0"), ("OS_PW_CMD", "vault"), ("OS_PROJECT_ID", "p0")][..];
        let entry = &[("OS_CLOUD", "own"), file][..];
        let bot = &[("OS_CLOUD", "bot"), file][..];
        let credential = &[
            PLAIN[0],
            ("OS_APPLICATION_CREDENTIAL_ID", "c0"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "hush"),
            ("OS_AUTH_TYPE", "v3applicationcredential"),
        ][..];
        let tester = &[("OS_USERNAME", "tester"), ("OS_PASSWORD", "own"), ("OS_USER_DOMAIN_NAME", "d")][..];
        let theirs = "{domain:{name:d},name:tester,password:} own";
        let at_first = "{project:{domain:{id:default},name:service}}";
        for (base, above, wanted) in [
            // Somebody else, whatever the first login is made of.
            (vars, tester, format!("{theirs} {at_first}")),
            (by_id, tester, format!("{theirs} {{project:{{id:p0}}}}")),
            (entry, tester, format!("{theirs} {{project:{{domain:{{name:Default}},name:admin}}}}")),
            (bot, tester, format!("{theirs} null")),
            (credential, tester, format!("{theirs} null")),
            // A domain stays until another is named.
            (
                entry,
                &[("OS_USERNAME", "tester"), ("OS_PASSWORD", "own")],
                "{domain:{name:Default},name:tester,password:} own {project:{domain:{name:Default},name:admin}}".into(),
            ),
            // The same user with another password, however the first one came by theirs.
            (by_id, &[("OS_PASSWORD", "new")], "{id:u0,password:} new {project:{id:p0}}".into()),
            (
                vars,
                &[("OS_PW_CMD", "vault")],
                format!("{{domain:{{name:Default}},name:nova,password:}} $(vault) {at_first}"),
            ),
            // Elsewhere.
            (entry, &[("OS_PROJECT_ID", "p1")], {
                "{domain:{name:Default},name:operator,password:} hush {project:{id:p1}}".into()
            }),
            (by_id, &[("OS_PROJECT_NAME", "p1"), ("OS_PROJECT_DOMAIN_NAME", "d")], {
                "{id:u0,password:} $(vault) {project:{domain:{name:d},name:p1}}".into()
            }),
            // A credential instead of a user.
            (
                entry,
                &[("OS_APPLICATION_CREDENTIAL_ID", "c1"), ("OS_APPLICATION_CREDENTIAL_SECRET", "s")],
                "{id:c1,secret:} s null".into(),
            ),
            (credential, &[("OS_APPLICATION_CREDENTIAL_SECRET", "new")], "{id:c0,secret:} new null".into()),
            // Another entry, and nothing of the first login.
            (&[vars, &[file]].concat(), &[("OS_CLOUD", "bot")], "{id:c0,secret:} hush null".into()),
            (bot, &[("OS_CLOUD", "own"), ("OS_PASSWORD", "new")], {
                "{domain:{name:Default},name:operator,password:} new {project:{domain:{name:Default},name:admin}}"
                    .into()
            }),
        ] {
            let cloud = Cloud::from_vars_with(base.iter().copied(), above.iter().copied()).unwrap();
            assert_eq!(login(&cloud), wanted, "{base:?} with {above:?}");
        }
        for (base, above, wanted) in [
            (entry, &[("OS_USERNAME", "tester")][..], "OS_PASSWORD"),
            (credential, &[("OS_PASSWORD", "own")], "OS_USERNAME"),
            (bot, &[("OS_PROJECT_NAME", "p1")], "bound to its project"),
            (vars, &[("OS_APPLICATION_CREDENTIAL_SECRET", "s")], "OS_APPLICATION_CREDENTIAL_ID"),
            (vars, &[("OS_CLOUD", "own")], "clouds.yaml"),
        ] {
            let error = Cloud::from_vars_with(base.iter().copied(), above.iter().copied()).unwrap_err();
            assert_eq!(error.category(), "configuration");
            assert!(error.to_string().contains(wanted), "{base:?} with {above:?}: {error}");
        }
        let elsewhere = Cloud::from_vars_with(
            entry.iter().copied(),
            [("OS_AUTH_URL", "http://other"), ("OS_REGION_NAME", "r"), ("OS_ENDPOINT_TYPE", "internal")],
        );
        let elsewhere = elsewhere.unwrap();
        assert_eq!((elsewhere.auth_url.as_str(), elsewhere.region()), ("http://other/v3", Some("r")));
        assert_eq!(elsewhere.interface(), "internal");
    }

    #[test]
    fn an_application_credential_by_name_names_its_user() {
        let more = [("OS_APPLICATION_CREDENTIAL_NAME", "bot"), ("OS_APPLICATION_CREDENTIAL_SECRET", "hush")];
        let cloud = with(&more).unwrap();
        let body = cloud.credentials.body("hush", &cloud.scope);
        let credential = &body["auth"]["identity"]["application_credential"];
        assert_eq!(credential["name"], "bot");
        assert_eq!(credential["user"]["domain"]["name"], "Default");
    }

    #[test]
    fn clouds_yaml_is_read_and_variables_fill_in_what_it_leaves_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clouds.yaml");
        let text = "clouds:\n  lab:\n    auth:\n      auth_url: http://lab.example:5000/v3\n      username: me\n      \
                    user_domain_name: Default\n      project_name: p\n      project_domain_name: Default\n    \
                    region_name: lab-1\n    interface: internal\n    verify: false\n    \
                    compute_endpoint_override: http://nova.example/v2.1\n";
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        let cloud = Cloud::from_vars([
            ("OS_CLOUD", "lab"),
            ("OS_CLIENT_CONFIG_FILE", path.to_str().unwrap()),
            ("OS_PASSWORD", "hush"),
            ("OS_REGION_NAME", "ignored"),
        ])
        .unwrap();
        assert_eq!((cloud.region(), cloud.interface(), cloud.insecure), (Some("lab-1"), "internal", true));
        assert_eq!(cloud.overrides["compute"].as_str(), "http://nova.example/v2.1");
        let error = Cloud::from_files("attic", &[&path]).unwrap_err();
        assert_eq!(error.to_string(), "OpenStack configuration: clouds.yaml has no cloud `attic`");
        let error = Cloud::from_files("lab", &[&path]).unwrap_err();
        assert!(error.to_string().contains("OS_PASSWORD"), "{error}");
        assert!(Cloud::from_files("lab", &[&directory.path().join("nothing.yaml")]).is_err());
    }
}
