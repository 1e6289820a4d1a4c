//! [`OvsInspector`] over OVSDB, unixctl and OpenFlow.

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
