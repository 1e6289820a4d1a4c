//! Open vSwitch and OVN for Rust, without C and without running a command: clients for the three protocols of a host's
//! switch, and the [`OvsInspector`] of Cobalt on top of them.
//!
//! The bare minimum looks like this:
//!
//! ```no_run
//! use cobalt_ovs::{OvsInspector, OvsOptions, OvsSwitch};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let switch = OvsSwitch::connect(OvsOptions::new()).await?;
//! let snapshot = switch.snapshot().await?;
//! println!("{:?}, {} bridges", snapshot.switch, snapshot.bridges.len());
//! # Ok(())
//! # }
//! ```
//!
//! # Where the truth is
//!
//! A switch that is broken still has a database that looks well: rows stay as the daemon last wrote them. So everything
//! is asked where it cannot be stale:
//!
//! | Question | Who is asked |
//! |---|---|
//! | what is configured | the database, followed by a [`Replica`](ovsdb::Replica) of the columns that matter |
//! | does a daemon live, hang, or not run | its control socket ([`unixctl`]), found by its pidfile, with a short timeout |
//! | which members of a bond carry traffic, what LACP says | `bond/show` and `lacp/show`; the database still says `negotiated` when the partner is silent |
//! | how many flows | OpenFlow table statistics ([`openflow`]), never a dump |
//! | is OVN's controller connected to its database | its `connection-status` |
//! | is it connected to the switch | the switch's count of OpenFlow connections: no row tells |
//! | does it keep up | the southbound database, where it can be read: `nb_cfg` wanted and done |
//! | is a port bound | the southbound database; else what the controller has bound here |
//! | how do members of the kernel's bonds fare | `/proc/net/bonding` |
//! | which flows are stale | a dump, and every row of the southbound database whose id could be a cookie |
//!
//! A daemon that does not answer is a finding and not an error: [`OvsInspector::snapshot`] always succeeds.
//!
//! # Concepts
//!
//! - [`OvsSwitch`] is all of it: [`OvsOptions`] says where the sockets are, and how the southbound database is reached
//!   ([`Southbound`]). It observes. The one thing it ever writes is a mirror for a capture on a port without a device,
//!   and it removes that however the capture ends.
//! - [`ovsdb::Ovsdb`] is one connection to a database server over UNIX sockets, TCP or TLS ([`Remote`],
//!   [`ConnectOptions`]): calls run side by side, each with a timeout, and dropping a call's future gives it up.
//!   [`transact`](ovsdb::Ovsdb::transact) takes typed [operations](ovsdb::Operation).
//! - [`ovsdb::Replica`] follows a database, connects again by itself, gets what it missed, and says what changed.
//! - [`unixctl::Unixctl`] asks a daemon, [`show`] understands what it says, [`openflow`] asks a bridge, and [`capture`]
//!   listens on a port. Each works without the others.
//! - [`Error`] names the operation and its arguments; [`category`](Error::category) is for metrics,
//!   [`is_transient`](Error::is_transient) for retries.
//!
//! # What it needs
//!
//! The run directories of both (`/run/openvswitch` and `/run/ovn`: `ovn-controller` has its socket in the second), and
//! the right to connect to the sockets in them, which usually means root. Captures need `CAP_NET_RAW` and the host's
//! network namespace, and so do the kernel's bonds. Schemas differ between versions: columns and tables that a server
//! does not have are left out and read as empty. Tested with Open vSwitch 3.1 and OVN 23.03; DPDK is known through the
//! database's columns only.
//!
//! # Features
//!
//! - `testing`: servers for tests of one's own, which misbehave on demand.

pub mod capture;
pub mod error;
mod inspector;
pub mod jsonrpc;
pub mod openflow;
mod options;
pub mod ovsdb;
mod remote;
pub mod show;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
pub mod unixctl;

pub use cobalt_core::ovs::OvsInspector;

pub use self::{
    error::{Error, Result},
    inspector::{OvsOptions, OvsSwitch, Southbound},
    options::{ConnectOptions, Pki},
    remote::Remote,
};
