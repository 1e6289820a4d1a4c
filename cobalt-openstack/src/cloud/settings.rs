//! What people set, by the names of the variables in small letters and without `OS_`; clouds.yaml has the same names.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Settings that answer the same question, and those below that an answer on top replaces. A domain stays until another
/// is named: a login and its like are mostly of one domain. A secret does not stay: it is somebody else's.
const REPLACED: [(&[&str], &[&str]); 7] = [
    (
        &["user_id", "username", "application_credential_id", "application_credential_name"],
        &[
            "user_id",
            "username",
            "password",
            "pw_cmd",
            "application_credential_id",
            "application_credential_name",
            "application_credential_secret",
            "auth_type",
        ],
    ),
    (&["password", "pw_cmd"], &["password", "pw_cmd"]),
    (&["user_domain_id", "user_domain_name", "default_domain"], &["user_domain_id", "user_domain_name"]),
    (&["project_domain_id", "project_domain_name", "default_domain"], &["project_domain_id", "project_domain_name"]),
    (&SCOPE, &SCOPE),
    (&["interface", "endpoint_type"], &["interface", "endpoint_type"]),
    (&["insecure", "verify"], &["insecure", "verify"]),
];

/// What names where we want to work.
const SCOPE: [&str; 7] =
    ["project_id", "project_name", "tenant_id", "tenant_name", "domain_id", "domain_name", "system_scope"];

/// Has no `Debug`: there are secrets in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// What begins with `OS_`. An empty variable is how charts and shells spell one that is not set.
    pub(super) fn from_vars(vars: &BTreeMap<String, String>) -> Self {
        let ours = vars.iter().filter(|(_, value)| !value.is_empty());
        let named = ours.filter_map(|(name, value)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone())));
        Self(named.collect())
    }

    /// An entry of clouds.yaml: what stands below `auth` is a setting like all others.
    pub(super) fn from_entry(entry: &Value) -> Self {
        let text = |value: &Value| match value {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        };
        let fields = |value: &Value| -> BTreeMap<String, String> {
            let all = value.as_object().into_iter().flatten();
            all.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
        };
        let mut settings = fields(entry);
        settings.extend(fields(&entry["auth"]));
        Self(settings)
    }

    /// Takes what is not set here from the other.
    pub(super) fn fill_in(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            self.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }

    /// Takes what is set in the other, which wins, and lets go of what it replaces.
    pub(super) fn put_on_top(&mut self, other: &Self) {
        for (said, replaced) in REPLACED {
            if other.has(said) {
                self.0.retain(|name, _| !replaced.contains(&name.as_str()));
            }
        }
        self.0.extend(other.0.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Whether one of these is set.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
    }

    /// Whether they name where we want to work.
    pub(super) fn has_scope(&self) -> bool {
        self.has(&SCOPE)
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name).map(str::to_lowercase).as_deref() {
            None => Ok(None),
            Some("1" | "true" | "yes" | "on") => Ok(Some(true)),
            Some("0" | "false" | "no" | "off") => Ok(Some(false)),
            Some(other) => {
                let name = name.to_uppercase();
                Err(Error::configuration(format!("OS_{name} is `{other}`, which is no yes or no")))
            }
        }
    }

    /// Addresses instead of the catalog's, by service.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (String, &str)> {
        let named = |(name, value): (&String, &String)| name.strip_suffix("_endpoint_override").map(|_| value.len());
        let ours = self.0.iter().filter(move |pair| named(*pair).is_some());
        ours.map(|(name, value)| (name.trim_end_matches("_endpoint_override").replace('_', "-"), value.as_str()))
    }

    /// A domain by the settings with this prefix, such as `user_domain`.
    pub(super) fn domain(&self, prefix: &str) -> Option<Value> {
        let by = |key: &str| self.get(&format!("{prefix}_{key}"));
        let id = by("id").map(|id| json!({"id": id}));
        let named = || by("name").map(|name| json!({"name": name}));
        // What old files that people still source say.
        id.or_else(named).or_else(|| self.get("default_domain").map(|id| json!({"id": id})))
    }

    /// Where we want to work, as Keystone wants it; `null` for nowhere.
    pub(super) fn scope(&self) -> Value {
        let project_id = self.get("project_id").or_else(|| self.get("tenant_id"));
        let project_name = self.get("project_name").or_else(|| self.get("tenant_name"));
        if let Some(id) = project_id {
            return json!({"project": {"id": id}});
        }
        if let Some(name) = project_name {
            let mut project = json!({"name": name});
            if let Some(domain) = self.domain("project_domain") {
                project["domain"] = domain;
            }
            return json!({"project": project});
        }
        if let Some(id) = self.get("domain_id") {
            return json!({"domain": {"id": id}});
        }
        if let Some(name) = self.get("domain_name") {
            return json!({"domain": {"name": name}});
        }
        if self.get("system_scope").is_some() { json!({"system": {"all": true}}) } else { Value::Null }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn scope(vars: &[(&str, &str)]) -> Value {
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::from_vars(&vars).scope()
    }

    #[test]
    fn every_scope_that_keystone_has_can_be_asked_for() {
        assert_eq!(scope(&[]), Value::Null);
        assert_eq!(scope(&[("OS_PROJECT_ID", "p"), ("OS_PROJECT_NAME", "n")]), json!({"project": {"id": "p"}}));
        let named = json!({"project": {"name": "n", "domain": {"name": "d"}}});
        assert_eq!(scope(&[("OS_PROJECT_NAME", "n"), ("OS_PROJECT_DOMAIN_NAME", "d")]), named);
        let old = json!({"project": {"name": "n", "domain": {"id": "default"}}});
        assert_eq!(scope(&[("OS_TENANT_NAME", "n"), ("OS_DEFAULT_DOMAIN", "default")]), old);
        assert_eq!(scope(&[("OS_DOMAIN_NAME", "d")]), json!({"domain": {"name": "d"}}));
        assert_eq!(scope(&[("OS_SYSTEM_SCOPE", "all")]), json!({"system": {"all": true}}));
    }
}
