//! Against real daemons: libvirtd with QEMU, on hosts of their own on this machine.
//!
//! They need root and the packages that `cargo xtask test` installs; elsewhere each test says that it was skipped.
#![allow(clippy::unwrap_used)]

mod backend;
mod contract;
mod count;
mod daemon;
mod events;
mod migration;
mod rig;
mod ways;
