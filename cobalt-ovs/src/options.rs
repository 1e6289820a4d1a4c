use std::{path::PathBuf, time::Duration};

/// The certificates for `ssl:` addresses, all PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pki {
    /// The authority that signed the server's certificate.
    pub ca: PathBuf,
    /// Our certificate and its key, where the server asks for them. OVN's southbound database does.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether the server's certificate must be for the host that was called. Open vSwitch itself never looks: its
    /// authority signs for nobody else, and the certificates that `ovs-pki` makes carry no host names.
    pub verify_name: bool,
}

impl Pki {
    /// What the Open vSwitch tools take as `--ca-cert`, `--certificate` and `--private-key`.
    pub fn new(ca: impl Into<PathBuf>, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { ca: ca.into(), identity: Some((certificate.into(), key.into())), verify_name: false }
    }
}

/// How to connect to a database and what to expect of the connection.
///
/// ```
/// use std::time::Duration;
/// use cobalt_ovs::ConnectOptions;
///
/// let options = ConnectOptions::new().call_timeout(Duration::from_secs(5)).max_message(8 << 20);
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub(crate) connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) probe_interval: Option<Duration>,
    pub(crate) max_message: usize,
    pub(crate) max_pending: usize,
    pub(crate) monitor_capacity: usize,
    pub(crate) pki: Option<Pki>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            probe_interval: Some(Duration::from_secs(5)),
            max_message: 64 << 20,
            max_pending: 16,
            monitor_capacity: 256,
            pki: None,
        }
    }
}

impl ConnectOptions {
    /// The defaults, each named at its method.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long each step of connecting may take: name lookup, connection, TLS. 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long a call may take, waiting for its turn included. 10 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// After how much silence the server is asked whether it is still there; after as much again the connection is
    /// given up. 5 s. Without one, a server that vanished without closing is noticed only by calls that time out.
    pub fn probe_interval(mut self, interval: Option<Duration>) -> Self {
        self.probe_interval = interval.filter(|interval| !interval.is_zero());
        self
    }

    /// The largest message accepted. 64 MiB; the initial contents of a database come in one message.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.max_message = bytes.max(1024);
        self
    }

    /// How many calls may be unanswered at a time; further ones wait here, within their timeout. 16.
    pub fn max_pending(mut self, calls: usize) -> Self {
        self.max_pending = calls.clamp(1, 1024);
        self
    }

    /// How many updates of a monitor wait for their reader. A reader that falls behind further loses the monitor, and
    /// must start it anew. 256.
    pub fn monitor_capacity(mut self, updates: usize) -> Self {
        self.monitor_capacity = updates.clamp(1, 1 << 16);
        self
    }

    /// The certificates for `ssl:` addresses. None by default.
    pub fn pki(mut self, pki: Pki) -> Self {
        self.pki = Some(pki);
        self
    }

    /// How long the server may leave what we send in the socket.
    pub(crate) fn patience(&self) -> Duration {
        self.probe_interval.map_or(self.call_timeout, |interval| interval.saturating_mul(2)).max(self.call_timeout)
    }
}
