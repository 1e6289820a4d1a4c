//! What can go wrong on a node, at will.

use std::ffi::OsStr;
use std::time::Duration;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::ovs::daemon;
use crate::ovs::node::Node;
use crate::process;

/// A port that the switch takes up, or complains about.
const LIMIT: Duration = Duration::from_secs(300);

/// A daemon of a node, or of what it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Daemon {
    /// `ovsdb-server` of the node.
    Database,
    /// `ovs-vswitchd` of the node.
    Switch,
    /// `ovn-controller` of the node.
    Controller,
    /// `ovsdb-server` with OVN's northbound database.
    Northbound,
    /// `ovsdb-server` with OVN's southbound database.
    Southbound,
    /// `ovn-northd`.
    Northd,
    /// `ovs-vswitchd` of the switch at the other end of the cables.
    Partner,
}

/// A port of br-int that has no business there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Orphan {
    /// Its device never existed.
    NeverExisted,
    /// Its device vanished.
    Vanished,
    /// No logical port has the name it claims.
    Unknown,
    /// Another port claims the same logical port, the one of the first VM.
    Duplicate,
    /// Its logical port is bound to the other chassis.
    Elsewhere,
}

impl Orphan {
    /// Every class.
    pub const ALL: [Orphan; 5] =
        [Orphan::NeverExisted, Orphan::Vanished, Orphan::Unknown, Orphan::Duplicate, Orphan::Elsewhere];

    /// The name of its port.
    pub fn port(self) -> &'static str {
        match self {
            Orphan::NeverExisted => "tap-never",
            Orphan::Vanished => "tap-vanished",
            Orphan::Unknown => "tap-unknown",
            Orphan::Duplicate => "tap-duplicate",
            Orphan::Elsewhere => "tap-elsewhere",
        }
    }

    /// The logical port that it claims to be.
    pub fn logical_port(self) -> &'static str {
        match self {
            Orphan::NeverExisted => "lp-never",
            Orphan::Vanished => "lp-vanished",
            Orphan::Unknown => "lp-unknown",
            Orphan::Duplicate => "vm1",
            Orphan::Elsewhere => "lp-elsewhere",
        }
    }
}

/// What is done to a daemon.
impl Node {
    fn daemon(&self, daemon: Daemon) -> (&daemon::Daemon, &Namespace) {
        match daemon {
            Daemon::Database => (&self.switch.database, &self.switch.namespace),
            Daemon::Switch => (&self.switch.daemon, &self.switch.namespace),
            Daemon::Controller => (&self.controller, &self.switch.namespace),
            Daemon::Northbound => (&self.central.northbound, &self.central.namespace),
            Daemon::Southbound => (&self.central.southbound, &self.central.namespace),
            Daemon::Northd => (&self.central.northd, &self.central.namespace),
            Daemon::Partner => (&self.tor.daemon, &self.tor.namespace),
        }
    }

    /// Ends a daemon without a warning. Its sockets and its note of its process id stay on disk.
    pub fn kill(&self, daemon: Daemon) -> Result<()> {
        let (daemon, namespace) = self.daemon(daemon);
        daemon.end(namespace, "KILL")
    }

    /// Asks a daemon to end, and waits for it.
    pub fn stop(&self, daemon: Daemon) -> Result<()> {
        let (daemon, namespace) = self.daemon(daemon);
        daemon.end(namespace, "TERM")
    }

    /// Starts a daemon again and waits until it is ready.
    pub fn start(&self, daemon: Daemon) -> Result<()> {
        let (started, namespace) = self.daemon(daemon);
        started.start(namespace)?;
        // The bridges' interfaces went with the switch, and their addresses with them.
        if daemon == Daemon::Switch { self.addresses() } else { Ok(()) }
    }

    /// Lets a daemon hang: its connections stay open, and it does not answer.
    pub fn freeze(&self, daemon: Daemon) -> Result<()> {
        let (daemon, namespace) = self.daemon(daemon);
        daemon.signal(namespace, "STOP")
    }

    /// Lets a frozen daemon go on.
    pub fn thaw(&self, daemon: Daemon) -> Result<()> {
        let (daemon, namespace) = self.daemon(daemon);
        daemon.signal(namespace, "CONT")
    }

