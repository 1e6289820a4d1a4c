//! The troubleshooting endpoints of the OVS agent, in front of an API server that decides who may do what.
//!
//! The agent's own client has the agent's rights and no others, so that what is missing from its role fails here.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod answers;
mod anything;
mod audit;
mod captures;
mod over_tls;
mod rig;
