//! clouds.yaml, secure.yaml and clouds-public.yaml.

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::settings::Settings;
use crate::error::{Cause, Error, Result};

/// No file of clouds is larger.
const LARGEST: u64 = 1 << 20;

/// The files as one document.
#[derive(Default)]
pub(super) struct Files(Value);

impl Files {
    /// Reads files, later ones over earlier ones.
    pub(super) fn read(files: &[&Path]) -> Result<Self> {
        let mut all = Self::default();
        for path in files {
            merge(&mut all.0, read(path)?);
        }
        Ok(all)
    }

    /// One cloud, with what its vendor's profile says.
    pub(super) fn entry(&self, name: &str) -> Result<Settings> {
        let entry = &self.0["clouds"][name];
        if !entry.is_object() {
            return Err(Error::configuration(format!("clouds.yaml has no cloud `{name}`")));
        }
        let mut settings = Settings::from_entry(entry);
        if let Some(profile) = settings.get("profile").map(str::to_owned) {
            let known = &self.0["public-clouds"][&profile];
            if !known.is_object() {
                let detail = format!("cloud `{name}` has the profile `{profile}`, and clouds-public.yaml does not");
                return Err(Error::configuration(detail));
            }
            settings.fill_in(&Settings::from_entry(known));
        }
        Ok(settings)
    }
}

/// The files where every OpenStack client looks for them: the current directory, the user's configuration, the
/// system's; the first of each name counts.
pub(super) fn find(vars: &BTreeMap<String, String>) -> Result<Files> {
    let var = |name: &str| vars.get(name).filter(|value| !value.is_empty());
    let user = var("XDG_CONFIG_HOME").map(PathBuf::from);
    let user = user.or_else(|| var("HOME").map(|home| Path::new(home).join(".config")));
    let mut places = vec![PathBuf::from(".")];
    places.extend(user.map(|user| user.join("openstack")));
    places.push(PathBuf::from("/etc/openstack"));
    let search = |name: &str| {
        let paths =
            places.iter().flat_map(|place| [".yaml", ".yml", ".json"].map(|end| place.join(format!("{name}{end}"))));
        paths.into_iter().find(|path| path.is_file())
    };
    let clouds = var("OS_CLIENT_CONFIG_FILE").map(PathBuf::from).or_else(|| search("clouds"));
    let clouds = clouds.ok_or_else(|| Error::configuration("OS_CLOUD is set, and there is no clouds.yaml"))?;
    let secure = var("OS_CLIENT_SECURE_FILE").map(PathBuf::from).or_else(|| search("secure"));
    let all = [search("clouds-public"), Some(clouds), secure];
    Files::read(&all.iter().flatten().map(PathBuf::as_path).collect::<Vec<_>>())
}

fn read(path: &Path) -> Result<Value> {
    let wrong = |cause: Cause| Error::Configuration {
        detail: format!("{} cannot be read", path.display()),
        cause: Some(cause),
    };
    let file = std::fs::File::open(path).map_err(|error| wrong(error.into()))?;
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(|error| wrong(error.into()))?;
    // Without the reader's own words: they quote the text, and there are passwords in it.
    serde_saphyr::from_str(&text).map_err(|_| wrong("it is no YAML".into()))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_from_their_own_file_and_defaults_from_the_vendor() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let public =
            write("clouds-public.yaml", "public-clouds:\n  acme: {region_name: r1, auth: {auth_url: http://acme}}\n");
        let clouds = write(
            "clouds.yaml",
            "clouds:\n  a: {profile: acme, auth: {username: me}, region_name: r2}\n  b: {profile: none}\n",
        );
        let secure = write("secure.yaml", "clouds:\n  a: {auth: {password: hush}}\n");
        let files = Files::read(&[&public, &clouds, &secure]).unwrap();
        let entry = files.entry("a").unwrap();
        let get = |name: &str| entry.get(name).unwrap().to_owned();
        assert_eq!(
            [get("username"), get("password"), get("region_name"), get("auth_url")],
            ["me", "hush", "r2", "http://acme"]
        );
        assert!(files.entry("b").err().unwrap().to_string().contains("profile `none`"));
        let broken = write("broken.yaml", "clouds: {a: [hush\n");
        let error = Files::read(&[&broken]).err().unwrap();
        assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    }
}
