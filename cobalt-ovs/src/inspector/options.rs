use std::{path::PathBuf, time::Duration};

use crate::{options::ConnectOptions, ovsdb::ReplicaOptions, remote::Remote};

/// How OVN's southbound database is reached. Much can be told without it, but not which flows are stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Southbound {
    /// Not at all.
    #[default]
    None,
    /// Where `ovn-controller` is told to find it (`external_ids:ovn-remote`), and there again when that changes.
    AsController,
    /// Here.
    At(Vec<Remote>),
}

/// Where the daemons of a host are and what is expected of them.
///
/// ```
/// use cobalt_ovs::{OvsOptions, Pki, Southbound};
///
/// let options = OvsOptions::new()
///     .southbound(Southbound::AsController)
///     .pki(Pki::new("/etc/ovn/ca.pem", "/etc/ovn/client.pem", "/etc/ovn/client.key"));
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct OvsOptions {
    pub(super) run_dir: PathBuf,
    pub(super) ovn_run_dir: PathBuf,
    pub(super) host_root: PathBuf,
    pub(super) database: Option<Remote>,
    pub(super) southbound: Southbound,
    pub(super) connection: ConnectOptions,
    pub(super) replica: ReplicaOptions,
    pub(super) control_timeout: Duration,
    pub(super) trace_timeout: Duration,
    pub(super) openflow_timeout: Duration,
    pub(super) owner: String,
    pub(super) sweep: bool,
}

impl Default for OvsOptions {
    fn default() -> Self {
        Self {
            run_dir: "/run/openvswitch".into(),
            ovn_run_dir: "/run/ovn".into(),
            host_root: "/".into(),
            database: None,
            southbound: Southbound::None,
            connection: ConnectOptions::default(),
            replica: ReplicaOptions::default(),
            control_timeout: Duration::from_secs(2),
            trace_timeout: Duration::from_secs(10),
            openflow_timeout: Duration::from_secs(5),
            owner: "cobalt-ovs".into(),
            sweep: false,
        }
    }
}

impl OvsOptions {
    /// The defaults, each named at its method.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the sockets and pidfiles of Open vSwitch are. `/run/openvswitch`.
    pub fn run_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.run_dir = path.into();
        self
    }

    /// Where the socket and the pidfile of `ovn-controller` are. `/run/ovn`; it is not the same directory.
    pub fn ovn_run_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.ovn_run_dir = path.into();
        self
    }

    /// Under which directory `/proc` and `/sys` of the host are, for the kernel's bonds. `/`.
    pub fn host_root(mut self, path: impl Into<PathBuf>) -> Self {
        self.host_root = path.into();
        self
    }

    /// Where the switch's own database is. `db.sock` in the run directory, unless told.
    pub fn database(mut self, remote: Remote) -> Self {
        self.database = Some(remote);
        self
    }

    /// How the southbound database is reached. Not at all, unless told.
    pub fn southbound(mut self, southbound: Southbound) -> Self {
        self.southbound = southbound;
        self
    }

    /// The certificates for databases at `ssl:` addresses.
    pub fn pki(mut self, pki: crate::Pki) -> Self {
        self.connection = self.connection.pki(pki);
        self
    }

    /// How connections to the databases are made. Certificates given before are replaced.
    pub fn connection(mut self, options: ConnectOptions) -> Self {
        self.connection = options;
        self
    }

    /// How lost connections to the databases are made again.
    pub fn replica(mut self, options: ReplicaOptions) -> Self {
        self.replica = options;
        self
    }

    /// How long a daemon may take to answer on its control socket before it is called unresponsive. 2 s.
    pub fn control_timeout(mut self, timeout: Duration) -> Self {
        self.control_timeout = timeout;
        self
    }

    /// How long the switch may take to follow a packet. 10 s.
    pub fn trace_timeout(mut self, timeout: Duration) -> Self {
        self.trace_timeout = timeout;
        self
    }

    /// How long a bridge may take for one answer over OpenFlow. 5 s.
    pub fn openflow_timeout(mut self, timeout: Duration) -> Self {
        self.openflow_timeout = timeout;
        self
    }

    /// Under which name mirrors for captures are made. Programs with the same name remove each other's. `cobalt-ovs`.
    pub fn owner(mut self, name: impl Into<String>) -> Self {
        self.owner = name.into();
        self
    }

    /// Whether mirrors that an earlier run of this owner has left behind are removed, as soon as the database can be
    /// reached, and from then on those of anybody whose capture is over by its time. For the one program that runs all the
    /// time; a look must not end the capture of another. No.
    pub fn sweep(mut self, sweep: bool) -> Self {
        self.sweep = sweep;
        self
    }

    pub(super) fn database_remote(&self) -> Remote {
        self.database.clone().unwrap_or_else(|| Remote::Unix(self.run_dir.join("db.sock")))
    }

    pub(super) fn replica_options(&self) -> ReplicaOptions {
        self.replica.clone().connection(self.connection.clone())
    }
}
