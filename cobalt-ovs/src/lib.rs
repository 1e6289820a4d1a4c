//! [`OvsInspector`] over OVSDB, unixctl and OpenFlow.

pub mod error;
pub mod jsonrpc;
pub mod openflow;
mod options;
pub mod ovsdb;
mod remote;
mod transport;

pub use cobalt_core::ovs::OvsInspector;

pub use self::{
    error::{Error, Result},
    options::{ConnectOptions, Pki},
    remote::Remote,
};
