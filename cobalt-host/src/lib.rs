//! [`HostSystem`] for real hosts: the operating system as systemd, logind and hostnamed tell it over D-Bus.
//!
//! # The bare minimum
//!
//! ```no_run
//! use cobalt_host::{HostSystem, Options};
//!
//! # async fn example() -> cobalt_core::Result<()> {
//! let host = cobalt_host::detect(&Options::from_env()).await?;
//! let facts = host.facts().await?;
//! eprintln!("{} on {}", facts.pretty_version.unwrap_or_default(), facts.hardware_model.unwrap_or_default());
//! for unit in host.units(&["libvirtd.service".to_owned()]).await? {
//!     eprintln!("{}: {}, {}", unit.name, unit.active.as_str(), unit.load_state);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Which host
//!
//! | Type | For | Features |
//! |---|---|---|
//! | [`Systemd`] | hosts with systemd | units, starting units; delaying a shutdown if there is a logind |
//! | [`PlainHost`] | containers, other inits, development | none: facts from files only |
//!
//! [`detect`] chooses. Both are found below [`Options::root`], so an agent in a container is given its host's bus
//! socket, and needs `/etc/os-release` of the host only where hostnamed is missing. The kernel's files (`/proc`,
//! `/sys`) are the host's in any container.
//!
//! # Delaying a shutdown
//!
//! The guard holds a descriptor that logind waits for. It is closed when the guard is dropped, in every path:
//!
//! ```
//! use cobalt_host::HostSystem;
//! use cobalt_core::host::HostEvent;
//! use futures::StreamExt;
//!
//! async fn leave_in_order(host: &dyn HostSystem) -> cobalt_core::Result<()> {
//!     let mut events = host.events();
//!     let guard = host.inhibit_shutdown("VMs are moved away").await?;
//!     while let Some(event) = events.next().await {
//!         if event == HostEvent::PrepareForShutdown(true) {
//!             break; // at most `guard.max_delay()` from here
//!         }
//!     }
//!     drop(guard); // the host goes down
//!     Ok(())
//! }
//! ```
//!
//! # When the bus goes away
//!
//! Nothing ends. Calls answer [`Unavailable`](cobalt_core::Error::Unavailable) at once; each tries the bus anew, and
//! so does a task in the background, less and less often. When the bus is back, listeners hear
//! [`Resync`](cobalt_core::host::HostEvent::Resync), and a shutdown that was announced or taken back meanwhile; the
//! same when only systemd or logind restarts. Delays of a shutdown that were granted before stay in force. Every call
//! ends within [`Options::timeout`].
//!
//! # What is believed
//!
//! Anybody may send a signal on a system bus. Only those of the owners of systemd's and logind's names are heard.
//! What hostnamed answers is bounded in size, and a field that is not understood is unknown, not an error. Changes are
//! told of the 256 units that were asked about last.

mod bus;
mod detect;
mod error;
mod events;
mod facts;
mod options;
mod plain;
mod systemd;

pub use cobalt_core::host::HostSystem;
pub use detect::detect;
pub use error::BusError;
pub use options::Options;
pub use plain::PlainHost;
pub use systemd::Systemd;
