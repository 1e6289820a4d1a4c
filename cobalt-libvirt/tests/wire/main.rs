//! The types of this crate against bytes that real daemons and virsh put on the wire.
//!
//! The recordings in `tests/recorded` come from libvirt 9.0 with QEMU and with the test driver, and from libvirt 11.3
//! with Cloud Hypervisor. Every frame whose type we have must decode, and encode again to the same bytes.
#![allow(clippy::unwrap_used)]

mod codec;
mod recording;
mod round_trip;
mod values;
