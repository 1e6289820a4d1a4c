//! The backend against the scripted daemon: the contract of its seam, and every fault.
#![cfg(feature = "testing")]
#![allow(clippy::unwrap_used)]

mod contract;
mod driver;
mod events;
mod faults;
mod fixture;
mod inventory;
