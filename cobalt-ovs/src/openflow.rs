//! OpenFlow to a bridge's management socket, for reading.
//!
//! Every bridge listens on `<rundir>/<bridge>.mgmt`. [`OpenFlow`] greets it with all versions this client speaks (1.3,
//! 1.4 and 1.5: a bridge may be restricted to one), and then asks one thing at a time:
//!
//! - [`table_stats`](OpenFlow::table_stats) counts flows per table. It costs the switch next to nothing, at a hundred
//!   thousand flows too.
//! - [`flows`](OpenFlow::flows) dumps the flows themselves as a stream, in the notation of `ovs-ofctl`. It is for people
//!   who look for something, never for a timer.
//! - [`port_stats`](OpenFlow::port_stats) and [`group_stats`](OpenFlow::group_stats) are what their names say.
//!
//! Nothing here changes a flow. What the decoder does not know, in a match or an action, is shown with its numbers and
//! its bytes and is no error.
//!
//! ```no_run
//! use cobalt_ovs::openflow::{OpenFlow, Options};
//! use futures::TryStreamExt;
//!
//! async fn dropped_by(table: u8) -> Result<u64, cobalt_ovs::openflow::Error> {
//!     let bridge = OpenFlow::connect("/run/openvswitch/br-int.mgmt", Options::default()).await?;
//!     let flows = bridge.flows(Some(table));
//!     flows.try_fold(0, async |sum, flow| Ok(if flow.actions == "drop" { sum + flow.packets } else { sum })).await
//! }
//! ```

#[doc(hidden)]
pub use self::flows::flows_in;
pub use self::{
    client::{OpenFlow, Options},
    error::{Error, Result},
    stats::{GroupStats, PortStats, TableStats, flow_counts},
    text::normalized,
    version::Version,
};

mod action;
mod client;
mod conntrack;
mod error;
mod field;
mod flows;
mod learn;
mod matching;
pub mod message;
mod multipart;
mod nicira;
mod stats;
mod text;
mod version;
mod wire;
