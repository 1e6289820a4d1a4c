//! The simulated region, from outside: its laws, its seams, its stories.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod broken;
mod broken_switches;
mod cloud;
mod cluster;
mod contracts;
mod hosts;
mod laws;
mod switches;
mod view;
