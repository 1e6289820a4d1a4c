//! [`OvsInspector`] over OVSDB, unixctl and OpenFlow.

pub mod error;
pub mod jsonrpc;
pub mod openflow;
mod options;
pub mod ovsdb;
mod remote;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
pub mod unixctl;

pub use cobalt_core::ovs::OvsInspector;

pub use self::{
    error::{Error, Result},
    options::{ConnectOptions, Pki},
    remote::Remote,
};
