//! [`OvsInspector`] over OVSDB, unixctl and OpenFlow.
//!
//! **This crate has no implementation yet.** It holds the name and the place: clients for the three protocols of a
//! host's Open vSwitch and the inspector on top of them will live here, and nothing else.
//!
//! What can be used today is the seam itself and its simulated implementation in `cobalt-sim`:
//!
//! ```
//! use cobalt_ovs::OvsInspector;
//!
//! async fn bridges(switch: &dyn OvsInspector) -> cobalt_core::Result<usize> {
//!     Ok(switch.snapshot().await?.bridges.len())
//! }
//! ```

pub use cobalt_core::ovs::OvsInspector;

pub mod capture;
pub mod openflow;
pub mod show;
