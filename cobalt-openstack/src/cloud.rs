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

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

pub(crate) use credentials::Credentials;
use openstack_sdk_core::{
    auth::authtoken_scope::AuthTokenScope,
    config::{Auth, CloudConfig, ConfigFile},
};
use url::Url;

use crate::error::{Cause, Error, Result};

/// A cloud to connect to: an address, who we are there, and where in it we want to work.
///
/// ```
/// use cobalt_openstack::Cloud;
///
/// let cloud = Cloud::from_vars([
///     ("OS_AUTH_URL", "https://keystone.example/v3"),
///     ("OS_USERNAME", "operator"),
///     ("OS_USER_DOMAIN_NAME", "Default"),
///     ("OS_PASSWORD", "secret"),
///     ("OS_PROJECT_NAME", "admin"),
///     ("OS_PROJECT_DOMAIN_NAME", "Default"),
///     ("OS_REGION_NAME", "west"),
/// ])?;
/// assert_eq!(cloud.region(), Some("west"));
/// assert!(!format!("{cloud:?}").contains("secret"));
/// # Ok::<(), cobalt_openstack::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cloud {
    pub(crate) auth_url: Url,
    pub(crate) credentials: Credentials,
    pub(crate) scope: AuthTokenScope,
    pub(crate) region: Option<String>,
    pub(crate) interface: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) overrides: BTreeMap<String, Url>,
}

/// What we read besides what the library knows.
#[derive(Debug, Default)]
struct Extras {
    password_command: Option<String>,
    insecure: Option<bool>,
    overrides: BTreeMap<String, String>,
}

