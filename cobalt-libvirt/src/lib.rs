//! libvirt for Rust, without C: an asynchronous client for the daemons' wire protocol, and the
//! [`HypervisorBackend`] of Cobalt on top of it, for QEMU/KVM and Cloud Hypervisor.
//!
//! The bare minimum looks like this:
//!
//! ```no_run
//! use cobalt_libvirt::{DomainFilter, Libvirt};
//!
//! # async fn example() -> cobalt_libvirt::Result<()> {
//! let libvirt = Libvirt::connect("qemu:///system").await?;
//! for domain in libvirt.domains(DomainFilter::ACTIVE).await? {
//!     println!("{domain}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Concepts
//!
//! - [`Libvirt`] is one connection, with a method per call. It is cheap to clone, calls run side by side, every call
//!   has a timeout, and dropping a call's future gives it up. It speaks to `libvirtd` and to the modular daemons
//!   (`virtqemud`, `virtchd`), over UNIX sockets, TCP and TLS; see [`LibvirtUri`] and [`ConnectOptions`].
//! - [`DomainRef`] is a domain's identity, as lists and lookups return it and calls take it.
//! - [`Libvirt::subscribe`] yields [events](event) as a stream. The pattern is: subscribe, list, follow.
//! - [`Libvirt::domain_stats`] is how to get numbers of many domains: one call for all of them. They come as
//!   [typed parameters](typed) that stay in the memory of the reply, so that reading them allocates nothing.
//! - [`Error`] names the operation and its arguments. What the daemon refused carries the daemon's
//!   [code](error::code): decide on that, never on the text.
//! - [`xml`] reads the capabilities and domain descriptions that the calls return as text.
//! - [`rpc`] has the procedures themselves, and the way to add one that is missing.
//!
//! # Features
//!
//! - `testing`: a scripted daemon on the wire level, for tests of one's own.

mod backend;
mod client;
mod connection;
pub mod error;
pub mod event;
pub mod frame;
mod keepalive;
pub mod rpc;
mod sasl;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
pub mod typed;
pub mod uri;
pub mod xdr;
pub mod xml;

pub use cobalt_core::backend::HypervisorBackend;

pub use self::{
    backend::{BackendOptions, ConnectionState, LibvirtBackend},
    client::{EventSubscription, JobQuery, Libvirt, MigrateOptions, Notice, StatsOptions, Version},
    connection::{ConnectOptions, Credentials, Pki},
    error::{Error, Result},
    rpc::{DomainFilter, DomainRef, StatsGroups},
    uri::LibvirtUri,
};
pub use bytes;
pub use uuid;
