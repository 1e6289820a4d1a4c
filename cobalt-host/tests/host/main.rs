//! The real bus daemon, with mocks of systemd, logind and hostnamed on it.
#![allow(clippy::unwrap_used)]

mod contract;
mod detect;
mod facts;
mod reconnect;
mod rig;
mod shutdown;
mod units;
