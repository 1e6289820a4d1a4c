//! The server under examination, as the suite sees it.

use kube::Client;
use serde_json::Value;
use thiserror::Error;

/// A server to put to the suite.
#[derive(Clone)]
pub struct Target {
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) admin: Client,
    pub(crate) unprivileged: Option<Identity>,
    pub(crate) unknown_token: Option<Client>,
    pub(crate) capabilities: Capabilities,
}

/// A client together with the user name the server knows it by.
#[derive(Clone)]
pub struct Identity {
    /// The user name, as it appears in `Forbidden` messages.
    pub user: String,
    /// A client that authenticates as this user.
    pub client: Client,
}

impl Target {
    /// A server reachable as `admin` (allowed to do everything). `name` is for the report; `prefix` (a DNS
    /// label) keeps the suite's objects apart from everybody else's.
    ///
    /// Use clients that do not retry by themselves (`Config::default_retry`): one row expects a 504.
    pub fn new(name: impl Into<String>, prefix: impl Into<String>, admin: Client) -> Target {
        Target {
            name: name.into(),
            prefix: prefix.into(),
            admin,
            unprivileged: None,
            unknown_token: None,
            capabilities: Capabilities::default(),
        }
    }

    /// Adds an authenticated identity to which no right was granted.
    pub fn with_unprivileged(mut self, user: impl Into<String>, client: Client) -> Target {
        self.unprivileged = Some(Identity { user: user.into(), client });
        self
    }

    /// Adds a client that sends a bearer token the server does not know.
    pub fn with_unknown_token(mut self, client: Client) -> Target {
        self.unknown_token = Some(client);
        self
    }

    /// States what the server can do. The default is everything.
    pub fn with_capabilities(mut self, capabilities: Capabilities) -> Target {
        self.capabilities = capabilities;
        self
    }
}

/// What a server can do beyond the plain API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The x of Kubernetes 1.x.
    pub minor: u32,
    /// Somebody deletes the dependents of deleted owners. True unless switched off: that a controller manager
    /// is running cannot be seen from the outside.
    pub garbage_collection: bool,
    /// Watches answer `sendInitialEvents`.
    pub watch_list: bool,
    /// CRD schemas may carry CEL rules.
    pub cel: bool,
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities { minor: 35, garbage_collection: true, watch_list: true, cel: true }
    }
}

/// Why the capabilities of a server are not known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DetectError {
    /// `/version` could not be read.
    #[error("cannot read /version of the server")]
    Request(#[source] kube::Error),
    /// `/version` says something else than `1.x`.
    #[error("the server's version is not a Kubernetes 1.x version: {0}")]
    Version(String),
}

impl Capabilities {
    /// Asks the server for its version and concludes what it can do by default.
    pub async fn detect(client: &Client) -> Result<Capabilities, DetectError> {
        let request = http::Request::get("/version").body(Vec::new());
        let request = request.map_err(|error| DetectError::Request(kube::Error::HttpError(error)))?;
        let version: Value = client.request(request).await.map_err(DetectError::Request)?;
        Capabilities::of_version(&version).ok_or_else(|| DetectError::Version(version.to_string()))
    }

    /// The same without a garbage collector.
    pub fn without_garbage_collection(self) -> Capabilities {
        Capabilities { garbage_collection: false, ..self }
    }

    fn of_version(version: &Value) -> Option<Capabilities> {
        if version["major"] != "1" {
            return None;
        }
        // Some distributions write "27+".
        let minor: u32 = version["minor"].as_str()?.trim_end_matches('+').parse().ok()?;
        Some(Capabilities {
            minor,
            garbage_collection: true,
            // On by default since 1.34 (1.32 had it on and 1.33 off again).
            watch_list: minor >= 34,
            // On by default since 1.25.
            cel: minor >= 25,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Capabilities;

    #[test]
    fn an_old_server_is_not_asked_for_young_features() {
        let old = Capabilities::of_version(&json!({"major": "1", "minor": "20"})).expect("a version");
        assert_eq!(old, Capabilities { minor: 20, garbage_collection: true, watch_list: false, cel: false });
        let vendor = Capabilities::of_version(&json!({"major": "1", "minor": "35+"})).expect("a version");
        assert!(vendor.watch_list && vendor.cel);
    }

    #[test]
    fn an_answer_that_is_no_version_is_refused() {
        for answer in [json!({}), json!({"major": "2", "minor": "0"}), json!({"major": "1", "minor": "x"})] {
            assert_eq!(Capabilities::of_version(&answer), None, "{answer}");
        }
    }
}
