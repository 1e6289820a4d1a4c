//! Who we are, and the body that proves it.

use std::{fmt, process::Stdio, time::Duration};

use cobalt_core::{Error as Seam, Result as SeamResult};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::{missing, settings::Settings};
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
    fn read(settings: &Settings) -> Result<Self> {
        if let Some(id) = settings.get("user_id") {
            return Ok(Self::Id(id.to_owned()));
        }
        let name = settings.get("username").ok_or_else(|| missing("OS_USERNAME (username)"))?.to_owned();
        let domain = settings.domain("user_domain");
        Ok(Self::Named { name, domain: domain.ok_or_else(|| missing("OS_USER_DOMAIN_NAME (user_domain_name)"))? })
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
    pub(super) fn read(settings: &Settings) -> Result<Self> {
        let (id, name) = (settings.get("application_credential_id"), settings.get("application_credential_name"));
        let application = match settings.get("auth_type").map(|kind| kind.trim_start_matches("v3")) {
            None => id.is_some() || name.is_some(),
            Some("password") => false,
            Some("applicationcredential" | "application_credential") => true,
            Some(other) => {
                let detail = format!(
                    "OS_AUTH_TYPE (auth_type) is `{other}`; there are `password` and `v3applicationcredential`"
                );
                return Err(Error::configuration(detail));
            }
        };
        let secret = |name: &str| settings.get(name).map(|text| Secret::Text(text.into()));
        if application {
            let what = "OS_APPLICATION_CREDENTIAL_SECRET (application_credential_secret)";
            let secret = secret("application_credential_secret").ok_or_else(|| missing(what))?;
            return match (id, name) {
                (Some(id), _) => Ok(Self::Application { id: id.to_owned(), secret }),
                (None, Some(name)) => {
                    Ok(Self::NamedApplication { name: name.to_owned(), user: User::read(settings)?, secret })
                }
                (None, None) => Err(missing("OS_APPLICATION_CREDENTIAL_ID (application_credential_id)")),
            };
        }
        let command = settings.get("pw_cmd").map(|line| Secret::Command(line.to_owned()));
        let secret = command.or_else(|| secret("password"));
        let secret = secret.ok_or_else(|| missing("OS_PASSWORD (password) or OS_PW_CMD"))?;
        Ok(Self::Password { user: User::read(settings)?, secret })
    }

    /// Whether what was put on top of a login has a place in it.
    pub(super) fn takes(&self, above: &Settings) -> Result<()> {
        let application = !matches!(self, Self::Password { .. });
        let own = above.has(&["application_credential_id", "application_credential_name"]);
        let wrong = if application && !own && above.has(&["password", "pw_cmd"]) {
            "OS_PASSWORD or OS_PW_CMD is given for a login with an application credential: give OS_USERNAME too"
        } else if application && !own && above.has_scope() {
            "a project is given, and an application credential is bound to its project: leave the project out, or give \
             OS_USERNAME and OS_PASSWORD too"
        } else if !application && above.has(&["application_credential_secret"]) {
            "OS_APPLICATION_CREDENTIAL_SECRET is given for a login with a password: give OS_APPLICATION_CREDENTIAL_ID too"
        } else {
            return Ok(());
        };
        Err(Error::configuration(wrong))
    }

    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Password { secret, .. }
            | Self::Application { secret, .. }
            | Self::NamedApplication { secret, .. } => secret,
        }
    }

    /// What Keystone wants to see.
    pub(crate) fn body(&self, secret: &str, scope: &Value) -> Value {
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
        if !scope.is_null() && matches!(self, Self::Password { .. }) {
            body["auth"]["scope"] = scope.clone();
        }
        body
    }

    /// The body with the secret in it.
    pub(crate) async fn prove(&self, scope: &Value) -> SeamResult<Value> {
        Ok(self.body(self.secret().reveal().await?.expose_secret(), scope))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