    /// Lets the controller do nothing, or go on: it lives, answers questions, and does not tidy up.
    pub fn pause_controller(&self, pause: bool) -> Result<()> {
        let pid = self.pid(Daemon::Controller).unwrap_or_default();
        let socket = self.directory().join(format!("ovn-controller.{pid}.ctl"));
        let command = if pause { "debug/pause" } else { "debug/resume" };
        let words = [OsStr::new("--timeout=100"), OsStr::new("-t"), socket.as_os_str(), OsStr::new(command)];
        process::run("ovs-appctl", words).map(drop)
    }

    /// The process id of a daemon as it knows it itself, if it runs.
    pub fn pid(&self, daemon: Daemon) -> Option<u32> {
        let (daemon, namespace) = self.daemon(daemon);
        daemon.pid(namespace)
    }
}

/// What is done to the bond.
impl Node {
    /// Lets the switch at the other end fall silent. Links stay up, and LACP gets no answer.
    pub fn silence_partner(&self) -> Result<()> {
        self.freeze(Daemon::Partner)
    }

    /// Lets it speak again.
    pub fn wake_partner(&self) -> Result<()> {
        self.thaw(Daemon::Partner)
    }

    /// Pulls the cable of one of eth1, eth2 and eth3, or puts it back.
    pub fn cable(&self, interface: &str, plugged: bool) -> Result<()> {
        let other = interface.replacen("eth", "swp", 1);
        let state = if plugged { "up" } else { "down" };
        self.tor.namespace.run_in_network(["ip", "link", "set", "dev", &other, state]).map(drop)
    }
}

/// What is done to ports and flows.
impl Node {
    /// Makes a port of br-int that has no business there, and waits until the switch and OVN have taken note.
    pub fn orphan(&self, orphan: Orphan) -> Result<()> {
        let (port, logical) = (orphan.port(), orphan.logical_port());
        match orphan {
            Orphan::NeverExisted => {
                self.nbctl(["lsp-add", "ls0", logical])?;
                // Without waiting: the switch will not take it up.
                self.vsctl([
                    "--no-wait",
                    "add-port",
                    "br-int",
                    port,
                    "--",
                    "set",
                    "Interface",
                    port,
                    &format!("external_ids:iface-id={logical}"),
                ])?;
                process::wait_until("the complaint about the port", LIMIT, || {
                    self.vsctl(["get", "Interface", port, "error"]).is_ok_and(|error| error.contains("No such device"))
                })?;
            }
            Orphan::Vanished => {
                self.nbctl(["lsp-add", "ls0", logical])?;
                self.add_port(port, Some(logical))?;
                self.run(["ip", "link", "delete", "dev", port])?;
                process::wait_until("the end of the device", LIMIT, || {
                    self.vsctl(["get", "Interface", port, "ifindex"]).is_ok_and(|index| index.trim() == "0")
                })?;
            }
            Orphan::Unknown | Orphan::Duplicate => self.add_port(port, Some(logical))?,
            Orphan::Elsewhere => {
                let option = format!("requested-chassis={}", Node::OTHER_CHASSIS);
                self.nbctl(["--wait=sb", "lsp-add", "ls0", logical, "--", "lsp-set-options", logical, &option])?;
                self.sbctl(["lsp-bind", logical, Node::OTHER_CHASSIS])?;
                self.add_port(port, Some(logical))?;
            }
        }
        self.until_synced()
    }

    /// Takes it away again.
    pub fn adopt(&self, orphan: Orphan) -> Result<()> {
        self.remove_port(orphan.port())?;
        match orphan {
            Orphan::Duplicate | Orphan::Unknown => {}
            other => self.nbctl(["lsp-del", other.logical_port()]).map(drop)?,
        }
        self.until_synced()
    }

    /// Adds a flow that is nobody's to a bridge: `cookie=0xdeadbeef,table=200,priority=1,actions=drop`.
    pub fn add_flow(&self, bridge: &str, flow: &str) -> Result<()> {
        self.ofctl("add-flow", bridge, &[flow]).map(drop)
    }

    /// Kills the controller and then deletes the logical port of a VM, so that its flows are left over.
    pub fn leave_flows_behind(&self, vm: usize) -> Result<()> {
        self.kill(Daemon::Controller)?;
        self.nbctl(["--wait=sb", "lsp-del", self.vm(vm).name()]).map(drop)
    }
}
