//! What an embedder chooses.

use std::{path::PathBuf, time::Duration};

/// Where the host is found, and how long to wait for it.
///
/// ```
/// use cobalt_host::Options;
///
/// // An agent in a container that sees its host's files below /host.
/// let options = Options::from_env().root("/host").address("unix:path=/host/run/dbus/system_bus_socket");
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) address: Option<String>,
    pub(crate) root: PathBuf,
    pub(crate) timeout: Duration,
    pub(crate) who: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            root: PathBuf::from("/"),
            timeout: Duration::from_secs(5),
            who: "cobalt-node-agent".to_owned(),
        }
    }
}

impl Options {
    /// The defaults, and the bus that `DBUS_SYSTEM_BUS_ADDRESS` names.
    pub fn from_env() -> Self {
        let address = std::env::var("DBUS_SYSTEM_BUS_ADDRESS").ok().filter(|address| !address.is_empty());
        Self { address, ..Self::default() }
    }

    /// The system bus, in D-Bus's own notation; several are separated by `;` and tried in order. Without it the
    /// standard sockets below [`root`](Self::root) are tried.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The directory that holds `/etc/os-release`, `/proc`, `/sys` and `/run` of the host; `/` by default.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// The longest time for one question to the host, connecting included; 5 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The name under which shutdowns are delayed, as `systemd-inhibit --list` shows it.
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = who.into();
        self
    }

    /// The addresses of the bus, in the order they are tried.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match &self.address {
            Some(address) => address.split(';').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            None => self.sockets().iter().map(|path| format!("unix:path={}", path.display())).collect(),
        }
    }

    /// The standard sockets of the system bus.
    pub(crate) fn sockets(&self) -> [PathBuf; 2] {
        ["run/dbus/system_bus_socket", "var/run/dbus/system_bus_socket"].map(|path| self.root.join(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_address_comes_before_the_standard_sockets() {
        let options = Options::default().root("/host");
        assert_eq!(
            options.addresses(),
            ["unix:path=/host/run/dbus/system_bus_socket", "unix:path=/host/var/run/dbus/system_bus_socket"]
        );
        assert_eq!(options.address("unix:path=/a;unix:path=/b;").addresses(), ["unix:path=/a", "unix:path=/b"]);
    }
}
