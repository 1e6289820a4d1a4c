//! Who we are, and the body that proves it.
//!
//! The auth crates of the family are not used: they read Keystone's answer without a limit, and the one for
//! application credentials sends a user's domain under a name that Keystone does not know.

use std::{fmt, process::Stdio, time::Duration};

use cobalt_core::{Error as Seam, Result as SeamResult};
use openstack_sdk_core::{auth::authtoken_scope::AuthTokenScope, config::Auth};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::missing;
use crate::error::{Error, Result};

/// A program that asks somebody for the password has to be quick.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// No password is longer.
const PASSWORD_LIMIT: u64 = 64 << 10;

/// Where a secret comes from.
#[derive(Clone)]
pub(crate) enum Secret {
    Text(SecretString),
    /// Run with `sh -c`; its output is the secret.
    Command(String),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text",
            Self::Command(_) => "Command",
        })
    }
}

impl Secret {
    pub(crate) async fn reveal(&self) -> SeamResult<SecretString> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Command(line) => run(line).await,
        }
    }
}

async fn run(line: &str) -> SeamResult<SecretString> {
    const WHAT: &str = "run OS_PW_CMD";
    let failed = |error| Seam::unavailable(WHAT, error);
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let output = child.stdout.take();
    let reading = async {
        let mut text = String::new();
        if let Some(output) = output {
            output.take(PASSWORD_LIMIT).read_to_string(&mut text).await?;
        }
        Ok::<_, std::io::Error>((text, child.wait().await?))
    };
    let answer = tokio::time::timeout(COMMAND_LIMIT, reading).await;
    let (mut text, status) = answer.map_err(|_| Seam::timeout(WHAT, COMMAND_LIMIT))?.map_err(failed)?;
    if !status.success() {
        return Err(failed(std::io::Error::other(status.to_string())));
    }
    // One newline belongs to the program, not to the password.
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text.into())
}

/// A user, by id or by name and domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum User {
    Id(String),
    Named { name: String, domain: Value },
}

impl User {
    fn read(auth: &Auth) -> Result<Self> {
        if let Some(id) = &auth.user_id {
            return Ok(Self::Id(id.clone()));
        }
        let name = auth.username.clone().ok_or_else(|| missing("OS_USERNAME (username)"))?;
        let domain = match (&auth.user_domain_id, &auth.user_domain_name) {
            (Some(id), _) => json!({"id": id}),
            (None, Some(name)) => json!({"name": name}),
            (None, None) => return Err(missing("OS_USER_DOMAIN_NAME (user_domain_name)")),
        };
        Ok(Self::Named { name, domain })
    }

    fn body(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Named { name, domain } => json!({"name": name, "domain": domain}),
        }
    }
}

/// How we log in.
#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    Password { user: User, secret: Secret },
    Application { id: String, secret: Secret },
    NamedApplication { name: String, user: User, secret: Secret },
}

impl Credentials {
    pub(super) fn read(kind: Option<&str>, auth: &Auth, command: Option<&str>) -> Result<Self> {
        let application = auth.application_credential_id.is_some() || auth.application_credential_name.is_some();
        let application = match kind.map(|kind| kind.trim_start_matches("v3")) {
            None => application,
            Some("password") => false,
            Some("applicationcredential" | "application_credential") => true,
            Some(other) => {
                let detail = format!(
                    "OS_AUTH_TYPE (auth_type) is `{other}`; there are `password` and `v3applicationcredential`"
                );
                return Err(Error::configuration(detail));
            }
        };
        if application {
            let secret = auth.application_credential_secret.clone();
            let secret = Secret::Text(secret.ok_or_else(|| missing("OS_APPLICATION_CREDENTIAL_SECRET"))?);
            return match (&auth.application_credential_id, &auth.application_credential_name) {
                (Some(id), _) => Ok(Self::Application { id: id.clone(), secret }),
                (None, Some(name)) => {
                    Ok(Self::NamedApplication { name: name.clone(), user: User::read(auth)?, secret })
                }
                (None, None) => Err(missing("OS_APPLICATION_CREDENTIAL_ID")),
            };
        }
        let secret = match (command, &auth.password) {
            (Some(line), _) => Secret::Command(line.to_owned()),
            (None, Some(password)) => Secret::Text(password.clone()),
            (None, None) => return Err(missing("OS_PASSWORD (password) or OS_PW_CMD")),
        };
        Ok(Self::Password { user: User::read(auth)?, secret })
    }

    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Password { secret, .. }
            | Self::Application { secret, .. }
            | Self::NamedApplication { secret, .. } => secret,
        }
    }

    /// What Keystone wants to see.
    pub(crate) fn body(&self, secret: &str, scope: &AuthTokenScope) -> Value {
        let (method, proof) = match self {
            Self::Password { user, .. } => {
                let mut user = user.body();
                user["password"] = secret.into();
                ("password", json!({"user": user}))
            }
            Self::Application { id, .. } => ("application_credential", json!({"id": id, "secret": secret})),
            Self::NamedApplication { name, user, .. } => {
                ("application_credential", json!({"name": name, "user": user.body(), "secret": secret}))
            }
        };
        let mut body = json!({"auth": {"identity": {"methods": [method], method: proof}}});
        // An application credential is made for a project and takes no other.
        let scoped = !matches!(scope, AuthTokenScope::Unscoped) && matches!(self, Self::Password { .. });
        if let Some(scope) = serde_json::to_value(scope).ok().filter(|_| scoped) {
            body["auth"]["scope"] = scope;
        }
        body
    }

    /// The body with the secret in it.
    pub(crate) async fn prove(&self, scope: &AuthTokenScope) -> SeamResult<Value> {
        Ok(self.body(self.secret().reveal().await?.expose_secret(), scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_gives_the_password_without_its_last_newline() {
        let secret = Secret::Command("printf 'a b\\n\\n'".into());
        assert_eq!(secret.reveal().await.unwrap().expose_secret(), "a b\n");
    }

    #[tokio::test]
    async fn a_command_that_fails_is_an_error_and_not_an_empty_password() {
        let error = Secret::Command("echo hush; exit 3".into()).reveal().await.unwrap_err();
        assert_eq!((error.category(), error.to_string().as_str()), ("unavailable", "run OS_PW_CMD: unavailable"));
    }
}
