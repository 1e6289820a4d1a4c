//! A database server and control sockets for tests, at the level of the wire.
//!
//! [`OvsdbServer`] keeps a few tables and follows the protocol: schemas, all three generations of monitors, selects.
//! [`UnixctlServer`] answers commands with texts. What real daemons do only on a bad day they do on demand:
//!
//! | Wanted | How |
//! |---|---|
//! | messages in pieces, or several at once | [`OvsdbServer::chunk`], [`OvsdbServer::send`] |
//! | an older server | [`OvsdbServer::lacks`] |
//! | an error for an answer | [`OvsdbServer::refuse`], [`OvsdbServer::answer`], [`UnixctlServer::refuse`] |
//! | a server that asks | [`OvsdbServer::send`] with an `echo`, [`OvsdbServer::replies`] |
//! | a cut, a restart | [`OvsdbServer::cut`], [`OvsdbServer::forget`], [`OvsdbServer::stop`], [`OvsdbServer::listen_unix`] |
//! | a server that hangs | [`OvsdbServer::hang`], [`UnixctlServer::hang`] |
//!
//! ```
//! use cobalt_ovs::{ConnectOptions, Remote, ovsdb::{Operation, Ovsdb, Row}, testing::OvsdbServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = OvsdbServer::switch();
//! server.insert("Bridge", Row::new().with("name", "br-int"));
//! let remote = server.listen_tcp().await?;
//! let db = Ovsdb::connect(&remote, &ConnectOptions::new()).await?;
//! let outcome = db.transact("Open_vSwitch", &[Operation::select("Bridge", [])]).await?;
//! assert_eq!(outcome[0].rows[0].str("name"), Some("br-int"));
//! # Ok(())
//! # }
//! ```

mod model;
mod ovsdb;
mod unixctl;

pub use self::{ovsdb::OvsdbServer, unixctl::UnixctlServer};
