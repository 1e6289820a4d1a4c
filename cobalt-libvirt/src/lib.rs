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
//! # Where the daemon is
//!
//! A URI as libvirt writes it, or an [error](LibvirtUri) that says what is wrong with it:
//!
//! | URI | Means |
//! |---|---|
//! | `qemu:///system` | the UNIX socket of `libvirtd`, else that of `virtqemud`; `?mode=direct` for the latter only |
//! | `ch+unix:///system?socket=/run/x` | that socket |
//! | `qemu+tcp://host/system` | plain TCP, port 16509 |
//! | `qemu+tls://host/system?pkipath=/dir` | TLS, port 16514, with `cacert.pem`, `clientcert.pem` and `clientkey.pem` of that directory |
//!
//! A daemon that asks for a login gets one by SCRAM or, inside TLS only, by PLAIN:
//!
//! ```no_run
//! use std::time::Duration;
//! use cobalt_libvirt::{ConnectOptions, Credentials, Libvirt};
//!
//! # async fn example() -> cobalt_libvirt::Result<()> {
//! let options = ConnectOptions::new()
//!     .credentials(Credentials::new("agent", "secret"))
//!     .call_timeout(Duration::from_secs(10))
//!     .keepalive(Some(Duration::from_secs(5)), 5);
//! let libvirt = Libvirt::connect_with(&"qemu+tls://node-1/system".parse()?, &options).await?;
//! println!("libvirt {} on {}", libvirt.library_version().await?, libvirt.hostname().await?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Libvirt`] is one connection, with a method per call. It is cheap to clone, calls run side by side, every call has a
//! timeout, and dropping a call's future gives it up. It does not reconnect: once [closed](Libvirt::closed), make a new
//! one, or take [`LibvirtBackend`], which does that for you.
//!
//! # Numbers of many domains
//!
//! [`Libvirt::domain_stats`] is one call for all of them. They come as [typed parameters](typed) that stay in the memory
//! of the reply, so that reading them allocates nothing.
//!
//! ```no_run
//! # use cobalt_libvirt::{Libvirt, StatsGroups, StatsOptions};
//! # async fn example(libvirt: Libvirt) -> cobalt_libvirt::Result<()> {
//! for record in libvirt.domain_stats(&[], StatsGroups::CPU_TOTAL, StatsOptions::polling()).await? {
//!     println!("{}: {:?} ns", record.domain, record.params.get_u64("cpu.time"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The call fails as a whole when one domain dies at the wrong moment, and the Cloud Hypervisor driver does not have it:
//! [`Error::is_no_support`] tells. [`LibvirtBackend`] copes with both.
//!
//! # Events
//!
//! The pattern is: subscribe, list, follow; and all of it again after a gap.
//!
//! ```no_run
//! # use cobalt_libvirt::{DomainFilter, Libvirt, Notice, event::{EventId, Message}};
//! use futures::StreamExt;
//!
//! # async fn example(libvirt: Libvirt) -> cobalt_libvirt::Result<()> {
//! let mut events = libvirt.subscribe(&[EventId::Lifecycle, EventId::IoErrorReason]).await?;
//! let known = libvirt.domains(DomainFilter::ALL).await?;
//! while let Some(notice) = events.next().await {
//!     match notice {
//!         Notice::Message(Message::Event(event)) => println!("{}: {:?}", event.domain, event.kind),
//!         Notice::Lagged(lost) => println!("{lost} events are lost, list again"),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One reset of a QEMU guest is told two or three times: debounce where you count.
//!
//! # Migration
//!
//! Always peer to peer: the daemons do it among themselves, and [`Libvirt::migrate_p2p`] waits. It holds its place on
//! the connection to the end, so give it a connection of its own and look from another.
//!
//! ```no_run
//! # use cobalt_libvirt::{JobQuery, Libvirt, MigrateOptions};
//! # async fn example() -> cobalt_libvirt::Result<()> {
//! let (moving, watching) = (Libvirt::connect("qemu:///system").await?, Libvirt::connect("qemu:///system").await?);
//! let domain = watching.domain_by_name("web-1").await?;
//! let options = MigrateOptions { persist: true, undefine_source: true, ..MigrateOptions::live("qemu+tcp://b/system") };
//! let moved = moving.migrate_p2p(&domain, &options);
//! let job = watching.job_stats(&domain, JobQuery::Running);
//! # let _ = (moved, job);
//! # Ok(())
//! # }
//! ```
//!
//! # Errors
//!
//! An [`Error`] names the operation and its arguments. What the daemon refused carries the daemon's [code](error::code):
//! decide on that, never on the text. [`Error::is_transient`] says whether time may cure it.
//!
//! # As a backend of Cobalt
//!
//! [`LibvirtBackend`] implements [`HypervisorBackend`]: it connects and reconnects by itself, registers for all events
//! anew, keeps the XML of domains that have not changed, and tells per driver what it can and cannot do.
//!
//! # What else there is
//!
//! - [`DomainRef`] is a domain's identity, as lists and lookups return it and calls take it.
//! - [`xml`] reads the capabilities and domain descriptions that the calls return as text, and accounts what a domain
//!   takes from which NUMA cell of the host.
//! - [`rpc`] has the procedures themselves, and the way to add one that is missing.
//! - Not here: SSH transports, streams (consoles, volumes), file descriptors, migrations conducted by the client.
//!
//! The programs `domains_list`, `events_follow` and `migrate_watch` among the project's examples run against any URI.
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
