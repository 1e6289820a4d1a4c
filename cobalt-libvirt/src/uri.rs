//! Where a daemon is, as libvirt writes it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

mod parse;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

/// What stays readable in a query value. `&`, `#`, `%`, `+` and the like are escaped.
const QUERY_VALUE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b':');

/// How the bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// A UNIX socket on this machine. What a URI without transport and host means.
    Unix,
    /// Plain TCP: neither encrypted nor, unless the daemon asks for SASL, authenticated.
    Tcp,
    /// TLS with certificates on both sides. What a URI with a host and no transport means.
    Tls,
}

impl Transport {
    /// The port when the URI names none. A UNIX socket has none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Unix => None,
            Self::Tcp => Some(16509),
            Self::Tls => Some(16514),
        }
    }
}

/// Which daemon's socket a local URI means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DaemonMode {
    /// Whichever is there: first `libvirtd`, then the driver's own daemon.
    #[default]
    Auto,
    /// `libvirtd`, one daemon for all drivers.
    Legacy,
    /// The driver's own daemon, `virtqemud` or `virtchd`.
    Direct,
}

/// A parsed libvirt connection URI.
///
/// ```
/// use cobalt_libvirt::uri::{LibvirtUri, Transport};
///
/// let uri: LibvirtUri = "qemu+tcp://node-1.example:16509/system".parse()?;
/// assert_eq!((uri.driver(), uri.transport()), ("qemu", Transport::Tcp));
/// assert_eq!(uri.remote_name(), "qemu:///system");
///
/// let error = "qemu+ssh://node-1/system".parse::<LibvirtUri>().unwrap_err();
/// assert!(error.to_string().contains("not supported by this client"));
/// # Ok::<(), cobalt_libvirt::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LibvirtUri {
    driver: String,
    transport: Transport,
    user: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    path: String,
    options: Options,
}

/// The query parameters: what means something to us, and the rest, which belongs to the driver on the other side.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Options {
    socket: Option<PathBuf>,
    pki_path: Option<PathBuf>,
    no_verify: bool,
    mode: DaemonMode,
    name: Option<String>,
    rest: Vec<(String, String)>,
}

impl LibvirtUri {
    /// The hypervisor driver asked for: `qemu`, `ch`, `test`, …
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// How the bytes travel.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The user before `@`, used for SASL when the options name none.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The daemon's host, IPv6 without brackets. `localhost` when a TCP or TLS URI names none.
    pub fn host(&self) -> &str {
        self.host.as_deref().unwrap_or("localhost")
    }

    /// The daemon's port, named or the transport's default. 0 for a UNIX socket.
    pub fn port(&self) -> u16 {
        self.port.or(self.transport.default_port()).unwrap_or(0)
    }

    /// The part after the host, `/system`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The directory with certificates that `pkipath=` names.
    pub fn pki_path(&self) -> Option<&Path> {
        self.options.pki_path.as_deref()
    }

    /// Whether `no_verify=1` asks not to check the daemon's certificate.
    pub fn no_verify(&self) -> bool {
        self.options.no_verify
    }

    /// The name the daemon is asked to open: the URI as seen from its side, `qemu:///system`.
    pub fn remote_name(&self) -> String {
        if let Some(name) = &self.options.name {
            return name.clone();
        }
        let mut name = format!("{}://{}", self.driver, self.path);
        for (index, (key, value)) in self.options.rest.iter().enumerate() {
            let sign = if index == 0 { '?' } else { '&' };
            name.push(sign);
            name.push_str(&pair(key, value));
        }
        name
    }

    /// The sockets to try for a local connection, in order, below `run_dir` (`/run/libvirt` on a real host).
    pub fn sockets(&self, run_dir: &Path, read_only: bool) -> Vec<PathBuf> {
        if let Some(socket) = &self.options.socket {
            return vec![socket.clone()];
        }
        let suffix = if read_only { "-ro" } else { "" };
        let legacy = run_dir.join(format!("libvirt-sock{suffix}"));
        let direct = run_dir.join(format!("virt{}d-sock{suffix}", self.driver));
        match self.options.mode {
            DaemonMode::Auto => vec![legacy, direct],
            DaemonMode::Legacy => vec![legacy],
            DaemonMode::Direct => vec![direct],
        }
    }

    /// The daemon in a log line or an error: `tcp 192.0.2.1:16509`, `unix qemu:///system`.
    pub fn peer(&self) -> String {
        match self.transport {
            Transport::Unix => format!("unix {}", self.remote_name()),
            Transport::Tcp => format!("tcp {}", self.host_port()),
            Transport::Tls => format!("tls {}", self.host_port()),
        }
    }

    fn host_port(&self) -> String {
        format!("{}:{}", bracketed(self.host()), self.port())
    }
}

impl fmt::Display for LibvirtUri {
    /// The canonical form: a transport is named unless it is the UNIX socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.driver)?;
        f.write_str(match self.transport {
            Transport::Unix => "",
            Transport::Tcp => "+tcp",
            Transport::Tls => "+tls",
        })?;
        f.write_str("://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", utf8_percent_encode(user, NON_ALPHANUMERIC))?;
        }
        f.write_str(&bracketed(self.host.as_deref().unwrap_or_default()))?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(&self.path)?;
        let options = &self.options;
        let mode = match options.mode {
            DaemonMode::Auto => None,
            DaemonMode::Legacy => Some("legacy"),
            DaemonMode::Direct => Some("direct"),
        };
        let ours = [
            options.socket.as_deref().map(|path| pair("socket", &path.to_string_lossy())),
            options.pki_path.as_deref().map(|path| pair("pkipath", &path.to_string_lossy())),
            options.no_verify.then(|| pair("no_verify", "1")),
            mode.map(|mode| pair("mode", mode)),
            options.name.as_deref().map(|name| pair("name", name)),
        ];
        let theirs = options.rest.iter().map(|(key, value)| Some(pair(key, value)));
        for (index, pair) in ours.into_iter().chain(theirs).flatten().enumerate() {
            write!(f, "{}{pair}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn pair(key: &str, value: &str) -> String {
    format!("{}={}", utf8_percent_encode(key, QUERY_VALUE), utf8_percent_encode(value, QUERY_VALUE))
}
