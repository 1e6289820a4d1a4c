//! The OVS agent: it publishes how the virtual switch of one host is, and answers questions about it.

pub mod endpoints;
