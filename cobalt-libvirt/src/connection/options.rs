use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::frame::MAX_FRAME;

/// Where the certificates for `+tls` lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pki {
    /// The authority that signed the daemon's certificate, PEM.
    pub ca: PathBuf,
    /// Our certificate, PEM. May be absent when the daemon asks for none.
    pub certificate: PathBuf,
    /// The key of our certificate, PEM.
    pub key: PathBuf,
}

impl Pki {
    /// libvirt's places for the whole machine.
    pub fn system() -> Self {
        Self {
            ca: "/etc/pki/CA/cacert.pem".into(),
            certificate: "/etc/pki/libvirt/clientcert.pem".into(),
            key: "/etc/pki/libvirt/private/clientkey.pem".into(),
        }
    }

    /// All three in one directory, under the names libvirt's `pkipath` expects.
    pub fn directory(path: &Path) -> Self {
        Self { ca: path.join("cacert.pem"), certificate: path.join("clientcert.pem"), key: path.join("clientkey.pem") }
    }
}

/// Who we say we are when a daemon asks for SASL. The password shows up in no log and no error.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) username: String,
    pub(crate) password: String,
}

impl Credentials {
    /// A name and its password.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: username.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

/// How to connect and what to expect of the connection.
///
/// ```
/// use std::time::Duration;
/// use cobalt_libvirt::ConnectOptions;
///
/// let options = ConnectOptions::new().call_timeout(Duration::from_secs(10)).read_only(true);
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) keepalive_interval: Option<Duration>,
    pub(crate) keepalive_count: u32,
    pub(crate) max_message: usize,
    pub(crate) max_pending: usize,
    pub(crate) event_capacity: usize,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) pki: Pki,
    pub(crate) read_only: bool,
    pub(crate) run_dir: PathBuf,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            keepalive_interval: Some(Duration::from_secs(5)),
            keepalive_count: 5,
            max_message: MAX_FRAME,
            max_pending: 4,
            event_capacity: 1024,
            credentials: None,
            pki: Pki::system(),
            read_only: false,
            run_dir: "/run/libvirt".into(),
        }
    }
}

impl ConnectOptions {
    /// The defaults, each named at its method.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long each step of connecting may take: name lookup, connection, TLS, each message up to the opening. 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long an ordinary call may take. 30 s. Calls that wait for a guest or a migration have their own.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// After how much silence the daemon is pinged, and how many pings may stay unanswered before the connection is
    /// given up: 5 s and 5, thus after half a minute. Without an interval a daemon that vanished without closing is
    /// noticed only by calls that time out.
    pub fn keepalive(mut self, interval: Option<Duration>, count: u32) -> Self {
        self.keepalive_interval = interval.filter(|interval| !interval.is_zero());
        self.keepalive_count = count;
        self
    }

    /// The largest message accepted, up to libvirt's own limit of 32 MiB, which is the default.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes.clamp(crate::frame::MIN_FRAME, MAX_FRAME);
        self
    }

    /// How many calls may be unanswered at a time; further ones wait here, within their timeout. 4.
    ///
    /// Stay below the daemon's `max_client_requests`, which is 5 unless configured: while that many calls of a
    /// connection are unanswered, the daemon reads nothing more from it, not even pings, and one that is only busy
    /// looks dead. A call that takes long holds its place all the while, also after it was given up, because the
    /// daemon still works on it: such calls deserve a connection of their own.
    pub fn max_pending(mut self, calls: usize) -> Self {
        self.max_pending = calls.clamp(1, 1024);
        self
    }

    /// How many events are kept for a reader that lags, before it loses the oldest and is told so. 1024.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.event_capacity = events.clamp(1, 1 << 20);
        self
    }

    /// The name and password for daemons that ask for SASL. None by default.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The certificates for `+tls`, unless the URI names a `pkipath`. [`Pki::system`] by default.
    pub fn pki(mut self, pki: Pki) -> Self {
        self.pki = pki;
        self
    }

    /// Open a connection that can look but not touch. Off by default.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Where the daemons' UNIX sockets lie. `/run/libvirt` by default.
    pub fn run_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.run_dir = path.into();
        self
    }

    /// How long a daemon may be silent in all.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.keepalive_interval.map(|interval| interval.saturating_mul(self.keepalive_count.saturating_add(1)))
    }
}