impl Cloud {
    /// From the environment of this process.
    pub fn from_env() -> Result<Self> {
        // A variable that is no text cannot be one of ours.
        Self::from_vars(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// From variables with the names of the environment.
    pub fn from_vars(vars: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Result<Self> {
        let vars: BTreeMap<String, String> = vars
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            // An empty variable is how charts and shells spell one that is not set.
            .filter(|(name, value)| name.starts_with("OS_") && !value.is_empty())
            .collect();
        let (config, mut extras) = read_vars(&vars)?;
        let Some(name) = vars.get("OS_CLOUD") else { return Self::build(&config, &extras) };
        let file = match vars.get("OS_CLIENT_CONFIG_FILE") {
            Some(path) => read_files(&[Path::new(path)])?,
            None => ConfigFile::new().map_err(unreadable)?,
        };
        let mut chosen = entry(&file, name, &mut extras)?;
        chosen.update(&config);
        Self::build(&chosen, &extras)
    }

    /// The entry `name` of these files, later ones over earlier ones: `clouds.yaml`, then `secure.yaml`.
    pub fn from_files(name: &str, files: &[&Path]) -> Result<Self> {
        let mut extras = Extras::default();
        let config = entry(&read_files(files)?, name, &mut extras)?;
        Self::build(&config, &extras)
    }

    /// The region, if one is named.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// The endpoint interface: `public`, `internal` or `admin`.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    fn build(config: &CloudConfig, extras: &Extras) -> Result<Self> {
        let auth = config.auth.clone().unwrap_or_default();
        let address = auth.auth_url.as_deref().ok_or_else(|| missing("OS_AUTH_URL (auth_url)"))?;
        let credentials = Credentials::read(config.auth_type.as_deref(), &auth, extras.password_command.as_deref())?;
        let scope = AuthTokenScope::try_from(config).map_err(|cause| Error::Configuration {
            detail: "the scope cannot be understood".into(),
            cause: Some(Box::new(cause)),
        })?;
        let interface = config.interface.as_deref().unwrap_or("public").trim_end_matches("URL").to_owned();
        if !["public", "internal", "admin"].contains(&interface.as_str()) {
            return Err(Error::configuration(format!("`{interface}` is no endpoint interface")));
        }
        let overrides = extras.overrides.iter().map(|(service, text)| Ok((service.clone(), address_of(text)?)));
        Ok(Self {
            auth_url: identity(address_of(address)?),
            credentials,
            scope,
            region: config.region_name.clone(),
            interface,
            ca: config.cacert.as_ref().map(PathBuf::from),
            insecure: extras.insecure.or(config.verify.map(|verify| !verify)).unwrap_or(false),
            overrides: overrides.collect::<Result<_>>()?,
        })
    }
}

fn missing(what: &str) -> Error {
    Error::configuration(format!("{what} is not set"))
}

fn unreadable(cause: impl Into<Cause>) -> Error {
    Error::Configuration { detail: "clouds.yaml cannot be read".into(), cause: Some(cause.into()) }
}

fn read_files(files: &[&Path]) -> Result<ConfigFile> {
    let mut builder = ConfigFile::builder();
    for path in files {
        builder = builder.add_source(path).map_err(|error| unreadable(error.to_string()))?;
    }
    builder.build().map_err(|error| unreadable(error.to_string()))
}

fn entry(file: &ConfigFile, name: &str, extras: &mut Extras) -> Result<CloudConfig> {
    let found = file.get_cloud_config(name).map_err(unreadable)?;
    let config = found.ok_or_else(|| Error::configuration(format!("clouds.yaml has no cloud `{name}`")))?;
    for (key, value) in &config.options {
        if let Some(service) = key.strip_suffix("_endpoint_override") {
            extras.overrides.entry(service.replace('_', "-")).or_insert(value.to_string());
        }
    }
    Ok(config)
}

fn read_vars(vars: &BTreeMap<String, String>) -> Result<(CloudConfig, Extras)> {
    let get = |name: &str| vars.get(name).cloned();
    // The names of the library's fields are those of the variables in small letters.
    let fields: serde_json::Map<String, serde_json::Value> = vars
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone().into())))
        .collect();
    let mut auth: Auth = serde_json::from_value(fields.into()).map_err(|cause| Error::Configuration {
        detail: "the OS_ variables cannot be understood".into(),
        cause: Some(Box::new(cause)),
    })?;
    // The names of old files that people still source.
    auth.project_name = auth.project_name.or_else(|| get("OS_TENANT_NAME"));
    auth.project_id = auth.project_id.or_else(|| get("OS_TENANT_ID"));
    if let Some(domain) = get("OS_DEFAULT_DOMAIN") {
        let unset = |id: &Option<String>, name: &Option<String>| id.is_none() && name.is_none();
        if unset(&auth.user_domain_id, &auth.user_domain_name) {
            auth.user_domain_id = Some(domain.clone());
        }
        if unset(&auth.project_domain_id, &auth.project_domain_name) {
            auth.project_domain_id = Some(domain);
        }
    }
    let insecure = match get("OS_INSECURE").as_deref().map(str::to_lowercase).as_deref() {
        None => None,
        Some("1" | "true" | "yes" | "on") => Some(true),
        Some("0" | "false" | "no" | "off") => Some(false),
        Some(other) => return Err(Error::configuration(format!("OS_INSECURE is `{other}`, which is no yes or no"))),
    };
    let overridden = |name: &str| {
        let service = name.strip_prefix("OS_")?.strip_suffix("_ENDPOINT_OVERRIDE")?;
        Some(service.to_lowercase().replace('_', "-"))
    };
    let overrides = vars.iter().filter_map(|(name, value)| Some((overridden(name)?, value.clone()))).collect();
    let config = CloudConfig {
        auth: Some(auth),
        auth_type: get("OS_AUTH_TYPE"),
        interface: get("OS_INTERFACE").or_else(|| get("OS_ENDPOINT_TYPE")),
        region_name: get("OS_REGION_NAME"),
        cacert: get("OS_CACERT"),
        ..CloudConfig::default()
    };
    Ok((config, Extras { password_command: get("OS_PW_CMD"), insecure, overrides }))
}

fn address_of(text: &str) -> Result<Url> {
    let parsed = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    parsed.ok_or_else(|| Error::configuration(format!("`{text}` is no http or https address")))
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
mod tests {
    use std::io::Write;

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
