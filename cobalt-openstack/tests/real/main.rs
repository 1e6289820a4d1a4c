//! Against a real Keystone, Placement, Glance and Nova.
//!
//! They need root and what `cargo xtask test` installs; elsewhere each test says that it was skipped.
#![allow(clippy::unwrap_used)]

mod contract;
mod login;
mod rig;
mod view;
